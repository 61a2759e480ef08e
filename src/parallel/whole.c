// whole: whole tensors by owner.
//
// Muon multiplies a matrix with itself, Adafactor needs means of its rows, columns and of everything, 8-bit AdamW one
// scale for 2,048 neighbours, adaptive clipping the norm of a row. Tensor parallelism gives a rank a part of the
// matrix. One mechanism serves all four, and gives the bits of one rank:
//
//     gather     the parts of weights and gradients go to the owner        2 n (tp - 1) / tp elements of a tensor of n
//     work       the op of one process, on the whole tensor
//     scatter    the parts of the new weights (agc: gradients) go back     n (tp - 1) / tp
//
// The owner alone keeps the optimizer's state of the tensor. So the group keeps it once, as it does where nothing is collected.
// The buffers:
//
//     parts    what this rank sends of a round's tensors, then what it gets back
//     weight, grad    the owner's whole tensor
//     strips   the same in the order of ranks, where that is not its own order
//
// The invariant: owners, rounds and messages follow from the table, whose rows have the same order and the same whole
// sizes on all ranks of the group. ZeRO keeps the parts of one tensor on ranks of one group (zero_cut).
//
// Rejected: all ranks computing all tensors (tp times the work, and the state tp times); a mechanism for each
// optimizer: sums of rows and columns for Adafactor and clipping, distributed products for Muon (less is sent, but a sum
// over ranks has another order than one rank's, and there would be four mechanisms).
#include "parallel/zero.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

// ---- who owns what
//
// Rounds. In a round every rank owns one tensor at most; all gather at once, work at once, scatter at once, in three
// calls of all_to_all. Tensors are dealt in descending order of their cost in operations, each to the rank that has the
// least so far: the costs of ranks then differ by one tensor at most (Graham's list scheduling), and the tensors of a
// round cost about the same. Rounds do not cross the ranges of ZeRO, because each may have to come from a store.

static size_t whole_elems(const Param *row)
{
    return row->whole[0] * row->whole[1];
}

static bool needed(const Params *params, WholeNeed need, int r, int size)
{
    const Param *row = &params->row[r];
    if (!need.agc) return optim_needs_whole(need.kind, params, row, size);
    return r != grads_clip_classifier(params, need.tied) && grads_clip_needs_whole(row, need.unit, size);
}

// The most expensive row of [begin, end) without an owner, of those that need one; -1: none is left.
static int next_row(const Params *params, WholeNeed need, const WholePlan *plan, size_t begin, size_t end)
{
    int best = -1;
    double most = -1;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (plan->owner[r] >= 0 || row->offset < begin || row->offset >= end) continue;
        double cost = optim_cost(need.kind, params, row);
        if (cost > most && needed(params, need, r, plan->size)) most = cost, best = r;
    }
    return best;
}

// Least to do in this range; of those, least of all ranges.
static int idlest(const double *here, const double *ever, int size)
{
    int best = 0;
    for (int t = 1; t < size; t++)
        if (here[t] < here[best] || (here[t] == here[best] && ever[t] < ever[best])) best = t;
    return best;
}

// Rounds of one range, from `round` on; returns where they end.
static int plan_range(WholePlan *plan, const Params *params, WholeNeed need, size_t begin, size_t end, double *ever,
                      int round)
{
    int size = plan->size, n[size], rounds = 0;
    double here[size];
    for (int t = 0; t < size; t++) here[t] = n[t] = 0;
    for (int r; (r = next_row(params, need, plan, begin, end)) >= 0;) {
        int t = idlest(here, ever, size);
        double cost = optim_cost(need.kind, params, &params->row[r]);
        plan->owner[r] = t;
        plan->round[(round + n[t]) * size + t] = r;
        here[t] += cost, ever[t] += cost;
        if (++n[t] > rounds) rounds = n[t];
    }
    return round + rounds;
}

WholePlan whole_plan(const Params *params, WholeNeed need, const OptimRange *range, int n_ranges, int size)
{
    size_t n_rows = (size_t)params->n_rows, N = (size_t)size;
    if (!range) n_ranges = 1;
    bool any = false;
    for (int r = 0; r < params->n_rows; r++) any |= needed(params, need, r, size);
    if (!any) return (WholePlan){.size = size};
    WholePlan plan = {.size = size, .owner = malloc(n_rows * sizeof(int)), .round = malloc(n_rows * N * sizeof(int)),
                      .first = calloc((size_t)n_ranges + 1, sizeof(int))};
    if (!plan.owner || !plan.round || !plan.first) die("whole: no memory for a plan of %zu tensors", n_rows);
    for (size_t i = 0; i < n_rows; i++) plan.owner[i] = -1;
    for (size_t i = 0; i < n_rows * N; i++) plan.round[i] = -1;
    double ever[size];
    memset(ever, 0, sizeof ever);
    for (int k = 0; k < n_ranges; k++)
        plan.first[k + 1] = plan_range(&plan, params, need, range ? range[k].begin : 0,
                                       range ? range[k].end : params->n_elems, ever, plan.first[k]);
    return plan;
}

void whole_plan_free(WholePlan *plan)
{
    free(plan->owner);
    free(plan->round);
    free(plan->first);
    *plan = (WholePlan){0};
}

// ---- the parts of a tensor
//
// Parts. A cut along rows leaves parts that are contiguous in the whole; parts of a cut along columns are strips, which
// are copied to their places. Of copies (key/value heads on several ranks) the first goes to the owner, and all are
// given back.

typedef struct {
    size_t first, n; // indices along the cut
    size_t n_elems;
    bool counts;     // of those with the same elements, the one that sends them
} Part;

static Part part_of(const Param *row, int rank, int size)
{
    size_t whole = row->whole[row->cut];
    int copies = (int)(row->dim[row->cut] * (size_t)size / whole);
    if (copies < 1) copies = 1;
    Part part = {.first = unit_cut_first(whole, rank / copies, size / copies), .counts = rank % copies == 0};
    part.n = unit_cut_first(whole, rank / copies + 1, size / copies) - part.first;
    part.n_elems = part.n * (whole_elems(row) / whole);
    return part;
}

static size_t all_parts(const Param *row, int size)
{
    size_t n = 0;
    for (int t = 0; t < size; t++) n += part_of(row, t, size).n_elems;
    return n;
}

size_t whole_plan_bytes(const WholePlan *plan, const Params *params)
{
    size_t n = 0;
    for (int r = 0; plan->owner && r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (plan->owner[r] < 0) continue;
        Part own = part_of(row, plan->owner[r], plan->size);
        n += 2 * (whole_elems(row) - own.counts * own.n_elems) + all_parts(row, plan->size) - own.n_elems;
    }
    return n * sizeof(float);
}

// ---- gather, work, scatter

typedef struct {
    struct Whole *whole;
    WholePlan plan;
} Visit;

struct Whole {
    Model *model;
    Comm *group;
    Params kept; // OptimWhole.table
    Visit update, agc;
    float *weight, *grad, *parts, *strips;
};

static void copy(const Whole *w, float *out, const float *in, size_t rows, size_t width, size_t ld_out, size_t ld_in)
{
    Dev *dev = w->model->dev;
    size_t x = sizeof(float) / dev->x_bytes;
    dev->copy(dev, (X *)out, (const X *)in, rows, width * x, ld_out * x, ld_in * x);
}

static const Param *row_at(const Whole *w, int r)
{
    return r < 0 ? NULL : &w->model->params.row[r];
}

// Whether the parts in the order of ranks are not the tensor itself: in, as it is gathered; out, as it is scattered.
static bool in_strips(const Param *row, int size, bool out)
{
    return row && (row->cut == 1 || (out && all_parts(row, size) != whole_elems(row)));
}

// Between a tensor and its parts in the order of ranks, of copies all or the first.
static void rearrange(const Whole *w, const Param *row, float *tensor, float *strips, bool out)
{
    int size = w->group->size;
    bool columns = row->cut == 1;
    size_t rows = columns ? row->whole[0] : 1, ld = row->whole[1], at = 0;
    for (int t = 0; t < size; t++) {
        Part p = part_of(row, t, size);
        if (!out && !p.counts) continue;
        size_t width = p.n_elems / rows;
        float *place = tensor + (columns ? p.first : p.first * ld);
        if (out) copy(w, strips + at, place, rows, width, width, ld);
        else copy(w, place, strips + at, rows, width, ld, width);
        at += p.n_elems;
    }
}

// The parts of a round's tensors come from everyone's `own`, which begins at element `begin` of the flat order, to
// their owners; this rank's comes to `tensor`.
static void gather(Whole *w, const int *round, const float *own, size_t begin, float *tensor)
{
    Comm *group = w->group;
    size_t to[group->size], from[group->size], at = 0;
    const Param *mine = row_at(w, round[group->rank]);
    for (int t = 0; t < group->size; t++) {
        const Param *row = row_at(w, round[t]);
        Part p = mine ? part_of(mine, t, group->size) : (Part){0};
        from[t] = p.counts ? p.n_elems : 0;
        to[t] = row && part_of(row, group->rank, group->size).counts ? row->n_elems : 0;
        if (to[t]) copy(w, w->parts + at, own + (row->offset - begin), 1, to[t], to[t], to[t]);
        at += to[t];
    }
    bool strips = in_strips(mine, group->size, false);
    CommRequest request = comm_all_to_all(group, strips ? w->strips : tensor, w->parts, to, from, COMM_FP32);
    comm_wait(group, &request);
    if (strips) rearrange(w, mine, tensor, w->strips, false);
}

// The way back.
static void scatter(Whole *w, const int *round, float *own, size_t begin, float *tensor)
{
    Comm *group = w->group;
    size_t to[group->size], from[group->size], at = 0;
    const Param *mine = row_at(w, round[group->rank]);
    for (int t = 0; t < group->size; t++) {
        const Param *row = row_at(w, round[t]);
        to[t] = mine ? part_of(mine, t, group->size).n_elems : 0;
        from[t] = row ? row->n_elems : 0;
    }
    bool strips = in_strips(mine, group->size, true);
    if (strips) rearrange(w, mine, tensor, w->strips, true);
    CommRequest request = comm_all_to_all(group, w->parts, strips ? w->strips : tensor, to, from, COMM_FP32);
    comm_wait(group, &request);
    for (int t = 0; t < group->size; t++) {
        const Param *row = row_at(w, round[t]);
        if (row) copy(w, own + (row->offset - begin), w->parts + at, 1, from[t], from[t], from[t]);
        at += from[t];
    }
}

static void visit(void *self, int k, const OptimRange *range, bool grads, OptimWork work, void *arg)
{
    const Visit *v = self;
    Whole *w = v->whole;
    for (int i = v->plan.first[k]; i < v->plan.first[k + 1]; i++) {
        const int *round = v->plan.round + i * v->plan.size;
        int mine = round[w->group->rank];
        gather(w, round, range->weight, range->begin, w->weight);
        gather(w, round, range->grad, range->begin, w->grad);
        if (mine >= 0) work(arg, mine, w->weight, w->grad);
        scatter(w, round, grads ? range->grad : range->weight, range->begin, grads ? w->grad : w->weight);
    }
}

// ---- from beginning to end

// The rows that come together: whole on their owner, empty elsewhere.
static void keep_owned(Whole *w)
{
    const Params *params = &w->model->params;
    w->kept = *params;
    w->kept.row = malloc((size_t)params->n_rows * sizeof *params->row);
    if (!w->kept.row) die("whole: no memory for a table of %d tensors", params->n_rows);
    for (int r = 0; r < params->n_rows; r++) {
        Param *row = &w->kept.row[r];
        *row = params->row[r];
        if (w->update.plan.owner[r] < 0) continue;
        bool mine = w->update.plan.owner[r] == w->group->rank;
        for (int d = 0; d < PARAM_DIMS; d++) row->dim[d] = mine ? row->whole[d] : 0;
        row->first = 0;
    }
}

static void raise(size_t *most, size_t n)
{
    if (n > *most) *most = n;
}

// What a plan needs of the buffers, in elements.
static void sizes_of(const Whole *w, const WholePlan *plan, int n_ranges, size_t *whole, size_t *parts, size_t *strips)
{
    int size = plan->size;
    for (int i = 0; plan->owner && i < plan->first[n_ranges]; i++) {
        size_t n = 0;
        for (int t = 0; t < size; t++) {
            const Param *row = row_at(w, plan->round[i * size + t]);
            if (!row) continue;
            n += row->n_elems;
            if (t != w->group->rank) continue;
            raise(whole, whole_elems(row));
            if (in_strips(row, size, true)) raise(strips, all_parts(row, size));
        }
        raise(parts, n);
    }
}

static float *room(const Whole *w, size_t n)
{
    return n ? mem_alloc(w->model->mem, MEM_COMM, n * sizeof(float), "whole tensors") : NULL;
}

Whole *whole_create(Model *model, Comm *group, OptimSettings set, const OptimRange *range, int n_ranges)
{
    Whole *w = calloc(1, sizeof *w);
    if (!w) die("whole: no memory");
    const Params *params = &model->params;
    WholeNeed need = {.kind = optim_kind(set.name), .tied = model->shape.tie, .unit = set.agc_unit};
    w->model = model, w->group = group;
    w->update = (Visit){w, whole_plan(params, need, range, n_ranges, group->size)};
    need.agc = true;
    w->agc = (Visit){w, {0}};
    if (set.agc > 0) w->agc.plan = whole_plan(params, need, range, n_ranges, group->size);
    if (w->update.plan.owner) keep_owned(w);
    size_t whole = 0, parts = 0, strips = 0;
    if (!range) n_ranges = 1;
    sizes_of(w, &w->update.plan, n_ranges, &whole, &parts, &strips);
    sizes_of(w, &w->agc.plan, n_ranges, &whole, &parts, &strips);
    w->weight = room(w, whole), w->grad = room(w, whole), w->parts = room(w, parts), w->strips = room(w, strips);
    return w;
}

void whole_free(Whole *w)
{
    if (!w) return;
    whole_plan_free(&w->update.plan);
    whole_plan_free(&w->agc.plan);
    free(w->kept.row);
    free(w);
}

static OptimWhole handed(Visit *v)
{
    return v->plan.owner ? (OptimWhole){.owner = v->plan.owner, .visit = visit, .self = v} : (OptimWhole){0};
}

OptimWhole whole_of_update(Whole *w)
{
    OptimWhole whole = handed(&w->update);
    if (whole.owner) whole.table = &w->kept;
    return whole;
}

OptimWhole whole_of_agc(Whole *w)
{
    return handed(&w->agc);
}
