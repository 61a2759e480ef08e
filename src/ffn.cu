// ffn: GELU on the GPU, the tanh form (Hendrycks & Gimpel, arXiv 1606.08415). The twin of gelu_forward in ffn.c.
//
//   gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
//
// Memory is all that counts, so each thread moves 16 bytes at a time; the tail, and arrays that do not start at a
// multiple of 16, go element by element. Element-wise: any cut gives the same bits.
#include "kernels.h"

__device__ inline float gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

template <class X> struct alignas(16) Pack {
    X x[16 / sizeof(X)];
};

template <class X> __global__ void gelu_forward_kernel(X *out, const X *pre, size_t n, bool packed)
{
    const size_t width = 16 / sizeof(X), step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, packs = packed ? n / width : 0;
    for (size_t p = i; p < packs; p += step) {
        Pack<X> in = ((const Pack<X> *)pre)[p], result;
        for (size_t k = 0; k < width; k++) result.x[k] = X(gelu((float)in.x[k]));
        ((Pack<X> *)out)[p] = result;
    }
    for (size_t k = packs * width + i; k < n; k += step) out[k] = X(gelu((float)pre[k]));
}

template <class X> void gelu_forward_cuda(X *out, const X *pre, size_t n, int blocks, int threads, cudaStream_t stream)
{
    if (n == 0) return;
    bool packed = (uintptr_t)out % 16 == 0 && (uintptr_t)pre % 16 == 0;
    LAUNCH((gelu_forward_kernel<X>), (unsigned)blocks, (unsigned)threads, 0, stream, out, pre, n, packed);
}

template void gelu_forward_cuda<float>(float *, const float *, size_t, int, int, cudaStream_t);
template void gelu_forward_cuda<__nv_bfloat16>(__nv_bfloat16 *, const __nv_bfloat16 *, size_t, int, int, cudaStream_t);
