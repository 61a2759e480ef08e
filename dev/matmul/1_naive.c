// Rung 1: the definition. Each element of C is a dot product.
//
// Slow twice over: the loop over k waits for its own last addition (about 4 cycles), and it walks down a
// column of B, a new cache line at each step, of which it uses 4 bytes of 64.
#include "ladder.h"

#include <math.h>

void ladder_naive(float *C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads)
{
    (void)threads;
    for (size_t m = 0; m < M; m++)
        for (size_t n = 0; n < N; n++) {
            float sum = 0;
            for (size_t k = 0; k < K; k++) sum = fmaf(A[m * K + k], B[k * N + n], sum);
            C[m * N + n] = sum;
        }
}
