#include "ddp.h"

int make_buckets(int params, const size_t *n, size_t limit, int *bucket_of)
{
    //[
    //+ (void)params, (void)n, (void)limit, (void)bucket_of; // write this
    //+ return 0;
    int bucket = -1;
    size_t held = 0;
    for (int p = params - 1; p >= 0; p--) {
        if (bucket < 0 || held + n[p] > limit) bucket++, held = 0;
        bucket_of[p] = bucket;
        held += n[p];
    }
    return bucket + 1;
    //]
}

void ddp_begin(Ddp *d)
{
    //[
    //+ (void)d;
    for (int b = 0; b < d->buckets; b++) d->missing[b] = 0;
    for (int p = 0; p < d->params; p++) d->ready[p] = false, d->missing[d->bucket_of[p]]++;
    d->next = 0;
    //]
}

void ddp_ready(Ddp *d, int param)
{
    //[
    //+ (void)d, (void)param;
    d->ready[param] = true;
    d->missing[d->bucket_of[param]]--;
    while (d->next < d->buckets && d->missing[d->next] == 0) ddp_start(d->arg, d->next++);
    //]
}

void ddp_end(Ddp *d)
{
    //[
    //+ (void)d;
    for (int p = 0; p < d->params; p++) {
        if (d->ready[p]) continue;
        for (size_t i = 0; i < d->n[p]; i++) d->grad[p][i] = 0;
        ddp_ready(d, p);
    }
    //]
}
