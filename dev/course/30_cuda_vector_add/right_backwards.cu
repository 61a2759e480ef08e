// From the last element to the first, with an unsigned index, one block of one warp.
#include "vector_add.h"

__global__ void vector_add_kernel(float *out, const float *a, const float *b, int n)
{
    unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned i = (unsigned)n; i-- > 0;)
        if (i % (gridDim.x * blockDim.x) == me) out[i] = __fadd_rn(a[i], b[i]);
}

void vector_add(float *out, const float *a, const float *b, int n)
{
    size_t bytes = (size_t)n * sizeof(float);
    float *gpu[3];
    for (float *&p : gpu) GPU_CHECK(cudaMalloc(&p, bytes + 4));
    GPU_CHECK(cudaMemcpy(gpu[0], a, bytes, cudaMemcpyHostToDevice));
    GPU_CHECK(cudaMemcpy(gpu[1], b, bytes, cudaMemcpyHostToDevice));
    LAUNCH(vector_add_kernel, 1, 32, 0, nullptr, gpu[2], gpu[0], gpu[1], n);
    GPU_CHECK(cudaMemcpy(out, gpu[2], bytes, cudaMemcpyDeviceToHost));
    for (float *p : gpu) GPU_CHECK(cudaFree(p));
}
