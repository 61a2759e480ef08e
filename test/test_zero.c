// test_zero: what replicas do where the bits and bytes of whole runs (test_layouts) do not tell: which elements and
// samples a rank has; when messages go out, and how many; gradients that travel in 16 bits.
#include "step_run.h"

#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "narrow/narrow.h"
#include "parallel/zero.h"
#include "train/grads.h"

enum { SAMPLES = 8, MAX_RANKS = 2 };

static const ModelShape wide = { // matrices of several blocks of 2048, the last one partial
    .layers = 2, .channels = 60, .heads = 4, .kv_heads = 4, .head_size = 15, .ffn = 100, .vocab = 101, .context = 10,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
static const ModelShape *const families[] = {&gpt, &llama, &wide}; // tied, and not

// ---- two ranks, which are threads

typedef struct {
    const ModelShape *shape;
    int stage, deeper; // deeper: units that are gathered ahead, less one
    size_t micro;      // sequences of a micro-batch
    bool overlap, reshard, narrow;
    size_t bucket;
    OffloadMode offload;
    XType x_type;
    float *grads;      // NULL, or room for those of all ranks
    size_t calls[MAX_RANKS], sent[MAX_RANKS]; // of sums of gradients
    uint64_t reads[MAX_RANKS];
} Case;

typedef struct {
    Mem mem;
    Dev *cpu, *dev;
    Comm *dp;
    Model *model;
    Zero *zero;
    Optim optim;
    OffloadSettings store;
} Replica;

static void replica_open(Replica *r, Comm *world, const Case *c)
{
    *r = (Replica){.cpu = dev_cpu_create(1), .store = {.mode = c->offload, .n_slots = 2}};
    r->dev = c->x_type == X_FP32 ? r->cpu : narrow_create(r->cpu, (NarrowOptions){.x_type = c->x_type});
    r->dp = comm_split(world, 0, world->rank, "dp");
    Comm *control = comm_split(world, 0, world->rank, "control");
    Params params;
    Unit *unit;
    model_describe(c->shape, &params, &unit);
    ZeroCut cut = zero_cut(&params, zero_where(optim_kind(OPTIM_SGD), false, 1), c->stage, world->rank, world->size);
    free(unit);
    params_free(&params);
    ModelOptions options = {.sequences = SAMPLES, .shard = zero_shard(&cut, r->dev, c->stage, c->offload)};
    r->model = model_allocate_with(c->shape, r->dev, &r->mem, c->micro, T, true, options);
    ZeroSettings set = {.stage = c->stage, .overlap = c->overlap, .reshard = c->reshard, .bucket_bytes = c->bucket,
                        .prefetch = 1 + c->deeper, .narrow = c->narrow, .store = c->offload ? &r->store : NULL};
    r->zero = zero_create(r->model, set, cut, (ZeroGroups){.dp = r->dp, .control = control});
    r->optim = zero_optim(r->zero, (OptimSettings){.name = OPTIM_SGD});
    zero_init_weights(r->zero, &r->optim, 1);
    comm_reset_counts(world);
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

static void one_step(Replica *r, const Case *c)
{
    size_t share = SAMPLES / (size_t)r->dp->size, begin = share * (size_t)r->dp->rank;
    for (size_t i = 0; i < share; i += c->micro) {
        zero_micro(r->zero, i + c->micro >= share);
        run_batch(r->model, &(Step){0}, begin + i, c->micro, T);
    }
    model_step_finish(r->model);
    zero_reduce(r->zero);
}

static void play(Comm *world, void *arg)
{
    Case *c = arg;
    Replica r;
    replica_open(&r, world, c);
    for (int k = 0; k < 2; k++) { // the second step's gradients: those of the same weights
        one_step(&r, c);
        for (int u = 0; c->grads && u < r.model->n_units; u++) {
            const OptimRange *range = &r.zero->range[u];
            memcpy(c->grads + range->begin, range->grad, (range->end - range->begin) * sizeof(float));
        }
        optim_drop(r.model);
        zero_end(r.zero);
    }
    const CommCount *sum = &r.dp->count[c->stage ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE];
    c->calls[world->rank] = sum->calls / 2, c->sent[world->rank] = sum->sent / 2;
    if (r.zero->store) c->reads[world->rank] = offload_count(r.zero->store).reads;
    replica_close(&r);
}

// ---- when, and how often

// A bucket is sent as soon as it holds as many bytes as asked for. Head: 24 gradients (it is tied); five blocks of
// 1184. Blocks a call, the last call with the embedding: 1 2 2 0 when head and block fill a bucket; 2 2 1 when a float
// more is asked for. Accumulation or not, they go out once a step.
TEST(test_buckets)
{
    const size_t bucket[] = {1, 4 * 24, 4 * 24 + 4, 4 * (24 + 1184), 4 * (24 + 1184) + 3, 4 * (24 + 1184) + 4, 1 << 30},
                 calls[] = {7, 7, 6, 4, 4, 3, 1};
    for (int i = 0; i < 2 * 7; i++) {
        Case c = {.shape = &gpt, .micro = 2 + i % 2 * 2, .overlap = true, .bucket = bucket[i / 2]};
        comm_threads_run(2, play, &c);
        assert_int_equal(c.calls[0], calls[i / 2]);
    }
}

// What overlaps is started early: while a unit runs the next one's weights are on their way, and behind its backward
// its gradient is. The naive twin has neither. (What that saves is for the benchmark to say.)
typedef struct {
    Zero *zero;
    UnitHooks inner;
    int early_weights, early_grads, late_weights;
} Spy;

static int in_slot(const ZeroSlot *slots, int n, int unit)
{
    for (int i = 0; i < n; i++)
        if (slots[i].unit == unit) return 1;
    return 0;
}

static void spy_before(void *self, int unit, UnitPass pass)
{
    Spy *s = self;
    int next = unit + (pass == PASS_FORWARD ? 1 : -1);
    const Zero *z = s->zero;
    int way = next - unit;
    s->inner.before(s->inner.self, unit, pass);
    for (int k = 0; k < z->set.prefetch; k++, next += way)
        if (next >= 0 && next < z->model->n_units) s->early_weights += in_slot(z->weights, z->n_weights, next);
    if (pass == PASS_FORWARD && unit > 1) s->late_weights += in_slot(z->weights, z->n_weights, unit - 1);
}

static void spy_after(void *self, int unit, UnitPass pass)
{
    Spy *s = self;
    s->inner.after(s->inner.self, unit, pass);
    if (pass == PASS_BACKWARD) s->early_grads += in_slot(s->zero->grads, s->zero->n_slots, unit);
}

static void play_spied(Comm *world, void *arg)
{
    const Case *c = arg;
    Replica r;
    replica_open(&r, world, c);
    Spy spy = {.zero = r.zero, .inner = r.model->hooks};
    r.model->hooks = (UnitHooks){.self = &spy, .before = spy_before, .after = spy_after};
    one_step(&r, c);
    zero_end(r.zero);
    int n = r.model->n_units, early = 0;
    for (int k = 1; k <= r.zero->set.prefetch; k++) early += 2 * (n - k); // so many units have one k ahead
    // back, a tied head has had the embedding gathered anew
    assert_int_equal(spy.early_weights, c->overlap ? early : c->shape->tie * r.zero->set.prefetch);
    assert_int_equal(spy.early_grads, c->overlap ? n : 0);
    assert_int_equal(spy.late_weights, 0); // gone behind the unit
    replica_close(&r);
}

TEST(test_overlap_starts_early)
{
    for (int i = 0; i < 2 * 2 * 3; i++) {
        Case c = {.shape = families[i / 2 % 2], .micro = 4, .stage = 3, .reshard = true, .overlap = i % 2,
                  .deeper = i / 4 - 1};
        comm_threads_run(2, play_spied, &c);
    }
}

// Reading ahead changes when weights are read from their store, not how often.
TEST(test_overlap_reads_as_often)
{
    for (int i = 0; i < 4; i++) {
        Case r[2];
        for (int k = 0; k < 2; k++) {
            r[k] = (Case){.shape = families[i % 2], .micro = 2, .stage = 3, .reshard = i / 2, .overlap = k,
                          .deeper = i - 1, .offload = OFFLOAD_CPU};
            comm_threads_run(2, play, &r[k]);
        }
        for (int rank = 0; rank < 2; rank++) assert_int_equal(r[0].reads[rank], r[1].reads[rank]);
    }
}

// Gradients that travel in 16 bits: each rank's is rounded once, by at most u = 2^-9 (bfloat16; fp16 is finer) of each
// element, and their fp32 sum once more: in norm at most u (|g_0| + |g_1|) + u |g|, and a rank's is not twice as large
// here as the sum. Half the bytes. In buckets of each unit and of all.
TEST(test_narrow_reduction)
{
    for (int i = 0; i < 2 * 4; i++) {
        float grads[2][1 << 15];
        Case c[2];
        for (int k = 0; k < 2; k++) {
            c[k] = (Case){.shape = families[i % 2], .micro = 4, .stage = i / 2, .overlap = true, .reshard = true,
                          .bucket = i ? 1 : 1 << 30, .x_type = i % 2 ? X_FP16 : X_BF16, .narrow = k, .grads = grads[k]};
            comm_threads_run(2, play, &c[k]);
        }
        assert_true(c[1].sent[0] > 0 && 2 * c[1].sent[0] == c[0].sent[0]);
        Params params;
        Unit *unit;
        model_describe(c[0].shape, &params, &unit);
        double norm = 0, apart = 0;
        for (size_t k = 0; k < params.n_elems; k++) {
            norm += pow(grads[0][k], 2);
            apart += pow((double)grads[1][k] - grads[0][k], 2);
        }
        if (!(apart > 0 && sqrt(apart) <= 0x1p-9 * 5 * sqrt(norm)))
            fail_msg("stage %d: gradients %g apart, norm %g", c[0].stage, sqrt(apart), sqrt(norm));
        free(unit);
        params_free(&params);
    }
}

// ---- who has what

// May a border between two ranks stand at this element of a unit?
static bool legal_border(const Params *params, OptimCut kind, size_t at)
{
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (at <= row->offset || at >= row->offset + row->n_elems) continue;
        return kind == OPTIM_ELEMENT || (kind == OPTIM_BLOCK && (at - row->offset) % UPDATE_BLOCK == 0);
    }
    return true;
}

// All cuts of all ranks, played here: every element once, in order, each border the legal one nearest to equal shares
// (of two, the lower one).
static void cuts_of(const Params *params, OptimName name, bool agc, int size, int u)
{
    OptimCut kind = agc ? OPTIM_TENSOR : optim_kind(name)->cut;
    size_t begin, next, end, even, counts[7];
    params_unit_range(params, u, &begin, &end);
    comm_even(counts, end - begin, size);
    next = even = begin;
    for (int rank = 0; rank < size; rank++) {
        ZeroCut cut = zero_cut(params, zero_where(optim_kind(name), agc, 1), 1, rank, size);
        assert_int_equal(cut.begin[u], next);
        assert_int_equal(cut.at[u + 1] - cut.at[u], cut.count[u * size + rank]);
        next += cut.count[u * size + rank];
        zero_cut_free(&cut);
        even += counts[rank];
        size_t nearest = even, far = 0;
        while (!legal_border(params, kind, nearest)) nearest = far % 2 ? even + far / 2 + 1 : even - far / 2 - 1, far++;
        assert_int_equal(next, nearest);
    }
    assert_int_equal(next, end);
}

TEST(test_cuts)
{
    for (int i = 0; i < 3 * OPTIM_NAMES * 2; i++) {
        Params params;
        Unit *unit;
        model_describe(families[i % 3], &params, &unit);
        for (int size = 1; size <= 7; size += 2)
            for (int u = 0; u < params.n_units; u++)
                cuts_of(&params, (OptimName)(i / 3 % OPTIM_NAMES), i / (3 * OPTIM_NAMES), size, u);
        free(unit);
        params_free(&params);
    }
}

typedef struct {
    int64_t whole[3];
    double real[3];
    CommCount count[3];
} Sums;

static void sum_numbers(Comm *world, void *arg)
{
    Sums *s = arg;
    int rank = world->rank;
    s->whole[rank] = ddp_sum_int(world, (int64_t)1 << (40 + rank));
    s->real[rank] = ddp_sum(world, 1 + ldexp(1, -30 - rank));
    s->count[rank] = world->count[COMM_ALL_REDUCE];
}

// Valid tokens and losses of a step: a call for each, of one number of 64 bits.
TEST(test_sums)
{
    Sums s;
    comm_threads_run(3, sum_numbers, &s);
    for (int r = 0; r < 3; r++) {
        assert_true(s.whole[r] == 7ll << 40 && s.real[r] == 3 + ldexp(7, -32));
        assert_int_equal(s.count[r].calls, 2);
        assert_int_equal(s.count[r].payload, 2 * 8);
    }
}

static int uneven_share(void *arg)
{
    (void)arg;
    size_t begin;
    ddp_share(10, 0, 4, &begin);
    return 0;
}

// The shares cover every sample once (all ranks played here).
TEST_FIRST(test_share)
{
    for (int size = 1; size <= 6; size++) {
        size_t next = 0, begin;
        for (int rank = 0; rank < size; rank++) {
            size_t n = ddp_share(60, rank, size, &begin);
            assert_int_equal(begin, next);
            next = begin + n;
        }
        assert_int_equal(next, 60);
    }
    expect_die(uneven_share, NULL, "broken invariant");
}

TESTS(NULL, NULL)
