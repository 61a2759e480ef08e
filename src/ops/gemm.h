// gemm: our own fp32 matrix product, which adds along k in ascending order whatever the blocking.
//
//   C (M, N) = alpha * op(A) (M, K) op(B) (K, N) + beta * C,   op: as it is, or transposed
//
// Row-major with leading dimensions: op(A)[m][k] is A[m * lda + k], or A[k * lda + m] with trans_a;
// op(B)[k][n] is B[k * ldb + n], or B[n * ldb + k] with trans_b. C overlaps neither A nor B.
//
// The bits of an element are those of this loop, on every machine and for every size, position in C and
// number of threads (only the payload of a NaN is open):
//
//   float c = beta == 0 ? 0 : beta * C[m][n];                  // with beta 0, C is never read
//   for (k = 0; k < K; k++) c = fmaf(alpha * op(A)[m][k], op(B)[k][n], c);
//   C[m][n] = c;
//
// So a product over K1 + K2 terms is one over the first K1 with beta 0 followed by one over the rest with
// beta 1, to the bit: a gradient summed over micro-batches in their order does not depend on their size.
#ifndef GEMM_H
#define GEMM_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// On `threads` threads; each computes its own tiles of C.
void gemm(int threads, bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A,
          size_t lda, const float *B, size_t ldb, float beta, float *C, size_t ldc);

// On the calling thread alone, which may be one of a parallel region. Needs 320 KiB of its stack and no
// other memory.
typedef void Gemm(bool trans_a, bool trans_b, size_t M, size_t N, size_t K, float alpha, const float *A, size_t lda,
                  const float *B, size_t ldb, float beta, float *C, size_t ldc);
Gemm gemm_serial;

// The same of operands that are first rounded to TF32 (10 bits of mantissa, to nearest, ties to even): alpha multiplies
// the rounded A. With alpha 1 a product of two has 22 bits, so only the sums round.
Gemm gemm_tf32;

// How to cut C (M, N) into equal tiles, one a thread at a time, so that the slowest thread is done soonest: multiples
// of `unit`, at most `most`. The grid may depend on the number of threads, because the bits of a product do not.
typedef struct {
    size_t h, w;
} GemmTile;
GemmTile gemm_cut(size_t M, size_t N, size_t threads, GemmTile unit, GemmTile most);
// The tile that gemm cuts C into, for callers that do something else with each tile too.
GemmTile gemm_tile(size_t M, size_t N, int threads);

// Whether this build has a kernel in vectors: without one a BLAS is many times as fast.
bool gemm_has_vectors(void);

// The vectors that this build uses and the tile of C that it keeps in registers: "AVX-512, 12 x 32".
const char *gemm_kernel(void);

#ifdef __cplusplus
}
#endif
#endif
