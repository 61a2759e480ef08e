// ffn: GELU and SwiGLU on the GPU. The twin of ffn.c, and of GELU's slope in matmul.c.
//
//   gelu(x) = x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))      (Hendrycks & Gimpel, arXiv 1606.08415)
//   swiglu  = gate s up,  s = 1 / (1 + e^-gate);   dgate = dout up s (1 + gate (1 - s)),  dup = dout gate s
//
// Memory is all that counts, so each thread moves 16 bytes at a time; the tail, and arrays that do not start at a
// multiple of 16, go element by element. Element-wise: any cut gives the same bits.
#include "ops/kernels.h"
#include "ops/ops_gpu.h"

namespace {

template <class E> struct Gelu {
    E *out;
    const E *pre;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W];
        load<W>(x, pre + i);
        for (int k = 0; k < W; k++)
            x[k] = 0.5f * x[k] * (1 + tanhf(0.7978845608028654f * (x[k] + 0.044715f * x[k] * x[k] * x[k])));
        store<W>(out + i, x);
    }
};

// Of rows (N, 2F) the pack i of the result lies in row i / F: F is a multiple of W.
template <class E> struct Swiglu {
    E *out;
    const E *gate_up;
    size_t F;
    template <int W> __device__ void run(size_t i) const
    {
        const E *gate = gate_up + i + i / F * F;
        float g[W], u[W];
        load<W>(g, gate), load<W>(u, gate + F);
        for (int k = 0; k < W; k++) u[k] *= g[k] / (1 + expf(-g[k]));
        store<W>(out + i, u);
    }
};

template <class E> struct SwigluBackward {
    E *dgate_up;
    const E *dout, *gate_up;
    size_t F;
    template <int W> __device__ void run(size_t i) const
    {
        size_t at = i + i / F * F;
        float g[W], u[W], d[W];
        load<W>(g, gate_up + at), load<W>(u, gate_up + at + F), load<W>(d, dout + i);
        for (int k = 0; k < W; k++) {
            float s = 1 / (1 + expf(-g[k])), up = u[k];
            u[k] = d[k] * g[k] * s;
            g[k] = d[k] * up * s * (1 + g[k] * (1 - s));
        }
        store<W>(dgate_up + at, g), store<W>(dgate_up + at + F, u);
    }
};

template <class E> void gelu_forward(Dev *dev, X *out, const X *pre, size_t n)
{
    elements<WIDE<E>>(ops_gpu(dev), n, aligned(out, pre), Gelu<E>{ops_as<E>(out), ops_as<E>(pre)});
}

template <class E> void swiglu_forward(Dev *dev, X *out, const X *gate_up, size_t N, size_t F)
{
    elements<WIDE<E>>(ops_gpu(dev), N * F, F % WIDE<E> == 0 && aligned(out, gate_up),
                      Swiglu<E>{ops_as<E>(out), ops_as<E>(gate_up), F});
}

template <class E> void swiglu_backward(Dev *dev, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F)
{
    elements<WIDE<E>>(ops_gpu(dev), N * F, F % WIDE<E> == 0 && aligned(dgate_up, dout, gate_up),
                      SwigluBackward<E>{ops_as<E>(dgate_up), ops_as<E>(dout), ops_as<E>(gate_up), F});
}

} // namespace

template <class X> void gelu_forward_cuda(X *out, const X *pre, size_t n, int blocks, int threads, cudaStream_t stream)
{
    if (n == 0) return;
    Gelu<X> f = {out, pre};
    if (aligned(out, pre))
        LAUNCH((elements_kernel<WIDE<X>, Gelu<X>>), (unsigned)blocks, (unsigned)threads, 0, stream, n, f);
    else LAUNCH((elements_kernel<1, Gelu<X>>), (unsigned)blocks, (unsigned)threads, 0, stream, n, f);
}
template void gelu_forward_cuda<float>(float *, const float *, size_t, int, int, cudaStream_t);
template void gelu_forward_cuda<__nv_bfloat16>(__nv_bfloat16 *, const __nv_bfloat16 *, size_t, int, int, cudaStream_t);

template <class E> void ffn_cuda_fill(Dev *dev)
{
    dev->gelu_forward = gelu_forward<E>;
    dev->swiglu_forward = swiglu_forward<E>;
    dev->swiglu_backward = swiglu_backward<E>;
}
OPS_GPU_FILL(ffn)
