// gossip: sentences about facts whose frequencies follow Zipf's law, with their exact entropy.
//
// "Hannah Norton sells nine plums." A text is one such sentence. It is about one of GOSSIP_PEOPLE people, drawn with
//
//     p(k) = k^-GOSSIP_ZIPF / sum over all ranks of rank^-GOSSIP_ZIPF
//
// with one of GOSSIP_VERBS verbs and one of GOSSIP_NUMBERS numbers, all equally likely. The person of each rank, and
// the object of each person and verb, were drawn once and are the same in all texts: these are the facts to memorise.
// The number cannot be known. So for a model that knows all facts
//
//     entropy of a text = - sum_k p(k) log p(k) + log GOSSIP_VERBS + log GOSSIP_NUMBERS        nats
//
// Scaling laws are measured on it (doc/scaling_fit.md): a model that knows the people up to a rank has a remaining loss
// that is a power of that rank.
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
// The entropy of a text, in nats.
double gossip_entropy(const Gossip *gossip);

#ifdef __cplusplus
}
#endif
#endif
