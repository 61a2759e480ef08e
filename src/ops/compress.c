// compress: saved activations in 8 bits, on the CPU.
//
// Between forward and backward a saved activation can wait as one byte an element: groups of up to 256 elements
// of a row share one fp32 scale,
//
//   scale = max |x| / 127,   q = round(x / scale),   x' = q scale,   |x - x'| <= scale / 2
//
// so it costs 1 + 4/256 bytes an element instead of 4. Forward itself never sees x': losses are exact, only
// gradients carry the noise. (Training with compressed activations: ActNN, Chen et al., arXiv 2104.14129. Scales
// by block, so that one outlier coarsens 256 elements and no others: Dettmers et al., arXiv 2110.02861.)
//
// The invariant: a group lies within one row, so what an element becomes does not depend on the number of rows,
// on threads or on how a batch is cut.
//
// Rejected: stochastic rounding, which makes x' exact on average and which ActNN needs at 2 bits. At 8 bits it
// doubles the worst error (scale instead of scale / 2) and the variance, and costs a random number an element.
// Rejected: zero points (asymmetric groups): activations behind norms and matmuls are near symmetric, and GELU's
// output, which is not, would gain one bit.
//
// NaN and infinities must not vanish in a conversion to integers: the scale of such a group is NaN, and so is
// all that comes back.
#include "ops/dev_cpu.h"

#include <float.h>
#include <math.h>

static void compress_group(int8_t *q, float *scale, const float *x, size_t n)
{
    float top = 0, finite = 0;
#pragma omp simd reduction(max : top) reduction(+ : finite)
    for (size_t i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        top = a > top ? a : top;
        finite += a - a; // 0, or NaN for ever
    }
    bool tiny = top < 127 * FLT_MIN;
    *scale = finite != 0 ? NAN : tiny ? 0 : top / 127;
    float inverse = finite != 0 || tiny ? 0 : 127 / top;
    for (size_t i = 0; i < n; i++) q[i] = finite != 0 ? 0 : (int8_t)rintf(x[i] * inverse);
}

static void compress(Dev *dev, int8_t *q, float *scale, const X *inp, size_t N, size_t w)
{
    size_t groups = (w + DEV_GROUP - 1) / DEV_GROUP;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < N * groups; i++) {
        size_t from = i % groups * DEV_GROUP, at = i / groups * w + from;
        compress_group(q + at, scale + i, (const float *)inp + at, w - from < DEV_GROUP ? w - from : DEV_GROUP);
    }
}

static void decompress(Dev *dev, X *out_, const int8_t *q, const float *scale, size_t N, size_t w)
{
    size_t groups = (w + DEV_GROUP - 1) / DEV_GROUP;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < N * groups; i++) {
        size_t from = i % groups * DEV_GROUP, at = i / groups * w + from;
        size_t n = w - from < DEV_GROUP ? w - from : DEV_GROUP;
        float *out = (float *)out_ + at, s = scale[i];
        const int8_t *in = q + at;
#pragma omp simd
        for (size_t j = 0; j < n; j++) out[j] = (float)in[j] * s;
    }
}

void compress_cpu_fill(Dev *dev)
{
    dev->compress = compress;
    dev->decompress = decompress;
}
