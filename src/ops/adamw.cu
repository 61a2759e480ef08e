// adamw: Adam's update with decay on the weight or through the gradient, on the GPU. The twin of adamw in adamw.c.
//
// Formulas as in adamw.c. One pass over memory; the low-precision copy of the weight, where there is one, is written by
// the same thread that has the weight in a register. Element-wise: any cut over elements gives the same bits.
#include "ops/kernels.h"
#include "ops/ops_gpu.h"

#include <cmath>

namespace {

template <class E> struct Adamw {
    float *weight;
    E *copy; // may be null
    float *m, *v, *grad;
    Update u;
    float c1, c2;
    template <int W> __device__ void run(size_t i) const
    {
        float w[W], mi[W], vi[W], g[W], shrink = u.l2 ? 1 : 1 - u.lr * u.weight_decay, pull = u.l2 ? u.weight_decay : 0;
        load<W>(w, weight + i), load<W>(mi, m + i), load<W>(vi, v + i), load<W>(g, grad + i);
        for (int k = 0; k < W; k++) {
            g[k] = g[k] * u.grad_scale + pull * w[k];
            mi[k] = u.beta1 * mi[k] + (1 - u.beta1) * g[k];
            vi[k] = u.beta2 * vi[k] + (1 - u.beta2) * g[k] * g[k];
            w[k] = w[k] * shrink - u.lr * (mi[k] * c1) / (sqrtf(vi[k] * c2) + u.eps);
            g[k] = 0;
        }
        store<W>(m + i, mi), store<W>(v + i, vi), store<W>(weight + i, w), store<W>(grad + i, g);
        if (copy) store<W>(copy + i, w);
    }
};

template <class E>
Adamw<E> adamw_make(float *weight, E *copy, float *m, float *v, float *grad, Update u)
{
    double c1 = 1 / (1 - pow(u.beta1, u.step)), c2 = 1 / (1 - pow(u.beta2, u.step));
    return {weight, copy, m, v, grad, u, (float)c1, (float)c2};
}

void adamw(Dev *dev, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    elements<4>(ops_gpu(dev), n, aligned(weight, m, v, grad), adamw_make<float>(weight, nullptr, m, v, grad, u));
}

} // namespace

template <class X>
void adamw_cuda(float *weight, X *copy, float *m, float *v, float *grad, size_t n, Update u, int blocks, int threads,
                cudaStream_t stream)
{
    if (n == 0) return;
    Adamw<X> f = adamw_make<X>(weight, copy, m, v, grad, u);
    if (aligned(weight, copy, m, v, grad))
        LAUNCH((elements_kernel<4, Adamw<X>>), (unsigned)blocks, (unsigned)threads, 0, stream, n, f);
    else LAUNCH((elements_kernel<1, Adamw<X>>), (unsigned)blocks, (unsigned)threads, 0, stream, n, f);
}

template void adamw_cuda<float>(float *, float *, float *, float *, float *, size_t, Update, int, int, cudaStream_t);
template void adamw_cuda<__nv_bfloat16>(float *, __nv_bfloat16 *, float *, float *, float *, size_t, Update, int, int,
                                        cudaStream_t);

void adamw_cuda_fill(Dev *dev)
{
    dev->adamw = adamw;
}
