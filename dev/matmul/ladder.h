// ladder: the one interface of the rungs of dev/matmul.
//
//   C (M, N) = A (M, K) B (K, N), row-major, no gaps between rows
//
// Every rung but OpenBLAS adds along k in ascending order with fused multiply-adds: the loops move, the
// sum of an element does not, so all of them give the same bits. Only the last two know about threads.
#ifndef LADDER_H
#define LADDER_H
#include <stddef.h>

typedef void Rung(float *C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads);

Rung ladder_openblas, ladder_naive, ladder_reordered, ladder_tiled, ladder_packed, ladder_simd, ladder_threaded;

static inline size_t ladder_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif
