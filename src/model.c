// model: owns the buffers of the list of units, and runs them forward and back.
//
// The invariant: this file knows no tensor by number. model_describe (model_table.c) writes every row of the table
// once, together with the role it plays in its unit, and everything else follows from the table.
//
// On a deterministic device gradients and losses do not depend on how a step is cut into micro-batches.
// Backward runs one sequence at a time, and the gradients g0, g1, ... of the step's sequences are added in a fixed
// binary tree, (g0 + g1) + (g2 + g3), built as a binary counter counts: part[k] holds the sum of 2^k sequences when
// bit k of the number of sequences so far is set, and is zero when it is not.
#include "model.h"

#include "check.h"
#include "mup.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The tree of a deterministic device: one part for each bit that the number of sequences can have.
static void allocate_parts(Model *m, size_t sequences)
{
    while (sequences >> m->n_levels) {
        check(m->n_levels < MODEL_MAX_LEVELS);
        m->part[m->n_levels++] = mem_alloc(m->mem, MEM_GRADS, m->params.n_elems * sizeof(float), "parts of gradients");
    }
}

static size_t cp_size(const Model *m)
{
    return m->cp ? (size_t)m->cp->size : 1;
}

// Rows of the largest micro-batch that this rank has.
static size_t max_rows(const Model *m)
{
    return m->max_batch * m->max_tokens / cp_size(m);
}

// A group of ranks that share sequences, or one rank that keeps the order of sums that they would have.
static void share_sequences(Model *m, Comm *group, CpSettings set)
{
    if (group && group->size == 1) group = NULL;
    if (!group && !set.blocks) return;
    m->cp = cp_create(group, m->dev, m->mem, set, m->max_batch, m->max_tokens, m->local.heads, m->local.kv_heads,
                      m->local.head_size);
    if (set.blocks && m->dev->deterministic) cp_keep_order(m->cp, &m->local);
}

static void allocate_buffers(Model *m, bool train, ModelOptions options)
{
    size_t N = max_rows(m);
    BufferList scratch = unit_scratch(m->dev, &m->local, N);
    for (int i = 0; i < scratch.n; i++)
        m->scratch[i] = mem_alloc(m->mem, MEM_SCRATCH, scratch.n_bytes[i], scratch.name[i]);
    m->acts = recompute_allocate(m->unit, m->n_units, m->dev, &m->local, m->mem, m->max_batch,
                                 m->max_tokens / cp_size(m), train, options.recompute);
    if (train)
        m->dstream = (X *)mem_alloc(m->mem, MEM_SCRATCH, N / m->acts.sharers * m->acts.stream_row, "stream gradient");
    m->token = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->token, "tokens");
    m->pos = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->pos, "positions");
    m->target = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->target, "targets");
    m->loss = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->loss, "losses");
    if (options.documents) m->first = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->first, "documents");
    if (m->tp.group || cp_size(m) > 1) {
        m->own_token = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->own_token, "this rank's tokens");
        m->own_target = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->own_target, "this rank's targets");
    }
    if (cp_size(m) > 1)
        m->own_place = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->own_place, "this rank's positions");
    if (m->tp.group) {
        m->tp.stage = mem_alloc(m->mem, MEM_SCRATCH, tp_stage_floats(&m->params) * sizeof(float), "shared gradients");
    }
    if (train && m->dev->deterministic) allocate_parts(m, options.sequences ? options.sequences : m->max_batch);
}

// Weights and gradients, whole or this rank's shard of them.
static void allocate_flat(Model *m, bool train)
{
    bool narrow = m->dev->x_type != X_FP32;
    check(narrow || (m->shard.weights == m->shard.x_weights && m->shard.stored == m->shard.x_stored)); // one array
    size_t n = model_weights_held(m), n_x = m->shard.x_weights ? m->shard.n : m->params.n_elems;
    if (!m->shard.stored)
        m->weights = mem_alloc(m->mem, narrow ? MEM_OPTIM : MEM_PARAMS, n * sizeof(float),
                               narrow ? "master weights" : "weights");
    m->x_weights = (X *)m->weights;
    if (narrow && !m->shard.x_stored)
        m->x_weights = (X *)mem_alloc(m->mem, MEM_PARAMS, n_x * m->dev->x_bytes, "weights");
    if (train) m->grads = mem_alloc(m->mem, MEM_GRADS, model_grads_held(m) * sizeof(float), "gradients");
}

Model *model_allocate_with(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train,
                           ModelOptions options)
{
    Model *m = calloc(1, sizeof *m);
    if (!m) die("model: no memory");
    check(T <= shape->context || shape->rope);
    m->shape = m->local = *shape;
    if (options.tp && options.tp->size > 1) {
        tp_check(shape, options.tp->size, options.sequence, T / (options.cp ? (size_t)options.cp->size : 1));
        m->local = tp_shape(shape, options.tp->rank, options.tp->size, options.sequence);
        m->tp = tp_create(options.tp, &m->local);
    }
    m->dev = dev;
    m->mem = mem;
    m->max_batch = B;
    m->max_tokens = T;
    model_describe(&m->local, &m->params, &m->unit);
    m->n_units = m->params.n_units;
    m->shard = options.shard;
    allocate_flat(m, train);

    size_t n = (size_t)m->n_units;
    m->unit_weight = calloc(n, sizeof *m->unit_weight);
    m->unit_grad = calloc(n, sizeof *m->unit_grad);
    m->unit_begin = calloc(n, sizeof *m->unit_begin);
    if (!m->unit_weight || !m->unit_grad || !m->unit_begin) die("model: no memory for %zu units", n);
    for (int u = 0; u < m->n_units; u++) {
        size_t end;
        params_unit_range(&m->params, u, &m->unit_begin[u], &end);
        if (!m->shard.x_weights) m->unit_weight[u] = (X *)((char *)m->x_weights + m->unit_begin[u] * dev->x_bytes);
        if (!m->shard.grads && train) m->unit_grad[u] = m->grads + m->unit_begin[u];
    }
    share_sequences(m, options.cp, options.cp_set);
    allocate_buffers(m, train, options);
    return m;
}

Model *model_allocate(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train)
{
    return model_allocate_with(shape, dev, mem, B, T, train, (ModelOptions){0});
}

Model *model_create(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, uint64_t seed, bool train)
{
    Model *m = model_allocate(shape, dev, mem, B, T, train);
    params_init(&m->params, seed, m->weights);
    model_weights_changed(m);
    return m;
}

size_t model_weights_held(const Model *m)
{
    return m->shard.weights ? m->shard.n : m->params.n_elems;
}

size_t model_grads_held(const Model *m)
{
    return m->shard.grads ? m->shard.n : m->params.n_elems;
}

void model_weights_changed(Model *m)
{
    check(m->shard.weights == m->shard.x_weights && m->weights);
    if ((X *)m->weights != m->x_weights) m->dev->to_x(m->dev, m->x_weights, m->weights, model_weights_held(m));
}

void model_free(Model *m)
{
    if (!m) return;
    void *own[] = {m->unit, m->unit_weight, m->unit_grad, m->unit_begin, m->cp};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    recompute_free(&m->acts);
    params_free(&m->params);
    free(m); // the buffers belong to the memory door: mem_free_all
}

static UnitContext context(Model *m, KvCache *cache)
{
    return (UnitContext){.dev = m->dev, .shape = &m->local, .tp = m->tp.group ? &m->tp : NULL, .params = &m->params,
                         .weight = m->unit_weight, .grad = m->unit_grad, .begin = m->unit_begin,
                         .scratch = m->scratch, .cache = cache, .cp = cache ? NULL : m->cp,
                         .hooks = &m->hooks};
}

static Batch current(Model *m, size_t B, size_t T, float scale, bool train)
{
    return (Batch){.B = B, .T = T, .N = B * T, .token = m->token, .pos = m->pos, .target = m->target,
                   .loss = m->loss, .scale = scale, .train = train, .first = m->batch.first,
                   .dropout = m->batch.dropout, .seed = m->batch.seed, .step = m->batch.step,
                   .sample = m->batch.sample};
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

// To the device, as this rank sees them. target NULL: none.
static void set_tokens(Model *m, const int32_t *token, const int32_t *target, size_t n)
{
    if (m->tp.group) {
        if (token != m->own_token) memcpy(m->own_token, token, n * sizeof *token);
        if (target && target != m->own_target) memcpy(m->own_target, target, n * sizeof *target);
        tp_localise(&m->local, m->own_token, target ? m->own_target : NULL, n);
        token = m->own_token;
        if (target) target = m->own_target;
    }
    m->dev->to_device(m->dev, m->token, token, n * sizeof *token);
    if (target) m->dev->to_device(m->dev, m->target, target, n * sizeof *target);
}

// What this rank has of a host array (B, T), in `own`; or the array, when it has all.
static const int32_t *cut_tokens(const Model *m, int32_t *own, const int32_t *whole, size_t B, size_t T)
{
    if (!whole || cp_size(m) == 1) return whole;
    cp_cut(own, whole, sizeof *whole, B, m->cp->set.assign, T, m->cp->rank, m->cp->size);
    return own;
}

void model_set_batch(Model *m, const int32_t *token, const int32_t *pos, const int32_t *target, size_t B, size_t T)
{
    check(B * T <= m->max_batch * m->max_tokens && T <= m->max_tokens);
    if (m->cp) cp_check(m->cp->set, T, m->cp->size);
    size_t rows = T / cp_size(m), N = B * rows;
    check(!m->tp.group || rows % m->acts.sharers == 0);
    set_tokens(m, cut_tokens(m, m->own_token, token, B, T), cut_tokens(m, m->own_target, target, B, T), N);
    if (pos) {
        m->dev->to_device(m->dev, m->pos, cut_tokens(m, m->own_place, pos, B, T), N * sizeof *pos);
    } else {
        for (size_t n = 0; n < N; n++) {
            size_t i = n % rows;
            int32_t t = (int32_t)(rows < T ? cp_position(m->cp->set.assign, T, m->cp->rank, m->cp->size, i) : i);
            m->dev->to_device(m->dev, m->pos + n, &t, sizeof t);
        }
    }
    m->batch.B = B, m->batch.T = rows, m->batch.N = N;
    m->batch.first = NULL;
}

void model_set_documents(Model *m, const int32_t *first)
{
    size_t T = m->batch.T * cp_size(m);
    if (!m->first) m->first = mem_alloc(m->mem, MEM_SCRATCH, max_rows(m) * sizeof *m->first, "documents");
    m->dev->to_device(m->dev, m->first, cut_tokens(m, m->own_place, first, m->batch.B, T), m->batch.N * sizeof *first);
    m->batch.first = m->first;
}

void model_set_dropout(Model *m, float p, uint64_t seed, uint32_t step, uint64_t sample)
{
    check(p >= 0 && p < 1);
    m->batch.dropout = p, m->batch.seed = seed, m->batch.step = step, m->batch.sample = sample;
}

// Sum of the losses of N tokens, whole sequences, from row n0 on, in double, in order.
static double sum_losses(Model *m, size_t n0, size_t N)
{
    double sum = 0;
    if (m->cp && m->cp->ordered) return cp_sum_losses(m->cp, m->loss + n0, N / m->batch.T, m->batch.T);
    for (size_t n = n0; n < n0 + N; n++) {
        float loss;
        m->dev->to_host(m->dev, &loss, m->loss + n, sizeof loss);
        sum += loss;
    }
    return sum;
}

// The gradient of one more sequence, in grads, enters the tree: two sums of 2^k make one of 2^(k + 1).
static void tree_add(Model *m, double loss)
{
    size_t n = m->params.n_elems, count = m->n_sequences++;
    float *from = m->grads; // left zero
    for (int k = 0;; k++) {
        if (k == m->n_levels) die("model: more than %zu sequences in a step (ModelOptions.sequences)", count);
        m->dev->accumulate(m->dev, m->part[k], from, n);
        loss = m->part_loss[k] += loss;
        if (!(count >> k & 1)) return;
        from = m->part[k];
        m->part_loss[k] = 0;
    }
}

double model_step_finish(Model *m)
{
    double loss = m->dev->deterministic ? 0 : m->step_loss;
    for (int k = 0; m->dev->deterministic && k < m->n_levels; k++) {
        if (!(m->n_sequences >> k & 1)) continue;
        m->dev->accumulate(m->dev, m->grads, m->part[k], m->params.n_elems);
        loss += m->part_loss[k];
        m->part_loss[k] = 0;
    }
    m->n_sequences = 0;
    m->step_loss = 0;
    return loss;
}

double model_forward_backward(Model *m, float scale)
{
    UnitContext ctx = context(m, NULL);
    Batch batch = current(m, m->batch.B, m->batch.T, scale, true);
    bool each = m->dev->deterministic && m->acts.sharers > 1; // forward too: ranks share the rows of each sequence
    if (!each) recompute_forward(&m->acts, &ctx, &batch);
    double loss = 0;
    if (!m->dev->deterministic) {
        recompute_backward(&m->acts, &ctx, m->dstream, 0, &batch);
        loss = sum_losses(m, 0, batch.N);
    }
    for (size_t b = 0; m->dev->deterministic && b < batch.B; b++) {
        Batch one = one_sequence(&batch, b);
        if (each) recompute_forward(&m->acts, &ctx, &one);
        recompute_backward(&m->acts, &ctx, m->dstream, each ? 0 : b * batch.T, &one);
        double part = sum_losses(m, b * batch.T, batch.T);
        loss += part;
        tree_add(m, part);
    }
    m->step_loss += loss;
    return loss;
}

double model_evaluate(Model *m)
{
    UnitContext ctx = context(m, NULL);
    Batch batch = current(m, m->batch.B, m->batch.T, 0, false);
    recompute_forward(&m->acts, &ctx, &batch);
    return sum_losses(m, 0, batch.N);
}

// Logits of rows [first, first + n) of the head's saved norm, to the host.
static void head_logits(Model *m, UnitContext *ctx, size_t first, size_t n, float *logits)
{
    const Unit *head = &m->unit[m->n_units - 1];
    size_t C = m->shape.channels, V = m->local.vocab, chunk = unit_head_chunk(&m->local, max_rows(m));
    size_t whole = m->shape.vocab, own = m->tp.group ? tp_first(whole, m->local.cut.rank, m->local.cut.size) : 0;
    X *out = (X *)m->scratch[SCRATCH_LOGITS];
    unit_before(ctx, head, PASS_FORWARD);
    for (size_t i = 0; i < n; i += chunk) {
        size_t rows = n - i < chunk ? n - i : chunk;
        const X *norm = (const X *)((char *)m->acts.saved[m->n_units - 1][0] + (first + i) * C * m->dev->x_bytes);
        m->dev->matmul_forward(m->dev, out, norm, unit_weight(ctx, head, W_HEAD), NULL, rows, C, V, head->row[W_HEAD]);
        for (size_t r = 0; r < rows; r++) {
            float *row = logits + (i + r) * whole;
            m->dev->from_x(m->dev, row + own, (X *)((char *)out + r * V * m->dev->x_bytes), V);
            if (m->tp.group) tp_gather_logits(&m->tp, &m->local, row);
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

KvCache model_cache_create(Model *m)
{
    size_t n = m->shape.layers * m->shape.context * m->local.kv_heads * m->shape.head_size * m->dev->x_bytes;
    return (KvCache){.k = (X *)mem_alloc(m->mem, MEM_SCRATCH, n, "cached keys"),
                     .v = (X *)mem_alloc(m->mem, MEM_SCRATCH, n, "cached values")};
}

void model_next_logits(Model *m, KvCache *cache, const int32_t *token, size_t n, float *logits)
{
    check(n >= 1 && cache->length + n <= m->shape.context);
    ModelShape part = m->local; // without sequence parallelism: there may be one row
    part.cut.rows = part.cut.size > 1;
    size_t held = max_rows(m) / m->acts.sharers, most = held < m->max_tokens ? held : m->max_tokens;
    for (size_t i = 0; i < n; i += most) {
        size_t rows = n - i < most ? n - i : most;
        for (size_t t = 0; t < rows; t++) {
            int32_t pos = (int32_t)(cache->length + t);
            m->dev->to_device(m->dev, m->pos + t, &pos, sizeof pos);
        }
        set_tokens(m, token + i, NULL, rows);
        UnitContext ctx = context(m, cache);
        ctx.shape = &part;
        Batch batch = current(m, 1, rows, 0, false);
        batch.loss = NULL;  // no targets
        batch.first = NULL; // one document
        recompute_forward(&m->acts, &ctx, &batch);
        cache->length += rows;
        if (i + rows == n) head_logits(m, &ctx, rows - 1, 1, logits);
    }
}
