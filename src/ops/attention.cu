// attention: causal attention with grouped queries on the GPU, without tensor cores. The twin of attention.c, which has
// the formulas; flash.cu does the same on tensor cores.
//
// One warp per query, keys 32 at a time. For the scores each lane has one key; for the output each lane has channels
// lane, lane + 32, ..., and receives the 32 probabilities by shuffles. So a row needs no shared memory and no barrier,
// and its sums run in one order, whatever the block size: same bits.
//
//   m' = max(m, scores),  p = exp(score - m'),  l = l e^(m - m') + sum p,  o = o e^(m - m') + p v;  out = o / l
//
// Backward computes the scores twice. In one kernel a warp has a query and sums dq; in the other it has a key and sums
// dk and dv over the queries (of all heads of the group) that see the key. Nothing is summed across warps.
// The invariant: keys that a query does not see are not read.
// Rejected: atomics on dq or on dk and dv: the scores would be computed only once, but the bits would differ from run
// to run.
#include "ops/dev_cuda.h"

#include "base/check.h"

#include <type_traits>

enum { MOST_HEAD = 256, MOST = MOST_HEAD / 32 }; // head size; channels of a lane

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

// The warp's row: index (b, h, t) of a (B, heads, n) array.
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
    int lane = (int)threadIdx.x, end = attention_end<PART>(s, at.t), D = (int)s.D;
    float m = -INFINITY, l = 0, o[MOST] = {};
    q += attention_q(s, at.b, at.h, at.t), k += attention_kv(s, at.b, at.h, 0),
        v += attention_kv(s, at.b, at.h, 0);
    for (int j0 = attention_first<PART>(s, at.b, at.t); j0 < end; j0 += 32) {
        int j = j0 + lane;
        float score = j < end ? s.scale * dot(q, k + (size_t)j * s.ldkv, s.D) : -INFINITY;
        float top = fmaxf(m, warp_max(score)), p = j < end ? expf(score - top) : 0; // fmaxf skips NaN, exp does not
        float shrink = m == -INFINITY ? 0 : expf(m - top);
        m = top, l = l * shrink + warp_sum(p);
        if (s.drop.p > 0 && j < end) p *= attention_keep<PART>(s, at.b, at.h, at.t, (size_t)j);
        for (int i = 0; i < MOST; i++) o[i] *= shrink;
        for (int i = 0; i < 32 && j0 + i < end; i++)
            add_row(o, __shfl_sync(0xffffffffu, p, i), v + (size_t)(j0 + i) * s.ldkv, lane, D);
    }
    bool none = m == -INFINITY && l == 0; // of a piece: no key that the query sees
    store_row(out + attention_out(s, at.b, at.h, at.t), o, none ? 0 : 1 / l, lane, D);
    if (lse && lane == 0) lse[attention_stat(s, at.b, at.h, at.t)] = m + logf(l);
}

template <class X> __global__ void attention_delta_kernel(float *delta, const X *dout, const X *out, AttnShape s)
{
    Place at = place(s.B, s.H, s.Tq);
    if (!at.inside) return;
    size_t row = attention_out(s, at.b, at.h, at.t);
    float sum = 0;
    for (size_t d = threadIdx.x; d < s.D; d += 32) sum += (float)dout[row + d] * (float)out[row + d];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) delta[attention_stat(s, at.b, at.h, at.t)] = sum;
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
          keep = s.drop.p > 0 ? attention_keep<PART>(s, at.b, at.h, at.t, j) : 1;
    return {p * keep, s.scale * p * (keep * dot(dout, v, s.D) - delta)};
}

// dq has row stride lddq, dk and dv lddkv: for a piece they differ from the strides of q, k and v.
template <class X, class O, bool PART>
__global__ void attention_dq_kernel(O *dq, const X *dout, const float *lse, const float *delta, const X *q,
                                    const X *k, const X *v, AttnShape s, size_t lddq)
{
    Place at = place(s.B, s.H, s.Tq);
    if (!at.inside) return;
    int lane = (int)threadIdx.x, end = attention_end<PART>(s, at.t), D = (int)s.D;
    size_t stat = attention_stat(s, at.b, at.h, at.t), row = attention_q(s, at.b, at.h, at.t);
    k += attention_kv(s, at.b, at.h, 0), v += attention_kv(s, at.b, at.h, 0);
    dout += attention_out(s, at.b, at.h, at.t);
    float sum[MOST] = {};
    for (int j0 = attention_first<PART>(s, at.b, at.t); j0 < end; j0 += 32) {
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
    size_t group = s.H / s.G, b = key.b, j = key.t, row = attention_kv(s, b, key.h * group, j);
    int lane = (int)threadIdx.x, D = (int)s.D;
    float sum_k[MOST] = {}, sum_v[MOST] = {};
    size_t begin = attention_first_query<PART>(s, j), end = attention_end_query<PART>(s, j);
    for (size_t h = key.h * group; h < (key.h + 1) * group; h++)
        for (size_t t0 = begin; t0 < end; t0 += 32) { // the others do not see it
            size_t t = t0 + (size_t)lane;
            Pair pair = {0, 0};
            if (t < end && attention_first<PART>(s, b, t) <= (int)j) {
                size_t stat = attention_stat(s, b, h, t);
                pair = backward_pair<PART>(q + attention_q(s, b, h, t), k + row, v + row,
                                     dout + attention_out(s, b, h, t), lse[stat], delta[stat], {b, h, t, true}, j,
                                     s);
            }
            for (size_t i = 0; i < 32 && t0 + i < end; i++) {
                if (attention_first<PART>(s, b, t0 + i) > (int)j) continue; // the whole warp
                add_row(sum_k, __shfl_sync(0xffffffffu, pair.ds, (int)i), q + attention_q(s, b, h, t0 + i), lane,
                        D);
                add_row(sum_v, __shfl_sync(0xffffffffu, pair.p, (int)i), dout + attention_out(s, b, h, t0 + i),
                        lane, D);
            }
        }
    size_t to = (b * s.Tk + j) * lddkv + key.h * s.D;
    store_row(dk + to, sum_k, 1, lane, D);
    store_row(dv + to, sum_v, 1, lane, D);
}

AttnShape attention_shape(AttnShape s, bool part)
{
    bool good = s.D > 0 && s.G > 0 && s.H % s.G == 0 && s.drop.p >= 0 && s.drop.p < 1;
    bool whole = s.q_start + s.Tq <= s.Tk && !s.q_jump && !s.k_start && !s.k_jump;
    bool ordered = !s.T || (s.T == s.Tq && s.T == s.Tk); // `blocks` is ignored here: the order of sums is fixed anyway
    check(good && (part ? s.T > 0 : whole && ordered));
    if (s.D > MOST_HEAD)
        die("cuda: attention: head size %zu: at most %d on a GPU (try a smaller model.head_size)", s.D, (int)MOST_HEAD);
    if (!s.window || s.window > INT32_MAX) s.window = INT32_MAX; // kernels need not ask
    if (!(s.scale > 0)) s.scale = 1 / sqrtf((float)s.D);
    return s;
}

static unsigned blocks_of(size_t rows_in_all, int rows)
{
    return (unsigned)((rows_in_all + (size_t)rows - 1) / (size_t)rows);
}

template <class X>
void attention_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                            cudaStream_t stream)
{
    AttnShape s = attention_shape(shape);
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
    AttnShape s = attention_shape(shape);
    check(s.q_start == 0);
    if (s.B * s.Tk == 0) return;
    dim3 block(32, (unsigned)rows);
    attention_delta_cuda(delta, dout, out, s, rows, stream);
    if (s.Tq)
        LAUNCH((attention_dq_kernel<X, X, false>), blocks_of(s.B * s.H * s.Tq, rows), block, 0, stream, dq, dout, lse,
               delta, q, k, v, s, s.ldq);
    LAUNCH((attention_dkv_kernel<X, X, false>), blocks_of(s.B * s.G * s.Tk, rows), block, 0, stream, dk, dv, dout, lse,
           delta, q, k, v, s, s.ldkv);
}

// ---- pieces: the same kernels with the piece's positions and fp32 results
template <class X>
void attention_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                 cudaStream_t stream)
{
    AttnShape s = attention_shape(shape, true);
    if (s.B * s.Tq == 0) return;
    LAUNCH((attention_forward_kernel<X, float, true>), blocks_of(s.B * s.H * s.Tq, rows), dim3(32, (unsigned)rows), 0,
           stream, out, lse, q, k, v, s);
}

template <class X>
void attention_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                                  const float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                  cudaStream_t stream)
{
    AttnShape s = attention_shape(shape, true);
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

// ---- the entries of the op table: which kernels serve a call, and the merge of pieces
namespace {

template <class E> constexpr bool SIXTEEN = sizeof(E) == 2;

// With one or two queries (sampling) 62 of a tile's 64 rows would be idle.
bool takes_flash(const DevCuda *d, const X *q, const X *k, const X *v, const void *to, AttnShape s)
{
    return !d->options.plain && s.Tq >= 16 && (uintptr_t)to % 4 == 0 && flash_takes(q, k, v, s);
}

template <class E>
void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    DevCuda *d = dev_cuda(dev);
    E *o = ops_as<E>(out);
    const E *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    if constexpr (SIXTEEN<E>)
        if (takes_flash(d, q, k, v, out, s)) {
            flash_forward_cuda<E>(o, lse, Q, K, V, s, d->stream);
            return;
        }
    attention_forward_cuda<E>(o, lse, Q, K, V, s, d->threads / 32, d->stream);
}

float *delta_room(DevCuda *d, AttnShape s)
{
    return (float *)dev_cuda_scratch(d, (s.B * s.H * s.Tq + 1) * sizeof(float));
}

template <class E>
void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q,
                        const X *k, const X *v, AttnShape s)
{
    DevCuda *d = dev_cuda(dev);
    float *delta = delta_room(d, s);
    E *gq = ops_as<E>(dq), *gk = ops_as<E>(dk), *gv = ops_as<E>(dv);
    const E *dO = ops_as<E>(dout), *O = ops_as<E>(out), *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    if constexpr (SIXTEEN<E>)
        if (takes_flash(d, q, k, v, dq, s) && aligned(dout) && ((uintptr_t)dk | (uintptr_t)dv) % 4 == 0) {
            flash_backward_cuda<E>(gq, gk, gv, delta, dO, O, lse, Q, K, V, s, d->stream);
            return;
        }
    attention_backward_cuda<E>(gq, gk, gv, delta, dO, O, lse, Q, K, V, s, d->threads / 32, d->stream);
}

void let_messages_move(Dev *dev)
{
    if (dev->meanwhile) dev->meanwhile(dev->meanwhile_arg);
}

template <class E>
void attention_part_forward(Dev *dev, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    DevCuda *d = dev_cuda(dev);
    const E *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    bool flash = false;
    if constexpr (SIXTEEN<E>)
        if ((flash = takes_flash(d, q, k, v, out, s) && (uintptr_t)out % 8 == 0))
            flash_part_forward_cuda<E>(out, lse, Q, K, V, s, d->stream);
    if (!flash) attention_part_forward_cuda<E>(out, lse, Q, K, V, s, d->threads / 32, d->stream);
    let_messages_move(dev);
}

template <class E>
void attention_part_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out, const float *lse,
                             const X *q, const X *k, const X *v, AttnShape s)
{
    DevCuda *d = dev_cuda(dev);
    float *delta = delta_room(d, s);
    const E *dO = ops_as<E>(dout), *O = ops_as<E>(out), *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    bool flash = false;
    if constexpr (SIXTEEN<E>) {
        bool eights = ((uintptr_t)dq | (uintptr_t)dk | (uintptr_t)dv) % 8 == 0;
        if ((flash = takes_flash(d, q, k, v, dq, s) && aligned(dout) && eights))
            flash_part_backward_cuda<E>(dq, dk, dv, delta, dO, O, lse, Q, K, V, s, d->stream);
    }
    if (!flash)
        attention_part_backward_cuda<E>(dq, dk, dv, delta, dO, O, lse, Q, K, V, s, d->threads / 32, d->stream);
    let_messages_move(dev);
}

// One warp a row (b, t, h) of D elements.
__global__ void attention_merge_kernel(float *out, float *lse, const float *part_out, const float *part_lse,
                                       size_t rows, size_t T, size_t H, size_t D)
{
    size_t i = (size_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= rows) return; // the whole warp
    size_t stat = (i / H / T * H + i % H) * T + i / H % T;
    float a = lse[stat], b = part_lse[stat];
    if (b == -INFINITY) return;
    float top = a != a || a > b ? a : b, wa = a == -INFINITY ? 0 : expf(a - top), wb = expf(b - top);
    float sum = wa + wb, joined = a == -INFINITY ? b : top + logf(sum);
    for (size_t c = threadIdx.x; c < D; c += 32) {
        float other = part_out[i * D + c];
        out[i * D + c] = a == -INFINITY ? other : (wa * out[i * D + c] + wb * other) / sum;
    }
    __syncwarp(); // all lanes have read the old one
    if (threadIdx.x == 0) lse[stat] = joined;
}

void attention_merge(Dev *dev, float *out, float *lse, const float *part_out, const float *part_lse, size_t B, size_t T,
                     size_t H, size_t D)
{
    DevCuda *d = dev_cuda(dev);
    size_t rows = B * T * H, warps = (size_t)d->threads / 32;
    if (rows == 0) return;
    LAUNCH(attention_merge_kernel, (unsigned)((rows + warps - 1) / warps), dim3(32, (unsigned)warps), 0, d->stream, out,
           lse, part_out, part_lse, rows, T, H, D);
}

} // namespace

template <class E> void attention_cuda_fill(Dev *dev)
{
    dev->attention_forward = attention_forward<E>;
    dev->attention_backward = attention_backward<E>;
    dev->attention_part_forward = attention_part_forward<E>;
    dev->attention_part_backward = attention_part_backward<E>;
    dev->attention_merge = attention_merge;
}
DEV_CUDA_FILL(attention)
