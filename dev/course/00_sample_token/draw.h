// draw: the next token from a model's logits.
#ifndef DRAW_H
#define DRAW_H
#include <stddef.h>

// One of the tokens 0 .. V - 1, V > 0, from logits (V), of which some, but not all, may be -INFINITY; none is NaN.
//   temperature  divides the logits; 0: a token with the largest logit
//   top_k        only the k tokens with the largest logits; 0: all
//   top_p        of those, the fewest, largest first, whose probabilities, relative to all that top_k kept, sum to
//                top_p or more; in (0, 1], 1: all
//   u            a random number in [0, 1). Over uniform u each kept token has its probability, relative to all kept.
// A token of probability 0 is never drawn. Which u gives which token is up to you, and so is which of equal logits
// top_k or top_p keeps.
size_t draw_token(const float *logits, size_t V, double temperature, size_t top_k, double top_p, double u);
#endif
