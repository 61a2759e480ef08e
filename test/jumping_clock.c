// jumping_clock: an unreliable wall clock, for LD_PRELOAD. Successive readings of CLOCK_REALTIME are a day behind, a
// year ahead, and right, in turn; CLOCK_MONOTONIC is unchanged. (test/crash.sh)
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(time_t t)
{
    static atomic_uint looks;
    switch (atomic_fetch_add(&looks, 1) % 3) {
    case 0: return t - 86400;
    case 1: return t + 365 * 86400;
    default: return t;
    }
}

int clock_gettime(clockid_t clock, struct timespec *at)
{
    int status = (int)syscall(SYS_clock_gettime, clock, at);
    if (status == 0 && clock == CLOCK_REALTIME) at->tv_sec = jump(at->tv_sec);
    return status;
}

time_t time(time_t *out)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone)
{
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
