// embed: tokens and their positions, on the CPU: the table lookup, learned positions, rotary positions.
//
//   out[n] = tokens.weight[token[n]] + positions.weight[pos[n]];  dwte[token[n]] += dout[n],  dwpe[pos[n]] += dout[n]
//
// A token below 0 is in another rank's part of the table (tp.h). Its row here is zero, with no position: the rank that
// has the token adds token and position, as a single rank does, and the sum over ranks only adds zeros.
//
// Rotary positions (Su et al., arXiv 2104.09864): pair (i, i + D/2) of each head vector is rotated by the angle
// pos * theta^(-2i/D):
//
//   x_i' = x_i cos - x_{i+D/2} sin,   x_{i+D/2}' = x_{i+D/2} cos + x_i sin
//
// The frequencies are rope.h's, which is also where they are stretched to longer contexts. This is the rotate-half
// pairing of Transformers' LLaMA, not the interleaved pairing (2i, 2i + 1) of Meta's own files; mixing the two up
// trains well and loads wrongly. The angle is taken in double: at position 100,000 a float angle is off by 1/256
// radian. With p = 64 a + b, cos and sin of p f come from those of 64 a f and b f by the sum of angles, in double: the
// second of them from a table, the first when a changes. They are shared by a row's heads and depend on p alone.
//
// The invariant: the lookup's backward adds rows in ascending n for every channel. Threads share out channels, not
// rows, so a token that occurs often needs neither atomics nor sorting, and the bits do not depend on the number of
// threads. The rotation's backward is the rotation by the negated angle, so nothing is saved for it. The dot product of
// a rotated query and key depends only on the distance of their positions.
#include "ops/dev_cpu.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

// ---- the lookup

enum { STRIP = 64 };

static void embed_forward(Dev *dev, X *out_, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        float *out = (float *)out_ + n * C;
        if (token[n] < 0) {
            memset(out, 0, C * sizeof *out);
            continue;
        }
        const float *t = (const float *)wte + (size_t)token[n] * C;
        const float *p = wpe ? (const float *)wpe + (size_t)pos[n] * C : NULL;
        for (size_t c = 0; c < C; c++) out[c] = p ? t[c] + p[c] : t[c];
    }
}

static void embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout_, const int32_t *token,
                           const int32_t *pos, size_t N, size_t C, size_t V)
{
    (void)V;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t c0 = 0; c0 < C; c0 += STRIP) {
        size_t w = C - c0 < STRIP ? C - c0 : STRIP;
        for (size_t n = 0; n < N; n++) {
            const float *dout = (const float *)dout_ + n * C + c0;
            float *dt = token[n] < 0 ? NULL : dwte + (size_t)token[n] * C + c0;
            float *dp = dwpe ? dwpe + (size_t)pos[n] * C + c0 : NULL;
            for (size_t c = 0; dt && c < w; c++) dt[c] += dout[c];
            for (size_t c = 0; dp && c < w; c++) dp[c] += dout[c];
        }
    }
}

// ---- rotary positions

enum { MAX_HALF = 512, NEAR = 64 };

typedef struct {
    double cos[MAX_HALF], sin[MAX_HALF];
} Turn; // of each pair

static void turn_by(Turn *t, const double *frequency, size_t half, int32_t pos)
{
    for (size_t i = 0; i < half; i++) t->cos[i] = cos(pos * frequency[i]), t->sin[i] = sin(pos * frequency[i]);
}

static void rotate(Dev *dev, float *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope,
                   double sign)
{
    size_t half = D / 2;
    check(D % 2 == 0 && half <= MAX_HALF);
    double frequency[MAX_HALF], amplitude = rope_amplitude(&rope);
    for (size_t i = 0; i < half; i++) frequency[i] = rope_frequency(&rope, i, D);
    Turn *table = (Turn *)dev_cpu_scratch(dev, NEAR * sizeof(Turn) / sizeof(float));
    for (int32_t p = 0; N >= NEAR && p < NEAR; p++) turn_by(&table[p], frequency, half, p);
#pragma omp parallel num_threads(dev_cpu_team(dev, N * heads * D))
    {
        Turn far, own;
        int32_t at = -1; // where `far` is
#pragma omp for schedule(static)
        for (size_t n = 0; n < N; n++) {
            float c[MAX_HALF], s[MAX_HALF];
            const Turn *near = N >= NEAR ? &table[pos[n] % NEAR] : &own;
            if (N < NEAR) turn_by(&own, frequency, half, pos[n] % NEAR);
            if (at != pos[n] / NEAR) turn_by(&far, frequency, half, (at = pos[n] / NEAR) * NEAR);
#pragma omp simd
            for (size_t i = 0; i < half; i++) {
                c[i] = (float)(amplitude * (far.cos[i] * near->cos[i] - far.sin[i] * near->sin[i]));
                s[i] = (float)(sign * amplitude * (far.sin[i] * near->cos[i] + far.cos[i] * near->sin[i]));
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
}

static void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate(dev, (float *)x, pos, N, heads, D, ld, rope, 1);
}

static void rope_backward(Dev *dev, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate(dev, (float *)dx, pos, N, heads, D, ld, rope, -1);
}

void embed_cpu_fill(Dev *dev)
{
    dev->embed_forward = embed_forward;
    dev->embed_backward = embed_backward;
    dev->rope_forward = rope_forward;
    dev->rope_backward = rope_backward;
}
