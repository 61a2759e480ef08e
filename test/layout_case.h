// layout_case.h: ranks of any layout as threads, with weights and optimizer state whose values say which element of
// which tensor they are. For the tests of sharded checkpoints.
#ifndef LAYOUT_CASE_H
#define LAYOUT_CASE_H
#include "ckpt_case.h"

#include "narrow/narrow.h"
#include "base/rng.h"
#include "parallel/tp.h"
#include "parallel/zero.h"

#include <unistd.h>

enum { MAX_RANKS = 8 };

// Large enough that 8-bit Adam keeps some of its tensors in blocks, the last of them short.
static const ModelShape llama = {
    .layers = 4, .channels = 16, .heads = 4, .kv_heads = 2, .head_size = 4, .ffn = 24, .vocab = 701, .context = 8,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

typedef struct {
    int tp, stages, replicas, zero; // rank = (replica * stages + stage) * tp + tp's rank
    bool store;                     // of the optimizer's state; zero 3: of the weights too
    bool narrow;                    // weights in bf16, masters in fp32
    int shard;                      // replicas that cut what zero cuts; 0: all
} Layout;

static inline int world_of(const Layout *l)
{
    return l->tp * l->stages * l->replicas;
}

typedef struct {
    Mem mem;
    Dev *cpu;
    Model model;
    Zero zero;
    Optim optim;
    OffloadSettings store;
    int replica;
    Comm tp; // this rank's place alone
} Rank;

// Stage i of a pipeline: layers i, and where there are enough of them layers i + stages too, as chunks of their own.
static inline ModelStage stage_of(const ModelShape *shape, int stage, int stages)
{
    size_t n = (size_t)stages, at = (size_t)stage, chunks = shape->layers % (2 * n) ? 1 : 2, pieces = chunks * n;
    ModelStage s = {.n_chunks = (int)chunks};
    for (size_t c = 0; c < chunks; c++) {
        size_t piece = c * n + at, first = shape->layers * piece / pieces;
        s.chunk[c] = (ModelPiece){.first = first, .layers = shape->layers * (piece + 1) / pieces - first,
                                  .embedding = piece == 0, .head = piece == pieces - 1};
    }
    return s;
}

// Where the weights of unit u are: in one of this rank's arrays, or in a store.
static inline void place_weights(Rank *r, const Layout *l)
{
    Model *m = &r->model;
    Zero *z = &r->zero;
    size_t n = (size_t)m->n_units, shard = z->cut.at[n];
    bool stored = l->store && (l->zero == 3 || l->narrow), sharded = l->zero == 3;
    if (!stored)
        m->weights = mem_alloc(&r->mem, MEM_PARAMS, (sharded ? shard : m->params.n_elems) * sizeof(float) + 1, "w");
    size_t sizes[16] = {0};
    for (size_t u = 0; u < n; u++) {
        size_t begin = z->cut.begin[u], count = z->cut.at[u + 1] - z->cut.at[u];
        z->range[u] = (OptimRange){.begin = begin, .end = begin + count,
                                   .weight = stored ? NULL : m->weights + (sharded ? z->cut.at[u] : begin)};
        sizes[u] = count * sizeof(float);
    }
    if (!stored || l->narrow) return;
    OffloadSettings set = r->store;
    set.sizes = sizes, set.n_items = (int)n, set.mem = &r->mem, set.tag = MEM_PARAMS;
    z->store = offload_create(&set);
}

static inline void rank_open(Rank *r, const Layout *l, int rank, OptimName name, const ModelShape *shape)
{
    *r = (Rank){.cpu = dev_cpu_create(1), .replica = rank / (l->tp * l->stages)};
    Model *m = &r->model;
    ModelShape part = tp_shape(shape, rank % l->tp, l->tp, false);
    ModelStage stage = stage_of(shape, rank / l->tp % l->stages, l->stages);
    Unit *units;
    model_describe_stage(&part, &stage, &m->params, &units);
    free(units);
    m->shape = *shape;
    m->n_units = m->params.n_units;
    m->dev = l->narrow ? narrow_create(r->cpu, (NarrowOptions){.x_type = X_BF16}) : r->cpu;
    m->mem = &r->mem;
    r->store = (OffloadSettings){.mode = OFFLOAD_CPU, .n_slots = 2};
    Zero *z = &r->zero;
    z->model = m;
    int row = l->shard ? l->shard : l->replicas;
    z->cut = zero_cut(&m->params, zero_where(optim_kind(name), false, l->tp), l->zero, r->replica % row, row);
    z->range = calloc((size_t)m->n_units, sizeof *z->range);
    if (!z->range) abort();
    place_weights(r, l);
    r->tp = (Comm){.rank = rank % l->tp, .size = l->tp};
    if (l->tp > 1) z->tp = &r->tp;
    z->set = (ZeroSettings){.stage = l->zero, .store = l->store ? &r->store : NULL};
    r->optim = zero_optim(z, (OptimSettings){.name = name});
}

static inline void rank_close(Rank *r)
{
    optim_free(&r->optim);
    offload_free(r->zero.store);
    offload_free(r->zero.state);
    if (r->model.dev != r->cpu) narrow_free(r->model.dev);
    zero_cut_free(&r->zero.cut);
    whole_free(r->zero.whole);
    free(r->zero.range);
    params_free(&r->model.params);
    mem_free_all(&r->mem);
    dev_cpu_free(r->cpu);
}

// The bytes of element i of a row's tensor in an array; no other element has them.
static inline void element(const char *prefix, const char *row, size_t i, void *out, size_t n_bytes)
{
    uint64_t key = 14695981039346656037u, value;
    for (const char *c = prefix; *c; c++) key = (key ^ (unsigned char)*c) * 1099511628211u;
    value = (uint64_t)(rng_uniform(rng_make(key, row, 0), i) * 4294967296.0);
    if (n_bytes == 4) value &= ~(UINT64_C(1) << 23); // a bit of the exponent: a finite number
    memcpy(out, &value, n_bytes);
}

// Walks over the elements of one array in one range, in the order in which they stand from `at` on: writes them, or
// counts those that are wrong. Returns the bytes walked over.
static inline size_t walk_range(const Rank *r, const CkptArray *array, const OptimRange *range, char *at, bool fill,
                                int *wrong)
{
    const Params *params = &r->model.params, *kept = array ? optim_table(&r->optim, &r->model) : params;
    size_t bytes = array ? safetensors_dtype_bytes(array->dtype) : sizeof(float), n_walked = 0;
    for (int i = 0; i < params->n_rows; i++) {
        const Param *row = &params->row[i];
        size_t low = row->offset > range->begin ? row->offset : range->begin, end = row->offset + row->n_elems;
        size_t high = end < range->end ? end : range->end;
        if (low >= high) continue;
        const Param *own = &kept->row[i];
        bool moved = own->dim[0] * own->dim[1] != row->n_elems; // to its owner, who has all of it
        size_t first = low - row->offset, n = high - low,
               all = array ? optim_kind_elems(array, kept, own) : row->n_elems;
        bool alike = all == row->n_elems && !moved;
        if (!alike && n == row->n_elems) n = all; // all of a row's rows, columns, blocks, or nothing
        else if (!alike && all) n = (first + n + UPDATE_BLOCK - 1) / UPDATE_BLOCK - first / UPDATE_BLOCK;
        else if (!alike) n = 0;
        if (!alike) first /= UPDATE_BLOCK;
        for (size_t j = 0; j < n; j++, n_walked += bytes) {
            char want[8];
            element(array ? array->prefix : "", row->name, alike ? params_whole_index(row, first + j) : first + j, want,
                    bytes);
            if (fill) memcpy(at + n_walked, want, bytes);
            else *wrong += memcmp(at + n_walked, want, bytes) != 0;
        }
    }
    return n_walked;
}

// One range of one array (n_states: the weights), wherever it is.
static inline void walk_place(Rank *r, int u, int s, bool fill, int *wrong)
{
    static const OptimRange everything = {.begin = 0, .end = SIZE_MAX};
    const Optim *o = &r->optim;
    const OptimRange *range = &r->zero.range[u];
    bool weights = s == o->kind->n_states;
    const CkptArray *array = weights ? NULL : &o->state[s];
    size_t n_bytes = 0, at = o->at ? optim_place_of(o, optim_table(o, &r->model), u, s, &n_bytes) : 0;
    if (weights && range->weight) walk_range(r, NULL, range, (char *)range->weight, fill, wrong);
    else if (!weights && !r->zero.state && !o->at) {
        if (u == 0) walk_range(r, array, &everything, array->data, fill, wrong);
    } else if (!weights && !r->zero.state) walk_range(r, array, range, (char *)array->data + at, fill, wrong);
    else {
        Offload *store = weights && r->zero.store ? r->zero.store : r->zero.state;
        if (store == r->zero.store) at = 0, n_bytes = (range->end - range->begin) * sizeof(float);
        char *buf = calloc(1, n_bytes + 1);
        if (!buf) abort();
        if (!fill) offload_read(store, u, at, buf, n_bytes);
        *wrong += walk_range(r, array, range, buf, fill, wrong) != n_bytes;
        if (fill) offload_write(store, u, at, buf, n_bytes);
        free(buf);
    }
}

static inline int rank_walk(Rank *r, bool fill)
{
    int wrong = 0;
    for (int u = 0; u < r->model.n_units; u++)
        for (int s = 0; s <= r->optim.kind->n_states; s++) walk_place(r, u, s, fill, &wrong);
    return wrong;
}

// What all ranks of a layout do together.
typedef struct {
    const char *run_dir;
    const Layout *layout;
    OptimName optim;
    const ModelShape *shape;
    long step; // save: of the checkpoint; load: of the one that was found, -1 for none
    int wrong[MAX_RANKS], pieces[MAX_RANKS], keep;
    bool ok[MAX_RANKS];
    char error[MAX_RANKS][1024];
    double extra[MAX_RANKS];
} Play;

static inline void play_save(Comm *world, void *arg)
{
    Play *p = arg;
    Rank r;
    int rank = world->rank;
    rank_open(&r, p->layout, rank, p->optim, p->shape);
    p->wrong[rank] = rank_walk(&r, true);
    CkptPart part = zero_part(&r.zero, &r.optim, true, r.replica, p->layout->replicas);
    p->pieces[rank] = part.n;
    double number = (double)p->step / 3;
    CkptExtra extra = {"number", 1, &number};
    CkptState state = {.step = p->step, .sample = (uint64_t)p->step * 8, .best_val = INFINITY,
                       .optim = r.optim.kind->name, .extra = &extra, .n_extra = 1};
    CkptRun run = {.run_dir = p->run_dir, .world = world, .keep = p->keep ? p->keep : 9};
    p->ok[rank] = ckpt_save_part(&run, &state, &part, p->error[rank], sizeof p->error[rank]);
    zero_part_free(&part);
    rank_close(&r);
}

static inline void play_load(Comm *world, void *arg)
{
    Play *p = arg;
    Rank r;
    int rank = world->rank;
    rank_open(&r, p->layout, rank, p->optim, p->shape);
    CkptPart part = zero_part(&r.zero, &r.optim, false, r.replica, p->layout->replicas);
    CkptExtra extra = {"number", 1, &p->extra[rank]};
    CkptState state = {.optim = r.optim.kind->name, .extra = &extra, .n_extra = 1};
    p->ok[rank] = ckpt_load_part(&(CkptRun){.run_dir = p->run_dir, .world = world, .keep = 9}, &part, &state);
    p->wrong[rank] = p->ok[rank] ? rank_walk(&r, false) : 0;
    if (p->ok[rank] && state.sample != (uint64_t)state.step * 8) p->wrong[rank]++;
    if (rank == 0) p->step = p->ok[rank] ? state.step : -1;
    zero_part_free(&part);
    rank_close(&r);
}

#endif
