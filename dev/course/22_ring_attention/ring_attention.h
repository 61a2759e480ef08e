// ring_attention: causal attention of one head, with the tokens of a sequence divided over N ranks.
#ifndef RING_ATTENTION_H
#define RING_ATTENTION_H
#include "../ranks.h"

// What a query knows of the keys that it has seen so far: o / l is its output over them, m + log(l) the logarithm of
// the sum of exp(score) over them. m is a maximum, so that no exp overflows. Before the first key m is
// -INFINITY, l and o are 0.
//
// q (Tq, D) are the queries at positions q_first, q_first + 1, ... of the sequence; k, v (Tk, D) are a block of keys
// and values at k_first, ... Adds to m (Tq), l (Tq), o (Tq, D) the keys of the block that a query may see: those at
// its own position and before. The score of a query and a key is their product / sqrt(D). A query that sees no key of
// the block keeps its state.
void attend_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                  float *m, float *l, float *o);

// Rank r has the tokens r T/N to (r+1) T/N - 1 of the T (N divides T): q, k, v, out (T/N, D). Sets out. A rank sends at
// most N-1 blocks of keys and of values. k and v stay as they are.
void ring_attention(Link *link, int T, int D, const float *q, const float *k, const float *v, float *out);
#endif
