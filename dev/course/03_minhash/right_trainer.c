// The trainer's own permutations, a x + b modulo 2^32, and its keys of bands.
#include "near.h"

#include "data/prep/minhash.h"

#include <stdlib.h>

void sign_set(uint32_t *signature, size_t n, const uint64_t *gram, size_t n_grams, uint64_t seed)
{
    MinHash m = minhash_make(n, seed);
    minhash_signature(&m, gram, n_grams, signature);
}

double estimate_similarity(const uint32_t *a, const uint32_t *b, size_t n)
{
    size_t equal = 0;
    for (size_t k = 0; k < n; k++) equal += a[k] == b[k];
    return (double)equal / (double)n;
}

size_t find_candidates(size_t (*pair)[2], const uint32_t *signature, size_t n_docs, size_t bands, size_t rows)
{
    size_t n = 0;
    uint64_t *key = malloc(n_docs * bands * sizeof *key + 1);
    for (size_t d = 0; d < n_docs; d++)
        minhash_keys((MinHashBands){bands, rows}, signature + d * bands * rows, key + d * bands);
    for (size_t a = 0; a < n_docs; a++)
        for (size_t b = a + 1; b < n_docs; b++)
            for (size_t i = 0; i < bands; i++)
                if (key[a * bands + i] == key[b * bands + i]) {
                    pair[n][0] = a, pair[n++][1] = b;
                    break;
                }
    free(key);
    return n;
}
