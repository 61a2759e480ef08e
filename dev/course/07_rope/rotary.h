// rotary: rotary position embedding, forward and backward, in place.
#ifndef ROTARY_H
#define ROTARY_H
#include <stddef.h>

// x (T, H, D): the queries or keys of T tokens, H heads of D elements; D is even. Token t stands at position first + t.
// Rotates every head vector by its token's position; theta is the base of the frequencies (10000, say).
void rotary_forward(float *x, size_t T, size_t H, size_t D, size_t first, float theta);
// dx (T, H, D): on entry the gradient of what rotary_forward wrote, on return the gradient of what it was given.
void rotary_backward(float *dx, size_t T, size_t H, size_t D, size_t first, float theta);
#endif
