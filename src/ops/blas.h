// blas: which sgemm kernels OpenBLAS uses, and how fast they are.
#ifndef BLAS_H
#define BLAS_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// Call first thing in main. If OpenBLAS runs kernels below what the processor has (it does not know
// processors newer than itself, or OPENBLAS_CORETYPE is preset low), starts the program again with
// OPENBLAS_CORETYPE corrected. Also has idle OpenMP threads sleep instead of spin. PRETRAIN_BLAS=keep in
// the environment prevents both.
void blas_choose(char **argv);
// The kernel set in use ("SkylakeX"), and who chose it.
const char *blas_kernel(void);
const char *blas_reason(void);

typedef struct {
    size_t M, N, K;
} BlasShape;
// Best sgemm rate in GFLOP/s over n shapes, each timed a few times with OpenBLAS' own threading: all
// their flops by the sum of their best times. About `seconds` long.
double blas_peak(const BlasShape *shape, size_t n, int threads, double seconds);

#ifdef __cplusplus
}
#endif
#endif
