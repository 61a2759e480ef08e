// kernels: what the CUDA files offer to the host, one function for each op of dev.h that has a kernel.
//
// Pointers are device memory, `stream` orders the work, and nothing waits. X is float or __nv_bfloat16, in attention,
// norm and loss also __half. Shapes and meanings are those of the entries of dev.h. Block sizes are arguments, so
// that tests can shrink them: `threads` is a multiple of 32 up to 1024.
#ifndef KERNELS_H
#define KERNELS_H
#ifdef __cplusplus
#include "ops/dev.h"
#include "base/gpu.h"

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
// attention_forward. `rows` (1 to 32) queries a block, a warp each; D up to 128. shape.first is device memory too.
template <class X>
void attention_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                            cudaStream_t stream);
// attention_backward. delta: (B, H, Tq) of scratch, which becomes the row sums of dout * out.
template <class X>
void attention_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse,
                             const X *q, const X *k, const X *v, AttnShape shape, int rows, cudaStream_t stream);
template <class X>
void attention_delta_cuda(float *delta, const X *dout, const X *out, AttnShape shape, int rows, cudaStream_t stream);
// attention_part_forward and _backward. delta as above.
template <class X>
void attention_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                 cudaStream_t stream);
template <class X>
void attention_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                                  const float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                  cudaStream_t stream);
// The same on tensor cores (flash.cu), for 16-bit X. A block has 16 * warps (1 to 4) rows and passes over tiles of
// `columns` (16 or 64). flash_takes: head sizes up to 128 in multiples of 8, rows that start at multiples of 16 bytes.
// With other shapes these functions stop the program: take the plain kernels.
bool flash_takes(const void *q, const void *k, const void *v, AttnShape shape);
template <class X>
void flash_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int warps, int columns,
                        cudaStream_t stream);
// dout as q.
template <class X>
void flash_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse, const X *q,
                         const X *k, const X *v, AttnShape shape, int warps, int columns, cudaStream_t stream);
// Of pieces: out, dq, dk and dv at multiples of 8 bytes.
template <class X>
void flash_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int warps,
                             cudaStream_t stream);
template <class X>
void flash_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                              const float *lse, const X *q, const X *k, const X *v, AttnShape shape, int warps,
                              cudaStream_t stream);
#endif
#endif
