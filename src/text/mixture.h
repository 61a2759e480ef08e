// mixture: which source each sample comes from, so that every source has its share at any moment.
#ifndef MIXTURE_H
#define MIXTURE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t n_sources;
    int64_t period;  // D: sample s and s + D have the same source
    uint64_t *part;  // (n_sources) W: a source has W[i] of D samples; its share is W[i] / D
    uint32_t *slot;  // (period) the source of a sample
    uint32_t *rank;  // (period) how many samples of the same source stand before it in the period
} Mixture;

enum { MIXTURE_PERIOD = 1 << 20 }; // the longest

// Shares proportional to weight (n_sources, each above 0 and finite). Shares are exact when the weights are multiples
// of 10^-6 and their period is at most MIXTURE_PERIOD; other shares are rounded to multiples of 1 / MIXTURE_PERIOD.
// Dies when a share would round to 0.
Mixture mixture_make(const double *weight, size_t n_sources);
void mixture_free(Mixture *m);
// The source of sample 0, 1, 2, ... of the run; *index: how many samples of that source come before it. After any
// number n of samples a source has had more than n W / D - 1 and fewer than n W / D + 1 of them.
size_t mixture_source(const Mixture *m, int64_t sample, int64_t *index);

#ifdef __cplusplus
}
#endif
#endif
