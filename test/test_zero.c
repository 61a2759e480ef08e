// test_zero: what replicas do where the bits and bytes of whole runs (test_layouts) do not tell: which elements and
// samples a rank has; when messages go out, and how many; gradients that travel in 16 bits; one process alone; and
// tensors that come together on their owners and go back.
#include "test/test.h"

#include "step_run.h"
#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "narrow/narrow.h"
#include "parallel/zero.h"
#include "train/grads.h"
#include "optim_case.h"
#include "train/replicas.h"
#include "ops/dev_cpu.h"
#include "parallel/tp.h"

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
} StepCase;

typedef struct {
    Mem mem;
    Dev *cpu, *dev;
    Comm *dp;
    Model *model;
    Zero *zero;
    Optim optim;
    OffloadSettings store;
} Replica;

static void replica_open(Replica *r, Comm *world, const StepCase *c)
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

static void one_step(Replica *r, const StepCase *c)
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
    StepCase *c = arg;
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
        StepCase c = {.shape = &gpt, .micro = 2 + i % 2 * 2, .overlap = true, .bucket = bucket[i / 2]};
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
    const StepCase *c = arg;
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
        StepCase c = {.shape = families[i / 2 % 2], .micro = 4, .stage = 3, .reshard = true, .overlap = i % 2,
                  .deeper = i / 4 - 1};
        comm_threads_run(2, play_spied, &c);
    }
}

// Reading ahead changes when weights are read from their store, not how often.
TEST(test_overlap_reads_as_often)
{
    for (int i = 0; i < 4; i++) {
        StepCase r[2];
        for (int k = 0; k < 2; k++) {
            r[k] = (StepCase){.shape = families[i % 2], .micro = 2, .stage = 3, .reshard = i / 2, .overlap = k,
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
        StepCase c[2];
        for (int k = 0; k < 2; k++) {
            c[k] = (StepCase){.shape = families[i % 2], .micro = 4, .stage = i / 2, .overlap = true, .reshard = true,
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
    expect_dies("broken invariant", {
        size_t begin;
        ddp_share(10, 0, 4, &begin);
    });
}

// ---- replicas: one process alone, as a training step sees it: all sequences, sums and answers are its own; its units'
// ranges, and the pieces of its checkpoint, which are every element of the weights and of the optimizer's arrays once.
// (Several processes: test_layouts.)

TEST(test_alone)
{
    Replicas r = replicas_alone(NULL);
    int told = 7;
    bool takes_part = false;
    char layout[40];
    assert_true(r.rank == 0 && r.size == 1 && r.cores == 1);
    size_t first = 7;
    assert_true(replicas_share(&r, 24, &first) == 24 && first == 0);
    assert_int_equal(replicas_sum_targets(&r, -5), -5);
    assert_true(replicas_sum(&r, 2.5) == 2.5 && replicas_any(&r, true) && !replicas_any(&r, false));
    replicas_tell(&r, &told, sizeof told);
    assert_int_equal(told, 7);
    replicas_wait(&r), replicas_agree(&r, 3);
    replicas_phase(&r, 3, "step"), replicas_alive(&r); // to no supervisor
    assert_null(replicas_evaluation(&r));
    assert_null(replicas_sampling(&r, &takes_part).next_logits);
    assert_true(takes_part);
    replicas_describe(&r, layout, sizeof layout);
    assert_string_equal(layout, "dp 1");
}

TEST(test_ranges)
{
    Case c;
    case_open(&c, OPTIM_ADAMW, 1);
    Replicas r = replicas_alone(NULL);
    r.model = &c.model, r.optim = &c.optim;
    size_t next = 0;
    float *copy = zeroed(c.n * sizeof *copy);
    for (int unit = 0; unit < c.model.params.n_units; unit++) {
        OptimRange range;
        assert_true(replicas_range(&r, unit, &range));
        assert_int_equal(range.begin, next);
        assert_ptr_equal(range.weight, c.model.weights + range.begin);
        assert_ptr_equal(range.grad, c.model.grads + range.begin);
        next = range.end;
        replicas_read_weights(&r, unit, copy);
        assert_memory_equal(copy, range.weight, (range.end - range.begin) * sizeof *copy);
    }
    assert_int_equal(next, c.n);
    free(copy);
    case_close(&c);
}

// Each byte of the weights and of each array is that of one piece; pieces go out, and come back to where they were.
TEST(test_pieces)
{
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c;
        case_open(&c, (OptimName)name, 1);
        Replicas r = replicas_alone(NULL);
        r.model = &c.model, r.optim = &c.optim;
        CkptPart part = replicas_checkpoint(&r, true);
        assert_int_equal(part.n_arrays, c.optim.kind->n_states);
        int k = 0;
        for (int a = -1; a < part.n_arrays; a++) {
            const CkptArray *array = a < 0 ? NULL : &c.optim.state[a];
            size_t n_elems = array ? optim_range_elems(array, &c.model.params, 0, c.n) : c.n, at = 0;
            size_t n_bytes = n_elems * (array ? safetensors_dtype_bytes(array->dtype) : 4);
            unsigned char *data = array ? array->data : c.model.weights;
            for (size_t i = 0; i < n_bytes; i++) data[i] = (unsigned char)(i % 251);
            for (int row = -1; k < part.n && part.piece[k].array == a; k++) {
                const CkptPiece *piece = &part.piece[k];
                size_t bytes = ckpt_piece_bytes(&part, piece);
                unsigned char *out = zeroed(bytes);
                assert_true(piece->row > row && piece->unit == c.model.params.row[piece->row].unit);
                row = piece->row;
                assert_true(piece->slice.cut == -1 && piece->slice.from == 0);
                if (!array) assert_true(ckpt_slice_is_whole(&piece->slice, c.model.params.row[row].dim));
                part.move(part.self, piece, out, true);
                for (size_t i = 0; i < bytes; i++) assert_int_equal(out[i], (at + i) % 251);
                memset(data + at, 255, bytes);
                part.move(part.self, piece, out, false);
                for (size_t i = 0; i < n_bytes; i++) assert_int_equal(data[i], i % 251);
                at += bytes;
                free(out);
            }
            assert_int_equal(at, n_bytes);
        }
        assert_int_equal(k, part.n);
        replicas_checkpoint_free(&r, &part);
        case_close(&c);
    }
}

// ---- whole: tensors that tensor-parallel ranks (threads) hold in parts come together on their owners and go back:
// each element once, in its place, for uneven vocabularies and for key/value heads with copies; who owns what; bytes
// sent.

static const ModelShape whole_gpt = {
    .layers = 2, .channels = 24, .heads = 6, .kv_heads = 6, .head_size = 4, .ffn = 96,
    .vocab = 700, .context = 117, .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
// Two key/value heads: of four ranks two and two have the same.
static const ModelShape whole_llama = {
    .layers = 4, .channels = 64, .heads = 4, .kv_heads = 2, .head_size = 16, .ffn = 192,
    .vocab = 701, .context = 8, .norm = NORM_RMSNORM, .norm_eps = 1e-5f,
    .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

enum { ROWS = 64, RANKS = 4 };

typedef struct {
    const ModelShape *shape;
    OptimName name;
    bool agc;
    ClipUnit unit;
    int worked[RANKS][ROWS], n_rows; // how often each rank worked on each row
    bool moved[ROWS];
    size_t sent[RANKS], planned;
} Play;

typedef struct {
    Play *play;
    const Params *params;
    int rank;
} Worker;

// Of element i of row r's tensor; exact.
static float value(int r, size_t i)
{
    return (float)(((size_t)r * 100003 + i) % 4000000);
}

static void work(void *arg, int r, float *weight, float *grad)
{
    Worker *w = arg;
    const Param *row = &w->params->row[r];
    for (size_t i = 0; i < row->whole[0] * row->whole[1]; i++) {
        if (weight[i] != value(r, i) || grad[i] != -value(r, i))
            fail_msg("%s: element %zu is %g, its gradient %g", row->name, i, (double)weight[i], (double)grad[i]);
        if (w->play->agc) grad[i] = value(r, i) + 1;
        else weight[i] = value(r, i) + 1;
    }
    w->play->worked[w->rank][r]++;
}

static bool in_parts(const Param *row)
{
    return row->cut >= 0 && row->dim[row->cut] != row->whole[row->cut];
}

static void whole_play(Comm *world, void *arg)
{
    Play *p = arg;
    ModelShape part = tp_shape(p->shape, world->rank, world->size, false);
    Model m = {.shape = *p->shape, .local = part, .dev = dev_cpu_create(1)};
    Mem mem = {0};
    Unit *units;
    m.mem = &mem;
    model_describe(&part, &m.params, &units);
    size_t n = m.params.n_elems;
    float *weight = malloc(n * sizeof *weight), *grad = malloc(n * sizeof *grad);
    if (!weight || !grad) abort();
    assert_true(m.params.n_rows <= ROWS);
    for (int r = 0; r < m.params.n_rows; r++)
        for (size_t j = 0; j < m.params.row[r].n_elems; j++) {
            float v = value(r, params_whole_index(&m.params.row[r], j));
            weight[m.params.row[r].offset + j] = v, grad[m.params.row[r].offset + j] = -v;
        }
    OptimSettings set = {.name = p->name, .agc = p->agc ? 0.1f : 0, .agc_unit = p->unit};
    Whole *whole = whole_create(&m, world, set, NULL, 0);
    OptimWhole is = p->agc ? whole_of_agc(whole) : whole_of_update(whole);
    Worker worker = {p, &m.params, world->rank};
    OptimRange all = {.end = n, .weight = weight, .grad = grad};
    is.visit(is.self, 0, &all, p->agc, work, &worker);
    for (int r = 0; r < m.params.n_rows; r++) {
        const Param *row = &m.params.row[r];
        bool moved = is.owner[r] >= 0;
        if (world->rank == 0) p->moved[r] = moved;
        for (size_t j = 0; j < row->n_elems; j++) {
            float v = value(r, params_whole_index(row, j)), now = v + (float)moved;
            assert_true(weight[row->offset + j] == (p->agc ? v : now));
            assert_true(grad[row->offset + j] == (p->agc && moved ? now : -v));
        }
        assert_true(!moved || in_parts(row));
        if (!is.table) continue;
        const Param *kept = &is.table->row[r];
        size_t want = !moved ? row->n_elems : is.owner[r] == world->rank ? row->whole[0] * row->whole[1] : 0;
        assert_int_equal(kept->dim[0] * kept->dim[1], want);
    }
    p->n_rows = m.params.n_rows;
    p->sent[world->rank] = world->count[COMM_ALL_TO_ALL].sent;
    WholeNeed need = {.kind = optim_kind(p->name), .agc = p->agc, .unit = p->unit};
    WholePlan plan = whole_plan(&m.params, need, NULL, 0, world->size);
    if (world->rank == 0) p->planned = whole_plan_bytes(&plan, &m.params);
    whole_plan_free(&plan);
    whole_free(whole);
    mem_free_all(&mem);
    params_free(&m.params);
    dev_cpu_free(m.dev);
    free(units), free(weight), free(grad);
}

TEST(test_there_and_back)
{
    static const struct {
        const ModelShape *shape;
        int ranks;
        OptimName name;
        bool agc;
        ClipUnit unit;
        int moved; // rows that come together
    } is[] = {{&whole_gpt, 3, OPTIM_ADAFACTOR, false, CLIP_ROW, 2 + 2 * 10},
              {&whole_gpt, 2, OPTIM_MUON, false, CLIP_ROW, 2 * 6},
              {&whole_gpt, 3, OPTIM_ADAMW, true, CLIP_TENSOR, 1 + 2 * 10},
              {&whole_gpt, 2, OPTIM_ADAMW, true, CLIP_ROW, 2 * 6},
              {&whole_llama, 4, OPTIM_MUON, false, CLIP_ROW, 4 * 7},
              {&whole_llama, 4, OPTIM_NORMUON, false, CLIP_ROW, 4 * 7},
              {&whole_llama, 2, OPTIM_ADAFACTOR, false, CLIP_ROW, 30},
              {&whole_llama, 4, OPTIM_ADAMW8BIT, false, CLIP_ROW, 2 + 4 * 5},
              {&whole_llama, 4, OPTIM_LION, true, CLIP_ROW, 4 * 2}};
    for (size_t i = 0; i < sizeof is / sizeof *is; i++) {
        Play p = {.shape = is[i].shape, .name = is[i].name, .agc = is[i].agc, .unit = is[i].unit};
        comm_threads_run(is[i].ranks, whole_play, &p);
        size_t sent = 0;
        int moved = 0;
        for (int r = 0; r < p.n_rows; r++) {
            int times = 0;
            for (int t = 0; t < is[i].ranks; t++) times += p.worked[t][r];
            assert_int_equal(times, p.moved[r]);
            moved += p.moved[r];
        }
        for (int t = 0; t < is[i].ranks; t++) sent += p.sent[t];
        if (moved != is[i].moved) fail_msg("case %zu: %d tensors came together", i, moved);
        assert_int_equal(sent, p.planned);
    }
}

// Graham: dealt in descending order, each to the idlest, costs differ by one tensor at most. All ranks agree.
TEST(test_balance)
{
    for (int tp = 2; tp <= 4; tp++) {
        double most = 0, least = 0, largest = 0;
        int first[ROWS];
        if (whole_llama.heads % (size_t)tp) continue;
        for (int rank = 0; rank < tp; rank++) {
            ModelShape part = tp_shape(&whole_llama, rank, tp, false);
            Params params;
            Unit *units;
            model_describe(&part, &params, &units);
            WholeNeed need = {.kind = optim_kind(OPTIM_MUON)};
            WholePlan plan = whole_plan(&params, need, NULL, 0, tp);
            double cost[RANKS] = {0};
            for (int r = 0; r < params.n_rows; r++) {
                if (rank == 0) first[r] = plan.owner[r];
                assert_int_equal(plan.owner[r], first[r]);
                if (plan.owner[r] < 0) continue;
                double c = optim_cost(need.kind, &params, &params.row[r]);
                cost[plan.owner[r]] += c;
                if (c > largest) largest = c;
            }
            most = least = cost[0];
            for (int t = 1; t < tp; t++) most = fmax(most, cost[t]), least = fmin(least, cost[t]);
            assert_true(most > 0 && most - least <= largest);
            whole_plan_free(&plan);
            params_free(&params);
            free(units);
        }
    }
    // the products of Newton-Schulz: five times 4 k^2 m + 2 k^3
    Param row = {.ndim = 2, .whole = {8, 3}, .dim = {8, 3}, .unit = 1};
    Params table = {.row = &row, .n_rows = 1, .n_units = 3};
    assert_true(optim_cost(optim_kind(OPTIM_MUON), &table, &row) == 5 * (4.0 * 9 * 8 + 2 * 27));
    assert_true(optim_cost(optim_kind(OPTIM_ADAFACTOR), &table, &row) == 24);
}

// 700 tokens on three ranks are 233, 233 and 234: cut by what a rank has, its embedding of 117 positions would be cut
// elsewhere on the third.
TEST(test_zero_cuts_between_the_same_tensors)
{
    for (int size = 2; size <= 5; size++)
        for (int replica = 0; replica < size; replica++) {
            int first[8];
            for (int rank = 0; rank < 3; rank++) {
                ModelShape part = tp_shape(&whole_gpt, rank, 3, false);
                Params params;
                Unit *units;
                model_describe(&part, &params, &units);
                ZeroCut cut = zero_cut(&params, zero_where(optim_kind(OPTIM_ADAMW8BIT), false, 3), 1, replica, size);
                for (int u = 0; u < params.n_units; u++) {
                    int row = 0;
                    while (row < params.n_rows && params.row[row].offset < cut.begin[u]) row++;
                    assert_true(row == params.n_rows || params.row[row].offset == cut.begin[u]);
                    if (rank == 0) first[u] = row;
                    assert_int_equal(row, first[u]);
                }
                zero_cut_free(&cut);
                params_free(&params);
                free(units);
            }
        }
}

TESTS(NULL, NULL)
