// compress: saved activations in 8 bits, on the GPU. The twin of compress.c, where the format is.
//
// A warp has a group of 256, a lane 8 of its elements, which stay in registers between the maximum and the rounding.
// The invariant: the same arithmetic as on the CPU, so the same bytes.
#include "ops/ops_gpu.h"

#include <cfloat>

namespace {

enum { EACH = DEV_GROUP / 32 };

template <class E>
__global__ void compress_kernel(int8_t *q, float *scale, const E *inp, size_t groups_in_all, size_t w)
{
    size_t i = (size_t)blockIdx.x * blockDim.y + threadIdx.y, groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    if (i >= groups_in_all) return; // the whole warp
    size_t from = i % groups * DEV_GROUP, at = i / groups * w + from;
    int n = w - from < DEV_GROUP ? (int)(w - from) : (int)DEV_GROUP, lane = (int)threadIdx.x;
    float x[EACH], top = 0, finite = 0;
#pragma unroll
    for (int k = 0; k < EACH; k++) {
        x[k] = lane + 32 * k < n ? (float)inp[at + (size_t)(lane + 32 * k)] : 0;
        top = fmaxf(top, fabsf(x[k]));
        finite += x[k] - x[k]; // 0, or NaN for ever
    }
    top = warp_max(top), finite = warp_sum(finite);
    bool whole = finite == 0, tiny = top < 127 * FLT_MIN;
    float inverse = !whole || tiny ? 0 : 127 / top;
    if (lane == 0) scale[i] = !whole ? NAN : tiny ? 0 : top / 127;
#pragma unroll
    for (int k = 0; k < EACH; k++)
        if (lane + 32 * k < n) q[at + (size_t)(lane + 32 * k)] = whole ? (int8_t)rintf(x[k] * inverse) : (int8_t)0;
}

template <class E> struct Decompress {
    E *out;
    const int8_t *q;
    const float *scale;
    size_t w;
    template <int W> __device__ void run(size_t i) const
    {
        size_t groups = (w + DEV_GROUP - 1) / DEV_GROUP;
        float x[W], s = scale[i / w * groups + i % w / DEV_GROUP]; // a pack lies in one group
        load<W>(x, q + i);
        for (int k = 0; k < W; k++) x[k] *= s;
        store<W>(out + i, x);
    }
};

template <class E> void compress(Dev *dev, int8_t *q, float *scale, const X *inp, size_t N, size_t w)
{
    DevCuda *d = ops_gpu(dev);
    size_t n = N * ((w + DEV_GROUP - 1) / DEV_GROUP), warps = (size_t)d->threads / 32;
    if (n == 0) return;
    LAUNCH((compress_kernel<E>), (unsigned)((n + warps - 1) / warps), dim3(32, (unsigned)warps), 0, d->stream, q,
           scale, ops_as<E>(inp), n, w);
}

template <class E> void decompress(Dev *dev, X *out, const int8_t *q, const float *scale, size_t N, size_t w)
{
    elements<WIDE<E>>(ops_gpu(dev), N * w, w % WIDE<E> == 0 && aligned(out, q),
                      Decompress<E>{ops_as<E>(out), q, scale, w});
}

} // namespace

template <class E> void compress_cuda_fill(Dev *dev)
{
    dev->compress = compress<E>;
    dev->decompress = decompress<E>;
}
OPS_GPU_FILL(compress)
