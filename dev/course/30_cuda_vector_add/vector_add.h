// vector_add: out = a + b on a GPU.
#ifndef VECTOR_ADD_H
#define VECTOR_ADD_H
#include "base/gpu.h"

// out, a, b: n floats each in the GPU's memory, n >= 0. out[i] = a[i] + b[i] for all i, each written once, whatever the
// shape of the launch: any number of blocks of any number of threads, more of them than n or fewer.
__global__ void vector_add_kernel(float *out, const float *a, const float *b, int n);

// The same for arrays in the host's memory: copies a and b to the GPU, adds there, copies the sums back, and releases
// what it allocated. n may be 0, and then nothing is launched.
void vector_add(float *out, const float *a, const float *b, int n);
#endif
