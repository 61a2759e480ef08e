// ddp: gradients are summed over ranks in buckets, while backward still runs.
#ifndef DDP_H
#define DDP_H
#include <stdbool.h>
#include <stddef.h>

// Parameter p has n[p] elements; parameters are numbered as forward uses them. Goes from the last parameter to the
// first: a parameter joins the bucket of the one after it, unless the bucket would then have more than `limit`
// elements; otherwise it begins the next bucket. So only a bucket of a single parameter can be larger. bucket_of[p] is
// the number of its bucket, from 0 for that of the last parameter. Returns the number of buckets.
int make_buckets(int params, const size_t *n, size_t limit, int *bucket_of);

// One rank's state. The arrays are there, of these sizes.
typedef struct {
    int params, buckets;
    const size_t *n;      // (params)
    float **grad;         // grad[p] (n[p])
    const int *bucket_of; // (params)
    void *arg;            // for ddp_start
    // for you:
    bool *ready;  // (params)
    int *missing; // (buckets)
    int next;
} Ddp;

// The grader has it: starts the sum of a bucket over the ranks, and returns at once. arg: that of Ddp.
void ddp_start(void *arg, int bucket);
// Before every backward.
void ddp_begin(Ddp *d);
// Backward has finished the gradient of a parameter; once for each, or never for one that it did not use.
void ddp_ready(Ddp *d, int param);
// Backward is over. The gradient of a parameter that was not used is set to 0: other ranks may have used it.
//
// In ddp_ready and ddp_end, ddp_start(d->arg, b) is called once for each bucket, in the order 0, 1, 2, ... on every
// rank, as soon as all gradients of the bucket are ready and all buckets before it were started.
void ddp_end(Ddp *d);
#endif
