// scaling_fit: the constants of a scaling law from measured runs.
#ifndef SCALING_FIT_H
#define SCALING_FIT_H
#include "dev/plan/scaling_laws.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// What is fitted: log E, log A, alpha, log B, beta.
enum { SCALING_FIT_E, SCALING_FIT_A, SCALING_FIT_ALPHA, SCALING_FIT_B, SCALING_FIT_BETA, SCALING_FIT_SIZE };

// Of the Huber loss on differences of logarithms; 1e-3 is that of arXiv 2203.15556.
#define SCALING_FIT_DELTA 1e-3

// Sum over n runs of Huber(log L(N, D) - log loss); gradient (SCALING_FIT_SIZE) may be NULL. C of a point is not read.
double scaling_fit_objective(const ScalingPoint *run, size_t n, double delta, const double theta[SCALING_FIT_SIZE],
                             double *gradient);
// Which of n runs end at most `times` the least loss of them all: keep (n). Returns their number. Runs far above the
// best may be on another branch of the curve; the rule needs no entropy.
size_t scaling_fit_below(const ScalingPoint *run, size_t n, double times, bool *keep);
// The law of least objective, from a grid of starts. Dies when there are fewer than 5 runs, fewer than 3 different N or
// D, or a number that is not positive.
ScalingLaw scaling_fit(const ScalingPoint *run, size_t n, double delta, double *objective);
// So many fits of n runs drawn from the n with replacement, a function of the seed. Draws that have fewer than 3
// different N or D are drawn again.
void scaling_fit_bootstrap(ScalingLaw *law, size_t resamples, const ScalingPoint *run, size_t n, double delta,
                           uint64_t seed);
// The value below which a part q of them lies, between neighbours; sorts them. NAN: none.
double scaling_fit_quantile(double *value, size_t n, double q);

#ifdef __cplusplus
}
#endif
#endif
