// softmax: of the rows of a matrix, on a GPU.
#ifndef SOFTMAX_H
#define SOFTMAX_H
#include "base/gpu.h"

// x, out (rows, cols) in the GPU's memory, row after row; out may be x. out[r] = softmax of row r of x. An element of
// x may be -INFINITY, which gives 0; not all of a row are. lse (rows), or nullptr: log(sum of exp(x)) of each row.
// Block b does the rows b, b + gridDim.x, ... A block has any multiple of 32 threads, up to 1024, which may be more or
// fewer than cols; there are any number of blocks.
__global__ void softmax_kernel(float *out, float *lse, const float *x, int rows, int cols);
#endif
