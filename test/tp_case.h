// tp_case.h: a step, an evaluation and some sampling of a model that is cut over ranks, which are threads; their parts
// are put together by their tables; and how far two orders of sums may be apart. For test_tp and
// test_cp_model.
#ifndef TP_CASE_H
#define TP_CASE_H
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "train/grads.h"
#include "parallel/ddp.h"
#include "parallel/parts.h"
#include "ops/narrow.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "whole_case.h"

#ifndef CASE_T
#define CASE_T 8
#endif
enum { T = CASE_T, SAMPLES = 8, MAX_RANKS = 8, PROMPT = 5 };

static const ModelShape gpt = { // a vocabulary that no number of ranks divides
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = { // 4 ranks: two of them to a key/value head
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true,
    .logit_cap = 0.25f};
static const ModelShape wide = { // for 8 ranks
    .layers = 1, .channels = 10, .heads = 8, .kv_heads = 8, .head_size = 2, .ffn = 16, .vocab = 53, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
static const ModelShape biased = { // shared key/value heads with biases; norms of outputs
    .layers = 1, .channels = 10, .heads = 4, .kv_heads = 1, .head_size = 4, .ffn = 12, .vocab = 29, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .qk_norm = true, .norm_place = NORM_OF_OUTPUT};
static const ModelShape moe = { // experts that drop slots, are balanced, and have one for all tokens beside them
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true,
    .experts = {.n = 4, .k = 2, .ffn = 24, .shared = 20, .every = 1, .renorm = true, .scale = 1.5f, .capacity = 1.25,
                .balance = MOE_BALANCE_SEQUENCE, .balance_coef = 0.05f, .z_coef = 0.01f}};
static const ModelShape *const families[] = {&gpt, &llama, &moe};

typedef struct {
    const ModelShape *shape;
    int ranks, dp;  // tensor-parallel ranks; replicas of all of them (0: 1)
    int cp;         // context-parallel ranks of a replica, each a group of `ranks` (0: 1)
    CpSettings set; // of cp; set.blocks with one rank too
    bool sequence, deterministic, documents;
    bool positions; // of tokens: in their documents, not in the row
    size_t micro;   // sequences of a micro-batch
    float dropout;
    RecomputePolicy recompute;
    XType x_type;
    bool idle;      // only allocate
} Case;

typedef struct {
    const Case *c;
    size_t n;                // parameters of the whole model
    float *weights, *grads;  // whole, from the ranks' parts
    double loss, eval_loss, squares, logit_norm;
    float logits[2][64];     // of sampling: after the prompt, and one token later
    float *part[2][MAX_RANKS]; // weights, gradients of each rank
    size_t acts[MAX_RANKS];
    CommCount count[COMM_KINDS], cp_count[COMM_KINDS]; // of tensor and of context parallelism, over all ranks
    CommCount rank_count[MAX_RANKS][2][COMM_KINDS];
    size_t comm[MAX_RANKS]; // bytes held for messages of the model
    double rank_loss[MAX_RANKS][3];
    float rank_logits[MAX_RANKS][2][64];
} Outcome;

// Sample i: few valid tokens in some, so that micro-batches differ.
static void sample(const ModelShape *s, size_t i, int32_t *token, int32_t *target, int32_t *first)
{
    for (size_t t = 0; t < T; t++) {
        token[t] = (int32_t)rng_below(rng_make(7, "token", (uint32_t)i), t, (uint32_t)s->vocab);
        target[t] = (int32_t)rng_below(rng_make(7, "target", (uint32_t)i), t, (uint32_t)s->vocab);
        if (t % 8 > 1 + i % 5) target[t] = -1;
        first[t] = t < 3 ? 0 : t < 9 ? 3 : 9;
    }
    token[0] = (int32_t)s->vocab - 1; // the last ones, in the last rank's part
    target[1] = (int32_t)s->vocab - 1;
}

static int sharers(int n)
{
    return n ? n : 1;
}

// dp: the ranks that gradients are added over, sharers(cp) of each replica.
static double run_samples(Model *m, Ddp *ddp, Comm *dp, const Case *c, bool train)
{
    int32_t token[SAMPLES * T], target[SAMPLES * T], first[SAMPLES * T], pos[SAMPLES * T];
    double loss = 0;
    size_t valid = 0;
    for (size_t i = 0; i < SAMPLES; i++) sample(c->shape, i, token + i * T, target + i * T, first + i * T);
    for (size_t n = 0; n < SAMPLES * T; n++) valid += target[n] >= 0, pos[n] = (int32_t)(n % T) - first[n];
    size_t begin, end = ddp_share(SAMPLES, dp->rank / sharers(c->cp), dp->size / sharers(c->cp), &begin) + begin;
    for (size_t i = begin; i < end; i += c->micro) {
        if (train) ddp_micro(ddp, i + c->micro >= end);
        model_set_batch(m, token + i * T, c->positions ? pos + i * T : NULL, target + i * T, c->micro, T);
        if (c->documents) model_set_documents(m, first + i * T);
        model_set_dropout(m, c->dropout, 5, 0, i);
        model_set_each(m, 1.0f / SAMPLES);
        if (train) model_forward_backward(m, 1 / (float)valid);
        else loss += model_evaluate(m);
    }
    if (train) {
        loss = model_step_finish(m);
        ddp_finish(ddp);
    }
    return ddp_sum(dp, loss) / (double)valid;
}

static float *copy_of(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof *copy);
    assert_non_null(copy);
    return memcpy(copy, x, n * sizeof *copy);
}

static void play(Comm *world, void *arg)
{
    Outcome *out = arg;
    const Case *c = out->c;
    int rank = world->rank;
    Mem mem = {0};
    Dev *cpu = dev_cpu_create(1);
    cpu->deterministic = c->deterministic;
    Dev *dev = c->x_type == X_FP32 ? cpu : narrow_create(cpu, (NarrowOptions){.x_type = c->x_type});
    comm_set_ordered(world, c->deterministic);
    if (!c->deterministic) {
        const CommKind kinds[] = {COMM_ALL_REDUCE, COMM_ALL_GATHER, COMM_REDUCE_SCATTER};
        for (int k = 0; k < 3; k++) comm_set_algorithm(world, kinds[k], COMM_RING);
    }
    int group = c->ranks * sharers(c->cp);
    Comm *tp = comm_split(world, rank / c->ranks, rank, "tp"), *dp = comm_split(world, rank % c->ranks, rank, "dp");
    Comm *cp = comm_split(world, rank / group * group + rank % c->ranks, rank, "cp");
    PartsSettings parts = {.tp = tp, .sequence = c->sequence, .cp = cp, .cp_set = c->set};
    ModelOptions options = {.parts = parts_make(parts), .sequences = SAMPLES,
                            .recompute = c->recompute, .documents = c->documents};
    Model *m = model_allocate_with(c->shape, dev, &mem, c->micro, T, true, options);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    out->part[0][rank] = copy_of(m->weights, m->params.n_elems);
    out->acts[rank] = mem.tag_bytes[MEM_ACTS];
    out->comm[rank] = mem.tag_bytes[MEM_COMM];
    Ddp *ddp = ddp_create(m, dp, NULL, !c->deterministic, 400, false);
    comm_reset_counts(world);
    KvCache cache = model_cache_create(m);
    mem_seal(&mem);
    if (!c->idle) {
        int32_t prompt[PROMPT + 1] = {3, 27, 0, 17, 9, 28};
        out->rank_loss[rank][0] = run_samples(m, ddp, dp, c, true);
        memcpy(out->rank_count[rank][0], tp->count, sizeof tp->count);
        memcpy(out->rank_count[rank][1], cp->count, sizeof cp->count);
        double norm = grads_norm(dev, &m->params, m->grads, 1); // of what this rank owns
        out->rank_loss[rank][2] = ddp_sum(tp, norm * norm);
        out->rank_loss[rank][1] = run_samples(m, ddp, dp, c, false);
        model_next_logits(m, &cache, prompt, PROMPT, out->rank_logits[rank][0]);
        model_next_logits(m, &cache, prompt + PROMPT, 1, out->rank_logits[rank][1]);
    }
    out->part[1][rank] = copy_of(m->grads, m->params.n_elems);
    ddp_free(ddp);
    model_free(m);
    mem_free_all(&mem);
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

static int world_size(const Case *c)
{
    return c->ranks * sharers(c->dp) * sharers(c->cp);
}

// Puts the ranks' parts together by their tables. All elements are there, and copies have the same bits.
static void assemble(const Case *c, const Params *whole, float *const *part, float *out)
{
    bool *seen = calloc(whole->n_elems, sizeof *seen);
    size_t *owners = calloc(whole->n_elems, sizeof *owners);
    assert_true(seen && owners);
    for (int r = 0; r < world_size(c); r++) {
        Params params;
        Unit *unit;
        ModelShape shape = tp_shape(c->shape, r % c->ranks, c->ranks, c->sequence);
        model_describe(&shape, &params, &unit);
        whole_add(whole, out, seen, owners, &params, part[r], r);
        free(unit);
        params_free(&params);
    }
    for (size_t k = 0; k < whole->n_elems; k++) assert_true(seen[k] && owners[k] == (size_t)(world_size(c) / c->ranks));
    free(seen);
    free(owners);
}

static inline Outcome run(Case c)
{
    Params params;
    Unit *unit;
    model_describe(c.shape, &params, &unit);
    Outcome out = {.c = &c, .n = params.n_elems};
    comm_threads_run(world_size(&c), play, &out);
    out.weights = calloc(out.n, sizeof *out.weights);
    out.grads = calloc(out.n, sizeof *out.grads);
    assert_true(out.weights && out.grads);
    assemble(&c, &params, out.part[0], out.weights);
    assemble(&c, &params, out.part[1], out.grads);
    out.loss = out.rank_loss[0][0], out.eval_loss = out.rank_loss[0][1], out.squares = out.rank_loss[0][2];
    memcpy(out.logits, out.rank_logits[0], sizeof out.logits);
    for (size_t v = 0; v < c.shape->vocab; v++) out.logit_norm += (double)out.logits[0][v] * out.logits[0][v];
    out.logit_norm = sqrt(out.logit_norm);
    for (int r = 0; r < world_size(&c); r++) {
        assert_memory_equal(out.rank_loss[r], out.rank_loss[0], sizeof out.rank_loss[0]); // all have the same
        assert_memory_equal(out.rank_logits[r], out.rank_logits[0], sizeof out.logits);
        free(out.part[0][r]);
        free(out.part[1][r]);
        for (int k = 0; k < COMM_KINDS; k++) {
            for (int g = 0; g < 2; g++) {
                CommCount *sum = g ? &out.cp_count[k] : &out.count[k];
                sum->calls += out.rank_count[r][g][k].calls;
                sum->sent += out.rank_count[r][g][k].sent;
            }
        }
    }
    free(unit);
    params_free(&params);
    out.c = NULL;
    return out;
}

static inline void release(Outcome *o)
{
    free(o->weights);
    free(o->grads);
}

static inline bool same(const Outcome *a, const Outcome *b)
{
    return a->n == b->n && a->loss == b->loss && a->eval_loss == b->eval_loss &&
           !memcmp(a->grads, b->grads, a->n * sizeof *a->grads) && !memcmp(a->logits, b->logits, sizeof a->logits);
}

// ---- within the bound

// Both runs add the same terms in some order; so each gradient is within gamma(n) sum |term| of the exact sum,
// gamma(n) = n u / (1 - n u), u = 2^-24, n the longest chain of additions that a term goes through (Higham,
// Accuracy and Stability, section 4.2), and they differ by twice that. In norms sum |term| is at most the sum over
// tokens of |gradient of the token's loss|. A chain: all tokens, and in each of L + 2 units at most max(F, V, C)
// products for each of T rows. Context parallelism: in each layer a merge of partial attention for every other rank,
// which rounds a term as often as 5 |lse| + 22 more additions do (cp_run.h); |lse| < 16 here.
static inline double chain(const Case *c)
{
    size_t width = c->shape->ffn > c->shape->vocab ? c->shape->ffn : c->shape->vocab;
    double merges = (double)c->shape->layers * (sharers(c->cp) - 1);
    return SAMPLES * T + (double)(c->shape->layers + 2) * T * (double)width + merges * (5 * 16 + 22);
}

static inline double sum_of_norms(const Case *c)
{
    double sum = 0;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_allocate(c->shape, dev, &mem, 1, T, true);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    size_t valid = 0;
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < SAMPLES; i++) {
            int32_t token[T], target[T], first[T], one[T], pos[T];
            sample(c->shape, i, token, target, first);
            for (size_t t = 0; t < T; t++) {
                if (target[t] < 0) continue;
                if (!twice) { valid++; continue; }
                for (size_t s = 0; s < T; s++) one[s] = s == t ? target[s] : -1;
                dev->zero(dev, m->grads, m->params.n_elems * sizeof(float));
                for (size_t s = 0; s < T; s++) pos[s] = (int32_t)s - first[s];
                model_set_batch(m, token, c->positions ? pos : NULL, one, 1, T);
                if (c->documents) model_set_documents(m, first);
                model_set_dropout(m, c->dropout, 5, 0, i);
                model_forward_backward(m, 1 / (float)valid);
                sum += grads_norm(dev, &m->params, m->grads, 1);
            }
        }
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return sum;
}

static inline void check_close(const Case *c, const Outcome *r, const Outcome *one, double bound)
{
    Params params;
    Unit *unit;
    model_describe(c->shape, &params, &unit);
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        double diff = apart(r->grads + row->offset, one->grads + row->offset, row->n_elems);
        if (!(diff <= bound))
            fail_msg("%d ranks x %d, sp %d, dropout %g, recompute %d: the gradient of %s is %g apart, bound %g", c->cp,
                     c->ranks, c->sequence, (double)c->dropout, (int)c->recompute.mode, row->name, diff, bound);
    }
    double rel = chain(c) * FLT_EPSILON;
    assert_true(fabs(r->loss - one->loss) <= rel * one->loss);
    assert_true(fabs(r->eval_loss - one->eval_loss) <= rel * one->eval_loss);
    assert_true(fabs(r->squares - one->squares) <= 2 * bound * sqrt(one->squares) + bound * bound + rel * one->squares);
    for (int i = 0; i < 2; i++)
        assert_true(apart(r->logits[i], one->logits[i], c->shape->vocab) <= 2 * rel * one->logit_norm);
    free(unit);
    params_free(&params);
}

#endif
