#include "softmax.h"

//[
// The largest (or the sum) of the v of all threads of the block, for all of them. parts: shared, a number a warp.
static __device__ float reduce(float v, bool largest, float *parts)
{
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    for (int by = 16; by > 0; by /= 2) {
        float other = __shfl_xor_sync(0xffffffffu, v, by);
        v = largest ? fmaxf(v, other) : v + other;
    }
    if (lane == 0) parts[warp] = v;
    __syncthreads();
    v = parts[0];
    for (int w = 1; w < warps; w++) v = largest ? fmaxf(v, parts[w]) : v + parts[w];
    __syncthreads(); // everybody has read: the next use may overwrite
    return v;
}
//]

__global__ void softmax_kernel(float *out, float *lse, const float *x, int rows, int cols)
{
    //[
    //+ (void)out, (void)lse, (void)x, (void)rows, (void)cols; // write this
    SHARED(float, parts, [32]);
    for (int r = (int)blockIdx.x; r < rows; r += (int)gridDim.x) {
        const float *from = x + (size_t)r * (size_t)cols;
        float *to = out + (size_t)r * (size_t)cols, top = -INFINITY, sum = 0;
        for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x) top = fmaxf(top, from[c]);
        top = reduce(top, true, parts);
        for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x) sum += expf(from[c] - top);
        sum = reduce(sum, false, parts);
        for (int c = (int)threadIdx.x; c < cols; c += (int)blockDim.x) to[c] = expf(from[c] - top) / sum;
        if (lse && threadIdx.x == 0) lse[r] = top + logf(sum);
    }
    //]
}
