// seams: places inside a word that no merge crosses, so that its parts can be encoded one by one.
#ifndef SEAMS_H
#define SEAMS_H
#include <stddef.h>
#include <stdint.h>

#include "text/bpe.h"
#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint64_t *bit; // (n_bits / 64): which characters some merge may join
    size_t n_bits; // a power of two
} Seams;

// token: the bytes of each token; merge (n_merges): the bytes of a result are those of left and right.
Seams seams_make(const Words *token, const BpeMerge *merge, size_t n_merges);
// The first seam behind `at` (< n), or n. Any bytes. The ids of the word under bpe_apply are those of its parts, one
// behind the other.
size_t seams_next(const Seams *seams, const char *word, size_t n, size_t at);
void seams_free(Seams *seams);

#ifdef __cplusplus
}
#endif
#endif
