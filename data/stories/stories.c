// stories: joins a start, tales, plots, rhymes and word lists into one grammar. See stories.h.
//
// All text is data: stories_tales.c (how a tale begins and ends, and the rhymes), stories_plots.c (the plots) and
// stories_words.c (the word lists). All code is in grammar.c. So a new plot or rhyme is a few lines of text, and its
// entropy is known without new code.
//
// The two kinds share all rules and differ in the start, so rhymes and tales have the same words. Each kind is a
// grammar of its own; a corpus may contain rhymes and then tales.
//
// The floor: with N texts of self-information s_i nats in b_i bytes, no model's expected loss on the
// corpus is below sum(s_i) / (number of tokens) nats per token, or sum(s_i) / (ln 2 * sum(b_i)) bits per
// byte, with any tokenizer. The separator has no entropy: where a text ends is part of its derivation.
//
// Rejected: sampling from a trained model (it would need that model to compute the entropy), and shuffled real text (no
// known floor).
#include "data/stories/stories.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

Grammar *stories_load(StoriesKind kind)
{
    const GrammarRule start = {"story", kind == STORIES_TALES ? "[tale]" : "[rhyme]"};
    const struct {
        const GrammarRule *rules;
        size_t n;
    } parts[] = {
        {&start, 1}, // the first rule is the start
        {stories_tales, stories_n_tales},
        {stories_plots, stories_n_plots},
        {stories_rhymes, stories_n_rhymes},
        {stories_words, stories_n_words},
    };
    enum { N_PARTS = sizeof parts / sizeof *parts };
    size_t total = 0, n = 0;
    for (size_t i = 0; i < N_PARTS; i++) total += parts[i].n;
    GrammarRule *rules = malloc(total * sizeof *rules);
    if (!rules) die("stories: out of memory");
    for (size_t i = 0; i < N_PARTS; n += parts[i++].n)
        memcpy(rules + n, parts[i].rules, parts[i].n * sizeof *rules);
    Grammar *grammar = grammar_load(rules, total);
    free(rules);
    return grammar;
}
