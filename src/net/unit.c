// unit: what the unit kinds share: finding weights by role, buffer lists, and the two small kinds,
// embedding and head. (The block has a file of its own, block.c.)
//
// The head is where memory is saved. Its logits (N, V) would be the largest tensor of the step by far,
// so they are made a chunk of rows at a time: logits, softmax-cross-entropy in place, both gradient
// products, next chunk. For that the loss of a training step is computed in backward; forward only
// normalises. Evaluation computes the loss in forward.
//
// The invariant: the loss of a row and its gradient depend on that row alone, so the chunk size does not
// matter, but for the order in which the head's weight gradient is summed.
#include "net/unit.h"

#include "base/check.h"
#include "parallel/cp.h"
#include "parallel/tp.h"

#include <stdio.h>

enum { LOGITS_MAX = 1 << 25, CHUNK_MIN = 64, CHUNK_MAX = 1024 }; // logits of a chunk: at most 2^25 elements

X *unit_weight(const UnitContext *ctx, const Unit *unit, UnitRole role)
{
    if (unit->row[role] == UNIT_GUEST) return (X *)ctx->guest_weight;
    if (unit->row[role] < 0) return NULL;
    const Param *row = &ctx->params->row[unit->row[role]];
    return (X *)((char *)ctx->weight[row->unit] + (row->offset - ctx->begin[row->unit]) * ctx->dev->x_bytes);
}

float *unit_grad(const UnitContext *ctx, const Unit *unit, UnitRole role)
{
    if (role == W_HEAD && ctx->guest_grad) return ctx->guest_grad;
    if (unit->row[role] < 0) return NULL;
    const Param *row = &ctx->params->row[unit->row[role]];
    float *stage = tp_stage(ctx, unit->row[role]);
    return stage ? stage : ctx->grad[row->unit] + (row->offset - ctx->begin[row->unit]);
}

// For a profiler: a unit's pass without what the hooks ask for.
static void mark(const UnitContext *ctx, const Unit *unit, UnitPass pass)
{
    static const char *const name[] = {[PASS_FORWARD] = "forward", [PASS_AGAIN] = "forward again",
                                       [PASS_BACKWARD] = "backward"};
    char text[32];
    if (!ctx->dev->mark) return;
    snprintf(text, sizeof text, "%s %d", name[pass], unit->index);
    ctx->dev->mark(text);
}

void unit_before(const UnitContext *ctx, const Unit *unit, UnitPass pass)
{
    if (ctx->hooks && ctx->hooks->before) ctx->hooks->before(ctx->hooks->self, unit->index, pass);
    mark(ctx, unit, pass);
}

void unit_after(const UnitContext *ctx, const Unit *unit, UnitPass pass)
{
    dev_mark(ctx->dev, NULL);
    if (ctx->hooks && ctx->hooks->after) ctx->hooks->after(ctx->hooks->self, unit->index, pass);
}

void unit_saw(const UnitContext *ctx, const Unit *unit, UnitPass pass, const X *stream, void *const *saved,
              const Batch *batch)
{
    if (ctx->hooks && ctx->hooks->saw) ctx->hooks->saw(ctx->hooks->watcher, unit, pass, stream, saved, batch);
}

void unit_list_add(BufferList *list, const char *name, BufferKind kind, size_t n_elems, size_t elem_bytes)
{
    check(list->n < UNIT_MAX_SAVED);
    list->name[list->n] = name;
    list->kind[list->n] = kind;
    list->n_bytes[list->n++] = n_elems * elem_bytes;
}

void unit_list_add_shared(BufferList *list, const char *name, BufferKind kind, size_t n_elems, size_t elem_bytes)
{
    unit_list_add(list, name, kind, n_elems, elem_bytes);
    list->shared[list->n - 1] = true;
}

Dropout unit_dropout(const Unit *unit, const Batch *batch, const char *site, size_t each)
{
    if (!batch->train || batch->dropout == 0) return (Dropout){.p = 0};
    char name[48] = "dropout.embed";
    if (unit->place > 0) snprintf(name, sizeof name, "dropout.layers.%d.%s", unit->place - 1, site);
    return (Dropout){.p = batch->dropout, .rng = rng_make(batch->seed, name, batch->step),
                     .first = batch->sample * each};
}

size_t unit_head_chunk(const ModelShape *shape, size_t N)
{
    size_t tp = shape->cut.size > 1 ? (size_t)shape->cut.size : 1;
    size_t vocab = tp > 1 ? (shape->cut.vocab + tp - 1) / tp : shape->vocab; // the largest share: the same on all ranks
    size_t rows = LOGITS_MAX / vocab / CHUNK_MIN * CHUNK_MIN;
    if (rows < CHUNK_MIN) rows = CHUNK_MIN;
    if (rows > CHUNK_MAX) rows = CHUNK_MAX;
    return rows < N ? rows : N;
}

BufferList unit_scratch(const Dev *dev, const ModelShape *s, size_t N)
{
    BufferList list = {.n = 0};
    size_t x = dev->x_bytes, hd = s->heads * s->head_size, qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    unit_list_add(&list, "norm", BUFFER_ACT, N * s->channels, x);
    unit_list_add(&list, "qkv", BUFFER_ACT, N * qkv, x);
    unit_list_add(&list, "attn", BUFFER_ACT, N * hd, x);
    unit_list_add(&list, "wide", BUFFER_ACT, N * s->ffn * (s->swiglu ? 3 : 1), x);
    unit_list_add(&list, "logits", BUFFER_ACT, unit_head_chunk(s, N) * s->vocab, x);
    if (s->cut.size > 1 || dev->deterministic) // what the loss is made of in three steps
        unit_list_add(&list, "loss", BUFFER_STAT, unit_head_chunk(s, N) * 3, sizeof(float));
    if (dev->deterministic) // gradients of norms over 1, 2, 4, 8 parts of the rows
        unit_list_add(&list, "norm parts", BUFFER_STAT, 5 * 2 * s->channels, sizeof(float));
    return list;
}

// ---- embedding

static BufferList embedding_saved(const Dev *dev, const ModelShape *shape, size_t B, size_t T)
{
    (void)dev, (void)shape, (void)B, (void)T;
    return (BufferList){.n = 0};
}

static void embedding_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                              const Batch *batch)
{
    (void)inp, (void)saved;
    Dev *dev = ctx->dev;
    size_t N = batch->N, C = ctx->shape->channels, rows = tp_rows(ctx, N);
    X *sum = rows < N ? (X *)ctx->scratch[SCRATCH_NORM] : out; // (N, C)
    dev->embed_forward(dev, sum, batch->token, batch->pos, unit_weight(ctx, unit, W_TOKENS),
                       unit_weight(ctx, unit, W_POSITIONS), N, C);
    tp_g_forward(ctx, sum, N);
    Dropout drop = tp_dropout(ctx, unit, batch, "embed");
    if (drop.p > 0 || rows < N) dev->dropout(dev, out, tp_own(ctx, sum, N), rows * C, drop);
}

static void embedding_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                               void *const *late, const Batch *batch)
{
    (void)inp, (void)saved, (void)late;
    Dev *dev = ctx->dev;
    size_t N = batch->N, C = ctx->shape->channels, rows = tp_rows(ctx, N);
    X *dsum = rows < N ? (X *)ctx->scratch[SCRATCH_NORM] : stream; // (N, C)
    Dropout drop = tp_dropout(ctx, unit, batch, "embed");
    if (drop.p > 0 || rows < N) dev->dropout(dev, tp_own(ctx, dsum, N), stream, rows * C, drop);
    tp_g_backward(ctx, dsum, N);
    cp_embed_backward(ctx, unit_grad(ctx, unit, W_TOKENS), unit_grad(ctx, unit, W_POSITIONS), dsum, batch->token,
                      batch->pos, N, C, ctx->shape->vocab);
    tp_finish_grads(ctx, unit);
}

const UnitKind unit_embedding = {.name = "embedding", .saved = embedding_saved, .forward = embedding_forward,
                                 .backward = embedding_backward};

// ---- head: final norm, logits, loss

enum { HEAD_NORM, HEAD_MEAN, HEAD_RSTD };

static BufferList head_saved(const Dev *dev, const ModelShape *s, size_t B, size_t T)
{
    BufferList list = {.n = 0};
    unit_list_add(&list, "norm", BUFFER_ACT, B * T * s->channels, dev->x_bytes);
    unit_list_add_shared(&list, "mean", BUFFER_STAT, B * T, sizeof(float));
    unit_list_add_shared(&list, "rstd", BUFFER_STAT, B * T, sizeof(float));
    return list;
}

static void head_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                         const Batch *batch)
{
    (void)out;
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    X *norm = (X *)saved[HEAD_NORM], *logits = (X *)ctx->scratch[SCRATCH_LOGITS];
    dev->norm_forward(dev, tp_own(ctx, norm, batch->N), NULL, (float *)saved[HEAD_MEAN], (float *)saved[HEAD_RSTD], inp,
                      NULL, unit_weight(ctx, unit, W_FINAL_NORM), unit_weight(ctx, unit, B_FINAL_NORM),
                      tp_rows(ctx, batch->N), s->channels, s->norm, s->norm_eps);
    tp_f_forward(ctx, norm, batch->N);
    if (batch->train || !batch->loss) return;
    size_t chunk = unit_head_chunk(s, batch->N);
    for (size_t n0 = 0; n0 < batch->N; n0 += chunk) {
        size_t rows = batch->N - n0 < chunk ? batch->N - n0 : chunk;
        const X *part = (const X *)((char *)norm + n0 * s->channels * dev->x_bytes);
        dev->matmul_forward(dev, logits, part, unit_weight(ctx, unit, W_HEAD), NULL, rows, s->channels, s->vocab,
                            unit->row[W_HEAD]);
        tp_xent(ctx, batch->loss + n0, NULL, logits, batch->target + n0, rows, 0);
    }
}

static void head_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                          void *const *late, const Batch *batch)
{
    (void)late;
    Dev *dev = ctx->dev;
    const ModelShape *s = ctx->shape;
    const X *weight = unit_weight(ctx, unit, W_HEAD);
    X *norm = (X *)saved[HEAD_NORM], *logits = (X *)ctx->scratch[SCRATCH_LOGITS];
    X *dnorm = (X *)ctx->scratch[SCRATCH_NORM];
    size_t chunk = unit_head_chunk(s, batch->N), row_bytes = s->channels * dev->x_bytes;
    for (size_t n0 = 0, rows; n0 < batch->N; n0 += rows) {
        rows = cp_head_rows(ctx, n0, batch->N, chunk);
        const X *part = (const X *)((char *)norm + n0 * row_bytes);
        dev->matmul_forward(dev, logits, part, weight, NULL, rows, s->channels, s->vocab, unit->row[W_HEAD]);
        tp_xent(ctx, batch->loss + n0, logits, logits, batch->target + n0, rows, batch->scale);
        tp_head_backward_input(ctx, (X *)((char *)dnorm + n0 * row_bytes), logits, weight, rows, unit->row[W_HEAD]);
        cp_head_backward_weight(ctx, unit_grad(ctx, unit, W_HEAD), logits, part, n0, rows, chunk, batch->N,
                                s->channels, s->vocab, unit->row[W_HEAD]);
    }
    tp_f_backward(ctx, dnorm, batch->N);
    tp_norm_backward(ctx, unit, W_FINAL_NORM, B_FINAL_NORM, stream, tp_own(ctx, dnorm, batch->N), NULL, inp,
                     (const float *)saved[HEAD_MEAN], (const float *)saved[HEAD_RSTD], tp_rows(ctx, batch->N));
    tp_finish_grads(ctx, unit);
}

const UnitKind unit_head = {.name = "head", .saved = head_saved, .forward = head_forward, .backward = head_backward};
