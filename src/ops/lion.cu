// lion: the sign of a mean of gradients, on the GPU. The twin of lion.c, where the formulas are.
//
// One pass over memory; element-wise, so any cut gives the same bits.
#include "ops/ops_gpu.h"

namespace {

struct Lion {
    float *weight, *m, *grad;
    Update u;
    template <int W> __device__ void run(size_t i) const
    {
        float w[W], g[W], mi[W];
        load<W>(w, weight + i), load<W>(g, grad + i), load<W>(mi, m + i);
        for (int k = 0; k < W; k++) {
            float d = g[k] * u.grad_scale, c = u.beta1 * mi[k] + (1 - u.beta1) * d;
            float sign = (c > 0 ? 1.0f : 0.0f) - (c < 0 ? 1.0f : 0.0f);
            mi[k] = u.beta2 * mi[k] + (1 - u.beta2) * d;
            w[k] = w[k] * (1 - u.lr * u.weight_decay) - u.lr * sign;
            g[k] = 0;
        }
        store<W>(m + i, mi), store<W>(weight + i, w), store<W>(grad + i, g);
    }
};

void lion(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    elements<4>(ops_gpu(dev), n, aligned(weight, m, grad), Lion{weight, m, grad, u});
}

} // namespace

void lion_cuda_fill(Dev *dev)
{
    dev->lion = lion;
}
