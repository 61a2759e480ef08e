#include "../grade.h"

#include "near.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The hashes first .. first + n - 1 of a long random list, made for `topic`: equal numbers of one topic are one n-gram.
static uint64_t *grams(uint64_t topic, size_t first, size_t n)
{
    uint64_t *gram = malloc(n * sizeof *gram + 1), state;
    for (size_t i = 0; i < n; i++) {
        state = topic << 32 | (first + i);
        gram[i] = random_below(&state, UINT64_MAX);
    }
    return gram;
}

static uint32_t *filled(size_t n, uint32_t value)
{
    uint32_t *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; i < n; i++) x[i] = value;
    return x;
}

static uint32_t *sign(size_t n, const uint64_t *gram, size_t n_grams, uint64_t seed, uint32_t before)
{
    uint32_t *signature = filled(n, before);
    sign_set(signature, n, gram, n_grams, seed);
    return signature;
}

// The share of numbers that are equal, over 8 seeds of 512 permutations, of sets of `size` grams of which the last
// `size - apart` of the one are the first of the other.
static double agreement(uint64_t topic, size_t size, size_t apart)
{
    size_t equal = 0;
    for (uint64_t seed = 0; seed < 8; seed++) {
        uint32_t *a = sign(512, grams(topic, 0, size), size, seed, 1);
        uint32_t *b = sign(512, grams(topic, apart, size), size, seed, 2);
        for (size_t k = 0; k < 512; k++) equal += a[k] == b[k];
        free(a), free(b);
    }
    return (double)equal / (8 * 512);
}

// The pairs must be those that agree in a band, found here by comparing all of them.
static void expect_pairs(const char *what, const uint32_t *signature, size_t n, size_t bands, size_t rows)
{
    size_t most = n * (n - 1) / 2, width = bands * rows;
    size_t(*pair)[2] = malloc(most * sizeof *pair + 1);
    char *found = calloc(n * n + 1, 1);
    size_t count = find_candidates(pair, signature, n, bands, rows);
    expect(count <= most, "%s: %zu pairs of %zu documents", what, count, n);
    for (size_t i = 0; i < count; i++) {
        size_t a = pair[i][0], b = pair[i][1];
        expect(a < b && b < n, "%s, pair %zu: (%zu, %zu), expected the smaller number first", what, i, a, b);
        expect(!found[a * n + b], "%s: the pair (%zu, %zu) is there twice; it agrees in several bands", what, a, b);
        found[a * n + b] = 1;
    }
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            bool agree = false, crossed = false;
            size_t single = 0;
            for (size_t i = 0; i < bands; i++)
                for (size_t j = 0; j < bands; j++) {
                    const uint32_t *x = signature + a * width + i * rows, *y = signature + b * width + j * rows;
                    bool equal = !memcmp(x, y, rows * sizeof *x);
                    if (i == j) agree |= equal;
                    else crossed |= equal;
                }
            for (size_t k = 0; k < width; k++) single += signature[a * width + k] == signature[b * width + k];
            bool got = found[a * n + b];
            expect(got || !agree, "%s: documents %zu and %zu agree in a band, but are no candidates", what, a, b);
            expect(!got || agree, "%s: documents %zu and %zu agree in no band, but are candidates%s", what, a, b,
                   crossed  ? ": a band of one equals another band of the other"
                   : single ? ": all rows of a band must agree, not one"
                            : "");
        }
}

TEST(estimate, 1, "the estimate is the share of equal numbers")
{
    uint32_t a[5] = {1, 2, 3, 4, 5}, b[5] = {1, 3, 2, 4, 9};
    double mistakes[] = {2, 0, 4 / 6.0, 0.8};
    expect_number("(1, 2, 3, 4, 5) and (1, 3, 2, 4, 9)", estimate_similarity(a, b, 5), 0.4, 1e-12,
                  (Mistake[]){{mistakes, "not divided by n"},
                              {mistakes + 1, "a division of integers"},
                              {mistakes + 2, "numbers are compared at their own places; this is no set"},
                              {mistakes + 3, "numbers are compared at their own places; this is no set"}}, 4);
}

TEST(of_a_set, 2, "a signature depends on the set and the seed alone")
{
    uint64_t *gram = grams(1, 0, 50), *other = malloc(100 * sizeof *other);
    for (size_t i = 0; i < 50; i++) other[i] = other[99 - i] = gram[49 - i];
    uint32_t *a = sign(64, gram, 50, 7, 1), *b = sign(64, other, 100, 7, 2), *empty = sign(64, gram, 0, 7, 3);
    uint32_t *seed = sign(64, gram, 50, 8, 4);
    size_t differ = 0, all_ones = 0, seeds = 0;
    for (size_t k = 0; k < 64; k++)
        differ += a[k] != b[k], all_ones += empty[k] == UINT32_MAX, seeds += a[k] == seed[k];
    expect(!differ, "the same grams backwards and twice: %zu of 64 numbers differ; expected equal ones", differ);
    expect(all_ones == 64, "no grams: expected 64 numbers UINT32_MAX, %zu of them are", all_ones);
    expect(seeds < 8, "seeds 7 and 8: %zu of 64 numbers are equal; expected other permutations", seeds);
}

// A share of 4,096 independent numbers misses its mean by more than 0.043 once in 10^6 times: 2 exp(-2 4096 0.043^2).
TEST(estimates, 2, "the agreement of signatures is the Jaccard similarity")
{
    size_t apart[] = {0, 20, 50, 100};
    for (int i = 0; i < 4; i++) {
        double want = (100.0 - (double)apart[i]) / (100.0 + (double)apart[i]);
        double got = agreement((uint64_t)i, 100, apart[i]);
        expect(fabs(got - want) < 0.043,
               "two sets of 100 grams with %zu in common, J %.3f: %.3f of 4096 numbers agree, expected %.3f +- 0.043%s",
               100 - apart[i], want, got, want,
               got > want ? ": do different grams get equal images?" : ": is it the smallest over all grams?");
    }
}

TEST(bands, 2, "candidates agree in all rows of one band")
{
    uint32_t signature[5 * 4] = {1, 2, 3, 4,  9, 9, 3, 4,  1, 7, 3, 8,  3, 4, 1, 2,  1, 2, 3, 4};
    expect_pairs("5 documents, 2 bands of 2 rows", signature, 5, 2, 2);
    expect_pairs("5 documents, 4 bands of 1 row", signature, 5, 4, 1);
    expect_pairs("5 documents, 1 band of 4 rows", signature, 5, 1, 4);
}

#include "../hidden.h"

TEST(many, 1, "candidates of 120 documents with small numbers, no document, equal documents")
{
    uint64_t state = 5;
    uint32_t *signature = filled(120 * 6, 0);
    for (size_t i = 0; i < 120 * 6; i++) signature[i] = (uint32_t)random_below(&state, 9);
    expect_pairs("120 documents, 3 bands of 2 rows", signature, 120, 3, 2);
    expect_pairs("no document", signature, 0, 3, 2);
    expect_pairs("one document", signature, 1, 3, 2);
    expect_pairs("20 equal documents", filled(120, 4), 20, 2, 3);
}

// Of each kind 40 pairs, 20 bands of 5 rows. J = 0.9: a pair is missed with probability (1 - 0.9^5)^20 = 2.5e-8.
// J = 0.2: a pair is found with 1 - (1 - 0.2^5)^20 = 0.0064, so of 40 more than 5 once in 10^6 times.
TEST(recall, 2, "with 20 bands of 5 rows, pairs of J = 0.9 are found and pairs of J = 0.2 are not")
{
    uint32_t *signature = filled(160 * 100, 0);
    for (size_t i = 0; i < 160; i++) { // documents 2i and 2i + 1 belong together
        size_t apart = i < 80 ? 5 : 60, size = i < 80 ? 95 : 90; // 90 / 100; 30 / 150
        uint64_t *gram = grams(100 + i / 2, i % 2 * apart, size);
        sign_set(signature + i * 100, 100, gram, size, 3);
        free(gram);
    }
    size_t(*pair)[2] = malloc(160 * 159 / 2 * sizeof *pair), n = find_candidates(pair, signature, 160, 20, 5);
    size_t found = 0, wrong = 0, other = 0;
    expect(n <= 160 * 159 / 2, "%zu pairs of 160 documents", n);
    for (size_t i = 0; i < n; i++) {
        bool together = pair[i][0] / 2 == pair[i][1] / 2;
        if (!together) other++;
        else if (pair[i][0] < 80) found++;
        else wrong++;
    }
    expect(found == 40, "of 40 pairs of J = 0.9, %zu were found; expected all", found);
    expect(wrong <= 5, "of 40 pairs of J = 0.2, %zu were found; expected 0 or 1", wrong);
    expect(other == 0, "%zu pairs of documents that have no gram in common were found", other);
}
