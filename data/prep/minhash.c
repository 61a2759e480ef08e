// minhash: signatures, bands, the S-curve. See minhash.h.
//
// For a permutation p of all possible grams, the smallest p(x) over a set A is the smallest over A and B together with
// probability |A| / |A or B|, and both sets have the same smallest one exactly when it lies in both:
//
//     P[min p(A) = min p(B)] = |A and B| / |A or B| = J(A, B)           (Broder 1997)
//
// Numbers agree one by one with probability J; r of them, a band, with J^r; at least one of b bands with
//
//     P[candidate] = 1 - (1 - J^r)^b                                     the S-curve
//
// which is near 0 below and near 1 above about (1/b)^(1/r). More rows make a pair harder to find, more bands easier;
// b and r minimise the sum of the two errors, which are the areas under and over the curve.
//
// The invariant: a signature is a function of the set of grams and the seed, and not of the order of grams or of
// threads.
//
// A permutation is x -> a x + b modulo 2^32 with an odd a, on hashes that are already well mixed. It is a bijection, so
// it adds no collisions, and it takes one multiplication, one addition and one minimum, with 8 or 16 permutations per
// instruction. Rejected: a x + b modulo the prime 2^61 - 1, the textbook's universal hashing (a 128-bit product, which
// no SIMD has, several times slower; datasketch let it overflow 64 bits and gave it up in version 2, since its cut to
// 32 bits made large sets look alike); one permutation in bins (empty bins in short texts need repair, and then the
// numbers of a signature are no longer independent); 64-bit signatures (they tell apart sets of billions).
#include "data/prep/minhash.h"

#include "base/check.h"
#include "base/rng.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

enum { LANES = 64 }; // permutations that are worked on together: their minima stay in registers

MinHash minhash_make(size_t n, uint64_t seed)
{
    check(n > 0 && n <= MINHASH_MAX);
    MinHash m = {.n = n};
    Rng rng = rng_make(seed, "minhash", 0);
    for (size_t k = 0; k < n; k++) {
        uint64_t bits = rng_u64(rng, k);
        m.a[k] = (uint32_t)bits | 1;
        m.b[k] = (uint32_t)(bits >> 32);
    }
    return m;
}

void minhash_signature(const MinHash *m, const uint64_t *gram, size_t n_grams, uint32_t *signature)
{
    for (size_t k0 = 0; k0 < m->n; k0 += LANES) { // m->a and m->b have room for whole groups of LANES
        const uint32_t *a = m->a + k0, *b = m->b + k0;
        uint32_t least[LANES];
        memset(least, 255, sizeof least);
        for (size_t i = 0; i < n_grams; i++) {
            uint32_t x = (uint32_t)gram[i];
#pragma omp simd
            for (int k = 0; k < LANES; k++) {
                uint32_t image = a[k] * x + b[k];
                least[k] = image < least[k] ? image : least[k];
            }
        }
        memcpy(signature + k0, least, (m->n - k0 < LANES ? m->n - k0 : LANES) * sizeof *least);
    }
}

// ---- bands

double minhash_curve(MinHashBands b, double s)
{
    return 1 - pow(1 - pow(s, (double)b.rows), (double)b.bands);
}

// Simpson's rule. The curve is a polynomial of degree rows * bands that climbs within about 1/rows: hundreds of
// points there at n_perm = 128, so the error is far below what could change the choice.
static double area(MinHashBands b, double from, double to, bool above)
{
    enum { PARTS = 512 };
    double sum = 0, step = (to - from) / PARTS;
    for (int i = 0; i <= PARTS; i++) {
        double y = minhash_curve(b, from + step * i);
        sum += (i == 0 || i == PARTS ? 1 : i % 2 ? 4 : 2) * (above ? 1 - y : y);
    }
    return sum * step / 3;
}

double minhash_false_positive_area(MinHashBands b, double threshold)
{
    return area(b, 0, threshold, false);
}

double minhash_false_negative_area(MinHashBands b, double threshold)
{
    return area(b, threshold, 1, true);
}

MinHashBands minhash_bands(size_t n_perm, double threshold)
{
    check(n_perm > 0 && n_perm <= MINHASH_MAX && threshold > 0 && threshold <= 1);
    MinHashBands best = {1, 1};
    double least = INFINITY;
    for (size_t bands = 1; bands <= n_perm; bands++)
        for (size_t rows = 1; rows * bands <= n_perm; rows++) {
            MinHashBands b = {bands, rows};
            double error = 0.5 * minhash_false_positive_area(b, threshold);
            if (error < least) error += 0.5 * minhash_false_negative_area(b, threshold);
            if (error < least) least = error, best = b;
        }
    return best;
}

void minhash_keys(MinHashBands b, const uint32_t *signature, uint64_t *key)
{
    for (size_t i = 0; i < b.bands; i++)
        key[i] = XXH3_64bits_withSeed(signature + i * b.rows, b.rows * sizeof *signature, i + 1);
}
