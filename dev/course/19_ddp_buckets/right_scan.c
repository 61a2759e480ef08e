// No counts: looks through the flags of all parameters each time. Buckets by the sum of what lies between.
#include "ddp.h"

int make_buckets(int params, const size_t *n, size_t limit, int *bucket_of)
{
    int buckets = 0;
    for (int last = params - 1; last >= 0; buckets++) {
        size_t sum = n[last];
        bucket_of[last--] = buckets;
        while (last >= 0 && n[last] <= limit && sum <= limit - n[last]) sum += n[last], bucket_of[last--] = buckets;
    }
    return buckets;
}

static void advance(Ddp *d)
{
    for (bool complete = true; d->next < d->buckets;) {
        for (int p = 0; p < d->params; p++) complete = complete && (d->ready[p] || d->bucket_of[p] != d->next);
        if (!complete) return;
        int b = d->next++;
        d->start(d->arg, b);
    }
}

void ddp_begin(Ddp *d)
{
    for (int p = d->params; p-- > 0;) d->ready[p] = false;
    d->next = 0;
}

void ddp_ready(Ddp *d, int param)
{
    d->ready[param] = true;
    advance(d);
}

void ddp_end(Ddp *d)
{
    for (int p = 0; p < d->params; p++)
        for (size_t i = 0; i < d->n[p] && !d->ready[p]; i++) d->grad[p][i] = 0;
    for (int p = 0; p < d->params; p++) d->ready[p] = true;
    advance(d);
}
