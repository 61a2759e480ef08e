// reduction: sums on a GPU.
#ifndef REDUCTION_H
#define REDUCTION_H
#include "base/gpu.h"

// x: n floats in the GPU's memory, n >= 0, cut into chunks of `chunk` >= 1 elements (the last one may be shorter).
// sums, in the GPU's memory: sums[c] = sum of chunk c, for each of the ceil(n / chunk) chunks. Block b adds the chunks
// b, b + gridDim.x, b + 2 gridDim.x ... A block has any multiple of 32 threads, up to 1024; there are any number of
// blocks. With the same number of threads a block, the sums are the same to the bit, however many blocks there are
// and in whatever order they run.
__global__ void chunk_sums_kernel(float *sums, const float *x, int n, int chunk);

// The sum of n floats in the GPU's memory, n >= 0; 0 for n = 0. By two launches of the kernel: the sums of chunks, and
// the sum of these. Releases what it allocates.
float sum_on_gpu(const float *x, int n);
#endif
