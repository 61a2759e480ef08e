// elements: element-wise ops on the CPU: additions, dropout, conversions and copies, activations, and the compression
// of saved activations to 8 bits.
//
//   dropout  out = inp / (1 - p) or 0: which of the two is drawn from the element's global index (dev.h)
//   act      out = f(pre), dpre = dout f'(pre) (activation.h). In training GELU is applied within the matmul
//            (matmul.c); alone it serves recomputation, which must give the same bits: both call act_gelu
//   SwiGLU   (Shazeer, arXiv 2002.05202): out = silu(gate) * up, silu(x) = x sigmoid(x)
//            dgate = dout * up * s (1 + gate (1 - s)),  dup = dout * gate * s,  with s = sigmoid(gate)
//            gate and up are the two halves of a row of (N, 2F): one matmul over the adjacent weights computes both
//   8 bits   scale = max |x| / 127,   q = round(x / scale),   x' = q scale,   |x - x'| <= scale / 2
//
// The invariant: any split over elements gives the same bits, and a group of 256 lies within one row. So the result for
// an element does not depend on the number of rows, on threads, or on how a batch is split.
#include "ops/dev_cpu.h"

#include "base/check.h"
#include "ops/activation.h"

#include <float.h>
#include <math.h>
#include <string.h>

// ---- copies, sums, dropout

static void copy_bytes(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    (void)dev;
    memcpy(dst, src, n_bytes);
}

static void copy(Dev *dev, X *out, const X *inp, size_t rows, size_t width, size_t ld_out, size_t ld_inp)
{
    size_t x = dev->x_bytes;
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, rows * width))
    for (size_t r = 0; r < rows; r++)
        memcpy((char *)out + r * ld_out * x, (const char *)inp + r * ld_inp * x, width * x);
}

static void add(Dev *dev, X *out_, const X *a_, const X *b_, size_t n)
{
    float *out = (float *)out_;
    const float *a = (const float *)a_, *b = (const float *)b_;
#pragma omp parallel for simd schedule(static) num_threads(dev_cpu_team(dev, n))
    for (size_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

enum { DROPPED = 512 }; // elements whose words are drawn at once

// Elements with global indices first .. first + n - 1.
static void drop_run(float *out, const float *inp, size_t n, uint64_t first, Dropout drop)
{
    float scale = 1 / (1 - drop.p);
    uint32_t words[DROPPED + 8], limit = dev_cpu_dropout_limit(drop); // 8: of counters that the run begins or ends in
    for (size_t at = 0, w; at < n; at += w) {
        w = n - at < DROPPED ? n - at : DROPPED;
        const uint32_t *word = words + (first + at) % 4;
        rng_words_many(drop.rng, (first + at) / 4, (size_t)(((first + at) % 4 + w + 3) / 4), words);
        for (size_t i = at; i < at + w; i++) out[i] = *word++ >= limit ? inp[i] * scale : 0;
    }
}

static void dropout(Dev *dev, X *out_, const X *inp_, size_t n, Dropout drop)
{
    float *out = (float *)out_;
    const float *inp = (const float *)inp_;
    size_t w = drop.row ? drop.width : DROPPED;
    check(!drop.row || n % w == 0);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i += w)
        drop_run(out + i, inp + i, n - i < w ? n - i : w, drop.first + (drop.row ? (uint64_t)drop.row[i / w] * w : i), drop);
}

static void accumulate(Dev *dev, float *sum, float *part, size_t n)
{
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        sum[i] += part[i];
        part[i] = 0;
    }
}

static void subtract(Dev *dev, float *out, const float *a, const float *b, size_t n)
{
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) out[i] = b ? a[i] - b[i] : a[i];
}

static void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    (void)dev;
    memcpy(out, inp, n * sizeof *inp);
}

static void from_x(Dev *dev, float *out, const X *inp, size_t n)
{
    (void)dev;
    memcpy(out, inp, n * sizeof *out);
}

static void zero(Dev *dev, void *dst, size_t n_bytes)
{
    char *bytes = (char *)dst;
    enum { PAGE = 1 << 20 };
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n_bytes; i += PAGE) memset(bytes + i, 0, n_bytes - i < PAGE ? n_bytes - i : PAGE);
}

// ---- activations

static void swiglu_forward(Dev *dev, X *out_, const X *gate_up, size_t N, size_t F)
{
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * F))
    for (size_t n = 0; n < N; n++) {
        float *out = (float *)out_ + n * F;
        const float *gate = (const float *)gate_up + n * 2 * F, *up = gate + F;
#pragma omp simd
        for (size_t f = 0; f < F; f++) out[f] = gate[f] * vmath_sigmoid(gate[f]) * up[f];
    }
}

static void swiglu_backward(Dev *dev, X *dgate_up, const X *dout_, const X *gate_up, size_t N, size_t F)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        const float *dout = (const float *)dout_ + n * F;
        const float *gate = (const float *)gate_up + n * 2 * F, *up = gate + F;
        float *dgate = (float *)dgate_up + n * 2 * F, *dup = dgate + F;
#pragma omp simd
        for (size_t f = 0; f < F; f++) {
            float s = vmath_sigmoid(gate[f]), g = gate[f], u = up[f], d = dout[f];
            dgate[f] = d * u * s * (1 + g * (1 - s));
            dup[f] = d * g * s;
        }
    }
}

// One loop an activation, which a compiler vectorises.
#define EACH_ELEMENT(KIND, formula) \
    case KIND: \
        _Pragma("omp parallel for simd schedule(static) num_threads(threads)") \
        for (size_t i = 0; i < n; i++) formula; \
        return;

static void act_forward(Dev *dev, X *out_, const X *pre_, size_t n, ActKind kind)
{
    float *out = (float *)out_;
    const float *pre = (const float *)pre_;
    int threads = dev_cpu_team(dev, n);
#define VALUE(KIND, f) EACH_ELEMENT(KIND, out[i] = f(pre[i]))
    switch (kind) {
        ACTIVATIONS(VALUE)
    default: check(!"an activation without a gate");
    }
}

static void act_backward(Dev *dev, X *dpre_, const X *dout_, const X *pre_, size_t n, ActKind kind)
{
    float *dpre = (float *)dpre_;
    const float *dout = (const float *)dout_, *pre = (const float *)pre_;
    int threads = dev_cpu_team(dev, n);
#define SLOPE(KIND, f) EACH_ELEMENT(KIND, dpre[i] = dout[i] * f##_slope(pre[i]))
    switch (kind) {
        ACTIVATIONS(SLOPE)
    default: check(!"an activation without a gate");
    }
}

// ---- saved activations in 8 bits
//
// Between forward and backward a saved activation can wait as one byte an element, with one fp32 scale for up to 256
// elements of a row: 1 + 4/256 bytes an element instead of 4. Forward itself never sees x': losses are exact, only
// gradients carry the noise. (Training with compressed activations: ActNN, Chen et al., arXiv 2104.14129. Scales by
// block, so that one outlier coarsens 256 elements and no others: Dettmers et al., arXiv 2110.02861.) NaN and
// infinities must not vanish in a conversion to integers: the scale of such a group is NaN, and so are all of its
// decompressed elements.
//
// Rejected for the 8 bits: stochastic rounding, which makes x' exact on average and which ActNN needs at 2 bits; at 8
// bits it doubles the worst error and the variance, and costs a random number an element. Zero points (asymmetric
// groups): activations after norms and matmuls are near symmetric, and GELU's output, which is not, would gain one
// bit.

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

void elements_cpu_fill(Dev *dev)
{
    dev->to_device = copy_bytes;
    dev->to_host = copy_bytes;
    dev->copy = copy;
    dev->zero = zero;
    dev->to_x = to_x;
    dev->from_x = from_x;
    dev->add = add;
    dev->dropout = dropout;
    dev->accumulate = accumulate;
    dev->subtract = subtract;
    dev->act_forward = act_forward;
    dev->act_backward = act_backward;
    dev->swiglu_forward = swiglu_forward;
    dev->swiglu_backward = swiglu_backward;
    dev->compress = compress;
    dev->decompress = decompress;
}
