// bpe: byte pair encoding itself: learn merges from counted words, apply merges to one word; split: places inside a
// word that no merge crosses, so that its parts can be encoded one by one.
#ifndef BPE_H
#define BPE_H
#include <stddef.h>
#include <stdint.h>

#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

// Tokens `left` and `right`, side by side, become `result`. The index in the list is the merge's rank: the lowest rank
// is merged first.
typedef struct {
    int32_t left, right, result;
} BpeMerge;

// The pair (left and right in one number) beside its rank, so that a search touches one cache line.
typedef struct {
    uint64_t pair;
    uint32_t rank; // BPE_NO_RANK: empty
} BpeSlot;
#define BPE_NO_RANK UINT32_MAX
enum { BPE_LOW = 256 };

// A list of merges that can be searched by pair. `merge` belongs to the caller and must stay.
typedef struct {
    const BpeMerge *merge; // (n)
    size_t n;
    BpeSlot *slot; // (n_slots, a power of two)
    size_t n_slots;
    uint64_t *may; // (n_slots / 8) bits of 64: the pair may have a merge; most have none, and this is small enough to
                   // stay in the processor's nearest cache
    uint32_t *low; // (BPE_LOW, BPE_LOW) ranks of the pairs of ids below BPE_LOW: bytes, where every word begins
} Bpe;

Bpe bpe_index(const BpeMerge *merge, size_t n);
// The same in steps: an index of none, with room for n_max, and then the next merge of the list.
Bpe bpe_empty(const BpeMerge *merge, size_t n_max);
void bpe_add(Bpe *bpe);
void bpe_free(Bpe *bpe);

// Merges ids (n) in place until no pair of neighbours has a merge; returns how many ids are left. O(n log n).
size_t bpe_apply(const Bpe *bpe, int32_t *ids, size_t n);

// Learns up to n_merges merges from words (words.n), each seen count[i] times; byte_id (256) is the token of
// each byte and merge number i makes token first_id + i. Writes to merge (n_merges); returns how many there
// are: fewer when no pair is left that is seen least (1 or more) times.
size_t bpe_train(const Words *words, const int64_t *count, const int32_t *byte_id, int32_t first_id,
                 size_t n_merges, int64_t least, BpeMerge *merge);

// ---- split.c
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
