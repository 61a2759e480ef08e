// minhash: signatures of sets whose agreement estimates their Jaccard similarity, and the bands that find similar ones.
#ifndef MINHASH_H
#define MINHASH_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define MINHASH_MAX 1024 // permutations

// Permutation k sends x to a[k] * x + b[k] modulo 2^32, a odd: what datasketch 2 calls "affine32", after its mixing.
typedef struct {
    size_t n;
    uint32_t a[MINHASH_MAX], b[MINHASH_MAX];
} MinHash;

// n: 1 to MINHASH_MAX. The same seed gives the same permutations; a smaller n gives the first n of them.
MinHash minhash_make(size_t n, uint64_t seed);

// signature (n): for each permutation the smallest image of the lower halves of the grams. No grams: all UINT32_MAX.
void minhash_signature(const MinHash *m, const uint64_t *gram, size_t n_grams, uint32_t *signature);

// Two signatures become candidates when all `rows` numbers of one of `bands` bands agree.
typedef struct {
    size_t bands, rows;
} MinHashBands;

// The bands with bands * rows <= n_perm that have the least error: half the area under the curve below the threshold
// plus half the area above the curve beyond it. threshold: in (0, 1].
MinHashBands minhash_bands(size_t n_perm, double threshold);
// The probability 1 - (1 - s^rows)^bands that two sets of similarity s become candidates; and the two areas.
double minhash_curve(MinHashBands b, double s);
double minhash_false_positive_area(MinHashBands b, double threshold);
double minhash_false_negative_area(MinHashBands b, double threshold);

// key (bands): a number for each band of a signature; equal where the bands are. Bands have different keys.
void minhash_keys(MinHashBands b, const uint32_t *signature, uint64_t *key);

#ifdef __cplusplus
}
#endif
#endif
