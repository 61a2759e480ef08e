// kernels: what the CUDA files offer to the host, one function for each op of dev.h that has a kernel. Layer 2.
//
// Pointers are device memory, `stream` orders the work, and nothing waits. X is float or __nv_bfloat16. Shapes and
// meanings are those of the entries of dev.h. Block sizes are arguments, so that tests can shrink them: `threads` is a
// multiple of 32 up to 1024.
#ifndef KERNELS_H
#define KERNELS_H
#ifdef __cplusplus
#include "dev.h"
#include "gpu.h"

// norm_forward. `rows` (1 to 32) rows a block, a warp each; centred: LayerNorm, otherwise RMSNorm.
template <class X>
void norm_forward_cuda(X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight, const X *bias,
                       int N, int C, bool centred, float eps, int rows, cudaStream_t stream);
// gelu_forward.
template <class X> void gelu_forward_cuda(X *out, const X *pre, size_t n, int blocks, int threads, cudaStream_t stream);
// softmax_xent. One block of `threads` a row.
template <class X>
void softmax_xent_cuda(float *loss, X *dlogits, const X *logits, const int32_t *target, int N, int V, float scale,
                       int threads, cudaStream_t stream);
// adamw, and the weight rounded to X in `copy` (may be null).
template <class X>
void adamw_cuda(float *weight, X *copy, float *m, float *v, float *grad, size_t n, Update u, int blocks, int threads,
                cudaStream_t stream);
#endif
#endif
