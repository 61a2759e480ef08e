// formats: conversions of whole arrays, and exact sums. The rounding itself is in formats.h.
//
// The invariant: a result depends only on the element, never on threads, vector width, block, or how a tensor was
// split into calls. So a run that stores in bf16 is as reproducible as one in fp32.
//
// Why rounding is an addition and a shift. Write |x| as an integer with `drop` bits too many. Adding a number
// r in [0, 2^drop) before the shift carries into the kept bits exactly when the dropped part is at least
// 2^drop - r:
//
//     r = 2^(drop-1) - 1 + (lowest kept bit)     to nearest; a tie carries only when the kept part is odd
//     r = 0                                      truncation
//
// A carry out of the mantissa runs into the exponent, which sits above it, and gives the next power of two;
// out of the largest number it gives Inf. Below the smallest normal number the exponent field stays 0: there the
// leading 1 is written out, and each power of two drops one more bit.
//
// Rejected: stochastic rounding (r uniform in [0, 2^drop): right on average, which bf16 weights without an fp32 master
// copy need; here every weight has one); _Float16, __bf16 and the F16C instructions (not on every CPU and compiler, no
// fp8; the integer code below vectorises and waits for memory on large arrays); adding a large float so that the
// FPU rounds denormals (depends on the FPU's rounding mode and on flush-to-zero); tables of 2^16 floats (they crowd the
// cache).
#include "formats/formats.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 4096 }; // elements

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
static void (*const widen[FORMAT_COUNT])(float *restrict, const void *restrict, size_t) = {
    widen_FORMAT_FP32, widen_FORMAT_TF32, widen_FORMAT_BF16,
    widen_FORMAT_FP16, widen_FORMAT_E4M3, widen_FORMAT_E5M2,
};

// Block b of n elements: [b BLOCK, b BLOCK + length).
static size_t block_length(size_t b, size_t n)
{
    return n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK;
}

// Below `SHARED` elements the calling thread does all: even a parallel region of one thread takes longer than
// converting a row.
enum { SHARED = 8 * BLOCK };

void formats_from_float(void *out, Format f, const float *in, size_t n, bool saturate)
{
    if (n <= SHARED) {
        narrow[f](out, in, n, saturate);
        return;
    }
    size_t width = formats_bytes(f), n_blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static)
    for (size_t b = 0; b < n_blocks; b++)
        narrow[f]((char *)out + b * BLOCK * width, in + b * BLOCK, block_length(b, n), saturate);
}

void formats_to_float(float *out, Format f, const void *in, size_t n)
{
    if (n <= SHARED) {
        widen[f](out, in, n);
        return;
    }
    size_t width = formats_bytes(f), n_blocks = (n + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static)
    for (size_t b = 0; b < n_blocks; b++)
        widen[f](out + b * BLOCK, (const char *)in + b * BLOCK * width, block_length(b, n));
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
    int exponent = (int)(bits >> 52 & 0x7ff); // a NaN may have a sign
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

// Exponent bits all set: infinity or NaN. Integer compares, which the compiler turns into SIMD.
bool formats_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000u) == 0x7f800000u;
    }
    return !bad;
}
