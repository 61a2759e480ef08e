// stories: short English stories from a probabilistic grammar, with their exact entropy. Layer 0.
//
// A story is text number i of the grammar under a seed (grammar_write), some 60 to 160 words in lines that
// each end with a newline. -log p of each story is known exactly (grammar.h), so the corpus has a known
// floor: no model can have a lower expected loss on it.
#ifndef STORIES_H
#define STORIES_H
#include "grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

// What stands after every story in a corpus file: FILE = (story separator)*, with nothing else between.
#define STORIES_SEPARATOR "<|endoftext|>"
// Training stories have numbers from 0, validation stories from here.
#define STORIES_VAL_FIRST ((uint64_t)1 << 40)

// The grammar. Free it with grammar_free.
Grammar *stories_load(void);

#ifdef __cplusplus
}
#endif
#endif
