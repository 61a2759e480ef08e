// embedding: tokens and positions to vectors, and the gradients of both tables.
#ifndef EMBEDDING_H
#define EMBEDDING_H
#include <stddef.h>
#include <stdint.h>

// B sequences of T tokens, row-major (B, T), each at least 0 and below V. token_table (V, C), position_table (maximum
// length, C), of which the first T rows are used. Writes out (B, T, C): the row of the token plus the row of its place
// in the sequence.
void embed_forward(float *out, const int32_t *token, const float *token_table, const float *position_table, size_t B,
                   size_t T, size_t C);
// dout (B, T, C): the gradient of out. Adds to d_token (V, C) and d_position (maximum length, C), the gradients of the
// tables.
void embed_backward(float *d_token, float *d_position, const float *dout, const int32_t *token, size_t B, size_t T,
                    size_t C);
#endif
