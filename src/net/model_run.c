// model_run: runs the list of units forward and backward, evaluates, and computes logits: for a whole model, or for a
// chunk of a pipeline's stage.
//
// On a deterministic device gradients and losses do not depend on how a step is split into micro-batches.
// Backward runs one sequence at a time, and the gradients g0, g1, ... of the step's sequences are added in a fixed
// binary tree, (g0 + g1) + (g2 + g3), built as a binary counter counts: part[k] holds the sum of 2^k sequences when
// bit k of the number of sequences so far is set, and is zero when it is not.
//
// The invariant: every element of the gradients is in one tree, and every sequence enters each tree once, in order.
// A whole model has one tree. Each chunk of a stage has one, because one chunk may have finished more micro-batches
// than another. With deferred weight gradients (linear.h) these have a tree of their own. The trees share the arrays
// part[k], each in its own ranges.
#include "net/model.h"

#include "base/check.h"
#include "base/vmath.h"

#include <string.h>

enum { AT_ONCE = 256 }; // numbers in a copy to or from the device

static UnitContext context(Model *m, KvCache *const *cache)
{
    return (UnitContext){.dev = m->dev, .shape = &m->local, .params = &m->params, .weight = m->unit_weight,
                         .grad = m->unit_grad, .begin = m->unit_begin, .scratch = m->scratch, .cache = cache,
                         .linear = &m->linear, .hooks = &m->hooks, .table = m->table, .tied_weight = m->tied_weight,
                         .experts = m->experts, .most_rows = model_max_rows(m), .tied_grad = m->tied_grad};
}

static Batch current(Model *m, size_t B, size_t T, float scale, bool train)
{
    return (Batch){.B = B, .T = T, .N = B * T, .token = m->token, .pos = m->pos, .target = m->target,
                   .loss = m->loss, .scale = scale, .train = train, .first = m->batch.first,
                   .dropout = m->batch.dropout, .seed = m->batch.seed, .step = m->batch.step,
                   .sample = m->batch.sample, .each = m->batch.each};
}

// Sequence b of a batch, as a batch of its own.
static Batch one_sequence(const Batch *batch, size_t b)
{
    Batch one = *batch;
    size_t row = b * batch->T;
    one.B = 1, one.N = batch->T, one.sample = batch->sample + b;
    one.token += row, one.pos += row, one.target += row, one.loss += row;
    if (one.first) one.first += row;
    return one;
}

// Copies tokens and targets to the device, numbered for this rank's part of the vocabulary. target NULL: none.
static void set_tokens(Model *m, const int32_t *token, const int32_t *target, size_t n)
{
    if (m->parts.localise) {
        if (token != m->own_token) memcpy(m->own_token, token, n * sizeof *token);
        if (target && target != m->own_target) memcpy(m->own_target, target, n * sizeof *target);
        m->parts.localise(m->parts.self, m->own_token, target ? m->own_target : NULL, n);
        token = m->own_token;
        if (target) target = m->own_target;
    }
    m->dev->to_device(m->dev, m->token, token, n * sizeof *token);
    if (target) m->dev->to_device(m->dev, m->target, target, n * sizeof *target);
}

// This rank's part of a host array (B, T), in `own`; or the array itself, when the rank has all of it.
static const int32_t *cut_tokens(const Model *m, int32_t *own, const int32_t *whole, size_t B, size_t T)
{
    if (!whole || !m->parts.deal) return whole;
    m->parts.deal(m->parts.self, own, whole, B, T);
    return own;
}

void model_set_batch(Model *m, const int32_t *token, const int32_t *pos, const int32_t *target, size_t B, size_t T)
{
    check(B * T <= m->max_batch * m->max_tokens && T <= m->max_tokens);
    if (m->parts.check_tokens) m->parts.check_tokens(m->parts.self, T);
    size_t rows = T / model_sharers(m), N = B * rows;
    check(rows % m->acts.sharers == 0);
    set_tokens(m, cut_tokens(m, m->own_token, token, B, T), cut_tokens(m, m->own_target, target, B, T), N);
    if (pos) {
        m->dev->to_device(m->dev, m->pos, cut_tokens(m, m->own_place, pos, B, T), N * sizeof *pos);
    } else {
        int32_t some[AT_ONCE];
        for (size_t n = 0; n < N; n++) {
            size_t i = n % rows, at = n % AT_ONCE;
            some[at] = (int32_t)(m->parts.position ? m->parts.position(m->parts.self, T, i) : i);
            if (at + 1 == AT_ONCE || n + 1 == N)
                m->dev->to_device(m->dev, m->pos + (n - at), some, (at + 1) * sizeof *some);
        }
    }
    m->batch.B = B, m->batch.T = rows, m->batch.N = N;
    m->batch.first = NULL;
}

void model_set_documents(Model *m, const int32_t *first)
{
    size_t T = m->batch.T * model_sharers(m);
    if (!m->first) m->first = mem_alloc(m->mem, MEM_SCRATCH, model_max_rows(m) * sizeof *m->first, "documents");
    m->dev->to_device(m->dev, m->first, cut_tokens(m, m->own_place, first, m->batch.B, T), m->batch.N * sizeof *first);
    m->batch.first = m->first;
}

void model_set_dropout(Model *m, float p, uint64_t seed, uint32_t step, uint64_t sample)
{
    check(p >= 0 && p < 1);
    m->batch.dropout = p, m->batch.seed = seed, m->batch.step = step, m->batch.sample = sample;
}

void model_set_each(Model *m, float each)
{
    m->batch.each = each;
}

// Sum of the losses of N tokens, whole sequences, from row n0 on, in double, in order.
static double sum_losses(Model *m, size_t n0, size_t N)
{
    UnitContext ctx = context(m, NULL);
    return m->linear.sum_losses(&ctx, m->loss + n0, N / m->batch.T, m->batch.T);
}

double model_sum_losses(const Model *m, size_t n0, size_t N)
{
    UnitContext ctx = {.dev = m->dev};
    return linear_plain.sum_losses(&ctx, m->loss + n0, 1, N);
}

// The gradient of one more sequence, in grads, enters the tree: two sums of 2^k make one of 2^(k + 1).
static void tree_add(Model *m, ModelTree *tree, double loss)
{
    size_t count = tree->n_sequences++;
    float *from = m->grads; // left zero
    for (int k = 0;; k++) {
        if (k == m->n_levels) die("model: more than %zu sequences in a step (ModelOptions.sequences)", count);
        for (int i = 0; i < tree->n_ranges; i++) {
            size_t begin = tree->range[i][0], n = tree->range[i][1] - begin;
            m->dev->accumulate(m->dev, m->part[k] + begin, from + begin, n);
        }
        loss = tree->part_loss[k] += loss;
        if (!(count >> k & 1)) return;
        from = m->part[k];
        tree->part_loss[k] = 0;
    }
}

static double tree_finish(Model *m, ModelTree *tree)
{
    double loss = 0;
    for (int k = 0; k < m->n_levels; k++) {
        if (!(tree->n_sequences >> k & 1)) continue;
        for (int i = 0; i < tree->n_ranges; i++) {
            size_t begin = tree->range[i][0], n = tree->range[i][1] - begin;
            m->dev->accumulate(m->dev, m->grads + begin, m->part[k] + begin, n);
        }
        loss += tree->part_loss[k];
        tree->part_loss[k] = 0;
    }
    tree->n_sequences = 0;
    return loss;
}

// The sources' sums (expert parallelism) join those of source 0 as the ranks' sums of other gradients do (comm.h).
static void join_sources(Model *m)
{
    size_t at = 0;
    for (int i = 0; m->sources > 1 && i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        if (!row->expert) continue;
        for (size_t step = 1; step < m->sources; step *= 2)
            for (size_t s = 0; s + step < m->sources; s += 2 * step) {
                float *more = m->grads + m->params.n_elems + (s + step - 1) * m->source_elems + at;
                float *to = s ? m->grads + m->params.n_elems + (s - 1) * m->source_elems + at : m->grads + row->offset;
                m->dev->accumulate(m->dev, to, more, row->n_elems);
            }
        at += row->n_elems;
    }
}

double model_step_finish(Model *m)
{
    double loss = m->dev->deterministic ? 0 : m->step_loss;
    m->step_loss = 0;
    for (int c = 0; m->dev->deterministic && c < m->n_chunks; c++)
        for (int i = 0; i < 2; i++) loss += tree_finish(m, &m->chunk[c].tree[i]);
    join_sources(m);
    return loss;
}

// ---- all units of a slot, forward and back, for rows [row, row + batch->N)

X *model_stream_at(const Activations *acts, X *stream, size_t row)
{
    return stream ? (X *)((char *)stream + row / acts->sharers * acts->stream_row) : NULL;
}

size_t model_rows_held(const Activations *acts, int u, int i, size_t N)
{
    return acts->row[u].shared[i] ? N / acts->sharers : N;
}

void model_saved_at(const Activations *acts, int u, size_t row, void **saved)
{
    for (int i = 0; i < acts->row[u].n; i++) {
        char *all = acts->saved[u][i]; // NULL: a buffer that this block has not
        saved[i] = all ? all + model_rows_held(acts, u, i, row) * acts->pitch[u][i] : NULL;
    }
}

// From acts->stream[0], unless the first unit is the embedding, to out (max_rows, C), unless the last is the head.
// part[n_parts]: equal parts of the batch, one after another; a unit's weights are gathered once for all of them.
static void run_forward(Activations *acts, const UnitContext *ctx, X *out, size_t n_parts, const Batch *part)
{
    for (int u = 0; u < acts->n_units; u++) {
        const Unit *unit = &acts->unit[u];
        X *to = u + 1 < acts->n_units ? acts->stream[u + 1] : out;
        unit_before(ctx, unit, PASS_FORWARD);
        for (size_t i = 0; i < n_parts; i++) {
            size_t N = part[i].N, row = i * N;
            void *saved[UNIT_MAX_SAVED];
            X *own = model_stream_at(acts, to, row);
            model_saved_at(acts, u, row, saved);
            unit->kind->forward(ctx, unit, own, model_stream_at(acts, acts->stream[u], row), saved, &part[i]);
            unit_saw(ctx, unit, PASS_FORWARD, own, saved, &part[i]);
            if (part->train && !acts->pool->all_kept) recompute_keep(acts, ctx->dev, u, row, N, saved);
        }
        unit_after(ctx, unit, PASS_FORWARD);
    }
    acts->pool->fresh = acts->slot;
}

// dstream (batch->N, C): the gradient of the last unit's output on entry (undefined for the head), of the first unit's
// input on return (undefined for the embedding). late: NULL, or the buffers for deferred weight gradients.
static void run_backward(Activations *acts, const UnitContext *ctx, X *dstream, size_t row, const RecomputeLate *late,
                         const Batch *batch)
{
    bool all_kept = acts->pool->all_kept;
    for (int u = acts->n_units - 1; u >= 0; u--) {
        const Unit *unit = &acts->unit[u];
        UnitContext own = *ctx;
        void *saved[UNIT_MAX_SAVED], *kept[UNIT_MAX_SAVED];
        model_saved_at(acts, u, row, saved);
        if (!all_kept) recompute_again(acts, ctx, u, row, saved, batch);
        unit_before(ctx, unit, PASS_BACKWARD);
        if (!all_kept) recompute_restore(acts, ctx, u, row, saved, batch);
        if (late) own.later = recompute_late_at(late, u, row, kept);
        unit->kind->backward(&own, unit, dstream, model_stream_at(acts, acts->stream[u], row), saved, batch);
        if (late) recompute_keep_reads(acts, ctx->dev, u, late, row, batch->N, saved);
        unit_after(ctx, unit, PASS_BACKWARD);
        unit_saw(ctx, unit, PASS_BACKWARD, dstream, saved, batch);
    }
}

// ---- a chunk

size_t model_stream_rows(const Model *m, size_t B, size_t T)
{
    return B * T / model_sharers(m) / m->acts.sharers;
}

X *model_chunk_input(Model *m, int chunk, int slot)
{
    return m->chunk[chunk].slot[slot].stream[0];
}

double model_chunk_forward(Model *m, int chunk, int slot, X *out, bool train)
{
    UnitContext ctx = context(m, NULL);
    Batch batch = current(m, m->batch.B, m->batch.T, 0, train);
    Activations *acts = &m->chunk[chunk].slot[slot];
    // Sequence by sequence, as backward runs (part_of_batch), and so recomputation: the bits of a product by a BLAS
    // depend on its shape. And backward finds its rows: of each sequence those that this rank has (acts->sharers), and
    // in one piece those of its experts; dropout and a dump find the samples' numbers.
    if (train && m->dev->deterministic) {
        Batch part[batch.B];
        for (size_t b = 0; b < batch.B; b++) part[b] = one_sequence(&batch, b);
        run_forward(acts, &ctx, out, batch.B, part);
    } else {
        run_forward(acts, &ctx, out, 1, &batch);
    }
    return train || !m->chunk[chunk].piece.head ? 0 : sum_losses(m, 0, batch.N);
}

size_t model_parts(const Model *m)
{
    return m->dev->deterministic ? m->batch.B : 1;
}

// Part `part` of the batch, and the row where it begins.
static Batch part_of_batch(Model *m, float scale, size_t part, size_t *row)
{
    Batch batch = current(m, m->batch.B, m->batch.T, scale, true);
    *row = part * batch.T;
    return m->dev->deterministic ? one_sequence(&batch, part) : batch;
}

double model_chunk_backward(Model *m, int chunk, int slot, int late, X *stream, float scale, size_t part)
{
    UnitContext ctx = context(m, NULL);
    ModelChunk *c = &m->chunk[chunk];
    size_t row;
    Batch batch = part_of_batch(m, scale, part, &row);
    X *own = (X *)((char *)stream + row / m->acts.sharers * m->acts.stream_row);
    run_backward(&c->slot[slot], &ctx, own, row, late >= 0 ? &c->late[late] : NULL, &batch);
    double loss = c->piece.head ? sum_losses(m, row, batch.N) : 0;
    if (m->dev->deterministic) tree_add(m, &c->tree[0], loss);
    m->step_loss += loss;
    return loss;
}

void model_chunk_weight(Model *m, int chunk, int slot, int late, float scale)
{
    UnitContext ctx = context(m, NULL);
    ModelChunk *c = &m->chunk[chunk];
    for (size_t part = 0; part < model_parts(m); part++) {
        size_t row;
        Batch batch = part_of_batch(m, scale, part, &row);
        recompute_backward_later(&c->slot[slot], &ctx, row, &c->late[late], &batch);
        if (m->dev->deterministic) tree_add(m, &c->tree[1], 0);
    }
}

// ---- the whole model

double model_forward_backward(Model *m, float scale)
{
    double loss = 0;
    model_chunk_forward(m, 0, 0, NULL, true);
    for (size_t part = 0; part < model_parts(m); part++)
        loss += model_chunk_backward(m, 0, 0, -1, m->dstream, scale, part);
    return loss;
}

double model_evaluate(Model *m)
{
    return model_chunk_forward(m, 0, 0, NULL, false);
}

// Logits of rows [first, first + n) of the head's saved norm, to the host.
static void head_logits(Model *m, UnitContext *ctx, size_t first, size_t n, float *logits)
{
    const Unit *head = &m->unit[m->n_units - 1];
    const ModelChunk *last = m->chunk;
    while (!last->piece.head) last++;
    size_t C = m->shape.channels, V = m->local.vocab, chunk = unit_head_chunk(&m->local, model_max_rows(m));
    const ModelCut *cut = &m->local.cut;
    size_t whole = m->shape.vocab, own = cut->size > 1 ? unit_cut_first(whole, cut->rank, cut->size) : 0;
    X *out = (X *)m->scratch[SCRATCH_LOGITS];
    unit_before(ctx, head, PASS_FORWARD);
    for (size_t i = 0; i < n; i += chunk) {
        size_t rows = n - i < chunk ? n - i : chunk;
        const char *saved = last->slot[0].saved[last->n_units - 1][0];
        const X *norm = (const X *)(saved + (first + i) * C * m->dev->x_bytes);
        linear_forward(ctx, head, W_HEAD, out, norm, rows);
        for (size_t r = 0; r < rows; r++) {
            float *row = logits + (i + r) * whole;
            m->dev->from_x(m->dev, row + own, (X *)((char *)out + r * V * m->dev->x_bytes), V);
            for (size_t v = 0; v < V; v++) row[own + v] = vmath_cap(row[own + v], m->shape.logit_cap);
            if (m->parts.gather_logits) m->parts.gather_logits(m->parts.self, row);
        }
    }
    unit_after(ctx, head, PASS_FORWARD);
}

void model_logits(Model *m, float *logits)
{
    model_evaluate(m);
    UnitContext ctx = context(m, NULL);
    head_logits(m, &ctx, 0, m->batch.N, logits);
}

// ---- sampling

size_t model_next_rows(const Model *m)
{
    size_t most = model_max_rows(m) / m->acts.sharers, step = unit_window_step(&m->shape);
    if (m->max_tokens < most) most = m->max_tokens;
    return m->shape.window && step < most ? step : most;
}

// Where the next step might not fit behind the keys of a layer with a window, the last W - 1 of them, which are all
// that the next token will see, move to the front. At least 2 W are held then, so they do not overlap.
void model_cache_advance(const Model *m, KvCache *cache, size_t rows)
{
    const ModelShape *s = &m->shape;
    size_t step = unit_window_step(s), kept = s->window - 1;
    cache->length += rows;
    if (!s->window || 3 * step >= s->context || cache->length - cache->start <= 2 * step) return;
    size_t row = m->local.kv_heads * s->head_size, last = cache->length - kept - cache->start;
    for (int u = 0; u < m->n_units; u++) {
        if (!unit_is_block(m->unit[u].kind) || !unit_window(s, (size_t)m->unit[u].place - 1)) continue;
        size_t first = unit_cache_first(s, &m->unit[u], cache->room);
        size_t at = first * row * m->dev->x_bytes, from = at + last * row * m->dev->x_bytes;
        X *const part[] = {cache->k, cache->v};
        for (int i = 0; i < 2; i++)
            m->dev->copy(m->dev, (X *)((char *)part[i] + at), (X *)((char *)part[i] + from), kept, row, row, row);
    }
    cache->start = cache->length - kept;
}

// The shape without sequence parallelism: there may be one row.
static ModelShape shape_of_one(const Model *m)
{
    ModelShape part = m->local;
    part.cut.rows = part.cut.size > 1;
    return part;
}

void model_next_forward(Model *m, int chunk, KvCache *const *cache, size_t B, const int32_t *token, size_t rows, X *out)
{
    ModelShape part = shape_of_one(m);
    for (size_t b = 0; b < B; b++) {
        if (cache[b]->length == 0) cache[b]->start = 0;
        for (size_t t = 0; t < rows; t++) {
            int32_t pos = (int32_t)(cache[b]->length + t);
            m->dev->to_device(m->dev, m->pos + b * rows + t, &pos, sizeof pos);
        }
    }
    set_tokens(m, token, NULL, B * rows);
    UnitContext ctx = context(m, cache);
    ctx.shape = &part;
    Batch batch = current(m, B, rows, 0, false);
    batch.loss = NULL;  // no targets
    batch.first = NULL; // one document
    run_forward(&m->chunk[chunk].slot[0], &ctx, out, 1, &batch);
}

void model_last_logits(Model *m, size_t rows, size_t n, float *logits)
{
    ModelShape part = shape_of_one(m);
    UnitContext ctx = context(m, NULL);
    ctx.shape = &part;
    head_logits(m, &ctx, rows - n, n, logits);
}

void model_next_logits(Model *m, KvCache *cache, const int32_t *token, size_t n, float *logits)
{
    check(n >= 1 && cache->length + n <= cache->room);
    size_t most = model_next_rows(m);
    for (size_t i = 0; i < n; i += most) {
        size_t rows = n - i < most ? n - i : most;
        model_next_forward(m, 0, &cache, 1, token + i, rows, NULL);
        model_cache_advance(m, cache, rows);
        if (i + rows == n) model_last_logits(m, rows, 1, logits);
    }
}

void model_next_logits_each(Model *m, KvCache *const *cache, const int32_t *token, size_t B, float *logits)
{
    check(B >= 1 && B <= FEW_ROWS && B <= model_max_rows(m));
    for (size_t b = 0; b < B; b++) check(cache[b]->length < cache[b]->room);
    model_next_forward(m, 0, cache, B, token, 1, NULL);
    for (size_t b = 0; b < B; b++) model_cache_advance(m, cache[b], 1);
    model_last_logits(m, B, B, logits);
}
