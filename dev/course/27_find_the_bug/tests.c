#include "../grade.h"

#include "debug.h"

#include "base/check.h"
#include "base/formats.h"
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
