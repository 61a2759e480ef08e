// stories_tables: the two halves of the story grammar, for stories.c to join. Layer 0.
#ifndef STORIES_TABLES_H
#define STORIES_TABLES_H
#include "grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

extern const GrammarRule stories_words[]; // word lists and the forms that go with them
extern const size_t stories_n_words;
extern const GrammarRule stories_plots[]; // plots and sentences; the first is the start
extern const size_t stories_n_plots;

#ifdef __cplusplus
}
#endif
#endif
