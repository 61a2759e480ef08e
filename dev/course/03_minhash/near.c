#include "near.h"

#include <stdlib.h>
#include <string.h>

// A well-mixed function of x: neighbouring numbers give unrelated ones (Steele et al., OOPSLA 2014). A bijection.
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9, x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

void sign_set(uint32_t *signature, size_t n, const uint64_t *gram, size_t n_grams, uint64_t seed)
{
    //[
    //+ (void)signature, (void)n, (void)gram, (void)n_grams, (void)seed, (void)mix; // write this
    for (size_t k = 0; k < n; k++) {
        uint64_t choice = mix(mix(seed) + k);
        signature[k] = UINT32_MAX;
        for (size_t i = 0; i < n_grams; i++) {
            uint32_t image = (uint32_t)(mix(gram[i] ^ choice) >> 32);
            if (image < signature[k]) signature[k] = image;
        }
    }
    //]
}

double estimate_similarity(const uint32_t *a, const uint32_t *b, size_t n)
{
    //[
    //+ (void)a, (void)b, (void)n; // and this
    //+ return -1;
    size_t equal = 0;
    for (size_t k = 0; k < n; k++) equal += a[k] == b[k];
    return (double)equal / (double)n;
    //]
}

typedef struct {
    uint64_t key;
    size_t doc;
} Entry;

static int by_key(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : x->doc < y->doc ? -1 : x->doc > y->doc;
}

size_t find_candidates(size_t (*pair)[2], const uint32_t *signature, size_t n_docs, size_t bands, size_t rows)
{
    //[
    //+ (void)pair, (void)signature, (void)n_docs, (void)bands, (void)rows, (void)by_key; // and this
    //+ return 0;
    size_t n = 0, width = bands * rows;
    Entry *entry = malloc(n_docs * sizeof *entry + 1);
    for (size_t b = 0; b < bands; b++) {
        for (size_t d = 0; d < n_docs; d++) {
            entry[d] = (Entry){b, d};
            for (size_t r = 0; r < rows; r++)
                entry[d].key = mix(entry[d].key) ^ signature[d * width + b * rows + r];
        }
        qsort(entry, n_docs, sizeof *entry, by_key);
        for (size_t i = 0; i < n_docs; i++)
            for (size_t j = i + 1; j < n_docs && entry[j].key == entry[i].key; j++) {
                const uint32_t *x = signature + entry[i].doc * width, *y = signature + entry[j].doc * width;
                size_t first = 0; // the first band in which they agree: the pair is written there alone
                while (memcmp(x + first * rows, y + first * rows, rows * sizeof *x)) first++;
                if (first == b) pair[n][0] = entry[i].doc, pair[n++][1] = entry[j].doc;
            }
    }
    free(entry);
    return n;
    //]
}
