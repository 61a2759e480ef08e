// pretoken: the pre-tokenizer, a regular expression that cuts text into words before BPE merges inside them.
//
// Invariant: the pieces of a text, joined, are the text, byte for byte. Text between two matches becomes a piece too.
//
// Five expressions are built in:
//   gpt2    contractions, letters, digits, other signs, each with at most one space before; runs of space
//   smollm  the same after every digit was cut out: SmolLM, StarCoder (in tokenizer.json [Digits; ByteLevel])
//   cl100k  GPT-4's: contractions in any case, numbers of at most 3 digits, line ends apart
//   llama3  the same but for blanks after a line end at the end of a text, which are a word of their own
//   qwen2   the same as llama3, with numbers of one digit
// Time: linear. UTF-8 is checked once per text and not at every match, and the built-in expressions backtrack by at
// most one run of space.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/pretoken.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/words.h"

// ---- the built-in expressions as code
//
// The built-in expressions are also written out as code, which is several times as fast (Scan). A regular
// expression tries its alternatives one after another at every position. These need only the class of a character,
// letter (\p{L}), number (\p{N}), space (\s) or other, and compare a few characters directly. So a piece is found by
// looking at each of its characters once:
//
//   gpt2    ' and s d m t ll ve re | a run of letters, of numbers or of others, with a space (U+0020) before or not
//   cl100k  the same ends in any case | letters, one character before that is no number and no line end |
//           1 to 3 numbers | others, a space before or not, line ends after
//   smollm  as gpt2, but a number is a piece of its own, without a space before
//   llama3, qwen2   as cl100k, qwen2 with 1 number
//   all     a run of spaces: up to the end of the text whole; cl100k: up to its last line end where it has one (llama3,
//           qwen2: this first); smollm: before a number whole; without its last character, which belongs to the word
//           after it; of one character: that one
//
// PCRE2 stays the definition. test_pretoken.c compares the two on random characters of all classes, valid UTF-8 or not.
// Custom expressions always use PCRE2 (also a built-in one whose text is given as custom). The classes of characters
// come from PCRE2: the first character of a block of 256 looks up the whole block, so both always have the same Unicode
// version. Rejected: a table in the source (of another version after the library's next update), and a lookup of all
// 1.1 million code points at the start. A byte sequence that is not UTF-8 is one character of class other, 1 to 3 bytes
// long, so the scan needs no copy of the text. Ignoring case, (?i:s) also matches the long s, U+017F; no other letter
// of the endings has such a variant (the Kelvin sign is a k).

enum { OTHER, LETTER, NUMBER, SPACE, PAGES = 0x110000 / 256 };

// What distinguishes the built-in expressions.
typedef struct {
    const char *name, *regex;
    bool cl100k;   // of its family, not of GPT-2's
    bool line_end; // a run of spaces stops after its last line end at the end of the text too
    int digits;    // the longest number; 0: any
} Rule;

#define CL100K_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
#define CL100K_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const Rule rules[] = {
    {.name = "gpt2",
     .regex = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"},
    {.name = "smollm", .digits = 1,
     .regex = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?![^\\s\\p{N}])|\\s+"},
    {.name = "cl100k", .cl100k = true, .digits = 3,
     .regex = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}"
              "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"},
    {.name = "llama3", .cl100k = true, .line_end = true, .digits = 3, .regex = CL100K_HEAD "{1,3}" CL100K_TAIL},
    {.name = "qwen2", .cl100k = true, .line_end = true, .digits = 1, .regex = CL100K_HEAD CL100K_TAIL},
};
enum { N_RULES = sizeof rules / sizeof *rules };

static const Rule *find_rule(const char *name)
{
    for (int i = 0; i < N_RULES; i++)
        if (strcmp(rules[i].name, name) == 0) return &rules[i];
    return NULL;
}

typedef struct {
    Rule rule;
    uint8_t *page[PAGES]; // classes of 256 code points each, NULL until one of them is met
    pcre2_code *code;     // its group 1, 2, 3 takes one character of that class
    pcre2_match_data *match;
} Scan;

// Writes a code point that is no surrogate; returns its bytes.
static size_t put_utf8(uint32_t code, uint8_t *u)
{
    if (code < 0x80) return u[0] = (uint8_t)code, 1;
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6) u[i] = (uint8_t)(0x80 | (code & 0x3F));
    u[0] = (uint8_t)(0xF00 >> n | code); // n ones and a zero on top: the lower byte of 0xF00 >> n
    return n;
}

static const uint8_t *fill_page(Scan *s, uint32_t number)
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

static inline uint8_t class_of(Scan *s, uint32_t code)
{
    const uint8_t *page = s->page[code >> 8];
    if (__builtin_expect(!page, 0)) page = fill_page(s, code >> 8);
    return page[code & 255];
}

static Scan *scan_new(const char *pattern)
{
    const Rule *rule = find_rule(pattern);
    if (!rule) return NULL;
    Scan *s = calloc(1, sizeof *s);
    if (!s) die("memory: no room for a pre-tokenizer");
    int error;
    PCRE2_SIZE where;
    s->rule = *rule;
    s->code = pcre2_compile((PCRE2_SPTR) "(\\p{L})|(\\p{N})|(\\p{White_Space})", PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, NULL);
    s->match = s->code ? pcre2_match_data_create_from_pattern(s->code, NULL) : NULL;
    if (!s->match) die("memory: no room for a pre-tokenizer");
    pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    fill_page(s, 0);
    return s;
}

static void scan_free(Scan *s)
{
    if (!s) return;
    for (size_t i = 0; i < PAGES; i++) free(s->page[i]);
    pcre2_match_data_free(s->match);
    pcre2_code_free(s->code);
    free(s);
}

// Characters of 4 bytes, cut off at the end of the text, or not UTF-8.
static uint8_t rare_class(Scan *s, const char *text, size_t left, size_t *length)
{
    bool valid;
    *length = words_utf8_length(text, left, &valid);
    return valid ? class_of(s, words_utf8_code(text, *length)) : OTHER;
}

// The class of the character at text (left > 0 bytes) and its length in bytes.
static inline uint8_t class_at(Scan *s, const char *text, size_t left, size_t *length)
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

// The end of the run of characters of one class that continues at `at`.
static inline size_t run_end(Scan *s, const char *text, size_t n, size_t at, uint8_t class)
{
    for (size_t length; at < n && class_at(s, text + at, n - at, &length) == class;) at += length;
    return at;
}

// The bytes of an ending after an apostrophe: s d m t ll ve re; 0: none.
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
static size_t spaces_end(Scan *s, const char *text, size_t n, size_t at, size_t first)
{
    size_t end = at, last = at, behind_line = 0; // start of the last character; end of the last line end
    uint8_t behind = SPACE;
    for (size_t length = first; end < n; end += length) {
        if (end > at && (behind = class_at(s, text + end, n - end, &length)) != SPACE) break;
        last = end;
        if (text[end] == '\n' || text[end] == '\r') behind_line = end + 1;
    }
    if (s->rule.cl100k && behind_line && (end < n || s->rule.line_end)) return behind_line;
    bool whole = end == n || (behind == NUMBER && !s->rule.cl100k && s->rule.digits);
    return whole || last == at ? end : last;
}

static size_t gpt2_end(Scan *s, const char *text, size_t n, size_t at)
{
    size_t length, next;
    uint8_t class = class_at(s, text + at, n - at, &length), behind;
    if (class == SPACE) {
        if (text[at] != ' ' || at + 1 == n) return spaces_end(s, text, n, at, length);
        behind = class_at(s, text + at + 1, n - at - 1, &next);
        if (behind == SPACE || (behind == NUMBER && s->rule.digits)) return spaces_end(s, text, n, at, length);
        return run_end(s, text, n, at + 1 + next, behind);
    }
    if (text[at] == '\'') {
        size_t more = ending(text + at + 1, n - at - 1, false);
        if (more) return at + 1 + more;
    }
    return class == NUMBER && s->rule.digits ? at + length : run_end(s, text, n, at + length, class);
}

// Other signs up to `at`: more of them, and line ends.
static size_t signs_end(Scan *s, const char *text, size_t n, size_t at)
{
    at = run_end(s, text, n, at, OTHER);
    while (at < n && (text[at] == '\n' || text[at] == '\r')) at++;
    return at;
}

static size_t cl100k_end(Scan *s, const char *text, size_t n, size_t at)
{
    size_t length, next = 0;
    uint8_t class = class_at(s, text + at, n - at, &length);
    if (class == LETTER) return run_end(s, text, n, at + length, LETTER);
    if (class == NUMBER) {
        at += length;
        for (int i = 1; i < s->rule.digits && at < n && class_at(s, text + at, n - at, &next) == NUMBER; i++)
            at += next;
        return at;
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

// Where the piece that starts at `at` (< n) ends: the same place as the expression's match.
static size_t scan_end(Scan *s, const char *text, size_t n, size_t at)
{
    return s->rule.cl100k ? cl100k_end(s, text, n, at) : gpt2_end(s, text, n, at);
}

// ---- any expression
//
// Expressions are written as tokenizer.json needs them, for the Oniguruma engine of Hugging Face (in its own syntax),
// and translated for PCRE2 where the two read something differently. For example
//   \s -> \p{White_Space}   PCRE2's \s also takes U+180E, which Unicode took out of White_Space in 2013
//   \h -> [0-9A-Fa-f]       a digit of base 16; PCRE2's is a space
//   {,3} -> {0,3}           PCRE2 10.42 reads characters
//   \p{Han} -> \p{sc:Han}   the script alone, without its extensions
// ^ and $ stand at every line (PCRE2_MULTILINE, lines end with LF alone). What is not known to mean the same is
// refused by name: back references, nested brackets, (?m: and (?s:, {2}+ (Oniguruma repeats the repetition), and under
// (?i: what folds to several characters (ss is also U+00DF). An expression that can match nothing is refused too: the
// engines go on after an empty match in different ways.
// `{1,3}+` is left out on purpose: possessive for PCRE2 and Rust, "repeat the repeat" for Oniguruma.
//
// Invalid UTF-8. The expression needs characters, BPE needs only bytes. So the expression sees a copy in which every
// maximal invalid sequence (1 to 3 bytes, as Unicode's chapter 3.9 cuts them) is one character of the same length and
// of U+FFFD's class (neither letter, digit nor space), while the pieces point into the original. The cuts are those of
// the text decoded with replacement characters, and no byte is lost. Rejected: refusing such text (one bad byte in a
// crawl would stop a run), replacing (decode(encode(x)) would differ from x), and taking the whole rest of the text as
// one piece, which tiktoken's byte entry does (the words after the bad byte would no longer be words).
//
// Splitting a text over threads: before a space that follows a visible ASCII character. In the built-in expressions no
// piece continues from such a character to a space, no expression looks back, and the only lookaheads, (?!\S) and $,
// concern runs of spaces, which this split neither shortens nor ends. A line end would not do: cl100k keeps it with the
// signs before it. Nothing is known of other expressions, so their text is not split.

struct Pretoken {
    Pretoken *then; // cuts every piece again; NULL: the pieces stay
    Scan *scan; // of a built-in expression; then what PCRE2 needs is missing
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    const char *text, *subject;  // the caller's bytes; what the expression sees, of the same length
    size_t n_bytes, at, gap_end; // at: end of the last piece; gap_end > at: a match that waits after a gap
    size_t match_end;
    char *copy; // backs `subject` when the text is not valid UTF-8
    size_t cap_copy;
};

const char *pretoken_regex(const char *name)
{
    const Rule *rule = find_rule(name);
    return rule ? rule->regex : NULL;
}

const char *pretoken_name(const char *regex)
{
    for (int i = 0; i < N_RULES; i++)
        if (strcmp(rules[i].regex, regex) == 0) return rules[i].name;
    return NULL;
}

// What follows a backslash, and how PCRE2 writes it outside brackets and inside them; NULL: it cannot.
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define LATIN "\\xB2\\xB3\\xB9\\xBC-\\xBE" // superscripts, fractions: \w in Oniguruma, outside brackets only
static const struct {
    char letter;
    const char *as[2];
} escapes[] = {
    {'s', {"\\p{White_Space}", "\\p{White_Space}"}}, {'S', {"\\P{White_Space}", "\\P{White_Space}"}},
    {'d', {"\\p{Nd}", "\\p{Nd}"}}, {'D', {"\\P{Nd}", "\\P{Nd}"}},
    {'w', {"[" WORD LATIN "]", WORD}}, {'W', {"[^" WORD LATIN "]"}},
    {'h', {"[0-9A-Fa-f]", "0-9A-Fa-f"}}, {'H', {"[^0-9A-Fa-f]"}}, {'v', {"\\x0B", "\\x0B"}}, {'N', {"[^\\n]"}},
    {'O', {"\\p{Any}"}}, {'R', {"(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])"}}, {'A', {"\\A"}}, {'z', {"\\z"}},
    {'Z', {"\\Z"}}, {'n', {"\\n", "\\n"}}, {'r', {"\\r", "\\r"}}, {'t', {"\\t", "\\t"}}, {'f', {"\\f", "\\f"}},
};

// Writes the escape at s (a backslash and at least one character) to *out; returns its bytes, 0: not supported.
static size_t put_escape(const char *s, bool in_class, char **out)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    const char c = s[1], *name = s + 3 + (s[2] == '{' && s[3] == '^');
    for (size_t i = 0; i < sizeof escapes / sizeof *escapes; i++)
        if (escapes[i].letter == c && !escapes[i].as[in_class]) return 0;
        else if (escapes[i].letter == c) return *out = stpcpy(*out, escapes[i].as[in_class]), 2;
    if (c == 'u' && strspn(s + 2, hex) >= 4) return *out += sprintf(*out, "\\x{%.4s}", s + 2), 6;
    if (c == 'x' && strspn(s + 2, hex) >= 2 && s[2] < '8') return *out += sprintf(*out, "\\x{%.2s}", s + 2), 4;
    if (c == 'p' || c == 'P' || c == 'x') { // \p: of one letter or two a category, else a script
        size_t n = s[2] == '{' ? strcspn(name, "}^=:& -0123456789") : 0;
        if (c == 'x') n = s[2] == '{' ? strspn(name, hex) : 0;
        if (!n || name[n] != '}') return 0;
        char letter = name == s + 3 ? c : (char)('p' + 'P' - c); // \p{^L} is \P{L}, and \P{^L} is \p{L}
        *out += sprintf(*out, "\\%c{%s%.*s}", letter, c != 'x' && n > 2 ? "sc:" : "", (int)n, name);
        return (size_t)(name - s) + n + 1;
    }
    if (c < '!' || c == 0x7F || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')) return 0;
    *out += sprintf(*out, "\\%c", c);
    return 2;
}

// The bytes of the interval {n}, {n,}, {,m} or {n,m} at s; 0: none, and the bracket is a character.
static size_t interval(const char *s)
{
    static const char digits[] = "0123456789";
    size_t low = strspn(s + 1, digits), n = 1 + low, high = s[n] == ',' ? strspn(s + n + 1, digits) : 0;
    n += s[n] == ',' ? 1 + high : 0;
    return *s == '{' && s[n] == '}' && low + high ? n + 1 : 0;
}

// The bytes at s of what has no translation or another meaning in PCRE2; 0: nothing of the kind.
static size_t foreign(const char *s, bool in_class, bool fold)
{
    static const char *const words[] = {"&&", "[", "(*", "ss", "st", "ff", "fi", "fl"}, // ss: folds U+00DF, ...
                      *const groups[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"};
    for (int i = in_class ? 0 : 2; i < (in_class ? 2 : fold ? 8 : 3); i++)
        if (strncasecmp(s, words[i], strlen(words[i])) == 0) return strlen(words[i]);
    size_t n = in_class ? 0 : interval(s);
    if (n && (s[n] == '+' || s[n] == '*' || (s[n] == '?' && !memchr(s, ',', n)))) return n + 1;
    if (in_class || strncmp(s, "(?", 2) != 0) return fold && (*s & 0x80) ? words_utf8_length(s, strlen(s), &fold) : 0;
    for (int i = 0; i < 8; i++)
        if (strncmp(s, groups[i], strlen(groups[i])) == 0) return 0;
    return s[2] ? 3 : 2;
}

// Whether the class that begins here is [A&&[B]], the characters of both; PCRE2 10.42 has no such class.
static bool meets(const char *s)
{
    if (s[1] == '^' || s[1] == '&') return false; // what is denied would be both together
    for (s++; *s && *s != ']'; s += *s == '\\' && s[1] ? 2 : 1)
        if (!strncmp(s, "&&[", 3)) return true;
    return false;
}

// The expression in PCRE2's syntax, for PCRE2_MULTILINE; the caller frees it. [A&&[B]] is [A] with [B] looking back. `where` is for errors.
static char *translate(const char *regex, const char *where)
{
    char *out = malloc(48 * strlen(regex) + 16), *to = out; // the longest: \W, of 2 characters
    if (!out) die("memory: no room for a regular expression of %zu bytes", strlen(regex));
    to = stpcpy(to, "(*LF)"); // what ends a line for ^ and $
    bool in_class = false, fold = strstr(regex, "(?i"), meet = false, both = false; // both: in B
    for (const char *s = regex; *s;) {
        if (in_class && meet && !strncmp(s, "&&[", 3)) {
            to = stpcpy(to, "](?<=["), s += 3, both = true, meet = false;
            continue;
        }
        if (both && s[0] == ']' && s[1] == ']') {
            to = stpcpy(to, "]))"), s += 2, in_class = both = false;
            continue;
        }
        if (!in_class && *s == '[' && (meet = meets(s))) to = stpcpy(to, "(?:");
        size_t bad = foreign(s, in_class, fold), n = 1, low = interval(s);
        if (!bad && *s == '\\' && !(n = s[1] ? put_escape(s, in_class, &to) : 0)) bad = s[1] ? 2 : 1;
        else if (both && *s == ']') bad = 1;
        else if (!in_class && *s == '[' && s[1 + (s[1] == '^')] == ']') bad = s[1] == '^' ? 3 : 2;
        if (bad)
            die("%s: its regular expression has '%.*s' at byte %zu, which cannot be translated exactly for PCRE2 "
                "(write it in other words, or use a built-in one)", where, (int)bad, s, (size_t)(s - regex));
        if (!in_class && *s == '{') to += low ? sprintf(to, "{%s", s[1] == ',' ? "0" : "") : sprintf(to, "\\{");
        else if (!in_class && *s == '.') to = stpcpy(to, "[^\\n]");
        else if (*s != '\\') *to++ = *s;
        in_class = in_class ? *s != ']' : *s == '[';
        s += n;
    }
    *to = 0;
    return out;
}

static pcre2_code *compile(const char *pattern, const char *where)
{
    char *regex = translate(pattern, where);
    int error;
    PCRE2_SIZE at;
    uint32_t empty = 0;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE |
                                     PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    if (!code) {
        PCRE2_UCHAR why[256];
        pcre2_get_error_message(error, why, sizeof why);
        die("%s: the pattern does not compile, at character %zu of %s: %s (use a built-in one)", where, (size_t)at,
            regex, (char *)why);
    }
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
    if (empty) die("%s: the pattern can match nothing (use + instead of *): %s", where, pattern);
    free(regex);
    return code;
}

void pretoken_check(const char *pattern, const char *path)
{
    if (!pretoken_regex(pattern)) pcre2_code_free(compile(pattern, path));
}

Pretoken *pretoken_new(const char *pattern)
{
    size_t n = strcspn(pattern, PRETOKEN_THEN);
    Pretoken *p = calloc(1, sizeof *p);
    char *first = strndup(pattern, n);
    if (!p || !first) die("memory: no room for a pre-tokenizer");
    if (pattern[n]) p->then = pretoken_new(pattern + n + 1);
    if (!(p->scan = scan_new(first))) p->code = compile(first, "pre-tokenizer");
    free(first);
    if (p->scan) return p;
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); // where there is no JIT, pcre2_match interprets
    p->match = pcre2_match_data_create_from_pattern(p->code, NULL);
    p->context = pcre2_match_context_create(NULL);
    p->stack = pcre2_jit_stack_create(32 << 10, 16 << 20, NULL);
    if (!p->match || !p->context || !p->stack) die("memory: no room for a pre-tokenizer");
    pcre2_jit_stack_assign(p->context, NULL, p->stack);
    return p;
}

void pretoken_free(Pretoken *p)
{
    if (!p) return;
    pretoken_free(p->then);
    scan_free(p->scan);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    pcre2_code_free(p->code);
    free(p->copy);
    free(p);
}

void pretoken_begin(Pretoken *p, const char *text, size_t n_bytes)
{
    if (p->then) pretoken_begin(p->then, text, 0);
    p->text = p->subject = text;
    p->n_bytes = n_bytes;
    p->at = p->gap_end = p->match_end = 0;
    if (p->scan) return;
    size_t length = 0, at = words_utf8_invalid(text, n_bytes, 0, &length);
    if (at == n_bytes) return;
    p->copy = words_grow(p->copy, &p->cap_copy, n_bytes, 1);
    memcpy(p->copy, text, n_bytes);
    while (at < n_bytes) { // U+0001, U+0080, U+FFFD: 1, 2 and 3 bytes, all neither letter, digit nor space
        memcpy(p->copy + at, length == 1 ? "\x01" : length == 2 ? "\xC2\x80" : "\xEF\xBF\xBD", length);
        at = words_utf8_invalid(text, n_bytes, at + length, &length);
    }
    p->subject = p->copy;
}

static bool next_piece(Pretoken *p, const char **piece, size_t *n_bytes)
{
    if (p->at >= p->n_bytes) return false;
    if (p->scan) {
        size_t at = p->at;
        p->at = scan_end(p->scan, p->text, p->n_bytes, at);
        *piece = p->text + at;
        *n_bytes = p->at - at;
        return true;
    }
    size_t end = p->match_end;
    bool waiting = p->gap_end == p->at && end > p->at; // the match found after the gap that was returned last
    if (!waiting) {
        int rc = pcre2_match(p->code, (PCRE2_SPTR)p->subject, p->n_bytes, p->at,
                             PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, p->match, p->context);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
            PCRE2_UCHAR why[256];
            pcre2_get_error_message(rc, why, sizeof why);
            die("pre-tokenizer: at byte %zu of the text: %s (use a built-in pattern)", p->at, (char *)why);
        }
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(p->match);
        size_t start = rc < 0 ? p->n_bytes : span[0];
        end = p->match_end = rc < 0 ? p->n_bytes : span[1];
        p->gap_end = start;
        if (start > p->at) end = start;
    }
    *piece = p->text + p->at;
    *n_bytes = end - p->at;
    p->at = end;
    return true;
}

bool pretoken_next(Pretoken *p, const char **piece, size_t *n_bytes)
{
    if (!p->then) return next_piece(p, piece, n_bytes);
    while (!pretoken_next(p->then, piece, n_bytes)) {
        if (!next_piece(p, piece, n_bytes)) return false;
        pretoken_begin(p->then, *piece, *n_bytes);
    }
    return true;
}

size_t pretoken_cut(const Pretoken *p, const char *text, size_t n_bytes, size_t at)
{
    if (!p->scan || p->then) return n_bytes;
    for (size_t i = at ? at : 1; i < n_bytes; i++)
        if (text[i] == ' ' && text[i - 1] > ' ' && text[i - 1] <= '~') return i;
    return n_bytes;
}
