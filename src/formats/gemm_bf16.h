// gemm_bf16: products of bf16 matrices by the processor's bf16 instruction (AVX512-BF16), summed in fp32.
//
//   C (M, N) = op(A) (M, K) op(B) (K, N) [+ C],   A and B bf16, C fp32; op and leading dimensions as in gemm.h
//
// The bits of an element are those of this loop, for every size, position in C and number of threads (only the payload
// of a NaN is open). flush(x) is x, or a zero of its sign where |x| < 2^-126:
//
//   float c = add ? C[m][n] : 0;
//   for (k = 0; k < K; k++) c = flush(fmaf(flush(A[m][k]), flush(B[k][n]), flush(c)));
//   C[m][n] = c;
//
// So they are the bits of gemm() on the widened operands with alpha 1 and beta 0 or 1, as long as no operand and no sum
// on the way is a denormal number; and a sum cut in two calls has the bits of one. Against the exact sum
//
//   |computed - exact| <= gamma(K) sum_k |a_k b_k|  +  2^-126 (K + 1 + sum_k (|a_k| + |b_k|))
//
// with gamma as in doc/gemm.md. The second term is what flushing may lose.
#ifndef GEMM_BF16_H
#define GEMM_BF16_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// Of a function that uses the instruction: the rest of the build may be for an older processor.
#if defined(__x86_64__)
#define GEMM_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#endif

// Whether this processor has the instruction (asked at run time, so one build serves all). The functions below need it.
bool gemm_bf16_runs(void);

// The largest block of C that it works on at a time, and the part of it that it keeps in registers.
enum { GEMM_BF16_MC = 264, GEMM_BF16_MR = 12, GEMM_BF16_NR = 32 };

// On the calling thread alone, which may be one of a parallel region. Needs 320 KiB of its stack and no other memory.
void gemm_bf16_serial(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, const uint16_t *A, size_t lda,
                      const uint16_t *B, size_t ldb, bool add, float *C, size_t ldc);

// ---- operands packed once and multiplied several times, on the calling thread
//
// A is in panels of GEMM_BF16_MR rows, B in panels of GEMM_BF16_NR columns; panel i begins at to + i * stride. A unit
// of 32 bits holds two steps of the sum, k (even) in its upper half and k + 1 in its lower one. Unit u of a panel's row
// (column) r is at u * GEMM_BF16_MR + r (u * GEMM_BF16_NR + r), so what begins at unit u of every panel is the sum from
// k = 2u on. op(A) (M, K), op(B) (K, N) and leading dimensions are those above. Rows and columns beyond M and N are 0,
// and step K of an odd K is -0 in A and 0 in B, which adds nothing to any sum.
void gemm_bf16_pack_a(bool trans, size_t M, size_t K, const uint16_t *A, size_t lda, uint32_t *to, size_t stride);
void gemm_bf16_pack_b(bool trans, size_t N, size_t K, const uint16_t *B, size_t ldb, uint32_t *to, size_t stride);
// C (M, GEMM_BF16_NR), without gaps, = A B [+ C] over `units` units, for one panel of B. Writes M rows, rounded up to a
// multiple of 4. The bits are those of the loop above.
void gemm_bf16_panel(size_t M, size_t units, const uint32_t *a, size_t stride, const uint32_t *b, bool add, float *C);
// out (cols, rows) = in (rows, cols)^T in fp32; they do not overlap.
void gemm_bf16_transpose(float *out, size_t ld_out, const float *in, size_t ld_in, size_t rows, size_t cols);

// out (N, OC) = inp (N, C) weight (OC, C)^T for few rows (dev_cpu.h): each weight is read once, in order of memory.
// A sum has 64 parts, added at the end, so the bits of an output depend neither on N nor on the threads, but they are
// not those of gemm_bf16_serial.
void gemm_bf16_few_rows(int threads, float *out, const uint16_t *inp, const uint16_t *weight, size_t N, size_t C,
                        size_t OC);

// For measuring what the processor can do: runs the instruction 240 `times` times with all operands in registers, on
// the calling thread; returns the multiplications and additions that these were.
double gemm_bf16_loop(size_t times);

#ifdef __cplusplus
}
#endif
#endif
