// test_precision: a tiny model in tf32, bf16, fp16 and fp8 against itself in fp32: one gradient, a short
// training, the sum over micro-batches, and loss scaling where fp16 needs it.
//
// How far may a gradient be off? Every stored array is rounded: its elements move by d x, |d| <= u, and if
// d is spread evenly the array moves by u / sqrt(3) in norm, relatively. Between the loss and any gradient
// are, with L blocks,
//
//   forward   12 arrays a block (norm, qkv, q and k after norm and after RoPE, attn, branch, sum; norm, pre, act,
//             branch, sum); embedding 1; head 2 (norm, logits)
//   weights   4 matrices a block, 2 embeddings, the head
//   backward  9 arrays a block (dpre, dnorm, dstream; dattn, dqkv after RoPE and norm, dnorm, dstream); head 3
//
// that is K = 25 L + 9 at most. Where the map from these arrays to the gradient is well conditioned, as it
// is at the start of training (norms keep the scale, branches are small against the stream), each moves a
// gradient by no more than it was moved itself. The errors are independent, so their squares add up:
// |dg| <= eps |g| with
//
//   3 eps^2 = K u^2 + casts          u = 2^-8 in bf16, 2^-11 in fp16
//   casts   = L (8 u43^2 + 8 (u52^2 + u43^2))     in fp8: of the 4 matmuls of a block, forward casts both operands to
//             E4M3 (u43 = 2^-4), and the two products of backward one to E5M2 (u52 = 2^-3) and one to E4M3
//   tf32      nothing is rounded where it is stored, but both operands of the three products of 4 L matrices and of the
//             head are: 3 eps^2 = (24 L + 6) u^2,  u = 2^-11
//
// It must hold for each matrix. (Not for vectors: softmax does not depend on the bias of k, whose gradient is
// rounding error alone.)
//
// How far may training be off? doc/precision.md derives |loss - loss32| <= 2 eps (loss_0 - loss32) + e,
// where e is the error of a mean loss over M tokens at given weights: with logits of standard deviation z
// over the vocabulary, off by s = eps z each, a token's loss moves by p dz - dz_target, which has mean 0
// and deviation at most sqrt(2) s, and by half the variance of dz under p. So e = 3 sqrt(2) s / sqrt(M) +
// s^2 / 2, three deviations.
#include "fixture.h"

#include "net/model.h"
#include "narrow/narrow.h"
#include "train/optim.h"
#include "train/grads.h"

#include <math.h>

enum { V = 61, T = 32, B = 4, N = B * T, LAYERS = 2, LAST = 5 };

typedef enum { D_FP32, D_TF32, D_BF16, D_FP16, D_FP8_CURRENT, D_FP8_DELAYED, DTYPES } Dtype;
static const char *const dtype_name[] = {"fp32", "tf32", "bf16", "fp16", "fp8 current", "fp8 delayed"};

typedef struct {
    Dev *cpu, *dev;
    Mem mem;
    Model *m;
    Optim optim;
    Fp8 *fp8;
} Case;

static ModelShape shape_of(bool llama)
{
    return (ModelShape){.layers = LAYERS, .channels = 32, .heads = 4, .kv_heads = llama ? 2 : 4,
                        .head_size = 8, .ffn = 96, .vocab = V, .context = T,
                        .norm = llama ? NORM_RMSNORM : NORM_LAYERNORM, .norm_eps = 1e-5f,
                        .rotary.theta = 1e4f, .swiglu = llama, .rope = llama, .bias = !llama, .tie = !llama,
                        .qk_norm = llama};
}

static void open_case(Case *c, Dtype dtype, bool llama, RecomputePolicy recompute, const char *keep)
{
    ModelShape shape = shape_of(llama);
    memset(c, 0, sizeof *c);
    c->dev = c->cpu = dev_cpu_create(1);
    c->cpu->tf32 = dtype == D_TF32;
    if (dtype > D_TF32)
        c->dev = narrow_create(c->cpu, (NarrowOptions){.x_type = dtype == D_FP16 ? X_FP16 : X_BF16,
                                                       .fp8 = dtype >= D_FP8_CURRENT,
                                                       .scaling = dtype == D_FP8_DELAYED ? FP8_DELAYED : FP8_CURRENT,
                                                       .history = 16});
    c->m = model_allocate_with(&shape, c->dev, &c->mem, B, T, true, (ModelOptions){.recompute = recompute});
    params_init(&c->m->params, 7, c->m->weights);
    model_weights_changed(c->m);
    c->optim = optim_create(c->m, (OptimSettings){.name = OPTIM_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f,
                                                  .eps = 1e-8f, .clip = 1});
    if (dtype < D_FP8_CURRENT) return;
    c->fp8 = c->dev->fp8;
    fp8_set_sites(c->fp8, &c->m->params, keep);
}

static void close_case(Case *c)
{
    model_free(c->m);
    mem_free_all(&c->mem);
    if (c->dev != c->cpu) narrow_free(c->dev);
    dev_cpu_free(c->cpu);
}

// Text of a kind: each token is a function of the one before it, but for one in eight, which is any.
static void set_batch(Case *c, int step)
{
    int32_t token[N], target[N];
    for (int b = 0; b < B; b++) {
        int32_t x = b + 1;
        for (int t = 0; t < T; t++) {
            uint64_t r = rng_u64(rng_make(5, "text", (uint32_t)step), (uint64_t)(b * T + t));
            int32_t next = r % 8 == 0 ? (int32_t)(r / 8 % V) : (5 * x + 3) % 17;
            token[b * T + t] = x;
            target[b * T + t] = x = next;
        }
    }
    model_set_batch(c->m, token, NULL, target, B, T);
}

// One gradient of the mean loss times `scale`; returns the mean loss.
static double gradient(Case *c, int step, float scale)
{
    set_batch(c, step);
    if (c->fp8) fp8_step_begin(c->fp8);
    c->dev->zero(c->dev, c->m->grads, c->m->params.n_elems * sizeof(float));
    double loss = model_forward_backward(c->m, scale / N) / N;
    model_step_finish(c->m);
    if (c->fp8) assert_true(fp8_step_end(c->fp8));
    return loss;
}

static double roundoff(Dtype d)
{
    return d == D_FP16 || d == D_TF32 ? 0x1p-11 : 0x1p-8;
}

static double eps_bound(Dtype d)
{
    double u = roundoff(d), K = d == D_TF32 ? 24 * LAYERS + 6 : 25 * LAYERS + 9, u43 = 0x1p-4, u52 = 0x1p-3;
    double casts = d >= D_FP8_CURRENT ? LAYERS * (8 * u43 * u43 + 8 * (u52 * u52 + u43 * u43)) : 0;
    return sqrt((K * u * u + casts) / 3);
}

static double norm_of(const float *x, const float *minus, float scale, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)x[i] * scale - (minus ? minus[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

// e of the opening comment, with the logits of an fp32 model.
static double loss_error(Case *exact, double eps, int tokens)
{
    static float logits[N * V];
    double var = 0;
    model_logits(exact->m, logits);
    for (size_t n = 0; n < N; n++) {
        double sum = 0, squares = 0;
        for (size_t v = n * V; v < (n + 1) * V; v++) sum += logits[v], squares += (double)logits[v] * logits[v];
        var += (squares - sum * sum / V) / V / N;
    }
    double s = eps * sqrt(var);
    return 3 * sqrt(2) * s / sqrt(tokens) + s * s / 2;
}

TEST(test_one_gradient)
{
    for (int llama = 0; llama < 2; llama++) {
        Case exact;
        open_case(&exact, D_FP32, llama, (RecomputePolicy){0}, NULL);
        double want = gradient(&exact, 0, 1);
        for (Dtype d = D_TF32; d < DTYPES; d++) {
            Case c;
            open_case(&c, d, llama, (RecomputePolicy){0}, NULL);
            float scale = d == D_FP16 ? 65536 : 1;
            double loss = gradient(&c, 0, scale), eps = eps_bound(d);
            assert_true(fabs(loss - want) <= loss_error(&exact, eps, N));
            for (int i = 0; i < c.m->params.n_rows; i++) {
                const Param *row = &c.m->params.row[i];
                const float *g = exact.m->grads + row->offset;
                double size = norm_of(g, NULL, 1, row->n_elems);
                double off = norm_of(c.m->grads + row->offset, g, 1 / scale, row->n_elems) / size;
                if (row->ndim == 2 && !(off <= eps && size > 0 && off > 0))
                    fail_msg("%s: gradient of %s is off by %.2e, bound %.2e", dtype_name[d], row->name, off, eps);
            }
            close_case(&c);
        }
        close_case(&exact);
    }
}

// ---- training

// Steps with loss scaling; returns the mean loss of the last ones. *skips counts the updates not made.
static double train(Case *c, int steps, LossScaler *scaler, double *first, int *skips)
{
    double sum = 0;
    for (int step = 0; step < steps; step++) {
        double loss = gradient(c, step, scaler->scale);
        c->optim.grad_scale = 1 / (double)scaler->scale;
        double norm = optim_step(&c->optim, c->m, 3e-3);
        if (!grads_scaler_update(scaler, isfinite(norm))) ++*skips;
        if (step == 0) *first = loss;
        if (step >= steps - LAST) sum += loss / LAST;
    }
    return sum;
}

TEST(test_training)
{
    enum { STEPS = 30 };
    for (int llama = 0; llama < 2; llama++) {
        Case exact;
        double first, first_d;
        int skips = 0;
        LossScaler none = grads_scaler_none();
        open_case(&exact, D_FP32, llama, (RecomputePolicy){0}, NULL);
        double want = train(&exact, STEPS, &none, &first, &skips);
        assert_true(first - want > 1); // it learns, or the comparison says nothing
        for (Dtype d = D_TF32; d < DTYPES; d++) {
            Case c;
            LossScaler scaler = d == D_FP16 ? grads_scaler_create(65536, 10) : grads_scaler_none();
            open_case(&c, d, llama, (RecomputePolicy){0}, NULL);
            double got = train(&c, STEPS, &scaler, &first_d, &skips), eps = eps_bound(d);
            double bound = 2 * eps * (first - want) + loss_error(&exact, eps, LAST * N);
            if (!(fabs(got - want) <= bound))
                fail_msg("%s: loss %.4f, in fp32 %.4f, bound %.4f", dtype_name[d], got, want, bound);
            close_case(&c);
        }
        close_case(&exact);
    }
}

// ---- the sum over micro-batches

// 64 equal gradients, each divided by 64, are the gradient again. Dividing by a power of two moves
// exponents only, so the parts are exact copies, and adding them in fp32 errs by gam(64) at most. In a bf16
// accumulator the last parts would be worth 2^-6 of the sum against a unit roundoff of 2^-8, and the error
// is near 2^-4.
TEST(test_gradients_add_up_in_fp32)
{
    enum { PARTS = 64 };
    for (Dtype d = D_TF32; d < DTYPES; d++) {
        Case one, many;
        float scale = d == D_FP16 ? 65536 * 16 : 1; // far from fp16's denormals
        open_case(&one, d, true, (RecomputePolicy){0}, NULL);
        open_case(&many, d, true, (RecomputePolicy){0}, NULL);
        gradient(&one, 0, scale);
        set_batch(&many, 0);
        if (many.fp8) fp8_step_begin(many.fp8);
        for (int i = 0; i < PARTS; i++) model_forward_backward(many.m, scale / N / PARTS);
        model_step_finish(many.m);
        size_t n = one.m->params.n_elems;
        double off = norm_of(many.m->grads, one.m->grads, 1, n) / norm_of(one.m->grads, NULL, 1, n);
        // fp16: what falls below 2^-14 loses bits, so the parts are no exact copies there.
        double bound = d == D_FP16 ? 0x1p-11 : PARTS * 0x1p-23;
        if (!(off <= bound)) fail_msg("%s: 64 parts are %.2e off their sum, bound %.2e", dtype_name[d], off, bound);
        close_case(&one);
        close_case(&many);
    }
}

// ---- loss scaling

// A power of two on the loss is a power of two on every gradient, to the bit: bf16 has room for both. One
// path that misses the scale, or has it twice, would show.
TEST(test_every_gradient_is_scaled)
{
    for (int llama = 0; llama < 2; llama++) {
        Case plain, scaled;
        open_case(&plain, D_BF16, llama, (RecomputePolicy){0}, NULL);
        open_case(&scaled, D_BF16, llama, (RecomputePolicy){0}, NULL);
        assert_true(gradient(&plain, 0, 1) == gradient(&scaled, 0, 1024));
        for (size_t i = 0; i < plain.m->params.n_elems; i++)
            if (!(scaled.m->grads[i] == 1024 * plain.m->grads[i])) fail_msg("element %zu is not scaled by 1024", i);
        close_case(&plain);
        close_case(&scaled);
    }
}

// The gradient of one micro-batch of a large global batch (2^19 tokens) in fp16: without a scale most of it
// is below the smallest number; with one it is as good as a gradient of fp16 can be.
TEST(test_fp16_needs_the_scale)
{
    const float of_batch = (float)N / 0x1p19f;
    Case exact, plain, scaled;
    open_case(&exact, D_FP32, true, (RecomputePolicy){0}, NULL);
    open_case(&plain, D_FP16, true, (RecomputePolicy){0}, NULL);
    open_case(&scaled, D_FP16, true, (RecomputePolicy){0}, NULL);
    size_t n = exact.m->params.n_elems;
    gradient(&exact, 0, of_batch);
    gradient(&plain, 0, of_batch);
    gradient(&scaled, 0, of_batch * 0x1p24f);
    double size = norm_of(exact.m->grads, NULL, 1, n);
    assert_true(norm_of(plain.m->grads, exact.m->grads, 1, n) > 0.1 * size);
    assert_true(norm_of(scaled.m->grads, exact.m->grads, 0x1p-24f, n) <= eps_bound(D_FP16) * size);
    close_case(&exact);
    close_case(&plain);
    close_case(&scaled);
}

// A scale that is too large overflows; it backs off until it fits, and until then no update is made.
TEST(test_fp16_overflow_is_skipped)
{
    Case c;
    double first;
    int skips = 0;
    LossScaler scaler = grads_scaler_create(0x1p24f, 1000);
    open_case(&c, D_FP16, false, (RecomputePolicy){0}, NULL);
    size_t n_bytes = c.m->params.n_elems * sizeof(float);
    float *before = zeroed(n_bytes);
    memcpy(before, c.m->weights, n_bytes);
    train(&c, 1, &scaler, &first, &skips);
    assert_int_equal(skips, 1);
    assert_true(scaler.scale == 0x1p23f && c.optim.step == 0);
    assert_memory_equal(c.m->weights, before, n_bytes);
    train(&c, 12, &scaler, &first, &skips);
    assert_true(scaler.scale < 0x1p23f && c.optim.step > 0 && c.optim.step == 13 - skips);
    for (size_t i = 0; i < c.m->params.n_elems; i++) assert_true(isfinite(c.m->weights[i]));
    free(before);
    close_case(&c);
}

// ---- what stays as it is

// What is made again is what was there: rounding at op boundaries, and scales that stand still during a step.
TEST(test_recomputation_is_exact)
{
    const RecomputePolicy policy[] = {{.mode = RECOMPUTE_SELECTIVE}, {.mode = RECOMPUTE_EVERY, .every = 2}};
    for (Dtype d = D_TF32; d < DTYPES; d++)
        for (int i = 0; i < 4; i++) {
            Case keep, again;
            open_case(&keep, d, i % 2, (RecomputePolicy){0}, NULL);
            open_case(&again, d, i % 2, policy[i / 2], NULL);
            for (int step = 0; step < 2; step++) { // the second with a history of amax
                assert_true(gradient(&keep, step, 1) == gradient(&again, step, 1));
                assert_memory_equal(keep.m->grads, again.m->grads, keep.m->params.n_elems * sizeof(float));
            }
            close_case(&keep);
            close_case(&again);
        }
}

// With every matrix kept in high precision, fp8 is bf16.
TEST(test_fp8_without_sites_is_bf16)
{
    Case bf16, fp8;
    open_case(&bf16, D_BF16, true, (RecomputePolicy){0}, NULL);
    ((Narrow *)bf16.dev)->hardware = false; // as fp8: all is widened
    open_case(&fp8, D_FP8_DELAYED, true, (RecomputePolicy){0}, "layers.");
    assert_true(gradient(&bf16, 0, 1) == gradient(&fp8, 0, 1));
    assert_memory_equal(bf16.m->grads, fp8.m->grads, bf16.m->params.n_elems * sizeof(float));
    close_case(&fp8);
    open_case(&fp8, D_FP8_DELAYED, true, (RecomputePolicy){0}, NULL);
    gradient(&fp8, 0, 1);
    assert_true(memcmp(bf16.m->grads, fp8.m->grads, bf16.m->params.n_elems * sizeof(float)) != 0);
    close_case(&bf16);
    close_case(&fp8);
}

// 16 bytes a parameter in fp32, 18 in mixed precision: weights, gradients, AdamW's two moments, and the
// master.
TEST(test_bytes_per_parameter)
{
    size_t acts32 = 0;
    for (Dtype d = D_FP32; d < DTYPES; d++) {
        Case c;
        open_case(&c, d, false, (RecomputePolicy){0}, NULL);
        size_t n = c.m->params.n_elems, stat = 4 * (LAYERS * (4 + 4) + 2) * (size_t)N; // fp32 means, rstds, lse
        assert_int_equal(c.mem.tag_bytes[MEM_PARAMS], (d > D_TF32 ? 2 : 4) * n);
        assert_int_equal(c.mem.tag_bytes[MEM_GRADS], 4 * n);
        assert_int_equal(c.mem.tag_bytes[MEM_OPTIM], (d > D_TF32 ? 4 + 8 : 8) * n);
        if (d == D_FP32) acts32 = c.mem.tag_bytes[MEM_ACTS] - stat;
        else assert_int_equal(c.mem.tag_bytes[MEM_ACTS] - stat, d == D_TF32 ? acts32 : acts32 / 2);
        close_case(&c);
    }
}

TESTS(NULL, NULL)
