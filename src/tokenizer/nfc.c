// nfc: Unicode's normalization form C (Unicode Standard Annex 15), with the tables of utf8proc.
//
// Three steps: every character is decomposed, é to e and an accent; marks after a character are sorted by their
// combining class (ccc; the order among equals stays); then a character and a mark, or two parts of a Korean syllable,
// are composed where there is a character for both. Some characters are decomposed and never composed again.
//
// Most text is in form C already. A character is called inert here when its class is 0, it is its own form C, and it is
// never the second of two that compose. Then
//
//   a text of inert characters is its own form C, and NFC(x y) = NFC(x) NFC(y) where y begins with an inert character
//
// So a text is searched for the first character that is not inert, and only from the inert one before it up to the next
// inert one is it normalized. The table of inert characters, a bit each, is made from the decompositions: the second
// and later characters of each are not inert, which includes all that compose.
//
// Rejected: utf8proc_map for the whole text. It sorts marks by exchanging neighbours, n^2 steps for n marks, so a
// megabyte of accents would take minutes; and bytes that are not UTF-8 are an error for it.
#include "tokenizer/pretoken.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/words.h"

enum { POINTS = 0x110000, MOST = 32, MARK_BITS = 21 }; // MOST: no character decomposes to more

struct Nfc {
    uint64_t inert[POINTS / 64];
};

static bool is_inert(const Nfc *nfc, int32_t c)
{
    return nfc->inert[c / 64] >> c % 64 & 1;
}

static int class_of(int32_t c)
{
    return utf8proc_get_property(c)->combining_class;
}

static size_t decompose(int32_t c, int32_t out[MOST])
{
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, out, MOST, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
    check(n > 0 && n <= MOST);
    return (size_t)n;
}

static size_t compose(int32_t *point, size_t n)
{
    utf8proc_ssize_t k = utf8proc_normalize_utf32(point, (utf8proc_ssize_t)n, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    check(k > 0 && (size_t)k <= n);
    return (size_t)k;
}

Nfc *nfc_new(void)
{
    int32_t parts[MOST];
    Nfc *nfc = malloc(sizeof *nfc);
    if (!nfc) die("memory: no room for a table of characters");
    for (size_t i = 0; i < POINTS / 64; i++) nfc->inert[i] = ~(uint64_t)0;
#define NOT_INERT(c) (nfc->inert[(c) / 64] &= ~((uint64_t)1 << (c) % 64))
    for (int32_t c = 0; c < POINTS; c++) {
        if (class_of(c)) NOT_INERT(c);
        size_t n = decompose(c, parts);
        if (n == 1 && parts[0] == c) continue;
        for (size_t i = 1; i < n; i++) NOT_INERT(parts[i]);
        if (compose(parts, n) != 1 || parts[0] != c) NOT_INERT(c);
    }
    return nfc;
}

void nfc_free(Nfc *nfc)
{
    free(nfc);
}

void nfc_free_room(NfcRoom *room)
{
    free(room->bytes);
    free(room->point);
    free(room->mark);
    *room = (NfcRoom){0};
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

// Sorts each run of marks among n characters by class, then by place.
static void sort_marks(NfcRoom *room, size_t n)
{
    for (size_t from = 0, k; from < n; from += k + 1) {
        bool sorted = true;
        for (k = 0; from + k < n && class_of(room->point[from + k]); k++)
            sorted &= !k || class_of(room->point[from + k - 1]) <= class_of(room->point[from + k]);
        if (sorted) continue;
        room->mark = words_grow(room->mark, &room->cap_marks, k, sizeof *room->mark);
        for (size_t i = 0; i < k; i++) {
            int32_t c = room->point[from + i];
            room->mark[i] = (uint64_t)class_of(c) << 56 | (uint64_t)i << MARK_BITS | (uint64_t)c;
        }
        qsort(room->mark, k, sizeof *room->mark, by_value);
        for (size_t i = 0; i < k; i++) room->point[from + i] = (int32_t)(room->mark[i] & ((1 << MARK_BITS) - 1));
    }
}

// Appends the form C of n bytes of UTF-8 to room->bytes, which holds `at`; returns how many it holds then.
static size_t put_normal(NfcRoom *room, size_t at, const char *text, size_t n)
{
    size_t k = 0;
    int32_t c;
    for (size_t i = 0; i < n;) {
        i += (size_t)utf8proc_iterate((const uint8_t *)text + i, (utf8proc_ssize_t)(n - i), &c);
        room->point = words_grow(room->point, &room->cap_points, k + MOST, sizeof *room->point);
        k += decompose(c, room->point + k);
    }
    sort_marks(room, k);
    k = compose(room->point, k);
    room->bytes = words_grow(room->bytes, &room->cap_bytes, at + 4 * k, 1);
    for (size_t i = 0; i < k; i++) at += (size_t)utf8proc_encode_char(room->point[i], (uint8_t *)room->bytes + at);
    return at;
}

// The bytes of the character at text, and whether it is inert, as ASCII is and bytes that are not UTF-8 (not *valid).
static bool look(const Nfc *nfc, const char *text, size_t n, size_t *length, bool *valid)
{
    int32_t c;
    *valid = true;
    *length = 1;
    if ((uint8_t)*text < 128) return true;
    *length = words_utf8_length(text, n, valid);
    if (!*valid) return true;
    utf8proc_iterate((const uint8_t *)text, (utf8proc_ssize_t)*length, &c);
    return is_inert(nfc, c);
}

const char *nfc_normalize(const Nfc *nfc, NfcRoom *room, const char *text, size_t *n)
{
    size_t out = 0, done = 0, base = 0; // base: where the last inert character begins
    bool valid;
    for (size_t at = 0, length; at < *n;) {
        if (look(nfc, text + at, *n - at, &length, &valid)) {
            base = valid ? at : at + length;
            at += length;
            continue;
        }
        for (at += length; at < *n && !look(nfc, text + at, *n - at, &length, &valid);) at += length;
        room->bytes = words_grow(room->bytes, &room->cap_bytes, out + base - done + 1, 1);
        memcpy(room->bytes + out, text + done, base - done);
        out = put_normal(room, out + base - done, text + base, at - base);
        done = base = at;
    }
    if (!done) return text;
    room->bytes = words_grow(room->bytes, &room->cap_bytes, out + *n - done, 1);
    memcpy(room->bytes + out, text + done, *n - done);
    *n = out + *n - done;
    return room->bytes;
}
