// embed: tokens and their positions, on the CPU: the table lookup, learned positions, value embeddings, rotary
// positions.
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
// Value embeddings (doc/value_embed.md): v[n] += scale table[token[n]]; the table's gradient is the lookup's, of
// scale dv, and the scale's is the sum of dv table[token].
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

// ---- value embeddings

enum { BLOCKS = 64 };

static void value_embed_forward(Dev *dev, X *v_, const int32_t *token, const X *table, const X *scale, size_t N,
                                size_t heads, size_t D, size_t ld)
{
    float by = *(const float *)scale;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        float *v = (float *)v_ + n * ld;
        const float *row = (const float *)table + (size_t)token[n] * heads * D;
        for (size_t i = 0; i < heads * D; i++) v[i] += by * row[i];
    }
}

static float product(const float *a, const float *b, size_t n)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

// The scale's gradient: over blocks of rows, whose number does not depend on the threads, in order.
static void value_embed_backward(Dev *dev, X *drow_, float *dscale, const X *dv_, const int32_t *token,
                                 const X *table, const X *scale, size_t N, size_t heads, size_t D, size_t ld)
{
    float by = *(const float *)scale;
    size_t n_blocks = N < BLOCKS ? N : BLOCKS, groups = 1, W = heads * D;
    while (dev->deterministic && heads % (2 * groups) == 0) groups *= 2; // of heads: a tree over them, as over ranks
    float *partial = dev_cpu_scratch(dev, n_blocks * groups);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n_blocks; i++) {
        float *sum = partial + i * groups;
        memset(sum, 0, groups * sizeof *sum);
        for (size_t n = i * N / n_blocks; n < (i + 1) * N / n_blocks; n++) {
            const float *dv = (const float *)dv_ + n * ld, *row = (const float *)table + (size_t)token[n] * W;
            float *drow = (float *)drow_ + n * W;
            for (size_t h = 0; h < heads; h++) sum[h * groups / heads] += product(dv + h * D, row + h * D, D);
            for (size_t c = 0; c < W; c++) drow[c] = by * dv[c];
        }
    }
    for (size_t g = 0; g < groups; g++)
        for (size_t i = 1; i < n_blocks; i++) partial[g] += partial[i * groups + g];
    for (size_t step = 1; step < groups; step *= 2)
        for (size_t g = 0; g < groups; g += 2 * step) partial[g] += partial[g + step];
    if (N) *dscale += partial[0];
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
    dev->value_embed_forward = value_embed_forward;
    dev->value_embed_backward = value_embed_backward;
    dev->rope_forward = rope_forward;
    dev->rope_backward = rope_backward;
}
