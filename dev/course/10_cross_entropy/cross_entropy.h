// cross_entropy: the loss of a language model and its gradient, in one array.
#ifndef CROSS_ENTROPY_H
#define CROSS_ENTROPY_H
#include <stddef.h>
#include <stdint.h>

// logits (N, V): a row of V scores for each of N tokens, row after row. target (N): the right class of each row, in
// 0 .. V - 1; a target below 0 (any, not only -1) is not counted. N and V are at least 1.
//
// Returns the mean, over the counted rows, of -log softmax(row)[target], in nats. With no counted row: 0.
// On return logits holds the gradient of that mean with respect to the logits; rows that are not counted hold zeros.
// No other array of N V numbers is needed. Logits are finite, but may be as large as 1e4 in size.
double cross_entropy(float *logits, const int32_t *target, size_t N, size_t V);
#endif
