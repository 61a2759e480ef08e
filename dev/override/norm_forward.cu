// norm_forward: a template for numerics.override on a GPU and in its emulation (doc/override.md): residual + norm, one
// block a row, one channel after the other for each thread, and sums over the block by a tree in shared memory.
//
//   sum = a + b,  out = weight (sum - mean) rstd + bias,  rstd = 1 / sqrt(var + eps)       (RMSNorm: mean = 0)
//
// The contract is in src/ops/dev.h, what a kernel file may use in src/base/gpu.h. E is float, __nv_bfloat16 or __half,
// as dev->x_type says; arithmetic is fp32.
#include "src/check/override.h"

enum { THREADS = 64 }; // of a block: a power of two

// The sum of v over the block, for every thread.
static __device__ float total(float v)
{
    SHARED(float, part, [THREADS]);
    int t = (int)threadIdx.x;
    part[t] = v;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads(); // the other half is written
        if (t < half) part[t] += part[t + half];
    }
    __syncthreads(); // the sum is complete
    v = part[0];
    __syncthreads(); // everybody has read it: the next call may write
    return v;
}

template <class E>
static __global__ void norm_row(E *out, E *sum, float *mean, float *rstd, const E *a, const E *b, const E *weight,
                                const E *bias, int C, bool centred, float eps)
{
    int n = (int)blockIdx.x, t = (int)threadIdx.x;
    size_t row = (size_t)n * (size_t)C;
    if (b)
        for (int c = t; c < C; c += THREADS) sum[row + c] = E((float)a[row + c] + (float)b[row + c]);
    const E *x = b ? sum + row : a + row; // the norm is of what was stored
    float m = 0, var = 0;
    for (int c = t; c < C && centred; c += THREADS) m += (float)x[c];
    m = total(m) / (float)C;
    for (int c = t; c < C; c += THREADS) var += ((float)x[c] - m) * ((float)x[c] - m);
    float r = 1 / sqrtf(total(var) / (float)C + eps);
    for (int c = t; c < C; c += THREADS)
        out[row + c] = E((float)weight[c] * (((float)x[c] - m) * r) + (bias ? (float)bias[c] : 0));
    if (t == 0) {
        if (centred) mean[n] = m; // RMSNorm leaves it alone
        rstd[n] = r;
    }
}

template <class E>
static void run(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
    if (N == 0) return;
    LAUNCH(norm_row<E>, (unsigned)N, THREADS, 0, dev_cuda(dev)->stream, ops_as<E>(out), ops_as<E>(sum), mean, rstd,
           ops_as<E>(a), ops_as<E>(b), ops_as<E>(weight), ops_as<E>(bias), (int)C, kind == NORM_LAYERNORM, eps);
}

extern "C" void norm_forward(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b,
                             const X *weight, const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
    auto typed = dev->x_type == X_FP32 ? run<float> : dev->x_type == X_BF16 ? run<__nv_bfloat16> : run<__half>;
    typed(dev, out, sum, mean, rstd, a, b, weight, bias, N, C, kind, eps);
}

OVERRIDE(norm_forward, "fp32 bf16 fp16");
