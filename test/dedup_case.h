// dedup_case: what the tests of duplicates share. Include it after cmocka.
#ifndef TEST_DEDUP_CASE_H
#define TEST_DEDUP_CASE_H
#include "data/prep/dedup.h"

#include <math.h>

static inline void fail_never(void *arg, size_t i)
{
    (void)arg;
    fail_msg("document %zu", i);
}

// Bernstein: the mean of n independent outcomes of probability p is further from p than sqrt(2 p (1 - p) t / n) +
// 2 t / 3 n with a probability below 2 exp(-t); t = 8 makes the first term 4 sigma. At n = 10,000 that is 2 points at
// most.
static inline double bound(double p, double n)
{
    return 4 * sqrt(p * (1 - p) / n) + 16 / (3 * n);
}
#endif
