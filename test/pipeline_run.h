// pipeline_run.h: a step, an evaluation and some sampling of a model on the stages of a pipeline, which are threads;
// their parts are put together by their tables. Tests only.
#ifndef PIPELINE_RUN_H
#define PIPELINE_RUN_H
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "parallel/ddp.h"
#include "parallel/parts.h"
#include "ops/narrow.h"
#include "parallel/pipeline.h"
#include "parallel/pipeline_check.h"
#include "whole_case.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { T = 8, SAMPLES = 8, MAX_RANKS = 8, PROMPT = T - 1 };

static const ModelShape gpt = { // layers that no number of pieces divides
    .layers = 9, .channels = 8, .heads = 2, .kv_heads = 2, .head_size = 4, .ffn = 12, .vocab = 23, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = {
    .layers = 8, .channels = 6, .heads = 4, .kv_heads = 2, .head_size = 4, .ffn = 10, .vocab = 23, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};
static const ModelShape *const families[] = {&gpt, &llama};

typedef struct {
    const ModelShape *shape;
    const char *schedule;       // NULL: one rank, by the model's own functions
    const PipelineTable *table; // used instead of `schedule`
    int p, v, cp, tp;           // 0: 1 (v 0: what the schedule needs); rank = (stage cp + cp's) tp + tp's
    bool sequence, deterministic, documents;
    bool blocks;                // the order of sums that any cp has
    size_t samples, micro;      // sequences of the step (0: 8) and of a micro-batch
    float dropout;
    RecomputePolicy recompute;
    XType x_type;
    const PipelineTimes *times; // recorded; NULL: not
    bool clock;                 // recorded by the clock
    int steps;                  // 0: 1; the gradients are those of the last
} Case;

typedef struct {
    const Case *c;
    const PipelineTable *table;
    size_t n;                // parameters of the whole model
    float *weights, *grads;  // whole, from the ranks' parts
    float losses[SAMPLES * T];
    double loss, eval_loss;
    float logits[2][32];     // of sampling: after the prompt, and one token later
    float *part[2][MAX_RANKS];
    double rank_loss[MAX_RANKS][2];
    float rank_logits[MAX_RANKS][2][32];
    double micro_norms;      // of one rank: sum of the norms of the micro-batches' gradients
    size_t acts[MAX_RANKS], comm[MAX_RANKS], sent[MAX_RANKS], formula_sent[MAX_RANKS], tied_sent[MAX_RANKS];
    int in_flight[MAX_RANKS];
    PipelineTimeline line;   // of rank 0, when recorded
} Outcome;

// Sample i: few valid tokens in some, so that micro-batches differ.
static void sample(const ModelShape *s, size_t i, int32_t *token, int32_t *target, int32_t *first)
{
    for (size_t t = 0; t < T; t++) {
        uint32_t any = rng_below(rng_make(7, "token", (uint32_t)i), 0, (uint32_t)s->vocab); // then all different
        token[t] = (int32_t)((any + 5 * t) % s->vocab);
        target[t] = (int32_t)rng_below(rng_make(7, "target", (uint32_t)i), t, (uint32_t)s->vocab);
        if (t > 1 + i % 4) target[t] = -1;
        first[t] = t < 3 ? 0 : 3;
    }
}

typedef struct {
    int32_t token[SAMPLES * T], target[SAMPLES * T], first[SAMPLES * T];
    size_t valid;
    PipelineMicro micro[SAMPLES];
    int m;
} Data;

static void make_data(Data *d, const Case *c, float *losses)
{
    d->valid = 0, d->m = 0;
    for (size_t i = 0; i < c->samples; i++) sample(c->shape, i, d->token + i * T, d->target + i * T, d->first + i * T);
    for (size_t n = 0; n < c->samples * T; n++) d->valid += d->target[n] >= 0;
    for (size_t i = 0; i < c->samples; i += c->micro)
        d->micro[d->m++] = (PipelineMicro){.token = d->token + i * T, .target = d->target + i * T,
                                           .first = c->documents ? d->first + i * T : NULL, .B = c->micro, .T = T,
                                           .dropout = c->dropout, .seed = 5, .sample = i, .loss = losses + i * T};
}

// The model's own functions, on one rank.
static double run_alone(Model *m, const Data *d, bool train)
{
    double loss = 0;
    for (int i = 0; i < d->m; i++) {
        const PipelineMicro *b = &d->micro[i];
        model_set_batch(m, b->token, NULL, b->target, b->B, b->T);
        if (b->first) model_set_documents(m, b->first);
        model_set_dropout(m, b->dropout, b->seed, b->step, b->sample);
        if (train) model_forward_backward(m, 1 / (float)d->valid);
        else loss += model_evaluate(m);
        memcpy(b->loss, m->loss, b->B * T * sizeof(float));
    }
    return train ? model_step_finish(m) : loss;
}

static float *copy_of(const float *x, size_t n)
{
    float *copy = malloc((n + 1) * sizeof *copy);
    assert_non_null(copy);
    return memcpy(copy, x, n * sizeof *copy);
}

// Bytes that a stage sends for the table's m micro-batches of B sequences of T tokens in a step; a tied head's aside.
static inline size_t sent_bytes(const PipelineTable *t, int stage, const Model *m, size_t B, size_t T)
{
    size_t n = 0, bytes = model_stream_rows(m, B, T) * m->shape.channels * m->dev->x_bytes;
    for (int i = 0; i < t->n[stage]; i++) {
        PipelinePlace reader = pipeline_table_reader(t, stage, t->action[stage][i]);
        n += reader.stage >= 0 && reader.stage != stage;
    }
    return n * bytes;
}

static void play(Comm *world, void *arg)
{
    Outcome *out = arg;
    const Case *c = out->c;
    int rank = world->rank, inner = c->cp * c->tp, stage = rank / inner;
    Mem mem = {0};
    Dev *cpu = dev_cpu_create(1);
    cpu->deterministic = c->deterministic;
    Dev *dev = c->x_type == X_FP32 ? cpu : narrow_create(cpu, (NarrowOptions){.x_type = c->x_type});
    comm_set_ordered(world, c->deterministic);
    bool end = stage == 0 || stage == c->p - 1;
    Comm *tp = comm_split(world, rank / c->tp, rank, "tp"), *pp = comm_split(world, rank % inner, rank, "pp");
    Comm *ends = comm_split(world, end ? rank % inner : -1, rank, "ends");
    Comm *cp = comm_split(world, stage * c->tp + rank % c->tp, rank, "cp");
    ModelStage have = {0};
    if (out->table) have = pipeline_stage(out->table, stage, c->shape->layers, NULL);
    PartsSettings parts = {.tp = tp, .sequence = c->sequence, .cp = cp,
                           .cp_set = {.blocks = c->blocks ? cp_blocks(T) : 0}};
    ModelOptions options = {.parts = parts_make(parts), .sequences = SAMPLES, .recompute = c->recompute,
                            .documents = c->documents, .stage = out->table ? &have : NULL};
    Model *m = model_allocate_with(c->shape, dev, &mem, c->micro, T, true, options);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    out->part[0][rank] = copy_of(m->weights, m->params.n_elems);
    out->acts[rank] = mem.tag_bytes[MEM_ACTS];
    Pipeline *pipe = out->table ? pipeline_create(m, out->table, stage, pp, ends) : NULL;
    out->comm[rank] = mem.tag_bytes[MEM_COMM];
    if (pipe && out->table->p == 1) assert_true(pipe->tied_peer < 0);
    KvCache cache = model_cache_create(m);
    mem_seal(&mem);
    comm_reset_counts(world);
    Data data;
    float unused[SAMPLES * T];
    bool head = !out->table;
    for (int i = 0; i < have.n_chunks; i++) head |= have.chunk[i].head;
    make_data(&data, c, head && rank % inner == 0 && c->cp == 1 ? out->losses : unused);
    int32_t prompt[PROMPT + 1] = {3, 17, 0, 21, 9, 8, 5, 2}; // fills the context
    if (pipe) {
        pipeline_share_tied(pipe);
        comm_reset_counts(world);
        if (c->times || c->clock) pipeline_record(pipe, c->times);
        for (int k = 0; k < c->steps; k++) {
            if (k) dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
            out->rank_loss[rank][0] = pipeline_step(pipe, data.micro, 1 / (float)data.valid);
        }
        out->sent[rank] = pp->count[COMM_SEND].sent / (size_t)c->steps;
        out->tied_sent[rank] = ends ? ends->count[COMM_SEND].sent / (size_t)c->steps : 0;
        out->formula_sent[rank] = sent_bytes(out->table, stage, m, c->micro, T);
        out->in_flight[rank] = pipe->most_in_flight;
        out->rank_loss[rank][1] = pipeline_evaluate(pipe, data.micro, data.m);
        pipeline_next_logits(pipe, &cache, prompt, PROMPT, out->rank_logits[rank][0]);
        pipeline_next_logits(pipe, &cache, prompt + PROMPT, 1, out->rank_logits[rank][1]);
        if (c->times || c->clock) {
            PipelineTimeline line = pipeline_timeline(pipe);
            if (rank == 0) out->line = line;
            else pipeline_time_free(&line);
        }
    } else {
        for (int i = 0; i < data.m && !c->deterministic; i++) {
            Data one = data;
            one.micro[0] = data.micro[i], one.m = 1;
            run_alone(m, &one, true);
            out->micro_norms += sqrt(dev->sum_squares(dev, m->grads, m->params.n_elems));
            dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
        }
        out->rank_loss[rank][0] = run_alone(m, &data, true);
        out->rank_loss[rank][1] = run_alone(m, &data, false);
        model_next_logits(m, &cache, prompt, PROMPT, out->rank_logits[rank][0]);
        model_next_logits(m, &cache, prompt + PROMPT, 1, out->rank_logits[rank][1]);
    }
    if (cp->size > 1) { // as replicas do
        CommRequest sum = comm_all_reduce(cp, m->grads, m->grads, m->params.n_elems, COMM_FP32, COMM_SUM);
        comm_wait(cp, &sum);
    }
    out->part[1][rank] = copy_of(m->grads, m->params.n_elems);
    pipeline_free(pipe);
    model_free(m);
    mem_free_all(&mem);
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

static int ranks_of(const Case *c)
{
    return c->p * c->cp * c->tp;
}

// Puts the ranks' parts together by their tables. All elements are there, once except for tp's copies, which have the
// same bits; and each has one owner.
static void assemble(const Outcome *o, const Params *whole, float *const *part, float *out)
{
    const Case *c = o->c;
    size_t *owners = calloc(whole->n_elems, sizeof *owners);
    bool *seen = calloc(whole->n_elems, sizeof *seen);
    assert_true(seen && owners);
    for (int r = 0; r < ranks_of(c); r++) {
        Params params;
        Unit *unit;
        ModelShape shape = tp_shape(c->shape, r % c->tp, c->tp, c->sequence);
        ModelStage have = {0};
        if (r / c->tp % c->cp) continue; // the same as of the cp group's first rank
        if (o->table) have = pipeline_stage(o->table, r / c->tp / c->cp, c->shape->layers, NULL);
        model_describe_stage(&shape, o->table ? &have : NULL, &params, &unit);
        whole_add(whole, out, seen, owners, &params, part[r], r);
        free(unit);
        params_free(&params);
    }
    for (size_t k = 0; k < whole->n_elems; k++) assert_true(seen[k] && owners[k] == 1);
    free(seen);
    free(owners);
}

static Outcome run(Case c)
{
    Params params;
    Unit *unit;
    if (!c.samples) c.samples = 8;
    if (!c.p) c.p = 1;
    if (!c.tp) c.tp = 1;
    if (!c.cp) c.cp = 1;
    if (!c.steps) c.steps = 1;
    PipelineTable *own = NULL;
    if (c.schedule)
        own = pipeline_choose(c.schedule, c.p, (int)(c.samples / c.micro), c.v, c.shape->layers, c.deterministic);
    model_describe(c.shape, &params, &unit);
    Outcome out = {.c = &c, .table = own ? own : c.table, .n = params.n_elems};
    comm_threads_run(ranks_of(&c), play, &out);
    out.weights = calloc(out.n, sizeof *out.weights);
    out.grads = calloc(out.n, sizeof *out.grads);
    assert_true(out.weights && out.grads);
    assemble(&out, &params, out.part[0], out.weights);
    assemble(&out, &params, out.part[1], out.grads);
    memcpy(out.logits, out.rank_logits[0], sizeof out.logits);
    for (int r = 0; r < ranks_of(&c); r++) {
        assert_memory_equal(out.rank_logits[r], out.rank_logits[0], sizeof out.logits);
        if (r % c.tp == 0) out.loss += out.rank_loss[r][0], out.eval_loss += out.rank_loss[r][1];
        free(out.part[0][r]);
        free(out.part[1][r]);
    }
    free(unit);
    params_free(&params);
    pipeline_table_free(own);
    out.c = NULL;
    out.table = NULL;
    return out;
}

static inline void release(Outcome *o)
{
    free(o->weights);
    free(o->grads);
    pipeline_time_free(&o->line);
}

static inline bool same(const Outcome *a, const Outcome *b)
{
    return a->n == b->n && a->loss == b->loss && a->eval_loss == b->eval_loss &&
           !memcmp(a->losses, b->losses, sizeof a->losses) && !memcmp(a->weights, b->weights, a->n * sizeof(float)) &&
           !memcmp(a->grads, b->grads, a->n * sizeof(float)) && !memcmp(a->logits, b->logits, sizeof a->logits);
}

// ---- the cases

static const struct {
    const char *schedule;
    int p, v;
    size_t micro;
} layouts[] = {
    {"gpipe", 2, 0, 2},       {"1f1b", 2, 0, 2},        {"1f1b", 3, 0, 2},        {"1f1b", 4, 0, 1},
    {"interleaved", 2, 2, 2}, {"interleaved", 2, 3, 1}, {"interleaved", 4, 2, 2}, {"zb-h1", 2, 0, 2},
    {"zb-h1", 3, 0, 1},       {"zb-v", 2, 0, 2},        {"zb-v", 3, 0, 2},        {"zb-v", 4, 0, 1},
    {"v-half", 2, 0, 1},      {"v-half", 3, 0, 2},      {"v-min", 3, 0, 1},       {"v-min", 4, 0, 1},
    {"interleaved", 1, 3, 2}, {"1f1b", 1, 0, 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static inline void lay_out(Case *c, int k)
{
    c->schedule = layouts[k].schedule, c->p = layouts[k].p, c->v = layouts[k].v, c->micro = layouts[k].micro;
}

#endif
