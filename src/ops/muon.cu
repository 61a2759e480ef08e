// muon: momentum, made orthogonal, on the GPU. The twin of muon.c, where the formulas are.
//
//   five times:  A = X X^T (tall: X^T X),  B = c1 + c3 A + c5 A A,  X = B X (tall: X B)
//
// The products are matmul.cu's, c5 A A + c3 A with cuBLASLt's C; only c1 on the diagonal is a kernel. The norm that X
// starts from stays on the GPU, as partial sums of squares.
// The invariant: fp32 products (TF32 where the device is told to use it), one order of sums: same bits.
#include "ops/ops_gpu.h"

namespace {

enum { STEPS = 5 };
constexpr float COEF_1 = 3.4445f, COEF_3 = -4.7750f, COEF_5 = 2.0315f;

struct Momentum { // grad becomes Nesterov's look-ahead
    float *m, *grad;
    float b, grad_scale;
    template <int W> __device__ void run(size_t i) const
    {
        float mi[W], g[W];
        load<W>(mi, m + i), load<W>(g, grad + i);
        for (int k = 0; k < W; k++) {
            g[k] *= grad_scale;
            mi[k] = b * mi[k] + (1 - b) * g[k];
            g[k] = (1 - b) * g[k] + b * mi[k];
        }
        store<W>(m + i, mi), store<W>(grad + i, g);
    }
};

__global__ void muon_to_one_kernel(float *x, const double *squares, size_t n)
{
    float factor = (float)(1 / (sqrt(sums_of_ranges(squares)) + 1e-7));
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = at; i < n; i += stride) x[i] *= factor;
}

struct Diagonal {
    float *b;
    size_t k;
    template <int W> __device__ void run(size_t i) const
    {
        for (int j = 0; j < W; j++) b[(i + (size_t)j) * (k + 1)] += COEF_1;
    }
};

struct Apply {
    float *weight, *grad;
    const float *x;
    float shrink, scale;
    template <int W> __device__ void run(size_t i) const
    {
        float w[W], v[W];
        load<W>(w, weight + i), load<W>(v, x + i);
        for (int k = 0; k < W; k++) w[k] = w[k] * shrink - scale * v[k], v[k] = 0;
        store<W>(weight + i, w), store<W>(grad + i, v);
    }
};

void muon(Dev *dev, float *weight, float *m, float *grad, float *scratch, size_t R, size_t C, Update u)
{
    DevCuda *d = ops_gpu(dev);
    size_t n = R * C, k = R < C ? R : C;
    bool tall = R > C;
    if (n == 0) return;
    elements<4>(d, n, aligned(m, grad), Momentum{m, grad, u.beta1, u.grad_scale});
    double *squares = (double *)ops_gpu_scratch(d, OPS_RANGES * sizeof *squares);
    sums_squares(d, squares, grad, n);
    LAUNCH(muon_to_one_kernel, blocks_for(d, n, d->threads), (unsigned)d->threads, 0, d->stream, grad, squares, n);
    float *from = grad, *to = scratch, *A = scratch + n, *B = A + k * k;
    for (int i = 0; i < STEPS; i++) {
        matmul_cuda_rows(d, tall, !tall, k, k, tall ? R : C, 1, from, from, 0, nullptr, A);
        matmul_cuda_rows(d, false, false, k, k, k, COEF_5, A, A, COEF_3, A, B);
        elements<1>(d, k, false, Diagonal{B, k});
        if (tall) matmul_cuda_rows(d, false, false, R, C, k, 1, from, B, 0, nullptr, to);
        else matmul_cuda_rows(d, false, false, R, C, k, 1, B, from, 0, nullptr, to);
        float *old = from;
        from = to, to = old;
    }
    float shrink = 1 - u.lr * u.weight_decay, scale = u.lr * 0.2f * sqrtf((float)(R > C ? R : C));
    elements<4>(d, n, aligned(weight, grad, from), Apply{weight, grad, from, shrink, scale});
}

} // namespace

void muon_cuda_fill(Dev *dev)
{
    dev->muon = muon;
}
