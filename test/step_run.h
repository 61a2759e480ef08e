// step_run: one training step of a tiny model of either family, for the tests of what must not change its gradients:
// recomputation, splits, threads. Tests only.
#ifndef STEP_RUN_H
#define STEP_RUN_H
#include "test/test.h"

#include "net/model.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { B = 3, T = 10, N = B * T };

static const ModelShape gpt = {
    .layers = 5, .channels = 12, .heads = 3, .kv_heads = 3, .head_size = 4, .ffn = 20, .vocab = 31, .context = 10,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = { // a row of feed-forward activations is more than one group of 256
    .layers = 5, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 130, .vocab = 31, .context = 10,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

// Layers of both kinds (from the second on every second has experts), with a shared expert of another width than ffn.
static const ModelShape moe = {
    .layers = 5, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 130, .vocab = 31, .context = 10,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true,
    .experts = {.n = 5, .k = 2, .ffn = 9, .shared = 14, .dense = 1, .every = 2, .renorm = true, .scale = 1,
                .balance = MOE_BALANCE_SEQUENCE, .balance_coef = 0.1f, .z_coef = 0.01f, .capacity = 1.2}};

// ---- one step: micro-batches of random tokens

typedef struct {
    ModelOptions options;
    Dev *dev; // NULL: a CPU device with two threads
    float dropout;
    uint32_t step;
    bool documents;
} Step;

typedef struct {
    float *grads;
    double loss, eval_loss;
    size_t n, act_bytes, grad_bytes;
    uint64_t bytes_out, bytes_in; // of activations, to host memory and back
} Result;

// Sequence i of the step, of T tokens at most: the same whatever batch it is in.
static inline void sequence(size_t i, size_t n_tokens, int32_t *token, int32_t *target, int32_t *first)
{
    for (size_t t = 0; t < n_tokens; t++) {
        token[t] = (int32_t)rng_below(rng_make(7, "token", (uint32_t)i), t, 31);
        target[t] = t % 6 == 4 ? -1 : (int32_t)rng_below(rng_make(7, "target", (uint32_t)i), t, 31);
        first[t] = t < 3 + i % 2 ? 0 : 3 + (int32_t)(i % 2);
    }
}

static inline double run_batch(Model *m, const Step *step, size_t from, size_t n_rows, size_t n_tokens)
{
    int32_t token[8 * T], target[8 * T], first[8 * T];
    assert_true(n_rows <= 8);
    for (size_t b = 0; b < n_rows; b++)
        sequence(from + b, n_tokens, token + b * n_tokens, target + b * n_tokens, first + b * n_tokens);
    model_set_batch(m, token, NULL, target, n_rows, n_tokens);
    if (step->documents) model_set_documents(m, first);
    model_set_dropout(m, step->dropout, 5, step->step, from);
    model_set_each(m, 0.2f);
    return model_forward_backward(m, 0.03125f);
}

static inline void make_weights_lively(Model *m)
{
    for (size_t i = 0; i < m->params.n_elems; i++) // initialisation is too small to tell terms apart
        m->weights[i] += 0.2f * (float)rng_normal(rng_make(3, "lively", 0), i);
    model_weights_changed(m);
}

// Two micro-batches: (3, 10) and then (2, 7), which fills only a part of the buffers.
static inline Result run_step(const ModelShape *shape, Step step)
{
    Mem mem = {0};
    Dev *dev = step.dev ? step.dev : dev_cpu_create(2);
    Model *m = model_allocate_with(shape, dev, &mem, B, T, true, step.options);
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    Result r = {.n = m->params.n_elems};
    double sum = run_batch(m, &step, 0, 3, 10);
    sum += run_batch(m, &step, 3, 2, 7);
    r.loss = model_step_finish(m);
    if (!dev->deterministic) assert_true(r.loss == sum);
    r.bytes_out = m->pool.bytes_out, r.bytes_in = m->pool.bytes_in;
    r.eval_loss = model_evaluate(m);
    r.grads = zeroed(r.n * sizeof *r.grads);
    memcpy(r.grads, m->grads, r.n * sizeof *r.grads);
    r.act_bytes = mem.tag_bytes[MEM_ACTS];
    r.grad_bytes = mem.tag_bytes[MEM_GRADS];
    model_free(m);
    mem_free_all(&mem);
    if (!step.dev) dev_cpu_free(dev);
    return r;
}

static inline bool same_bits(const Result *a, const Result *b)
{
    return a->n == b->n && a->loss == b->loss && !memcmp(a->grads, b->grads, a->n * sizeof *a->grads);
}

// Euclidean norm of a - b over that of b; b NULL: the norm of a.
static inline double distance(const Result *a, const Result *b)
{
    double diff = 0, norm = 0;
    for (size_t i = 0; i < a->n; i++) {
        double d = a->grads[i] - (b ? b->grads[i] : 0);
        diff += d * d;
        norm += b ? (double)b->grads[i] * b->grads[i] : 0;
    }
    return b ? sqrt(diff / norm) : sqrt(diff);
}

#endif
