// model: builds the parameter table and the list of units, owns their buffers, runs them forward and back.
//
// The invariant: this file knows no tensor by number. model_describe writes every row of the table once,
// together with the role it plays in its unit, and everything else follows from the table.
//
// Order of rows within a block: what one matmul reads stands together (q, k, v; gate, up), weights
// before their biases. Initialisation is GPT-2's: normal(0, 0.02), the two projections into the residual
// stream divided by sqrt(2 layers), so that the variance of the stream does not grow with depth; norms
// 1, biases 0.
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

typedef struct {
    Params *params;
    Unit *unit;
    const char *prefix;
} Builder;

static void add(Builder b, UnitRole role, const char *name, size_t dim0, size_t dim1, float mean, float std, int cut)
{
    char full[PARAM_NAME];
    snprintf(full, sizeof full, "%s%s", b.prefix, name);
    int row = params_add(b.params, b.unit->index, full, dim1 ? 2 : 1, dim0, dim1, mean, std, dim1 != 0, cut);
    if (role < UNIT_ROLES) b.unit->row[role] = row;
}

static void add_norm(Builder b, const ModelShape *s, UnitRole w_role, UnitRole b_role, const char *w, const char *bias)
{
    add(b, w_role, w, s->channels, 0, 1, 0, -1);
    if (s->norm == NORM_LAYERNORM && s->bias) add(b, b_role, bias, s->channels, 0, 0, 0, -1);
}

static void describe_block(Builder b, const ModelShape *s)
{
    size_t C = s->channels, hd = s->heads * s->head_size, gd = s->kv_heads * s->head_size, F = s->ffn;
    float std = 0.02f, std_out = std / sqrtf(2.0f * (float)s->layers);
    const UnitRole none = UNIT_ROLES;
    add_norm(b, s, W_ATTN_NORM, B_ATTN_NORM, "attn_norm.weight", "attn_norm.bias");
    add(b, W_QKV, "attn.q.weight", hd, C, 0, std, 0);
    add(b, none, "attn.k.weight", gd, C, 0, std, 0);
    add(b, none, "attn.v.weight", gd, C, 0, std, 0);
    if (s->bias) {
        add(b, B_QKV, "attn.q.bias", hd, 0, 0, 0, 0);
        add(b, none, "attn.k.bias", gd, 0, 0, 0, 0);
        add(b, none, "attn.v.bias", gd, 0, 0, 0, 0);
    }
    if (s->qk_norm) {
        add(b, W_Q_NORM, "attn.q_norm.weight", s->head_size, 0, 1, 0, -1);
        add(b, W_K_NORM, "attn.k_norm.weight", s->head_size, 0, 1, 0, -1);
    }
    add(b, W_ATTN_OUT, "attn.out.weight", C, hd, 0, std_out, 1);
    if (s->bias) add(b, B_ATTN_OUT, "attn.out.bias", C, 0, 0, 0, -1);
    add_norm(b, s, W_FFN_NORM, B_FFN_NORM, "ffn_norm.weight", "ffn_norm.bias");
    if (s->swiglu) add(b, W_FFN_IN, "ffn.gate.weight", F, C, 0, std, 0);
    add(b, s->swiglu ? none : W_FFN_IN, "ffn.up.weight", F, C, 0, std, 0);
    if (s->bias && s->swiglu) add(b, B_FFN_IN, "ffn.gate.bias", F, 0, 0, 0, 0);
    if (s->bias) add(b, s->swiglu ? none : B_FFN_IN, "ffn.up.bias", F, 0, 0, 0, 0);
    add(b, W_FFN_DOWN, "ffn.down.weight", C, F, 0, std_out, 1);
    if (s->bias) add(b, B_FFN_DOWN, "ffn.down.bias", C, 0, 0, 0, -1);
}

void model_describe(const ModelShape *s, Params *params, Unit **units)
{
    int n = (int)s->layers + 2;
    *params = (Params){0};
    Unit *unit = calloc((size_t)n, sizeof *unit);
    if (!unit) die("model: no memory for %d units", n);
    for (int i = 0; i < n; i++) {
        unit[i].index = i;
        unit[i].kind = i == 0 ? &unit_embedding : i == n - 1 ? &unit_head : &unit_block;
        for (int r = 0; r < UNIT_ROLES; r++) unit[i].row[r] = -1;
    }
    Builder b = {params, &unit[0], "embed."};
    add(b, W_TOKENS, "tokens.weight", s->vocab, s->channels, 0, 0.02f, 0);
    if (!s->rope) add(b, W_POSITIONS, "positions.weight", s->context, s->channels, 0, 0.02f, -1);
    for (int i = 1; i < n - 1; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", i - 1);
        describe_block((Builder){params, &unit[i], prefix}, s);
    }
    b = (Builder){params, &unit[n - 1], ""};
    add_norm(b, s, W_FINAL_NORM, B_FINAL_NORM, "final_norm.weight", "final_norm.bias");
    if (!s->tie) add(b, W_HEAD, "head.weight", s->vocab, s->channels, 0, 0.02f, 0);
    else unit[n - 1].row[W_HEAD] = unit[0].row[W_TOKENS];
    mup_apply(s, params);
    *units = unit;
}

double model_matmul_params(const ModelShape *s)
{
    double C = (double)s->channels, D = (double)s->head_size, H = (double)s->heads, G = (double)s->kv_heads;
    double attn = C * D * (2 * H + 2 * G), ffn = (double)s->ffn * C * (s->swiglu ? 3 : 2);
    return (double)s->layers * (attn + ffn) + (double)s->vocab * C;
}

double model_flops_per_token(const ModelShape *s, size_t T)
{
    double attention = (double)s->layers * (double)s->heads * (double)s->head_size * (double)T;
    return 6 * model_matmul_params(s) + 6 * attention;
}

// The tree of a deterministic device: one part for each bit that the number of sequences can have.
static void allocate_parts(Model *m, size_t sequences)
{
    while (sequences >> m->n_levels) {
        check(m->n_levels < MODEL_MAX_LEVELS);
        m->part[m->n_levels++] = mem_alloc(m->mem, MEM_GRADS, m->params.n_elems * sizeof(float), "parts of gradients");
    }
}

static void allocate_buffers(Model *m, bool train, ModelOptions options)
{
    size_t N = m->max_batch * m->max_tokens;
    BufferList scratch = unit_scratch(m->dev, &m->shape, N);
    for (int i = 0; i < scratch.n; i++)
        m->scratch[i] = mem_alloc(m->mem, MEM_SCRATCH, scratch.n_bytes[i], scratch.name[i]);
    m->acts = recompute_allocate(m->unit, m->n_units, m->dev, &m->shape, m->mem, m->max_batch, m->max_tokens, train,
                                 options.recompute);
    if (train) m->dstream = (X *)mem_alloc(m->mem, MEM_SCRATCH, N * m->acts.stream_row, "stream gradient");
    m->token = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->token, "tokens");
    m->pos = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->pos, "positions");
    m->target = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->target, "targets");
    m->loss = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->loss, "losses");
    if (options.documents) m->first = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->first, "documents");
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
    if (narrow && !m->shard.x_stored) m->x_weights = (X *)mem_alloc(m->mem, MEM_PARAMS, n_x * m->dev->x_bytes, "weights");
    if (train) m->grads = mem_alloc(m->mem, MEM_GRADS, model_grads_held(m) * sizeof(float), "gradients");
}

Model *model_allocate_with(const ModelShape *shape, Dev *dev, Mem *mem, size_t B, size_t T, bool train,
                           ModelOptions options)
{
    Model *m = calloc(1, sizeof *m);
    if (!m) die("model: no memory");
    check(T <= shape->context || shape->rope);
    m->shape = *shape;
    m->dev = dev;
    m->mem = mem;
    m->max_batch = B;
    m->max_tokens = T;
    model_describe(shape, &m->params, &m->unit);
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
    void *own[] = {m->unit, m->unit_weight, m->unit_grad, m->unit_begin};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) free(own[i]);
    recompute_free(&m->acts);
    params_free(&m->params);
    free(m); // the buffers belong to the memory door: mem_free_all
}

static UnitContext context(Model *m, KvCache *cache)
{
    return (UnitContext){.dev = m->dev, .shape = &m->shape, .params = &m->params, .weight = m->unit_weight,
                         .grad = m->unit_grad, .begin = m->unit_begin, .scratch = m->scratch, .cache = cache,
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

void model_set_batch(Model *m, const int32_t *token, const int32_t *pos, const int32_t *target, size_t B, size_t T)
{
    check(B * T <= m->max_batch * m->max_tokens && T <= m->max_tokens);
    m->dev->to_device(m->dev, m->token, token, B * T * sizeof *token);
    if (target) m->dev->to_device(m->dev, m->target, target, B * T * sizeof *target);
    if (pos) {
        m->dev->to_device(m->dev, m->pos, pos, B * T * sizeof *pos);
    } else {
        for (size_t n = 0; n < B * T; n++) {
            int32_t t = (int32_t)(n % T);
            m->dev->to_device(m->dev, m->pos + n, &t, sizeof t);
        }
    }
    m->batch.B = B, m->batch.T = T, m->batch.N = B * T;
    m->batch.first = NULL;
}

void model_set_documents(Model *m, const int32_t *first)
{
    size_t N = m->max_batch * m->max_tokens;
    if (!m->first) m->first = mem_alloc(m->mem, MEM_SCRATCH, N * sizeof *m->first, "documents");
    m->dev->to_device(m->dev, m->first, first, m->batch.N * sizeof *first);
    m->batch.first = m->first;
}

void model_set_dropout(Model *m, float p, uint64_t seed, uint32_t step, uint64_t sample)
{
    check(p >= 0 && p < 1);
    m->batch.dropout = p, m->batch.seed = seed, m->batch.step = step, m->batch.sample = sample;
}

// Sum of the losses of N tokens from row n0 on, in double, in order.
static double sum_losses(Model *m, size_t n0, size_t N)
{
    double sum = 0;
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
    recompute_forward(&m->acts, &ctx, &batch);
    double loss = 0;
    if (!m->dev->deterministic) {
        recompute_backward(&m->acts, &ctx, m->dstream, 0, &batch);
        loss = sum_losses(m, 0, batch.N);
    }
    for (size_t b = 0; m->dev->deterministic && b < batch.B; b++) {
        Batch one = one_sequence(&batch, b);
        recompute_backward(&m->acts, &ctx, m->dstream, b * batch.T, &one);
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
    size_t C = m->shape.channels, V = m->shape.vocab, chunk = unit_head_chunk(&m->shape, m->max_batch * m->max_tokens);
    X *out = (X *)m->scratch[SCRATCH_LOGITS];
    unit_before(ctx, head, PASS_FORWARD);
    for (size_t i = 0; i < n; i += chunk) {
        size_t rows = n - i < chunk ? n - i : chunk;
        const X *norm = (const X *)((char *)m->acts.saved[m->n_units - 1][0] + (first + i) * C * m->dev->x_bytes);
        m->dev->matmul_forward(m->dev, out, norm, unit_weight(ctx, head, W_HEAD), NULL, rows, C, V, head->row[W_HEAD]);
        m->dev->from_x(m->dev, logits + i * V, out, rows * V);
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
    size_t n = m->shape.layers * m->shape.context * m->shape.kv_heads * m->shape.head_size * m->dev->x_bytes;
    return (KvCache){.k = (X *)mem_alloc(m->mem, MEM_SCRATCH, n, "cached keys"),
                     .v = (X *)mem_alloc(m->mem, MEM_SCRATCH, n, "cached values")};
}

void model_next_logits(Model *m, KvCache *cache, const int32_t *token, size_t n, float *logits)
{
    check(n >= 1 && cache->length + n <= m->shape.context);
    size_t most = m->max_tokens;
    for (size_t i = 0; i < n; i += most) {
        size_t part = n - i < most ? n - i : most;
        for (size_t t = 0; t < part; t++) {
            int32_t pos = (int32_t)(cache->length + t);
            m->dev->to_device(m->dev, m->pos + t, &pos, sizeof pos);
        }
        m->dev->to_device(m->dev, m->token, token + i, part * sizeof *token);
        UnitContext ctx = context(m, cache);
        Batch batch = current(m, 1, part, 0, false);
        batch.loss = NULL;  // no targets
        batch.first = NULL; // one document
        recompute_forward(&m->acts, &ctx, &batch);
        cache->length += part;
        if (i + part == n) head_logits(m, &ctx, part - 1, 1, logits);
    }
}
