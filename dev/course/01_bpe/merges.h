// merges: byte pair encoding. Learn a list of merges from counted words, and apply the list to a word.
//
// A token is a number: 0 to 255 are the bytes, and 256 + i is what merge i makes of its two tokens. Words are
// 0-terminated strings of bytes 1 to 255 (not only ASCII).
#ifndef MERGES_H
#define MERGES_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
    int32_t left, right;
} Merge;

// Writes up to n_merges merges to merge, and returns how many. The n_words words are different; word[i] was seen
// count[i] times (1 or more).
// Each round chooses the pair of neighbouring tokens with the largest sum over the words of
//     count of the word x places in the word where the pair stands        (overlapping places too: "aaa" has two)
// Of equal sums the smaller left token wins; of equal left tokens the smaller right one. Then the pair is replaced by
// the new token everywhere, in each word from left to right ("aaa" becomes "aa" "a"). It ends early when no pair has a
// sum of at least 2.
size_t learn_merges(Merge *merge, size_t n_merges, const char *const *word, const int64_t *count, size_t n_words);

// Writes the tokens of a word to id, which has room for as many as the word has bytes, and returns how many. Of all
// neighbours in the word that are a merge's pair, the merge that is first in the list is applied, the leftmost place
// first; and again, until there is none. The tokens of merge i are below 256 + i.
size_t encode_word(int32_t *id, const char *word, const Merge *merge, size_t n_merges);
#endif
