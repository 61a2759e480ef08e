// ddp: data parallelism.
//
//   g = (1 / valid tokens of all ranks) * sum over ranks of (sum over the rank's tokens of dloss/dw)
//
// The plain form computes all of backward, then adds all gradients in one call: the network is idle during backward and
// the processor during the call. But backward finishes the head's gradients first and the embedding's last. So here
// gradients are added in buckets: as soon as the units of a bucket are done, its all_reduce starts, and overlaps with
// the backward of the units below (Li et al., "PyTorch Distributed", arXiv 2006.15704, section 3.2.3). Only the last
// bucket is not overlapped. Buckets contain several units because every call has a fixed cost.
//
// The flat buffer has the gradients in the order of the units, and backward runs through that order from its end. So a
// bucket is one range [begin, end) of the buffer, and nothing is copied. A tied head adds to the embedding's gradient,
// which is in the last bucket.
//
// The invariant: every element is in exactly one call of a step, and no call starts before the last addition to its
// elements: only on the last micro-batch, and after the unit.
//
// Weights of tokens: each rank scales its gradient by the number of valid tokens of *all* ranks, which is
// added up before the first backward; then the sum needs no division, and a token counts the same wherever it is.
// Rejected: the mean of the ranks' means, which is what most write first; it is wrong as soon as counts differ.
//
// A deterministic device keeps a tree of its sequences' gradients until the end of the step (model_run.c), so all
// gradients are added then. With `ordered` groups the ranks' sums continue the tree, and N ranks give the bits of one.
#include "parallel/ddp.h"

#include "base/check.h"

#include <stdlib.h>

static X *narrow_at(const Ddp *d, size_t elem)
{
    return d->narrow ? (X *)((char *)d->narrow + elem * d->model->dev->x_bytes) : NULL;
}

// Starts to add [begin, end) over a group.
static void start(Ddp *d, Comm *over)
{
    if (d->begin == d->end) return;
    check(d->n_requests < d->model->params.n_units); // each call ends at a unit's border
    float *grads = d->model->grads + d->begin;
    X *narrow = narrow_at(d, d->begin);
    size_t n = d->end - d->begin;
    if (narrow) d->model->dev->to_x(d->model->dev, narrow, grads, n);
    void *data = narrow ? (void *)narrow : grads;
    CommType type = narrow ? comm_type_of(d->model->dev->x_type) : COMM_FP32;
    d->over[d->n_requests] = over;
    d->request[d->n_requests++] = comm_all_reduce(over, data, data, n, type, COMM_SUM);
    d->end = d->begin;
}

// A unit joins the bucket, which is sent once it has `bucket` elements. Experts have a group of their own, so a
// bucket is also cut where they begin and end.
static void lower(Ddp *d, int unit)
{
    bool experts = d->experts && params_unit_expert(&d->model->params, unit);
    size_t begin;
    params_unit_range(&d->model->params, unit, &begin, &d->begin);
    if (experts) start(d, d->group);
    d->begin = begin;
    if (experts) start(d, d->experts);
    else if (d->end - d->begin >= d->bucket) start(d, d->group);
}

static void after(void *self, int unit, UnitPass pass)
{
    Ddp *d = self;
    if (!d->last || !d->overlap || d->model->dev->deterministic) return;
    if (pass == PASS_BACKWARD) {
        const Unit *u = &d->model->unit[unit];
        if (u->apart) lower(d, u->home + 1);
        lower(d, u->home);
    }
    comm_progress(d->group);
}

Ddp *ddp_create(Model *model, Comm *group, Comm *experts, bool overlap, size_t bucket_bytes, bool narrow)
{
    Ddp *d = calloc(1, sizeof *d);
    size_t n = (size_t)model->params.n_units;
    CommRequest *request = calloc(n, sizeof *request);
    Comm **over = calloc(n, sizeof *over);
    if (!d || !request || !over) die("ddp: no memory for %zu units", n);
    *d = (Ddp){.group = group, .experts = experts, .over = over, .model = model, .overlap = overlap, .bucket = bucket_bytes / sizeof(float),
               .request = request};
    size_t n_bytes = model->params.n_elems * model->dev->x_bytes;
    if (narrow) d->narrow = (X *)mem_alloc(model->mem, MEM_COMM, n_bytes, "gradients in 16 bits");
    model->hooks = (UnitHooks){.self = d, .after = after};
    return d;
}

void ddp_free(Ddp *d)
{
    if (!d) return;
    free(d->request);
    free(d->over);
    free(d);
}

void ddp_micro(Ddp *d, bool last)
{
    d->last = last;
    d->begin = d->end = d->model->params.n_elems;
}

void ddp_finish(Ddp *d)
{
    // the rest, for which no bucket was filled; in the naive twin, all gradients
    for (int u = d->model->params.n_units - 1; d->experts && u >= 0; u--)
        if (d->model->unit_begin[u] < d->begin && params_unit_expert(&d->model->params, u)) lower(d, u);
    d->begin = 0;
    start(d, d->group);
    for (int i = 0; i < d->n_requests; i++) comm_wait(d->over[i], &d->request[i]);
    if (d->narrow) d->model->dev->from_x(d->model->dev, d->model->grads, d->narrow, d->model->params.n_elems);
    d->n_requests = 0;
}

size_t ddp_share(size_t n, int rank, int size, size_t *begin)
{
    size_t each = n / (size_t)size;
    check(each * (size_t)size == n);
    *begin = each * (size_t)rank;
    return each;
}

int64_t ddp_sum_int(Comm *group, int64_t x)
{
    CommRequest request = comm_all_reduce(group, &x, &x, 1, COMM_INT64, COMM_SUM);
    comm_wait(group, &request);
    return x;
}

double ddp_sum(Comm *group, double x)
{
    CommRequest request = comm_all_reduce(group, &x, &x, 1, COMM_FP64, COMM_SUM);
    comm_wait(group, &request);
    return x;
}
