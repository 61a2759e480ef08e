// sgd: stochastic gradient descent, with or without momentum, on the GPU. The twin of sgd.c, where the formulas are.
//
// One pass over memory; element-wise, so any cut gives the same bits.
#include "ops/ops_gpu.h"

namespace {

struct Sgd {
    float *weight, *m, *grad; // m may be null
    Update u;
    template <int W> __device__ void run(size_t i) const
    {
        float w[W], g[W], mi[W] = {};
        load<W>(w, weight + i), load<W>(g, grad + i);
        if (m) load<W>(mi, m + i);
        for (int k = 0; k < W; k++) {
            mi[k] = u.beta1 * mi[k] + (g[k] * u.grad_scale + u.weight_decay * w[k]); // without m: beta1 0
            w[k] -= u.lr * mi[k];
            g[k] = 0;
        }
        if (m) store<W>(m + i, mi);
        store<W>(weight + i, w), store<W>(grad + i, g);
    }
};

void sgd(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    elements<4>(ops_gpu(dev), n, aligned(weight, m, grad), Sgd{weight, m, grad, u});
}

} // namespace

void sgd_cuda_fill(Dev *dev)
{
    dev->sgd = sgd;
}
