// ring: the sum of one array over all ranks.
#ifndef RING_H
#define RING_H
#include "../ranks.h"

// Every rank calls it with its own x, n floats (n is the same on all ranks, and may be 0 or smaller than the number of
// ranks). Afterwards x is, on every rank, the sum of all ranks' x. A rank sends at most 2 (N-1) ceil(n/N) floats.
void ring_all_reduce(Link *link, float *x, size_t n);
#endif
