// block: one transformer layer, GPT's and LLaMA's from the same code.
//
//   x -> attn_norm -> q, k, v -> [QK-norm] -> [RoPE] -> causal attention -> out -> + x = r
//   r -> ffn_norm -> (up, GELU | gate and up, SwiGLU) -> down -> + r
//
// Pre-norm as in GPT-2 (Radford et al. 2019) and LLaMA (arXiv 2302.13971). The families differ by
// switches: the kind of norm, biases, learned positions or RoPE, GELU or SwiGLU, kv_heads < heads
// (grouped queries, arXiv 2305.13245). QK-norm is a per-head RMSNorm with one weight of D elements for
// all heads (Qwen3's form).
//
// Dropout sits where GPT-2 has it: on the attention probabilities and on what either branch adds to the stream.
//
// The invariant: backward reads only `inp`, `saved` and the weights, and undoes forward line by line,
// last line first; restore makes the cheap part of `saved` again by the very calls that forward used. q, k
// and v are one matmul because their rows are adjacent in the parameter table, and so are gate and up.
// RoPE works in place: its backward turns the gradient back and needs nothing saved.
#include "mup.h"
#include "unit.h"

#include <string.h>

enum { NORM1, MEAN1, RSTD1, QKV, ATTN, LSE, RESID, NORM2, MEAN2, RSTD2, PRE, ACT, QK_NORMED, Q_RSTD, K_RSTD };

static size_t qkv_width(const ModelShape *s)
{
    return (s->heads + 2 * s->kv_heads) * s->head_size;
}

static BufferList block_saved(const Dev *dev, const ModelShape *s, size_t B, size_t T)
{
    BufferList list = {.n = 0};
    size_t N = B * T, x = dev->x_bytes, f = sizeof(float);
    unit_list_add(&list, "norm1", BUFFER_CHEAP, N * s->channels, x);
    unit_list_add(&list, "mean1", BUFFER_STAT, N, f);
    unit_list_add(&list, "rstd1", BUFFER_STAT, N, f);
    unit_list_add(&list, "qkv", BUFFER_ACT, N * qkv_width(s), x);
    unit_list_add(&list, "attn", BUFFER_ACT, N * s->heads * s->head_size, x);
    unit_list_add(&list, "lse", BUFFER_STAT, N * s->heads, f);
    unit_list_add(&list, "resid", BUFFER_ACT, N * s->channels, x);
    unit_list_add(&list, "norm2", BUFFER_CHEAP, N * s->channels, x);
    unit_list_add(&list, "mean2", BUFFER_STAT, N, f);
    unit_list_add(&list, "rstd2", BUFFER_STAT, N, f);
    unit_list_add(&list, "pre", BUFFER_ACT, N * s->ffn * (s->swiglu ? 2 : 1), x);
    unit_list_add(&list, "act", BUFFER_CHEAP, N * s->ffn, x);
    if (s->qk_norm) {
        unit_list_add(&list, "qk_normed", BUFFER_CHEAP, N * qkv_width(s), x);
        unit_list_add(&list, "q_rstd", BUFFER_STAT, N * s->heads, f);
        unit_list_add(&list, "k_rstd", BUFFER_STAT, N * s->kv_heads, f);
    }
    return list;
}

// The q, k or v part of packed rows (N, (H + 2G) D).
static X *part_of(const UnitContext *ctx, X *qkv, char which)
{
    const ModelShape *s = ctx->shape;
    size_t heads = which == 'q' ? 0 : which == 'k' ? s->heads : s->heads + s->kv_heads;
    return (X *)((char *)qkv + heads * s->head_size * ctx->dev->x_bytes);
}

static AttnShape attn_shape(const ModelShape *s, const Unit *unit, const Batch *batch)
{
    return (AttnShape){.B = batch->B, .Tq = batch->T, .Tk = batch->T, .H = s->heads, .G = s->kv_heads,
                       .D = s->head_size, .ldq = qkv_width(s), .ldkv = qkv_width(s), .first = batch->first,
                       .scale = mup_attention_scale(s),
                       .drop = unit_dropout(unit, batch, "probs", 1)};
}

// out = dropout(inp) of a branch ("attn", "ffn"); returns inp itself when there is none.
static const X *branch_dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site, X *out,
                               const X *inp)
{
    size_t C = ctx->shape->channels;
    Dropout drop = unit_dropout(unit, batch, site, batch->T * C);
    if (drop.p == 0) return inp;
    ctx->dev->dropout(ctx->dev, out, inp, batch->N * C, drop);
    return out;
}

// Appends this call's keys and values (batch->T rows of one sequence) to the layer's cache; *k and *v
// become the cache.
static void cache_append(const UnitContext *ctx, const Unit *unit, AttnShape *shape, X **k, X **v)
{
    const ModelShape *s = ctx->shape;
    size_t row = s->kv_heads * s->head_size, x = ctx->dev->x_bytes, layer = (size_t)(unit->index - 1);
    char *cache_k = (char *)ctx->cache->k + layer * s->context * row * x;
    char *cache_v = (char *)ctx->cache->v + layer * s->context * row * x;
    for (size_t t = 0; t < shape->Tq; t++) {
        size_t to = (ctx->cache->length + t) * row * x, from = t * shape->ldkv * x;
        ctx->dev->to_device(ctx->dev, cache_k + to, (char *)*k + from, row * x);
        ctx->dev->to_device(ctx->dev, cache_v + to, (char *)*v + from, row * x);
    }
    shape->q_start = ctx->cache->length;
    shape->Tk = shape->q_start + shape->Tq;
    shape->ldkv = row;
    *k = (X *)cache_k;
    *v = (X *)cache_v;
}

// out = norm(inp), the first norm of the block.
static void attn_norm(const UnitContext *ctx, const Unit *unit, const X *inp, void *const *saved, const Batch *batch)
{
    const ModelShape *s = ctx->shape;
    ctx->dev->norm_forward(ctx->dev, (X *)saved[NORM1], NULL, (float *)saved[MEAN1], (float *)saved[RSTD1], inp, NULL,
                           unit_weight(ctx, unit, W_ATTN_NORM), unit_weight(ctx, unit, B_ATTN_NORM),
                           batch->N, s->channels, s->norm, s->norm_eps);
}

// resid = a + b, norm2 = norm(resid); b NULL: norm2 = norm(a) alone.
static void ffn_norm(const UnitContext *ctx, const Unit *unit, const X *a, const X *b, void *const *saved,
                     const Batch *batch)
{
    const ModelShape *s = ctx->shape;
    ctx->dev->norm_forward(ctx->dev, (X *)saved[NORM2], b ? (X *)saved[RESID] : NULL, (float *)saved[MEAN2],
                           (float *)saved[RSTD2], a, b, unit_weight(ctx, unit, W_FFN_NORM),
                           unit_weight(ctx, unit, B_FFN_NORM), batch->N, s->channels, s->norm, s->norm_eps);
}

// Queries and keys as attention reads them: normed into a buffer of their own, or where they are; then turned.
static X *prepare_qk(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, D = s->head_size, ld = qkv_width(s);
    X *qkv = (X *)saved[QKV], *qk = s->qk_norm ? (X *)saved[QK_NORMED] : qkv;
    X *q = part_of(ctx, qk, 'q'), *k = part_of(ctx, qk, 'k');
    if (s->qk_norm) {
        dev->head_norm_forward(dev, q, (float *)saved[Q_RSTD], part_of(ctx, qkv, 'q'),
                               unit_weight(ctx, unit, W_Q_NORM), N, s->heads, D, ld, s->norm_eps);
        dev->head_norm_forward(dev, k, (float *)saved[K_RSTD], part_of(ctx, qkv, 'k'),
                               unit_weight(ctx, unit, W_K_NORM), N, s->kv_heads, D, ld, s->norm_eps);
    }
    if (s->rope) // q and k stand side by side: heads + kv_heads vectors
        dev->rope_forward(dev, q, batch->pos, N, s->heads + s->kv_heads, D, ld, s->rope_theta);
    return qk;
}

static void attention_part_forward(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    X *qkv = (X *)saved[QKV];
    dev->matmul_forward(dev, qkv, (X *)saved[NORM1], unit_weight(ctx, unit, W_QKV), unit_weight(ctx, unit, B_QKV),
                        batch->N, s->channels, qkv_width(s), unit->row[W_QKV]);
    X *qk = prepare_qk(ctx, unit, saved, batch);
    X *q = part_of(ctx, qk, 'q'), *k = part_of(ctx, qk, 'k'), *v = part_of(ctx, qkv, 'v');
    AttnShape shape = attn_shape(s, unit, batch);
    if (ctx->cache) cache_append(ctx, unit, &shape, &k, &v);
    dev->attention_forward(dev, (X *)saved[ATTN], (float *)saved[LSE], q, k, v, shape);
}

static void block_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                          const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, C = s->channels, F = s->ffn;
    X *branch = (X *)ctx->scratch[SCRATCH_NORM]; // what attention, then the ffn, adds to the stream
    X *resid = (X *)saved[RESID], *norm2 = (X *)saved[NORM2], *pre = (X *)saved[PRE], *act = (X *)saved[ACT];

    attn_norm(ctx, unit, inp, saved, batch);
    attention_part_forward(ctx, unit, saved, batch);
    dev->matmul_forward(dev, branch, (X *)saved[ATTN], unit_weight(ctx, unit, W_ATTN_OUT),
                        unit_weight(ctx, unit, B_ATTN_OUT), N, s->heads * s->head_size, C, unit->row[W_ATTN_OUT]);
    ffn_norm(ctx, unit, inp, branch_dropout(ctx, unit, batch, "attn", branch, branch), saved, batch);

    const X *w_in = unit_weight(ctx, unit, W_FFN_IN), *b_in = unit_weight(ctx, unit, B_FFN_IN);
    if (s->swiglu) {
        dev->matmul_forward(dev, pre, norm2, w_in, b_in, N, C, 2 * F, unit->row[W_FFN_IN]);
        dev->swiglu_forward(dev, act, pre, N, F);
    } else {
        dev->matmul_gelu_forward(dev, act, pre, norm2, w_in, b_in, N, C, F, unit->row[W_FFN_IN]);
    }
    if (!out) return; // all is saved
    dev->matmul_forward(dev, branch, act, unit_weight(ctx, unit, W_FFN_DOWN), unit_weight(ctx, unit, B_FFN_DOWN),
                        N, F, C, unit->row[W_FFN_DOWN]);
    dev->add(dev, out, resid, branch_dropout(ctx, unit, batch, "ffn", branch, branch), N * C);
}

static void block_restore(const UnitContext *ctx, const Unit *unit, const X *inp, void *const *saved,
                          const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    attn_norm(ctx, unit, inp, saved, batch);
    if (s->qk_norm) prepare_qk(ctx, unit, saved, batch);
    ffn_norm(ctx, unit, (X *)saved[RESID], NULL, saved, batch);
    if (s->swiglu) dev->swiglu_forward(dev, (X *)saved[ACT], (X *)saved[PRE], batch->N, s->ffn);
    else dev->gelu_forward(dev, (X *)saved[ACT], (X *)saved[PRE], batch->N * s->ffn);
}

// dstream (N, C): gradient of the block's output on entry, of `resid` on return.
static void ffn_part_backward(const UnitContext *ctx, const Unit *unit, X *stream, void *const *saved,
                              const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, C = s->channels, F = s->ffn, wide = s->swiglu ? 2 * F : F;
    X *dnorm = (X *)ctx->scratch[SCRATCH_NORM], *dpre = (X *)ctx->scratch[SCRATCH_WIDE];
    const X *w_down = unit_weight(ctx, unit, W_FFN_DOWN);
    const X *dbranch = branch_dropout(ctx, unit, batch, "ffn", dnorm, stream); // dnorm is not in use yet
    dev->matmul_backward_weight(dev, unit_grad(ctx, unit, W_FFN_DOWN), unit_grad(ctx, unit, B_FFN_DOWN), dbranch,
                                (X *)saved[ACT], N, F, C, unit->row[W_FFN_DOWN]);
    if (s->swiglu) {
        X *dact = (X *)((char *)dpre + N * wide * dev->x_bytes); // scratch holds 3F a row
        dev->matmul_backward_input(dev, dact, dbranch, w_down, N, F, C, unit->row[W_FFN_DOWN]);
        dev->swiglu_backward(dev, dpre, dact, (X *)saved[PRE], N, F);
    } else {
        dev->matmul_gelu_backward_input(dev, dpre, dbranch, w_down, (X *)saved[PRE], N, F, C, unit->row[W_FFN_DOWN]);
    }
    dev->matmul_backward_weight(dev, unit_grad(ctx, unit, W_FFN_IN), unit_grad(ctx, unit, B_FFN_IN), dpre,
                                (X *)saved[NORM2], N, C, wide, unit->row[W_FFN_IN]);
    dev->matmul_backward_input(dev, dnorm, dpre, unit_weight(ctx, unit, W_FFN_IN), N, C, wide, unit->row[W_FFN_IN]);
    dev->norm_backward(dev, stream, unit_grad(ctx, unit, W_FFN_NORM), unit_grad(ctx, unit, B_FFN_NORM), dnorm, stream,
                       (X *)saved[RESID], (float *)saved[MEAN2], (float *)saved[RSTD2],
                       unit_weight(ctx, unit, W_FFN_NORM), N, C, s->norm);
}

// dqkv (N, (H + 2G) D) from the gradient of the attention output.
static void attention_part_backward(const UnitContext *ctx, const Unit *unit, X *dqkv, const X *dattn,
                                    void *const *saved, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, D = s->head_size, ld = qkv_width(s);
    X *qkv = (X *)saved[QKV], *qk = s->qk_norm ? (X *)saved[QK_NORMED] : qkv;
    X *dq = part_of(ctx, dqkv, 'q'), *dk = part_of(ctx, dqkv, 'k'), *dv = part_of(ctx, dqkv, 'v');
    dev->attention_backward(dev, dq, dk, dv, dattn, (X *)saved[ATTN], (float *)saved[LSE], part_of(ctx, qk, 'q'),
                            part_of(ctx, qk, 'k'), part_of(ctx, qkv, 'v'), attn_shape(s, unit, batch));
    if (s->rope) dev->rope_backward(dev, dq, batch->pos, N, s->heads + s->kv_heads, D, ld, s->rope_theta);
    if (s->qk_norm) {
        dev->head_norm_backward(dev, dq, unit_grad(ctx, unit, W_Q_NORM), dq, part_of(ctx, qkv, 'q'),
                                (float *)saved[Q_RSTD], unit_weight(ctx, unit, W_Q_NORM), N, s->heads, D, ld);
        dev->head_norm_backward(dev, dk, unit_grad(ctx, unit, W_K_NORM), dk, part_of(ctx, qkv, 'k'),
                                (float *)saved[K_RSTD], unit_weight(ctx, unit, W_K_NORM), N, s->kv_heads, D, ld);
    }
}

static void block_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                           const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, C = s->channels, hd = s->heads * s->head_size, wide = qkv_width(s);
    X *dattn = (X *)ctx->scratch[SCRATCH_ATTN], *dqkv = (X *)ctx->scratch[SCRATCH_QKV];
    X *dnorm = (X *)ctx->scratch[SCRATCH_NORM];

    ffn_part_backward(ctx, unit, stream, saved, batch);
    const X *dbranch = branch_dropout(ctx, unit, batch, "attn", dnorm, stream); // dnorm is not in use yet
    dev->matmul_backward_weight(dev, unit_grad(ctx, unit, W_ATTN_OUT), unit_grad(ctx, unit, B_ATTN_OUT), dbranch,
                                (X *)saved[ATTN], N, hd, C, unit->row[W_ATTN_OUT]);
    dev->matmul_backward_input(dev, dattn, dbranch, unit_weight(ctx, unit, W_ATTN_OUT), N, hd, C,
                               unit->row[W_ATTN_OUT]);
    attention_part_backward(ctx, unit, dqkv, dattn, saved, batch);
    dev->matmul_backward_weight(dev, unit_grad(ctx, unit, W_QKV), unit_grad(ctx, unit, B_QKV), dqkv,
                                (X *)saved[NORM1], N, C, wide, unit->row[W_QKV]);
    dev->matmul_backward_input(dev, dnorm, dqkv, unit_weight(ctx, unit, W_QKV), N, C, wide, unit->row[W_QKV]);
    dev->norm_backward(dev, stream, unit_grad(ctx, unit, W_ATTN_NORM), unit_grad(ctx, unit, B_ATTN_NORM), dnorm, stream,
                       inp, (float *)saved[MEAN1], (float *)saved[RSTD1], unit_weight(ctx, unit, W_ATTN_NORM),
                       N, C, s->norm);
}

const UnitKind unit_block = {"block", block_saved, block_forward, block_backward, block_restore};
