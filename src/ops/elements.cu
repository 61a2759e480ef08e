// elements: element-wise ops on the GPU, and the copies and the scratch that all ops use. The twin of elements.c, which
// has the formulas.
//
// An op is a struct of pointers with run<W>(i), which computes W neighbours; elements() of dev_cuda.h launches it.
// These ops are bound by memory bandwidth, so each thread moves 16 bytes at a time; the tail, and arrays that are not
// aligned to 16 bytes, go element by element. Any split gives the same bits. A thread reads all of its elements before
// it writes one, so an output may be an input.
//
// The invariant: sums, dropout, conversions and compression are one rounding of the exact result, as on the CPU, so
// both devices give the same bits. Scratch is one buffer, used by one op at a time in the order of the stream, so it
// needs no lock and no event. When an op asks for more, it waits for the ops that still use the buffer, grows it, and
// keeps it.
// Rejected: a stored dropout mask (one byte per element, read again in backward; ten multiplications recompute it).
#include "ops/dev_cuda.h"

#include "base/check.h"
#include "base/clock.h"
#include "ops/activation.h"

#include <cfloat>
#include <cstring>
#include <time.h>

// ---- scratch, copies to and from the host, and how the host waits

// cudaStreamSynchronize would wait for ever for a collective whose other ranks are gone. So the host polls the stream,
// as CUDA itself does, and after a short while sleeps between polls.
void dev_cuda_wait(Dev *dev)
{
    DevCuda *d = dev_cuda(dev);
    if (!d->watch) {
        GPU_CHECK(cudaStreamSynchronize(d->stream));
        return;
    }
    const double spin = 2e-4;
    const struct timespec nap = {0, 20000};
    double begin = clock_seconds();
    cudaError_t error;
    while ((error = cudaStreamQuery(d->stream)) == cudaErrorNotReady) {
        d->watch(d->watch_arg);
        if (clock_seconds() - begin > spin) nanosleep(&nap, nullptr);
    }
    GPU_CHECK(error);
}

// The source is copied into pinned memory, which the GPU reads by DMA; an event tells when that memory may be reused.
// So the tokens of a micro-batch can be copied while the micro-batch before still computes.
static void upload(DevCuda *d, void *dst, const void *src, size_t n_bytes)
{
    Upload *u = &d->upload[d->uploads++ % UPLOADS];
    if (!u->pinned) {
        if (cudaMallocHost(&u->pinned, UPLOAD_BYTES) != cudaSuccess)
            die("cuda: no %d KiB of the host's memory can be pinned (try ulimit -l)", UPLOAD_BYTES >> 10);
        GPU_CHECK(cudaEventCreateWithFlags(&u->over, cudaEventDisableTiming));
    } else if (cudaEventQuery(u->over) != cudaSuccess) dev_cuda_wait(&d->dev);
    memcpy(u->pinned, src, n_bytes);
    GPU_CHECK(cudaMemcpyAsync(dst, u->pinned, n_bytes, cudaMemcpyHostToDevice, d->stream));
    GPU_CHECK(cudaEventRecord(u->over, d->stream));
}

static void to_device(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    cudaStream_t stream = dev_cuda(dev)->stream;
    cudaPointerAttributes from;
    if (n_bytes == 0) return;
    GPU_CHECK(cudaPointerGetAttributes(&from, src));
    if (from.type == cudaMemoryTypeDevice) {
        GPU_CHECK(cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDeviceToDevice, stream));
    } else if (n_bytes <= UPLOAD_BYTES) upload(dev_cuda(dev), dst, src, n_bytes);
    else {
        GPU_CHECK(cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyHostToDevice, stream));
        dev_cuda_wait(dev);
    }
}

static void to_host(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    if (n_bytes == 0) return;
    dev_cuda_wait(dev); // a copy to memory that is not pinned waits inside CUDA, where `watch` is not called
    GPU_CHECK(cudaMemcpyAsync(dst, src, n_bytes, cudaMemcpyDefault, dev_cuda(dev)->stream));
    GPU_CHECK(cudaStreamSynchronize(dev_cuda(dev)->stream));
}

static void zero(Dev *dev, void *dst, size_t n_bytes)
{
    if (n_bytes) GPU_CHECK(cudaMemsetAsync(dst, 0, n_bytes, dev_cuda(dev)->stream));
}

void *dev_cuda_scratch(DevCuda *d, size_t n_bytes)
{
    if (n_bytes <= d->scratch_bytes) return d->scratch;
    dev_cuda_wait(&d->dev);
    GPU_CHECK(cudaFree(d->scratch));
    d->scratch = nullptr, d->scratch_bytes = 0;
    if (cudaMalloc(&d->scratch, n_bytes) != cudaSuccess)
        die("cuda: no %.1f MiB of scratch left on GPU %d (try a smaller batch.micro or model)",
            (double)n_bytes / 1048576, d->options.device);
    d->scratch_bytes = n_bytes;
    return d->scratch;
}

namespace {

// ---- sums, differences, dropout and conversions

template <class E> struct Add {
    E *out;
    const E *a, *b;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W], y[W];
        load<W>(x, a + i), load<W>(y, b + i);
        for (int k = 0; k < W; k++) x[k] += y[k];
        store<W>(out + i, x);
    }
};

template <class E> struct Drop {
    E *out;
    const E *inp;
    Dropout drop;
    uint32_t limit;
    float scale;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W];
        uint32_t c0 = 0, c1 = 0, c2 = 0, c3 = 0;
        load<W>(x, inp + i);
        // A pack lies in one row.
        uint64_t from = drop.first + (drop.row ? (uint64_t)drop.row[i / drop.width] * drop.width + i % drop.width : i);
        for (int k = 0; k < W; k++) {
            uint64_t at = from + (uint64_t)k;
            if (k == 0 || at % 4 == 0) rng_words_cuda(drop.rng, at / 4, c0, c1, c2, c3);
            uint32_t word = at % 4 == 0 ? c0 : at % 4 == 1 ? c1 : at % 4 == 2 ? c2 : c3;
            x[k] = word >= limit ? x[k] * scale : 0;
        }
        store<W>(out + i, x);
    }
};

struct Accumulate {
    float *sum, *part;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W], y[W];
        load<W>(x, sum + i), load<W>(y, part + i);
        for (int k = 0; k < W; k++) x[k] += y[k], y[k] = 0;
        store<W>(sum + i, x), store<W>(part + i, y);
    }
};

struct Subtract {
    float *out;
    const float *a, *b;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W], y[W] = {};
        load<W>(x, a + i);
        if (b) {
            load<W>(y, b + i);
            for (int k = 0; k < W; k++) x[k] -= y[k];
        }
        store<W>(out + i, x);
    }
};

template <class To, class From> struct Convert {
    To *out;
    const From *inp;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W];
        load<W>(x, inp + i);
        store<W>(out + i, x);
    }
};

template <class E> struct CopyRows {
    E *out;
    const E *inp;
    size_t width, ld_out, ld_inp;
    template <int W> __device__ void run(size_t i) const
    {
        size_t r = i / width, c = i % width;
        *(Pack<E, W> *)(out + r * ld_out + c) = *(const Pack<E, W> *)(inp + r * ld_inp + c);
    }
};

template <class E> void copy(Dev *dev, X *out, const X *inp, size_t rows, size_t width, size_t ld_out, size_t ld_inp)
{
    bool wide = width % WIDE<E> == 0 && ld_out % WIDE<E> == 0 && ld_inp % WIDE<E> == 0 && aligned(out, inp);
    elements<WIDE<E>>(dev_cuda(dev), rows * width, wide,
                      CopyRows<E>{ops_as<E>(out), ops_as<E>(inp), width, ld_out, ld_inp});
}

template <class E> void add(Dev *dev, X *out, const X *a, const X *b, size_t n)
{
    elements<WIDE<E>>(dev_cuda(dev), n, aligned(out, a, b), Add<E>{ops_as<E>(out), ops_as<E>(a), ops_as<E>(b)});
}

template <class E> void dropout(Dev *dev, X *out, const X *inp, size_t n, Dropout drop)
{
    Drop<E> f = {ops_as<E>(out), ops_as<E>(inp), drop, dropout_limit_cuda(drop.p), 1 / (1 - drop.p)};
    elements<WIDE<E>>(dev_cuda(dev), n, aligned(out, inp) && (!drop.row || drop.width % WIDE<E> == 0), f);
}

void accumulate(Dev *dev, float *sum, float *part, size_t n)
{
    elements<4>(dev_cuda(dev), n, aligned(sum, part), Accumulate{sum, part});
}

void subtract(Dev *dev, float *out, const float *a, const float *b, size_t n)
{
    elements<4>(dev_cuda(dev), n, aligned(out, a, b), Subtract{out, a, b});
}

template <class E> void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    elements<WIDE<E>>(dev_cuda(dev), n, aligned(out, inp), Convert<E, float>{ops_as<E>(out), inp});
}

// `out` is host memory as a rule, but may be the device's, which needs no scratch and no waiting.
template <class E> void from_x(Dev *dev, float *out, const X *inp, size_t n)
{
    DevCuda *d = dev_cuda(dev);
    cudaPointerAttributes to;
    if (n == 0) return;
    GPU_CHECK(cudaPointerGetAttributes(&to, out));
    if (to.type == cudaMemoryTypeDevice) {
        elements<WIDE<E>>(d, n, aligned(out, inp), Convert<float, E>{out, ops_as<E>(inp)});
        return;
    }
    float *wide = (float *)dev_cuda_scratch(d, n * sizeof *wide);
    elements<WIDE<E>>(d, n, aligned(inp), Convert<float, E>{wide, ops_as<E>(inp)});
    dev->to_host(dev, out, wide, n * sizeof *out);
}

// ---- activations

#define FUNCTION(KIND, f) \
    struct f##_function { \
        static __device__ float value(float x) { return f(x); } \
        static __device__ float slope(float x) { return f##_slope(x); } \
    };
ACTIVATIONS(FUNCTION)

template <class E, class F> struct Act {
    E *out;
    const E *pre;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W];
        load<W>(x, pre + i);
        for (int k = 0; k < W; k++) x[k] = F::value(x[k]);
        store<W>(out + i, x);
    }
};

template <class E, class F> struct ActBackward {
    E *dpre;
    const E *dout, *pre;
    template <int W> __device__ void run(size_t i) const
    {
        float x[W], d[W];
        load<W>(x, pre + i), load<W>(d, dout + i);
        for (int k = 0; k < W; k++) d[k] *= F::slope(x[k]);
        store<W>(dpre + i, d);
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

template <class E> void act_forward(Dev *dev, X *out, const X *pre, size_t n, ActKind kind)
{
    bool whole = aligned(out, pre);
#define VALUE(KIND, f) \
    if (kind == KIND) \
        return elements<WIDE<E>>(dev_cuda(dev), n, whole, Act<E, f##_function>{ops_as<E>(out), ops_as<E>(pre)});
    ACTIVATIONS(VALUE)
    check(!"an activation with a row");
}

template <class E> void act_backward(Dev *dev, X *dpre, const X *dout, const X *pre, size_t n, ActKind kind)
{
    bool whole = aligned(dpre, dout, pre);
#define SLOPE(KIND, f) \
    if (kind == KIND) \
        return elements<WIDE<E>>(dev_cuda(dev), n, whole, \
                                 ActBackward<E, f##_function>{ops_as<E>(dpre), ops_as<E>(dout), ops_as<E>(pre)});
    ACTIVATIONS(SLOPE)
    check(!"an activation with a row");
}

template <class E> void swiglu_forward(Dev *dev, X *out, const X *gate_up, size_t N, size_t F)
{
    elements<WIDE<E>>(dev_cuda(dev), N * F, F % WIDE<E> == 0 && aligned(out, gate_up),
                      Swiglu<E>{ops_as<E>(out), ops_as<E>(gate_up), F});
}

template <class E> void swiglu_backward(Dev *dev, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F)
{
    elements<WIDE<E>>(dev_cuda(dev), N * F, F % WIDE<E> == 0 && aligned(dgate_up, dout, gate_up),
                      SwigluBackward<E>{ops_as<E>(dgate_up), ops_as<E>(dout), ops_as<E>(gate_up), F});
}

// ---- saved activations in 8 bits: a warp has a group of 256, a lane 8 of its elements, which stay in registers
// between the maximum and the rounding

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
    DevCuda *d = dev_cuda(dev);
    size_t groups = N * ((w + DEV_GROUP - 1) / DEV_GROUP), warps = (size_t)d->threads / 32;
    if (groups == 0) return;
    LAUNCH((compress_kernel<E>), (unsigned)((groups + warps - 1) / warps), dim3(32, (unsigned)warps), 0, d->stream, q,
           scale, ops_as<E>(inp), groups, w);
}

template <class E> void decompress(Dev *dev, X *out, const int8_t *q, const float *scale, size_t N, size_t w)
{
    elements<WIDE<E>>(dev_cuda(dev), N * w, w % WIDE<E> == 0 && aligned(out, q),
                      Decompress<E>{ops_as<E>(out), q, scale, w});
}

} // namespace

template <class E> void elements_cuda_fill(Dev *dev)
{
    dev->add = add<E>;
    dev->copy = copy<E>;
    dev->dropout = dropout<E>;
    dev->accumulate = accumulate;
    dev->subtract = subtract;
    dev->to_device = to_device;
    dev->to_host = to_host;
    dev->zero = zero;
    dev->to_x = to_x<E>;
    dev->from_x = from_x<E>;
    dev->act_forward = act_forward<E>;
    dev->act_backward = act_backward<E>;
    dev->swiglu_forward = swiglu_forward<E>;
    dev->swiglu_backward = swiglu_backward<E>;
    dev->compress = compress<E>;
    dev->decompress = decompress<E>;
}
DEV_CUDA_FILL(elements)
