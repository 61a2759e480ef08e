// recipe: a preparation of data as a file, from raw text to shuffled shards, and the run of it.
//
// Stages in this order, each in a folder of its own below `out`: documents (read, filter), exact, near, contamination,
// tokenizer, runs (encode), shards. Those that the recipe does not ask for are left out. The same recipe and input give
// the same bytes, whatever the number of ranks and threads and however often the program was killed and started again.
#ifndef RECIPE_H
#define RECIPE_H
#include "data/prep/corpus.h"
#include "base/config.h"
#include "comm/comm.h"

#include <stdbool.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// The keys of the file (recipe.c): [section] and key are the two halves of a member's name.
typedef struct {
    char recipe_out[CONFIG_TEXT]; // as given in the file; a relative one is prefixed with the file's folder
    long recipe_seed, recipe_threads, recipe_memory, recipe_max_document; // memory, max_document, unit: MiB
    double recipe_unit;
    char filter_rules[CONFIG_TEXT], filter_set[CONFIG_TEXT], filter_bad_words[CONFIG_TEXT];
    bool dedup_exact, dedup_near;
    double dedup_threshold;
    long dedup_ngram, dedup_permutations;
    char contamination_evaluation[CONFIG_TEXT], contamination_field[CONFIG_TEXT];
    long contamination_ngram, contamination_min_grams;
    char tokenizer_path[CONFIG_TEXT], tokenizer_eot[CONFIG_TEXT], tokenizer_pattern[CONFIG_TEXT];
    long tokenizer_vocab, tokenizer_min_frequency;
    double tokenizer_sample, shards_val;
    int shards_dtype; // DatasetType
    long shards_tokens;
    Sources sources;
} Recipe;

// Reads a file; then options "--section.key=value" (n_options), whose paths are relative to the working directory, not
// to the file. Paths of input come out absolute. Dies with FILE:LINE, or the option, if a key is unknown, given twice,
// out of range or without effect.
Recipe *recipe_load(const char *path, char *const *option, int n_options);
void recipe_free(Recipe *r);
// Runs the stages that are not done yet, on all ranks of world (NULL: on this process alone). The report goes to `out`
// and to report.json and report.html in the recipe's folder; progress to stderr; all three from rank 0.
int recipe_run(const Recipe *r, Comm *world, FILE *out); // 0, or the exit status of corpus_judge
void recipe_print_keys(FILE *out); // a table of all keys, in Markdown

#ifdef __cplusplus
}
#endif
#endif
