// zero: stages 1, 2 and 3 of ZeRO (Rajbhandari et al., arXiv 1910.02054; stage 3 as in PyTorch's FSDP, arXiv
// 2304.11277). doc/zero.md explains each part, and what is sent.
//
//   what is sharded   1: optimizer state; 2: gradients too; 3: weights too
//   when gathered     1, 2: after the update, all units. 3: a unit before its forward, and again before its backward
//   when reduced      1: after the last micro-batch's backward of a unit. 2, 3: after each micro-batch's
//
// Deterministic: gradients as in stage 1. With memory.offload the shards are in a store (offload.h), which lends a
// unit's shard while it is gathered.
//
// Each unit's elements, in flat order, are cut into N ranges, one a rank (zero_cut.c), so one all_gather gathers a unit
// and one reduce_scatter reduces it. A rank's shard is its ranges back to back.
//
// Gathered weights are in slots: one for the embedding, one for the head, D + 1 in which blocks take turns, block i in
// slot i modulo D + 1, where D is `prefetch`. A unit that stays gathered until the update has a slot of its own.
// Gradients during their reduction are in slots too: embedding, head, and two for blocks (odd and even).
//
// The invariants. A unit reads weights only between its gather's end and the next update. A gradient slot is written
// only when the reduction that reads it has ended. Every element of a gradient is in exactly one reduction for each
// micro-batch (stage 1: for each step).
//
// A tied head borrows the embedding's weights, and adds to its gradient. So the embedding's weights stay from its
// forward to the head's; in backward its gradient is opened by the head and reduced after the embedding's own backward.
// Hybrid sharding: of the R data-parallel ranks N in a row have a shard each (dp, `group` and `cut` are of a row of
// ranks), and a column has R / N copies of a shard, whose sum is added once a step, in fp32 (to_copies).
#include "parallel/zero.h"

#include "base/check.h"

#include <stdlib.h>

// ---- units, and this rank's part of each

static size_t unit_elems(const Zero *z, int unit)
{
    size_t begin, end;
    params_unit_range(&z->model->params, unit, &begin, &end);
    return end - begin;
}

static size_t own_elems(const Zero *z, int unit)
{
    return z->cut.at[unit + 1] - z->cut.at[unit];
}

static const size_t *counts(const Zero *z, int unit)
{
    return z->cut.count + (size_t)unit * (size_t)z->cut.size;
}

// Where this rank's range starts within the unit.
static size_t own_first(const Zero *z, int unit)
{
    return z->cut.begin[unit] - z->model->unit_begin[unit];
}

static X *x_at(const Zero *z, X *array, size_t elem)
{
    return (X *)((char *)array + elem * z->model->dev->x_bytes);
}

static int head_of(const Zero *z)
{
    return z->model->n_units - 1;
}

// A unit that runs (Model.unit) has one unit of the parameter table, or two where ranks divide its experts.
static int tensors_of(const Zero *z, int unit, int own[2])
{
    const Unit *u = &z->model->unit[unit];
    own[0] = u->home, own[1] = u->home + 1;
    return 1 + u->apart;
}

static ZeroSlot *weight_slot(const Zero *z, int unit)
{
    return &z->weights[z->place[unit]];
}

// Whether a unit's gathered weights stay until the next update.
static bool stays(const Zero *z, int unit)
{
    return !z->set.reshard || unit_elems(z, unit) < z->set.keep;
}

// ---- when gathered

// The gather into a slot ends; what it read goes back to the store.
static void end_gather(Zero *z, ZeroSlot *slot)
{
    if (slot->unit >= 0) comm_wait(z->group[slot->unit], &slot->request);
    if (slot->lent) offload_release(z->store, slot->unit, false);
    slot->lent = false;
}

// The unit's weights come into its slot.
static void gather(Zero *z, int unit)
{
    ZeroSlot *slot = weight_slot(z, unit);
    if (slot->unit == unit) return;
    end_gather(z, slot);
    slot->unit = unit;
    slot->lent = z->store != NULL;
    const X *own = z->store ? offload_wait(z->store, unit) : x_at(z, z->model->x_weights, z->cut.at[unit]);
    slot->request = comm_all_gather(z->group[unit], slot->data, own, counts(z, unit),
                                    comm_type_of(z->model->dev->x_type));
}

static void need(Zero *z, int unit)
{
    ZeroSlot *slot = weight_slot(z, unit);
    gather(z, unit);
    end_gather(z, slot);
    z->model->unit_weight[unit] = slot->data;
}

static void drop(Zero *z, int unit)
{
    ZeroSlot *slot = weight_slot(z, unit);
    if (slot->unit != unit) return;
    end_gather(z, slot);
    slot->unit = -1;
    z->model->unit_weight[unit] = NULL;
}

static bool exists(const Zero *z, int unit)
{
    return unit >= 0 && unit <= head_of(z);
}

// Before a unit runs: its weights, and, while it runs, those of the next ones; from the store, those of the one after
// them.
static void weights_before(Zero *z, int unit, UnitPass pass)
{
    int own[2], n = tensors_of(z, unit, own);
    for (int i = 0; i < n; i++) need(z, own[i]);
    if (unit == head_of(z) && z->tied) need(z, 0);
    int way = pass == PASS_FORWARD ? 1 : -1, next = unit + way;
    if (!z->set.overlap || pass == PASS_AGAIN) return;
    for (int k = 0; k < z->set.prefetch && exists(z, next); k++, next += way) {
        n = tensors_of(z, next, own);
        for (int i = 0; i < n; i++) gather(z, own[i]);
    }
    if (!z->store || !exists(z, next)) return;
    n = tensors_of(z, next, own);
    for (int i = 0; i < n; i++)
        if (weight_slot(z, own[i])->unit != own[i]) offload_fetch(z->store, own[i]);
}

static void weights_after(Zero *z, int unit, UnitPass pass)
{
    if (pass == PASS_AGAIN) return;
    bool lent = z->tied && unit == 0 && pass == PASS_FORWARD; // until the head has run
    int own[2], n = tensors_of(z, unit, own);
    for (int i = 0; i < n && !lent; i++)
        if (!stays(z, own[i])) drop(z, own[i]);
    if (z->tied && unit == head_of(z) && pass == PASS_FORWARD && !stays(z, 0)) drop(z, 0);
}

// All units' weights, from the ranks that have updated them, in place.
static void gather_all(Zero *z)
{
    Model *m = z->model;
    for (int u = 0; u < m->params.n_units; u++) {
        CommRequest *gather = &z->sum[u].scatter; // the requests of the sums are free now
        *gather = comm_all_gather(z->group[u], x_at(z, m->x_weights, m->unit_begin[u]), z->range[u].x_weight,
                                  counts(z, u), comm_type_of(m->dev->x_type));
        if (!z->set.overlap) comm_wait(z->group[u], gather);
    }
    for (int u = 0; u < m->params.n_units; u++) comm_wait(z->group[u], &z->sum[u].scatter);
}

// The table that the lookup reads in fp32, from the ranks' master weights.
static void gather_table(Zero *z)
{
    Model *m = z->model;
    if (!m->table || !m->shard.weights) return;
    CommRequest request = comm_all_gather(z->group[0], m->table, z->range[0].weight, counts(z, 0), COMM_FP32);
    comm_wait(z->group[0], &request);
}

// ---- when reduced

// The sum over the ranks comes to this rank's place in grads; with narrow, in that.
static CommRequest reduce_scatter(Zero *z, int unit, float *grads, X *narrow)
{
    Dev *dev = z->model->dev;
    size_t first = own_first(z, unit);
    if (!narrow)
        return comm_reduce_scatter(z->group[unit], grads + first, grads, counts(z, unit), COMM_FP32, COMM_SUM);
    dev->to_x(dev, narrow, grads, unit_elems(z, unit));
    return comm_reduce_scatter(z->group[unit], x_at(z, narrow, first), narrow, counts(z, unit),
                               comm_type_of(dev->x_type), COMM_SUM);
}

// What came in 16 bits is fp32 again.
static void widen(const Zero *z, int unit, float *grads, X *narrow)
{
    Dev *dev = z->model->dev;
    if (narrow) dev->from_x(dev, grads + own_first(z, unit), x_at(z, narrow, own_first(z, unit)), own_elems(z, unit));
}

// This rank's range of a unit's gradient, once it is the sum over the row of ranks, becomes the sum over all ranks.
static void to_copies(Zero *z, int unit)
{
    ZeroSum *sum = &z->sum[unit];
    float *grad = z->range[unit].grad;
    if (!z->copies || sum->sent) return;
    sum->sent = true;
    sum->copies = comm_all_reduce(z->copies, grad, grad, own_elems(z, unit), COMM_FP32, COMM_SUM);
    if (!z->set.overlap) comm_wait(z->copies, &sum->copies);
}

// Stage 1, and deterministic: the whole gradient of a unit, in place.
static void reduce_whole(Zero *z, int unit)
{
    Model *m = z->model;
    ZeroSum *sum = &z->sum[unit];
    if (sum->started) return;
    sum->started = true;
    sum->scatter = reduce_scatter(z, unit, m->grads + m->unit_begin[unit],
                                  z->narrow ? x_at(z, z->narrow, m->unit_begin[unit]) : NULL);
    if (!z->set.overlap) comm_wait(z->group[unit], &sum->scatter);
}

// The end of reduce_whole.
static void finish_whole(Zero *z, int unit)
{
    ZeroSum *sum = &z->sum[unit];
    size_t begin = z->model->unit_begin[unit];
    if (sum->ended) return;
    sum->ended = true;
    comm_wait(z->group[unit], &sum->scatter);
    widen(z, unit, z->model->grads + begin, z->narrow ? x_at(z, z->narrow, begin) : NULL);
    to_copies(z, unit);
}

// The sum over the ranks in a slot, once it is there, enters the shard.
static void finish_slot(Zero *z, ZeroSlot *slot)
{
    if (slot->unit < 0) return;
    comm_wait(z->group[slot->unit], &slot->request);
    widen(z, slot->unit, slot->data, slot->narrow);
    z->model->dev->accumulate(z->model->dev, z->range[slot->unit].grad,
                              (float *)slot->data + own_first(z, slot->unit), own_elems(z, slot->unit));
    z->model->unit_grad[slot->unit] = NULL;
    if (slot->complete) to_copies(z, slot->unit);
    slot->unit = -1;
}

// A unit's gradient begins at zero in its slot.
static void open_slot(Zero *z, int unit)
{
    ZeroSlot *slot = &z->grads[z->slot[unit]];
    if (slot->unit == unit && z->model->unit_grad[unit]) return; // the embedding's, opened by a tied head
    finish_slot(z, slot);
    z->model->dev->zero(z->model->dev, slot->data, unit_elems(z, unit) * sizeof(float));
    slot->unit = unit;
    z->model->unit_grad[unit] = slot->data;
}

static void reduce_slot(Zero *z, int unit)
{
    ZeroSlot *slot = &z->grads[z->slot[unit]];
    slot->request = reduce_scatter(z, unit, slot->data, slot->narrow);
    slot->complete = z->last && z->set.overlap; // on a pipeline's stage a unit is reduced for each of its actions
    z->model->unit_grad[unit] = NULL;
    if (!z->set.overlap) finish_slot(z, slot);
}

static void grads_before(Zero *z, int unit)
{
    int own[2], n = tensors_of(z, unit, own);
    for (int i = 0; i < n; i++) open_slot(z, own[i]);
    if (unit == head_of(z) && z->tied) open_slot(z, 0);
}

// ---- the borders of units

// Deferred gradients of weights read weights where buffers are restored first (recompute.h).
static bool reads_weights(const Zero *z, UnitPass pass)
{
    return pass != PASS_LATER || recompute_restores(z->model->pool.policy.mode);
}

// Whether whole gradients are reduced as backward leaves the units.
static bool overlapped(const Zero *z)
{
    return !z->model->shard.grads && z->last && z->set.overlap && !z->model->dev->deterministic;
}

static void before(void *self, int unit, UnitPass pass)
{
    Zero *z = self;
    Model *m = z->model;
    if (m->shard.x_weights && reads_weights(z, pass)) weights_before(z, unit, pass);
    if (m->shard.grads && pass >= PASS_BACKWARD) grads_before(z, unit);
    if (z->set.overlap) comm_progress(z->dp);
}

static void after(void *self, int unit, UnitPass pass)
{
    Zero *z = self;
    Model *m = z->model;
    if (m->shard.x_weights && reads_weights(z, pass)) weights_after(z, unit, pass);
    if (pass >= PASS_BACKWARD) {
        int own[2], n = tensors_of(z, unit, own);
        for (int i = n - 1; i >= 0; i--) {
            if (m->shard.grads) reduce_slot(z, own[i]);
            else if (overlapped(z)) reduce_whole(z, own[i]);
        }
        // with copies, the sum over the row ends while two more units compute, and the one over the column begins
        int above = overlapped(z) && z->copies && unit + 2 <= head_of(z) ? tensors_of(z, unit + 2, own) : 0;
        for (int i = above - 1; i >= 0; i--) finish_whole(z, own[i]);
    }
    if (z->set.overlap) comm_progress(z->dp);
}

void zero_micro(Zero *z, bool last)
{
    z->last = last;
    if (z->ddp) ddp_micro(z->ddp, last);
}

void zero_reduce(Zero *z)
{
    if (z->ddp) ddp_finish(z->ddp);
    if (z->cut.size == 1) return;
    int n_units = z->model->params.n_units;
    for (int i = 0; z->model->shard.grads && i < z->n_slots; i++) finish_slot(z, &z->grads[i]);
    for (int u = n_units - 1; !z->model->shard.grads && u >= 0; u--) reduce_whole(z, u);
    for (int u = n_units - 1; !z->model->shard.grads && u >= 0; u--) finish_whole(z, u);
    for (int u = n_units - 1; u >= 0; u--) to_copies(z, u);
    for (int u = 0; u < n_units; u++) {
        if (z->copies) comm_wait(z->copies, &z->sum[u].copies);
        z->sum[u] = (ZeroSum){0};
    }
}

void zero_end(Zero *z)
{
    Model *m = z->model;
    if (z->cut.size == 1) return;
    if (!m->shard.grads) optim_drop(m); // what this rank summed of the others' elements
    zero_share_weights(z);
}

void zero_share_weights(Zero *z)
{
    for (int u = 0; z->model->shard.x_weights && u < z->model->params.n_units; u++) drop(z, u);
    if (!z->model->shard.x_weights && z->cut.size > 1) gather_all(z);
    gather_table(z);
}

// ---- the norm over the ranks

// What this rank owns of the experts that ranks divide, or of the rest, once: a tensor that tensor-parallel ranks hold
// copies of counts on one of them.
static void add_own(const Zero *z, ClipSum *sum, bool experts)
{
    const Params *params = &z->model->params;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        const OptimRange *range = &z->range[row->unit];
        size_t from = row->offset > range->begin ? row->offset : range->begin;
        size_t to = row->offset + row->n_elems < range->end ? row->offset + row->n_elems : range->end;
        if (row->owned && row->expert == experts && from < to)
            grads_clip_add(z->model->dev, sum, range->grad + (from - range->begin), to - from);
    }
}

// sum += more.
static void join(ClipSum *sum, const ClipSum *more)
{
    sum->rounded += more->rounded;
    for (int i = 0; i < EXACT_WORDS; i++) sum->exact.word[i] += more->exact.word[i];
}

static void sum_over(const Zero *z, ClipSum *sum, Comm *group)
{
    CommRequest request;
    if (z->model->dev->deterministic)
        request = comm_all_reduce(group, sum->exact.word, sum->exact.word, EXACT_WORDS, COMM_INT64, COMM_SUM);
    else request = comm_all_reduce(group, &sum->rounded, &sum->rounded, 1, COMM_FP64, COMM_SUM);
    comm_wait(group, &request);
}

static double norm(void *self, double grad_scale)
{
    Zero *z = self;
    ClipSum sum = {0}, experts = {0};
    bool counts = !z->copies || z->copies->rank == 0; // the others have the same elements
    if (counts) add_own(z, &sum, false);
    if (z->ep && counts) add_own(z, &experts, true);
    if (z->ep && z->cut.size == 1) sum_over(z, &experts, z->ep); // every replica has all the rest
    join(&sum, &experts);
    if (z->cut.size > 1) sum_over(z, &sum, z->control);
    if (z->parts) sum_over(z, &sum, z->parts);
    return grads_clip_root(z->model->dev, &sum, grad_scale);
}

// ---- slots, ranges and the store, made once

// Each unit of the table: its slot, and the ranks with the same tensors.
static void place_units(Zero *z, Comm *experts)
{
    const Model *m = z->model;
    z->n_slots = ZERO_SLOTS - 2; // of gradients
    for (int i = 0; i < m->n_units; i++) {
        const Unit *unit = &m->unit[i];
        z->slot[unit->home] = i == 0 ? 0 : i == head_of(z) ? 3 : 1 + i % 2;
        z->group[unit->home] = z->dp;
        if (!unit->apart) continue;
        z->n_slots = ZERO_SLOTS;
        z->slot[unit->home + 1] = 4 + i % 2;
        z->group[unit->home + 1] = experts;
    }
}

// The slot of each unit's gathered weights: one of its own for the embedding, the head and what stays; blocks take
// turns in prefetch + 1, and their experts, where ranks divide them, in as many others.
static void place_weights(Zero *z)
{
    int turns = z->set.prefetch + 1, shared[2 * turns];
    for (int i = 0; i < 2 * turns; i++) shared[i] = -1;
    for (int i = 0; i < z->model->n_units; i++) {
        int own[2], n = tensors_of(z, i, own);
        bool end = i == 0 || i == head_of(z);
        for (int k = 0; k < n; k++) {
            int alone = -1, *slot = (end && !k) || stays(z, own[k]) ? &alone : &shared[k * turns + i % turns];
            if (*slot < 0) *slot = z->n_weights++;
            z->place[own[k]] = *slot;
        }
    }
}

// This rank's ranges, and where their weights and gradients stand. Weights that the host updates are in the store, also
// in fp32: what the device has of them is the copy that units read.
static void make_ranges(Zero *z)
{
    Model *m = z->model;
    for (int u = 0; u < m->params.n_units; u++) {
        size_t begin = z->cut.begin[u], at = z->cut.at[u], n = own_elems(z, u);
        z->range[u] = (OptimRange){
            .begin = begin, .end = begin + n,
            .weight = m->weights && !z->set.host ? m->weights + (m->shard.weights ? at : begin) : NULL,
            .grad = m->grads + (m->shard.grads ? at : begin),
            .x_weight = m->x_weights ? x_at(z, m->x_weights, m->shard.x_weights ? at : begin) : NULL};
    }
}

// The largest unit that uses a slot; of_unit: slot or place.
static size_t slot_elems(const Zero *z, const int *of_unit, int slot)
{
    size_t most = 0;
    for (int u = 0; u < z->model->params.n_units; u++)
        if (of_unit[u] == slot && unit_elems(z, u) > most) most = unit_elems(z, u);
    return most;
}

static X *narrow_room(const Zero *z, size_t n)
{
    if (!z->set.narrow) return NULL;
    return (X *)mem_alloc(z->model->mem, MEM_COMM, n * z->model->dev->x_bytes, "gradients in 16 bits");
}

static void allocate_slots(Zero *z)
{
    Model *m = z->model;
    if (m->dev->embed_fp32 && m->shard.weights && !m->params.no_embedding)
        m->table = mem_alloc(m->mem, MEM_COMM, unit_elems(z, 0) * sizeof(float), "embedding in fp32");
    if (m->shard.x_weights) place_weights(z);
    z->weights = calloc((size_t)z->n_weights + 1, sizeof *z->weights);
    if (!z->weights) die("zero: no memory for %d units", m->params.n_units);
    for (int i = 0; i < z->n_weights; i++) {
        size_t n = slot_elems(z, z->place, i);
        z->weights[i] = (ZeroSlot){mem_alloc(m->mem, MEM_COMM, n * m->dev->x_bytes, "gathered weights"), -1, false,
                                   NULL, {0, 0}, false};
    }
    for (int i = 0; m->shard.grads && i < z->n_slots; i++) {
        size_t n = slot_elems(z, z->slot, i);
        z->grads[i] = (ZeroSlot){mem_alloc(m->mem, MEM_COMM, n * sizeof(float), "a unit's gradients"), -1, false,
                                 narrow_room(z, n), {0, 0}, false};
    }
    if (!m->shard.grads) z->narrow = narrow_room(z, m->params.n_elems);
}

// A store with an item for each unit: optim NULL: what this rank owns of the weights; else what it keeps of them.
static Offload *open_store(const Zero *z, const Optim *optim)
{
    OffloadSettings set = *z->set.store;
    Model *m = z->model;
    int n = m->params.n_units;
    size_t *sizes = calloc((size_t)n, sizeof *sizes);
    if (!sizes) die("zero: no memory for %d units", n);
    for (int u = 0; u < n; u++)
        sizes[u] = optim ? optim_item_bytes(optim, u) : own_elems(z, u) * m->dev->x_bytes;
    set.sizes = sizes, set.n_items = n;
    int both = z->n_slots > 4 ? 2 : 1; // ranges of a block: its own and its experts'
    _Static_assert((ZERO_PREFETCH + 1) * 2 + 1 <= OFFLOAD_MAX_SLOTS, "as many as are gathered, and on their way");
    if (!optim) set.n_slots = (z->set.prefetch + 1) * both + 1; // being gathered; a tied embedding's; one on its way
    else if (z->set.host) set.n_slots = 0;
    set.mem = m->mem, set.tag = optim ? MEM_OPTIM : MEM_PARAMS;
    set.what = optim ? "optimizer state" : "weights of the store";
    Offload *store = offload_create(&set);
    free(sizes);
    return store;
}

// ---- from beginning to end

Zero *zero_create(Model *model, ZeroSettings set, ZeroCut cut, ZeroGroups group)
{
    Zero *z = calloc(1, sizeof *z);
    size_t n = (size_t)model->params.n_units;
    if (cut.size == 1) set.stage = 0;
    if (z) *z = (Zero){.set = set, .cut = cut, .model = model, .dp = group.dp, .control = group.control,
                       .copies = group.copies, .parts = group.parts && group.parts->size > 1 ? group.parts : NULL,
                       .tp = group.tp && group.tp->size > 1 ? group.tp : NULL,
                       .ep = group.ep && group.ep->size > 1 ? group.ep : NULL,
                       .slot = calloc(n, sizeof *z->slot), .place = calloc(n, sizeof *z->place),
                       .group = calloc(n, sizeof *z->group),
                       .range = calloc(n, sizeof *z->range), .sum = calloc(n, sizeof *z->sum)};
    if (!z || !z->range || !z->sum || !z->slot || !z->place || !z->group) die("zero: no memory for %zu units", n);
    place_units(z, group.experts);
    z->tied = model->shape.tie && !model->params.no_embedding && !model->params.no_head; // both are here
    make_ranges(z);
    if (set.stage == 0) {
        bool several = z->dp ? z->dp->size > 1 : set.narrow; // in a plan, what asks the allocator for something
        if (several) z->ddp = ddp_create(model, z->dp, group.experts, set.overlap, set.bucket_bytes, set.narrow);
        return z;
    }
    model->hooks = (UnitHooks){.self = z, .before = before, .after = after};
    allocate_slots(z);
    if (model->shard.x_stored) z->store = open_store(z, NULL);
    return z;
}

void zero_free(Zero *z)
{
    if (!z) return;
    ddp_free(z->ddp);
    if (z->store) offload_free(z->store);
    if (z->state) offload_free(z->state);
    if (z->whole) whole_free(z->whole);
    zero_cut_free(&z->cut);
    free(z->range);
    free(z->group);
    free(z->slot);
    free(z->place);
    free(z->sum);
    free(z->weights);
    free(z);
}

Optim zero_optim(Zero *z, OptimSettings set)
{
    OptimStore (*lender)(Offload *) = z->set.host ? offload_lender_in_place : offload_lender;
    OptimPlace place = {.stored = z->set.store != NULL, .host = z->set.host};
    if (z->set.stage > 0 || place.stored) place.range = z->range, place.n_ranges = z->model->params.n_units;
    if (z->store) place.weights = lender(z->store);
    if (z->tp) {
        z->whole = whole_create(z->model, z->tp, set, place.range, place.n_ranges);
        place.whole = whole_of_update(z->whole), place.agc = whole_of_agc(z->whole);
    }
    Optim optim = optim_create_at(z->model, set, place);
    if (place.stored) {
        z->state = open_store(z, &optim);
        optim.store = lender(z->state);
    }
    if (z->set.stage > 0 || z->parts || z->ep) optim.norm = norm, optim.self = z;
    return optim;
}
