// split: places inside a word that no merge crosses, so that its parts can be encoded one by one.
#ifndef SPLIT_H
#define SPLIT_H
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
} Splits;

// token: the bytes of each token; merge (n_merges): the bytes of a result are those of left and right.
Splits split_make(const Words *token, const BpeMerge *merge, size_t n_merges);
// The first split point after `at` (< n), or n. Any bytes. The ids that bpe_apply gives for the word are those of its
// parts, one after another.
size_t split_next(const Splits *splits, const char *word, size_t n, size_t at);
void split_free(Splits *splits);

#ifdef __cplusplus
}
#endif
#endif
