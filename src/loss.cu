// loss: softmax and cross-entropy on the GPU. The twin of softmax_xent in loss.c.
//
//   loss = log(sum_v exp(z_v - max)) + max - z_target,   dz_v = scale (softmax_v - [v = target])
//
// One block a row. The invariant: dz may be the logits themselves. So each thread overwrites only elements that it
// alone read, and the target's logit is read before the first barrier. A target below 0 is not counted. NaN logits give
// a NaN loss: fmaxf skips them, exp does not.
#include "kernels.h"

template <class X>
__global__ void softmax_xent_kernel(float *loss, X *dlogits, const X *logits, const int32_t *target, int V, float scale)
{
    size_t row = (size_t)blockIdx.x * V;
    int t = (int)threadIdx.x, size = (int)blockDim.x, y = target[blockIdx.x];
    const X *z = logits + row;
    if (y < 0) { // the whole block
        for (int v = t; dlogits && v < V; v += size) dlogits[row + v] = X(0.0f);
        if (t == 0) loss[blockIdx.x] = 0;
        return;
    }
    float z_target = (float)z[y], top = -INFINITY, total = 0;
    for (int v = t; v < V; v += size) top = fmaxf(top, (float)z[v]);
    top = block_max(top);
    for (int v = t; v < V; v += size) total += expf((float)z[v] - top);
    total = block_sum(total);
    float factor = scale / total;
    for (int v = t; dlogits && v < V; v += size)
        dlogits[row + v] = X(expf((float)z[v] - top) * factor - (v == y ? scale : 0));
    if (t == 0) loss[blockIdx.x] = logf(total) + (top - z_target);
}

template <class X>
void softmax_xent_cuda(float *loss, X *dlogits, const X *logits, const int32_t *target, int N, int V, float scale,
                       int threads, cudaStream_t stream)
{
    if (N == 0) return;
    LAUNCH((softmax_xent_kernel<X>), (unsigned)N, (unsigned)threads, 0, stream, loss, dlogits, logits, target, V,
           scale);
}

template void softmax_xent_cuda<float>(float *, float *, const float *, const int32_t *, int, int, float, int,
                                       cudaStream_t);
template void softmax_xent_cuda<__nv_bfloat16>(float *, __nv_bfloat16 *, const __nv_bfloat16 *, const int32_t *, int,
                                               int, float, int, cudaStream_t);
