// filter: rules that keep a document, shorten it or remove it, and the record of what they did.
//
// The rules are rows of one table (filter_rules.c) and run in its order: first the rules on whole pages, then those
// that edit, then those that judge what is left. The first rule that rejects a document removes it.
#ifndef FILTER_H
#define FILTER_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Filter Filter;

// Selects rules: names of rules ("gopher.words") and of sets ("gopher": all rules called gopher.*), with commas
// between. `examples`: how many of each rule are kept for the report. Dies on an unknown name.
Filter *filter_new(const char *rules, int examples);
void filter_free(Filter *f); // NULL is allowed
// Sets a threshold, "gopher.words.min=60". A rule has .min, .max, or both: see filter_print_rules. Dies on any other,
// and on a threshold of a rule that is not selected.
void filter_set(Filter *f, const char *assignment);
// The list of c4.bad_words: a word or phrase a line. Without it the rule does nothing. Dies when the
// rule is not selected.
void filter_bad_words(Filter *f, const char *path);

// Judges text (n bytes of valid UTF-8, at most 4 GiB). True: keep it as *kept (n_kept), `text` itself or an edited copy
// that lives until the next call. `path`, `line`: where it begins, for examples; path not NULL. Time and memory are
// linear in n.
bool filter_document(Filter *f, const char *text, size_t n, const char *path, uint64_t line, const char **kept,
                     size_t *n_kept);
// The value that a rule sees in a text, whether it is selected or not; an editing rule: how many pieces it takes out.
double filter_value(Filter *f, const char *rule, const char *text, size_t n);

typedef struct {
    uint64_t seen, removed, edited;       // documents
    uint64_t bytes_removed, bytes_edited; // of removed documents; taken out of edited ones
} FilterCounts;
FilterCounts filter_counts(const Filter *f, const char *rule); // NULL: all rules; seen: documents that came in

// ---- reports
void filter_print(const Filter *f, FILE *out);      // a table of the rules that are on, and a few examples
void filter_html(const Filter *f, FILE *out);       // one page without outside parts
void filter_print_rules(FILE *out);                 // the table of all rules, in Markdown

// ---- the table behind it, and the document as its rules see it (filter_rules.c)
typedef struct {
    uint32_t at, n;      // bytes
    uint32_t chars;      // code points
    uint32_t has_letter; // 0 or 1
    uint64_t hash;
} FilterWord;

typedef struct {
    uint32_t at, n; // bytes, without white space around it; n > 0
    uint32_t chars;
    uint32_t paragraph; // its number: empty lines stand between paragraphs
    uint64_t hash;
} FilterLine;

// A text with its words (what stands between white space), lines and counts. Views into text.
typedef struct {
    const char *text;
    size_t n;
    FilterWord *word; // (n_words)
    FilterLine *line; // (n_lines): those that are not blank
    size_t n_words, cap_words, n_lines, cap_lines;
    size_t chars, letters, word_chars; // code points: all, letters and marks, those in words
    // For rules: a table of counts, marks of words, and the list of bad words with the most words in one.
    uint64_t *key;   // (cap_slots)
    uint32_t *count; // (cap_slots)
    size_t n_slots, cap_keys, cap_counts;
    uint8_t *mark;
    size_t cap_mark;
    const Words *bad;
    size_t bad_words;
    const uint8_t *letter; // one bit a code point below FILTER_CODES
} FilterDoc;

enum { FILTER_CODES = 0x110000 };

// Text taken out by an editing rule: the rest, in order, at out (room for d->n bytes), *n_out of it. Returns the
// number of pieces; *first is one of them, for the report.
typedef size_t (*FilterEdit)(FilterDoc *d, double threshold, char *out, size_t *n_out, FilterWord *first);

typedef struct {
    const char *name, *paper, *what; // what: the value (of an edit: what goes)
    double min, max;                 // kept when min <= value <= max; -INFINITY, INFINITY: no such threshold
    double (*value)(FilterDoc *d, int arg);
    FilterEdit edit;                 // instead of value; its threshold is min
    int arg;
} FilterRule;

extern const FilterRule filter_rules[];
extern const int filter_n_rules;

// Takes a text apart into d, whose arrays are used again.
void filter_rules_split(FilterDoc *d, const char *text, size_t n);
void filter_rules_free(FilterDoc *d);
// A table of the code points in \p{L} and \p{M}; free() it.
uint8_t *filter_rules_letters(void);

// Takes out later copies of spans of n_words.
size_t filter_rules_spans(FilterDoc *d, double n_words, char *out, size_t *n_out, FilterWord *first);

// What the reports read. filter.c.
typedef struct {
    char *text, *path; // an excerpt
    size_t n;
    uint64_t line;
    double value;
} FilterExample;
typedef struct {
    bool on;
    double min, max;
    FilterCounts counts;
    FilterExample *example; // (n_examples)
    int n_examples;
} FilterState;
const FilterState *filter_state(const Filter *f, int rule);

#ifdef __cplusplus
}
#endif
#endif
