// moe: tokens to their experts and back.
//
// T tokens, E experts, of which a token chooses k. Choice j of token t is element t k + j of an array (T, k).
#ifndef MOE_H
#define MOE_H

// logits (T, E). choice (T, k): the experts with the k largest logits, the largest one first; of equal ones the lower
// number first. weight (T, k): the softmax over the k chosen logits: they sum to 1.
void route(int T, int E, int k, const float *logits, int *choice, float *weight);

// How many rows an expert takes: factor times the mean number, T k / E, rounded up.
int expert_capacity(int T, int E, int k, double factor);

// Sorts the choices by expert into rows: expert 0 has rows 0 to counts[0] - 1, expert 1 the next counts[1], and so on,
// without gaps. An expert takes at most `capacity`: first the tokens whose first choice it is, in their order, then
// those whose second choice it is, ... The rest is dropped. row (T, k): the row of a choice, -1 for a dropped one. The
// order of an expert's own rows is free. Returns the number of rows.
int dispatch(int T, int E, int k, const int *choice, int capacity, int *counts, int *row);

// x (T, D) -> rows (number of rows, D): the token of each row.
void gather_rows(int T, int k, int D, const float *x, const int *row, float *rows);

// out (number of rows, D), the experts' results -> y (T, D): the sum of a token's rows times their weights. A dropped
// choice adds nothing; the other weights stay as they are.
void combine(int T, int k, int D, const float *out, const int *row, const float *weight, float *y);

// dy (T, D) -> dout (number of rows, D), dweight (T, k): 0 for a dropped choice.
void combine_backward(int T, int k, int D, const float *dy, const float *out, const int *row, const float *weight,
                      float *dout, float *dweight);
#endif
