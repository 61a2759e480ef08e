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

// Tales are what a corpus is about. Rhymes, made of few words that come back, may stand in front of them in
// the training text (doc/log.md says what is known of their use).
typedef enum { STORIES_TALES, STORIES_RHYMES } StoriesKind;

// What stands after every story in a corpus file: FILE = (story separator)*, with nothing else between.
#define STORIES_SEPARATOR "<|endoftext|>"
// Tales to train on have numbers from 0, tales to validate on from here, rhymes from there.
#define STORIES_VAL_FIRST ((uint64_t)1 << 40)
#define STORIES_RHYME_FIRST ((uint64_t)1 << 41)

// The grammar of one kind. Free it with grammar_free.
Grammar *stories_load(StoriesKind kind);

#ifdef __cplusplus
}
#endif
#endif
