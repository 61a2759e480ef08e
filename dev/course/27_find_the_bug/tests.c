#include "../grade.h"

#include "debug.h"

#include "base/check.h"
#include "formats/formats.h"
#include "base/params.h"
#include "comm/collectives.h"
#include "ops/dev_cpu.h"
#include "text/packing.h"
#include "train/schedule.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the rest of the trainer

void check_die(const char *file, int line, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail("%s:%d: it stopped with: %s", strrchr(file, '/') ? strrchr(file, '/') + 1 : file, line, text);
}

float *dev_cpu_scratch(Dev *dev, size_t n)
{
    free(dev->state);
    return dev->state = random_floats(n, 99); // what an earlier op has left there
}

// Not Philox, but numbers that depend on the same things.
Rng rng_make(uint64_t seed, const char *name, uint32_t step)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * 16777619u;
    return (Rng){seed, hash, step};
}

double rng_normal(Rng rng, uint64_t index)
{
    uint64_t state = rng.seed * 1000003 + rng.name * 65537ull + rng.step * 257ull + index * 0x9e3779b97f4a7c15ull;
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)random_below(&state, 1 << 20) / (1 << 20);
    return sum;
}

void formats_sum_squares(ExactSum *sum, const float *x, size_t n) { (void)sum, (void)x, (void)n; }
void formats_from_float(void *to, Format f, const float *x, size_t n, bool saturate)
{
    (void)to, (void)f, (void)x, (void)n, (void)saturate;
}
const char *comm_kind_name(CommKind kind) { return kind == COMM_ALL_REDUCE ? "all_reduce" : "a collective"; }
const char *comm_type_name(CommType type) { return type == COMM_FP32 ? "fp32" : "a type"; }
size_t comm_type_bytes(CommType type) { return type == COMM_FP32 ? 4 : 8; }

Dev debug_device(void (*fill)(Dev *))
{
    Dev dev = {.name = "cpu", .x_type = X_FP32, .x_bytes = 4, .threads = 2};
    fill(&dev);
    return dev;
}

// The message from one rank to another in this step; NULL: none.
typedef struct {
    void *data;
    size_t n;
} Message;

static void exchange(Collective *c, const CollectiveStep *step, int size, size_t *bytes)
{
    Message sent[16][16] = {0};
    for (int r = 0; r < size; r++) {
        if (step[r].send_to < 0) continue;
        Message *m = &sent[r][step[r].send_to];
        m->data = malloc(step[r].n_send * 4 + 1), m->n = step[r].n_send;
        memcpy(m->data, step[r].send, m->n * 4);
        if (bytes) bytes[r] += m->n * 4;
    }
    for (int r = 0; r < size; r++) {
        int from = step[r].recv_from;
        if (from < 0) continue;
        if (!sent[from][r].data) fail("rank %d waits for rank %d, which sends it nothing", r, from);
        if (sent[from][r].n != step[r].n_recv)
            fail("rank %d expects %zu elements from rank %d, which sends %zu", r, step[r].n_recv, from, sent[from][r].n);
        memcpy(step[r].recv, sent[from][r].data, sent[from][r].n * 4);
        free(sent[from][r].data), sent[from][r].data = NULL;
    }
    for (int a = 0; a < size; a++)
        for (int b = 0; b < size; b++)
            if (sent[a][b].data) fail("rank %d sends to rank %d, which does not receive", a, b);
    for (int r = 0; r < size; r++) collectives_act(&c[r], &step[r]);
}

void debug_collective(int kind, int size, const size_t *counts, float **in, float **out, size_t *bytes)
{
    Collective c[16];
    CollectiveStep step[16];
    size_t offsets[17] = {0};
    for (int r = 0; r < size; r++) offsets[r + 1] = offsets[r] + counts[r];
    for (int r = 0; r < size; r++) {
        CommCall call = {.kind = (CommKind)kind, .type = COMM_FP32, .op = COMM_SUM, .out = out[r], .in = in[r],
                         .n = offsets[size], .counts = counts, .offsets = offsets};
        c[r] = (Collective){call, COMM_RING, r, size, 4, NULL};
        c[r].scratch = malloc(collectives_scratch(&call, COMM_RING, r, size) + 1);
        collectives_begin(&c[r]);
        if (bytes) bytes[r] = 0;
    }
    for (int k = 0; k < collectives_steps(&c[0]); k++) {
        for (int r = 0; r < size; r++) step[r] = collectives_step(&c[r], k);
        exchange(c, step, size, bytes);
    }
}

// ---- what was reported of each file

TEST(bug1, 1, "bug 1: the first update of a run with a warm-up trains")
{
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 1, .warmup = 4, .decay_steps = 20};
    expect_number("the learning rate of update 0 with optim.lr = 1 and 4 updates of warm-up", schedule_lr(&s, 0), 0.25,
                  1e-12, (Mistake[]){{(double[]){0}, "the loss stays what it was: this update changes no weight"}}, 1);
    expect_number("the learning rate of the last update of the warm-up", schedule_lr(&s, 3), 1, 1e-12,
                  (Mistake[]){{(double[]){0.75}, "the warm-up is a step too long"}}, 1);
}

TEST(bug2, 1, "bug 2: a document in a packed row computes what it computes alone")
{
    int32_t token[8] = {0, 5, 6, 0, 7, 8, 9, 0}, pos[8];
    float got[8];
    packing_positions(token, 1, 8, 0, pos, NULL, NULL);
    for (int i = 0; i < 8; i++) got[i] = (float)pos[i];
    expect_array("the positions of a row whose documents begin at tokens 0, 3 and 7", got,
                 (double[]){0, 1, 2, 0, 1, 2, 3, 0}, 1, 8, 0,
                 (Mistake[]){{(double[]){0, 1, 2, 3, 4, 5, 6, 7}, "no document but the first has its own positions"}}, 1);
}

// The initial weights of "head.weight", in a model with this many blocks before it.
static float *head_of(int blocks, uint64_t seed)
{
    Params p = {0};
    for (int b = 0; b < blocks; b++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "layers.%d.attn.q.weight", b);
        params_add(&p, b, name, 2, 3, 4, 0, 1, true, -1);
    }
    int row = params_add(&p, blocks, "head.weight", 2, 2, 4, 0, 1, true, -1);
    float *flat = malloc(p.n_elems * sizeof *flat), *head = malloc(8 * sizeof *head);
    params_init(&p, seed, flat);
    memcpy(head, flat + p.row[row].offset, 8 * sizeof *head);
    free(flat), params_free(&p);
    return head;
}

TEST(bug3, 1, "bug 3: a model with one block more begins with the same head")
{
    float *one = head_of(1, 7), *two = head_of(2, 7), *other = head_of(1, 8);
    for (int i = 0; i < 8; i++)
        expect(one[i] == two[i], "element %d of the initial head.weight is %.6g with one block before it, %.6g with two: it "
               "should depend on seed, name and element alone", i, one[i], two[i]);
    expect(memcmp(one, other, 8 * sizeof *one), "seeds 7 and 8 give the same initial weights");
}

TEST(bug4, 1, "bug 4: the gradient of RMSNorm is what finite differences say")
{
    Dev dev = debug_device(norm_cpu_fill);
    enum { C = 6 };
    float *x = random_floats(C, 1), *w = random_floats(C, 2), *dy = random_floats(C, 3), *y = random_floats(C, 4);
    float *dx = random_floats(C, 5), *dw = equal_floats(C, 0), rstd;
    double want[C], projected[C];
    dev.norm_forward(&dev, (X *)y, NULL, NULL, &rstd, (X *)x, NULL, (X *)w, NULL, 1, C, NORM_RMSNORM, 1e-5f);
    for (int i = 0; i < C; i++) {
        double loss[2];
        for (int up = 0; up < 2; up++) { // of the formula, in double: sum of dy times the norm
            double squares = 0;
            loss[up] = 0;
            for (int c = 0; c < C; c++) squares += pow(x[c] + (c == i) * (up ? 1e-6 : -1e-6), 2);
            for (int c = 0; c < C; c++)
                loss[up] += dy[c] * w[c] * (x[c] + (c == i) * (up ? 1e-6 : -1e-6)) / sqrt(squares / C + 1e-5);
        }
        want[i] = (loss[1] - loss[0]) / 2e-6, projected[i] = (double)rstd * dy[i] * w[i];
    }
    dev.norm_backward(&dev, (X *)dx, dw, NULL, (X *)dy, NULL, (X *)x, NULL, &rstd, (X *)w, 1, C, NORM_RMSNORM);
    expect_array("dx of RMSNorm of six channels", dx, want, 1, C, 1e-4,
                 (Mistake[]){{projected, "as if the row's length did not depend on x"}}, 1);
}

TEST(bug5, 1, "bug 5: AdamW moves a tensor with small gradients as far as any other")
{
    Dev dev = debug_device(updates_cpu_fill);
    float w[2] = {0}, m[2] = {0}, v[2] = {0}, g[2] = {1e-1f, 1e-6f};
    dev.update(&dev, OPTIM_ADAMW, w, m, v, g, 2,
               (Update){.lr = 1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .grad_scale = 1, .step = 1});
    expect_array("the first step with lr = 1, eps = 1e-8 and gradients 0.1 and 1e-6", w, (double[]){-1, -1 / 1.01}, 1, 2,
                 1e-4, (Mistake[]){{(double[]){-1, -1 / sqrt(1e4 + 1)}, "a gradient of 1e-6 hardly moves its weight"}}, 1);
}

TEST(bug6, 1, "bug 6: two ranks that share the vocabulary have the loss of one rank, with capped logits")
{
    Dev dev = debug_device(loss_cpu_fill);
    float z[4] = {9, -3, 2, 4}, top[2], total[2], hit[2], loss, whole; // two tokens a rank; the target is the third
    int32_t target[2] = {2, 0};
    DevParts all = {.range = (DevRange[]){{0, 2}}, .n = 1, .each = 1};
    for (int r = 0; r < 2; r++) dev.xent_max(&dev, &top[r], (X *)(z + 2 * r), 1, 2);
    float most = fmaxf(top[0], top[1]);
    for (int r = 0; r < 2; r++)
        dev.xent_sum(&dev, &total[r], &hit[r], (X *)(z + 2 * r), &target[r], &most, 1, 2, all, 5);
    float sum = total[0] + total[1], found = hit[0] + hit[1];
    dev.xent_loss(&dev, &loss, NULL, (X *)(z + 2), &target[1], &most, &sum, &found, 1, 2, 1, 5);
    dev.softmax_xent(&dev, &whole, NULL, (X *)z, &target[0], 1, 4, 1, 5);
    double want = 0;
    for (int i = 0; i < 4; i++) want += exp(5 * tanh(z[i] / 5.0));
    want = log(want) - 5 * tanh(2 / 5.0);
    expect_number("the loss on one rank", whole, want, 1e-5, NULL, 0);
    expect_number("the loss on two ranks with two of the four logits each", loss, want, 1e-5, NULL, 0);
}

TEST(bug7, 1, "bug 7: after an all-reduce on a ring all ranks have the sums")
{
    size_t counts[3] = {1, 1, 1};
    float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, c[3] = {100, 200, 300}, got[9] = {0};
    debug_collective(COMM_ALL_REDUCE, 3, counts, (float *[]){a, b, c}, (float *[]){got, got + 3, got + 6}, NULL);
    expect_array("the sums of three elements over three ranks, a row for each rank", got,
                 (double[]){111, 222, 333, 111, 222, 333, 111, 222, 333}, 3, 3, 1e-6, NULL, 0);
}

#include "../hidden.h"

TEST(every_step, 1, "bug 1: every step of warm-ups of 0, 1, 3 and 10 updates, and of what follows")
{
    for (int i = 0; i < 4; i++) {
        long W = (long[]){0, 1, 3, 10}[i];
        Schedule s = {.kind = SCHEDULE_LINEAR, .lr = 0.5, .min_lr = 0.1, .warmup = W, .decay_steps = 20,
                      .momentum = 0.9, .momentum_start = 0.5, .momentum_warmup = 4};
        for (long k = 0; k < 25; k++) {
            char what[96];
            double p = k < 20 ? (double)(k - W) / (double)(20 - W) : 1;
            snprintf(what, sizeof what, "the learning rate of update %ld with %ld updates of warm-up", k, W);
            expect_number(what, schedule_lr(&s, k), k < W ? 0.5 * (double)(k + 1) / (double)W : 0.5 - 0.4 * p, 1e-12, NULL, 0);
            expect_number("the momentum", schedule_momentum(&s, k), k < 4 ? 0.5 + 0.1 * (double)k : 0.9, 1e-12, NULL, 0);
        }
    }
}

TEST(rows, 1, "bug 2: positions, starts and targets of rows that begin within a document")
{
    enum { B = 3, T = 37, EOT = 2 };
    int32_t token[B * T], pos[B * T], first[B * T], target[B * T];
    uint64_t draw = 5;
    for (int i = 0; i < B * T; i++) token[i] = (int32_t)random_below(&draw, 7);
    token[T] = token[2 * T] = 5; // two rows go on with the document of the row before
    for (int i = 0; i < B * T; i++) target[i] = i + 1 < B * T ? token[i + 1] : EOT;
    packing_positions(token, B, T, EOT, pos, first, target);
    for (int b = 0, i = 0; b < B; b++)
        for (int t = 0, start = 0; t < T; t++, i++) {
            if (token[i] == EOT) start = t;
            int32_t next = i + 1 < B * T ? token[i + 1] : EOT;
            expect(first[i] == start, "row %d, token %d: its document begins at %d, not %d", b, t, start, first[i]);
            expect(pos[i] == t - start, "row %d, token %d, whose document begins at %d: expected position %d, got %d", b, t,
                   start, t - start, pos[i]);
            expect(target[i] == (token[i] == EOT && next == EOT ? -1 : next), "row %d, token %d: the target is %d", b, t, target[i]);
        }
    packing_positions(token, 1, T, -1, pos, NULL, NULL);
    for (int t = 0; t < T; t++) expect(pos[t] == t, "without end-of-text a row is one document; position %d is %d", t, pos[t]);
}

TEST(each_its_own, 1, "bug 3: each tensor has its own weights, and any part of them is the same")
{
    Params p = {0}, turned = {0};
    const char *name[4] = {"a.q.weight", "a.k.weight", "b.q.weight", "b.k.weight"};
    for (int i = 0; i < 4; i++) params_add(&p, i / 2, name[i], 2, 4, 6, 0.5f, 0.1f, true, 1);
    for (int i = 4; i-- > 0;) params_add(&turned, i < 2, name[i], 2, 4, 6, 0.5f, 0.1f, true, 1);
    float *flat = malloc(96 * sizeof *flat), *other = malloc(96 * sizeof *other), *part = malloc(17 * sizeof *part);
    params_init(&p, 3, flat), params_init(&turned, 3, other);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < i; j++)
            expect(memcmp(flat + 24 * i, flat + 24 * j, 96), "%s and %s begin with the same weights", name[i], name[j]);
        expect(!memcmp(flat + 24 * i, other + 24 * (3 - i), 96), "%s begins with other weights in a table of another order", name[i]);
    }
    params_init_range(&p, 3, 40, 57, part);
    expect(!memcmp(flat + 40, part, 17 * sizeof *part), "elements 40 to 56 are others when they are asked for alone");
    for (int i = 2; i < 4; i++) // tensor parallelism: this rank holds columns 6 to 11 of 12
        p.row[i].whole[1] = 12, p.row[i].first = 6;
    params_init(&p, 3, other);
    float *half = malloc(48 * sizeof *half);
    Params whole = {0};
    params_add(&whole, 0, "b.q.weight", 2, 4, 12, 0.5f, 0.1f, true, 1);
    params_init(&whole, 3, half);
    for (int i = 0; i < 24; i++)
        expect(other[48 + i] == half[i / 6 * 12 + 6 + i % 6], "the right half of b.q.weight, element %d, is not that of the whole", i);
    free(flat), free(other), free(part), free(half), params_free(&p), params_free(&turned), params_free(&whole);
}

// dx, dw, db of rows of x by the formulas, in double.
static void norm_want(double *dx, double *dw, double *db, const float *dy, const float *resid, const float *x, const float *w,
                      size_t N, size_t C, bool layer)
{
    for (size_t n = 0; n < N; n++, dx += C, dy += C, x += C) {
        double mean = 0, var = 0, g_mean = 0, gn_mean = 0, C_ = (double)C;
        for (size_t c = 0; c < C; c++) mean += layer ? x[c] / C_ : 0;
        for (size_t c = 0; c < C; c++) var += (x[c] - mean) * (x[c] - mean) / C_;
        double rstd = 1 / sqrt(var + 1e-5);
        for (size_t c = 0; c < C; c++) {
            double g = (double)dy[c] * w[c], unit = (x[c] - mean) * rstd;
            g_mean += layer ? g / C_ : 0, gn_mean += g * unit / C_;
            dw[c] += dy[c] * unit;
            if (db) db[c] += dy[c];
        }
        for (size_t c = 0; c < C; c++)
            dx[c] = (resid ? resid[n * C + c] : 0) + rstd * (dy[c] * w[c] - g_mean - (x[c] - mean) * rstd * gn_mean);
    }
}

TEST(norms, 1, "bug 4: the backward passes of both norms, and of the heads'")
{
    enum { N = 70, C = 12 };
    Dev dev = debug_device(norm_cpu_fill);
    float *x = random_floats(N * C, 1), *w = random_floats(C, 2), *dy = random_floats(N * C, 3), *y = random_floats(N * C, 4);
    float *resid = random_floats(N * C, 5), *dx = random_floats(N * C, 6), mean[N], rstd[3 * N];
    for (int layer = 0; layer < 2; layer++) {
        NormKind kind = layer ? NORM_LAYERNORM : NORM_RMSNORM;
        double want[N * C], want_w[C] = {0}, want_b[C] = {0};
        float *dw = equal_floats(C, 0), *db = equal_floats(C, 0);
        norm_want(want, want_w, want_b, dy, resid, x, w, N, C, layer);
        dev.norm_forward(&dev, (X *)y, NULL, mean, rstd, (X *)x, NULL, (X *)w, NULL, N, C, kind, 1e-5f);
        dev.norm_backward(&dev, (X *)dx, dw, db, (X *)dy, (X *)resid, (X *)x, mean, rstd, (X *)w, N, C, kind);
        expect_array(layer ? "dx of LayerNorm" : "dx of RMSNorm", dx, want, N, C, 1e-4, NULL, 0);
        expect_array(layer ? "dweight of LayerNorm" : "dweight of RMSNorm", dw, want_w, 1, C, 1e-4, NULL, 0);
        expect_array("dbias", db, want_b, 1, C, 1e-4, NULL, 0);
    }
    double want[N * C], want_w[C / 3] = {0};
    float *dw = equal_floats(C / 3, 0);
    norm_want(want, want_w, NULL, dy, NULL, x, w, 3 * N, C / 3, false);
    dev.head_norm_forward(&dev, (X *)y, rstd, (X *)x, (X *)w, N, 3, C / 3, C, 1e-5f);
    dev.head_norm_backward(&dev, (X *)dx, dw, (X *)dy, (X *)x, rstd, (X *)w, N, 3, C / 3, C);
    expect_array("dx of the norm of three heads", dx, want, N, C, 1e-4, NULL, 0);
    expect_array("dweight of the norm of heads", dw, want_w, 1, C / 3, 1e-4, NULL, 0);
}

TEST(small_gradients, 1, "bug 5: gradients from 1e-12 to 1 beside eps, with decay, over three steps")
{
    enum { N = 13 };
    Dev dev = debug_device(updates_cpu_fill);
    for (int way = 0; way < 4; way++) {
        float w[N], m[N] = {0}, v[N] = {0}, g[N], eps = way == 3 ? 1e-3f : 1e-8f;
        double W[N], M[N] = {0}, V[N] = {0};
        Update u = {.lr = 0.01f, .beta1 = 0.9, .beta2 = 0.99, .eps = eps, .weight_decay = way ? 0.1f : 0, .grad_scale = 0.5f};
        bool l2 = way == 2;
        for (int i = 0; i < N; i++) W[i] = w[i] = i % 2 ? 0.01f : 0;
        for (u.step = 1; u.step <= 3; u.step++) {
            for (int i = 0; i < N; i++) g[i] = powf(10, (float)-i) * (u.step == 2 ? -0.5f : 1);
            for (int i = 0; i < N; i++) {
                double d = 0.5 * g[i] + (l2 ? (double)u.weight_decay * W[i] : 0);
                M[i] = 0.9 * M[i] + 0.1 * d, V[i] = 0.99 * V[i] + 0.01 * d * d;
                W[i] -= (double)u.lr * (M[i] / (1 - pow(0.9, u.step)) / (sqrt(V[i] / (1 - pow(0.99, u.step))) + eps) +
                                        (l2 ? 0 : (double)u.weight_decay * W[i]));
            }
            dev.update(&dev, l2 ? OPTIM_ADAM : OPTIM_ADAMW, w, m, v, g, N, u);
            for (int i = 0; i < N; i++) {
                expect(fabs(w[i] - W[i]) <= 1e-4 * u.lr, "step %d, gradient 1e-%d, eps %g, decay %g: the weight is %.7g, expected %.7g",
                       u.step, i, eps, u.weight_decay, w[i], W[i]);
                expect(g[i] == 0, "the gradient is not cleared");
            }
        }
    }
}

TEST(shared, 1, "bug 6: losses and gradients of 1, 2 and 3 ranks, with and without a cap, and of masked targets")
{
    enum { N = 4, V = 12 };
    Dev dev = debug_device(loss_cpu_fill);
    int32_t target[N] = {3, 11, -1, 4};
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int cap = 0; cap <= 6; cap += 3) {
            size_t each = (size_t)(V / ranks);
            float z[3][N * V], top[N], total[N] = {0}, hit[N] = {0}, *draw = random_floats(N * V, 8), loss[N];
            for (int n = 0; n < N; n++) top[n] = -1e9f;
            for (int r = 0; r < ranks; r++) {
                float own[N];
                for (size_t i = 0; i < N * each; i++) z[r][i] = 12 * draw[i / each * V + (size_t)r * each + i % each];
                dev.xent_max(&dev, own, (X *)z[r], N, each);
                for (int n = 0; n < N; n++) top[n] = fmaxf(top[n], own[n]);
            }
            int32_t own_target[3][N];
            for (int r = 0; r < ranks; r++) {
                float own_total[N], own_hit[N];
                for (int n = 0; n < N; n++) {
                    int at = target[n] - r * (int)each;
                    own_target[r][n] = target[n] < 0 ? -1 : at >= 0 && at < (int)each ? at : (int)each;
                }
                DevParts two = {.range = (DevRange[]){{0, each / 2}, {each / 2, each}}, .n = 2, .each = 1};
                dev.xent_sum(&dev, own_total, own_hit, (X *)z[r], own_target[r], top, N, each, two, (float)cap);
                for (int n = 0; n < N; n++) total[n] += own_total[n], hit[n] += own_hit[n];
            }
            for (int r = 0; r < ranks; r++) {
                dev.xent_loss(&dev, loss, (X *)z[r], (X *)z[r], own_target[r], top, total, hit, N, each, 0.25f, (float)cap);
                for (int n = 0; n < N; n++) {
                    double sum = 0, c[V];
                    for (int v = 0; v < V; v++) c[v] = 12.0 * draw[n * V + v], c[v] = cap ? cap * tanh(c[v] / cap) : c[v];
                    for (int v = 0; v < V; v++) sum += exp(c[v]);
                    double want = target[n] < 0 ? 0 : log(sum) - c[target[n]];
                    expect(fabs(loss[n] - want) <= 1e-5 * fmax(1, want), "%d ranks, cap %d, row %d: the loss is %.7g, expected %.7g",
                           ranks, cap, n, loss[n], want);
                    for (int v = 0; v < (int)each; v++) {
                        int at = r * (int)each + v;
                        double slope = cap ? 1 - c[at] / cap * (c[at] / cap) : 1;
                        double d = target[n] < 0 ? 0 : 0.25 * slope * (exp(c[at]) / sum - (at == target[n]));
                        expect(fabs(z[r][n * (int)each + v] - d) <= 1e-6, "%d ranks, cap %d, row %d, token %d: the gradient is "
                               "%.7g, expected %.7g", ranks, cap, n, at, z[r][n * (int)each + v], d);
                    }
                }
            }
        }
}

TEST(rings, 1, "bug 7: three collectives over 2 to 8 ranks with uneven shards, within the bytes of a ring")
{
    for (int size = 2; size <= 8; size++) {
        size_t counts[8], offsets[9] = {0}, bytes[8];
        for (int r = 0; r < size; r++) counts[r] = (size_t)(r * 5 % 4 + (size == 5)), offsets[r + 1] = offsets[r] + counts[r];
        size_t n = offsets[size];
        for (int kind = 0; kind < 3; kind++) {
            CommKind which = (CommKind[]){COMM_ALL_REDUCE, COMM_REDUCE_SCATTER, COMM_ALL_GATHER}[kind];
            float *in[8], *out[8], *drawn = random_floats(8 * n, 3);
            for (int r = 0; r < size; r++) {
                size_t mine = kind == 2 ? counts[r] : n;
                in[r] = malloc(mine * 4 + 1), out[r] = malloc((kind == 1 ? counts[r] : n) * 4 + 1);
                for (size_t i = 0; i < mine; i++) in[r][i] = drawn[(size_t)r * n + i];
            }
            debug_collective((int)which, size, counts, in, out, bytes);
            for (int r = 0; r < size; r++) {
                size_t first = kind == 1 ? offsets[r] : 0, many = kind == 1 ? counts[r] : n;
                for (size_t i = 0; i < many; i++) {
                    double want = 0;
                    int owner = 0;
                    while (offsets[owner + 1] <= first + i) owner++;
                    for (int s = 0; s < size && kind != 2; s++) want += drawn[(size_t)s * n + first + i];
                    if (kind == 2) want = drawn[(size_t)owner * n + i - offsets[owner]];
                    expect(fabs(out[r][i] - want) <= 1e-5, "%s over %d ranks: rank %d has %.6g for element %zu, expected %.6g",
                           (const char *[]){"all_reduce", "reduce_scatter", "all_gather"}[kind], size, r, out[r][i], first + i, want);
                }
                size_t most = (kind ? 1 : 2) * n * 4;
                expect(bytes[r] <= most, "%d ranks: rank %d sends %zu bytes; a ring needs fewer than %zu", size, r, bytes[r], most);
            }
        }
    }
}
