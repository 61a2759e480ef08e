// pretoken_scan: GPT-2's and cl100k's expressions, written out as code.
//
// A regular expression tries its alternatives one after another at every place; all that these two ask of a character
// is one of four classes, letter (\p{L}), number (\p{N}), space (\s) or other, and a few characters by name. So a piece
// can be found by looking at each of its characters once:
//
//   gpt2    ' and s d m t ll ve re | a run of letters, of numbers or of others, with a space (U+0020) before or not
//   cl100k  the same ends in any case | letters, one character before that is no number and no line end |
//           1 to 3 numbers | others, a space before or not, line ends behind
//   both    a run of spaces: up to the end of the text whole; cl100k: up to its last line end where it has one;
//           without its last character, which belongs to the word behind; of one character: that one
//
// Invariant: the pieces are those of the expressions in pretoken.c under PCRE2, for any bytes at all. PCRE2 stays the
// definition: test_pretoken.c compares the two on random characters of all classes, valid UTF-8 or not, and custom
// expressions always take that way (a built-in one does when its text is given as custom).
//
// Classes of characters are PCRE2's own: the first character of a block of 256 asks it for the whole block, so that
// both ways always know the same Unicode version. Rejected: a table in the source, which would be another version's
// than the library's after its next update, and asking for all 1.1 million code points at the start.
//
// A byte sequence that is not UTF-8 is one character of class other (pretoken.c says why), 1 to 3 bytes long, so there
// is no need for the copy of the text that the expression is given.
//
// Letters fold to other letters: (?i:s) takes the long s, U+017F, too. The other letters of the endings have no such
// relative (the Kelvin sign is a k).
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretoken_scan.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"

enum { OTHER, LETTER, NUMBER, SPACE, PAGES = 0x110000 / 256 };

struct PretokenScan {
    bool cl100k;
    uint8_t *page[PAGES]; // classes of 256 code points each, NULL until one of them is met
    pcre2_code *code;     // its group 1, 2, 3 takes one character of that class
    pcre2_match_data *match;
};

// Writes a code point that is no surrogate; returns its bytes.
static size_t put_utf8(uint32_t code, uint8_t *u)
{
    if (code < 0x80) return u[0] = (uint8_t)code, 1;
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) u[i] = (uint8_t)(0x80 | (code & 0x3F));
    u[0] = (uint8_t)(0xF00 >> n | code); // n ones and a zero on top: the lower byte of 0xF00 >> n
    return n;
}

static const uint8_t *fill_page(PretokenScan *s, uint32_t number)
{
    uint8_t *page = s->page[number] = malloc(256);
    if (!page) die("memory: no room for a pre-tokenizer");
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t code = number * 256 + i;
        uint8_t u[4];
        page[i] = OTHER;
        if (code >= 0xD800 && code < 0xE000) continue; // surrogates are not characters
        int rc = pcre2_match(s->code, u, put_utf8(code, u), 0, PCRE2_NO_UTF_CHECK, s->match, NULL);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) die("pre-tokenizer: U+%04X: PCRE2's error %d", (unsigned)code, rc);
        if (rc > 1) page[i] = (uint8_t)(rc - 1); // one more than the highest group that took part
    }
    return page;
}

static inline uint8_t class_of(PretokenScan *s, uint32_t code)
{
    const uint8_t *page = s->page[code >> 8];
    if (__builtin_expect(!page, 0)) page = fill_page(s, code >> 8);
    return page[code & 255];
}

PretokenScan *pretoken_scan_new(const char *pattern)
{
    bool cl100k = strcmp(pattern, "cl100k") == 0;
    if (!cl100k && strcmp(pattern, "gpt2") != 0) return NULL;
    PretokenScan *s = calloc(1, sizeof *s);
    if (!s) die("memory: no room for a pre-tokenizer");
    int error;
    PCRE2_SIZE where;
    s->cl100k = cl100k;
    s->code = pcre2_compile((PCRE2_SPTR) "(\\p{L})|(\\p{N})|(\\p{White_Space})", PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, NULL);
    s->match = s->code ? pcre2_match_data_create_from_pattern(s->code, NULL) : NULL;
    if (!s->match) die("memory: no room for a pre-tokenizer");
    pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    fill_page(s, 0);
    return s;
}

void pretoken_scan_free(PretokenScan *s)
{
    if (!s) return;
    for (size_t i = 0; i < PAGES; i++) free(s->page[i]);
    pcre2_match_data_free(s->match);
    pcre2_code_free(s->code);
    free(s);
}

// Characters of 4 bytes, cut off at the end of the text, or not UTF-8.
static uint8_t rare_class(PretokenScan *s, const char *text, size_t left, size_t *length)
{
    bool valid;
    *length = utf8_length(text, left, &valid);
    return valid ? class_of(s, utf8_code(text, *length)) : OTHER;
}

// The class of the character at text (left > 0 bytes) and its length in bytes.
static inline uint8_t class_at(PretokenScan *s, const char *text, size_t left, size_t *length)
{
    const uint8_t *u = (const uint8_t *)text;
    *length = 1;
    if (u[0] < 0x80) return s->page[0][u[0]];
    if (left < 3 || (u[1] & 0xC0) != 0x80) return rare_class(s, text, left, length);
    if (u[0] >= 0xC2 && u[0] < 0xE0) {
        *length = 2;
        return class_of(s, (u[0] & 0x1Fu) << 6 | (u[1] & 0x3Fu));
    }
    uint32_t code = (u[0] & 0x0Fu) << 12 | (u[1] & 0x3Fu) << 6 | (u[2] & 0x3Fu);
    if ((u[0] & 0xF0) != 0xE0 || (u[2] & 0xC0) != 0x80 || code < 0x800 || (code >= 0xD800 && code < 0xE000))
        return rare_class(s, text, left, length);
    *length = 3;
    return class_of(s, code);
}

// Where the run of characters of one class that goes on at `at` ends.
static inline size_t run_end(PretokenScan *s, const char *text, size_t n, size_t at, uint8_t class)
{
    for (size_t length; at < n && class_at(s, text + at, n - at, &length) == class;) at += length;
    return at;
}

// The bytes of an ending behind an apostrophe: s d m t ll ve re; 0: none.
static size_t ending(const char *text, size_t left, bool any_case)
{
    const int lower = any_case ? 0x20 : 0;
    int a = left > 0 ? (uint8_t)text[0] : 0, b = left > 1 ? (uint8_t)text[1] : 0;
    if (any_case && a == 0xC5 && b == 0xBF) return 2; // the long s
    a |= a < 0x80 ? lower : 0, b |= b < 0x80 ? lower : 0;
    if (a == 's' || a == 'd' || a == 'm' || a == 't') return 1;
    return (a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e') ? 2 : 0;
}

// A run of spaces from `at`; `first`: the length of its first character.
static size_t spaces_end(PretokenScan *s, const char *text, size_t n, size_t at, size_t first)
{
    size_t end = at, last = at, behind_line = 0; // where the last character starts; behind the last line end
    for (size_t length = first; end < n; end += length) {
        if (end > at && class_at(s, text + end, n - end, &length) != SPACE) break;
        last = end;
        if (text[end] == '\n' || text[end] == '\r') behind_line = end + 1;
    }
    if (end == n) return end;
    if (s->cl100k && behind_line) return behind_line;
    return last > at ? last : end;
}

static size_t gpt2_end(PretokenScan *s, const char *text, size_t n, size_t at)
{
    size_t length, next;
    uint8_t class = class_at(s, text + at, n - at, &length), behind;
    if (class == SPACE) {
        if (text[at] != ' ' || at + 1 == n) return spaces_end(s, text, n, at, length);
        behind = class_at(s, text + at + 1, n - at - 1, &next);
        if (behind == SPACE) return spaces_end(s, text, n, at, length);
        return run_end(s, text, n, at + 1 + next, behind);
    }
    if (text[at] == '\'') {
        size_t more = ending(text + at + 1, n - at - 1, false);
        if (more) return at + 1 + more;
    }
    return run_end(s, text, n, at + length, class);
}

// Other signs up to `at`: more of them, and line ends.
static size_t signs_end(PretokenScan *s, const char *text, size_t n, size_t at)
{
    at = run_end(s, text, n, at, OTHER);
    while (at < n && (text[at] == '\n' || text[at] == '\r')) at++;
    return at;
}

static size_t cl100k_end(PretokenScan *s, const char *text, size_t n, size_t at)
{
    size_t length, next = 0;
    uint8_t class = class_at(s, text + at, n - at, &length);
    if (class == LETTER) return run_end(s, text, n, at + length, LETTER);
    if (class == NUMBER) {
        size_t end = at + length;
        for (int i = 1; i < 3 && end < n && class_at(s, text + end, n - end, &next) == NUMBER; i++) end += next;
        return end;
    }
    if (text[at] == '\'') {
        size_t more = ending(text + at + 1, n - at - 1, true);
        if (more) return at + 1 + more;
    }
    if (text[at] == '\n' || text[at] == '\r') return spaces_end(s, text, n, at, length);
    uint8_t behind = at + length < n ? class_at(s, text + at + length, n - at - length, &next) : SPACE;
    if (behind == LETTER) return run_end(s, text, n, at + length + next, LETTER);
    if (class == OTHER) return signs_end(s, text, n, at + length);
    if (text[at] == ' ' && behind == OTHER) return signs_end(s, text, n, at + 1 + next);
    return spaces_end(s, text, n, at, length);
}

size_t pretoken_scan_end(PretokenScan *s, const char *text, size_t n, size_t at)
{
    return s->cl100k ? cl100k_end(s, text, n, at) : gpt2_end(s, text, n, at);
}
