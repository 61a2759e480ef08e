// optim: one optimizer step over the parameter table: norm, clip, update.
//
//   norm, adaptive and global clipping as grads.c has them;  g *= grad_scale, and the factor of the global one;
//   then the update of the optimizer (updates.c, updates_matrix.c), row by row: optim_apply, optim_update
//
// The invariant: every element is updated exactly once per step with the decay and the lr_scale of its row,
// however the range is cut. Neighbouring rows that agree in both form one run where the optimizer looks at single
// elements, so that a step is a few long passes and not a call per tensor.
//
// A step decays a weight by lr * decay, so decay would shrink with lr_scale (muP, mup.c). It is divided by lr_scale, so
// that weights decay equally at all widths, as in the muP authors' own code.
//
// The factor of clipping is not applied by a pass of its own; each update multiplies by it as it reads g.
// Where weights are stored in less than fp32, the storage copy is renewed after each update.
#include "train/optim.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>

// ---- a range in memory: where it is, or lent by the store

typedef struct {
    OptimRange range;
    void *state[OPTIM_STATES];
} Lent;

static int ranges(const Optim *o)
{
    return o->range ? o->n_ranges : 1;
}

// Range k; a model of one rank has one, everything.
static Lent borrow(const Optim *o, const Model *model, int k)
{
    Lent lent = {.range = {0, model->params.n_elems, model->weights, model->grads, model->x_weights}};
    if (o->range) lent.range = o->range[k];
    int next = k + 1 < o->n_ranges ? k + 1 : -1;
    char *item = o->store.lend ? o->store.lend(o->store.self, k, next) : NULL;
    const size_t *at = o->at ? o->at + k * (o->kind->n_states + 2) : NULL;
    for (int s = 0; s < o->kind->n_states; s++) {
        char *start = item ? item : o->state[s].data;
        lent.state[s] = start && at ? start + at[s] : start;
    }
    if (!lent.range.weight && item) lent.range.weight = (float *)(item + at[o->kind->n_states]);
    if (!o->weights.lend) return lent;
    lent.range.x_weight = o->weights.lend(o->weights.self, k, next);
    if (o->fp32) lent.range.weight = (float *)lent.range.x_weight;
    return lent;
}

// The device that updates: the host's where updates run there.
static Dev *updater(const Optim *o, const Model *model)
{
    return o->host.dev ? o->host.dev : model->dev;
}

static void give_back(const Optim *o, int k, bool dirty)
{
    if (o->store.lend) o->store.give_back(o->store.self, k, dirty);
    if (o->weights.lend) o->weights.give_back(o->weights.self, k, dirty);
}

// ---- the rows of a range

// Whether an update may begin or end at element `at` of a row.
static bool may_cut(OptimCut cut, const Param *row, size_t at)
{
    if (at == 0 || at == row->n_elems || cut == OPTIM_ELEMENT) return true;
    return cut == OPTIM_BLOCK && at % UPDATE_BLOCK == 0;
}

// Whether one call may update both rows.
static bool alike(const Param *a, const Param *b)
{
    return a->decay == b->decay && a->lr_scale == b->lr_scale;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static bool comes_whole(const OptimWhole *whole, int row)
{
    return whole->owner && whole->owner[row] >= 0;
}

static void of_row(Update *u, const Optim *o, const Param *row, double lr)
{
    u->lr = (float)(lr * row->lr_scale);
    u->weight_decay = row->decay ? o->set.weight_decay / row->lr_scale : 0;
}

static X *x_at(const Model *model, const OptimRange *range, size_t elem)
{
    return (X *)((char *)range->x_weight + (elem - range->begin) * model->dev->x_bytes);
}

typedef struct {
    Optim *o;
    Model *model;
    const Lent *lent;
    double lr;
    Update u;
} WholeUpdate;

// ---- whole tensors, on the rank that owns them

// On the owner of a row that ranks hold in parts.
static void update_whole(void *arg, int r, float *weight, float *grad)
{
    WholeUpdate *a = arg;
    Optim *o = a->o;
    const Params *kept = optim_table(o, a->model);
    const Param *row = &kept->row[r];
    OptimPiece piece = {.row = row, .n = row->dim[0] * row->dim[1], .weight = weight, .grad = grad};
    for (int s = 0; s < o->kind->n_states; s++)
        piece.state[s] = (char *)a->lent->state[s] +
                         optim_range_elems(&o->state[s], kept, a->lent->range.begin, row->offset) *
                             safetensors_dtype_bytes(o->state[s].dtype);
    of_row(&a->u, o, row, a->lr);
    o->kind->update(o, a->model->dev, kept, piece, a->u);
}

// The rows of range k that come together; then, of this rank's parts: no gradients, new weights in the storage type.
static void update_wholes(Optim *o, Model *model, int k, const Lent *lent, double lr, Update u)
{
    const OptimRange *range = &lent->range;
    Dev *dev = model->dev;
    WholeUpdate update = {.o = o, .model = model, .lent = lent, .lr = lr, .u = u};
    if (!o->whole.owner) return;
    o->whole.visit(o->whole.self, k, range, false, update_whole, &update);
    for (int r = 0; r < model->params.n_rows; r++) {
        const Param *row = &model->params.row[r];
        if (!comes_whole(&o->whole, r) || row->offset < range->begin || row->offset >= range->end) continue;
        dev->zero(dev, range->grad + (row->offset - range->begin), row->n_elems * sizeof(float));
        if (dev->x_type != X_FP32)
            dev->to_x(dev, x_at(model, range, row->offset), range->weight + (row->offset - range->begin), row->n_elems);
    }
}

// The elements of [begin, end) that are in `range`, but for rows that come together; state: where the range's part of
// each array starts.
static void update_range(Optim *o, Model *model, const OptimRange *range, void *const *state, double lr, Update u,
                         size_t begin, size_t end)
{
    const Params *params = &model->params, *kept = optim_table(o, model);
    Dev *dev = updater(o, model);
    OptimPiece piece = {0};
    for (int s = 0; s < o->kind->n_states; s++) piece.state[s] = state[s];
    for (int i = 0, next; i < params->n_rows; i = next) {
        const Param *row = &params->row[i], *last = row;
        next = i + 1;
        if (o->kind->cut == OPTIM_ELEMENT)
            for (; next < params->n_rows && alike(row, &params->row[next]); next++) last = &params->row[next];
        // what this rank has of the rows, and what of that is updated
        size_t low = larger(row->offset, range->begin), high = smaller(last->offset + last->n_elems, range->end);
        size_t from = larger(low, begin), to = smaller(high, end);
        if (low >= high) continue;
        if (from < to && !comes_whole(&o->whole, i)) {
            check(may_cut(o->kind->cut, row, from - row->offset) && may_cut(o->kind->cut, row, to - row->offset));
            piece.row = row;
            piece.first = from - low;
            piece.n = to - from;
            piece.weight = range->weight + (from - range->begin);
            piece.grad = range->grad + (from - range->begin);
            of_row(&u, o, row, lr);
            u.copy = dev->x_type == X_FP32 ? NULL : x_at(model, range, from);
            o->kind->update(o, dev, params, piece, u);
            if (u.copy && o->kind->cut != OPTIM_ELEMENT) dev->to_x(dev, u.copy, piece.weight, piece.n);
        }
        for (int s = 0; s < o->kind->n_states; s++)
            piece.state[s] = (char *)piece.state[s] + optim_range_elems(&o->state[s], kept, low, high) *
                                                          safetensors_dtype_bytes(o->state[s].dtype);
    }
}

// ---- updates by the host

// Updates on the host (Ren et al., arXiv 2101.06840). Elements [begin, end) of a range, which the store has lent:
// gradients come down, and are zero on the device; what has been updated goes up. `there`: where the device has them.
static void bring_down(Optim *o, const Model *model, const OptimRange *there, OptimRange *here, size_t begin,
                       size_t end)
{
    size_t n = end - begin, at = begin - there->begin;
    model->dev->to_host(model->dev, o->host.grad + at, there->grad + at, n * sizeof(float));
    model->dev->zero(model->dev, there->grad + at, n * sizeof(float));
    o->host.down += n * sizeof(float);
    here->grad = o->host.grad;
    if (o->host.weight) here->x_weight = o->host.weight;
}

static void send_up(Optim *o, const Model *model, const OptimRange *there, const OptimRange *here, size_t begin,
                    size_t end)
{
    size_t n_bytes = (end - begin) * model->dev->x_bytes;
    OptimRange now = *here; // in the storage type
    if (o->weights.lend) return; // units read the store
    if (o->fp32) now.x_weight = (X *)here->weight;
    model->dev->to_device(model->dev, x_at(model, there, begin), x_at(model, &now, begin), n_bytes);
    o->host.up += n_bytes;
}

void optim_update(Optim *o, Model *model, double lr, double grad_scale, size_t begin, size_t end)
{
    Update u = {.beta1 = o->set.beta1, .beta2 = o->set.beta2, .eps = o->set.eps,
                .grad_scale = (float)grad_scale, .step = o->step, .cautious = o->set.cautious_decay};
    for (int k = 0; k < ranges(o); k++) {
        Lent lent = borrow(o, model, k);
        const OptimRange there = lent.range;
        size_t from = larger(begin, there.begin), to = smaller(end, there.end);
        bool here = o->host.dev && from < to;
        if (here) bring_down(o, model, &there, &lent.range, from, to);
        update_range(o, model, &lent.range, lent.state, lr, u, begin, end);
        if (here) send_up(o, model, &there, &lent.range, from, to);
        update_wholes(o, model, k, &lent, lr, u);
        give_back(o, k, true);
    }
}

// ---- norm, clip, update: one step

double optim_norm(const Optim *o, const Model *model)
{
    if (o->norm) return o->norm(o->self, o->grad_scale);
    return grads_norm(model->dev, &model->params, model->grads, o->grad_scale);
}

void optim_drop(Model *model)
{
    model->dev->zero(model->dev, model->grads, model_grads_held(model) * sizeof(float));
}

// Adaptive clipping, of rows that ranks hold in parts on their owner.
typedef struct {
    const Optim *o;
    const Model *model;
} Clip;

static void clip_whole(void *arg, int r, float *weight, float *grad)
{
    const Clip *a = arg;
    Param whole = a->model->params.row[r];
    for (int d = 0; d < PARAM_DIMS; d++) whole.dim[d] = whole.whole[d];
    grads_clip_agc(a->model->dev, &whole, weight, grad, a->o->grad_scale, a->o->set.agc, a->o->set.agc_unit);
}

static void clip_range(const Optim *o, const Model *model, int k)
{
    OptimRange r = borrow(o, model, k).range;
    Clip clip = {o, model};
    grads_clip_agc_range(model->dev, &model->params, model->shape.tie, r.weight, r.grad, r.begin, r.end, o->grad_scale,
                         o->set.agc, o->set.agc_unit, o->agc.owner);
    if (o->agc.owner) o->agc.visit(o->agc.self, k, &r, true, clip_whole, &clip);
    give_back(o, k, false);
}

void optim_apply(Optim *o, Model *model, double norm, double lr)
{
    check(isfinite(norm));
    if (o->set.agc > 0) {
        for (int k = 0; k < ranges(o); k++) clip_range(o, model, k);
        norm = optim_norm(o, model);
    }
    o->step++;
    optim_update(o, model, lr, o->grad_scale * grads_clip_factor(norm, o->set.clip), 0, model->params.n_elems);
}

double optim_step(Optim *o, Model *model, double lr)
{
    double norm = optim_norm(o, model);
    if (isfinite(norm)) optim_apply(o, model, norm, lr);
    else optim_drop(model);
    return norm;
}

// ---- where state is kept

enum { ALIGN = 16 }; // bytes, of the arrays in an item of the store

// Bytes of array s of a range; s = n_states: of its weights, where the store holds them.
static size_t part_bytes(const Optim *o, const Params *params, const OptimRange *range, int s)
{
    bool in_store = !range->weight && !(o->weights.lend && o->fp32);
    if (s == o->kind->n_states) return in_store ? (range->end - range->begin) * sizeof(float) : 0;
    return optim_range_elems(&o->state[s], params, range->begin, range->end) *
           safetensors_dtype_bytes(o->state[s].dtype);
}

// Of each range: where its part of each array and of the weights starts, and after the last where it ends.
static void place_ranges(Optim *o, const Params *params, bool stored, size_t sum[OPTIM_STATES])
{
    int n_states = o->kind->n_states, width = n_states + 2;
    o->at = calloc((size_t)(o->n_ranges * width + 1), sizeof *o->at);
    if (!o->at) die("optim: no memory for %d ranges", o->n_ranges);
    for (int k = 0; k < o->n_ranges; k++) {
        const OptimRange *range = &o->range[k];
        size_t *at = o->at + k * width, item = 0;
        for (int s = 0; s <= n_states; s++) {
            size_t n = part_bytes(o, params, range, s);
            at[s] = stored ? item : s < n_states ? sum[s] : 0;
            item += (n + ALIGN - 1) / ALIGN * ALIGN;
            if (s < n_states) sum[s] += n;
        }
        at[n_states + 1] = item;
    }
}

static void allocate_host(Optim *o, const Model *model, Dev *host)
{
    size_t most = 0;
    for (int k = 0; k < o->n_ranges; k++)
        if (o->range[k].end - o->range[k].begin > most) most = o->range[k].end - o->range[k].begin;
    check(o->kind->cut == OPTIM_ELEMENT && o->set.agc <= 0);
    o->host = (OptimHost){.dev = host, .grad = mem_alloc(model->mem, MEM_HOST, most * sizeof(float), "gradients")};
    if (!o->fp32 && !o->weights.lend)
        o->host.weight = (X *)mem_alloc(model->mem, MEM_HOST, most * model->dev->x_bytes, "new weights");
}

Optim optim_create_at(const Model *model, OptimSettings set, OptimPlace place)
{
    Optim o = {.set = set, .kind = optim_kind(set.name), .grad_scale = 1, .range = place.range,
               .n_ranges = place.n_ranges, .weights = place.weights, .whole = place.whole, .agc = place.agc,
               .fp32 = model->dev->x_type == X_FP32};
    const Params *kept = optim_table(&o, model);
    size_t sum[OPTIM_STATES] = {0};
    for (int s = 0; s < o.kind->n_states; s++) o.state[s] = o.kind->state[s];
    if (place.range) place_ranges(&o, kept, place.stored, sum);
    for (int s = 0; s < o.kind->n_states && !place.stored; s++) {
        CkptArray *array = &o.state[s];
        array->n_bytes = place.range ? sum[s] : optim_range_elems(array, kept, 0, kept->n_elems) *
                                                    safetensors_dtype_bytes(array->dtype);
        if (array->n_bytes) array->data = mem_alloc(model->mem, MEM_OPTIM, array->n_bytes, array->prefix);
    }
    if (place.host) allocate_host(&o, model, place.host);
    size_t n_scratch = optim_scratch_bytes(set.name, kept);
    if (n_scratch) o.scratch = mem_alloc(model->mem, MEM_SCRATCH, n_scratch, "optimizer");
    return o;
}

Optim optim_create(const Model *model, OptimSettings set)
{
    return optim_create_at(model, set, (OptimPlace){0});
}

void optim_free(Optim *o)
{
    free(o->at);
    o->at = NULL;
}

size_t optim_place_of(const Optim *o, const Params *params, int k, int s, size_t *n_bytes)
{
    check(o->at && s <= o->kind->n_states);
    *n_bytes = part_bytes(o, params, &o->range[k], s);
    return o->at[k * (o->kind->n_states + 2) + s];
}

size_t optim_item_bytes(const Optim *o, int k)
{
    return o->at[(k + 1) * (o->kind->n_states + 2) - 1];
}
