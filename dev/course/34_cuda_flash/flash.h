// flash: attention on a GPU that never stores the scores.
#ifndef FLASH_H
#define FLASH_H
#include "dev/course/matrix.h" // Matrix: a pointer whose reads are counted

// Causal attention, each head for itself. q, k, v, out (heads, T, D), lse (heads, T) in the GPU's memory; heads and T
// >= 1; D is 32 or 64. Query t sees the keys 0 .. t:
//   s_j = q_t . k_j / sqrt(D),   out_t = sum_j exp(s_j) v_j / sum_j exp(s_j),   lse_t = log(sum_j exp(s_j))
// Allocates nothing that grows with T squared, and reads at most heads T T D / 4 elements of k and v together where 16
// divides T. Puts the work into the default stream.
void flash_attention(float *out, float *lse, Matrix q, Matrix k, Matrix v, int heads, int T, int D);
#endif
