// clock: the one way to time something: the monotonic clock in seconds.
//
// The invariant: it does not follow corrections of the time of day, so a difference of two readings is a duration.
//
// Rejected: omp_get_wtime, which some systems take from the time of day.
#include "base/clock.h"

#include <time.h>

double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
