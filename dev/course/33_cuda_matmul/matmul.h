// matmul: a product of two matrices on a GPU.
#ifndef MATMUL_H
#define MATMUL_H
#include "base/gpu.h"

// A matrix in the GPU's memory, read by a[i]. Under nvcc it is a pointer; in the emulation it also counts how often the
// kernels read from it.
#ifdef __CUDACC__
typedef const float *Matrix;
#else
inline unsigned long long matrix_loads;
class Matrix {
    const float *p;

public:
    explicit Matrix(const float *at) : p(at) {}
    float operator[](size_t i) const { return matrix_loads++, p[i]; }
};
#endif

// out = a b. a (m, k), b (k, n), out (m, n), row after row, all in the GPU's memory; m, n, k >= 1 of any size. Puts the
// work into the default stream. Reads at most 2 m n k / 8 elements of a and b together where 16 divides m, n and k.
void matmul(float *out, Matrix a, Matrix b, int m, int n, int k);
#endif
