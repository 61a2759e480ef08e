// The trainer's own block_max and block_sum.
#include "softmax.h"

__global__ void softmax_kernel(float *out, float *lse, const float *x, int rows, int cols)
{
    for (int r = (int)blockIdx.x; r < rows; r += (int)gridDim.x) {
        size_t at = (size_t)r * (size_t)cols, step = blockDim.x, end = at + (size_t)cols;
        float top = -INFINITY, sum = 0;
        for (size_t i = at + threadIdx.x; i < end; i += step) top = fmaxf(top, x[i]);
        top = block_max(top);
        for (size_t i = at + threadIdx.x; i < end; i += step) sum += out[i] = expf(x[i] - top);
        sum = block_sum(sum);
        for (size_t i = at + threadIdx.x; i < end; i += step) out[i] *= 1 / sum;
        if (lse && threadIdx.x == 0) lse[r] = logf(sum) + top;
    }
}
