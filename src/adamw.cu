// adamw: Adam's update with decay on the weight or through the gradient, on the GPU. The twin of adamw in adamw.c.
//
// Formulas as in adamw.c. One pass over memory; the low-precision copy of the weight, where there is one, is written by
// the same thread that has the weight in a register. Element-wise: any cut over elements gives the same bits.
#include "kernels.h"

#include <cmath>

template <class X>
__global__ void adamw_kernel(float *weight, X *copy, float *m, float *v, float *grad, size_t n, Update u, float c1,
                             float c2)
{
    size_t step = (size_t)gridDim.x * blockDim.x;
    float shrink = u.l2 ? 1 : 1 - u.lr * u.weight_decay, pull = u.l2 ? u.weight_decay : 0;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        float w = weight[i], g = grad[i] * u.grad_scale + pull * w;
        float mi = u.beta1 * m[i] + (1 - u.beta1) * g;
        float vi = u.beta2 * v[i] + (1 - u.beta2) * g * g;
        m[i] = mi;
        v[i] = vi;
        w = w * shrink - u.lr * (mi * c1) / (sqrtf(vi * c2) + u.eps);
        weight[i] = w;
        grad[i] = 0;
        if (copy) copy[i] = X(w);
    }
}

template <class X>
void adamw_cuda(float *weight, X *copy, float *m, float *v, float *grad, size_t n, Update u, int blocks, int threads,
                cudaStream_t stream)
{
    if (n == 0) return;
    float c1 = (float)(1 / (1 - pow(u.beta1, u.step))), c2 = (float)(1 / (1 - pow(u.beta2, u.step)));
    LAUNCH((adamw_kernel<X>), (unsigned)blocks, (unsigned)threads, 0, stream, weight, copy, m, v, grad, n, u, c1, c2);
}

template void adamw_cuda<float>(float *, float *, float *, float *, float *, size_t, Update, int, int, cudaStream_t);
template void adamw_cuda<__nv_bfloat16>(float *, __nv_bfloat16 *, float *, float *, float *, size_t, Update, int, int,
                                        cudaStream_t);
