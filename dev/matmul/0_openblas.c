// Rung 0: what the vendor's library does. The goal.
#include "ladder.h"

#include <cblas.h>

void openblas_set_num_threads(int threads);

void ladder_openblas(float *C, const float *A, const float *B, size_t M, size_t N, size_t K, int threads)
{
    openblas_set_num_threads(threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)M, (int)N, (int)K, 1, A, (int)K, B, (int)N, 0,
                C, (int)N);
}
