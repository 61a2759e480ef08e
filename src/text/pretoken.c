// pretoken: the pre-tokenizer, a regular expression that cuts text into words before BPE merges inside them.
//
// Invariant: the pieces of a text, joined, are the text, byte for byte. What the expression leaves out
// between two matches becomes a piece too.
//
// Two expressions are built in:
//   gpt2    contractions, letters, digits, other signs, each with at most one space before; runs of space
//   cl100k  GPT-4's and LLaMA-3's: contractions in any case, numbers of at most 3 digits, line ends apart
// They are written as tokenizer.json needs them, for the Oniguruma engine of Hugging Face, and translated for
// PCRE2:
//   \s -> \p{White_Space}   PCRE2's \s also takes U+180E, which Unicode took out of White_Space in 2013
//   $  -> \z                the end of the text, not also the place before a last line end
// `{1,3}+` is left out on purpose: possessive for PCRE2 and Rust, "repeat the repeat" for Oniguruma.
//
// Invalid UTF-8. The expression needs characters, BPE needs only bytes. So the expression sees a copy in
// which every maximal invalid sequence (1 to 3 bytes, as Unicode's chapter 3.9 cuts them) is one character of
// the same length and of U+FFFD's class (neither letter, digit nor space), while the pieces point into the
// original. The cuts are those of the text decoded with replacement characters, and no byte is lost.
// Rejected: refusing such text (one bad byte in a crawl would stop a run), replacing (decode(encode(x)) would
// differ from x), and taking the whole rest of the text as one piece, which tiktoken's byte entry does (the
// words after the bad byte would no longer be words).
//
// Cutting a text, so that threads share it: before a space that follows a visible ASCII character. None of the built-in
// expressions has a piece that goes on from such a character to a space, none looks back, and the only looks ahead,
// (?!\S) and $, are about runs of space, which this cut neither shortens nor ends. A line end would not do: cl100k
// keeps it with the signs before. Of other expressions nothing is known, so they are not cut.
//
// The two built-in expressions are walked by pretoken_scan.c, which is written to give the same pieces faster; PCRE2
// does the others, and is what the scan is tested against.
//
// Time: linear. UTF-8 is checked once per text and not at every match, and the built-in expressions
// backtrack by at most one run of space.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretoken.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/pretoken_scan.h"
#include "base/utf8.h"
#include "base/words.h"

struct Pretoken {
    PretokenScan *scan; // of a built-in expression; then what PCRE2 needs is missing
    pcre2_code *code;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    const char *text, *subject;  // the caller's bytes; what the expression sees, of the same length
    size_t n_bytes, at, gap_end; // at: end of the last piece; gap_end > at: a match that waits behind a gap
    size_t match_end;
    char *copy; // backs `subject` when the text is not valid UTF-8
    size_t cap_copy;
};

const char *pretoken_regex(const char *name)
{
    if (strcmp(name, "gpt2") == 0)
        return "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s";
    if (strcmp(name, "cl100k") == 0)
        return "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}"
               "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s";
    return NULL;
}

// The expression in PCRE2's words; the caller frees it.
static char *translate(const char *regex)
{
    size_t n = strlen(regex), o = 0;
    char *out = malloc(16 * n + 1); // \p{White_Space} has 15 characters for 2
    if (!out) die("memory: no room for a regular expression of %zu bytes", n);
    bool in_class = false;
    for (size_t i = 0; i < n; i++) {
        char c = regex[i];
        if (c == '\\' && i + 1 < n) {
            c = regex[++i];
            if (c == 's' || c == 'S') {
                memcpy(out + o, c == 's' ? "\\p{White_Space}" : "\\P{White_Space}", 15);
                o += 15;
            } else {
                out[o++] = '\\';
                out[o++] = c;
            }
        } else if (c == '$' && !in_class) {
            out[o++] = '\\';
            out[o++] = 'z';
        } else {
            if (c == '[') in_class = true;
            if (c == ']') in_class = false;
            out[o++] = c;
        }
    }
    out[o] = 0;
    return out;
}

Pretoken *pretoken_new(const char *pattern)
{
    Pretoken *p = calloc(1, sizeof *p);
    if (!p) die("memory: no room for a pre-tokenizer");
    p->scan = pretoken_scan_new(pattern);
    if (p->scan) return p;
    char *regex = translate(pattern);
    int error;
    PCRE2_SIZE where;
    p->code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &where, NULL);
    if (!p->code) {
        PCRE2_UCHAR why[256];
        pcre2_get_error_message(error, why, sizeof why);
        die("pre-tokenizer: the pattern does not compile, at character %zu, %s: %s (use gpt2 or cl100k)",
            (size_t)where, (char *)why, pattern);
    }
    free(regex);
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
    pretoken_scan_free(p->scan);
    pcre2_match_data_free(p->match);
    pcre2_match_context_free(p->context);
    pcre2_jit_stack_free(p->stack);
    pcre2_code_free(p->code);
    free(p->copy);
    free(p);
}

void pretoken_begin(Pretoken *p, const char *text, size_t n_bytes)
{
    p->text = p->subject = text;
    p->n_bytes = n_bytes;
    p->at = p->gap_end = p->match_end = 0;
    if (p->scan) return;
    size_t length = 0, at = utf8_invalid(text, n_bytes, 0, &length);
    if (at == n_bytes) return;
    p->copy = words_grow(p->copy, &p->cap_copy, n_bytes, 1);
    memcpy(p->copy, text, n_bytes);
    while (at < n_bytes) { // U+0001, U+0080, U+FFFD: 1, 2 and 3 bytes, all neither letter, digit nor space
        memcpy(p->copy + at, length == 1 ? "\x01" : length == 2 ? "\xC2\x80" : "\xEF\xBF\xBD", length);
        at = utf8_invalid(text, n_bytes, at + length, &length);
    }
    p->subject = p->copy;
}

bool pretoken_next(Pretoken *p, const char **piece, size_t *n_bytes)
{
    if (p->at >= p->n_bytes) return false;
    if (p->scan) {
        size_t at = p->at;
        p->at = pretoken_scan_end(p->scan, p->text, p->n_bytes, at);
        *piece = p->text + at;
        *n_bytes = p->at - at;
        return true;
    }
    size_t end = p->match_end;
    bool waiting = p->gap_end == p->at && end > p->at; // the match found behind the gap that was given last
    if (!waiting) {
        int rc = pcre2_match(p->code, (PCRE2_SPTR)p->subject, p->n_bytes, p->at,
                             PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, p->match, p->context);
        if (rc < 0 && rc != PCRE2_ERROR_NOMATCH) {
            PCRE2_UCHAR why[256];
            pcre2_get_error_message(rc, why, sizeof why);
            die("pre-tokenizer: at byte %zu of the text: %s (use the pattern gpt2 or cl100k)", p->at,
                (char *)why);
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

size_t pretoken_cut(const Pretoken *p, const char *text, size_t n_bytes, size_t at)
{
    if (!p->scan) return n_bytes;
    for (size_t i = at ? at : 1; i < n_bytes; i++)
        if (text[i] == ' ' && text[i - 1] > ' ' && text[i - 1] <= '~') return i;
    return n_bytes;
}
