// loss: softmax and cross-entropy on the GPU. The twin of loss.c.
//
//   loss = log(sum_v exp(z_v - max)) + max - z_target,   dz_v = scale (p_v - [v = target]), p = softmax(z)
//
// One block per row. The row is read twice: once for maximum and sum together (a thread rescales its sum when its
// maximum grows), once for dz. Probabilities are never stored. When the vocabulary is no multiple of 8, rows are not
// aligned, so each row is processed as a head, packs of 16 bytes, and a tail.
// The invariant: dz may be the logits themselves. So each thread overwrites only elements that it alone read, and the
// target's logit is read before the first barrier. A target below 0 is not counted. NaN logits give a NaN loss: fmaxf
// skips them, exp does not.
// A cap is applied to what is loaded, each time (loss.c).
// The three xent_ kernels do the same in steps, for a vocabulary that is divided over ranks.
#include "ops/dev_cuda.h"

#include <type_traits>

namespace {

template <int W> using Width = std::integral_constant<int, W>;

// f(Width<W>, v) for the thread's share of n neighbours: elements v .. v + W - 1. `as` begins as far from a multiple of
// 16 as what f touches; packs: whether there are any.
template <class X, class F> __device__ inline void each_pack(const X *as, int n, bool packs, F f)
{
    const int W = WIDE<X>, t = (int)threadIdx.x, size = (int)blockDim.x;
    int lead = packs ? min(n, (int)((16 - (uintptr_t)as % 16) % 16 / sizeof(X))) : n, whole = (n - lead) / W;
    for (int v = t; v < lead; v += size) f(Width<1>(), v);
    for (int p = t; p < whole; p += size) f(Width<WIDE<X>>(), lead + p * W);
    for (int v = lead + whole * W + t; v < n; v += size) f(Width<1>(), v);
}

// Do both begin equally far from a multiple of 16?
__device__ inline bool alike(const void *a, const void *b)
{
    return ((uintptr_t)a - (uintptr_t)b) % 16 == 0;
}

// A logit as the loss sees it, and the derivative of that.
__device__ inline float cap_of(float z, float cap)
{
    return cap > 0 ? cap * tanhf(z / cap) : z;
}
__device__ inline float cap_slope(float capped, float cap)
{
    return cap > 0 ? 1 - capped / cap * (capped / cap) : 1;
}
template <int W, class X> __device__ inline void load_capped(float *x, const X *z, float cap)
{
    load<W>(x, z);
    if (cap > 0)
        for (int k = 0; k < W; k++) x[k] = cap_of(x[k], cap);
}

// top = max(top, x), total = sum of exp(x - top) with what was there before
template <int W> __device__ inline void add_pack(float &top, float &total, const float *x)
{
    float most = top;
    for (int k = 0; k < W; k++) most = fmaxf(most, x[k]);
    if (most != top) total *= expf(top - most); // from -inf: 0
    for (int k = 0; k < W; k++)
        if (x[k] != -INFINITY) total += expf(x[k] - most);
    top = most;
}

template <class X>
__global__ void softmax_xent_kernel(float *loss, X *dlogits, const X *logits, const int32_t *target, int V, float scale,
                                    float cap)
{
    size_t row = (size_t)blockIdx.x * V;
    int y = target[blockIdx.x];
    const X *z = logits + row;
    X *dz = dlogits ? dlogits + row : nullptr;
    if (y < 0) { // the whole block
        for (int v = (int)threadIdx.x; dz && v < V; v += (int)blockDim.x) dz[v] = X(0.0f);
        if (threadIdx.x == 0) loss[blockIdx.x] = 0;
        return;
    }
    float z_target = cap_of((float)z[y], cap), own_top = -INFINITY, own_total = 0;
    bool packs = !dz || alike(z, dz);
    each_pack(z, V, packs, [&](auto width, int v) {
        constexpr int W = decltype(width)::value;
        float x[W];
        load_capped<W>(x, z + v, cap);
        add_pack<W>(own_top, own_total, x);
    });
    float top = block_max(own_top);
    float total = block_sum(own_top == top ? own_total : own_total * expf(own_top - top));
    float factor = scale / total;
    if (dz)
        each_pack(z, V, packs, [&](auto width, int v) {
            constexpr int W = decltype(width)::value;
            float x[W];
            load_capped<W>(x, z + v, cap);
            for (int k = 0; k < W; k++)
                x[k] = (expf(x[k] - top) * factor - (v + k == y ? scale : 0)) * cap_slope(x[k], cap);
            store<W>(dz + v, x);
        });
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(total) + (top - z_target);
}

template <class E> __global__ void xent_max_kernel(float *top, const E *logits, int V)
{
    const E *z = logits + (size_t)blockIdx.x * V;
    float most = -INFINITY;
    each_pack(z, V, true, [&](auto width, int v) {
        constexpr int W = decltype(width)::value;
        float x[W];
        load<W>(x, z + v);
        for (int k = 0; k < W; k++) most = fmaxf(most, x[k]);
    });
    most = block_max(most);
    if (threadIdx.x == 0) top[blockIdx.x] = most;
}

template <class E>
__global__ void xent_sum_kernel(float *total, float *hit, const E *logits, const int32_t *target, const float *top,
                                int V, float cap)
{
    const E *z = logits + (size_t)blockIdx.x * V;
    float most = cap_of(top[blockIdx.x], cap), sum = 0;
    int y = target[blockIdx.x];
    each_pack(z, V, true, [&](auto width, int v) {
        constexpr int W = decltype(width)::value;
        float x[W];
        load_capped<W>(x, z + v, cap);
        for (int k = 0; k < W; k++) sum += expf(x[k] - most);
    });
    sum = block_sum(sum);
    if (threadIdx.x > 0) return;
    total[blockIdx.x] = sum;
    hit[blockIdx.x] = y >= 0 && y < V ? (float)z[y] : 0;
}

template <class E>
__global__ void xent_loss_kernel(float *loss, E *dlogits, const E *logits, const int32_t *target, const float *top,
                                 const float *total, const float *hit, int V, float scale, float cap)
{
    size_t row = (size_t)blockIdx.x * V;
    const E *z = logits + row;
    E *dz = dlogits ? dlogits + row : nullptr;
    float most = cap_of(top[blockIdx.x], cap), sum = total[blockIdx.x], factor = scale / sum;
    int y = target[blockIdx.x];
    if (threadIdx.x == 0) loss[blockIdx.x] = y < 0 ? 0 : logf(sum) + (most - cap_of(hit[blockIdx.x], cap));
    if (!dz) return;
    each_pack(z, V, alike(z, dz), [&](auto width, int v) {
        constexpr int W = decltype(width)::value;
        float x[W];
        load_capped<W>(x, z + v, cap);
        for (int k = 0; k < W; k++) {
            float d = expf(x[k] - most) * factor - (v + k == y ? scale : 0);
            x[k] = y < 0 ? 0 : d * cap_slope(x[k], cap);
        }
        store<W>(dz + v, x);
    });
}

unsigned row_threads(const DevCuda *d, size_t V)
{
    return threads_for(V / 4 + 1, d->options.threads ? d->threads : 1024); // a block a row: many loads in flight
}

template <class E>
void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t N, size_t V,
                  float scale, float cap)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    LAUNCH((softmax_xent_kernel<E>), (unsigned)N, row_threads(d, V), 0, d->stream, loss, ops_as<E>(dlogits),
           ops_as<E>(logits), target, (int)V, scale, cap);
}

template <class E> void xent_max(Dev *dev, float *top, const X *logits, size_t N, size_t V)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    LAUNCH((xent_max_kernel<E>), (unsigned)N, row_threads(d, V), 0, d->stream, top, ops_as<E>(logits), (int)V);
}

// The parts together are the row; the order of the sum is free here (dev.h).
template <class E>
void xent_sum(Dev *dev, float *total, float *hit, const X *logits, const int32_t *target, const float *top, size_t N,
              size_t V, DevParts, float cap)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    LAUNCH((xent_sum_kernel<E>), (unsigned)N, row_threads(d, V), 0, d->stream, total, hit, ops_as<E>(logits),
           target, top, (int)V, cap);
}

template <class E>
void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
               const float *total, const float *hit, size_t N, size_t V, float scale, float cap)
{
    DevCuda *d = dev_cuda(dev);
    if (N == 0) return;
    LAUNCH((xent_loss_kernel<E>), (unsigned)N, row_threads(d, V), 0, d->stream, loss, ops_as<E>(dlogits),
           ops_as<E>(logits), target, top, total, hit, (int)V, scale, cap);
}

} // namespace

template <class E> void loss_cuda_fill(Dev *dev)
{
    dev->softmax_xent = softmax_xent<E>;
    dev->xent_max = xent_max<E>;
    dev->xent_sum = xent_sum<E>;
    dev->xent_loss = xent_loss<E>;
}
DEV_CUDA_FILL(loss)
