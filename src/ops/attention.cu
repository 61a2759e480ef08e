// attention: causal attention with grouped queries on the GPU, plain. The twin of attention.c, where the formulas
// are; flash.cu does the same on tensor cores.
//
// One warp a query, keys 32 at a time. For the scores a lane has a key to itself; for the output it has channels
// lane, lane + 32, ... to itself, and the 32 probabilities come round by shuffles. So a row needs no shared memory
// and no barrier, and its sums run in one order, whatever the block size: same bits.
//
//   m' = max(m, scores),  p = exp(score - m'),  l = l e^(m - m') + sum p,  o = o e^(m - m') + p v;  out = o / l
//
// Backward twice over the scores: once a warp has a query and sums dq, once it has a key and sums dk and dv over the
// queries, and the heads of the group, that see it. Nothing is summed across warps.
// The invariant: keys that a query does not see are not read.
// Rejected: atomics on dq or on dk and dv, which would need the scores once only, but give other bits every time.
#include "ops/attention_gpu.h"
#include "ops/kernels.h"

enum { MOST = 256 / 32 }; // channels of a lane

template <class X> __device__ inline float dot(const X *a, const X *b, size_t n)
{
    float sum = 0;
    for (size_t d = 0; d < n; d++) sum += (float)a[d] * (float)b[d];
    return sum;
}

// o += weight x over the lane's channels.
template <class X> __device__ inline void add_row(float *o, float weight, const X *x, int lane, int D)
{
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (lane + 32 * i < D) o[i] += weight * (float)x[lane + 32 * i];
}

template <class O> __device__ inline void store_row(O *x, const float *o, float factor, int lane, int D)
{
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (lane + 32 * i < D) x[lane + 32 * i] = O(o[i] * factor);
}

// The warp's row of n, which are the innermost index of (B, heads, n).
struct Place {
    size_t b, h, t;
    bool inside;
};
__device__ inline Place place(size_t B, size_t heads, size_t n)
{
    size_t row = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    return {row / n / heads, row / n % heads, row % n, row < B * heads * n};
}

template <class X, class O, bool PART>
__global__ void attention_forward_kernel(O *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    Place at = place(s.B, s.H, s.Tq);
    if (!at.inside) return; // the whole warp
    int lane = (int)threadIdx.x, end = attention_gpu_end<PART>(s, at.t), D = (int)s.D;
    float m = -INFINITY, l = 0, o[MOST] = {};
    q += attention_gpu_q(s, at.b, at.h, at.t), k += attention_gpu_kv(s, at.b, at.h, 0),
        v += attention_gpu_kv(s, at.b, at.h, 0);
    for (int j0 = attention_gpu_first<PART>(s, at.b, at.t); j0 < end; j0 += 32) {
        int j = j0 + lane;
        float score = j < end ? s.scale * dot(q, k + (size_t)j * s.ldkv, s.D) : -INFINITY;
        float top = fmaxf(m, warp_max(score)), p = j < end ? expf(score - top) : 0; // fmaxf skips NaN, exp does not
        float shrink = m == -INFINITY ? 0 : expf(m - top);
        m = top, l = l * shrink + warp_sum(p);
        if (s.drop.p > 0 && j < end) p *= attention_gpu_keep<PART>(s, at.b, at.h, at.t, (size_t)j);
        for (int i = 0; i < MOST; i++) o[i] *= shrink;
        for (int i = 0; i < 32 && j0 + i < end; i++)
            add_row(o, __shfl_sync(0xffffffffu, p, i), v + (size_t)(j0 + i) * s.ldkv, lane, D);
    }
    bool none = m == -INFINITY && l == 0; // of a piece: no key that the query sees
    store_row(out + attention_gpu_out(s, at.b, at.h, at.t), o, none ? 0 : 1 / l, lane, D);
    if (lse && lane == 0) lse[attention_gpu_stat(s, at.b, at.h, at.t)] = m + logf(l);
}

template <class X> __global__ void attention_delta_kernel(float *delta, const X *dout, const X *out, AttnShape s)
{
    Place at = place(s.B, s.H, s.Tq);
    if (!at.inside) return;
    size_t row = attention_gpu_out(s, at.b, at.h, at.t);
    float sum = 0;
    for (size_t d = threadIdx.x; d < s.D; d += 32) sum += (float)dout[row + d] * (float)out[row + d];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) delta[attention_gpu_stat(s, at.b, at.h, at.t)] = sum;
}

// P (with dropout: P * K) and dS of one pair.
struct Pair {
    float p, ds;
};
template <bool PART, class X>
__device__ inline Pair backward_pair(const X *q, const X *k, const X *v, const X *dout, float lse, float delta,
                                     Place at, size_t j, const AttnShape &s)
{
    float p = expf(s.scale * dot(q, k, s.D) - lse),
          keep = s.drop.p > 0 ? attention_gpu_keep<PART>(s, at.b, at.h, at.t, j) : 1;
    return {p * keep, s.scale * p * (keep * dot(dout, v, s.D) - delta)};
}

// dq has rows lddq apart, dk and dv lddkv: in a piece they are not where q, k and v are.
template <class X, class O, bool PART>
__global__ void attention_dq_kernel(O *dq, const X *dout, const float *lse, const float *delta, const X *q,
                                    const X *k, const X *v, AttnShape s, size_t lddq)
{
    Place at = place(s.B, s.H, s.Tq);
    if (!at.inside) return;
    int lane = (int)threadIdx.x, end = attention_gpu_end<PART>(s, at.t), D = (int)s.D;
    size_t stat = attention_gpu_stat(s, at.b, at.h, at.t), row = attention_gpu_q(s, at.b, at.h, at.t);
    k += attention_gpu_kv(s, at.b, at.h, 0), v += attention_gpu_kv(s, at.b, at.h, 0);
    dout += attention_gpu_out(s, at.b, at.h, at.t);
    float sum[MOST] = {};
    for (int j0 = attention_gpu_first<PART>(s, at.b, at.t); j0 < end; j0 += 32) {
        size_t j = (size_t)(j0 + lane);
        Pair pair = {0, 0};
        if (j0 + lane < end)
            pair = backward_pair<PART>(q + row, k + j * s.ldkv, v + j * s.ldkv, dout, lse[stat], delta[stat], at, j, s);
        for (int i = 0; i < 32 && j0 + i < end; i++)
            add_row(sum, __shfl_sync(0xffffffffu, pair.ds, i), k + (size_t)(j0 + i) * s.ldkv, lane, D);
    }
    store_row(dq + (at.b * s.Tq + at.t) * lddq + at.h * s.D, sum, 1, lane, D);
}

template <class X, class O, bool PART>
__global__ void attention_dkv_kernel(O *dk, O *dv, const X *dout, const float *lse, const float *delta, const X *q,
                                     const X *k, const X *v, AttnShape s, size_t lddkv)
{
    Place key = place(s.B, s.G, s.Tk); // .h is the key/value head, .t the key
    if (!key.inside) return;
    size_t group = s.H / s.G, b = key.b, j = key.t, row = attention_gpu_kv(s, b, key.h * group, j);
    int lane = (int)threadIdx.x, D = (int)s.D;
    float sum_k[MOST] = {}, sum_v[MOST] = {};
    for (size_t h = key.h * group; h < (key.h + 1) * group; h++)
        for (size_t t0 = attention_gpu_first_query<PART>(s, j); t0 < s.Tq; t0 += 32) { // earlier ones do not see it
            size_t t = t0 + (size_t)lane;
            Pair pair = {0, 0};
            if (t < s.Tq && attention_gpu_first<PART>(s, b, t) <= (int)j) {
                size_t stat = attention_gpu_stat(s, b, h, t);
                pair = backward_pair<PART>(q + attention_gpu_q(s, b, h, t), k + row, v + row,
                                     dout + attention_gpu_out(s, b, h, t), lse[stat], delta[stat], {b, h, t, true}, j,
                                     s);
            }
            for (size_t i = 0; i < 32 && t0 + i < s.Tq; i++) {
                if (attention_gpu_first<PART>(s, b, t0 + i) > (int)j) continue; // the whole warp
                add_row(sum_k, __shfl_sync(0xffffffffu, pair.ds, (int)i), q + attention_gpu_q(s, b, h, t0 + i), lane,
                        D);
                add_row(sum_v, __shfl_sync(0xffffffffu, pair.p, (int)i), dout + attention_gpu_out(s, b, h, t0 + i),
                        lane, D);
            }
        }
    size_t to = (b * s.Tk + j) * lddkv + key.h * s.D;
    store_row(dk + to, sum_k, 1, lane, D);
    store_row(dv + to, sum_v, 1, lane, D);
}

static unsigned blocks_of(size_t rows_in_all, int rows)
{
    return (unsigned)((rows_in_all + (size_t)rows - 1) / (size_t)rows);
}

template <class X>
void attention_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                            cudaStream_t stream)
{
    AttnShape s = attention_gpu_shape(shape);
    GPU_CHECK(s.D <= 32 * MOST ? cudaSuccess : cudaErrorInvalidValue);
    if (s.B * s.Tq == 0) return;
    LAUNCH((attention_forward_kernel<X, X, false>), blocks_of(s.B * s.H * s.Tq, rows), dim3(32, (unsigned)rows), 0,
           stream, out, lse, q, k, v, s);
}

template <class X>
void attention_delta_cuda(float *delta, const X *dout, const X *out, AttnShape s, int rows, cudaStream_t stream)
{
    if (s.B * s.Tq == 0) return;
    LAUNCH((attention_delta_kernel<X>), blocks_of(s.B * s.H * s.Tq, rows), dim3(32, (unsigned)rows), 0, stream, delta,
           dout, out, s);
}

template <class X>
void attention_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse,
                             const X *q, const X *k, const X *v, AttnShape shape, int rows, cudaStream_t stream)
{
    AttnShape s = attention_gpu_shape(shape);
    GPU_CHECK(s.D <= 32 * MOST && s.q_start == 0 ? cudaSuccess : cudaErrorInvalidValue);
    if (s.B * s.Tk == 0) return;
    dim3 block(32, (unsigned)rows);
    attention_delta_cuda(delta, dout, out, s, rows, stream);
    if (s.Tq)
        LAUNCH((attention_dq_kernel<X, X, false>), blocks_of(s.B * s.H * s.Tq, rows), block, 0, stream, dq, dout, lse,
               delta, q, k, v, s, s.ldq);
    LAUNCH((attention_dkv_kernel<X, X, false>), blocks_of(s.B * s.G * s.Tk, rows), block, 0, stream, dk, dv, dout, lse,
           delta, q, k, v, s, s.ldkv);
}

// ---- pieces: the same kernels, where positions follow from the piece and results are fp32
template <class X>
void attention_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                 cudaStream_t stream)
{
    AttnShape s = attention_gpu_shape(shape, true);
    GPU_CHECK(s.D <= 32 * MOST ? cudaSuccess : cudaErrorInvalidValue);
    if (s.B * s.Tq == 0) return;
    LAUNCH((attention_forward_kernel<X, float, true>), blocks_of(s.B * s.H * s.Tq, rows), dim3(32, (unsigned)rows), 0,
           stream, out, lse, q, k, v, s);
}

template <class X>
void attention_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                                  const float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                  cudaStream_t stream)
{
    AttnShape s = attention_gpu_shape(shape, true);
    GPU_CHECK(s.D <= 32 * MOST ? cudaSuccess : cudaErrorInvalidValue);
    if (s.B == 0) return;
    dim3 block(32, (unsigned)rows);
    attention_delta_cuda(delta, dout, out, s, rows, stream);
    if (s.Tq)
        LAUNCH((attention_dq_kernel<X, float, true>), blocks_of(s.B * s.H * s.Tq, rows), block, 0, stream, dq, dout,
               lse, delta, q, k, v, s, s.H * s.D);
    if (s.Tk)
        LAUNCH((attention_dkv_kernel<X, float, true>), blocks_of(s.B * s.G * s.Tk, rows), block, 0, stream, dk, dv,
               dout, lse, delta, q, k, v, s, s.G * s.D);
}

#define INSTANTIATE(X)                                                                                               \
    template void attention_forward_cuda<X>(X *, float *, const X *, const X *, const X *, AttnShape, int,           \
                                            cudaStream_t);                                                           \
    template void attention_delta_cuda<X>(float *, const X *, const X *, AttnShape, int, cudaStream_t);              \
    template void attention_backward_cuda<X>(X *, X *, X *, float *, const X *, const X *, const float *, const X *, \
                                             const X *, const X *, AttnShape, int, cudaStream_t);                    \
    template void attention_part_forward_cuda<X>(float *, float *, const X *, const X *, const X *, AttnShape, int,  \
                                                 cudaStream_t);                                                      \
    template void attention_part_backward_cuda<X>(float *, float *, float *, float *, const X *, const X *,          \
                                                  const float *, const X *, const X *, const X *, AttnShape, int,    \
                                                  cudaStream_t);
INSTANTIATE(float)
INSTANTIATE(__nv_bfloat16)
INSTANTIATE(__half)
