// ladder: the one interface of the rungs of dev/attention.
//
//   out = softmax(q k^T / sqrt(D)) v, causal, every head for itself; all four arrays (B, T, H, D), bf16
//
// Query t sees keys 0 .. t: T (T + 1) / 2 pairs a head, and 4 D operations a pair. What the rungs differ in is how
// many bytes they fetch for a pair, and which units of the processor multiply. D is 64 or 128, T what it likes.
#ifndef LADDER_H
#define LADDER_H
#include "base/gpu.h"

#include <cstring>

typedef __nv_bfloat16 B16;
struct LadderShape {
    int B, T, H, D;
};

// Puts the work into the stream. score (B, H, T, T) is for the first rung, the only one that keeps it. Whether the
// rung takes the shape.
typedef bool Rung(B16 *out, const B16 *q, const B16 *k, const B16 *v, float *score, LadderShape s,
                  cudaStream_t stream);
Rung ladder_naive, ladder_fused, ladder_online, ladder_tensor, ladder_async, ladder_flash;

// Row t of head h of sequence b; the next row of the head is H D numbers after it.
__host__ __device__ inline size_t ladder_row(LadderShape s, int b, int h, int t)
{
    return (((size_t)b * (size_t)s.T + (size_t)t) * (size_t)s.H + (size_t)h) * (size_t)s.D;
}

__host__ __device__ inline int ladder_min(int a, int b)
{
    return a < b ? a : b;
}

// Blocks for every `rows` queries of every head: blockIdx.x counts backwards, the longest rows first.
inline dim3 ladder_grid(LadderShape s, int rows)
{
    return dim3((unsigned)((s.T + rows - 1) / rows), (unsigned)s.H, (unsigned)s.B);
}
__device__ inline int ladder_first_query(int rows)
{
    return ((int)gridDim.x - 1 - (int)blockIdx.x) * rows;
}

__device__ inline float ladder_dot(const float *a, const B16 *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * (float)b[i];
    return sum;
}

// Two numbers, rounded, as one word: low in the low half, as the tensor cores want it.
__device__ inline uint32_t ladder_pack(float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t word;
    memcpy(&word, &pair, sizeof word);
    return word;
}

#endif
