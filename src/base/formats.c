// formats: conversions of whole arrays, exact sums, and the table of ranges. The rounding itself is in formats.h.
//
// The invariant: a result depends only on the element (and for stochastic rounding on its index), never on threads,
// vector width, block, or how a tensor was split into calls. So a run that stores in bf16 is as reproducible as one in
// fp32.
//
// Why rounding is an addition and a shift. Write |x| as an integer with `drop` bits too many. Adding a number
// r in [0, 2^drop) before the shift carries into the kept bits exactly when the dropped part is at least
// 2^drop - r:
//
//     r = 2^(drop-1) - 1 + (lowest kept bit)     to nearest; a tie carries only when the kept part is odd
//     r = uniform in [0, 2^drop)                 stochastic: carries with probability dropped / 2^drop
//     r = 0                                      truncation
//
// A carry out of the mantissa runs into the exponent, which sits above it, and gives the next power of two;
// out of the largest number it gives Inf. Below the smallest normal number the exponent field stays 0: there the
// leading 1 is written out, and each power of two drops one more bit.
//
// The mean of the stochastic result is x. So a sum of many small updates is right on average, where rounding to nearest
// loses each of them: an AdamW update is often smaller than half the distance to the next bf16 weight.
//
// Rejected: _Float16, __bf16 and the F16C instructions (not on every CPU and compiler, no fp8, no stochastic
// rounding; the integer code below vectorises and waits for memory on large arrays); adding a large float so
// that the FPU rounds denormals (depends on the FPU's rounding mode and on flush-to-zero); tables of
// 2^16 floats (they crowd the cache).
#include "base/formats.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 4096 }; // elements; the random words of a block stay in the first-level cache

static const char *const NAME[FORMAT_COUNT] = {"fp32", "tf32", "bf16", "fp16", "fp8 E4M3", "fp8 E5M2"};
static const char *const USE[FORMAT_COUNT] = {
    "master weights, optimizer, sums",
    "inputs of fp32 matmuls on tensor cores",
    "weights, activations, gradients",
    "the same, with loss scaling",
    "inputs of matmuls: weights, activations",
    "inputs of matmuls: gradients",
};

size_t formats_bytes(Format f)
{
    check(f >= 0 && f < FORMAT_COUNT);
    return f == FORMAT_E4M3 || f == FORMAT_E5M2 ? 1 : f == FORMAT_BF16 || f == FORMAT_FP16 ? 2 : 4;
}

// The loops of one format. A constant format turns formats_encode into a dozen instructions without a branch.
#define NARROW(format, type, up)                                                                          \
    static void narrow_##format(void *restrict out, const float *restrict in, size_t n, bool saturate)    \
    {                                                                                                     \
        type *restrict to = (type *)out;                                                                  \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                                \
            to[i] = (type)(formats_encode(format, in[i], saturate) << up);                                \
    }                                                                                                     \
    static void dither_##format(void *restrict out, const float *restrict in,                             \
                                const uint32_t *restrict random, size_t n, bool saturate)                 \
    {                                                                                                     \
        type *restrict to = (type *)out;                                                                  \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                                \
            to[i] = (type)(formats_encode_stochastic(format, in[i], random[i], saturate) << up);          \
    }                                                                                                     \
    static void widen_##format(float *restrict out, const void *restrict in, size_t n)                    \
    {                                                                                                     \
        const type *restrict from = (const type *)in;                                                     \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                                \
            out[i] = formats_decode(format, (uint32_t)from[i] >> up);                                     \
    }
NARROW(FORMAT_FP32, uint32_t, 0)
NARROW(FORMAT_TF32, uint32_t, 13)
NARROW(FORMAT_BF16, uint16_t, 0)
NARROW(FORMAT_FP16, uint16_t, 0)
NARROW(FORMAT_E4M3, uint8_t, 0)
NARROW(FORMAT_E5M2, uint8_t, 0)
#undef NARROW

static void (*const narrow[FORMAT_COUNT])(void *restrict, const float *restrict, size_t, bool) = {
    narrow_FORMAT_FP32, narrow_FORMAT_TF32, narrow_FORMAT_BF16,
    narrow_FORMAT_FP16, narrow_FORMAT_E4M3, narrow_FORMAT_E5M2,
};
static void (*const dither[FORMAT_COUNT])(void *restrict, const float *restrict, const uint32_t *restrict,
                                          size_t, bool) = {
    dither_FORMAT_FP32, dither_FORMAT_TF32, dither_FORMAT_BF16,
    dither_FORMAT_FP16, dither_FORMAT_E4M3, dither_FORMAT_E5M2,
};
static void (*const widen[FORMAT_COUNT])(float *restrict, const void *restrict, size_t) = {
    widen_FORMAT_FP32, widen_FORMAT_TF32, widen_FORMAT_BF16,
    widen_FORMAT_FP16, widen_FORMAT_E4M3, widen_FORMAT_E5M2,
};

// Block b of n elements: [b BLOCK, b BLOCK + length).
static size_t block_length(size_t b, size_t n)
{
    return n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK;
}

void formats_from_float(void *out, Format f, const float *in, size_t n, bool saturate)
{
    size_t width = formats_bytes(f), n_blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (n_blocks > 8)
    for (size_t b = 0; b < n_blocks; b++)
        narrow[f]((char *)out + b * BLOCK * width, in + b * BLOCK, block_length(b, n), saturate);
}

void formats_to_float(float *out, Format f, const void *in, size_t n)
{
    size_t width = formats_bytes(f), n_blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (n_blocks > 8)
    for (size_t b = 0; b < n_blocks; b++)
        widen[f](out + b * BLOCK, (const char *)in + b * BLOCK * width, block_length(b, n));
}

void formats_from_float_stochastic(void *out, Format f, const float *in, size_t n, bool saturate, Rng rng,
                                   uint64_t first)
{
    size_t width = formats_bytes(f), n_blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static) if (n_blocks > 1)
    for (size_t b = 0; b < n_blocks; b++) {
        uint32_t word[BLOCK + 8]; // whole counters, from the one that holds the block's first element
        size_t length = block_length(b, n);
        uint64_t begin = first + b * BLOCK, counter = begin / 4;
        size_t skip = begin % 4, n_counters = (skip + length + 3) / 4;
        for (size_t c = 0; c < n_counters; c++) rng_words(rng, counter + c, word + 4 * c);
        dither[f]((char *)out + b * BLOCK * width, in + b * BLOCK, word + skip, length, saturate);
    }
}

// ---- exact sums: an integer of 704 bits that holds any sum of squares of fp32 numbers
//
// A finite fp32 number is an integer of at most 24 bits times 2^e, e >= -149. Its square has at most 48 bits, so a
// double holds it exactly, and lies between 2^-298 and 2^256; the last bit of that double is not below 2^-350. A
// fixed-point number that begins there and ends beyond 2^256 times the largest count holds every such sum exactly (a
// "long accumulator": Kulisch and Miranker 1981; in this form Neal, arXiv 1505.05571). Integer addition is associative,
// so the result does not depend on any order.
//
//     sum = sum over limbs of word[i] 2^(32 i - 352)
//
// A word has 64 bits and each addition puts at most 32 into it, so carries need to be propagated only every 2^30
// additions.
//
// The invariant: after every call word[i] < 2^32 for all but the highest limb, so equal sums have equal words, and
// up to 2^30 of them can be added word by word before carries must be propagated.
//
// Rejected: sums over fixed blocks, added in table order (every layout would have to split at the same block borders,
// which the columns of a matrix over tensor-parallel ranks cannot); double-double sums (smaller errors, but not none).

enum { LOWEST = -352, EXTRA = EXACT_LIMBS, SUM_CHUNK = 1 << 14 };

// Propagates carries, so that every limb but the highest is below 2^32.
static void carry(ExactSum *s)
{
    for (int i = 0; i + 1 < EXACT_LIMBS; i++) {
        s->word[i + 1] += s->word[i] >> 32;
        s->word[i] &= 0xffffffff;
    }
}

static void add_one(ExactSum *s, float x)
{
    double square = (double)x * (double)x;
    uint64_t bits;
    memcpy(&bits, &square, sizeof bits);
    int exponent = (int)(bits >> 52);
    if (exponent == 0) return; // 0: the square of an fp32 number is no subnormal double
    if (exponent == 0x7ff) {
        s->word[EXTRA] = 1;
        return;
    }
    uint64_t m = (bits & 0xfffffffffffffu) | 0x10000000000000u; // square = m 2^(exponent - 1075)
    int at = exponent - 1075 - LOWEST, limb = at >> 5, shift = at & 31;
    unsigned __int128 wide = (unsigned __int128)m << shift; // 53 + 31 bits
    s->word[limb] += (int64_t)(wide & 0xffffffff);
    s->word[limb + 1] += (int64_t)(wide >> 32 & 0xffffffff);
    s->word[limb + 2] += (int64_t)(wide >> 64);
}

static void add_chunk(ExactSum *s, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) add_one(s, x[i]);
    carry(s);
}

void formats_sum_add(ExactSum *s, const ExactSum *other)
{
    for (int i = 0; i < EXACT_WORDS; i++) s->word[i] += other->word[i];
    carry(s);
}

void formats_sum_squares(ExactSum *s, const float *x, size_t n)
{
#pragma omp parallel if (n > 4 * SUM_CHUNK)
    {
        ExactSum own = {{0}};
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < (n + SUM_CHUNK - 1) / SUM_CHUNK; i++) {
            size_t first = i * SUM_CHUNK, left = n - first;
            add_chunk(&own, x + first, left < SUM_CHUNK ? left : SUM_CHUNK);
        }
#pragma omp critical(formats_sum)
        formats_sum_add(s, &own);
    }
}

double formats_sum_value(const ExactSum *sum)
{
    ExactSum s = *sum;
    carry(&s); // of sums that were added word by word
    if (s.word[EXTRA]) return NAN;
    int top = EXACT_LIMBS - 1;
    while (top > 0 && !s.word[top]) top--;
    // the highest 96 bits: a double's 53, with up to 31 zeros in front
    uint64_t high = (uint64_t)s.word[top], middle = top > 0 ? (uint64_t)s.word[top - 1] : 0;
    uint64_t low = top > 1 ? (uint64_t)s.word[top - 2] : 0;
    unsigned __int128 wide = (unsigned __int128)high << 64 | (unsigned __int128)middle << 32 | low;
    int drop = 0;
    while (wide >> (53 + drop)) drop++;
    return ldexp((double)(uint64_t)(wide >> drop), LOWEST + 32 * (top - 2) + drop);
}

// ---- the table

FormatInfo formats_info(Format f)
{
    check(f >= 0 && f < FORMAT_COUNT);
    const FormatLayout l = FORMATS_LAYOUT[f];
    int bias = formats_bias(f), mantissa = (int)l.mantissa;
    return (FormatInfo){
        .name = NAME[f],
        .use = USE[f],
        .bits = 1 + (int)l.exponent + mantissa,
        .exponent = (int)l.exponent,
        .mantissa = mantissa,
        .bias = bias,
        .has_inf = l.has_inf,
        .max = formats_decode(f, formats_overflow(f) - 1),
        .min_normal = ldexp(1, 1 - bias),
        .min_denormal = ldexp(1, 1 - bias - mantissa),
        .epsilon = ldexp(1, -mantissa),
        .digits = (mantissa + 1) * log10(2),
    };
}

void formats_print(FILE *out)
{
    fprintf(out, "%-8s %4s %4s %4s %5s %4s %11s %15s %16s %13s %7s  %s\n", "format", "bits", "exp", "man",
            "bias", "Inf", "max", "min normal", "min denormal", "epsilon", "digits", "used for");
    for (int f = 0; f < FORMAT_COUNT; f++) {
        FormatInfo i = formats_info((Format)f);
        char normal[32], denormal[32], epsilon[32];
        snprintf(normal, sizeof normal, "2^%d %.1e", ilogb(i.min_normal), i.min_normal);
        snprintf(denormal, sizeof denormal, "2^%d %.1e", ilogb(i.min_denormal), i.min_denormal);
        snprintf(epsilon, sizeof epsilon, "2^%d %.1e", ilogb(i.epsilon), i.epsilon);
        fprintf(out, "%-8s %4d %4d %4d %5d %4s %11.6g %15s %16s %13s %7.1f  %s\n", i.name, i.bits, i.exponent,
                i.mantissa, i.bias, i.has_inf ? "yes" : "no", i.max, normal, denormal, epsilon, i.digits,
                i.use);
    }
}
