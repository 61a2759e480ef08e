// Rung 3: rung 2 on tiles of B that stay in cache.
//
// A tile of (KT, NT) numbers of B, 32 KiB, is used by all rows of A before the next one is touched: memory
// is read M times less often. The sum of an element is stored in C between two tiles of k and continues from
// there, so its order and its bits do not change.
#include "ladder.h"

#include <math.h>
#include <string.h>

enum { KT = 16, NT = 512 };

void ladder_tiled(float *restrict C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads)
{
    (void)threads;
    memset(C, 0, M * N * sizeof *C);
    for (size_t k0 = 0; k0 < K; k0 += KT)
        for (size_t n0 = 0; n0 < N; n0 += NT) {
            size_t k1 = ladder_min(k0 + KT, K), n1 = ladder_min(n0 + NT, N);
            for (size_t m = 0; m < M; m++)
                for (size_t k = k0; k < k1; k++)
                    for (size_t n = n0; n < n1; n++) C[m * N + n] = fmaf(A[m * K + k], B[k * N + n], C[m * N + n]);
        }
}
