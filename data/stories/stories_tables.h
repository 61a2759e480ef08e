// stories_tables: the parts of the story grammar, for stories.c to join.
#ifndef STORIES_TABLES_H
#define STORIES_TABLES_H
#include "data/stories/grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

extern const GrammarRule stories_tales[]; // the rule tale, and what all tales share
extern const size_t stories_n_tales;
extern const GrammarRule stories_plots_friend[]; // plots with the hero and a friend
extern const size_t stories_n_plots_friend;
extern const GrammarRule stories_plots_hero[]; // plots with the hero, grown-ups and animals
extern const size_t stories_n_plots_hero;
extern const GrammarRule stories_rhymes[]; // the rule rhyme, and the refrains of the tales
extern const size_t stories_n_rhymes;
extern const GrammarRule stories_words[]; // word lists and the forms that go with them
extern const size_t stories_n_words;

#ifdef __cplusplus
}
#endif
#endif
