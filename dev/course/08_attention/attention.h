// attention: causal self-attention, forward and backward, of one sequence.
//
// T tokens, H heads of D elements each, all at least 1. q, k, v, out and their gradients are (T, H, D): element d of
// head h of token t is at (t H + h) D + d. Heads do not mix.
#ifndef ATTENTION_H
#define ATTENTION_H
#include <stddef.h>

// prob (H, T, T): prob[(h T + t) T + s] is the weight of key s for query t; 0 for s > t. Writes out and prob.
void attention_forward(float *out, float *prob, const float *q, const float *k, const float *v, size_t T, size_t H,
                       size_t D);
// Writes dq, dk and dv, whatever was there. dout: the gradient of out. prob is what attention_forward wrote.
void attention_backward(float *dq, float *dk, float *dv, const float *dout, const float *prob, const float *q,
                        const float *k, const float *v, size_t T, size_t H, size_t D);
#endif
