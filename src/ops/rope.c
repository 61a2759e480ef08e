// rope: rotary position embedding, on the CPU (Su et al., arXiv 2104.09864).
//
// Pair (i, i + D/2) of each head vector is turned by the angle pos * theta^(-2i/D):
//
//   x_i' = x_i cos - x_{i+D/2} sin,   x_{i+D/2}' = x_{i+D/2} cos + x_i sin
//
// The frequencies are rope.h's, which is also where they are stretched to longer contexts.
//
// This is the rotate-half pairing of Transformers' LLaMA, not the interleaved pairing (2i, 2i + 1) of
// Meta's own files; mixing the two up trains well and loads wrongly. The invariant: backward is the same
// turn with the angle negated, so it needs nothing saved, and the dot product of a turned query and key
// depends on the distance of their positions alone.
//
// The angle is taken in double: at position 100,000 a float angle is off by 1/256 radian. cos and sin
// are tabulated once per row of tokens and shared by its heads.
#include "ops/dev_cpu.h"

#include "base/check.h"

#include <math.h>

enum { MAX_HALF = 512 };

static void rotate(Dev *dev, float *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope,
                   double sign)
{
    size_t half = D / 2;
    check(D % 2 == 0 && half <= MAX_HALF);
    double frequency[MAX_HALF], amplitude = rope_amplitude(&rope);
    for (size_t i = 0; i < half; i++) frequency[i] = rope_frequency(&rope, i, D);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        float c[MAX_HALF], s[MAX_HALF];
        for (size_t i = 0; i < half; i++) {
            c[i] = (float)(amplitude * cos(pos[n] * frequency[i]));
            s[i] = (float)(sign * amplitude * sin(pos[n] * frequency[i]));
        }
        for (size_t h = 0; h < heads; h++) {
            float *lo = x + n * ld + h * D, *hi = lo + half;
#pragma omp simd
            for (size_t i = 0; i < half; i++) {
                float a = lo[i], b = hi[i];
                lo[i] = a * c[i] - b * s[i];
                hi[i] = b * c[i] + a * s[i];
            }
        }
    }
}

static void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate(dev, (float *)x, pos, N, heads, D, ld, rope, 1);
}

static void rope_backward(Dev *dev, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate(dev, (float *)dx, pos, N, heads, D, ld, rope, -1);
}

void rope_cpu_fill(Dev *dev)
{
    dev->rope_forward = rope_forward;
    dev->rope_backward = rope_backward;
}
