// stories: joins the plots and the word lists into one grammar. See stories.h.
//
// Everything a story is made of is data, in stories_plots.c (what happens) and stories_words.c (the words
// for it); everything that happens to that data is in grammar.c. So a new plot is a few lines of text, and
// its entropy is known without a line of code.
//
// The floor: with N stories of self-information s_i nats in b_i bytes, no model's expected loss on the
// corpus is below sum(s_i) / (number of tokens) nats per token, or sum(s_i) / (ln 2 * sum(b_i)) bits per
// byte, however it cuts the text into tokens. The separator costs nothing: where a story ends is part of
// its derivation.
//
// Rejected: sampling from a trained model (its entropy is known only to itself), and shuffled real text (no
// known floor).
#include "stories.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "stories_tables.h"

Grammar *stories_load(void)
{
    size_t n = stories_n_plots + stories_n_words;
    GrammarRule *rules = malloc(n * sizeof *rules);
    if (!rules) die("stories: out of memory");
    memcpy(rules, stories_plots, stories_n_plots * sizeof *rules);
    memcpy(rules + stories_n_plots, stories_words, stories_n_words * sizeof *rules);
    Grammar *grammar = grammar_load(rules, n);
    free(rules);
    return grammar;
}
