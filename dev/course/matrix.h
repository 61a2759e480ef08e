// matrix: what CUDA assignments read in the GPU's memory, so that reads can be counted.
#ifndef MATRIX_H
#define MATRIX_H
#include "base/gpu.h"

// Numbers in the GPU's memory, read by a[i]. Under nvcc it is a pointer; in the emulation it also counts how often the
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
#endif
