// tp: a two-layer MLP whose weights are divided over N ranks.
//
//     H = gelu(X W1 + b1)      X (T, C), W1 (C, F), b1 (F), H (T, F)
//     Y = H W2 + b2            W2 (F, C), b2 (C), Y (T, C)
//
// All arrays are row-major: W1[c * F + f]. N divides F. A rank's share of F is f = F/N columns, in order: rank r has
// columns r f to (r+1) f - 1. X, Y, dX, dY and b2 are whole on every rank.
#ifndef TP_H
#define TP_H
#include "../ranks.h"

typedef struct {
    int T, C, F; // of the whole model
    float *w1;   // (C, f): the rank's columns of W1
    float *b1;   // (f)
    float *w2;   // (f, C): the rank's rows of W2
    const float *b2; // (C): whole
} Shard;

// x (n) becomes the sum of all ranks' x. Every rank has to call it. The grader has it.
void all_reduce(Link *link, float *x, size_t n);
// The activation and its derivative. In tp.c.
float gelu(float z);
float gelu_slope(float z);

// Copies the rank's parts of the whole w1 (C, F), b1 (F) and w2 (F, C) into the arrays of shard, which has T, C, F, b2
// and room.
void tp_cut(int rank, int size, const float *w1, const float *b1, const float *w2, Shard *shard);
// y (T, C), whole on every rank. Keeps for backward z (T, f), the rank's columns of X W1 + b1, before gelu.
void tp_forward(Link *link, const Shard *s, const float *x, float *z, float *y);
// dy (T, C), whole. Sets the rank's gradients dw1 (C, f), db1 (f), dw2 (f, C), and, whole on every rank, db2 (C) and
// dx (T, C).
void tp_backward(Link *link, const Shard *s, const float *x, const float *z, const float *dy, float *dw1, float *db1,
                 float *dw2, float *db2, float *dx);
#endif
