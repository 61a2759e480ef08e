// muon: momentum, made orthogonal.
#ifndef MUON_H
#define MUON_H
#include <stddef.h>

// x (R, C), row-major, becomes the result of five Newton-Schulz steps on x / (|x| + 1e-7), where |x| is the root of the
// sum of squares of all elements. R and C are any sizes from 1 on. Zeros stay zeros.
void orthogonalize(float *x, size_t R, size_t C);

// One update of weight (R, C). m (R, C) is the state: zero before the first update, kept by the caller. grad is not
// changed.
void muon_step(float *weight, float *m, const float *grad, size_t R, size_t C, float lr, float beta, float decay);
#endif
