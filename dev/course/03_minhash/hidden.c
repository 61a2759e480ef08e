#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
