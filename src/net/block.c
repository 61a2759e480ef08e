// block: one transformer layer, GPT's and LLaMA's from the same code.
//
//   x -> attn_norm -> q, k, v -> [QK-norm] -> [RoPE] -> causal attention -> out -> + x = r
//   r -> ffn_norm -> (up, GELU | gate and up, SwiGLU) -> down -> + r
//
// Pre-norm as in GPT-2 (Radford et al. 2019) and LLaMA (arXiv 2302.13971); with model.norm_place=output both norms stand
// before the `+`, as in OLMo 2 (arXiv 2501.00656): r = x + norm(attention(x)). The families differ by
// switches: the kind of norm, biases, learned positions or RoPE, GELU or SwiGLU, kv_heads < heads
// (grouped queries, arXiv 2305.13245). QK-norm is an RMSNorm of each head, with one weight of D elements for
// all heads (Qwen3's form), or of a token's heads together, with a weight for each element (OLMoE's, arXiv 2409.02060).
//
// Dropout is where GPT-2 has it: on the attention probabilities and on the output of either branch, before it is added
// to the residual stream.
//
// The invariant: backward reads only `inp`, `saved` and the weights, and differentiates forward line by line, last line
// first. restore recomputes the cheap part of `saved`, or attention too, by the same calls as forward. q, k and v are one matmul because
// their rows are adjacent in the parameter table; so are gate and up. RoPE works in place: its backward rotates the
// gradient back, and needs nothing saved.
//
// A block with experts (unit_experts) differs in its second half: experts.c, beside a feed-forward network for all
// tokens (a shared expert), if there is one.
//
// Matrices, norms and attention are called through linear.h; in one process each call is one op of the device.
#include "net/experts.h"

enum {
    NORM1, MEAN1, RSTD1, QKV, ATTN, LSE, ATTN_OUT, RESID, NORM2, MEAN2, RSTD2, PRE, ACT, FFN_OUT, QK_NORMED, Q_RSTD,
    K_RSTD, EXPERTS
};
_Static_assert(EXPERTS + EXPERTS_SAVED <= UNIT_MAX_SAVED, "room for all buffers of a block");

static size_t qkv_width(const ModelShape *s)
{
    return (s->heads + 2 * s->kv_heads) * s->head_size;
}

// The vectors of QK-norm in a token's `heads` heads: every head's own, or one of all.
static size_t norm_vectors(const ModelShape *s, size_t heads)
{
    return s->qk_norm == QK_NORM_WHOLE ? 1 : heads;
}

// F: the width of the feed-forward network, 0: none.
static BufferList saved_of(const Dev *dev, const ModelShape *s, size_t N, size_t F)
{
    BufferList list = {.n = 0};
    size_t x = dev->x_bytes, f = sizeof(float), outputs = unit_norms_outputs(s) ? N * s->channels : 0;
    unit_list_add(&list, "norm1", BUFFER_CHEAP, N * s->channels, x);
    unit_list_add_shared(&list, "mean1", BUFFER_STAT, N, f);
    unit_list_add_shared(&list, "rstd1", BUFFER_STAT, N, f);
    unit_list_add(&list, "qkv", BUFFER_ATTENTION, N * qkv_width(s), x);
    unit_list_add(&list, "attn", BUFFER_ATTENTION, N * s->heads * s->head_size, x);
    unit_list_add(&list, "lse", BUFFER_STAT, N * s->heads, f);
    unit_list_add_shared(&list, "attn_out", BUFFER_ACT, outputs, x);
    unit_list_add_shared(&list, "resid", BUFFER_ACT, N * s->channels, x);
    unit_list_add(&list, "norm2", BUFFER_CHEAP, N * s->channels, x);
    unit_list_add_shared(&list, "mean2", BUFFER_STAT, N, f);
    unit_list_add_shared(&list, "rstd2", BUFFER_STAT, N, f);
    unit_list_add(&list, "pre", BUFFER_ACT, N * F * (s->swiglu ? 2 : 1), x);
    unit_list_add(&list, "act", BUFFER_CHEAP, N * F, x);
    unit_list_add_shared(&list, "ffn_out", BUFFER_ACT, outputs, x);
    if (s->qk_norm) {
        unit_list_add(&list, "qk_normed", BUFFER_CHEAP, N * qkv_width(s), x);
        unit_list_add(&list, "q_rstd", BUFFER_STAT, N * norm_vectors(s, s->heads), f);
        unit_list_add(&list, "k_rstd", BUFFER_STAT, N * norm_vectors(s, s->kv_heads), f);
    }
    return list;
}

static BufferList block_saved(const Dev *dev, const ModelShape *s, size_t B, size_t T)
{
    return saved_of(dev, s, B * T, s->ffn);
}

static BufferList experts_block_saved(const Dev *dev, const ModelShape *s, size_t B, size_t T)
{
    BufferList list = saved_of(dev, s, B * T, s->experts.shared);
    while (list.n < EXPERTS) unit_list_add(&list, "none", BUFFER_STAT, 0, 0);
    experts_saved(&list, dev, s, B * T);
    return list;
}

static int matrices_of(const ModelShape *s, UnitMatrix *list, size_t F)
{
    size_t C = s->channels, hd = s->heads * s->head_size, kv = s->kv_heads * s->head_size;
    list[0] = (UnitMatrix){.weight = W_QKV, .bias = B_QKV, .way = MATRIX_FROM_STREAM, .input = NORM1, .dout = "dqkv",
                           .in = C, .out = qkv_width(s), .grain = s->kv_heads, .n_segments = 3,
                           .segment = {hd, kv, kv}};
    list[1] = (UnitMatrix){.weight = W_ATTN_OUT, .bias = B_ATTN_OUT, .way = MATRIX_TO_STREAM, .input = ATTN,
                           .dout = "dattn_out", .in = hd, .out = C, .grain = s->heads};
    list[2] = (UnitMatrix){.weight = W_FFN_IN, .bias = B_FFN_IN, .way = MATRIX_FROM_STREAM, .input = NORM2,
                           .dout = "dpre", .in = C, .out = s->swiglu ? 2 * F : F, .grain = F,
                           .n_segments = s->swiglu ? 2 : 1, .segment = {F, F}};
    list[3] = (UnitMatrix){.weight = W_FFN_DOWN, .bias = B_FFN_DOWN, .way = MATRIX_TO_STREAM, .input = ACT,
                           .dout = "ddown", .in = F, .out = C, .grain = F};
    return F ? 4 : 2;
}

static int block_matrices(const ModelShape *s, UnitMatrix *list)
{
    return matrices_of(s, list, s->ffn);
}

static int experts_block_matrices(const ModelShape *s, UnitMatrix *list)
{
    return matrices_of(s, list, s->experts.shared);
}

static bool has_experts(const Unit *unit)
{
    return unit->kind == &unit_experts;
}

// The width of the feed-forward network that all tokens use; 0: there is none.
static size_t ffn_width(const UnitContext *ctx, const Unit *unit)
{
    return has_experts(unit) ? ctx->shape->experts.shared : ctx->shape->ffn;
}

// The q, k or v part of packed rows (N, (H + 2G) D).
static X *part_of(const UnitContext *ctx, X *qkv, char which)
{
    const ModelShape *s = ctx->shape;
    size_t heads = which == 'q' ? 0 : which == 'k' ? s->heads : s->heads + s->kv_heads;
    return (X *)((char *)qkv + heads * s->head_size * ctx->dev->x_bytes);
}

// Row `row` of x (N, width).
static X *at_row(const UnitContext *ctx, X *x, size_t row, size_t width)
{
    return (X *)((char *)x + row * width * ctx->dev->x_bytes);
}

static AttnShape attn_shape(const UnitContext *ctx, const Unit *unit, const Batch *batch)
{
    const ModelShape *s = ctx->shape;
    return (AttnShape){.B = batch->B, .Tq = batch->T, .Tk = batch->T, .H = s->heads, .G = s->kv_heads,
                       .D = s->head_size, .ldq = qkv_width(s), .ldkv = qkv_width(s),
                       .scale = s->mup_base ? mup_attention_scale(s) : 0,
                       .first = batch->first, .window = unit_window(s, (size_t)unit->place - 1),
                       .drop = unit_dropout(unit, batch, "probs", 1)};
}

// Appends this call's keys and values (shape->Tq rows of one sequence) to the layer's part of its cache; *k and *v
// become the cache.
static void cache_append(const UnitContext *ctx, const Unit *unit, const KvCache *cache, AttnShape *shape, X **k, X **v)
{
    const ModelShape *s = ctx->shape;
    size_t row = s->kv_heads * s->head_size, x = ctx->dev->x_bytes;
    size_t at = unit_cache_first(s, unit, cache->room) * row * x;
    char *cache_k = (char *)cache->k + at, *cache_v = (char *)cache->v + at;
    size_t held = cache->length - (shape->window ? cache->start : 0), to = held * row * x;
    ctx->dev->copy(ctx->dev, (X *)(cache_k + to), *k, shape->Tq, row, row, shape->ldkv);
    ctx->dev->copy(ctx->dev, (X *)(cache_v + to), *v, shape->Tq, row, row, shape->ldkv);
    shape->q_start = held; // attention counts from the first key in the cache
    shape->Tk = shape->q_start + shape->Tq;
    shape->ldkv = row;
    *k = (X *)cache_k;
    *v = (X *)cache_v;
}

// to (N, C) = all rows of the stream x.
static void copy_stream(const UnitContext *ctx, X *to, const X *x, size_t N)
{
    size_t C = ctx->shape->channels;
    ctx->dev->copy(ctx->dev, linear_own(ctx, to, N), x, linear_rows(ctx, N), C, C, C);
    ctx->linear->gather(ctx, to, N);
}

// A norm's buffers.
typedef struct {
    X *output; // what it read, where norms are of outputs
    float *mean, *rstd;
} NormSaved;

static NormSaved norm_saved(void *const *saved, UnitRole norm)
{
    bool first = norm == W_ATTN_NORM;
    return (NormSaved){(X *)saved[first ? ATTN_OUT : FFN_OUT], (float *)saved[first ? MEAN1 : MEAN2],
                       (float *)saved[first ? RSTD1 : RSTD2]};
}

// out = x + norm(branch), rows of the stream; branch is overwritten. out NULL: only what backward reads is wanted.
static void add_normed(const UnitContext *ctx, const Unit *unit, UnitRole norm, X *out, const X *x, X *branch,
                       void *const *saved, const Batch *batch)
{
    NormSaved to = norm_saved(saved, norm);
    size_t C = ctx->shape->channels, rows = linear_rows(ctx, batch->N);
    ctx->dev->copy(ctx->dev, to.output, branch, rows, C, C, C);
    linear_norm_forward(ctx, unit, norm, branch, NULL, to.mean, to.rstd, to.output, NULL, batch->N);
    if (out) ctx->dev->add(ctx->dev, out, x, branch, rows * C);
}

// norm1 = norm(inp), the first norm of the block; or inp.
static void attn_norm(const UnitContext *ctx, const Unit *unit, const X *inp, void *const *saved, const Batch *batch)
{
    if (!unit_norms_inputs(ctx->shape)) {
        copy_stream(ctx, (X *)saved[NORM1], inp, batch->N);
        return;
    }
    linear_norm_forward(ctx, unit, W_ATTN_NORM, (X *)saved[NORM1], NULL, (float *)saved[MEAN1], (float *)saved[RSTD1],
                        inp, NULL, batch->N);
}

// resid = a + b (or a + norm(b)), norm2 = norm(resid) (or resid); b NULL: a is resid already.
static void ffn_norm(const UnitContext *ctx, const Unit *unit, const X *a, X *b, void *const *saved, const Batch *batch)
{
    X *resid = (X *)saved[RESID];
    if (unit_norms_outputs(ctx->shape) && b) {
        add_normed(ctx, unit, W_ATTN_NORM, resid, a, b, saved, batch);
        a = resid, b = NULL;
    }
    if (!unit_norms_inputs(ctx->shape)) {
        copy_stream(ctx, (X *)saved[NORM2], a, batch->N);
        return;
    }
    linear_norm_forward(ctx, unit, W_FFN_NORM, (X *)saved[NORM2], b ? resid : NULL, (float *)saved[MEAN2],
                        (float *)saved[RSTD2], a, b, batch->N);
}

static void qk_norm_forward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *out, float *rstd,
                            const X *inp, size_t N, size_t heads)
{
    const ModelShape *s = ctx->shape;
    size_t n = norm_vectors(s, heads);
    ctx->dev->head_norm_forward(ctx->dev, out, rstd, inp, unit_weight(ctx, unit, weight), N, n,
                                heads / n * s->head_size, qkv_width(s), s->norm_eps);
}

// Queries and keys as attention reads them: normalised into a buffer of their own (QK-norm) or left in place; then
// rotated (RoPE).
static X *prepare_qk(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N;
    X *qkv = (X *)saved[QKV], *qk = s->qk_norm ? (X *)saved[QK_NORMED] : qkv;
    X *q = part_of(ctx, qk, 'q'), *k = part_of(ctx, qk, 'k');
    if (s->qk_norm) {
        qk_norm_forward(ctx, unit, W_Q_NORM, q, (float *)saved[Q_RSTD], part_of(ctx, qkv, 'q'), N, s->heads);
        qk_norm_forward(ctx, unit, W_K_NORM, k, (float *)saved[K_RSTD], part_of(ctx, qkv, 'k'), N, s->kv_heads);
    }
    if (s->rope) // q and k stand side by side: heads + kv_heads vectors
        dev->rope_forward(dev, q, batch->pos, N, s->heads + s->kv_heads, s->head_size, qkv_width(s), s->rotary);
    return qk;
}

static void attention_part_forward(const UnitContext *ctx, const Unit *unit, void *const *saved, const Batch *batch)
{
    X *qkv = (X *)saved[QKV];
    linear_forward(ctx, unit, W_QKV, qkv, (X *)saved[NORM1], batch->N);
    X *qk = prepare_qk(ctx, unit, saved, batch);
    X *q = part_of(ctx, qk, 'q'), *k = part_of(ctx, qk, 'k'), *v = part_of(ctx, qkv, 'v'), *out = (X *)saved[ATTN];
    AttnShape shape = attn_shape(ctx, unit, batch);
    if (!ctx->cache) {
        ctx->linear->attention_forward(ctx, out, (float *)saved[LSE], q, k, v, shape);
        return;
    }
    shape.B = 1; // one by one: the caches of the sequences have different lengths
    for (size_t b = 0; b < batch->B; b++) {
        AttnShape one = shape;
        size_t row = b * batch->T;
        X *keys = at_row(ctx, k, row, shape.ldkv), *values = at_row(ctx, v, row, shape.ldkv);
        cache_append(ctx, unit, ctx->cache[b], &one, &keys, &values);
        X *own = at_row(ctx, out, row, shape.H * shape.D), *queries = at_row(ctx, q, row, shape.ldq);
        ctx->linear->attention_forward(ctx, own, (float *)saved[LSE] + row * shape.H, queries, keys, values, one);
    }
}

static void ffn_in(const UnitContext *ctx, const Unit *unit, void *const *saved, size_t N)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    X *norm2 = (X *)saved[NORM2], *pre = (X *)saved[PRE], *act = (X *)saved[ACT];
    size_t F = ffn_width(ctx, unit);
    if (!F) return;
    if (s->swiglu) {
        linear_forward(ctx, unit, W_FFN_IN, pre, norm2, N);
        dev->swiglu_forward(dev, act, pre, N, F);
    } else if (s->act != ACT_GELU) {
        linear_forward(ctx, unit, W_FFN_IN, pre, norm2, N);
        dev->act_forward(dev, act, pre, N * F, s->act);
    } else { // within the product
        dev->matmul_gelu_forward(dev, act, pre, norm2, unit_weight(ctx, unit, W_FFN_IN),
                                 unit_weight(ctx, unit, B_FFN_IN), N, s->channels, F, unit->row[W_FFN_IN]);
    }
}

// The rows before those of the slots (experts_scratch), where the shared expert's output or gradient waits.
static X *shared_rows(const UnitContext *ctx)
{
    return (X *)ctx->scratch[SCRATCH_ROWS];
}

static void block_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                          const Batch *batch)
{
    Dev *dev = ctx->dev;
    size_t N = batch->N, C = ctx->shape->channels;
    X *sum = (X *)ctx->scratch[SCRATCH_NORM]; // (N, C) output of attention, then of the ffn, to add to the stream

    attn_norm(ctx, unit, inp, saved, batch);
    attention_part_forward(ctx, unit, saved, batch);
    linear_forward(ctx, unit, W_ATTN_OUT, sum, (X *)saved[ATTN], N);
    ffn_norm(ctx, unit, inp, linear_branch(ctx, unit, batch, "attn", sum), saved, batch);

    if (has_experts(unit)) experts_forward_begin(ctx, unit, (X *)saved[NORM2], saved + EXPERTS, batch);
    ffn_in(ctx, unit, saved, N);
    bool wanted = out || unit_norms_outputs(ctx->shape);
    if (has_experts(unit)) experts_forward(ctx, unit, saved + EXPERTS, batch, wanted);
    if (!wanted) return; // all is saved
    if (ffn_width(ctx, unit)) {
        X *to = has_experts(unit) ? shared_rows(ctx) : sum;
        linear_forward(ctx, unit, W_FFN_DOWN, to, (X *)saved[ACT], N);
    }
    if (has_experts(unit)) experts_forward_end(ctx, unit, sum, batch);
    if (has_experts(unit) && ffn_width(ctx, unit)) {
        X *own = linear_own(ctx, sum, N);
        dev->add(dev, own, own, linear_own(ctx, shared_rows(ctx), N), linear_rows(ctx, N) * C);
    }
    X *branch = linear_branch(ctx, unit, batch, "ffn", sum), *resid = (X *)saved[RESID];
    if (unit_norms_outputs(ctx->shape)) add_normed(ctx, unit, W_FFN_NORM, out, resid, branch, saved, batch);
    else dev->add(dev, out, resid, branch, linear_rows(ctx, N) * C);
}

static void block_restore(const UnitContext *ctx, const Unit *unit, const X *inp, void *const *saved,
                          const Batch *batch, bool attention)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t F = ffn_width(ctx, unit);
    attn_norm(ctx, unit, inp, saved, batch);
    if (attention) attention_part_forward(ctx, unit, saved, batch);
    else if (s->qk_norm) prepare_qk(ctx, unit, saved, batch);
    ffn_norm(ctx, unit, (X *)saved[RESID], NULL, saved, batch);
    if (F && s->swiglu) dev->swiglu_forward(dev, (X *)saved[ACT], (X *)saved[PRE], batch->N, F);
    else if (F) dev->act_forward(dev, (X *)saved[ACT], (X *)saved[PRE], batch->N * F, s->act);
    if (has_experts(unit)) experts_restore(ctx, unit, saved + EXPERTS, batch);
}

// dpre: the gradient of the feed-forward network's pre-activation, from that of its output; and both weights'.
static void ffn_backward_down(const UnitContext *ctx, const Unit *unit, X *dpre, const X *dbranch, void *const *saved,
                              size_t N)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t F = ffn_width(ctx, unit);
    linear_backward_weight(ctx, unit, W_FFN_DOWN, dbranch, saved, N);
    if (s->swiglu) {
        X *dact = at_row(ctx, (X *)ctx->scratch[SCRATCH_WIDE], N, 2 * F); // scratch holds 3F a row
        linear_backward_input(ctx, unit, W_FFN_DOWN, dact, dbranch, N);
        dev->swiglu_backward(dev, dpre, dact, (X *)saved[PRE], N, F);
    } else if (s->act != ACT_GELU) {
        linear_backward_input(ctx, unit, W_FFN_DOWN, dpre, dbranch, N);
        dev->act_backward(dev, dpre, dpre, (X *)saved[PRE], N * F, s->act);
    } else {
        dev->matmul_gelu_backward_input(dev, dpre, dbranch, unit_weight(ctx, unit, W_FFN_DOWN), (X *)saved[PRE], N, F,
                                        s->channels, unit->row[W_FFN_DOWN]);
    }
    linear_backward_weight(ctx, unit, W_FFN_IN, dpre, saved, N);
}

// The gradient, in all rows, of what a branch gives, from that of the stream: in `whole`, or the stream itself.
static const X *branch_backward(const UnitContext *ctx, const Unit *unit, UnitRole norm, const char *site, X *whole,
                                X *stream, void *const *saved, const Batch *batch)
{
    if (!unit_norms_outputs(ctx->shape)) return linear_branch_backward(ctx, unit, batch, site, whole, stream);
    NormSaved of = norm_saved(saved, norm);
    X *own = linear_own(ctx, whole, batch->N);
    linear_norm_backward(ctx, unit, norm, own, stream, NULL, of.output, of.mean, of.rstd, batch->N);
    return linear_branch_backward(ctx, unit, batch, site, whole, own);
}

// Adds to the stream's gradient that of what a branch reads, dread (N, C), which is overwritten. x: the stream there.
static void read_backward(const UnitContext *ctx, const Unit *unit, UnitRole norm, X *stream, X *dread, const X *x,
                          void *const *saved, size_t N)
{
    NormSaved of = norm_saved(saved, norm);
    if (unit_norms_inputs(ctx->shape)) {
        linear_norm_backward(ctx, unit, norm, stream, dread, stream, x, of.mean, of.rstd, N);
        return;
    }
    ctx->linear->complete(ctx, dread, N);
    ctx->dev->add(ctx->dev, stream, stream, linear_own(ctx, dread, N), linear_rows(ctx, N) * ctx->shape->channels);
}

// stream: the gradient of the block's output on entry, of `resid` on return. (The branch's gradient may lie in dnorm,
// so it is read before anything is written there.)
static void ffn_part_backward(const UnitContext *ctx, const Unit *unit, X *stream, void *const *saved,
                              const Batch *batch)
{
    size_t N = batch->N;
    bool shared = ffn_width(ctx, unit) > 0, experts = has_experts(unit);
    X *dnorm = (X *)ctx->scratch[SCRATCH_NORM];
    X *dpre = shared ? linear_dout(ctx, unit, W_FFN_IN, (X *)ctx->scratch[SCRATCH_WIDE]) : NULL;
    X *whole = shared ? linear_dout(ctx, unit, W_FFN_DOWN, dnorm) : dnorm;
    const X *dbranch = branch_backward(ctx, unit, W_FFN_NORM, "ffn", whole, stream, saved, batch);
    if (experts) experts_backward_begin(ctx, unit, dbranch, saved + EXPERTS, batch);
    if (shared) ffn_backward_down(ctx, unit, dpre, dbranch, saved, N);
    if (experts) experts_backward(ctx, unit, (X *)saved[NORM2], saved + EXPERTS, batch);
    if (shared) linear_backward_input(ctx, unit, W_FFN_IN, experts ? shared_rows(ctx) : dnorm, dpre, N);
    if (experts) experts_backward_end(ctx, unit, dnorm, (X *)saved[NORM2], saved + EXPERTS, batch);
    if (experts && shared) experts_add_shared(ctx, dnorm, N);
    read_backward(ctx, unit, W_FFN_NORM, stream, dnorm, (X *)saved[RESID], saved, N);
}

static void qk_norm_backward(const UnitContext *ctx, const Unit *unit, UnitRole weight, X *dinp, const X *inp,
                             const float *rstd, size_t N, size_t heads)
{
    const ModelShape *s = ctx->shape;
    LinearNorm norm = linear_norm(ctx, unit, weight);
    size_t n = norm_vectors(s, heads);
    ctx->linear->head_norm_backward(ctx, &norm, dinp, inp, rstd, N, n, heads / n * s->head_size, qkv_width(s));
}

// dqkv (N, (H + 2G) D) from the gradient of the attention output.
static void attention_part_backward(const UnitContext *ctx, const Unit *unit, X *dqkv, const X *dattn,
                                    void *const *saved, const Batch *batch)
{
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    size_t N = batch->N;
    X *qkv = (X *)saved[QKV], *qk = s->qk_norm ? (X *)saved[QK_NORMED] : qkv;
    X *dq = part_of(ctx, dqkv, 'q'), *dk = part_of(ctx, dqkv, 'k'), *dv = part_of(ctx, dqkv, 'v');
    ctx->linear->attention_backward(ctx, dq, dk, dv, dattn, (X *)saved[ATTN], (float *)saved[LSE],
                                    part_of(ctx, qk, 'q'), part_of(ctx, qk, 'k'), part_of(ctx, qkv, 'v'),
                                    attn_shape(ctx, unit, batch));
    if (s->rope)
        dev->rope_backward(dev, dq, batch->pos, N, s->heads + s->kv_heads, s->head_size, qkv_width(s), s->rotary);
    if (!s->qk_norm) return;
    qk_norm_backward(ctx, unit, W_Q_NORM, dq, part_of(ctx, qkv, 'q'), (float *)saved[Q_RSTD], N, s->heads);
    qk_norm_backward(ctx, unit, W_K_NORM, dk, part_of(ctx, qkv, 'k'), (float *)saved[K_RSTD], N, s->kv_heads);
}

static void block_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                           const Batch *batch)
{
    size_t N = batch->N;
    X *dattn = (X *)ctx->scratch[SCRATCH_ATTN], *dnorm = (X *)ctx->scratch[SCRATCH_NORM];
    X *dqkv = linear_dout(ctx, unit, W_QKV, (X *)ctx->scratch[SCRATCH_QKV]);

    ffn_part_backward(ctx, unit, stream, saved, batch);
    const X *dbranch = branch_backward(ctx, unit, W_ATTN_NORM, "attn", linear_dout(ctx, unit, W_ATTN_OUT, dnorm), stream,
                                       saved, batch); // dnorm is not in use yet
    linear_backward_weight(ctx, unit, W_ATTN_OUT, dbranch, saved, N);
    linear_backward_input(ctx, unit, W_ATTN_OUT, dattn, dbranch, N);
    attention_part_backward(ctx, unit, dqkv, dattn, saved, batch);
    linear_backward_weight(ctx, unit, W_QKV, dqkv, saved, N);
    linear_backward_input(ctx, unit, W_QKV, dnorm, dqkv, N);
    read_backward(ctx, unit, W_ATTN_NORM, stream, dnorm, inp, saved, N);
    ctx->linear->end_backward(ctx, unit);
}

const UnitKind unit_block = {.name = "block", .matrices = block_matrices, .saved = block_saved,
                             .forward = block_forward, .backward = block_backward, .restore = block_restore};
const UnitKind unit_experts = {.name = "experts", .matrices = experts_block_matrices, .saved = experts_block_saved,
                               .forward = block_forward, .backward = block_backward, .restore = block_restore};
