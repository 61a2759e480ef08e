// fast: a product of two matrices on the CPU.
#ifndef FAST_H
#define FAST_H

// out = a b. a (m, k), b (k, n), out (m, n), row after row; m, n, k >= 1 of any size. out does not overlap a or b, and
// what is in it before counts for nothing.
void fast_matmul(float *out, const float *a, const float *b, int m, int n, int k);
#endif
