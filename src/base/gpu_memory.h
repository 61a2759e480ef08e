// gpu_memory: memory of the GPU that was used last, as the memory door takes it (mem.h: raw_alloc, raw_free).
#ifndef GPU_MEMORY_H
#define GPU_MEMORY_H
#ifdef __cplusplus
#include "base/gpu.h"

// Zeroed; the zeros are there for every stream when it returns. NULL: none left.
inline void *gpu_alloc(size_t n_bytes)
{
    void *p = nullptr;
    cudaError_t error = cudaMalloc(&p, n_bytes);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // said by whoever asked
        return nullptr;
    }
    GPU_CHECK(error);
    GPU_CHECK(cudaMemset(p, 0, n_bytes));
    GPU_CHECK(cudaDeviceSynchronize()); // no other stream waits for the memset
    return p;
}

// Waits for the device first, as cudaFree does.
inline void gpu_release(void *ptr)
{
    GPU_CHECK(cudaFree(ptr));
}
#endif
#endif
