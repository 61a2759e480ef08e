// norm: LayerNorm and RMSNorm fused with the residual addition, on the GPU. The twin of norm_forward in norm.c.
//
//   sum = a + b (b may be null),  y = w (x - mean) rstd + bias,  x = sum as it is stored
//
// One warp a row: the row is read twice, and the second time it comes from the cache. blockDim = (32, rows of a block).
// The invariant: what is normalised is what was stored, so that backward, which reads the stored sum, differentiates
// the function that forward computed.
// Rejected: one block a row (a barrier per reduction, and most threads idle at C = 768); one pass with sum and sum of
// squares (cancels when the mean is large).
#include "kernels.h"

template <class X>
__global__ void norm_forward_kernel(X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                                    const X *bias, int N, int C, bool centred, float eps)
{
    int n = (int)(blockIdx.x * blockDim.y + threadIdx.y), lane = (int)threadIdx.x;
    if (n >= N) return; // the whole warp
    const X *x = a + (size_t)n * C;
    if (b) {
        X *row = sum + (size_t)n * C;
        for (int c = lane; c < C; c += 32) row[c] = X((float)x[c] + (float)b[(size_t)n * C + c]);
        x = row; // each lane reads back what it wrote itself
    }
    float m = 0, squares = 0;
    if (centred) {
        for (int c = lane; c < C; c += 32) m += (float)x[c];
        m = warp_sum(m) / (float)C;
    }
    for (int c = lane; c < C; c += 32) squares += ((float)x[c] - m) * ((float)x[c] - m);
    float r = 1 / sqrtf(warp_sum(squares) / (float)C + eps);
    for (int c = lane; c < C; c += 32) {
        float y = (float)weight[c] * (((float)x[c] - m) * r);
        out[(size_t)n * C + c] = X(bias ? y + (float)bias[c] : y);
    }
    if (lane == 0) {
        rstd[n] = r;
        if (centred) mean[n] = m;
    }
}

template <class X>
void norm_forward_cuda(X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight, const X *bias,
                       int N, int C, bool centred, float eps, int rows, cudaStream_t stream)
{
    if (N == 0) return;
    LAUNCH((norm_forward_kernel<X>), (N + rows - 1) / rows, dim3(32, (unsigned)rows), 0, stream, out, sum, mean, rstd,
           a, b, weight, bias, N, C, centred, eps);
}

template void norm_forward_cuda<float>(float *, float *, float *, float *, const float *, const float *, const float *,
                                       const float *, int, int, bool, float, int, cudaStream_t);
template void norm_forward_cuda<__nv_bfloat16>(__nv_bfloat16 *, __nv_bfloat16 *, float *, float *,
                                               const __nv_bfloat16 *, const __nv_bfloat16 *, const __nv_bfloat16 *,
                                               const __nv_bfloat16 *, int, int, bool, float, int, cudaStream_t);
