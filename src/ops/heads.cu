// heads: the op table's attention on the GPU: which kernels serve a call, and where the merge of pieces is. The kernels
// are attention.cu (plain) and flash.cu (tensor cores); formulas stand in attention.c.
//
//   top = max(lse_a, lse_b),  w = exp(lse - top),
//   out = (w_a out_a + w_b out_b) / (w_a + w_b),  lse = top + log(w_a + w_b)
//
// Tensor cores serve 16-bit rows that begin at multiples of 16 bytes with heads of up to 128, in multiples of 8, whole
// sequences and pieces; everything else, a cached decoding step of one query among it, is served by the plain kernels.
// The invariant of the merge: a set without keys (lse = -inf) leaves the other one's bits alone, and NaN stays.
#include "ops/kernels.h"
#include "ops/ops_gpu.h"

#include <type_traits>

namespace {

enum { FLASH_WARPS = 4, FLASH_COLUMNS = 64, MOST_HEAD = 256 };

template <class E> constexpr bool SIXTEEN = sizeof(E) == 2;

// A query or two leave 62 of a tile's 64 rows idle.
bool takes_flash(const DevCuda *d, const X *q, const X *k, const X *v, const void *to, AttnShape s)
{
    return !d->options.plain && s.Tq >= 16 && (uintptr_t)to % 4 == 0 && flash_takes(q, k, v, s);
}

void check_head(AttnShape s)
{
    if (s.D <= MOST_HEAD) return;
    fprintf(stderr, "error: cuda: attention: head size %zu: at most %d on a GPU\n", s.D, (int)MOST_HEAD);
    exit(1);
}

template <class E>
void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    DevCuda *d = ops_gpu(dev);
    check_head(s);
    E *o = ops_as<E>(out);
    const E *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    if constexpr (SIXTEEN<E>)
        if (takes_flash(d, q, k, v, out, s)) {
            flash_forward_cuda<E>(o, lse, Q, K, V, s, FLASH_WARPS, FLASH_COLUMNS, d->stream);
            return;
        }
    attention_forward_cuda<E>(o, lse, Q, K, V, s, d->threads / 32, d->stream);
}

float *delta_room(DevCuda *d, AttnShape s)
{
    return (float *)ops_gpu_scratch(d, (s.B * s.H * s.Tq + 1) * sizeof(float));
}

template <class E>
void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q,
                        const X *k, const X *v, AttnShape s)
{
    DevCuda *d = ops_gpu(dev);
    check_head(s);
    float *delta = delta_room(d, s);
    E *gq = ops_as<E>(dq), *gk = ops_as<E>(dk), *gv = ops_as<E>(dv);
    const E *dO = ops_as<E>(dout), *O = ops_as<E>(out), *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    if constexpr (SIXTEEN<E>)
        if (takes_flash(d, q, k, v, dq, s) && aligned(dout) && ((uintptr_t)dk | (uintptr_t)dv) % 4 == 0) {
            flash_backward_cuda<E>(gq, gk, gv, delta, dO, O, lse, Q, K, V, s, FLASH_WARPS, FLASH_COLUMNS, d->stream);
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
    DevCuda *d = ops_gpu(dev);
    check_head(s);
    const E *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    bool flash = false;
    if constexpr (SIXTEEN<E>)
        if ((flash = takes_flash(d, q, k, v, out, s) && (uintptr_t)out % 8 == 0))
            flash_part_forward_cuda<E>(out, lse, Q, K, V, s, FLASH_WARPS, d->stream);
    if (!flash) attention_part_forward_cuda<E>(out, lse, Q, K, V, s, d->threads / 32, d->stream);
    let_messages_move(dev);
}

template <class E>
void attention_part_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out, const float *lse,
                             const X *q, const X *k, const X *v, AttnShape s)
{
    DevCuda *d = ops_gpu(dev);
    check_head(s);
    float *delta = delta_room(d, s);
    const E *dO = ops_as<E>(dout), *O = ops_as<E>(out), *Q = ops_as<E>(q), *K = ops_as<E>(k), *V = ops_as<E>(v);
    bool flash = false;
    if constexpr (SIXTEEN<E>) {
        bool eights = ((uintptr_t)dq | (uintptr_t)dk | (uintptr_t)dv) % 8 == 0;
        if ((flash = takes_flash(d, q, k, v, dq, s) && aligned(dout) && eights))
            flash_part_backward_cuda<E>(dq, dk, dv, delta, dO, O, lse, Q, K, V, s, FLASH_WARPS, d->stream);
    }
    if (!flash)
        attention_part_backward_cuda<E>(dq, dk, dv, delta, dO, O, lse, Q, K, V, s, d->threads / 32, d->stream);
    let_messages_move(dev);
}

// One warp a row (b, t, h) of D elements.
__global__ void heads_merge_kernel(float *out, float *lse, const float *part_out, const float *part_lse, size_t rows,
                                   size_t T, size_t H, size_t D)
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
    DevCuda *d = ops_gpu(dev);
    size_t rows = B * T * H, warps = (size_t)d->threads / 32;
    if (rows == 0) return;
    LAUNCH(heads_merge_kernel, (unsigned)((rows + warps - 1) / warps), dim3(32, (unsigned)warps), 0, d->stream, out,
           lse, part_out, part_lse, rows, T, H, D);
}

} // namespace

template <class E> void heads_cuda_fill(Dev *dev)
{
    dev->attention_forward = attention_forward<E>;
    dev->attention_backward = attention_backward<E>;
    dev->attention_part_forward = attention_part_forward<E>;
    dev->attention_part_backward = attention_part_backward<E>;
    dev->attention_merge = attention_merge;
}
OPS_GPU_FILL(heads)
