// rope: rotary position embedding on the GPU. The twin of rope.c, where the formula is.
//
// A thread has pair i of row n in all heads, so an angle's cosine and sine, taken in double as on the CPU, are made
// once. W > 1: W neighbouring pairs, 16 bytes at a time.
// The invariant: the angle is that of rope.c to double's precision: at position 100,000 a float angle would be off by
// 1/256 radian.
// Rejected: a table of cosines in memory (as many bytes as a head, read by every layer).
#include "ops/ops_gpu.h"

namespace {

template <class E> struct Turn {
    E *x;
    const int32_t *pos;
    size_t heads, D, ld;
    Rope rope;
    double sign;
    template <int W> __device__ void run(size_t i) const
    {
        size_t half = D / 2, n = i / half, first = i % half;
        float c[W], s[W], a[W], b[W];
        double amplitude = rope_amplitude(&rope);
        for (int k = 0; k < W; k++) {
            double angle = pos[n] * rope_frequency(&rope, first + (size_t)k, D);
            c[k] = (float)(amplitude * cos(angle)), s[k] = (float)(sign * amplitude * sin(angle));
        }
        for (size_t h = 0; h < heads; h++) {
            E *lo = x + n * ld + h * D + first, *hi = lo + half;
            load<W>(a, lo), load<W>(b, hi);
            for (int k = 0; k < W; k++) {
                float turned = a[k] * c[k] - b[k] * s[k];
                b[k] = b[k] * c[k] + a[k] * s[k];
                a[k] = turned;
            }
            store<W>(lo, a), store<W>(hi, b);
        }
    }
};

template <class E>
void rotate(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope, double sign)
{
    bool wide = D / 2 % WIDE<E> == 0 && ld % WIDE<E> == 0 && aligned(x);
    elements<WIDE<E>>(ops_gpu(dev), N * (D / 2), wide, Turn<E>{ops_as<E>(x), pos, heads, D, ld, rope, sign});
}

template <class E>
void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate<E>(dev, x, pos, N, heads, D, ld, rope, 1);
}

template <class E>
void rope_backward(Dev *dev, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate<E>(dev, dx, pos, N, heads, D, ld, rope, -1);
}

} // namespace

template <class E> void rope_cuda_fill(Dev *dev)
{
    dev->rope_forward = rope_forward<E>;
    dev->rope_backward = rope_backward<E>;
}
OPS_GPU_FILL(rope)
