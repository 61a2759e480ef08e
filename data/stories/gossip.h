// gossip: facts that are heard as often as Zipf's law says, with their exact entropy.
//
// "Hannah Norton sells nine plums." A text is one such sentence. It is about one of GOSSIP_PEOPLE people, drawn with
//
//     p(k) = k^-GOSSIP_ZIPF / sum over all ranks of rank^-GOSSIP_ZIPF
//
// and says what they do with one of GOSSIP_VERBS verbs and one of GOSSIP_NUMBERS numbers, all equally likely. Who has
// which rank, and what goes with a person and a verb, was drawn once and is the same in all texts: facts to be known
// by heart. How many it is nobody can know. So whoever knows the world pays for
//
//     entropy of a text = - sum_k p(k) log p(k) + log GOSSIP_VERBS + log GOSSIP_NUMBERS        nats
//
// Scaling laws are measured on it (doc/scaling_fit.md): who knows the people up to a rank has a power of it left to
// learn.
#ifndef GOSSIP_H
#define GOSSIP_H
#include "data/stories/grammar.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { GOSSIP_PEOPLE = 9600, GOSSIP_VERBS = 8, GOSSIP_NUMBERS = 26 };
#define GOSSIP_ZIPF 1.8

typedef struct Gossip Gossip;

Gossip *gossip_load(void);
void gossip_free(Gossip *gossip);

// Writes text number `index` (below 2^52) of `seed`: a function of these two alone. text->bytes belongs to the caller,
// who frees it.
void gossip_write(const Gossip *gossip, uint64_t seed, uint64_t index, GrammarText *text);
// Reads a text back. It has one derivation, or none: each word names the choice that wrote it.
GrammarScore gossip_score(const Gossip *gossip, const char *text, size_t n_bytes);
// Of a text, in nats.
double gossip_entropy(const Gossip *gossip);

#ifdef __cplusplus
}
#endif
#endif
