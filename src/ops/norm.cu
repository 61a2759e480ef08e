// norm: LayerNorm and RMSNorm fused with the residual addition, and the per-head RMSNorm, on the GPU. The twin of
// norm.c, where the formulas are.
//
//   sum = a + b (b may be null),  y = w (x - mean) rstd + bias,  x = sum as it is stored
//
// Forward: one warp per row; the row is read twice, the second time from the cache. blockDim = (32, rows of a block).
// Backward: a block goes over rows blockIdx.x, blockIdx.x + gridDim.x, ...; each channel belongs to one thread, which
// keeps the channel's sums for dweight and dbias in shared memory. So they need no barrier, and dout and inp are read
// once. The blocks' sums are then added in order (sums.cu). The rows of heads (D) are too short for a block: there each
// warp has a row, and its own sums.
// The invariant: what is normalised is what was stored, so that backward, which reads the stored sum, differentiates
// the function that forward computed.
// Rejected: one block a row in forward (a barrier per reduction, and most threads idle at C = 768); one pass with sum
// and sum of squares (cancels when the mean is large); a second kernel for dweight, which reads everything again.
#include "ops/dev_cuda.h"

#include <type_traits>

namespace {

template <class X, int W>
__global__ void norm_forward_kernel(X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                                    const X *bias, int N, int C, bool centred, float eps)
{
    int n = (int)(blockIdx.x * blockDim.y + threadIdx.y), first = (int)threadIdx.x * W, step = 32 * W;
    if (n >= N) return; // the whole warp
    const X *x = a + (size_t)n * C;
    float v[W], w[W];
    if (b) {
        X *row = sum + (size_t)n * C;
        for (int c = first; c < C; c += step) {
            load<W>(v, x + c), load<W>(w, b + (size_t)n * C + c);
            for (int k = 0; k < W; k++) v[k] += w[k];
            store<W>(row + c, v);
        }
        x = row; // each lane reads back what it wrote itself
    }
    float m = 0, squares = 0;
    if (centred) {
        for (int c = first; c < C; c += step) {
            load<W>(v, x + c);
            for (int k = 0; k < W; k++) m += v[k];
        }
        m = warp_sum(m) / (float)C;
    }
    for (int c = first; c < C; c += step) {
        load<W>(v, x + c);
        for (int k = 0; k < W; k++) squares += (v[k] - m) * (v[k] - m);
    }
    float r = 1 / sqrtf(warp_sum(squares) / (float)C + eps);
    for (int c = first; c < C; c += step) {
        load<W>(v, x + c), load<W>(w, weight + c);
        for (int k = 0; k < W; k++) v[k] = w[k] * ((v[k] - m) * r);
        if (bias) {
            load<W>(w, bias + c);
            for (int k = 0; k < W; k++) v[k] += w[k];
        }
        store<W>(out + (size_t)n * C + c, v);
    }
    if (threadIdx.x == 0) {
        rstd[n] = r;
        if (centred) mean[n] = m;
    }
}

// dw[k apart] += dout xhat, db[k apart] += dout, and this pack's part of the sums of g = dout w and of g xhat.
template <int W, class E>
__device__ inline void row_sums(float &g_sum, float &gn_sum, float *dw, float *db, int apart, const E *dout,
                                const E *inp, const E *weight, float m, float r)
{
    float x[W], dy[W], w[W];
    load<W>(x, inp), load<W>(dy, dout), load<W>(w, weight);
    for (int k = 0; k < W; k++) {
        float hat = (x[k] - m) * r, g = dy[k] * w[k];
        g_sum += g, gn_sum += g * hat;
        dw[k * apart] += dy[k] * hat;
        if (db) db[k * apart] += dy[k];
    }
}

template <int W, class E>
__device__ inline void row_gradient(E *dinp, const E *dout, const E *dresid, const E *inp, const E *weight, float m,
                                    float r, float g_mean, float gn_mean)
{
    float x[W], dy[W], w[W];
    load<W>(x, inp), load<W>(dy, dout), load<W>(w, weight);
    for (int k = 0; k < W; k++) x[k] = r * (dy[k] * w[k] - g_mean - (x[k] - m) * r * gn_mean);
    if (dresid) {
        load<W>(w, dresid);
        for (int k = 0; k < W; k++) x[k] += w[k];
    }
    store<W>(dinp, x);
}

// partial (gridDim.x, 2, C): dweight and dbias of the block's rows
template <class E, int W>
__global__ void norm_backward_kernel(E *dinp, float *partial, const E *dout, const E *dresid, const E *inp,
                                     const float *mean, const float *rstd, const E *weight, int N, int C, bool centred)
{
    DYN_SHARED(float, sums); // (2, W, C / W): neighbours in a pack lie apart, so that a warp's lanes are neighbours
    int first = (int)threadIdx.x * W, step = (int)blockDim.x * W, apart = C / W;
    for (int c = first; c < C; c += step)
        for (int k = 0; k < W; k++) sums[c / W + k * apart] = sums[C + c / W + k * apart] = 0;
    for (int n = (int)blockIdx.x; n < N; n += (int)gridDim.x) {
        size_t row = (size_t)n * C;
        float m = centred ? mean[n] : 0, r = rstd[n], g_sum = 0, gn_sum = 0;
        for (int c = first; c < C; c += step)
            row_sums<W>(g_sum, gn_sum, sums + c / W, sums + C + c / W, apart, dout + row + c, inp + row + c, weight + c,
                        m, r);
        float g_mean = centred ? block_sum(g_sum) / (float)C : 0;
        float gn_mean = block_sum(gn_sum) / (float)C;
        for (int c = first; c < C; c += step)
            row_gradient<W>(dinp + row + c, dout + row + c, dresid ? dresid + row + c : nullptr, inp + row + c,
                            weight + c, m, r, g_mean, gn_mean);
    }
    for (int c = first; c < C; c += step)
        for (int k = 0; k < W; k++) {
            partial[(size_t)blockIdx.x * 2 * C + c + k] = sums[c / W + k * apart];
            partial[((size_t)blockIdx.x * 2 + 1) * C + c + k] = sums[C + c / W + k * apart];
        }
}

// Of heads: row i is head i % heads of row i / heads. A warp has rows of its own, and partial (warps of the grid, D).
template <class E>
__global__ void head_norm_backward_kernel(E *dinp, float *partial, const E *dout, const E *inp, const float *rstd,
                                          const E *weight, size_t rows, size_t heads, int D, size_t ld)
{
    DYN_SHARED(float, memory); // (warps, D)
    int lane = (int)threadIdx.x;
    float *sums = memory + threadIdx.y * D;
    for (int c = lane; c < D; c += 32) sums[c] = 0;
    size_t warp = (size_t)blockIdx.x * blockDim.y + threadIdx.y, warps = (size_t)gridDim.x * blockDim.y;
    for (size_t i = warp; i < rows; i += warps) {
        size_t at = i / heads * ld + i % heads * (size_t)D;
        float g_sum = 0, gn_sum = 0, r = rstd[i];
        for (int c = lane; c < D; c += 32)
            row_sums<1>(g_sum, gn_sum, sums + c, nullptr, 1, dout + at + c, inp + at + c, weight + c, 0, r);
        gn_sum = warp_sum(gn_sum) / (float)D;
        for (int c = lane; c < D; c += 32)
            row_gradient<1>(dinp + at + c, dout + at + c, (const E *)nullptr, inp + at + c, weight + c, 0, r, 0,
                            gn_sum);
    }
    for (int c = lane; c < D; c += 32) partial[warp * D + c] = sums[c];
}

template <class E>
__global__ void head_norm_forward_kernel(E *out, float *rstd, const E *inp, const E *weight, size_t rows, size_t heads,
                                         int D, size_t ld, float eps)
{
    size_t i = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= rows) return;
    size_t at = i / heads * ld + i % heads * (size_t)D;
    int lane = (int)threadIdx.x;
    float squares = 0;
    for (int c = lane; c < D; c += 32) squares += (float)inp[at + c] * (float)inp[at + c];
    float r = 1 / sqrtf(warp_sum(squares) / (float)D + eps);
    for (int c = lane; c < D; c += 32) out[at + c] = E((float)weight[c] * ((float)inp[at + c] * r));
    if (lane == 0) rstd[i] = r;
}

template <class E>
void norm_forward(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                  const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    unsigned rows = (unsigned)d->threads / 32, blocks = ((unsigned)N + rows - 1) / rows; // a warp a row
    bool centred = kind == NORM_LAYERNORM;
    auto go = [&](auto width) {
        constexpr int W = decltype(width)::value;
        LAUNCH((norm_forward_kernel<E, W>), blocks, dim3(32, rows), 0, d->stream, ops_as<E>(out), ops_as<E>(sum), mean,
               rstd, ops_as<E>(a), ops_as<E>(b), ops_as<E>(weight), ops_as<E>(bias), (int)N, (int)C, centred, eps);
    };
    if (C % WIDE<E> == 0 && aligned(out, sum, a, b, weight, bias)) go(std::integral_constant<int, WIDE<E>>());
    else go(std::integral_constant<int, 1>());
}

template <class E, int W>
void norm_backward_launch(DevCuda *d, unsigned blocks, E *dinp, float *partial, const E *dout, const E *dresid,
                          const E *inp, const float *mean, const float *rstd, const E *weight, size_t N, size_t C,
                          bool centred)
{
    size_t bytes = 2 * C * sizeof(float); // the kernel has static shared memory too, so 48 KiB may be passed earlier
    GPU_CHECK(cudaFuncSetAttribute(norm_backward_kernel<E, W>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    LAUNCH((norm_backward_kernel<E, W>), blocks, threads_for(C / W, d->threads), bytes, d->stream, dinp, partial, dout,
           dresid, inp, mean, rstd, weight, (int)N, (int)C, centred);
}

template <class E>
void norm_backward(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid, const X *inp,
                   const float *mean, const float *rstd, const X *weight, size_t N, size_t C, NormKind kind)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    size_t blocks = (size_t)d->processors * 8, n_partial;
    if (blocks > N) blocks = N;
    n_partial = blocks * 2 * C;
    float *partial = (float *)dev_cuda_scratch(d, (n_partial + sums_columns_room(blocks, C)) * sizeof *partial);
    auto launch = C % WIDE<E> == 0 && aligned(dinp, dout, dresid, inp, weight) ? norm_backward_launch<E, WIDE<E>>
                                                                               : norm_backward_launch<E, 1>;
    launch(d, (unsigned)blocks, ops_as<E>(dinp), partial, ops_as<E>(dout), ops_as<E>(dresid), ops_as<E>(inp), mean,
           rstd, ops_as<E>(weight), N, C, kind == NORM_LAYERNORM);
    sums_columns(d, dweight, (const float *)partial, blocks, C, 2 * C, partial + n_partial);
    if (dbias) sums_columns(d, dbias, (const float *)partial + C, blocks, C, 2 * C, partial + n_partial);
}

template <class E>
void head_norm_forward(Dev *dev, X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads, size_t D,
                       size_t ld, float eps)
{
    DevCuda *d = dev_cuda(dev);
    size_t rows = N * heads, warps = (size_t)d->threads / 32;
    if (rows == 0) return;
    LAUNCH((head_norm_forward_kernel<E>), (unsigned)((rows + warps - 1) / warps), dim3(32, (unsigned)warps), 0,
           d->stream, ops_as<E>(out), rstd, ops_as<E>(inp), ops_as<E>(weight), rows, heads, (int)D, ld, eps);
}

template <class E>
void head_norm_backward(Dev *dev, X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd,
                        const X *weight, size_t N, size_t heads, size_t D, size_t ld)
{
    DevCuda *d = dev_cuda(dev);
    size_t rows = N * heads, warps = (size_t)d->threads / 32;
    if (rows == 0) return;
    while (warps > 1 && warps * D * sizeof(float) > 48 << 10) warps /= 2;
    size_t bytes = warps * D * sizeof(float);
    GPU_CHECK(cudaFuncSetAttribute(head_norm_backward_kernel<E>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   (int)bytes));
    size_t most = (size_t)d->processors * 4, blocks = (rows + warps - 1) / warps;
    if (blocks > most) blocks = most;
    size_t sums = blocks * warps;
    float *partial = (float *)dev_cuda_scratch(d, (sums * D + sums_columns_room(sums, D)) * sizeof *partial);
    LAUNCH((head_norm_backward_kernel<E>), (unsigned)blocks, dim3(32, (unsigned)warps), bytes, d->stream,
           ops_as<E>(dinp), partial, ops_as<E>(dout), ops_as<E>(inp), rstd, ops_as<E>(weight), rows, heads,
           (int)D, ld);
    sums_columns(d, dweight, (const float *)partial, sums, D, D, partial + sums * D);
}

} // namespace

template <class E> void norm_cuda_fill(Dev *dev)
{
    dev->norm_forward = norm_forward<E>;
    dev->norm_backward = norm_backward<E>;
    dev->head_norm_forward = head_norm_forward<E>;
    dev->head_norm_backward = head_norm_backward<E>;
}
DEV_CUDA_FILL(norm)
