// words: a table that numbers byte strings in the order of their first appearance, and functions on UTF-8 characters.
#ifndef WORDS_H
#define WORDS_H
#include <stdbool.h>
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

static inline const char *words_s(uint64_t n) // the end of a noun that n stands before
{
    return n == 1 ? "" : "s";
}

// The number of the string; it is new when the result is the n from before the call. Dies above 2^31 words.
uint32_t words_add(Words *words, const char *bytes, size_t n_bytes);
// The number of the string, -1 when it is not there.
int64_t words_find(const Words *words, const char *bytes, size_t n_bytes);
// Prefetches what words_find reads first; returns the hash.
uint64_t words_prefetch(const Words *words, const char *bytes, size_t n_bytes);
// words_find with the hash that words_prefetch returned.
int64_t words_find_hashed(const Words *words, const char *bytes, size_t n_bytes, uint64_t hash);
void words_clear(Words *words); // forgets the strings, keeps the memory
void words_free(Words *words);

// The growth rule of every growable array here: `array` moved to room for at least `need` elements, *cap
// doubled as needed. Dies when there is no memory.
void *words_grow(void *array, size_t *cap, size_t need, size_t element_bytes);

// Levenshtein distance: the fewest insertions, deletions and replacements that turn a into b; `limit` when they are
// that many or more, or a text is longer than 64 bytes.
int words_distance(const char *a, const char *b, int limit);

// ---- characters of UTF-8, and what is not one

// The bytes of the character at s (n > 0 bytes are there), or, with *valid false, of the maximal subpart of an
// ill-formed one: 1 to 3 bytes, as the Unicode Standard (section 3.9, U+FFFD substitution) and the W3C's decoders
// cut them.
size_t words_utf8_length(const char *s, size_t n, bool *valid);
// Where the first ill-formed sequence at or after `at` starts, and its *length; n when there is none.
size_t words_utf8_invalid(const char *s, size_t n, size_t at, size_t *length);
// The code point of the well-formed character of `length` bytes at s.
uint32_t words_utf8_code(const char *s, size_t length);
// The largest border between characters that is not above `at`; s (n) is well-formed, at <= n.
size_t words_utf8_border(const char *s, size_t n, size_t at);
// Unicode's property White_Space.
bool words_is_space(uint32_t code);
// The start of s (*n, well-formed) without white space at its ends, and its length: as Python's strip(), to which U+001C
// to U+001F are white space too.
const char *words_strip(const char *s, size_t *n);
// A copy of a 0-terminated text, a file's name for one, with U+FFFD for every ill-formed sequence; free() it.
char *words_utf8_copy(const char *text);

#ifdef __cplusplus
}
#endif
#endif
