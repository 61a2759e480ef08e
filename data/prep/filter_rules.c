// filter_rules: the table of rules. One row: name, paper, what is measured or taken out, thresholds, function.
//
// Invariant: the order of rows is the order of work, whatever the user lists. Rules on whole pages come first (what
// they look for would be edited away), then the rules that edit, then those that judge what is left, so that a
// kept text passes every later rule as it is written out.
//
//     keep a document  <=>  min <= value <= max     both ends included
//
// Where the papers are loose, the choice here:
//   symbols      "#", and "..." or its one-character form. Gopher limits each alone, the guides both together
//   stop words   different ones among the eight, any case of ASCII, signs around them taken off
//   sentences    . ! ? with quotes or brackets behind, then white space or the end; a run of signs is one end
//   line end     . ! ? or a closing double quote, straight or curly
//   curly        either bracket, anywhere: the page goes
//   citations    [12] and [citation needed], [edit], [note 3] go, the line stays
//   bad words    any case of ASCII, phrases of several words too; signs around a word are taken off
//
// Rejected: C4's language detection (a model) and its removal of repeated three-sentence spans across pages (that is
// deduplication); a list of bad words of our own.
#include "data/prep/filter_rules.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static bool is_alnum(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c >= 0x80;
}

// ---- values
static double ratio(size_t part, size_t all)
{
    return all ? (double)part / (double)all : 0;
}

static double words(FilterDoc *d, int arg)
{
    (void)arg;
    return (double)d->n_words;
}

static double word_length(FilterDoc *d, int arg)
{
    (void)arg;
    return ratio(d->word_chars, d->n_words);
}

static size_t n_dots(const char *s, size_t n) // an ellipsis at s: its bytes
{
    return n >= 3 && (memcmp(s, "...", 3) == 0 || memcmp(s, "\xE2\x80\xA6", 3) == 0) ? 3 : 0;
}

enum { HASHES = 1, DOTS = 2 };
static double symbols(FilterDoc *d, int which)
{
    size_t hashes = 0, dots = 0;
    for (size_t i = 0; i < d->n; i++) {
        hashes += d->text[i] == '#';
        size_t k = n_dots(d->text + i, d->n - i);
        if (!k) continue;
        dots++;
        i += k - 1;
        while (i + 1 < d->n && d->text[i] == '.' && d->text[i + 1] == '.') i++; // a longer row of dots is one
    }
    return ratio((which & HASHES ? hashes : 0) + (which & DOTS ? dots : 0), d->n_words);
}

static double letters(FilterDoc *d, int arg)
{
    (void)arg;
    return ratio(d->letters, d->chars);
}

static double letter_words(FilterDoc *d, int arg)
{
    (void)arg;
    size_t n = 0;
    for (size_t i = 0; i < d->n_words; i++) n += d->word[i].has_letter;
    return ratio(n, d->n_words);
}

static double bullets(FilterDoc *d, int arg)
{
    const char *const sign[] = {"-", "*", "\xE2\x80\xA2", "\xE2\x80\xA3", "\xE2\x97\xA6", "\xE2\x96\xAA",
                                "\xE2\x97\x8F"};
    size_t n = 0;
    (void)arg;
    for (size_t i = 0; i < d->n_lines; i++)
        for (size_t s = 0; s < sizeof sign / sizeof *sign; s++)
            if (d->line[i].n >= strlen(sign[s]) && !memcmp(d->text + d->line[i].at, sign[s], strlen(sign[s]))) n++;
    return ratio(n, d->n_lines);
}

static double ellipsis_lines(FilterDoc *d, int arg)
{
    size_t n = 0;
    (void)arg;
    for (size_t i = 0; i < d->n_lines; i++)
        if (d->line[i].n >= 3 && n_dots(d->text + d->line[i].at + d->line[i].n - 3, 3)) n++;
    return ratio(n, d->n_lines);
}

// The word without ASCII signs around it.
static const char *bare(const FilterDoc *d, size_t i, size_t *n)
{
    const char *s = d->text + d->word[i].at;
    *n = d->word[i].n;
    while (*n && !is_alnum((unsigned char)*s)) s++, --*n;
    while (*n && !is_alnum((unsigned char)s[*n - 1])) --*n;
    return s;
}

static double stop_words(FilterDoc *d, int arg)
{
    const char *const stop[] = {"the", "be", "to", "of", "and", "that", "have", "with"};
    unsigned seen = 0;
    (void)arg;
    for (size_t i = 0; i < d->n_words && seen != 255; i++) {
        size_t n;
        const char *s = bare(d, i, &n);
        for (int k = 0; k < 8 && n <= 4; k++)
            if (strlen(stop[k]) == n && strncasecmp(s, stop[k], n) == 0) seen |= 1u << k;
    }
    return __builtin_popcount(seen);
}

static size_t find_nocase(const char *s, size_t n, const char *what) // n when it is not there
{
    size_t k = strlen(what);
    for (size_t i = 0; i + k <= n; i++)
        if ((s[i] | 32) == what[0] && strncasecmp(s + i, what, k) == 0) return i;
    return n;
}

static double lorem_ipsum(FilterDoc *d, int arg)
{
    (void)arg;
    return find_nocase(d->text, d->n, "lorem ipsum") < d->n;
}

static double curly(FilterDoc *d, int arg)
{
    size_t n = 0;
    (void)arg;
    for (size_t i = 0; i < d->n; i++) n += d->text[i] == '{' || d->text[i] == '}';
    return (double)n;
}

static double bad_words(FilterDoc *d, int arg)
{
    size_t found = 0;
    char phrase[256];
    (void)arg;
    for (size_t i = 0; d->bad && i < d->n_words; i++)
        for (size_t k = 0, o = 0; k < d->bad_words && i + k < d->n_words; k++) {
            size_t n;
            const char *s = bare(d, i + k, &n);
            if (o + n + 1 > sizeof phrase) break;
            if (k) phrase[o++] = ' ';
            for (size_t j = 0; j < n; j++) phrase[o++] = s[j] >= 'A' && s[j] <= 'Z' ? (char)(s[j] | 32) : s[j];
            if (words_find(d->bad, phrase, o) >= 0) found++;
        }
    return (double)found;
}

// The bytes of a closing quote or bracket at s.
static size_t closing(const char *s, size_t n)
{
    if (n && strchr("\"')]", *s) && *s) return 1;
    return n >= 3 && (!memcmp(s, "\xE2\x80\x9D", 3) || !memcmp(s, "\xE2\x80\x99", 3)) ? 3 : 0;
}

static double sentences(FilterDoc *d, int arg)
{
    size_t n = 0;
    (void)arg;
    for (size_t w = 0; w < d->n_words; w++) { // a sentence ends where a word does
        const char *s = d->text + d->word[w].at;
        size_t end = d->word[w].n, k;
        for (size_t i = 0; i < end; i++) {
            if (!strchr(".!?", s[i]) || !s[i]) continue;
            while (i + 1 < end && s[i + 1] && strchr(".!?", s[i + 1])) i++;
            size_t after = i + 1;
            while ((k = closing(s + after, end - after))) after += k;
            if (after == end) n++;
        }
    }
    return (double)n;
}

// ---- edits of whole lines
typedef bool (*LineTest)(const char *s, size_t n, double threshold, const FilterDoc *d);

// Leaves out the lines that `bad` names, with their line ends; blank lines stay.
static size_t drop_lines(FilterDoc *d, double threshold, char *out, size_t *n_out, FilterWord *first, LineTest bad)
{
    size_t n = 0, o = 0, at = 0;
    for (size_t i = 0; i < d->n_lines; i++) {
        const FilterLine *l = &d->line[i];
        if (!bad(d->text + l->at, l->n, threshold, d)) continue;
        if (n++ == 0) *first = (FilterWord){.at = l->at, .n = l->n};
        size_t from = l->at, to = l->at + l->n;
        while (from > at && d->text[from - 1] != '\n') from--; // white space in front of it
        while (to < d->n && d->text[to] != '\n') to++;
        to += to < d->n;
        memcpy(out + o, d->text + at, from - at);
        o += from - at;
        at = to;
    }
    memcpy(out + o, d->text + at, d->n - at);
    *n_out = o + d->n - at;
    return n;
}

static bool no_end(const char *s, size_t n, double threshold, const FilterDoc *d)
{
    (void)threshold, (void)d;
    return !strchr(".!?\"", s[n - 1]) && !(n >= 3 && !memcmp(s + n - 3, "\xE2\x80\x9D", 3));
}

// White space as filter_text has it was seen already: words of the line are those of the document that lie in it.
static bool few_words(const char *s, size_t n, double threshold, const FilterDoc *d)
{
    size_t at = (size_t)(s - d->text), low = 0, high = d->n_words, count = 0;
    while (low < high) { // the first word that starts at or after `at`
        size_t middle = (low + high) / 2;
        if (d->word[middle].at < at) low = middle + 1;
        else high = middle;
    }
    while (low < d->n_words && d->word[low].at < at + n && (double)count < threshold) low++, count++;
    return (double)count < threshold;
}

static bool has_javascript(const char *s, size_t n, double threshold, const FilterDoc *d)
{
    (void)threshold, (void)d;
    return find_nocase(s, n, "javascript") < n;
}

static bool has_policy(const char *s, size_t n, double threshold, const FilterDoc *d)
{
    const char *const phrase[] = {"terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies",
                                  "use cookies"};
    (void)threshold, (void)d;
    for (size_t i = 0; i < sizeof phrase / sizeof *phrase; i++)
        if (find_nocase(s, n, phrase[i]) < n) return true;
    return false;
}

#define EDIT_LINES(name, test) \
    static size_t name(FilterDoc *d, double threshold, char *out, size_t *n_out, FilterWord *first) \
    { \
        return drop_lines(d, threshold, out, n_out, first, test); \
    }
EDIT_LINES(line_end, no_end)
EDIT_LINES(line_words, few_words)
EDIT_LINES(javascript, has_javascript)
EDIT_LINES(policy, has_policy)

// The bytes of a citation mark at s, which is a '['.
static size_t citation(const char *s, size_t n)
{
    const char *const mark[] = {"[citation needed]", "[edit]"};
    for (size_t i = 0; i < 2; i++)
        if (n >= strlen(mark[i]) && strncasecmp(s, mark[i], strlen(mark[i])) == 0) return strlen(mark[i]);
    size_t k = n >= 6 && strncasecmp(s, "[note ", 6) == 0 ? 6 : 1, digits = 0;
    while (k + digits < n && digits < 4 && s[k + digits] >= '0' && s[k + digits] <= '9') digits++;
    return digits && k + digits < n && s[k + digits] == ']' ? k + digits + 1 : 0;
}

static size_t citations(FilterDoc *d, double threshold, char *out, size_t *n_out, FilterWord *first)
{
    size_t n = 0, o = 0, k;
    (void)threshold;
    for (size_t i = 0; i < d->n; i += k) {
        k = d->text[i] == '[' ? citation(d->text + i, d->n - i) : 0;
        if (k && n++ == 0) *first = (FilterWord){.at = (uint32_t)i, .n = (uint32_t)k};
        if (k) continue;
        out[o++] = d->text[i];
        k = 1;
    }
    *n_out = o;
    return n;
}

// ---- the table
#define C4 "Raffel et al., 1910.10683"
#define GOPHER "Rae et al., 2112.11446"
#define LEE "Lee et al., 2107.06499"
#define GUIDE "the guides' DocumentFilter"
#define NO INFINITY

const FilterRule filter_rules[] = {
    {"c4.lorem_ipsum", C4, "'lorem ipsum' stands there (0 or 1)", -NO, 0, lorem_ipsum, NULL, 0},
    {"c4.curly", C4, "curly brackets", -NO, 0, curly, NULL, 0},
    {"c4.bad_words", C4, "words of the user's list", -NO, 0, bad_words, NULL, 0},
    {"c4.citations", C4, "takes out citation marks such as [12]", -NO, NO, NULL, citations, 0},
    {"c4.line_end", C4, "takes out lines that do not end a sentence", -NO, NO, NULL, line_end, 0},
    {"c4.line_words", C4, "takes out lines with fewer words", 5, NO, NULL, line_words, 0},
    {"c4.javascript", C4, "takes out lines that speak of javascript", -NO, NO, NULL, javascript, 0},
    {"c4.policy", C4, "takes out lines about terms of use, privacy and cookies", -NO, NO, NULL, policy, 0},
    {"repeat.spans", LEE, "takes out later copies of spans of so many words", 50, NO, NULL, filter_repeat_spans, 0},
    {"c4.sentences", C4, "sentences", 3, NO, sentences, NULL, 0},
    {"gopher.words", GOPHER, "words", 50, 100000, words, NULL, 0},
    {"gopher.word_length", GOPHER, "mean length of a word", 3, 10, word_length, NULL, 0},
    {"gopher.hashes", GOPHER, "# a word", -NO, 0.1, symbols, NULL, HASHES},
    {"gopher.ellipses", GOPHER, "ellipses a word", -NO, 0.1, symbols, NULL, DOTS},
    {"gopher.bullets", GOPHER, "lines that begin with a bullet / lines", -NO, 0.9, bullets, NULL, 0},
    {"gopher.ellipsis_lines", GOPHER, "lines that end with an ellipsis / lines", -NO, 0.3, ellipsis_lines, NULL, 0},
    {"gopher.letter_words", GOPHER, "words with a letter / words", 0.8, NO, letter_words, NULL, 0},
    {"gopher.stop_words", GOPHER, "different words of: the be to of and that have with", 2, NO, stop_words, NULL, 0},
    {"gopher.repeat_lines", GOPHER, "repeated lines / lines", -NO, 0.30, filter_repeat_lines, NULL, 0},
    {"gopher.repeat_paragraphs", GOPHER, "repeated paragraphs / paragraphs", -NO, 0.30, filter_repeat_paragraphs,
     NULL, 0},
    {"gopher.repeat_line_chars", GOPHER, "characters in repeated lines", -NO, 0.20, filter_repeat_lines, NULL, 1},
    {"gopher.repeat_paragraph_chars", GOPHER, "characters in repeated paragraphs", -NO, 0.20, filter_repeat_paragraphs,
     NULL, 1},
    {"gopher.top_2gram", GOPHER, "characters in the top 2-gram", -NO, 0.20, filter_repeat_top, NULL, 2},
    {"gopher.top_3gram", GOPHER, "characters in the top 3-gram", -NO, 0.18, filter_repeat_top, NULL, 3},
    {"gopher.top_4gram", GOPHER, "characters in the top 4-gram", -NO, 0.16, filter_repeat_top, NULL, 4},
    {"gopher.repeat_5gram", GOPHER, "characters in repeated 5-grams", -NO, 0.15, filter_repeat_all, NULL, 5},
    {"gopher.repeat_6gram", GOPHER, "characters in repeated 6-grams", -NO, 0.14, filter_repeat_all, NULL, 6},
    {"gopher.repeat_7gram", GOPHER, "characters in repeated 7-grams", -NO, 0.13, filter_repeat_all, NULL, 7},
    {"gopher.repeat_8gram", GOPHER, "characters in repeated 8-grams", -NO, 0.12, filter_repeat_all, NULL, 8},
    {"gopher.repeat_9gram", GOPHER, "characters in repeated 9-grams", -NO, 0.11, filter_repeat_all, NULL, 9},
    {"gopher.repeat_10gram", GOPHER, "characters in repeated 10-grams", -NO, 0.10, filter_repeat_all, NULL, 10},
    {"guide.words", GUIDE, "words", 50, 100000, words, NULL, 0},
    {"guide.word_length", GUIDE, "mean length of a word", 3, 10, word_length, NULL, 0},
    {"guide.symbols", GUIDE, "# and ellipses a word", -NO, 0.1, symbols, NULL, HASHES | DOTS},
    {"guide.letters", GUIDE, "letters / characters", 0.7, NO, letters, NULL, 0},
};
const int filter_n_rules = sizeof filter_rules / sizeof *filter_rules;
