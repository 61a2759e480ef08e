// exact_sum: an integer of 704 bits that holds any sum of squares of fp32 numbers.
//
// A finite fp32 number is an integer of at most 24 bits times 2^e, e >= -149. Its square has at most 48 bits, so a
// double holds it exactly, and lies between 2^-298 and 2^256; the last bit of that double is not below 2^-350. A
// fixed-point number that begins there and ends beyond
// 2^256 times the largest count holds every such sum exactly (a "long accumulator": Kulisch and Miranker 1981; in this
// form Neal, arXiv 1505.05571). Integer addition is associative, so the result does not depend on any order.
//
//     sum = sum over limbs of word[i] 2^(32 i - 352)
//
// Words have 64 bits and take pieces of 32: carries may wait for 2^30 additions.
//
// The invariant: after every call word[i] < 2^32 for all but the highest limb, so equal sums have equal words, and
// up to 2^30 of them can be added word by word before carries must move.
//
// Rejected: blocks of fixed borders added in table order, which needs every layout to cut at those borders (columns
// of a matrix over tensor-parallel ranks cannot); double-double sums (smaller errors are still errors).
#include "base/exact_sum.h"

#include <math.h>
#include <string.h>

enum { LOWEST = -352, EXTRA = EXACT_LIMBS, CHUNK = 1 << 14 };

// Carries move up, so that every limb but the highest is below 2^32.
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

void exact_sum_add(ExactSum *s, const ExactSum *other)
{
    for (int i = 0; i < EXACT_WORDS; i++) s->word[i] += other->word[i];
    carry(s);
}

void exact_sum_squares(ExactSum *s, const float *x, size_t n)
{
#pragma omp parallel if (n > 4 * CHUNK)
    {
        ExactSum own = {{0}};
#pragma omp for schedule(static) nowait
        for (size_t i = 0; i < (n + CHUNK - 1) / CHUNK; i++) {
            size_t first = i * CHUNK, left = n - first;
            add_chunk(&own, x + first, left < CHUNK ? left : CHUNK);
        }
#pragma omp critical(exact_sum)
        exact_sum_add(s, &own);
    }
}

double exact_sum_value(const ExactSum *sum)
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
