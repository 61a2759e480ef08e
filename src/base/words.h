// words: a table of byte strings, numbered in the order of their first appearance.
#ifndef WORDS_H
#define WORDS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    size_t at;      // where the string starts in Words.bytes
    uint32_t n;     // its bytes
    uint32_t check; // upper half of its hash: settles most comparisons without touching the bytes
} Word;

typedef struct {
    Word *word; // (n): the caller keeps what belongs to word i in arrays of its own
    size_t n, cap;
    char *bytes; // all strings back to back
    size_t n_bytes, cap_bytes;
    uint32_t *slot; // (n_slots, a power of two): 0 empty, else 1 + index into word
    size_t n_slots;
} Words; // starts as {0}

// The number of the string; it is new when the result is the n from before the call. Dies above 2^31 words.
uint32_t words_add(Words *words, const char *bytes, size_t n_bytes);
// The number of the string, -1 when it is not there.
int64_t words_find(const Words *words, const char *bytes, size_t n_bytes);
// Begins to fetch what words_find reads first.
uint64_t words_prefetch(const Words *words, const char *bytes, size_t n_bytes);
// words_find with the hash that words_prefetch returned.
int64_t words_find_hashed(const Words *words, const char *bytes, size_t n_bytes, uint64_t hash);
void words_clear(Words *words); // forgets the strings, keeps the memory
void words_free(Words *words);

// The growth rule of every growable array here: `array` moved to room for at least `need` elements, *cap
// doubled as needed. Dies when there is no memory.
void *words_grow(void *array, size_t *cap, size_t need, size_t element_bytes);

#ifdef __cplusplus
}
#endif
#endif
