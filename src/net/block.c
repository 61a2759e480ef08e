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
#include "parallel/cp.h"
#include "net/mup.h"
#include "parallel/tp.h"

#include <string.h>

enum { NORM1, MEAN1, RSTD1, QKV, ATTN, LSE, RESID, NORM2, MEAN2, RSTD2, PRE, ACT, QK_NORMED, Q_RSTD, K_RSTD };
// What waits for backward_weight: gradients of the outputs of the four matmuls.
enum { LATE_QKV, LATE_ATTN_OUT, LATE_FFN_IN, LATE_FFN_DOWN };

// Of n heads or columns that this rank has, how many the whole model has.
static size_t whole_of(const UnitContext *ctx, size_t n)
{
    return ctx->tp ? n * (size_t)ctx->shape->cut.size : n;
}

static size_t qkv_width(const ModelShape *s)
{
    return (s->heads + 2 * s->kv_heads) * s->head_size;
}

static BufferList block_saved(const Dev *dev, const ModelShape *s, size_t B, size_t T)
{
    BufferList list = {.n = 0};
    size_t N = B * T, x = dev->x_bytes, f = sizeof(float);
    unit_list_add(&list, "norm1", BUFFER_CHEAP, N * s->channels, x);
    unit_list_add_shared(&list, "mean1", BUFFER_STAT, N, f);
    unit_list_add_shared(&list, "rstd1", BUFFER_STAT, N, f);
    unit_list_add(&list, "qkv", BUFFER_ACT, N * qkv_width(s), x);
    unit_list_add(&list, "attn", BUFFER_ACT, N * s->heads * s->head_size, x);
    unit_list_add(&list, "lse", BUFFER_STAT, N * s->heads, f);
    unit_list_add_shared(&list, "resid", BUFFER_ACT, N * s->channels, x);
    unit_list_add(&list, "norm2", BUFFER_CHEAP, N * s->channels, x);
    unit_list_add_shared(&list, "mean2", BUFFER_STAT, N, f);
    unit_list_add_shared(&list, "rstd2", BUFFER_STAT, N, f);
    unit_list_add(&list, "pre", BUFFER_ACT, N * s->ffn * (s->swiglu ? 2 : 1), x);
    unit_list_add(&list, "act", BUFFER_CHEAP, N * s->ffn, x);
    if (s->qk_norm) {
        unit_list_add(&list, "qk_normed", BUFFER_CHEAP, N * qkv_width(s), x);
        unit_list_add(&list, "q_rstd", BUFFER_STAT, N * s->heads, f);
        unit_list_add(&list, "k_rstd", BUFFER_STAT, N * s->kv_heads, f);
    }
    return list;
}

static BufferList block_late(const Dev *dev, const ModelShape *s, size_t B, size_t T)
{
    BufferList list = {.n = 0};
    size_t N = B * T, x = dev->x_bytes;
    unit_list_add(&list, "dqkv", BUFFER_ACT, N * qkv_width(s), x);
    unit_list_add(&list, "dattn_out", BUFFER_ACT, N * s->channels, x);
    unit_list_add(&list, "dpre", BUFFER_ACT, N * s->ffn * (s->swiglu ? 2 : 1), x);
    unit_list_add(&list, "ddown", BUFFER_ACT, N * s->channels, x);
    return list;
}

static X *at_row(const UnitContext *ctx, const void *x, size_t row, size_t width)
{
    return (X *)((char *)x + row * width * ctx->dev->x_bytes);
}

// The q, k or v part of packed rows (N, (H + 2G) D).
static X *part_of(const UnitContext *ctx, X *qkv, char which)
{
    const ModelShape *s = ctx->shape;
    size_t heads = which == 'q' ? 0 : which == 'k' ? s->heads : s->heads + s->kv_heads;
    return (X *)((char *)qkv + heads * s->head_size * ctx->dev->x_bytes);
}

// Sequences from `b` on, as many as one call of attention takes: all, but with dropout over heads that are cut. A
// rank numbers its H / tp heads of sequence b as if they were those of sequence b tp + rank of a model that has no
// others: then the masks, which count (sequence, head), are those of the whole model.
static AttnShape attn_shape(const UnitContext *ctx, const Unit *unit, const Batch *batch, size_t b)
{
    const ModelShape *s = ctx->shape;
    AttnShape a = {.B = batch->B, .Tq = batch->T, .Tk = batch->T, .H = s->heads, .G = s->kv_heads, .D = s->head_size,
                   .ldq = qkv_width(s), .ldkv = qkv_width(s), .scale = mup_attention_scale(s),
                   .first = batch->first ? batch->first + b * batch->T : NULL,
                   .drop = unit_dropout(unit, batch, "probs", 1)};
    a.drop.first += b;
    if (!ctx->tp || a.drop.p == 0) return a;
    a.B = 1;
    a.drop.first = a.drop.first * (uint64_t)s->cut.size + (uint64_t)s->cut.rank;
    return a;
}

// Attention over whole sequences, or over one that is cut over ranks.
static void forward_attention(const UnitContext *ctx, X *out, float *lse, const X *q, const X *k, const X *v,
                              AttnShape shape)
{
    if (ctx->cp) cp_forward(ctx->cp, out, lse, q, k, v, shape);
    else ctx->dev->attention_forward(ctx->dev, out, lse, q, k, v, shape);
}

static void backward_attention(const UnitContext *ctx, X *dq, X *dk, X *dv, const X *dout, const X *out,
                               const float *lse, const X *q, const X *k, const X *v, AttnShape shape)
{
    if (ctx->cp) cp_backward(ctx->cp, dq, dk, dv, dout, out, lse, q, k, v, shape);
    else ctx->dev->attention_backward(ctx->dev, dq, dk, dv, dout, out, lse, q, k, v, shape);
}

// out = dropout(inp) of a branch ("attn", "ffn") in this rank's rows; returns inp itself when there is none.
static const X *branch_dropout(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site, X *out,
                               const X *inp)
{
    size_t C = ctx->shape->channels;
    Dropout drop = tp_dropout(ctx, unit, batch, site);
    if (drop.p == 0) return inp;
    ctx->dev->dropout(ctx->dev, out, inp, tp_rows(ctx, batch->N) * C, drop);
    return out;
}

// The gradient of a branch's output in all rows, from that of the stream in this rank's: the way back through g.
static const X *branch_backward(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site,
                                X *whole, X *stream)
{
    size_t N = batch->N, C = ctx->shape->channels;
    if (tp_rows(ctx, N) == N) return branch_dropout(ctx, unit, batch, site, whole, stream);
    ctx->dev->dropout(ctx->dev, tp_own(ctx, whole, N), stream, tp_rows(ctx, N) * C,
                      tp_dropout(ctx, unit, batch, site)); // p 0: a copy
    tp_g_backward(ctx, whole, N);
    return whole;
}

// The same for a branch's last matmul; a copy stays in `late` where backward_weight will read it (NULL: nowhere).
static const X *branch_kept(const UnitContext *ctx, const Unit *unit, const Batch *batch, const char *site, X *late,
                            X *whole, X *stream)
{
    const X *dbranch = branch_backward(ctx, unit, batch, site, late ? late : whole, stream);
    if (late && dbranch == stream)
        ctx->dev->dropout(ctx->dev, late, stream, batch->N * ctx->shape->channels, (Dropout){.p = 0}); // a copy
    return dbranch;
}

// Appends this call's keys and values (batch->T rows of one sequence) to the layer's cache; *k and *v
// become the cache.
static void cache_append(const UnitContext *ctx, const Unit *unit, AttnShape *shape, X **k, X **v)
{
    const ModelShape *s = ctx->shape;
    size_t row = s->kv_heads * s->head_size, x = ctx->dev->x_bytes, layer = (size_t)unit->cache;
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
    X *norm = (X *)saved[NORM1];
    ctx->dev->norm_forward(ctx->dev, tp_own(ctx, norm, batch->N), NULL, (float *)saved[MEAN1], (float *)saved[RSTD1],
                           inp, NULL, unit_weight(ctx, unit, W_ATTN_NORM), unit_weight(ctx, unit, B_ATTN_NORM),
                           tp_rows(ctx, batch->N), s->channels, s->norm, s->norm_eps);
    tp_f_forward(ctx, norm, batch->N);
}

// resid = a + b, norm2 = norm(resid); b NULL: norm2 = norm(a) alone.
static void ffn_norm(const UnitContext *ctx, const Unit *unit, const X *a, const X *b, void *const *saved,
                     const Batch *batch)
{
    const ModelShape *s = ctx->shape;
    X *norm = (X *)saved[NORM2];
    ctx->dev->norm_forward(ctx->dev, tp_own(ctx, norm, batch->N), b ? (X *)saved[RESID] : NULL, (float *)saved[MEAN2],
                           (float *)saved[RSTD2], a, b, unit_weight(ctx, unit, W_FFN_NORM),
                           unit_weight(ctx, unit, B_FFN_NORM), tp_rows(ctx, batch->N), s->channels, s->norm,
                           s->norm_eps);
    tp_f_forward(ctx, norm, batch->N);
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
        dev->rope_forward(dev, q, batch->pos, N, s->heads + s->kv_heads, D, ld, s->rotary);
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
    AttnShape shape = attn_shape(ctx, unit, batch, 0);
    if (ctx->cache) cache_append(ctx, unit, &shape, &k, &v);
    for (size_t b = 0; b < batch->B; b += shape.B) {
        if (b > 0) shape = attn_shape(ctx, unit, batch, b);
        size_t row = b * batch->T;
        forward_attention(ctx, at_row(ctx, saved[ATTN], row, s->heads * s->head_size),
                          (float *)saved[LSE] + row * s->heads, at_row(ctx, q, row, shape.ldq),
                          at_row(ctx, k, row, shape.ldkv), at_row(ctx, v, row, shape.ldkv), shape);
    }
}

static void block_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                          const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, C = s->channels, F = s->ffn;
    X *sum = (X *)ctx->scratch[SCRATCH_NORM]; // (N, C) what attention, then the ffn, adds to the stream
    X *branch = tp_own(ctx, sum, N);
    X *resid = (X *)saved[RESID], *norm2 = (X *)saved[NORM2], *pre = (X *)saved[PRE], *act = (X *)saved[ACT];

    attn_norm(ctx, unit, inp, saved, batch);
    attention_part_forward(ctx, unit, saved, batch);
    tp_row_parallel(ctx, sum, (X *)saved[ATTN], unit_weight(ctx, unit, W_ATTN_OUT),
                    unit_weight(ctx, unit, B_ATTN_OUT), N, s->heads * s->head_size, C, whole_of(ctx, s->heads),
                    unit->row[W_ATTN_OUT]);
    tp_g_forward(ctx, sum, N);
    ffn_norm(ctx, unit, inp, branch_dropout(ctx, unit, batch, "attn", branch, branch), saved, batch);

    const X *w_in = unit_weight(ctx, unit, W_FFN_IN), *b_in = unit_weight(ctx, unit, B_FFN_IN);
    if (s->swiglu) {
        dev->matmul_forward(dev, pre, norm2, w_in, b_in, N, C, 2 * F, unit->row[W_FFN_IN]);
        dev->swiglu_forward(dev, act, pre, N, F);
    } else {
        dev->matmul_gelu_forward(dev, act, pre, norm2, w_in, b_in, N, C, F, unit->row[W_FFN_IN]);
    }
    if (!out) return; // all is saved
    tp_row_parallel(ctx, sum, act, unit_weight(ctx, unit, W_FFN_DOWN), unit_weight(ctx, unit, B_FFN_DOWN), N, F, C,
                    whole_of(ctx, F), unit->row[W_FFN_DOWN]);
    tp_g_forward(ctx, sum, N);
    dev->add(dev, out, resid, branch_dropout(ctx, unit, batch, "ffn", branch, branch), tp_rows(ctx, N) * C);
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

// The weights' gradients, one matmul each: dout as backward leaves it, in its scratch or in `late`.
static void ffn_down_weight(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved, size_t N)
{
    cp_matmul_backward_weight(ctx, unit_grad(ctx, unit, W_FFN_DOWN), unit_grad(ctx, unit, B_FFN_DOWN),
                              dout, (X *)saved[ACT], N, ctx->shape->ffn, ctx->shape->channels,
                              unit->row[W_FFN_DOWN]);
}

static void ffn_in_weight(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved, size_t N)
{
    const ModelShape *s = ctx->shape;
    cp_matmul_backward_weight(ctx, unit_grad(ctx, unit, W_FFN_IN), unit_grad(ctx, unit, B_FFN_IN), dout,
                              (X *)saved[NORM2], N, s->channels, s->swiglu ? 2 * s->ffn : s->ffn,
                              unit->row[W_FFN_IN]);
}

static void attn_out_weight(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved, size_t N)
{
    const ModelShape *s = ctx->shape;
    cp_matmul_backward_weight(ctx, unit_grad(ctx, unit, W_ATTN_OUT), unit_grad(ctx, unit, B_ATTN_OUT),
                              dout, (X *)saved[ATTN], N, s->heads * s->head_size, s->channels,
                              unit->row[W_ATTN_OUT]);
}

static void qkv_weight(const UnitContext *ctx, const Unit *unit, const X *dout, void *const *saved, size_t N)
{
    cp_matmul_backward_weight(ctx, unit_grad(ctx, unit, W_QKV), unit_grad(ctx, unit, B_QKV), dout,
                              (X *)saved[NORM1], N, ctx->shape->channels, qkv_width(ctx->shape),
                              unit->row[W_QKV]);
}

// dstream (N, C): gradient of the block's output on entry, of `resid` on return.
static void ffn_part_backward(const UnitContext *ctx, const Unit *unit, X *stream, void *const *saved,
                              void *const *late, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, C = s->channels, F = s->ffn, wide = s->swiglu ? 2 * F : F;
    X *dnorm = (X *)ctx->scratch[SCRATCH_NORM], *scratch = (X *)ctx->scratch[SCRATCH_WIDE];
    X *dpre = late ? (X *)late[LATE_FFN_IN] : scratch;
    const X *w_down = unit_weight(ctx, unit, W_FFN_DOWN);
    const X *dbranch = branch_kept(ctx, unit, batch, "ffn", late ? (X *)late[LATE_FFN_DOWN] : NULL, dnorm,
                                   stream); // dnorm is not in use yet
    if (!late) ffn_down_weight(ctx, unit, dbranch, saved, N);
    if (s->swiglu) {
        X *dact = (X *)((char *)scratch + N * wide * dev->x_bytes); // scratch holds 3F a row
        dev->matmul_backward_input(dev, dact, dbranch, w_down, N, F, C, unit->row[W_FFN_DOWN]);
        dev->swiglu_backward(dev, dpre, dact, (X *)saved[PRE], N, F);
    } else {
        dev->matmul_gelu_backward_input(dev, dpre, dbranch, w_down, (X *)saved[PRE], N, F, C, unit->row[W_FFN_DOWN]);
    }
    if (!late) ffn_in_weight(ctx, unit, dpre, saved, N);
    const size_t segments[] = {F, F}; // gate, up
    tp_column_backward_input(ctx, dnorm, dpre, unit_weight(ctx, unit, W_FFN_IN), N, C, segments, s->swiglu ? 2 : 1,
                             whole_of(ctx, F), unit->row[W_FFN_IN]);
    tp_f_backward(ctx, dnorm, N);
    tp_norm_backward(ctx, unit, W_FFN_NORM, B_FFN_NORM, stream, tp_own(ctx, dnorm, N), stream, (X *)saved[RESID],
                     (float *)saved[MEAN2], (float *)saved[RSTD2], tp_rows(ctx, N));
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
    AttnShape shape;
    for (size_t b = 0; b < batch->B; b += shape.B) {
        shape = attn_shape(ctx, unit, batch, b);
        size_t row = b * batch->T, hd = s->heads * D;
        backward_attention(ctx, at_row(ctx, dq, row, ld), at_row(ctx, dk, row, ld), at_row(ctx, dv, row, ld),
                           at_row(ctx, dattn, row, hd), at_row(ctx, saved[ATTN], row, hd),
                           (float *)saved[LSE] + row * s->heads, at_row(ctx, part_of(ctx, qk, 'q'), row, ld),
                           at_row(ctx, part_of(ctx, qk, 'k'), row, ld),
                           at_row(ctx, part_of(ctx, qkv, 'v'), row, ld), shape);
    }
    if (s->rope) dev->rope_backward(dev, dq, batch->pos, N, s->heads + s->kv_heads, D, ld, s->rotary);
    if (s->qk_norm) {
        cp_head_norm_backward(ctx, dq, unit_grad(ctx, unit, W_Q_NORM), part_of(ctx, qkv, 'q'), (float *)saved[Q_RSTD],
                              unit_weight(ctx, unit, W_Q_NORM), N, s->heads, D, ld);
        cp_head_norm_backward(ctx, dk, unit_grad(ctx, unit, W_K_NORM), part_of(ctx, qkv, 'k'), (float *)saved[K_RSTD],
                              unit_weight(ctx, unit, W_K_NORM), N, s->kv_heads, D, ld);
    }
}

static void block_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                           void *const *late, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N, C = s->channels, hd = s->heads * s->head_size;
    X *dattn = (X *)ctx->scratch[SCRATCH_ATTN], *dnorm = (X *)ctx->scratch[SCRATCH_NORM];
    X *dqkv = late ? (X *)late[LATE_QKV] : (X *)ctx->scratch[SCRATCH_QKV];

    ffn_part_backward(ctx, unit, stream, saved, late, batch);
    const X *dbranch = branch_kept(ctx, unit, batch, "attn", late ? (X *)late[LATE_ATTN_OUT] : NULL, dnorm,
                                   stream); // dnorm is not in use yet
    if (!late) attn_out_weight(ctx, unit, dbranch, saved, N);
    dev->matmul_backward_input(dev, dattn, dbranch, unit_weight(ctx, unit, W_ATTN_OUT), N, hd, C,
                               unit->row[W_ATTN_OUT]);
    attention_part_backward(ctx, unit, dqkv, dattn, saved, batch);
    if (!late) qkv_weight(ctx, unit, dqkv, saved, N);
    const size_t segments[] = {hd, s->kv_heads * s->head_size, s->kv_heads * s->head_size};
    tp_column_backward_input(ctx, dnorm, dqkv, unit_weight(ctx, unit, W_QKV), N, C, segments, 3,
                             ctx->tp ? s->cut.kv_heads : s->kv_heads, unit->row[W_QKV]);
    tp_f_backward(ctx, dnorm, N);
    tp_norm_backward(ctx, unit, W_ATTN_NORM, B_ATTN_NORM, stream, tp_own(ctx, dnorm, N), stream, inp,
                     (float *)saved[MEAN1], (float *)saved[RSTD1], tp_rows(ctx, N));
    tp_finish_grads(ctx, unit);
}

static void block_backward_weight(const UnitContext *ctx, const Unit *unit, void *const *saved, void *const *late,
                                  const Batch *batch)
{
    size_t N = batch->N;
    ffn_down_weight(ctx, unit, (X *)late[LATE_FFN_DOWN], saved, N);
    ffn_in_weight(ctx, unit, (X *)late[LATE_FFN_IN], saved, N);
    attn_out_weight(ctx, unit, (X *)late[LATE_ATTN_OUT], saved, N);
    qkv_weight(ctx, unit, (X *)late[LATE_QKV], saved, N);
    tp_finish_grads(ctx, unit);
}

// All rows but the norms'.
static bool block_is_late(const Unit *unit, int row)
{
    static const UnitRole early[] = {W_ATTN_NORM, B_ATTN_NORM, W_Q_NORM, W_K_NORM, W_FFN_NORM, B_FFN_NORM};
    for (size_t i = 0; i < sizeof early / sizeof *early; i++)
        if (unit->row[early[i]] == row) return false;
    return true;
}

const UnitKind unit_block = {
    .name = "block", .saved = block_saved, .forward = block_forward, .backward = block_backward,
    .restore = block_restore, .backward_weight = block_backward_weight, .late = block_late,
    .late_reads = 1u << NORM1 | 1u << ATTN | 1u << NORM2 | 1u << ACT, .is_late = block_is_late,
};
