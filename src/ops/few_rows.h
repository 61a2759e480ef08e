// few_rows: the product of a few rows with a weight matrix, at the speed of memory.
//
//   out (N, OC) = inp (N, C) weight (OC, C)^T + bias,   N at most FEW_ROWS
//
// Where text is written a token at a time N is 1: each weight is read for 2 flops, so the time is that of reading the
// weights once. A gemm copies (packs) its operands into another order first, which helps when each number is used many
// times. Here a thread reads its rows of the weight as they stand in memory, one after another: the order that the
// processor's prefetcher follows best. FEW_SUMS partial sums, because one addition waits for the one before it. Further
// rows of inp find the row of the weight in the cache.
//
// The bits of an output depend neither on the number of threads nor on N.
#ifndef FEW_ROWS_H
#define FEW_ROWS_H
#include <stddef.h>
#include <stdint.h>

enum { FEW_ROWS = 8, FEW_SUMS = 64 };

static inline float few_rows_fp32(float w)
{
    return w;
}

static inline float few_rows_bf16(uint16_t w)
{
    union { uint32_t bits; float number; } x = {(uint32_t)w << 16};
    return x.number;
}

// few_rows_of_NUMBER, for weights of a type that few_rows_NUMBER turns into a float.
#define FEW_ROWS_OF(number, Weight)                                                                                    \
    static inline float few_rows_dot_##number(const float *restrict x, const Weight *restrict w, size_t C)             \
    {                                                                                                                  \
        float part[FEW_SUMS] = {0}, sum = 0;                                                                           \
        size_t c = 0;                                                                                                  \
        for (; c + FEW_SUMS <= C; c += FEW_SUMS) {                                                                     \
            _Pragma("omp simd") for (size_t i = 0; i < FEW_SUMS; i++)                                                  \
                part[i] += x[c + i] * few_rows_##number(w[c + i]);                                                     \
        }                                                                                                              \
        for (size_t i = 0; c + i < C; i++) part[i] += x[c + i] * few_rows_##number(w[c + i]);                          \
        _Pragma("omp simd reduction(+ : sum)") for (size_t i = 0; i < FEW_SUMS; i++) sum += part[i];                   \
        return sum;                                                                                                    \
    }                                                                                                                  \
    static inline void few_rows_of_##number(int threads, float *out, const float *inp, const Weight *weight,           \
                                            const float *bias, size_t N, size_t C, size_t OC)                          \
    {                                                                                                                  \
        _Pragma("omp parallel for schedule(static) num_threads(threads)") for (size_t o = 0; o < OC; o++)              \
            for (size_t n = 0; n < N; n++)                                                                             \
                out[n * OC + o] = few_rows_dot_##number(inp + n * C, weight + o * C, C) + (bias ? bias[o] : 0);        \
    }
#endif
