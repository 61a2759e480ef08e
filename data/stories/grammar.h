// grammar: a probabilistic grammar with memory, that writes texts and reads them back.
//
// A grammar is a table of rules. A rule is a name and a body; the body lists alternatives, and writing the
// rule means choosing one of them. The notation of a body:
//   red | dark blue      two alternatives (spaces around | do not count; _ is a space that does)
//   3* often             an alternative of weight 3 (the others weigh 1)
//   [animal]             write the rule animal here
//   [hero=name]          write the rule name, and remember the word chosen as `hero`
//   [hero]               write the remembered word again
//   [hero.he]            write the rule he.CLASS, where CLASS is the rule whose list the hero's word came from:
//                        he.girl or he.boy. When there is no such rule, the rule he
//   [a]                  "a" or "an", as the next word needs
//   [Animal] [Hero.he]   the same with a capital first letter
//   “ ”                  written as the plain quote "
// A remembered word is never one that another name of the same text already holds. A rule all of whose
// alternatives are plain words, or lists of such words ([girl] | [boy]), is a word list. In a word list an
// alternative that names another list weighs as much as that list has words: all words are equally likely.
#ifndef GRAMMAR_H
#define GRAMMAR_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *name, *body;
} GrammarRule;

typedef struct Grammar Grammar;

// A text and its self-information. `bytes` grows as needed and may be used again; start from zeros.
typedef struct {
    char *bytes; // not NUL-terminated
    size_t n_bytes, cap_bytes;
    size_t n_choices;
    double nats; // -log of the product of the probabilities of all choices made
} GrammarText;

// What reading a text back finds.
typedef struct {
    uint64_t derivations; // in how many ways the grammar writes exactly this text
    double nats;          // -log of the sum of their probabilities; infinity when there is none
    size_t reached;       // bytes of the text that some unfinished derivation matched
} GrammarScore;

// Reads a table of n rules; the first is the start. Dies on an unknown name, a name given twice, a bad
// bracket, a rule that contains itself, or remembering something that is not a word.
Grammar *grammar_load(const GrammarRule *rules, size_t n);
void grammar_free(Grammar *grammar);

// Writes text number `index` (below 2^52) of `seed`: a function of these two alone. text->bytes belongs to
// the caller, who frees it.
void grammar_write(const Grammar *grammar, uint64_t seed, uint64_t index, GrammarText *text);

// Finds every derivation of exactly this text. Time is about the number of choices times the alternatives of each.
GrammarScore grammar_score(const Grammar *grammar, const char *text, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
