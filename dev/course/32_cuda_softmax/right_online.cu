// One pass: each warp has a row of its own, keeps a running maximum and sum, and its lanes merge theirs.
#include "softmax.h"

__global__ void softmax_kernel(float *out, float *lse, const float *x, int rows, int cols)
{
    int warps = (int)blockDim.x / 32, lane = (int)threadIdx.x % 32;
    int first = (int)blockIdx.x * warps + (int)threadIdx.x / 32;
    for (long r = first; r < rows; r += (long)gridDim.x * warps) {
        float m = -INFINITY, s = 0;
        for (int c = lane; c < cols; c += 32) {
            float v = x[r * cols + c], top = fmaxf(m, v);
            if (top != -INFINITY) s = s * expf(m - top) + expf(v - top), m = top;
        }
        for (int by = 1; by < 32; by *= 2) {
            float m2 = __shfl_xor_sync(0xffffffffu, m, by), s2 = __shfl_xor_sync(0xffffffffu, s, by);
            float top = fmaxf(m, m2);
            if (top != -INFINITY) s = s * expf(m - top) + s2 * expf(m2 - top), m = top;
        }
        for (int c = lane; c < cols; c += 32) out[r * cols + c] = expf(x[r * cols + c] - (m + logf(s)));
        if (lse && lane == 31) lse[r] = m + logf(s);
    }
}
