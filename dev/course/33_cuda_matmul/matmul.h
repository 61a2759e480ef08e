// matmul: a product of two matrices on a GPU.
#ifndef MATMUL_H
#define MATMUL_H
#include "dev/course/matrix.h" // Matrix: a pointer whose reads are counted

// out = a b. a (m, k), b (k, n), out (m, n), row after row, all in the GPU's memory; m, n, k >= 1 of any size. Puts the
// work into the default stream. Reads at most 2 m n k / 8 elements of a and b together where 16 divides m, n and k.
void matmul(float *out, Matrix a, Matrix b, int m, int n, int k);
#endif
