// unit: code that the unit kinds share (weights by role, buffer lists), and the two small kinds, embedding and head.
// (The block has a file of its own, block.c.)
//
// The head saves memory. Its logits (N, V) would be the largest tensor of the step by far, so they are computed for a
// chunk of rows at a time: logits, softmax and cross-entropy in place, both gradient products, next chunk. For that
// reason the loss of a training step is computed in backward; forward only normalises. Evaluation computes the loss in
// forward.
//
// The invariant: the loss of a row and its gradient depend on that row alone. So the chunk size changes nothing except
// the order in which the head's weight gradient is summed.
#include "net/experts.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

enum { LOGITS_MAX = 1 << 25, CHUNK_MIN = 64, CHUNK_MAX = 1024 }; // logits of a chunk: at most 2^25 elements

size_t unit_window(const ModelShape *s, size_t layer)
{
    size_t n = strlen(s->window_pattern);
    return n && s->window_pattern[layer % n] != 's' ? 0 : s->window;
}

double unit_window_keys(const ModelShape *s, size_t layer, size_t T)
{
    size_t W = unit_window(s, layer);
    return W && W < T ? (double)((W * (2 * T - W) + T - 1) / T) : (double)T;
}

size_t unit_widest_ffn(const ModelShape *s)
{
    size_t most = 0;
    for (size_t l = 0; l < s->layers; l++) {
        size_t own = unit_has_experts(s, l) ? s->experts.shared : s->ffn;
        most = own > most ? own : most;
    }
    return most;
}

const UnitKind *unit_kind_of(const ModelShape *s, size_t layer)
{
    return unit_has_experts(s, layer) ? &unit_experts : &unit_block;
}

BufferList unit_widest_saved(const Dev *dev, const ModelShape *s)
{
    BufferList all = {.n = 0};
    const UnitKind *last = NULL;
    for (size_t l = 0; l < s->layers; l++) {
        if (unit_kind_of(s, l) == last) continue;
        last = unit_kind_of(s, l);
        BufferList own = last->saved(dev, s, 1, 1);
        for (int i = 0; i < own.n; i++) {
            if (i < all.n && all.n_bytes[i] >= own.n_bytes[i]) continue;
            all.name[i] = own.name[i], all.kind[i] = own.kind[i], all.shared[i] = own.shared[i];
            all.n_bytes[i] = own.n_bytes[i];
        }
        if (own.n > all.n) all.n = own.n;
    }
    return all;
}

// Few tokens at once would make a long prompt slow.
size_t unit_window_step(const ModelShape *s)
{
    return s->window > CHUNK_MIN ? s->window : CHUNK_MIN;
}

// W - 1 tokens before the next ones, as many in front of them to move them to, and one step.
size_t unit_window_cache(const ModelShape *s, size_t layer)
{
    size_t most = 3 * unit_window_step(s);
    return unit_window(s, layer) && most < s->context ? most : s->context;
}

size_t unit_cache_rows(const ModelShape *s, const Unit *block, size_t room)
{
    size_t most = unit_window_cache(s, (size_t)block->place - 1);
    return room < most ? room : most;
}

size_t unit_cache_first(const ModelShape *s, const Unit *block, size_t room)
{
    size_t window = 3 * unit_window_step(s), full = room < s->context ? room : s->context;
    return block->before[0] * full + block->before[1] * (window < full ? window : full);
}

X *unit_weight(const UnitContext *ctx, const Unit *unit, UnitRole role)
{
    if (role == UNIT_ROLES) return NULL;
    if (unit->row[role] == UNIT_TIED) return (X *)ctx->tied_weight;
    if (unit->row[role] < 0) return NULL;
    const Param *row = &ctx->params->row[unit->row[role]];
    return (X *)((char *)ctx->weight[row->unit] + (row->offset - ctx->begin[row->unit]) * ctx->dev->x_bytes);
}

float *unit_grad(const UnitContext *ctx, const Unit *unit, UnitRole role)
{
    if (role == UNIT_ROLES) return NULL;
    if (role == W_HEAD && ctx->tied_grad) return ctx->tied_grad;
    return unit->row[role] < 0 ? NULL : ctx->linear->grad(ctx, unit->row[role]);
}

// A range for profilers: a unit's pass without the work of the hooks.
static void mark(const UnitContext *ctx, const Unit *unit, UnitPass pass)
{
    static const char *const name[] = {[PASS_FORWARD] = "forward", [PASS_AGAIN] = "forward again",
                                       [PASS_BACKWARD] = "backward", [PASS_LATER] = "weights"};
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

void unit_forward(const UnitContext *ctx, const Unit *unit, UnitPass pass, X *out, const X *inp, void *const *saved,
                  const Batch *batch)
{
    unit_before(ctx, unit, pass);
    unit->kind->forward(ctx, unit, out, inp, saved, batch);
    unit_after(ctx, unit, pass);
    unit_saw(ctx, unit, pass, out, saved, batch);
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
    size_t ranks = shape->cut.size > 1 ? (size_t)shape->cut.size : 1;
    size_t vocab = ranks > 1 ? (shape->cut.vocab + ranks - 1) / ranks : shape->vocab; // the largest share: on all ranks
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
    unit_list_add(&list, "wide", BUFFER_ACT, N * unit_widest_ffn(s) * (s->swiglu ? 3 : 1), x);
    unit_list_add(&list, "logits", BUFFER_ACT, unit_head_chunk(s, N) * s->vocab, x);
    size_t steps = s->cut.size > 1 || dev->deterministic; // the loss is made in three steps
    unit_list_add(&list, "loss", BUFFER_STAT, steps * unit_head_chunk(s, N) * 3, sizeof(float));
    size_t parts = dev->deterministic ? 5 : 0; // gradients of norms over 1, 2, 4, 8 parts of the rows
    unit_list_add(&list, "norm parts", BUFFER_STAT, parts * 2 * s->channels, sizeof(float));
    if (s->experts.n) experts_scratch(&list, dev, s, N);
    return list;
}

// ---- embedding

static BufferList embedding_saved(const Dev *dev, const ModelShape *shape, size_t B, size_t T)
{
    (void)dev, (void)shape, (void)B, (void)T;
    return (BufferList){.n = 0};
}

// The embedding is the table's first unit, so an offset in the flat range is one in the fp32 table.
static X *embedding_weight(const UnitContext *ctx, const Unit *unit, UnitRole role)
{
    if (!ctx->dev->embed_fp32 || unit->row[role] < 0) return unit_weight(ctx, unit, role);
    return (X *)(ctx->table + ctx->params->row[unit->row[role]].offset);
}

static void embedding_forward(const UnitContext *ctx, const Unit *unit, X *out, const X *inp, void *const *saved,
                              const Batch *batch)
{
    (void)inp, (void)saved;
    X *tokens = embedding_weight(ctx, unit, W_TOKENS), *positions = embedding_weight(ctx, unit, W_POSITIONS);
    ctx->linear->embed_forward(ctx, out, tokens, positions, batch);
    Dropout drop = ctx->linear->dropout(ctx, unit, batch, "embed");
    if (drop.p > 0)
        ctx->dev->dropout(ctx->dev, out, out, linear_rows(ctx, batch->N) * ctx->shape->channels, drop);
}

static void embedding_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                               const Batch *batch)
{
    (void)inp, (void)saved;
    const X *dsum = linear_branch_backward(ctx, unit, batch, "embed", (X *)ctx->scratch[SCRATCH_NORM], stream);
    ctx->linear->embed_backward(ctx, unit_grad(ctx, unit, W_TOKENS), unit_grad(ctx, unit, W_POSITIONS), dsum, batch);
    ctx->linear->end_backward(ctx, unit);
}

const UnitKind unit_embedding = {.name = "embedding", .saved = embedding_saved, .forward = embedding_forward,
                                 .backward = embedding_backward};

// ---- head: final norm, logits, loss

enum { HEAD_NORM, HEAD_MEAN, HEAD_RSTD };

static int head_matrices(const ModelShape *s, UnitMatrix *list)
{
    list[0] = (UnitMatrix){.weight = W_HEAD, .bias = UNIT_ROLES, .way = MATRIX_TO_LOGITS, .input = -1,
                           .in = s->channels, .out = s->vocab};
    return 1;
}

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
    X *norm = (X *)saved[HEAD_NORM], *logits = (X *)ctx->scratch[SCRATCH_LOGITS];
    linear_norm_forward(ctx, unit, W_FINAL_NORM, norm, NULL, (float *)saved[HEAD_MEAN], (float *)saved[HEAD_RSTD], inp,
                        NULL, batch->N);
    if (batch->train || !batch->loss) return;
    size_t chunk = unit_head_chunk(ctx->shape, batch->N);
    for (size_t n0 = 0; n0 < batch->N; n0 += chunk) {
        size_t rows = batch->N - n0 < chunk ? batch->N - n0 : chunk;
        const X *part = (const X *)((char *)norm + n0 * ctx->shape->channels * ctx->dev->x_bytes);
        linear_forward(ctx, unit, W_HEAD, logits, part, rows);
        ctx->linear->xent(ctx, batch->loss + n0, NULL, logits, batch->target + n0, rows, 0);
    }
}

static void head_backward(const UnitContext *ctx, const Unit *unit, X *stream, const X *inp, void *const *saved,
                          const Batch *batch)
{
    X *norm = (X *)saved[HEAD_NORM], *logits = (X *)ctx->scratch[SCRATCH_LOGITS];
    X *dnorm = (X *)ctx->scratch[SCRATCH_NORM];
    size_t chunk = unit_head_chunk(ctx->shape, batch->N), row_bytes = ctx->shape->channels * ctx->dev->x_bytes;
    LinearMatrix head = linear_matrix(ctx, unit, W_HEAD);
    for (size_t n0 = 0, rows; n0 < batch->N; n0 += rows) {
        rows = ctx->linear->head_rows(ctx, n0, batch->N, chunk);
        const X *part = (const X *)((char *)norm + n0 * row_bytes);
        ctx->linear->forward(ctx, &head, logits, part, rows);
        ctx->linear->xent(ctx, batch->loss + n0, logits, logits, batch->target + n0, rows, batch->scale);
        ctx->linear->backward_input(ctx, &head, (X *)((char *)dnorm + n0 * row_bytes), logits, rows);
        ctx->linear->head_backward_weight(ctx, &head, logits, part, n0, rows, chunk, batch->N);
    }
    linear_norm_backward(ctx, unit, W_FINAL_NORM, stream, dnorm, NULL, inp, (const float *)saved[HEAD_MEAN],
                         (const float *)saved[HEAD_RSTD], batch->N);
    ctx->linear->end_backward(ctx, unit);
}

const UnitKind unit_head = {.name = "head", .matrices = head_matrices, .saved = head_saved, .forward = head_forward,
                            .backward = head_backward};
