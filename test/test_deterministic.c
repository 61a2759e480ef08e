// test_deterministic: on a deterministic device the gradients and the loss of a step do not depend on the cut into
// micro-batches, the number of threads, or recomputation; the trees in which they are added; and the products of TF32.
#include "step_run.h"
#include "expect_die.h"
#include "fixture.h"
#include "base/check.h"
#include "formats/formats.h"
#include "base/rng.h"
#include "ops/dev_cpu.h"
#include "ops/gemm.h"

#include <math.h>

enum { SEQUENCES = 8 };

// The gradient and loss of sequences [0, n) in micro-batches of `rows`.
static Result run_split(const ModelShape *shape, size_t n, size_t rows, int threads, RecomputePolicy policy)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(threads);
    dev->deterministic = true;
    Model *m = model_allocate_with(shape, dev, &mem, rows, T, true,
                                   (ModelOptions){.recompute = policy, .sequences = n});
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    Result r = {.n = m->params.n_elems};
    Step step = {.dropout = 0.2f, .step = 4, .documents = true};
    for (int twice = 0; twice < 2; twice++) { // a step leaves nothing for the next
        dev->zero(dev, m->grads, r.n * sizeof *m->grads);
        for (size_t i = 0; i < n; i += rows) run_batch(m, &step, i, n - i < rows ? n - i : rows, T);
        r.loss = model_step_finish(m);
    }
    r.grads = zeroed(r.n * sizeof *r.grads);
    memcpy(r.grads, m->grads, r.n * sizeof *r.grads);
    r.grad_bytes = mem.tag_bytes[MEM_GRADS];
    end_model(m, &mem, dev);
    return r;
}

TEST(test_splits_agree_bit_for_bit)
{
    const ModelShape *families[] = {&gpt, &llama};
    for (int f = 0; f < 2; f++) {
        Result one = run_split(families[f], SEQUENCES, 1, 1, (RecomputePolicy){0});
        assert_int_equal(one.grad_bytes, 4 * one.n * (1 + 4)); // the gradient; parts for bits 0 .. 3 of 8
        assert_true(distance(&one, NULL) > 0.1);
        for (size_t rows = 1; rows <= SEQUENCES; rows *= 2)
            for (int threads = 1; threads <= 2; threads++)
                for (int i = 0; i < 2; i++) {
                    RecomputePolicy policy = {.mode = i ? RECOMPUTE_EVERY : RECOMPUTE_NONE, .every = 2};
                    Result r = run_split(families[f], SEQUENCES, rows, threads, policy);
                    if (!same_bits(&r, &one))
                        fail_msg("micro-batches of %zu on %d threads differ by %g, loss by %g", rows, threads,
                                 distance(&r, &one), r.loss - one.loss);
                    free(r.grads);
                }
        free(one.grads);
    }
}

// g0 .. g4 alone, added by hand: a remainder is folded smallest first.
TEST(test_tree_order)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = true;
    Model *m = model_create(&gpt, dev, &mem, 1, T, 1, true);
    make_weights_lively(m);
    size_t n = m->params.n_elems;
    float *g = calloc(5 * n, sizeof *g), *tree = calloc(n, sizeof *tree);
    double loss[5];
    assert_true(g && tree);
    for (size_t i = 0; i < 5; i++) {
        run_batch(m, &(Step){.dropout = 0.2f, .step = 4, .documents = true}, i, 1, T);
        loss[i] = model_step_finish(m);
        dev->accumulate(dev, g + i * n, m->grads, n);
    }
    for (size_t j = 0; j < n; j++)
        tree[j] = g[4 * n + j] + ((g[j] + g[n + j]) + (g[2 * n + j] + g[3 * n + j]));
    Result r = run_split(&gpt, 5, 2, 2, (RecomputePolicy){0});
    for (size_t j = 0; j < n; j++) assert_true(r.grads[j] == tree[j]);
    assert_true(r.loss == loss[4] + ((loss[0] + loss[1]) + (loss[2] + loss[3])));
    assert_int_equal(r.grad_bytes, 4 * n * (1 + 3));
    free(g), free(tree), free(r.grads);
    end_model(m, &mem, dev);
}

// The gradient of the weight that 12 heads share: four ranks with three heads each, whose sums are added in the tree of
// comm.h, have the bits of one rank with all heads.
TEST(test_heads_of_several_ranks)
{
    enum { ROWS = 70, HEADS = 12, D = 5, LD = HEADS * D, RANKS = 4 };
    static float inp[ROWS * LD], dout[ROWS * LD], dinp[2][ROWS * LD], out[ROWS * LD], rstd[ROWS * HEADS];
    float weight[D], whole[D] = {0}, part[RANKS][D] = {{0}};
    for (size_t i = 0; i < ROWS * LD; i++) {
        inp[i] = (float)rng_normal(rng_make(1, "inp", 0), i);
        dout[i] = (float)rng_normal(rng_make(1, "dout", 0), i);
    }
    for (size_t d = 0; d < D; d++) weight[d] = (float)rng_normal(rng_make(1, "weight", 0), d);
    Dev *dev = dev_cpu_create(2);
    dev->deterministic = true;
    dev->head_norm_forward(dev, (X *)out, rstd, (X *)inp, (X *)weight, ROWS, HEADS, D, LD, 1e-5f);
    dev->head_norm_backward(dev, (X *)dinp[0], whole, (X *)dout, (X *)inp, rstd, (X *)weight, ROWS, HEADS, D, LD);
    for (int r = 0; r < RANKS; r++) {
        size_t at = (size_t)r * HEADS / RANKS * D, heads = HEADS / RANKS;
        dev->head_norm_forward(dev, (X *)(out + at), rstd, (X *)(inp + at), (X *)weight, ROWS, heads, D, LD, 1e-5f);
        dev->head_norm_backward(dev, (X *)(dinp[1] + at), part[r], (X *)(dout + at), (X *)(inp + at), rstd,
                                (X *)weight, ROWS, heads, D, LD);
    }
    for (size_t d = 0; d < D; d++) assert_true(whole[d] == (part[0][d] + part[1][d]) + (part[2][d] + part[3][d]));
    assert_memory_equal(dinp[0], dinp[1], sizeof dinp[0]);
    dev_cpu_free(dev);
}

TEST_FIRST(test_too_many_sequences)
{
    expect_dies("more than 1 sequences in a step", {
        Mem mem = {0};
        Dev *dev = dev_cpu_create(1);
        dev->deterministic = true;
        Model *m = model_create(&gpt, dev, &mem, 1, T, 1, true);
        for (size_t i = 0; i < 2; i++) run_batch(m, &(Step){0}, i, 1, T);
    });
}

// ---- tf32: a device that rounds the operands of its products to TF32 gives, bit for bit, what the deterministic fp32
// device gives of operands that were rounded before; the router's products and attention are not rounded.

enum { ROWS = 70, C = 37, OC = 90, E = 3, ROOM = 8192 };

static float *numbers(float *x, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(rng_make(3, name, 0), i);
    return x;
}

static float *rounded(float *to, const float *x, size_t n)
{
    formats_from_float(to, FORMAT_TF32, x, n, false);
    return to;
}

static void must_be(const char *what, const float *got, const float *want, const float *other, size_t n)
{
    bool differs = false;
    for (size_t i = 0; i < n; i++) {
        if (!(got[i] == want[i])) fail_msg("%s: element %zu is %.9g, not %.9g", what, i, got[i], want[i]);
        differs |= got[i] != other[i];
    }
    if (!differs) fail_msg("%s: nothing is rounded", what);
}

// An independent loop: the chain of gemm.h over rounded operands, with the numbers that rounding may get wrong.
TEST(test_chain)
{
    static float a[ROWS * C], b[C * OC], c[ROWS * OC], ra[ROWS * C], rb[C * OC];
    const float odd[] = {0x1.002p0f, 0x1.006p0f, -0x1.002002p3f, 0x1.ffep5f, 0x1p-130f, 0x1.8p-137f, 0, -0.0f};
    numbers(a, ROWS * C, "a"), numbers(b, C * OC, "b");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) a[i * 31] = odd[i], b[i * 77] = odd[7 - i];
    rounded(ra, a, ROWS * C), rounded(rb, b, C * OC);
    for (int turned = 0; turned < 4; turned++) {
        bool ta = turned & 1, tb = turned & 2;
        for (size_t i = 0; i < ROWS * OC; i++) c[i] = 0.5f;
        gemm_tf32(ta, tb, ROWS, OC, C, 3, a, ta ? ROWS : C, b, tb ? C : OC, 1, c, OC);
        for (size_t n = 0; n < ROWS; n++)
            for (size_t o = 0; o < OC; o++) {
                float sum = 0.5f;
                for (size_t k = 0; k < C; k++)
                    sum = fmaf(3 * ra[ta ? k * ROWS + n : n * C + k], rb[tb ? o * C + k : k * OC + o], sum);
                if (!(c[n * OC + o] == sum)) fail_msg("(%zu, %zu), turned %d: other bits", n, o, turned);
            }
    }
    float nan_in[2] = {NAN, INFINITY}, one[2] = {1, 1}, out[2];
    gemm_tf32(false, false, 2, 1, 1, 1, nan_in, 1, one, 1, 0, out, 1);
    assert_true(isnan(out[0]) && isinf(out[1]));
}

typedef struct {
    float inp[ROWS * C], dout[ROWS * OC], weight[E * OC * C], bias[OC], pre[ROWS * C];
} Arrays;

// The results of all products, one after another; returns how many numbers.
static size_t products(Dev *dev, float *out, const Arrays *a, size_t rows)
{
    static float spare[ROWS * OC];
    const X *inp = (const X *)a->inp, *dout = (const X *)a->dout, *weight = (const X *)a->weight;
    const DevRange range[] = {{0, 10}, {10, C}}, back[] = {{0, 40}, {40, OC}};
    DevParts parts = {range, 2, 1}, back_parts = {back, 2, 1};
    const int32_t offset[] = {0, 5, 5, (int32_t)rows - 1};
    DevExperts x = {.offset = offset, .E = E, .R = rows, .stride = OC * C, .sources = 1};
    float *at = out;
    memset(out, 0, ROOM * 8 * sizeof *out);
    dev->matmul_forward(dev, (X *)at, inp, weight, (const X *)a->bias, rows, C, OC, -1), at += rows * OC;
    dev->matmul_gelu_forward(dev, (X *)spare, (X *)at, inp, weight, NULL, rows, C, OC, -1), at += rows * OC;
    dev->matmul_backward_input(dev, (X *)at, dout, weight, rows, C, OC, -1), at += rows * C;
    dev->matmul_gelu_backward_input(dev, (X *)at, dout, weight, (const X *)a->pre, rows, C, OC, -1), at += rows * C;
    dev->matmul_backward_weight(dev, at, NULL, dout, inp, rows, C, OC, -1), at += OC * C;
    dev->matmul_parts_forward(dev, (X *)at, inp, weight, NULL, rows, C, OC, parts, -1), at += rows * OC;
    dev->matmul_parts_backward_input(dev, (X *)at, dout, weight, rows, C, OC, back_parts, -1), at += rows * C;
    dev->experts_forward(dev, (X *)at, inp, weight, C, OC, x), at += rows * OC;
    dev->experts_backward_input(dev, (X *)at, dout, weight, C, OC, x), at += rows * C;
    dev->experts_backward_weight(dev, at, dout, inp, C, OC, x), at += E * OC * C;
    x.parts = parts;
    dev->experts_forward(dev, (X *)at, inp, weight, C, OC, x), at += rows * OC;
    check((size_t)(at - out) <= ROOM * 8);
    return (size_t)(at - out);
}

TEST(test_products)
{
    static Arrays a, r;
    static float got[ROOM * 8], want[ROOM * 8], plain[ROOM * 8];
    Dev *exact = dev_cpu_create(1), *tf32 = dev_cpu_create(2);
    exact->deterministic = tf32->tf32 = true;
    numbers(a.inp, ROWS * C, "inp"), numbers(a.dout, ROWS * OC, "dout"), numbers(a.weight, E * OC * C, "weight");
    numbers(a.bias, OC, "bias"), numbers(a.pre, ROWS * C, "pre");
    rounded(r.inp, a.inp, ROWS * C), rounded(r.dout, a.dout, ROWS * OC), rounded(r.weight, a.weight, E * OC * C);
    memcpy(r.bias, a.bias, sizeof r.bias), memcpy(r.pre, a.pre, sizeof r.pre);
    for (size_t rows = 7; rows <= ROWS; rows += ROWS - 7) // also as few as a generated token has
        for (int fixed = 0; fixed < 2; fixed++) {
            tf32->deterministic = fixed;
            size_t n = products(tf32, got, &a, rows);
            products(exact, want, &r, rows);
            products(exact, plain, &a, rows);
            must_be("products", got, want, plain, n);
        }
    dev_cpu_free(exact), dev_cpu_free(tf32);
}

TEST(test_what_is_not_rounded)
{
    static Arrays a;
    static float got[ROOM], want[ROOM], lse[ROWS];
    Dev *exact = dev_cpu_create(1), *tf32 = dev_cpu_create(1);
    tf32->tf32 = true;
    numbers(a.inp, ROWS * C, "inp"), numbers(a.dout, ROWS * OC, "dout"), numbers(a.weight, E * OC * C, "weight");
    for (int i = 0; i < 2; i++) {
        Dev *dev = i ? tf32 : exact;
        float *to = i ? got : want, *dweight = to + ROWS * E + ROWS * C, *out = dweight + E * C;
        memset(to, 0, ROOM * sizeof *to);
        dev->router_forward(dev, to, (const X *)a.inp, (const X *)a.weight, ROWS, C, E);
        dev->router_backward(dev, (X *)(to + ROWS * E), dweight, a.dout, (const X *)a.inp, (const X *)a.weight,
                             ROWS, C, E);
        dev->attention_forward(dev, (X *)out, lse, (const X *)a.inp, (const X *)a.weight, (const X *)a.dout,
                               (AttnShape){.B = 1, .Tq = 20, .Tk = 20, .H = 1, .G = 1, .D = C, .ldq = C, .ldkv = C});
    }
    assert_memory_equal(got, want, sizeof got);
    dev_cpu_free(exact), dev_cpu_free(tf32);
}

TESTS(NULL, NULL)
