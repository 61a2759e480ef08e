// words: a hash table from byte strings to numbers 0, 1, 2, ... in order of first appearance.
//
// It counts the unique words of a training text, finds a token by its bytes, and caches words that are already encoded.
// All three need the same: strings of any bytes (no terminator), a dense number for each, so that the caller's data can
// be plain arrays, and no allocation per string.
//
// Invariant: slot[] is an open-addressing table with linear probing, at most half full, so that a search ends
// at the right word or at an empty slot; growing reinserts all words. Hash: XXH3, 64 bits; the low bits
// choose the slot. The high 32 bits are kept beside the word, so that nearly every comparison of different strings ends
// without reading them.
//
// Rejected: chained buckets (one more cache miss per lookup) and deletion (no caller needs it; a full cache is cleared
// as a whole).
#include "base/words.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"

void *words_grow(void *array, size_t *cap, size_t need, size_t element_bytes)
{
    if (need <= *cap) return array;
    size_t wide = *cap ? *cap : 16;
    while (wide < need) wide = wide > SIZE_MAX / 2 ? need : wide * 2;
    size_t n_bytes;
    if (__builtin_mul_overflow(wide, element_bytes, &n_bytes) || !(array = realloc(array, n_bytes)))
        die("memory: no room for %zu elements of %zu bytes (use less text at a time)", wide, element_bytes);
    *cap = wide;
    return array;
}

// ---- spelling

// Two lower bounds settle most pairs without the table of distances: the difference in length, and the number of characters that only one of the two has.
int words_distance(const char *a, const char *b, int limit)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1], n_a = (int)strlen(a), n = (int)strlen(b);
    uint64_t in_a = 0, in_b = 0; // characters, modulo 64
    if (n_a > LONGEST || n > LONGEST || abs(n_a - n) >= limit) return limit;
    for (int i = 0; i < n_a; i++) in_a |= 1ull << (a[i] & 63);
    for (int j = 0; j < n; j++) in_b |= 1ull << (b[j] & 63);
    if (__builtin_popcountll(in_a & ~in_b) >= limit || __builtin_popcountll(in_b & ~in_a) >= limit) return limit;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; i <= n_a; i++) {
        int diagonal = row[0], least = i;
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int replace = diagonal + (a[i - 1] != b[j - 1]);
            int insert = row[j - 1] + 1, delete = row[j] + 1;
            diagonal = row[j];
            row[j] = replace;
            if (insert < row[j]) row[j] = insert;
            if (delete < row[j]) row[j] = delete;
            if (row[j] < least) least = row[j];
        }
        if (least >= limit) return limit; // no later row has less
    }
    return row[n] < limit ? row[n] : limit;
}

// ---- the table

// The slot that holds the string, or the empty one where it belongs.
static size_t find_slot(const Words *words, const char *bytes, size_t n_bytes, uint64_t hash)
{
    size_t mask = words->n_slots - 1, s = hash & mask;
    for (;; s = (s + 1) & mask) {
        if (!words->slot[s]) return s;
        const Word *w = &words->word[words->slot[s] - 1];
        if (w->check == (uint32_t)(hash >> 32) && w->n == n_bytes &&
            memcmp(words->bytes + w->at, bytes, n_bytes) == 0)
            return s;
    }
}

static void resize(Words *words, size_t n_slots)
{
    free(words->slot);
    words->slot = calloc(n_slots, sizeof *words->slot);
    if (!words->slot) die("memory: no room for a table of %zu words (use less text at a time)", n_slots);
    words->n_slots = n_slots;
    for (size_t i = 0; i < words->n; i++) {
        const Word *w = &words->word[i];
        size_t s = XXH3_64bits(words->bytes + w->at, w->n) & (n_slots - 1);
        while (words->slot[s]) s = (s + 1) & (n_slots - 1);
        words->slot[s] = (uint32_t)i + 1;
    }
}

uint32_t words_add(Words *words, const char *bytes, size_t n_bytes)
{
    if (2 * (words->n + 1) > words->n_slots) resize(words, words->n_slots ? 2 * words->n_slots : 1024);
    uint64_t hash = XXH3_64bits(bytes, n_bytes);
    size_t s = find_slot(words, bytes, n_bytes, hash);
    if (words->slot[s]) return words->slot[s] - 1;
    if (words->n >= INT32_MAX || n_bytes > UINT32_MAX)
        die("words: more than %d different words, or one of 4 GiB (use less text at a time)", INT32_MAX);
    words->word = words_grow(words->word, &words->cap, words->n + 1, sizeof *words->word);
    words->bytes = words_grow(words->bytes, &words->cap_bytes, words->n_bytes + n_bytes + 1, 1);
    words->word[words->n] = (Word){words->n_bytes, (uint32_t)n_bytes, (uint32_t)(hash >> 32)};
    if (n_bytes) memcpy(words->bytes + words->n_bytes, bytes, n_bytes);
    words->n_bytes += n_bytes;
    words->slot[s] = (uint32_t)++words->n;
    return words->slot[s] - 1;
}

int64_t words_find_hashed(const Words *words, const char *bytes, size_t n_bytes, uint64_t hash)
{
    if (!words->n) return -1;
    return (int64_t)words->slot[find_slot(words, bytes, n_bytes, hash)] - 1;
}

int64_t words_find(const Words *words, const char *bytes, size_t n_bytes)
{
    return words_find_hashed(words, bytes, n_bytes, XXH3_64bits(bytes, n_bytes));
}

uint64_t words_prefetch(const Words *words, const char *bytes, size_t n_bytes)
{
    uint64_t hash = XXH3_64bits(bytes, n_bytes);
    if (words->n) __builtin_prefetch(&words->slot[hash & (words->n_slots - 1)]);
    return hash;
}

void words_clear(Words *words)
{
    words->n = words->n_bytes = 0;
    if (words->slot) memset(words->slot, 0, words->n_slots * sizeof *words->slot);
}

void words_free(Words *words)
{
    free(words->word);
    free(words->bytes);
    free(words->slot);
    *words = (Words){0};
}

// ---- characters of UTF-8: where they begin and end in bytes that may be ill-formed
//
// Invariant: the pieces that words_utf8_length cuts tile the bytes, and every piece is either one well-formed character
// or one maximal subpart, so that replacing each of the latter by U+FFFD gives what a browser or Python's
// bytes.decode("utf-8", "replace") gives.
//
// Well-formed (Unicode, table 3-7): the lead byte fixes the length and the range of the second byte,
//
//     00..7F | C2..DF T | E0 A0..BF T | E1..EC,EE,EF T T | ED 80..9F T | F0 90..BF T T | F1..F3 T T T | F4 80..8F T T
//
// with T = 80..BF. Excluded are overlong forms (C0, C1, E0 80.., F0 80..), surrogates (ED A0..), and codes above
// U+10FFFF. A maximal subpart is the longest prefix of such a row that stands there, or else one byte.
//
// Rejected: mbrtowc (follows the locale, accepts different sets on different systems) and one U+FFFD per byte
// (three for a cut-off euro sign, where every decoder in use gives one).

size_t words_utf8_length(const char *s, size_t n, bool *valid)
{
    const uint8_t *u = (const uint8_t *)s;
    uint8_t lead = u[0], low = 0x80, high = 0xBF; // the range of the second byte
    if ((*valid = lead < 0x80)) return 1;
    size_t length = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
    if (length == 0) return 1;
    if (lead == 0xE0) low = 0xA0;  // below: overlong
    if (lead == 0xED) high = 0x9F; // above: surrogates
    if (lead == 0xF0) low = 0x90;  // below: overlong
    if (lead == 0xF4) high = 0x8F; // above: beyond U+10FFFF
    for (size_t i = 1; i < length; i++) {
        if (i >= n || u[i] < low || u[i] > high) return i;
        low = 0x80, high = 0xBF;
    }
    *valid = true;
    return length;
}

size_t words_utf8_invalid(const char *s, size_t n, size_t at, size_t *length)
{
    while (at < n) {
        uint64_t eight;
        if (n - at >= 8) {
            memcpy(&eight, s + at, 8);
            if (!(eight & 0x8080808080808080ull)) { // eight characters of ASCII
                at += 8;
                continue;
            }
        }
        bool valid;
        *length = words_utf8_length(s + at, n - at, &valid);
        if (!valid) return at;
        at += *length;
    }
    return n;
}

uint32_t words_utf8_code(const char *s, size_t length)
{
    const uint8_t *u = (const uint8_t *)s;
    if (length == 1) return u[0];
    uint32_t code = u[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) code = code << 6 | (u[i] & 0x3F);
    return code;
}

size_t words_utf8_border(const char *s, size_t n, size_t at)
{
    while (at > 0 && at < n && ((uint8_t)s[at] & 0xC0) == 0x80) at--;
    return at;
}

bool words_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(const char *s, size_t length)
{
    uint32_t code = words_utf8_code(s, length);
    return words_is_space(code) || (code >= 0x1C && code <= 0x1F);
}

const char *words_strip(const char *s, size_t *n)
{
    bool valid;
    while (*n) {
        size_t last = words_utf8_border(s, *n, *n - 1);
        if (!is_stripped(s + last, *n - last)) break;
        *n = last;
    }
    while (*n) {
        size_t first = words_utf8_length(s, *n, &valid);
        if (!is_stripped(s, first)) break;
        s += first, *n -= first;
    }
    return s;
}

char *words_utf8_copy(const char *text)
{
    size_t n = strlen(text), length = 0, o = 0;
    char *copy = malloc(3 * n + 1);
    if (!copy) die("memory: no room for a text of %zu bytes", n);
    for (size_t at = 0; at < n; at += length) {
        size_t bad = words_utf8_invalid(text, n, at, &length);
        memcpy(copy + o, text + at, bad - at);
        o += bad - at;
        if ((at = bad) == n) break;
        memcpy(copy + o, "\xEF\xBF\xBD", 3);
        o += 3;
    }
    copy[o] = 0;
    return copy;
}
