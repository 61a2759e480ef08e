// formats: the number formats of training, in software (bf16, fp16, fp8: E4M3 and E5M2, tf32), and sums that are exact.
//
// Each format is sign, `exponent` bits, `mantissa` bits; bias = 2^(exponent-1) - 1:
//
//     value = (-1)^s * 2^(E - bias) * (1 + M / 2^mantissa)        E > 0
//     value = (-1)^s * 2^(1 - bias) * M / 2^mantissa              E = 0: zero and the denormals
//
// All ones in E is Inf (M = 0) or NaN (M > 0), but in E4M3 (OCP "OFP8"; PyTorch's float8_e4m3fn), which has
// no Inf and only M = all ones is NaN. fp32 to format rounds to nearest, ties to even; format to fp32 is
// exact. Bit for bit what PyTorch gives, NaN payloads aside.
//
// The scalar functions are inline and free of branches once `f` is a constant, so that a loop with
// `#pragma omp simd` over formats_encode(FORMAT_E4M3, x[i] * scale, true) is vectorised.
#ifndef FORMATS_H
#define FORMATS_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    FORMAT_FP32,
    FORMAT_TF32,
    FORMAT_BF16,
    FORMAT_FP16,
    FORMAT_E4M3,
    FORMAT_E5M2,
    FORMAT_COUNT
} Format;

// The three numbers that make a format; all else follows from them.
typedef struct {
    uint32_t exponent, mantissa; // bits
    bool has_inf;
} FormatLayout;

static const FormatLayout FORMATS_LAYOUT[FORMAT_COUNT] = {
    {8, 23, true}, {8, 10, true}, {8, 7, true}, {5, 10, true}, {4, 3, false}, {5, 2, true},
};

// ---- patterns: the bits of a number, right-aligned (tf32: 19 bits)

static inline uint32_t formats_sign(Format f) // the sign bit
{
    return 1u << (FORMATS_LAYOUT[f].exponent + FORMATS_LAYOUT[f].mantissa);
}

// The smallest pattern that is not finite: Inf, in E4M3 NaN. The largest finite number is one below.
static inline uint32_t formats_overflow(Format f)
{
    const FormatLayout l = FORMATS_LAYOUT[f];
    return l.has_inf ? ((1u << l.exponent) - 1) << l.mantissa : formats_sign(f) - 1;
}

static inline uint32_t formats_nan(Format f) // the quiet NaN that encoding gives
{
    return FORMATS_LAYOUT[f].has_inf ? formats_overflow(f) | 1u << (FORMATS_LAYOUT[f].mantissa - 1)
                                     : formats_overflow(f);
}

static inline int formats_bias(Format f)
{
    return (1 << (FORMATS_LAYOUT[f].exponent - 1)) - 1;
}

// x in format f, rounded to nearest, ties to the even pattern. NaN gives the quiet NaN with its sign. What
// is beyond the largest number after rounding, Inf included, gives Inf (E4M3: NaN), or with `saturate` the
// largest number (OCP's SAT mode).
static inline uint32_t formats_encode(Format f, float x, bool saturate)
{
    const FormatLayout l = FORMATS_LAYOUT[f];
    const uint32_t drop = 23 - l.mantissa; // mantissa bits to drop
    uint32_t u, magnitude;
    memcpy(&u, &x, sizeof u);
    uint32_t a = u & 0x7fffffffu;
    if (f == FORMAT_FP32) return saturate && a == 0x7f800000u ? u - 1 : u;
    if (f == FORMAT_BF16 && !saturate) { // the common case, in fewer steps: a carry goes up to Inf, never into the sign
        uint32_t up = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
        return a > 0x7f800000u ? (u >> 31 ? formats_sign(f) : 0) | formats_nan(f) : up;
    }
    if (l.exponent == 8) { // fp32's own exponents: the pattern is the upper part of the float
        magnitude = (a + (1u << (drop - 1)) - 1 + (a >> drop & 1)) >> drop;
    } else {
        // `whole` 2^(E - 150) is |x|, or more when x is an fp32 denormal: those all round to 0. Below the
        // smallest normal number more bits are dropped; from 25 on nothing is left.
        uint32_t E = a >> 23, whole = (a & 0x7fffffu) | 0x800000u, first = (uint32_t)(128 - formats_bias(f));
        uint32_t shift = E < first ? drop + first - E : drop;
        shift = shift < 25 ? shift : 25;
        uint32_t kept = (whole + (1u << (shift - 1)) - 1 + (whole >> shift & 1)) >> shift;
        magnitude = (E < first ? 0 : (E - first) << l.mantissa) + kept; // kept's bit `mantissa` adds the 1
    }
    uint32_t overflow = formats_overflow(f), limit = saturate ? overflow - 1 : overflow;
    magnitude = magnitude < limit ? magnitude : limit;
    magnitude = a > 0x7f800000u ? formats_nan(f) : magnitude;
    return (u >> 31 ? formats_sign(f) : 0) | magnitude;
}

// The fp32 number of a pattern: exact. A NaN stays a NaN and keeps sign and payload; higher bits of
// `pattern` than the format has are ignored.
static inline float formats_decode(Format f, uint32_t pattern)
{
    const FormatLayout l = FORMATS_LAYOUT[f];
    const uint32_t drop = 23 - l.mantissa, bias = (uint32_t)formats_bias(f);
    uint32_t a = pattern & (formats_sign(f) - 1), u;
    if (f == FORMAT_BF16) { // the common case, in one step: the upper half of the float
        u = pattern << 16;
        float x;
        memcpy(&x, &u, sizeof x);
        return x;
    }
    if (l.exponent == 8) {
        u = a << drop;
    } else {
        uint32_t step = (128 - bias - l.mantissa) << 23, denormal; // 2^(1 - bias - mantissa), a normal float
        float small;
        memcpy(&small, &step, sizeof small);
        small *= (float)(int32_t)a;
        memcpy(&denormal, &small, sizeof denormal);
        u = (a << drop) + ((127 - bias) << 23);
        u = a >> l.mantissa ? u : denormal;
        u = a >= formats_overflow(f) ? a << drop | 0x7f800000u : u;
    }
    u |= pattern & formats_sign(f) ? 0x80000000u : 0;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float formats_max(Format f) // the largest finite number
{
    return formats_decode(f, formats_overflow(f) - 1);
}

// ---- arrays. Stored little-endian as the machine has them: uint8_t, uint16_t; tf32 as float with 13 zero
// bits. Blocks go over the threads of OpenMP; results do not depend on their number. No overlap.

size_t formats_bytes(Format f); // of an element: 4, 4, 2, 2, 1, 1
// out (n) of format f = round-to-nearest-even of in (n).
void formats_from_float(void *out, Format f, const float *in, size_t n, bool saturate);
void formats_to_float(float *out, Format f, const void *in, size_t n);
// Whether all n numbers are finite.
bool formats_finite(const float *x, size_t n);

// ---- sums of squares without rounding, so that no order of adding matters
//
// The bits of the result are a function of the numbers alone: not of their order, of threads, or of which rank has
// which of them. That is what a gradient norm needs to be the same on every layout (grads.h).

// Limbs of 32 bits, the lowest first; limb 0 begins at 2^-352. The last counts numbers that are not finite.
enum { EXACT_LIMBS = 22, EXACT_WORDS = EXACT_LIMBS + 1 };

// Zero: the empty sum. Two sums are added word by word (comm.h: COMM_INT64, COMM_SUM), up to 2^30 of them.
typedef struct {
    int64_t word[EXACT_WORDS];
} ExactSum;

// sum += x[i]^2 over n fp32 numbers.
void formats_sum_squares(ExactSum *sum, const float *x, size_t n);
void formats_sum_add(ExactSum *sum, const ExactSum *other);
// The sum as a double, truncated below its last bit; NaN when a number was not finite.
double formats_sum_value(const ExactSum *sum);

#ifdef __cplusplus
}
#endif
#endif
