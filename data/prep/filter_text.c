// filter_text: a document taken apart once, so that every rule is a loop over words or lines.
//
// Invariant: the words and lines are views into the text, in order, and all of them together with white space are
// the text. One pass, no allocation once the arrays have grown.
//
// Definitions, for all rules:
//   white space   Unicode's White_Space
//   word          a longest run of other characters; "don't," is one
//   letter        \p{L} or \p{M} of the installed PCRE2: the vowel signs of Hindi and Thai are marks, and a text in
//                 those languages would otherwise seem to be poor in letters
//   line          what stands between line ends (\n, \r\n), without white space around it; blank ones are none
//   paragraph     lines without a blank one between them
//   length        in code points
//
// Rejected: a pre-tokenizer's words (rules of the papers are in words between spaces), iswalpha (follows the locale),
// and one regular expression a rule (a pass over the text each, and backtracking to think about).
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/prep/filter_rules.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/words.h"

static size_t put_code(char *out, uint32_t c)
{
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xFF) | c);
    return n;
}

// All characters in a row, and where \p{L}\p{M} matches in it.
uint8_t *filter_text_letters(void)
{
    char *all = malloc(4 * FILTER_CODES);
    uint8_t *bit = calloc(FILTER_CODES / 8, 1);
    int error;
    PCRE2_SIZE where;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR) "[\\p{L}\\p{M}]++", PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                                     &error, &where, NULL);
    if (!all || !bit || !code) die("filter: no memory for the table of letters");
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
    pcre2_match_data *match = pcre2_match_data_create(1, NULL);
    if (!match) die("filter: no memory for the table of letters");
    // Planes 0 to 3 and 14: the others have no letters, and are left alone for the time it takes.
    const uint32_t from[] = {1, 0xE000, 0xE0000}, to[] = {0xD800, 0x40000, 0xE1000};
    for (int part = 0; part < 3; part++) {
        size_t n = 0, at = 0;
        for (uint32_t c = from[part]; c < to[part]; c++) n += put_code(all + n, c);
        uint32_t options = PCRE2_NO_UTF_CHECK;
        while (pcre2_match(code, (PCRE2_SPTR)all, n, at, options, match, NULL) > 0) {
            const PCRE2_SIZE *span = pcre2_get_ovector_pointer(match);
            for (at = span[0]; at < span[1];) {
                bool valid;
                size_t k = words_utf8_length(all + at, n - at, &valid);
                uint32_t c = words_utf8_code(all + at, k);
                bit[c / 8] |= (uint8_t)(1u << c % 8);
                at += k;
            }
        }
    }
    pcre2_match_data_free(match);
    pcre2_code_free(code);
    free(all);
    return bit;
}

static bool is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static void end_word(FilterDoc *d, FilterWord *w, size_t at)
{
    w->n = (uint32_t)(at - w->at);
    w->hash = XXH3_64bits(d->text + w->at, w->n);
    d->word = words_grow(d->word, &d->cap_words, d->n_words + 1, sizeof *d->word);
    d->word[d->n_words++] = *w;
    d->word_chars += w->chars;
    *w = (FilterWord){0};
}

static void end_line(FilterDoc *d, FilterLine *l, size_t end, uint32_t *paragraph)
{
    if (l->chars == 0) { // blank: the next line begins a paragraph
        if (d->n_lines && d->line[d->n_lines - 1].paragraph == *paragraph) ++*paragraph;
        return;
    }
    l->n = (uint32_t)(end - l->at);
    l->paragraph = *paragraph;
    l->hash = XXH3_64bits(d->text + l->at, l->n);
    d->line = words_grow(d->line, &d->cap_lines, d->n_lines + 1, sizeof *d->line);
    d->line[d->n_lines++] = *l;
}

void filter_text_split(FilterDoc *d, const char *text, size_t n)
{
    d->text = text;
    d->n = n;
    d->n_words = d->n_lines = d->chars = d->letters = d->word_chars = 0;
    FilterWord w = {0};
    FilterLine l = {0};
    uint32_t paragraph = 0, chars_in_line = 0;
    size_t end_of_text = 0; // of the line, white space at its end aside
    for (size_t at = 0, k; at < n; at += k) {
        bool valid;
        k = words_utf8_length(text + at, n - at, &valid);
        uint32_t c = valid ? words_utf8_code(text + at, k) : 0xFFFD;
        d->chars++;
        if (is_space(c)) {
            if (w.chars) end_word(d, &w, at);
            if (l.chars) chars_in_line++;
            if (c != '\n') continue;
            end_line(d, &l, end_of_text, &paragraph);
            l = (FilterLine){0};
            chars_in_line = 0;
            continue;
        }
        bool letter = d->letter[c / 8] >> c % 8 & 1;
        if (!w.chars) w.at = (uint32_t)at;
        if (!l.chars) l.at = (uint32_t)at;
        w.chars++;
        w.has_letter |= letter;
        d->letters += letter;
        l.chars = ++chars_in_line;
        end_of_text = at + k;
    }
    if (w.chars) end_word(d, &w, n);
    if (l.chars) end_line(d, &l, end_of_text, &paragraph);
}

void filter_text_free(FilterDoc *d)
{
    free(d->word);
    free(d->line);
    free(d->key);
    free(d->count);
    free(d->mark);
}

void filter_text_count_begin(FilterDoc *d, size_t n)
{
    size_t n_slots = 64;
    while (n_slots < 2 * n) n_slots *= 2;
    d->key = words_grow(d->key, &d->cap_keys, n_slots, sizeof *d->key);
    d->count = words_grow(d->count, &d->cap_counts, n_slots, sizeof *d->count);
    d->n_slots = n_slots;
    memset(d->count, 0, n_slots * sizeof *d->count);
}

uint32_t filter_text_count(FilterDoc *d, uint64_t key, uint32_t add)
{
    size_t mask = d->n_slots - 1, s = key & mask;
    while (d->count[s] && d->key[s] != key) s = (s + 1) & mask;
    if (add) d->key[s] = key;
    return d->count[s] += add;
}
