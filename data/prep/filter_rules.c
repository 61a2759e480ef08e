// filter_rules: the table of rules. One row: name, paper, what is measured or taken out, thresholds, function.
//
// Invariant: the order of rows is the order in which rules run, whatever order the user lists. Rules on whole pages
// come first (editing would remove what they look for), then the rules that edit, then those that judge what is
// left, so that a kept text passes every later rule as it is written out.
//
//     keep a document  <=>  min <= value <= max     both ends included
//
// Where the papers are imprecise, the choice here:
//   symbols      "#", and "..." or its one-character form. The guides' function names a limit and does not apply it
//   stop words   different ones among the eight, any case of ASCII, signs around them taken off
//   sentences    . ! ? with quotes or brackets after them, then white space or the end; a run of signs is one end
//   line end     . ! ? or a closing double quote, straight or curly
//   curly        either bracket, anywhere: the page goes
//   citations    [12] and [citation needed], [edit], [note 3] go, the line stays
//   bad words    any case of ASCII, phrases of several words too; signs around a word are taken off
//
// Rejected: C4's language detection (a model) and its removal of repeated three-sentence spans across pages (that is
// deduplication); a list of bad words of our own.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/prep/filter.h"
#include "base/check.h"

#include <math.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

// ---- a text taken apart
//
// A document is split once, so that every rule is a loop over words or lines. These are views into the text, in order;
// with the white space between them they are the whole text. White space is Unicode's; a word is a maximal run of other
// characters ("don't," is one); a letter is \p{L} or \p{M} of the installed PCRE2 (the vowel signs of Hindi and Thai
// are marks, and a text in those languages would otherwise seem to have few letters); a line is the text between line
// ends, without white space around it, and blank lines do not count; paragraphs have a blank line between them; lengths
// are in code points. Rejected: a pre-tokenizer's words (the papers' rules count words between spaces), iswalpha
// (follows the locale), and a regular expression for each rule (each takes a pass over the text, and may backtrack).

static size_t put_code(char *out, uint32_t c)
{
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00u >> n & 0xFF) | c);
    return n;
}

// All characters in a row, and where \p{L}\p{M} matches in it.
uint8_t *filter_rules_letters(void)
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
    // Planes 0 to 3 and 14: the others have no letters, and are skipped to save time.
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

void filter_rules_split(FilterDoc *d, const char *text, size_t n)
{
    d->text = text;
    d->n = n;
    d->n_words = d->n_lines = d->chars = d->letters = d->word_chars = 0;
    FilterWord w = {0};
    FilterLine l = {0};
    uint32_t paragraph = 0, chars_in_line = 0;
    size_t end_of_text = 0; // of the line, without white space at its end
    for (size_t at = 0, k; at < n; at += k) {
        bool valid;
        k = words_utf8_length(text + at, n - at, &valid);
        uint32_t c = valid ? words_utf8_code(text + at, k) : 0xFFFD;
        d->chars++;
        if (words_is_space(c)) {
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

void filter_rules_free(FilterDoc *d)
{
    free(d->word);
    free(d->line);
    free(d->key);
    free(d->count);
    free(d->mark);
}

// Makes room for the counts of n different keys, all at 0.
static void count_begin(FilterDoc *d, size_t n)
{
    size_t n_slots = 64;
    while (n_slots < 2 * n) n_slots *= 2;
    d->key = words_grow(d->key, &d->cap_keys, n_slots, sizeof *d->key);
    d->count = words_grow(d->count, &d->cap_counts, n_slots, sizeof *d->count);
    d->n_slots = n_slots;
    memset(d->count, 0, n_slots * sizeof *d->count);
}

// Adds to the count of a key, and gives the new count; add 0: only look.
static uint32_t count_key(FilterDoc *d, uint64_t key, uint32_t add)
{
    size_t mask = d->n_slots - 1, s = key & mask;
    while (d->count[s] && d->key[s] != key) s = (s + 1) & mask;
    if (add) d->key[s] = key;
    return d->count[s] += add;
}

// ---- repetition
//
// Repetition (Gopher, Rae et al., arXiv 2112.11446, table A1; spans: Lee et al., arXiv 2107.06499, within one document)
// is O(words) or O(lines): n-grams are keys of 64 bits in a table of counts, XXH3 over the n hashes of their words. Two
// different n-grams share a key with probability 2^-64; nothing else is approximate.
//
//   lines, paragraphs    those that stood above already / all; or characters in those / characters in all
//   top n-gram           characters in words of the most frequent n-gram / characters in all words; the most
//                        characters where several are as frequent; 0 when none occurs twice
//   all n-grams          the same for all n-grams that occur more than once, the first occurrence too, as the paper
//                        has it ("contained within all duplicate n-grams")
//
// A character counts once, however many n-grams lie over it: words are marked, then added up. Rejected: counting only
// the later copies of n-grams, as some implementations do: it halves the value of a text that repeats everything once.

static uint64_t gram(const FilterDoc *d, size_t i, size_t n)
{
    uint64_t hash[16], state = 0;
    for (size_t from = 0; from < n; from += 15) { // spans are longer than 15: chained
        size_t k = n - from < 15 ? n - from : 15;
        for (size_t j = 0; j < k; j++) hash[j] = d->word[i + from + j].hash;
        hash[k] = state;
        state = XXH3_64bits(hash, (k + 1) * sizeof *hash);
    }
    return state;
}

static double repeat_lines(FilterDoc *d, int chars)
{
    size_t repeated = 0, all = 0;
    count_begin(d, d->n_lines);
    for (size_t i = 0; i < d->n_lines; i++) {
        size_t weight = chars ? d->line[i].chars : 1;
        all += weight;
        if (count_key(d, d->line[i].hash, 1) > 1) repeated += weight;
    }
    return all ? (double)repeated / (double)all : 0;
}

static double repeat_paragraphs(FilterDoc *d, int chars)
{
    size_t repeated = 0, all = 0;
    count_begin(d, d->n_lines);
    for (size_t i = 0, next; i < d->n_lines; i = next) {
        uint64_t state[2] = {0, 0}; // the hashes of its lines, chained
        size_t weight = 0;
        for (next = i; next < d->n_lines && d->line[next].paragraph == d->line[i].paragraph; next++) {
            state[1] = d->line[next].hash;
            state[0] = XXH3_64bits(state, sizeof state);
            weight += d->line[next].chars;
        }
        if (!chars) weight = 1;
        all += weight;
        if (count_key(d, state[0], 1) > 1) repeated += weight;
    }
    return all ? (double)repeated / (double)all : 0;
}

// The share of characters of words in marked words.
static double marked_share(const FilterDoc *d)
{
    size_t marked = 0;
    for (size_t i = 0; i < d->n_words; i++)
        if (d->mark[i]) marked += d->word[i].chars;
    return d->word_chars ? (double)marked / (double)d->word_chars : 0;
}

static bool begin_grams(FilterDoc *d, size_t n)
{
    if (d->n_words < n) return false;
    d->mark = words_grow(d->mark, &d->cap_mark, d->n_words, 1);
    memset(d->mark, 0, d->n_words);
    count_begin(d, d->n_words);
    return true;
}

static double repeat_top(FilterDoc *d, int n_gram)
{
    size_t n = (size_t)n_gram, chars, best_chars = 0;
    uint32_t best = 1;
    uint64_t best_key = 0;
    if (!begin_grams(d, n)) return 0;
    for (size_t i = 0; i + n <= d->n_words; i++) count_key(d, gram(d, i, n), 1);
    for (size_t i = 0; i + n <= d->n_words; i++) {
        uint64_t key = gram(d, i, n);
        uint32_t count = count_key(d, key, 0);
        if (count < best || count < 2) continue;
        chars = 0;
        for (size_t j = 0; j < n; j++) chars += d->word[i + j].chars;
        if (count > best || chars > best_chars) best = count, best_key = key, best_chars = chars;
    }
    if (best < 2) return 0;
    for (size_t i = 0; i + n <= d->n_words; i++)
        if (gram(d, i, n) == best_key) memset(d->mark + i, 1, n);
    return marked_share(d);
}

static double repeat_all(FilterDoc *d, int n_gram)
{
    size_t n = (size_t)n_gram;
    if (!begin_grams(d, n)) return 0;
    for (size_t i = 0; i + n <= d->n_words; i++) count_key(d, gram(d, i, n), 1);
    for (size_t i = 0; i + n <= d->n_words; i++)
        if (count_key(d, gram(d, i, n), 0) > 1) memset(d->mark + i, 1, n);
    return marked_share(d);
}

// Goes from left to right. If the next n words occurred before, beginning at a word that was kept, they are
// removed, and so are the words after them as long as the last n words also occurred before. "a b" a thousand times
// becomes "a b". n is bounded, so this takes linear time.
size_t filter_rules_spans(FilterDoc *d, double n_words, char *out, size_t *n_out, FilterWord *first)
{
    size_t n = n_words < 2 ? 2 : n_words > 1000 ? 1000 : (size_t)n_words, spans = 0, copied = 0, o = 0;
    if (!begin_grams(d, n)) return 0;
    for (size_t i = 0; i + n <= d->n_words;) {
        if (count_key(d, gram(d, i, n), 0) == 0) {
            count_key(d, gram(d, i, n), 1);
            i++;
            continue;
        }
        size_t end = i + n;
        while (end < d->n_words && count_key(d, gram(d, end + 1 - n, n), 0)) end++;
        size_t from = d->word[i].at, to = end < d->n_words ? d->word[end].at : d->n;
        if (spans++ == 0) *first = (FilterWord){.at = (uint32_t)from, .n = (uint32_t)(to - from)};
        memcpy(out + o, d->text + copied, from - copied);
        o += from - copied;
        copied = to;
        i = end;
    }
    memcpy(out + o, d->text + copied, d->n - copied);
    *n_out = o + d->n - copied;
    return spans;
}

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

// White space was seen already: words of the line are those of the document that lie in it.
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
    {"repeat.spans", LEE, "takes out later copies of spans of so many words", 50, NO, NULL, filter_rules_spans, 0},
    {"c4.sentences", C4, "sentences", 3, NO, sentences, NULL, 0},
    {"gopher.words", GOPHER, "words", 50, 100000, words, NULL, 0},
    {"gopher.word_length", GOPHER, "mean length of a word", 3, 10, word_length, NULL, 0},
    {"gopher.hashes", GOPHER, "# a word", -NO, 0.1, symbols, NULL, HASHES},
    {"gopher.ellipses", GOPHER, "ellipses a word", -NO, 0.1, symbols, NULL, DOTS},
    {"gopher.bullets", GOPHER, "lines that begin with a bullet / lines", -NO, 0.9, bullets, NULL, 0},
    {"gopher.ellipsis_lines", GOPHER, "lines that end with an ellipsis / lines", -NO, 0.3, ellipsis_lines, NULL, 0},
    {"gopher.letter_words", GOPHER, "words with a letter / words", 0.8, NO, letter_words, NULL, 0},
    {"gopher.stop_words", GOPHER, "different words of: the be to of and that have with", 2, NO, stop_words, NULL, 0},
    {"gopher.repeat_lines", GOPHER, "repeated lines / lines", -NO, 0.30, repeat_lines, NULL, 0},
    {"gopher.repeat_paragraphs", GOPHER, "repeated paragraphs / paragraphs", -NO, 0.30, repeat_paragraphs,
     NULL, 0},
    {"gopher.repeat_line_chars", GOPHER, "characters in repeated lines", -NO, 0.20, repeat_lines, NULL, 1},
    {"gopher.repeat_paragraph_chars", GOPHER, "characters in repeated paragraphs", -NO, 0.20, repeat_paragraphs,
     NULL, 1},
    {"gopher.top_2gram", GOPHER, "characters in the top 2-gram", -NO, 0.20, repeat_top, NULL, 2},
    {"gopher.top_3gram", GOPHER, "characters in the top 3-gram", -NO, 0.18, repeat_top, NULL, 3},
    {"gopher.top_4gram", GOPHER, "characters in the top 4-gram", -NO, 0.16, repeat_top, NULL, 4},
    {"gopher.repeat_5gram", GOPHER, "characters in repeated 5-grams", -NO, 0.15, repeat_all, NULL, 5},
    {"gopher.repeat_6gram", GOPHER, "characters in repeated 6-grams", -NO, 0.14, repeat_all, NULL, 6},
    {"gopher.repeat_7gram", GOPHER, "characters in repeated 7-grams", -NO, 0.13, repeat_all, NULL, 7},
    {"gopher.repeat_8gram", GOPHER, "characters in repeated 8-grams", -NO, 0.12, repeat_all, NULL, 8},
    {"gopher.repeat_9gram", GOPHER, "characters in repeated 9-grams", -NO, 0.11, repeat_all, NULL, 9},
    {"gopher.repeat_10gram", GOPHER, "characters in repeated 10-grams", -NO, 0.10, repeat_all, NULL, 10},
    {"guide.words", GUIDE, "words", 50, 100000, words, NULL, 0},
    {"guide.word_length", GUIDE, "mean length of a word", 3, NO, word_length, NULL, 0},
    {"guide.letters", GUIDE, "letters / characters", 0.7, NO, letters, NULL, 0},
};
const int filter_n_rules = sizeof filter_rules / sizeof *filter_rules;
