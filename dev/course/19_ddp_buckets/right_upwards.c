// Counts how many gradients are ready, upwards, and keeps no flag of what was started; gradients are cleared in
// advance.
#include "ddp.h"

#include <string.h>

int make_buckets(int params, const size_t *n, size_t limit, int *bucket_of)
{
    if (params == 0) return 0;
    int at = params - 1;
    size_t sum = n[at];
    bucket_of[at] = 0;
    while (at-- > 0) {
        bool joins = sum + n[at] <= limit;
        sum = joins ? sum + n[at] : n[at];
        bucket_of[at] = bucket_of[at + 1] + !joins;
    }
    return bucket_of[0] + 1;
}

static int size_of(const Ddp *d, int bucket)
{
    int size = 0;
    for (int p = 0; p < d->params; p++) size += d->bucket_of[p] == bucket;
    return size;
}

void ddp_begin(Ddp *d)
{
    memset(d->missing, 0, (size_t)d->buckets * sizeof *d->missing);
    for (int p = 0; p < d->params; p++) {
        d->ready[p] = false;
        if (d->n[p]) memset(d->grad[p], 0, d->n[p] * sizeof *d->grad[p]);
    }
    d->next = 0;
}

void ddp_ready(Ddp *d, int param)
{
    d->ready[param] = true;
    d->missing[d->bucket_of[param]]++;
    for (; d->next < d->buckets && d->missing[d->next] == size_of(d, d->next); d->next++) d->start(d->arg, d->next);
}

void ddp_end(Ddp *d)
{
    for (; d->next < d->buckets; d->next++) d->start(d->arg, d->next);
}
