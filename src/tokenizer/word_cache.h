// word_cache: the ids of words that have been encoded before.
#ifndef WORD_CACHE_H
#define WORD_CACHE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"
#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { WORD_LINE_BYTES = 24, WORD_LINE_IDS = 9 };

// One line of the processor's cache: a short word and its ids.
typedef struct {
    uint64_t key[WORD_LINE_BYTES / 8]; // its bytes, padded with zeros
    uint16_t n, n_ids;                 // bytes (0: the line is empty) and ids
    int32_t id[WORD_LINE_IDS];         // (n_ids)
} WordLine;

typedef struct {
    WordLine *line; // (2^lines_log2), NULL until the first word comes: the front
    int lines_log2;
    Words words;    // all words here, those of the front too
    size_t *at;     // (words.n + 1): where their ids start in `ids`
    size_t cap_at;
    TokenIds ids;
} WordCache; // starts as {0}

// A word that is about to be looked up.
typedef struct {
    const char *bytes; // (n)
    size_t n;
    uint64_t key[WORD_LINE_BYTES / 8]; // of a short one
    size_t line;                       // where it would be in front
    uint64_t hash;                     // of one that is not there: for the table
    bool in_front;
} WordLook;

// Prefetches the line of the word (n bytes, n > 0), so that the latencies of several words overlap. n_readable >= n:
// the bytes that may be read from `word` on; it is faster where they are WORD_LINE_BYTES or more.
void word_cache_look(WordCache *cache, WordLook *look, const char *word, size_t n, size_t n_readable);
// Call it after word_cache_look of several words, and before word_cache_get: when the word is not in its line,
// prefetches its place in the table.
void word_cache_look_again(WordCache *cache, WordLook *look);
// Appends its ids to `out` when they are known.
bool word_cache_get(WordCache *cache, const WordLook *look, TokenIds *out);
// Stores the ids of a word that word_cache_get did not find; may drop others.
void word_cache_put(WordCache *cache, const WordLook *look, const int32_t *id, size_t n_ids);
void word_cache_free(WordCache *cache);

#ifdef __cplusplus
}
#endif
#endif
