// Rung 6: the product that training uses in deterministic mode. See src/ops/gemm.c.
//
// Rung 5, and: the blocks of C are shared out to threads; packing transposes with vectors, so that A and B
// may be given either way round; the multiply-add is fused by name and not by the compiler's leave.
#include "ladder.h"

#include "ops/gemm.h"

void ladder_threaded(float *C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads)
{
    gemm(threads, false, false, M, N, K, 1, A, K, B, N, 0, C, N);
}
