// ffn: the gated activation of LLaMA's feed-forward layer, and GELU alone, on the CPU. (In training GELU is
// applied within the matmul, see matmul.c; alone it serves recomputation, which must give the same bits: both
// call vmath_gelu.)
//
//   SwiGLU (Shazeer, arXiv 2002.05202): out = silu(gate) * up, silu(x) = x sigmoid(x)
//   dgate = dout * up * s (1 + gate (1 - s)),  dup = dout * gate * s,  with s = sigmoid(gate)
//
// gate and up are the two halves of one row (N, 2F), because one matmul over the adjacent weights makes both.
// The invariant: element-wise, so any cut over rows or columns gives the same bits.
#include "ops/dev_cpu.h"

#include "ops/vmath.h"

static void swiglu_forward(Dev *dev, X *out_, const X *gate_up, size_t N, size_t F)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        float *out = (float *)out_ + n * F;
        const float *gate = (const float *)gate_up + n * 2 * F, *up = gate + F;
#pragma omp simd
        for (size_t f = 0; f < F; f++) out[f] = gate[f] * vmath_sigmoid(gate[f]) * up[f];
    }
}

static void swiglu_backward(Dev *dev, X *dgate_up, const X *dout_, const X *gate_up, size_t N, size_t F)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        const float *dout = (const float *)dout_ + n * F;
        const float *gate = (const float *)gate_up + n * 2 * F, *up = gate + F;
        float *dgate = (float *)dgate_up + n * 2 * F, *dup = dgate + F;
#pragma omp simd
        for (size_t f = 0; f < F; f++) {
            float s = vmath_sigmoid(gate[f]), g = gate[f], u = up[f], d = dout[f];
            dgate[f] = d * u * s * (1 + g * (1 - s));
            dup[f] = d * g * s;
        }
    }
}

static void gelu_forward(Dev *dev, X *out_, const X *pre_, size_t n)
{
    float *out = (float *)out_;
    const float *pre = (const float *)pre_;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) out[i] = vmath_gelu(pre[i]);
}

void ffn_cpu_fill(Dev *dev)
{
    dev->gelu_forward = gelu_forward;
    dev->swiglu_forward = swiglu_forward;
    dev->swiglu_backward = swiglu_backward;
}
