// clock: seconds, for durations.
#ifndef CLOCK_H
#define CLOCK_H
#ifdef __cplusplus
extern "C" {
#endif

// Seconds since some fixed moment; never goes back.
double clock_seconds(void);

#ifdef __cplusplus
}
#endif
#endif
