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

// The same with q, k, v (heads, T, 16) in bf16: D is 16. Scores, sums, out (heads, T, 16) and lse (heads, T) stay fp32;
// the weights exp(s_j - top) may be rounded to bf16 before they are multiplied with the values.
typedef __nv_bfloat16 B16;
enum { TENSOR_D = 16 };
void flash_attention_bf16(float *out, float *lse, const B16 *q, const B16 *k, const B16 *v, int heads, int T);

// Two numbers rounded to bf16 as one word, the first in its low half: a register of a tensor core's operand.
static __device__ inline uint32_t pack_bf16(float first, float second)
{
    return (uint32_t)__bfloat16_as_ushort(__float2bfloat16(first)) |
           (uint32_t)__bfloat16_as_ushort(__float2bfloat16(second)) << 16;
}
#endif
