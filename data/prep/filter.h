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

#ifdef __cplusplus
}
#endif
#endif
