// filter_rules: the table behind filter.h, and the document as its rules see it.
#ifndef FILTER_RULES_H
#define FILTER_RULES_H
#include "data/prep/filter.h"
#include "base/words.h"
#ifdef __cplusplus
extern "C" {
#endif

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
