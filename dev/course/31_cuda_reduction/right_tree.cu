// A tree in shared memory without shuffles; sum_on_gpu with one chunk in 32.
#include "reduction.h"

__global__ void chunk_sums_kernel(float *sums, const float *x, int n, int chunk)
{
    SHARED(float, tree, [1024]);
    int t = (int)threadIdx.x;
    for (int c = (int)blockIdx.x; (long)c * chunk < n; c += (int)gridDim.x) {
        __syncthreads();
        tree[t] = 0;
        for (int i = t; i < chunk && c * chunk + i < n; i += (int)blockDim.x) tree[t] += x[c * chunk + i];
        for (int half = 512; half > 0; half /= 2) {
            __syncthreads();
            if (t < half && t + half < (int)blockDim.x) tree[t] += tree[t + half];
        }
        if (t == 0) sums[c] = tree[0];
    }
}

float sum_on_gpu(const float *x, int n)
{
    float sum = 0, *sums;
    GPU_CHECK(cudaMalloc(&sums, 33 * sizeof *sums));
    int chunk = n / 32 + 1;
    LAUNCH(chunk_sums_kernel, 7, 128, 0, nullptr, sums, x, n, chunk);
    LAUNCH(chunk_sums_kernel, 1, 32, 0, nullptr, sums + 32, sums, (n + chunk - 1) / chunk, 32);
    if (n > 0) GPU_CHECK(cudaMemcpy(&sum, sums + 32, sizeof sum, cudaMemcpyDeviceToHost));
    GPU_CHECK(cudaFree(sums));
    return sum;
}
