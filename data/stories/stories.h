// stories: short English stories from a probabilistic grammar, with their exact entropy.
//
// A story is a tale of 90 to 190 words or a rhyme of 70 to 190, on one line. Story number i of a kind is
// text number i of that kind's grammar under a seed (grammar_write). -log p of each is known exactly
// (grammar.h), so a corpus has a known floor: no model can have a lower expected loss on it.
#ifndef STORIES_H
#define STORIES_H
#include "data/stories/grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

// A corpus consists of tales. Rhymes, which repeat a few words, may come before them in the training text (doc/log.md
// has what was measured of their use).
typedef enum { STORIES_TALES, STORIES_RHYMES } StoriesKind;

// The separator after every story in a corpus file: FILE = (story separator)*, with nothing else between.
#define STORIES_SEPARATOR "<|endoftext|>"
// Tales for training have numbers from 0; tales for validation and rhymes have numbers from these on.
#define STORIES_VAL_FIRST ((uint64_t)1 << 40)
#define STORIES_RHYME_FIRST ((uint64_t)1 << 41)

// The grammar of one kind. Free it with grammar_free.
Grammar *stories_load(StoriesKind kind);

// The parts of the grammar.
extern const GrammarRule stories_tales[]; // the rule tale, and what all tales share
extern const size_t stories_n_tales;
extern const GrammarRule stories_plots[]; // the plots, which stories_tales chooses among
extern const size_t stories_n_plots;
extern const GrammarRule stories_rhymes[]; // the rule rhyme, and the refrains of the tales
extern const size_t stories_n_rhymes;
extern const GrammarRule stories_words[]; // word lists and the forms that go with them
extern const size_t stories_n_words;

#ifdef __cplusplus
}
#endif
#endif
