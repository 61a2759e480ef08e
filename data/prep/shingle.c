// shingle: normalization, n-grams of words, exact Jaccard. See shingle.h.
//
//     J(A, B) = |A and B| / |A or B|          A, B: the sets of n-grams of two texts (Broder 1997)
//
// n decides what counts as similar. One changed word inside a text changes n of its n-grams, so a text of W words
// with k changes far apart keeps J = (W - n + 1 - kn) / (W - n + 1 + kn): with n = 13 and W = 200, one change is 0.87
// and two are 0.76. Lee et al. (arXiv 2107.06499) use 5 words, GPT-3 (2005.14165) about 13.
//
// The invariant: a gram is a function of its bytes alone. So the same gram has the same hash in every document, run
// and machine, and another program gets the same hash from any implementation of XXH3.
//
// "Exact" is up to hash collisions: two different grams among N share 64 bits with probability N^2 / 2^65, which for
// two documents of half a million words together is below 1e-8.
//
// A text shorter than n words is one gram. It equals another only when it is the same text, so short texts are never
// called near-duplicates: they are too short to tell. Rejected: shorter n-grams for short texts (two thresholds in
// one), padding (all documents would share its grams); lower-casing and folding beyond ASCII (the tables change with
// each Unicode version, so that next year the result would differ); a rolling hash (saves nothing: words are short,
// and XXH3 of 13 of them takes as long as mixing a rolling one would).
#include "data/prep/shingle.h"

#include "base/check.h"
#include "base/words.h"
#include "data/prep/extsort.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL // one call a gram
#include <xxhash.h>

// Characters that are words, as BERT's tokenizer has those of Han, because the text has no spaces between words.
static bool is_word_alone(uint32_t c)
{
    return (c >= 0xE00 && c < 0xF00) || (c >= 0x1000 && c < 0x10A0) || (c >= 0x1780 && c < 0x1800) ||
           (c >= 0x3040 && c < 0x3100) || (c >= 0x3400 && c < 0xA000) || (c >= 0xF900 && c < 0xFB00) ||
           (c >= 0x20000 && c < 0x40000);
}

// Whether a byte is there that such a character may begin with. (0xE2 begins quotes and dashes, 0xEA to 0xEE Korean.)
static bool may_have_words_alone(const char *text, size_t n)
{
    unsigned char most = 0;
    for (size_t i = 0; i < n; i++) most = (unsigned char)text[i] > most ? (unsigned char)text[i] : most;
    for (size_t i = 0; i < n && most >= 0xE0; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0xE0 && c <= 0xF0 && c != 0xE2 && (c < 0xEA || c > 0xEE)) return true;
    }
    return false;
}

// The text (*n) with blanks around these characters; itself where it has none.
static const char *space_out(Shingles *s, const char *text, size_t *n)
{
    size_t k = 0;
    bool valid;
    if (!may_have_words_alone(text, *n)) return text;
    s->spaced = words_grow(s->spaced, &s->cap_spaced, *n / 3 * 5 + 3, 1);
    for (size_t i = 0, length; i < *n; i += length) {
        length = words_utf8_length(text + i, *n - i, &valid);
        bool alone = valid && is_word_alone(words_utf8_code(text + i, length));
        if (alone) s->spaced[k++] = ' ';
        memcpy(s->spaced + k, text + i, length);
        k += length;
        if (alone) s->spaced[k++] = ' ';
    }
    *n = k;
    return s->spaced;
}

// There is no branch on the text's content, because no processor can predict where words end. Each byte is
// written, and so is the place where a word would begin; then the two ends advance by 0 or 1.
void shingle_normalize(Shingles *s, const char *text, size_t n_bytes)
{
    text = space_out(s, text, &n_bytes);
    enum { CHUNK = 4096 }; // bytes between looks at the room for words, of which it has half as many
    s->text = words_grow(s->text, &s->cap_text, n_bytes + 1, 1);
    s->n_grams = 0;
    size_t n_words = 0, n_text = 0;
    unsigned after_blank = 1;
    unsigned char folded[256];
    for (int c = 0; c < 256; c++)
        folded[c] = (unsigned char)(c >= '\t' && c <= '\r' ? ' ' : c >= 'A' && c <= 'Z' ? c + 'a' - 'A' : c);
    for (size_t i = 0; i < n_bytes;) {
        s->word = words_grow(s->word, &s->cap_words, n_words + CHUNK / 2 + 3, sizeof *s->word);
        size_t end = n_bytes - i < CHUNK ? n_bytes : i + CHUNK, *word = s->word;
        char *to = s->text;
        for (; i < end; i++) {
            char c = (char)folded[(unsigned char)text[i]];
            unsigned blank = c == ' ';
            to[n_text] = c;
            word[n_words] = n_text;
            n_words += after_blank & ~blank;
            n_text += (after_blank & blank) ^ 1;
            after_blank = blank;
        }
    }
    s->n_words = n_words;
    s->n_text = 0;
    if (!n_words) return;
    if (!after_blank) s->text[n_text++] = ' ';
    s->word[n_words] = n_text; // the blank after the last word is not part of the text
    s->n_text = n_text - 1;
}

void shingle_hash(Shingles *s, size_t n)
{
    check(n > 0);
    s->n_grams = !s->n_words ? 0 : s->n_words < n ? 1 : s->n_words - n + 1;
    size_t length = s->n_words < n ? s->n_words : n;
    s->gram = words_grow(s->gram, &s->cap_grams, s->n_grams, sizeof *s->gram);
    for (size_t i = 0; i < s->n_grams; i++)
        s->gram[i] = XXH3_64bits(s->text + s->word[i], s->word[i + length] - 1 - s->word[i]);
}

void shingle_set(Shingles *s)
{
    size_t n = 0;
    extsort_sort(s->gram, s->n_grams, 1);
    for (size_t i = 0; i < s->n_grams; i++)
        if (!n || s->gram[n - 1] != s->gram[i]) s->gram[n++] = s->gram[i];
    s->n_grams = n;
}

void shingle_make(Shingles *s, const char *text, size_t n_bytes, size_t n)
{
    shingle_normalize(s, text, n_bytes);
    shingle_hash(s, n);
    shingle_set(s);
}

void shingle_free(Shingles *s)
{
    free(s->text);
    free(s->spaced);
    free(s->word);
    free(s->gram);
    *s = (Shingles){0};
}

double shingle_jaccard(const uint64_t *a, size_t n_a, const uint64_t *b, size_t n_b)
{
    size_t both = 0, i = 0, j = 0;
    if (!n_a && !n_b) return 1;
    while (i < n_a && j < n_b) {
        both += a[i] == b[j];
        size_t next = i + (a[i] <= b[j]);
        j += b[j] <= a[i];
        i = next;
    }
    return (double)both / (double)(n_a + n_b - both);
}
