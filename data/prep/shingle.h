// shingle: a text as the set of its n-grams of words.
//
// The normalized text: A to Z become a to z, each run of white space (blank, \t \n \v \f \r) becomes one blank, and
// there is none at the ends. Each character of a script that is written without spaces (Han, Kana, Thai, Lao, Myanmar,
// Khmer) stands between two blanks. Everything else stays as it is, byte for byte: punctuation, and all beyond ASCII. A
// word is what is between two blanks. An n-gram is n words and the blanks between them; the 64-bit XXH3 of these bytes
// stands for it.
#ifndef SHINGLE_H
#define SHINGLE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char *text; // (n_text) normalized
    size_t n_text, cap_text;
    char *spaced; // a text with blanks around the characters of scripts without spaces
    size_t cap_spaced;
    size_t *word; // (n_words + 1) where each word begins; word i ends at word[i + 1] - 1
    size_t n_words, cap_words;
    uint64_t *gram; // (n_grams)
    size_t n_grams, cap_grams;
} Shingles; // starts as {0}; its memory is used again by the next text

// text and word of s. Any bytes will do.
void shingle_normalize(Shingles *s, const char *text, size_t n_bytes);
// gram of s, from its words, in the order of the text: n_words - n + 1 of them. A text of fewer words has one, all of
// it; a text without words has none. n: 1 or more.
void shingle_hash(Shingles *s, size_t n);
// Makes gram a set: ascending, each once.
void shingle_set(Shingles *s);
// The two above after shingle_normalize.
void shingle_make(Shingles *s, const char *text, size_t n_bytes, size_t n);
void shingle_free(Shingles *s);

// |A and B| / |A or B| of two sets (ascending, each once). Two empty sets: 1.
double shingle_jaccard(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b);

#ifdef __cplusplus
}
#endif
#endif
