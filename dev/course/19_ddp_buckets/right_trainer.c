// The trainer's buckets: its hook after a unit's backward, with a model of one unit for each parameter, in a group of one.
// Its units are ready from the last to the first, so one that is ready early waits here. Its bucket ends at the unit that
// fills it; so the size is set from bucket to bucket, and make_buckets, which ends one before it is too full, is not the
// trainer's.
#define Ddp TrainerDdp // both are called so
#include "parallel/ddp.h"
#undef Ddp
#undef DDP_H
#include "ddp.h"

#include <stdlib.h>

static Comm *self;
static Dev dev;
static Model model;
static TrainerDdp *trainer;
static int at; // the unit whose backward is next

int make_buckets(int params, const size_t *n, size_t limit, int *bucket_of)
{
    int bucket = 0;
    size_t end = 0, before = 0; // elements of all parameters from here on; of those in earlier buckets
    for (int p = params - 1; p >= 0; p--) {
        if (p < params - 1 && end + n[p] - before > limit) bucket++, before = end;
        bucket_of[p] = bucket, end += n[p];
    }
    return params > 0 ? bucket + 1 : 0;
}

void ddp_begin(Ddp *d)
{
    if (!self) self = comm_self();
    ddp_free(trainer), params_free(&model.params), free(model.unit), free(model.grads);
    model = (Model){.dev = &dev, .unit = calloc((size_t)d->params, sizeof *model.unit), .n_units = d->params};
    for (int p = 0; p < d->params; p++) {
        params_add(&model.params, p, "weight", 1, d->n[p], 1, 0, 0, false, -1);
        model.unit[p].home = p, d->ready[p] = false;
    }
    model.grads = calloc(model.params.n_elems, sizeof *model.grads);
    trainer = ddp_create(&model, self, NULL, true, 0, false);
    ddp_micro(trainer, true);
    at = d->params - 1, d->next = 0;
}

void ddp_ready(Ddp *d, int param)
{
    d->ready[param] = true;
    for (; at >= 0 && d->ready[at]; at--) {
        int before = trainer->n_requests;
        trainer->bucket = 0;
        for (int p = 0; p < d->params; p++) trainer->bucket += d->bucket_of[p] == d->next ? d->n[p] : 0;
        model.hooks.after(model.hooks.self, at, PASS_BACKWARD);
        if (trainer->n_requests > before) d->start(d->arg, d->next++);
    }
}

void ddp_end(Ddp *d)
{
    for (int p = d->params - 1; p >= 0; p--) {
        if (d->ready[p]) continue;
        for (size_t i = 0; i < d->n[p]; i++) d->grad[p][i] = 0;
        ddp_ready(d, p);
    }
    ddp_finish(trainer);
}
