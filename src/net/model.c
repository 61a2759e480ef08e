// model: the memory of a model (or of a rank's part of every layer, or of a pipeline's stage): weights, gradients and
// activations.
//
// The invariant: no code here refers to a tensor by number. model_describe (model_table.c) writes every row of the
// table once, together with its role in its unit, and everything else follows from the table. Forward and backward are
// in model_run.c.
//
// The list of units is divided into chunks, runs of consecutive layers. A whole model is one chunk. A stage of a
// pipeline may have several chunks, and several micro-batches in flight in each. So a chunk has as many sets of
// activations (slots) as the pipeline's table has micro-batches in flight. All share the gradients and the scratch.
//
// A head that is tied to the embedding of another stage reads a copy of the embedding, and adds its gradient to an
// array of its own (tied_weight, tied_grad). pipeline.c sends both.
#include "net/experts.h"
#include "net/model.h"

#include "base/check.h"

#include <stdlib.h>

// The tree of a deterministic device: one part for each bit that the number of sequences can have.
static void allocate_parts(Model *m, size_t sequences)
{
    while (sequences >> m->n_levels) {
        check(m->n_levels < MODEL_MAX_LEVELS);
        size_t n = m->params.n_elems + (m->sources - 1) * m->source_elems;
        m->part[m->n_levels++] = mem_alloc(m->mem, MEM_GRADS, n * sizeof(float), "parts of gradients");
    }
}

// Appends n elements from `begin` on to the ranges of a tree.
static void tree_range(ModelTree *tree, size_t begin, size_t n)
{
    size_t *last = tree->n_ranges ? tree->range[tree->n_ranges - 1] : NULL;
    if (!last || last[1] != begin) {
        last = tree->range[tree->n_ranges++];
        last[0] = begin;
    }
    last[1] = begin + n;
}

// The elements of a row that is of experts.
static size_t expert_elems(const Param *row)
{
    return row->expert ? row->n_elems : 0;
}

// Where source `source` has the gradient of a row in grads, `before` being the elements of experts in earlier rows.
static size_t at_source(const Model *m, const Param *row, size_t before, size_t source)
{
    return source ? m->params.n_elems + (source - 1) * m->source_elems + before : row->offset;
}

// The ranges of the gradients to which a chunk's backward adds; with `late` those to which linear_backward_later adds.
static ModelTree tree_of(const Model *m, const ModelChunk *chunk, bool late)
{
    bool split = chunk->n_late > 0;
    ModelTree tree = {.range = calloc((size_t)m->params.n_rows * m->sources, sizeof *tree.range)};
    if (!tree.range) die("model: no memory for %d ranges", m->params.n_rows);
    for (size_t source = 0; source < m->sources; source++) {
        size_t before = 0;
        for (int i = 0, u = 0; i < m->params.n_rows; before += expert_elems(&m->params.row[i]), i++) {
            const Param *row = &m->params.row[i];
            while (row->unit > m->unit[u].home + m->unit[u].apart) u++;
            if (u < chunk->first || u >= chunk->first + chunk->n_units || (source && !row->expert)) continue;
            if ((split && linear_is_later(&m->unit[u], &m->local, i)) != late) continue;
            tree_range(&tree, at_source(m, row, before, source), row->n_elems);
        }
    }
    return tree;
}

// The sources' gradients of experts, which begin where those of the first expert of a unit do.
static void place_sources(Model *m)
{
    size_t before = 0;
    for (int i = 0; i < m->params.n_rows; before += expert_elems(&m->params.row[i]), i++) {
        const Param *row = &m->params.row[i];
        if (!row->expert || row->offset != m->unit_begin[row->unit]) continue;
        for (size_t s = 1; s < m->sources; s++)
            m->unit_grad[s * (size_t)m->params.n_units + (size_t)row->unit] = m->grads + at_source(m, row, before, s);
    }
}

// Without recomputation, compression and offload each unit has its own stream and saved buffers.
static void place_own(Activations *acts, int u, Mem *mem)
{
    const BufferList *row = &acts->row[u];
    if (acts->unit[u].kind != &unit_embedding)
        acts->stream[u] = (X *)mem_alloc(mem, MEM_ACTS, acts->max_rows / acts->sharers * acts->stream_row, "stream");
    for (int i = 0; i < row->n; i++) {
        acts->pitch[u][i] = row->n_bytes[i];
        if (row->n_bytes[i])
            acts->saved[u][i] = mem_alloc(mem, MEM_ACTS, model_rows_held(acts, u, i, acts->max_rows) * row->n_bytes[i],
                                          row->name[i]);
    }
}

Activations model_activations(RecomputePool *pool, int slot, const Unit *unit, int n_units, const Dev *dev,
                              const ModelShape *shape, Mem *mem, size_t B, size_t T)
{
    size_t n = (size_t)n_units;
    Activations acts = {.pool = pool, .slot = slot, .policy = pool->policy, .unit = unit, .n_units = n_units,
                        .segment = pool->segment, .max_rows = B * T, .x_bytes = dev->x_bytes,
                        .stream_row = shape->channels * dev->x_bytes, .sharers = unit_sharers(shape),
                        .widest = unit_widest_saved(dev, shape)};
    acts.row = calloc(n, sizeof *acts.row);
    acts.stream = calloc(n, sizeof *acts.stream);
    acts.saved = calloc(n, sizeof *acts.saved);
    acts.pitch = calloc(n, sizeof *acts.pitch);
    acts.packed = calloc(n, sizeof *acts.packed);
    acts.scale = calloc(n, sizeof *acts.scale);
    acts.host = calloc(n, sizeof *acts.host);
    acts.host_stream = calloc(n, sizeof *acts.host_stream);
    if (!acts.row || !acts.stream || !acts.saved || !acts.pitch || !acts.packed || !acts.scale || !acts.host ||
        !acts.host_stream)
        die("model: no memory for %d units", n_units);
    for (int u = 0; u < n_units; u++) {
        acts.row[u] = unit[u].kind->saved(dev, shape, 1, 1);
        if (pool->all_kept) place_own(&acts, u, mem);
        else recompute_place(&acts, u, mem);
    }
    return acts;
}

void model_activations_free(Activations *acts)
{
    void *own[] = {acts->row, acts->stream, acts->saved, acts->pitch, acts->packed, acts->scale, acts->host, acts->host_stream};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
}

// Slots hold what backward needs and, unless blocks are recomputed, also what linear_backward_later needs.
static void allocate_chunk(Model *m, ModelChunk *c, int *number)
{
    c->n_slots = m->pool.segment ? c->piece.active : c->piece.held;
    c->n_late = c->piece.late;
    c->slot = calloc((size_t)c->n_slots, sizeof *c->slot);
    c->late = calloc((size_t)c->n_late + 1, sizeof *c->late);
    if (!c->slot || !c->late) die("model: no memory for %d slots", c->n_slots);
    for (int i = 0; i < c->n_slots; i++)
        c->slot[i] = model_activations(&m->pool, (*number)++, m->unit + c->first, c->n_units, m->dev, &m->local,
                                       m->mem, m->max_batch, m->max_tokens / model_sharers(m));
    for (int i = 0; i < c->n_late; i++)
        c->late[i] = recompute_allocate_late(&c->slot[0], m->dev, &m->local, m->mem);
    for (int i = 0; i < 2; i++) c->tree[i] = tree_of(m, c, i);
}

static void allocate_chunks(Model *m, bool train, ModelOptions options)
{
    ModelStage all = {.n_chunks = 1, .chunk = {{.layers = m->shape.layers, .embedding = true, .head = true,
                                                .active = 1, .held = 1}}};
    const ModelStage *stage = options.stage ? options.stage : &all;
    size_t most = 0;
    int slots = 0;
    for (int c = 0; c < stage->n_chunks; c++)
        if (stage->chunk[c].layers > most) most = stage->chunk[c].layers;
    bool all_kept = train && options.recompute.mode == RECOMPUTE_NONE && !options.recompute.compress &&
                    !options.recompute.offload;
    m->pool = all_kept ? (RecomputePool){.train = true, .all_kept = true} :
        recompute_pool(most, train, options.recompute);
    m->n_chunks = stage->n_chunks;
    m->chunk = calloc((size_t)m->n_chunks, sizeof *m->chunk);
    if (!m->chunk) die("model: no memory for %d chunks", m->n_chunks);
    for (int c = 0; c < m->n_chunks; c++) {
        m->chunk[c].piece = stage->chunk[c];
        m->chunk[c].first = model_chunk_units(stage, c, &m->chunk[c].n_units);
        allocate_chunk(m, &m->chunk[c], &slots);
    }
    m->acts = m->chunk[0].slot[0];
}

// What layers with experts keep from step to step (experts.h).
static void allocate_experts(Model *m, bool train)
{
    const ModelExperts *x = &m->shape.experts;
    if (!x->n) return;
    m->experts = calloc((size_t)m->n_units, sizeof *m->experts);
    if (!m->experts) die("model: no memory for %d units", m->n_units);
    for (int u = 0; u < m->n_units; u++) {
        ExpertState *state = &m->experts[u];
        size_t n = x->n * sizeof(float);
        if (m->unit[u].kind != &unit_experts) continue;
        if (train) state->count = mem_alloc(m->mem, MEM_SCRATCH, n + sizeof(float), "experts' loads");
        if (x->balance == MOE_BALANCE_BIAS) state->bias = mem_alloc(m->mem, MEM_SCRATCH, n, "experts' biases");
        if (x->balance == MOE_BALANCE_BATCH) state->load = mem_alloc(m->mem, MEM_SCRATCH, n, "experts' shares");
    }
}

static void allocate_buffers(Model *m, bool train, ModelOptions options)
{
    size_t N = model_max_rows(m);
    BufferList scratch = unit_scratch(m->dev, &m->local, N);
    for (int i = 0; i < scratch.n; i++)
        if (scratch.n_bytes[i]) m->scratch[i] = mem_alloc(m->mem, MEM_SCRATCH, scratch.n_bytes[i], scratch.name[i]);
    allocate_experts(m, train);
    allocate_chunks(m, train, options);
    if (train && !options.stage)
        m->dstream = (X *)mem_alloc(m->mem, MEM_SCRATCH, N / m->acts.sharers * m->acts.stream_row, "stream gradient");
    m->token = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->token, "tokens");
    m->pos = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->pos, "positions");
    m->target = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->target, "targets");
    m->loss = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->loss, "losses");
    if (options.documents) m->first = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->first, "documents");
    if (m->parts.localise || model_sharers(m) > 1) {
        m->own_token = mem_alloc_host(m->mem, MEM_SCRATCH, N * sizeof *m->own_token, "this rank's tokens");
        m->own_target = mem_alloc_host(m->mem, MEM_SCRATCH, N * sizeof *m->own_target, "this rank's targets");
    }
    if (model_sharers(m) > 1)
        m->own_place = mem_alloc_host(m->mem, MEM_SCRATCH, N * sizeof *m->own_place, "this rank's positions");
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
    if (m->dev->embed_fp32 && !m->params.no_embedding && !m->shard.weights) m->table = m->weights;
    for (int i = 0; i < m->params.n_rows; i++) m->source_elems += expert_elems(&m->params.row[i]);
    m->sources = m->source_elems && m->dev->deterministic ? (size_t)m->local.experts.ranks : 1;
    size_t n_grads = model_grads_held(m) + (m->sources - 1) * m->source_elems;
    if (train) m->grads = mem_alloc(m->mem, MEM_GRADS, n_grads * sizeof(float), "gradients");
}

// Memory for a head in another chunk than the embedding that it is tied to. On the same stage it reads the embedding
// itself.
static void allocate_tied(Model *m, bool train, const ModelStage *stage)
{
    size_t n = m->local.vocab * m->local.channels;
    bool tied = m->unit[m->n_units - 1].row[W_HEAD] == UNIT_TIED, apart = tied;
    for (int c = 0; stage && c < stage->n_chunks && m->shape.tie && m->dev->deterministic; c++)
        apart |= stage->chunk[c].head && !stage->chunk[c].embedding;
    if (tied) m->tied_weight = (X *)mem_alloc(m->mem, MEM_PARAMS, n * m->dev->x_bytes, "tied head's weights");
    if (apart && train) m->tied_grad = mem_alloc(m->mem, MEM_GRADS, n * sizeof(float), "tied head's gradient");
}

Model *model_allocate_with(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train,
                           ModelOptions options)
{
    Model *m = calloc(1, sizeof *m);
    if (!m) die("model: no memory");
    check(T <= shape->context || shape->rope);
    m->shape = m->local = *shape;
    m->parts = options.parts;
    if (m->parts.shape) m->local = m->parts.shape(m->parts.self, shape, T);
    m->linear = linear_plain;
    if (dev->deterministic) linear_keep_order(&m->linear);
    m->dev = dev;
    m->mem = mem;
    m->max_batch = B;
    m->max_tokens = T;
    model_describe_stage(&m->local, options.stage, &m->params, &m->unit);
    for (int u = 0; u < m->params.n_units; u++) m->n_units += !params_unit_expert(&m->params, u);
    m->shard = options.shard;
    allocate_flat(m, train);
    allocate_tied(m, train, options.stage);

    size_t n = (size_t)m->params.n_units;
    m->unit_weight = calloc(n, sizeof *m->unit_weight);
    m->unit_grad = calloc(n * m->sources, sizeof *m->unit_grad);
    m->unit_begin = calloc(n, sizeof *m->unit_begin);
    if (!m->unit_weight || !m->unit_grad || !m->unit_begin) die("model: no memory for %zu units", n);
    for (int u = 0; u < m->params.n_units; u++) {
        size_t end;
        params_unit_range(&m->params, u, &m->unit_begin[u], &end);
        if (!m->shard.x_weights) m->unit_weight[u] = (X *)((char *)m->x_weights + m->unit_begin[u] * dev->x_bytes);
        if (!m->shard.grads && train) m->unit_grad[u] = m->grads + m->unit_begin[u];
    }
    if (train) place_sources(m);
    if (m->parts.fill) m->parts.fill(m->parts.self, m);
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
    for (int c = 0; c < m->n_chunks; c++) {
        ModelChunk *chunk = &m->chunk[c];
        for (int i = 0; i < chunk->n_slots; i++) model_activations_free(&chunk->slot[i]);
        for (int i = 0; i < chunk->n_late; i++) recompute_late_free(&chunk->late[i]);
        for (int i = 0; i < 2; i++) free(chunk->tree[i].range);
        free(chunk->slot);
        free(chunk->late);
    }
    if (!m->pool.all_kept) recompute_pool_free(&m->pool);
    void *own[] = {m->unit, m->experts, m->unit_weight, m->unit_grad, m->unit_begin, m->chunk};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    if (m->parts.release) m->parts.release(m->parts.self);
    params_free(&m->params);
    free(m); // the buffers belong to the allocator: mem_free_all
}

KvCache model_cache_create(Model *m)
{
    return model_cache_for(m, m->shape.context);
}

KvCache model_cache_for(Model *m, size_t room)
{
    size_t rows = 0;
    if (room > m->shape.context) room = m->shape.context;
    for (int u = 0; u < m->n_units; u++)
        if (unit_is_block(m->unit[u].kind)) rows += unit_cache_rows(&m->shape, &m->unit[u], room);
    size_t n = rows * m->local.kv_heads * m->shape.head_size * m->dev->x_bytes;
    return (KvCache){.k = (X *)mem_alloc(m->mem, MEM_SCRATCH, n, "cached keys"),
                     .v = (X *)mem_alloc(m->mem, MEM_SCRATCH, n, "cached values"), .room = room};
}

void model_cache_free(Model *m, KvCache *cache)
{
    mem_free(m->mem, cache->k);
    mem_free(m->mem, cache->v);
}
