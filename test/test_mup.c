// test_mup: what muP writes into the parameter table and the attention shape, that the optimizer obeys it, and the
// coordinate check: activations change as much per step in a wide model as in a narrow one, and do not without muP.
#include "optim_case.h"

#include "expect_die.h"
#include "net/unit.h"

#include <math.h>

static ModelShape shape_of(size_t channels, size_t mup_base)
{
    return (ModelShape){.layers = 2, .channels = channels, .heads = 4, .kv_heads = 4, .head_size = channels / 4,
                        .ffn = 4 * channels, .vocab = 64, .context = 16, .norm = NORM_LAYERNORM, .norm_eps = 1e-5f,
                        .bias = true, .mup_base = mup_base, .mup_base_head = mup_base / 4};
}

// ---- the table

// Width 4 times the base: sqrt(r) is 1/2 and r is 1/4, exactly.
TEST(test_table)
{
    ModelShape off = shape_of(64, 0), on = shape_of(64, 16), base = shape_of(64, 64);
    Params plain, wide, same;
    Unit *unit[3];
    model_describe(&off, &plain, &unit[0]);
    model_describe(&on, &wide, &unit[1]);
    model_describe(&base, &same, &unit[2]);
    size_t hidden = 0;
    for (int r = 0; r < plain.n_rows; r++) {
        const Param *p = &plain.row[r], *w = &wide.row[r];
        bool matrix = p->ndim == 2, head = !strcmp(p->name, "head.weight"), embed = !strncmp(p->name, "embed.", 6);
        float init = !matrix || embed ? 1 : head ? 0.25f : 0.5f, lr = !matrix || embed ? 1 : 0.25f;
        hidden += matrix && !head && !embed;
        assert_true(p->lr_scale == 1 && same.row[r].lr_scale == 1 && same.row[r].init_std == p->init_std);
        if (!(w->lr_scale == lr && w->init_std == init * p->init_std))
            fail_msg("%s: std %g, lr * %g", p->name, w->init_std, w->lr_scale);
        assert_true(w->init_mean == p->init_mean && w->decay == p->decay);
    }
    assert_int_equal(hidden, 12);
    params_free(&plain), params_free(&wide), params_free(&same);
    for (int i = 0; i < 3; i++) free(unit[i]);
}

// ---- attention

static void (*attention_of_cpu)(Dev *, X *, float *, const X *, const X *, const X *, AttnShape);
static float seen_scale;

static void record_scale(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    seen_scale = s.scale;
    attention_of_cpu(dev, out, lse, q, k, v, s);
}

TEST(test_blocks_ask_for_the_scale)
{
    const size_t base_head[] = {16, 0, 4}; // D = 16
    const float want[] = {0.25f, 0, 0.125f};
    for (int i = 0; i < 4; i++) {
        ModelShape s = shape_of(64, i < 3 ? 16 : 0); // the last: off
        s.mup_base_head = base_head[i % 3];
        Mem mem = {0};
        Dev *dev = dev_cpu_create(1);
        attention_of_cpu = dev->attention_forward;
        dev->attention_forward = record_scale;
        Model *m = model_create(&s, dev, &mem, 1, 2, 1, false);
        int32_t token[2] = {1, 2};
        model_set_batch(m, token, NULL, token, 1, 2);
        seen_scale = -1;
        model_evaluate(m);
        assert_true(seen_scale == (i < 3 ? want[i] : 0));
        end_model(m, &mem, dev);
    }
}

// A scale of 1/16 where it would be 1/4 is q / 4: powers of two, so the same bits come out; dq alone is 4 times smaller
// than what belongs to q / 4.
TEST(test_attention_with_a_scale)
{
    enum { T = 70, D = 16, N = T * D };
    static float q[N], quarter[N], k[N], v[N], dout[N], out[2][N], lse[2][T], dq[2][N], dk[2][N], dv[2][N], naive[N];
    AttnShape plain = {.B = 1, .Tq = T, .Tk = T, .H = 1, .G = 1, .D = D, .ldq = D, .ldkv = D}, scaled = plain;
    scaled.scale = 0.0625f;
    for (size_t i = 0; i < N; i++) {
        q[i] = 4 * (float)rng_normal(rng_make(1, "q", 0), i), quarter[i] = q[i] / 4;
        k[i] = (float)rng_normal(rng_make(1, "k", 0), i), v[i] = (float)rng_normal(rng_make(1, "v", 0), i);
        dout[i] = (float)rng_normal(rng_make(1, "dout", 0), i);
    }
    Dev *dev = dev_cpu_create(2);
    for (int i = 0; i < 2; i++) {
        const X *query = (const X *)(i ? quarter : q);
        AttnShape s = i ? plain : scaled;
        dev->attention_forward(dev, (X *)out[i], lse[i], query, (const X *)k, (const X *)v, s);
        dev->attention_backward(dev, (X *)dq[i], (X *)dk[i], (X *)dv[i], (const X *)dout, (const X *)out[i], lse[i],
                                query, (const X *)k, (const X *)v, s);
    }
    dev_cpu_free(dev);
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
    assert_memory_equal(dk[0], dk[1], sizeof dk[0]);
    assert_memory_equal(dv[0], dv[1], sizeof dv[0]);
    for (size_t i = 0; i < N; i++) assert_true(4 * dq[0][i] == dq[1][i]);
    attention_forward_naive(out[0], NULL, q, k, v, scaled);
    attention_forward_naive(naive, NULL, quarter, k, v, plain);
    assert_memory_equal(out[0], naive, sizeof naive);
}

// ---- the optimizer

// Rows with lr_scale 1, 1/4, 1/2 side by side: each is updated as by a call of its own with lr * lr_scale, and the pull
// of the decay stays lr decay. Powers of two keep every product exact, so the bits must agree.
TEST(test_optimizer_scales_the_rate)
{
    const OptimName names[] = {OPTIM_ADAMW, OPTIM_LION, OPTIM_ADAMW8BIT};
    for (int i = 0; i < 3; i++) {
        Case whole, alone;
        case_open(&whole, names[i], 1);
        case_open(&alone, names[i], 1);
        Params *p = &whole.model.params;
        whole.optim.set.weight_decay = 0.125f;
        for (int r = 0; r < p->n_rows; r++) p->row[r].lr_scale = 1 / (float)(1 << r % 3);
        for (uint32_t step = 1; step <= 2; step++) {
            case_fill(&whole, step);
            case_fill(&alone, step);
            optim_step(&whole.optim, &whole.model, 0.25);
            alone.optim.step++;
            for (int r = 0; r < p->n_rows; r++) {
                const Param *row = &p->row[r];
                alone.optim.set.weight_decay = 0.125f / row->lr_scale;
                optim_update(&alone.optim, &alone.model, 0.25 * row->lr_scale, 1, row->offset,
                             row->offset + row->n_elems);
            }
            expect_same(&whole, &alone);
        }
        case_close(&whole);
        case_close(&alone);
    }
}

// ---- the coordinate check

enum { B = 4, T = 16, N = B * T, V = 64, STEPS = 4, WIDTHS = 4 };

typedef struct {
    double stream, margin;
} Change;

// How far STEPS updates move the stream in front of the head (mean of |change|), and the logit of the target above the
// mean logit (mean change: how much has been learnt).
static Change change_of(size_t channels, bool mup)
{
    ModelShape s = shape_of(channels, mup ? 64 : 0);
    Mem mem = {0};
    Dev *dev = dev_cpu_create(2);
    Model *m = model_create(&s, dev, &mem, B, T, 1, true);
    Optim optim = optim_create(m, (OptimSettings){.name = OPTIM_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f});
    int32_t token[N], target[N];
    for (int i = 0; i < N; i++) {
        token[i] = (int32_t)rng_below(rng_make(9, "token", 0), (uint64_t)i, V);
        target[i] = (7 * token[i] + 3) % V;
    }
    static float before[N * V], after[N * V], stream[N * 512];
    model_set_batch(m, token, NULL, target, B, T);
    model_logits(m, before);
    const float *now = (const float *)m->acts.stream[m->n_units - 1];
    memcpy(stream, now, N * channels * sizeof *stream);
    for (int i = 0; i < STEPS; i++) {
        model_forward_backward(m, 1.0f / N);
        model_step_finish(m);
        optim_step(&optim, m, 0.001);
    }
    model_logits(m, after);
    Change c = {0, 0};
    for (size_t i = 0; i < N * channels; i++) c.stream += fabs((double)now[i] - stream[i]);
    for (int i = 0; i < N; i++) {
        c.margin += after[i * V + target[i]] - before[i * V + target[i]];
        for (int v = 0; v < V; v++) c.margin -= (after[i * V + v] - before[i * V + v]) / V;
    }
    end_model(m, &mem, dev);
    return (Change){c.stream / (double)(N * channels), c.margin / N};
}

// The exponent p of the best fit C^p to values at widths C that double.
static double slope(const double value[WIDTHS])
{
    double sum = 0, squares = 0;
    for (int i = 0; i < WIDTHS; i++) {
        double x = i - (WIDTHS - 1) / 2.0;
        sum += x * log2(value[i]);
        squares += x * x;
    }
    return sum / squares;
}

// An update adds lr to every element of a matrix in the direction of the gradient, so what a unit gets from it is a sum
// of C terms of one sign: changes grow like C^1 as long as nothing saturates, and less than C^1/2 would mean that they
// are not aligned. With muP both have a limit, which is approached like 1 + c / sqrt(C) (sums of C independent
// numbers beside those of C aligned ones). From 64 to 512 that is a slope of log2((1 + c / 8) / (1 + c / 22.6)) / 3, at
// most 0.15 for any |c| up to 5; a limit that two such sums share has c of order 1.
TEST(test_coordinate_check)
{
    double p[2][2];
    for (int mup = 0; mup < 2; mup++) {
        double stream[WIDTHS], margin[WIDTHS];
        for (int i = 0; i < WIDTHS; i++) {
            Change c = change_of((size_t)64 << i, mup);
            stream[i] = c.stream;
            margin[i] = c.margin;
        }
        p[mup][0] = slope(stream);
        p[mup][1] = slope(margin);
    }
    print_message("changes grow like C^p: stream %.2f, margin %.2f; with muP %.2f, %.2f\n", p[0][0], p[0][1], p[1][0],
                  p[1][1]);
    assert_true(p[0][0] > 0.5 && p[0][1] > 0.5);
    assert_true(fabs(p[1][0]) < 0.15);
    assert_true(fabs(p[1][1]) < 0.15);
}

// ---- what does not fit is refused

static int check_call(void *arg)
{
    const char *optimizer = arg;
    ModelShape s = shape_of(64, 16);
    s.tie = !strcmp(optimizer, "tied");
    mup_check(&s, s.tie ? "adamw" : optimizer);
    return 0;
}

TEST(test_check)
{
    expect_die(check_call, "tied", "optim.mup_base = 16: a tied head cannot have a learning rate of its own");
    const char *const refused[] = {"adam", "sgd", "momentum", "adafactor", "muon"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        expect_die(check_call, (void *)refused[i], refused[i]);
    check_call("adamw"), check_call("adamw8bit"), check_call("lion");
    ModelShape off = shape_of(64, 0);
    off.tie = true;
    mup_check(&off, "sgd");
}

TESTS(NULL, NULL)
