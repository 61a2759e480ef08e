// near: near duplicates by MinHash. Signatures of sets, and the pairs of documents that agree in a band.
#ifndef NEAR_H
#define NEAR_H
#include <stddef.h>
#include <stdint.h>

// signature (n): number k is the smallest image of the grams under permutation k. gram (n_grams): well-mixed 64-bit
// hashes of a document's n-grams, in any order; equal ones count as one. The n permutations are chosen by seed alone,
// independent of each other. No grams: all UINT32_MAX.
void sign_set(uint32_t *signature, size_t n, const uint64_t *gram, size_t n_grams, uint64_t seed);

// The estimate of the Jaccard similarity of two sets from their signatures (n), 0 to 1; n > 0.
double estimate_similarity(const uint32_t *a, const uint32_t *b, size_t n);

// signature (n_docs, bands * rows): band b of a document is its numbers b * rows .. b * rows + rows - 1. Writes every
// pair of documents that agree in all rows of at least one band, pair[i][0] < pair[i][1], each pair once, in any order;
// there is room for all n_docs (n_docs - 1) / 2. Returns how many.
size_t find_candidates(size_t (*pair)[2], const uint32_t *signature, size_t n_docs, size_t bands, size_t rows);
#endif
