#include "reduction.h"

__global__ void chunk_sums_kernel(float *sums, const float *x, int n, int chunk)
{
    //[
    //+ (void)sums, (void)x, (void)n, (void)chunk; // write this
    SHARED(float, parts, [32]); // one number of each warp
    int thread = (int)threadIdx.x, threads = (int)blockDim.x, lane = thread % 32, warp = thread / 32;
    int chunks = (n + chunk - 1) / chunk;
    for (int c = (int)blockIdx.x; c < chunks; c += (int)gridDim.x) {
        int end = min(n, (c + 1) * chunk);
        float sum = 0;
        for (int i = c * chunk + thread; i < end; i += threads) sum += x[i];
        for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
        if (lane == 0) parts[warp] = sum;
        __syncthreads(); // all parts are there
        if (warp == 0) {
            sum = lane < threads / 32 ? parts[lane] : 0;
            for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
            if (lane == 0) sums[c] = sum;
        }
        __syncthreads(); // all parts have been read, and the next chunk may overwrite them
    }
    //]
}

float sum_on_gpu(const float *x, int n)
{
    //[
    //+ (void)x, (void)n; // write this
    //+ return 0;
    const int chunk = 4096, chunks = (n + chunk - 1) / chunk;
    if (n == 0) return 0;
    float *sums, *sum, host;
    GPU_CHECK(cudaMalloc(&sums, (size_t)chunks * sizeof(float)));
    GPU_CHECK(cudaMalloc(&sum, sizeof(float)));
    LAUNCH(chunk_sums_kernel, chunks, 256, 0, nullptr, sums, x, n, chunk);
    LAUNCH(chunk_sums_kernel, 1, 256, 0, nullptr, sum, sums, chunks, chunks);
    GPU_CHECK(cudaMemcpy(&host, sum, sizeof host, cudaMemcpyDeviceToHost));
    GPU_CHECK(cudaFree(sums));
    GPU_CHECK(cudaFree(sum));
    return host;
    //]
}
