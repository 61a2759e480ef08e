// exact_sum: sums of squares without rounding, so that no order of adding matters.
//
// The bits of the result are a function of the numbers alone: not of their order, of threads, or of which rank has
// which of them. That is what a gradient norm needs to be the same on every layout (clip.h).
#ifndef EXACT_SUM_H
#define EXACT_SUM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// Limbs of 32 bits, the lowest first; limb 0 begins at 2^-352. The last counts numbers that are not finite.
enum { EXACT_LIMBS = 22, EXACT_WORDS = EXACT_LIMBS + 1 };

// Zero: the empty sum. Two sums are added word by word (comm.h: COMM_INT64, COMM_SUM), up to 2^30 of them.
typedef struct {
    int64_t word[EXACT_WORDS];
} ExactSum;

// sum += x[i]^2 over n fp32 numbers.
void exact_sum_squares(ExactSum *sum, const float *x, size_t n);
void exact_sum_add(ExactSum *sum, const ExactSum *other);
// As a double, cut off below its last bit; NaN where a number was not finite.
double exact_sum_value(const ExactSum *sum);

#ifdef __cplusplus
}
#endif
#endif
