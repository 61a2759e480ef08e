// split: finds the positions in a word that no merge can cross (split points).
//
// In languages without spaces a word is a whole clause. It occurs once, so no cache has it, and merging it takes long.
// But for most neighbours in it (two rare ideographs, for example) the vocabulary has no merge. There the word splits
// into parts, and the parts (a character, a syllable) occur often.
//
// Invariant: the ids of a word are those of its parts. The first merge (l, r) that crosses a position joins a token l
// that ends there with a token r that begins there. So with a the character before the position and f the one after it,
//
//   l ends with a, or is the last 1 to 3 bytes of a        r begins with f, or is the first 1 to 3 bytes of f
//
// and if the list has no merge of that kind, none crosses. Each side is then merged as if it stood alone, because BPE
// looks only at neighbours and ranks. The characters that a merge joins are stored as a pair (a, f). For a part of a
// character only its byte next to the position is stored; it stands for all characters that have that byte. A pair is a
// bit at its hash: when two pairs share a bit, a split point may be missed, but none is wrong.
//
// Only positions between well-formed characters are considered: after a lead byte and the continuation bytes that it
// announces, and before another such sequence. Overlong forms and surrogates do not matter: bytes are compared.
//
// Rejected: pairs of bytes instead of characters (in Thai some merge nearly always joins the last byte of a character
// to the first of the next), and a search for the merge itself, which is the work to be avoided.
#include "tokenizer/bpe.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/check.h"

enum { BITS_A_MERGE = 16, LEAST_BITS = 1 << 12, NONE = 0 }; // NONE: not a code that may stand beside a split point

// Bytes of a character by its first one; 0: a continuation byte, or none that begins a character.
static inline size_t length_of(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 0;
}

static inline bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

// The code of a whole character is its bytes. The code of a part is FF FF FF and the byte beside the position; no
// character begins with FF.
static inline uint32_t part_code(uint8_t byte)
{
    return 0xFFFFFF00u | byte;
}

// The character at s (n > 0 bytes), its length in *length; NONE, and one byte, where it is not well-formed. (NUL is
// NONE too, and never beside a split point.)
static inline uint32_t char_at(const uint8_t *s, size_t n, size_t *length)
{
    size_t need = length_of(s[0]);
    uint32_t code = s[0];
    *length = 1;
    if (need == 0 || need > n) return NONE;
    for (size_t i = 1; i < need; i++) {
        if (!continues(s[i])) return NONE;
        code = code << 8 | s[i];
    }
    *length = need;
    return code;
}

static inline size_t bit_of(const Splits *splits, uint32_t before, uint32_t behind)
{
    uint64_t h = ((uint64_t)before << 32 | behind) * 0x9E3779B97F4A7C15ull;
    return (h ^ h >> 32) & (splits->n_bits - 1);
}

static inline bool has(const Splits *splits, uint32_t before, uint32_t behind)
{
    size_t bit = bit_of(splits, before, behind);
    return splits->bit[bit / 64] >> bit % 64 & 1;
}

// ---- what the merges join
// The code of the character (or part of one) at the end of a token of n bytes; NONE: the token cannot end at a split
// point.
static uint32_t end_of(const uint8_t *s, size_t n)
{
    size_t k = 0; // continuation bytes at the end
    while (k < n && k < 4 && continues(s[n - 1 - k])) k++;
    if (k == n && k < 4) return part_code(s[n - 1]);
    size_t length;
    if (k == 4 || length_of(s[n - 1 - k]) != k + 1) return NONE;
    return char_at(s + n - 1 - k, k + 1, &length);
}

static uint32_t begin_of(const uint8_t *s, size_t n)
{
    size_t length;
    return n < length_of(s[0]) ? part_code(s[0]) : char_at(s, n, &length);
}

Splits split_make(const Words *token, const BpeMerge *merge, size_t n_merges)
{
    Splits splits = {.n_bits = LEAST_BITS};
    while (splits.n_bits < n_merges * BITS_A_MERGE) splits.n_bits *= 2;
    splits.bit = calloc(splits.n_bits / 64, sizeof *splits.bit);
    if (!splits.bit) die("memory: no room for %zu merges", n_merges);
    for (size_t i = 0; i < n_merges; i++) {
        Word l = token->word[merge[i].left], r = token->word[merge[i].right];
        uint32_t before = end_of((const uint8_t *)token->bytes + l.at, l.n);
        uint32_t behind = begin_of((const uint8_t *)token->bytes + r.at, r.n);
        if (before == NONE || behind == NONE) continue;
        size_t bit = bit_of(&splits, before, behind);
        splits.bit[bit / 64] |= 1ull << bit % 64;
    }
    return splits;
}

void split_free(Splits *splits)
{
    free(splits->bit);
    *splits = (Splits){0};
}

// ---- looking for a split point
// Whether a merge may join a token that ends with the character `before` to one that begins with `behind`.
static inline bool may_join(const Splits *splits, uint32_t before, uint32_t behind, uint8_t lead)
{
    uint32_t tail = part_code((uint8_t)before), head = part_code(lead);
    return has(splits, before, behind) || has(splits, tail, behind) || has(splits, before, head) ||
           has(splits, tail, head);
}

size_t split_next(const Splits *splits, const char *word, size_t n, size_t at)
{
    const uint8_t *s = (const uint8_t *)word;
    size_t length;
    uint32_t before = char_at(s + at, n - at, &length), behind;
    for (at += length; at < n; at += length, before = behind) {
        behind = char_at(s + at, n - at, &length);
        if (before != NONE && behind != NONE && !may_join(splits, before, behind, s[at])) return at;
    }
    return n;
}
