// replica_run.h: a few training steps on N ranks, which are threads, with any stage of ZeRO; for test_ddp and
// test_zero.
#ifndef REPLICA_RUN_H
#define REPLICA_RUN_H
#include "dev/check/comm_threads.h"
#include "step_run.h"

#include "ops/narrow.h"
#include "whole_case.h"
#include "parallel/zero.h"

#include <float.h>
#include <unistd.h>

enum { SAMPLES = 24, STEPS = 3, MAX_RANKS = 8 };

typedef struct {
    int ranks, stage;
    int shard; // ranks that cut what the stage cuts; 0: all
    const ModelShape *shape;
    size_t samples, micro; // sequences of a step, and of a micro-batch (0: a rank's share)
    bool deterministic, overlap, reshard, narrow; // narrow: gradients are sent in 16 bits
    int deeper;            // units that are gathered ahead, less one
    size_t keep;           // ZeroSettings
    size_t bucket;         // bytes
    OptimName optim;
    float dropout, clip, agc;
    int steps;
    RecomputePolicy recompute;
    OffloadMode offload;
    bool host, halves; // the host updates what is offloaded; updates in two parts
    XType x_type;
    bool embed_fp32;
    double slow; // seconds a byte
} Case;

typedef struct {
    const Case *c;
    float *grads, *weights; // whole; gradients of the first step
    void *state[OPTIM_STATES];
    size_t state_bytes[OPTIM_STATES];
    double loss, norm;
    size_t n;
    CommCount count[MAX_RANKS][COMM_KINDS]; // of weights and gradients, in all steps
    CommCount copies[MAX_RANKS][COMM_KINDS]; // of the sums over copies
    size_t tag[MAX_RANKS][MEM_TAGS], shard[MAX_RANKS]; // bytes held; elements owned
    size_t down[MAX_RANKS], up[MAX_RANKS]; // bytes that updates on the host have moved
    bool agree[MAX_RANKS];
} Outcome;

// Sample i of step k: valid tokens differ much between samples, and so between ranks.
static void sample(size_t i, size_t k, int32_t *token, int32_t *target, int32_t *first)
{
    sequence(i + k * SAMPLES, T, token, target, first);
    for (size_t t = 0; t < T; t++)
        if (t > 1 + i % 9) target[t] = -1;
}

static double one_step(Model *m, Zero *zero, Comm *control, const Case *c, size_t micro, size_t step)
{
    int32_t token[SAMPLES * T], target[SAMPLES * T], first[SAMPLES * T];
    size_t begin, share = ddp_share(c->samples, control->rank, control->size, &begin);
    int64_t valid = 0;
    for (size_t i = 0; i < share; i++) sample(begin + i, step, token + i * T, target + i * T, first + i * T);
    for (size_t n = 0; n < share * T; n++) valid += target[n] >= 0;
    valid = ddp_sum_int(control, valid);
    for (size_t i = 0; i < share; i += micro) {
        zero_micro(zero, i + micro >= share);
        model_set_batch(m, token + i * T, NULL, target + i * T, micro, T);
        model_set_documents(m, first + i * T);
        model_set_dropout(m, c->dropout, 5, (uint32_t)step, step * c->samples + begin + i);
        model_forward_backward(m, 1 / (float)valid);
    }
    double loss = ddp_sum(control, model_step_finish(m)) / (double)valid;
    zero_reduce(zero);
    return loss;
}

// Model, replicas and optimizer of one rank.
typedef struct {
    Mem mem;
    Dev *cpu, *dev;
    Comm *dp, *control, *copies; // copies NULL: none
    Model *model;
    Zero *zero;
    Optim optim;
    OffloadSettings store;
    char path[64];
} Replica;

static void replica_open(Replica *r, Comm *world, const Case *c)
{
    *r = (Replica){.cpu = dev_cpu_create(1)};
    r->cpu->deterministic = c->deterministic;
    r->dev = c->x_type == X_FP32 ? r->cpu : narrow_create(r->cpu, (NarrowOptions){.x_type = c->x_type});
    r->dev->embed_fp32 = c->embed_fp32;
    comm_set_ordered(world, c->deterministic);
    int row = c->stage && c->shard ? c->shard : world->size;
    r->dp = comm_split(world, world->rank / row, world->rank, "dp");
    r->copies = comm_split(world, row < world->size ? world->rank % row : -1, world->rank, "copies");
    r->control = comm_split(world, 0, world->rank, "control");
    OptimSettings optim = {.name = c->optim, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f,
                           .momentum = 0.95f, .row_beta2 = 0.95f, .clip = c->clip, .agc = c->agc};
    Params params;
    Unit *unit;
    model_describe(c->shape, &params, &unit);
    ZeroCut cut = zero_cut(&params, zero_where(optim_kind(c->optim), c->agc > 0, 1), c->stage,
                           world->rank % row, row);
    free(unit);
    params_free(&params);
    ModelOptions options = {.sequences = c->samples, .recompute = c->recompute,
                            .shard = zero_shard(&cut, r->dev, c->stage, c->offload != OFFLOAD_NONE)};
    snprintf(r->path, sizeof r->path, "/tmp/replica_%d_%d", getpid(), world->rank);
    r->store = (OffloadSettings){.mode = c->offload, .path = r->path, .n_slots = 2};
    size_t micro = c->micro ? c->micro : c->samples / (size_t)world->size;
    r->model = model_allocate_with(c->shape, r->dev, &r->mem, micro, T, true, options);
    ZeroSettings set = {.stage = c->stage, .overlap = c->overlap, .reshard = c->reshard, .bucket_bytes = c->bucket,
                        .prefetch = 1 + c->deeper, .keep = c->keep,
                        .narrow = c->narrow,
                        .store = c->offload != OFFLOAD_NONE ? &r->store : NULL, .host = c->host ? r->dev : NULL};
    ZeroGroups group = {.dp = r->dp, .control = r->control, .copies = r->copies};
    r->zero = zero_create(r->model, set, cut, group);
    r->optim = zero_optim(r->zero, optim);
    zero_init_weights(r->zero, &r->optim, 1);
}

static void replica_close(Replica *r)
{
    optim_free(&r->optim);
    zero_free(r->zero);
    model_free(r->model);
    mem_free_all(&r->mem);
    if (r->dev != r->cpu) narrow_free(r->dev);
    dev_cpu_free(r->cpu);
}

static void wait_for_all(Replica *r)
{
    CommRequest barrier = comm_barrier(r->control);
    comm_wait(r->control, &barrier);
}

// A piece of a checkpoint between this rank and whole arrays, where state[s] may be NULL: then it is left out.
static void move_pieces(Replica *r, bool out, float *weights, void *const *state)
{
    const Params *params = &r->model->params;
    CkptPart part = zero_part(r->zero, &r->optim, out, r->control->rank, r->control->size);
    for (int i = 0; i < part.n; i++) {
        const CkptPiece *p = &part.piece[i];
        size_t row = params->row[p->row].offset, at;
        if (p->array < 0) {
            part.move(part.self, p, weights + row + p->slice.from, out);
            continue;
        }
        const CkptArray *array = &r->optim.state[p->array];
        at = optim_range_elems(array, params, 0, row) + p->slice.from;
        if (state) part.move(part.self, p, (char *)state[p->array] + at * safetensors_dtype_bytes(array->dtype), out);
    }
    zero_part_free(&part);
}

// The weights of make_weights_lively, which needs a whole array: all ranks copy theirs into out->weights.
static void enliven(Replica *r, Outcome *out)
{
    move_pieces(r, true, out->weights, NULL);
    wait_for_all(r);
    if (r->control->rank == 0) {
        Model view = *r->model;
        view.weights = out->weights;
        view.x_weights = (X *)out->weights; // not renewed here
        view.shard = (ModelShard){0};
        make_weights_lively(&view);
    }
    wait_for_all(r);
    move_pieces(r, false, out->weights, NULL);
    zero_renew(r->zero, &r->optim);
}

static void keep_whole(Replica *r, Outcome *out)
{
    const Params *params = &r->model->params;
    for (int s = 0; r->control->rank == 0 && s < r->optim.kind->n_states; s++) {
        const CkptArray *array = &r->optim.state[s];
        out->state_bytes[s] = optim_range_elems(array, params, 0, params->n_elems) *
                              safetensors_dtype_bytes(array->dtype);
        out->state[s] = malloc(out->state_bytes[s] + 1);
        assert_non_null(out->state[s]);
    }
    wait_for_all(r);
    move_pieces(r, true, out->weights, out->state);
    wait_for_all(r);
}

// This rank's gradients of the step, between zero_reduce and the update, to their place in grads.
static void keep_grads(Replica *r, float *grads)
{
    if (r->control->rank >= r->zero->cut.size) return; // a rank before this one has the same
    for (int u = 0; u < r->model->n_units; u++) {
        const OptimRange *range = &r->zero->range[u];
        r->dev->to_host(r->dev, grads + range->begin, range->grad, (range->end - range->begin) * sizeof *grads);
    }
}

// Whether n elements are the same, bit for bit, on all ranks. Collective.
static inline bool same_on_all(Comm *group, const float *x, size_t n)
{
    int64_t hash = 0, largest[2];
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        hash = (int64_t)(((uint64_t)hash ^ bits) * 0x9e3779b97f4a7c15u >> 1);
    }
    int64_t both[2] = {hash, -hash}; // the largest and the smallest
    CommRequest request = comm_all_reduce(group, largest, both, 2, COMM_INT64, COMM_MAX);
    comm_wait(group, &request);
    return largest[0] == -largest[1];
}

// As optim_step, in two parts that meet inside a tensor.
static double step_in_halves(Replica *r)
{
    double norm = optim_norm(&r->optim, r->model);
    size_t n = r->model->params.n_elems, middle = n / 2 + 1;
    float scale = r->optim.grad_scale * grads_clip_factor(norm, r->optim.set.clip);
    r->optim.step++;
    optim_update(&r->optim, r->model, 0.01, scale, 0, middle);
    optim_update(&r->optim, r->model, 0.01, scale, middle, n);
    return norm;
}

static void play(Comm *world, void *arg)
{
    Outcome *out = arg;
    const Case *c = out->c;
    Replica r;
    replica_open(&r, world, c);
    enliven(&r, out);
    int rank = world->rank;
    comm_reset_counts(world);
    if (c->slow > 0) comm_set_slow(world, 0, c->slow);
    for (int k = 0; k < c->steps; k++) {
        double loss = one_step(r.model, r.zero, r.control, c, r.model->max_batch, (size_t)k);
        if (rank == 0 && k == 0) out->loss = loss;
        if (k == 0) keep_grads(&r, out->grads);
        double norm = c->halves ? step_in_halves(&r) : optim_step(&r.optim, r.model, 0.01);
        zero_end(r.zero);
        if (rank == 0 && k == 0) out->norm = norm;
    }
    memcpy(out->count[rank], r.dp->count, sizeof r.dp->count);
    if (r.copies) memcpy(out->copies[rank], r.copies->count, sizeof r.copies->count);
    memcpy(out->tag[rank], r.mem.tag_bytes, sizeof r.mem.tag_bytes);
    out->down[rank] = r.optim.host.down, out->up[rank] = r.optim.host.up;
    out->shard[rank] = r.zero->cut.at[r.zero->cut.n_units];
    keep_whole(&r, out);
    out->agree[rank] = true;
    if (!r.model->shard.x_weights && c->x_type == X_FP32) { // everyone has all weights
        size_t n = out->n;
        out->agree[rank] = same_on_all(r.control, r.model->weights, n);
        if (rank == world->size - 1) r.model->weights[n - 1] = nextafterf(r.model->weights[n - 1], 1e9f);
        if (world->size > 1) out->agree[rank] &= !same_on_all(r.control, r.model->weights, n);
    }
    if (r.copies && r.model->shard.weights && r.model->weights) // and of a shard its copies
        out->agree[rank] &= same_on_all(r.copies, r.model->weights, r.model->shard.n);
    replica_close(&r);
}

static Outcome run(Case c)
{
    Params params;
    Unit *unit;
    model_describe(c.shape, &params, &unit);
    Outcome out = {.c = &c, .n = params.n_elems};
    out.grads = malloc(out.n * sizeof *out.grads);
    out.weights = malloc(out.n * sizeof *out.weights);
    assert_true(out.grads && out.weights);
    free(unit);
    params_free(&params);
    comm_threads_run(c.ranks, play, &out);
    for (int r = 0; r < c.ranks; r++) assert_true(out.agree[r]);
    out.c = NULL;
    return out;
}

static void release(Outcome *o)
{
    free(o->grads), free(o->weights);
    for (int s = 0; s < OPTIM_STATES; s++) free(o->state[s]);
}

static inline bool same_weights(const Outcome *a, const Outcome *b)
{
    bool same = memcmp(a->weights, b->weights, a->n * sizeof *a->weights) == 0;
    for (int s = 0; s < OPTIM_STATES; s++) {
        same &= a->state_bytes[s] == b->state_bytes[s];
        if (same && a->state_bytes[s]) same &= memcmp(a->state[s], b->state[s], a->state_bytes[s]) == 0;
    }
    return same;
}

// Fast mode. A gradient is the sum of its tokens' gradients, t = 1 .. S, each the result of sums of its own. Both runs
// add the same terms in some order, so each is within gamma(n) sum |term| of the exact sum, gamma(n) = n u / (1 - n u),
// u = 2^-24, n the longest chain of additions that a term goes through (Higham, Accuracy and Stability, section 4.2);
// the two differ by twice that. In norms: sum |term| is at most the sum over tokens of |gradient of the token|, which
// this function computes.
static inline double sample_norms(Case c)
{
    double sum = 0;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_allocate(c.shape, dev, &mem, 1, T, true);
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    int64_t valid = 0;
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < SAMPLES; i++) {
            int32_t token[T], target[T], first[T], one[T];
            sample(i, 0, token, target, first);
            for (size_t t = 0; t < T; t++) {
                if (target[t] < 0) continue;
                if (!twice) { valid++; continue; }
                for (size_t s = 0; s < T; s++) one[s] = s == t ? target[s] : -1; // the gradient of one token's loss
                dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
                model_set_batch(m, token, NULL, one, 1, T);
                model_set_documents(m, first);
                model_set_dropout(m, c.dropout, 5, 0, i);
                model_forward_backward(m, 1 / (float)valid);
                sum += grads_norm(dev, &m->params, m->grads, 1);
            }
        }
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return sum;
}

// How far two runs' gradients may be apart in norm. A token's own gradient goes through L + 2 units, in each through
// sums of at most T rows of max(F, V, C) products: its rounding is that of so many terms, in both runs.
static inline double fast_terms(const Case *c)
{
    return SAMPLES * T + (double)(c->shape->layers + 2) * T * 130;
}

static inline double fast_bound(Case c)
{
    return 2 * fast_terms(&c) * (FLT_EPSILON / 2) * sample_norms(c);
}

// Gradients that travel in 16 bits: each rank's is rounded once, by at most u = 2^-9 (bfloat16; fp16 is finer) of each
// element, and their fp32 sum once more. So in norm they leave the run with fp32 messages by at most
// u sum |g_r| + u |sum g_r (1 + u)|, and sum |g_r| is at most the sum of the tokens' norms (twice that, for the
// rounding of the 16-bit activations in what sample_norms computes in fp32). Half the bytes.
static inline void check_narrow_reduction(Case c)
{
    Outcome wide = run(c);
    double bound = 0x1p-9 * (2 * sample_norms(c) + 1.01 * wide.norm);
    c.narrow = true;
    Outcome r = run(c);
    CommKind kind = c.stage ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE;
    assert_int_equal(2 * r.count[0][kind].sent, wide.count[0][kind].sent);
    double diff = apart(r.grads, wide.grads, r.n);
    if (!(diff > 0 && diff <= bound))
        fail_msg("stage %d: gradients %g apart, bound %g, norm %g", c.stage, diff, bound, wide.norm);
    release(&r), release(&wide);
}

#endif
