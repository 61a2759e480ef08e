// norm_backward: the gradients of LayerNorm and RMSNorm.
//
// N rows of C elements, row-major, N and C at least 1. The forward pass has computed, for each row n,
//   LayerNorm  mean[n] = sum(x) / C,  rstd[n] = 1 / sqrt(sum((x - mean)^2) / C + eps),  y = w (x - mean) rstd + b
//   RMSNorm                           rstd[n] = 1 / sqrt(sum(x^2) / C + eps),           y = w x rstd
#ifndef NORM_BACKWARD_H
#define NORM_BACKWARD_H
#include <stddef.h>

// dy (N, C): the gradient of y. x (N, C); mean, rstd (N); w (C). dx (N, C) is written, and may be the same array as dy.
// dw, db (C): the gradients of w and b, summed over the rows, are added to what is there.
void layernorm_backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *mean,
                        const float *rstd, const float *w, size_t N, size_t C);
// The same without a mean and without a bias.
void rmsnorm_backward(float *dx, float *dw, const float *dy, const float *x, const float *rstd, const float *w,
                      size_t N, size_t C);
#endif
