// stories: short English stories and rhymes from a probabilistic grammar, with their exact entropy. Layer 0.
//
// A story is text number i of the grammar under a seed (grammar_write), on one line: a tale of 90 to 190 words
// or, six times as often, a rhyme of 15 to 70. -log p of each is known exactly (grammar.h), so the corpus has
// a known floor: no model can have a lower expected loss on it.
#ifndef STORIES_H
#define STORIES_H
#include "grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

// What stands after every story (tale or rhyme) in a corpus file: FILE = (story separator)*, with nothing else
// between.
#define STORIES_SEPARATOR "<|endoftext|>"
// Training stories have numbers from 0, validation stories from here.
#define STORIES_VAL_FIRST ((uint64_t)1 << 40)

// The grammar. Free it with grammar_free.
Grammar *stories_load(void);

#ifdef __cplusplus
}
#endif
#endif
