// elements: additions, dropout and conversions on the GPU, element by element. The twins of add, dropout, accumulate,
// subtract, to_x and from_x in dev_cpu.c and narrow.c.
//
//   dropout: out_i = inp_i / (1 - p) where word i % 4 of counter i / 4 is at least p 2^32, else 0   (dev.h)
//
// The invariant: each result is one rounding of the exact one, as on the CPU, so both devices give the same bits. A
// thread reads all of its elements before it writes one, so an output may be an input.
// Rejected: a stored mask (a byte an element, read again in backward, where ten multiplications make it again).
#include "ops/ops_gpu.h"
#include "ops/rng_gpu.h"

namespace {

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
            if (k == 0 || at % 4 == 0) rng_gpu_words(drop.rng, at / 4, c0, c1, c2, c3);
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

template <class E> void add(Dev *dev, X *out, const X *a, const X *b, size_t n)
{
    elements<WIDE<E>>(ops_gpu(dev), n, aligned(out, a, b), Add<E>{ops_as<E>(out), ops_as<E>(a), ops_as<E>(b)});
}

template <class E> void dropout(Dev *dev, X *out, const X *inp, size_t n, Dropout drop)
{
    Drop<E> f = {ops_as<E>(out), ops_as<E>(inp), drop, rng_gpu_limit(drop.p), 1 / (1 - drop.p)};
    elements<WIDE<E>>(ops_gpu(dev), n, aligned(out, inp) && (!drop.row || drop.width % WIDE<E> == 0), f);
}

void accumulate(Dev *dev, float *sum, float *part, size_t n)
{
    elements<4>(ops_gpu(dev), n, aligned(sum, part), Accumulate{sum, part});
}

void subtract(Dev *dev, float *out, const float *a, const float *b, size_t n)
{
    elements<4>(ops_gpu(dev), n, aligned(out, a, b), Subtract{out, a, b});
}

template <class E> void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    elements<WIDE<E>>(ops_gpu(dev), n, aligned(out, inp), Convert<E, float>{ops_as<E>(out), inp});
}

// `out` is host memory as a rule, but may be the device's: cudaMemcpyDefault finds out.
template <class E> void from_x(Dev *dev, float *out, const X *inp, size_t n)
{
    DevCuda *d = ops_gpu(dev);
    if (n == 0) return;
    float *wide = (float *)ops_gpu_scratch(d, n * sizeof *wide);
    elements<WIDE<E>>(d, n, aligned(inp), Convert<float, E>{wide, ops_as<E>(inp)});
    ops_gpu_to_host(d, out, wide, n * sizeof *out);
}

} // namespace

template <class E> void elements_cuda_fill(Dev *dev)
{
    dev->add = add<E>;
    dev->dropout = dropout<E>;
    dev->accumulate = accumulate;
    dev->subtract = subtract;
    dev->to_x = to_x<E>;
    dev->from_x = from_x<E>;
}
OPS_GPU_FILL(elements)
