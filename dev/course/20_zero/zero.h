// zero: N ranks divide a model's n parameters, which lie in one flat array, and gather them when they are needed.
#ifndef ZERO_H
#define ZERO_H
#include "../ranks.h"

// Stage 1. Every rank owns the same number of elements, ceil(n / N), rank after rank; the last ones may be padding.
size_t shard_size(size_t n, int N);
// The rank's elements without padding: *begin to *end - 1. A rank that has none: *begin == *end == n.
void shard_range(size_t n, int N, int rank, size_t *begin, size_t *end);

// Stage 2. Backward has made the gradients of elements begin to begin + count - 1 of the n: a bucket. grads (count) are
// this rank's; every rank calls it for the same bucket, with its own. own (shard_size): element i is that of parameter
// shard begin + i. Adds the sum over ranks to the elements of own that lie in the bucket, and leaves the others
// alone. A rank sends only what others own: at most (count - its own part of the bucket) floats.
void reduce_bucket(Link *link, size_t n, size_t begin, const float *grads, size_t count, float *own);

// Stage 3. A rank's program for one step through units 0 to units - 1 (layers). 'G' starts to gather a unit's weights
// into slot 0 or 1, and does not wait. 'F' and 'B' compute: they wait until the gather is finished, and the program
// goes on when they are done.
typedef struct {
    char kind; // 'G', 'F' or 'B'
    int unit, slot; // F and B: the slot that has the unit's weights
} Step;
// Writes F of units 0, 1, ..., then B of the last unit back to unit 0, with the gathers, to out, which has room for
// 4 * units steps. Returns how many they are.
int stage3_plan(int units, Step *out);
#endif
