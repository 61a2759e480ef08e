// sgd: stochastic gradient descent, with or without momentum, on the CPU.
//
//   d = g + decay w;    w -= lr d                                    (no momentum)
//   d = g + decay w;    m = b1 m + d;    w -= lr m                   (momentum; PyTorch's, dampening 0)
//
// The decay goes through the gradient (L2), as PyTorch's SGD has it. Without momentum that is the same as
// decaying the weight by lr decay; with it, the decay is averaged like the rest, and nothing divides it
// afterwards, so L2 does here what it says. In Adam it does not: see adamw.c.
// The step is proportional to the gradient: a tensor whose gradients are a hundred times smaller moves a
// hundred times less. That is why transformers, whose tensors differ by that much, are not trained so.
//
// The invariant: element-wise, so a range may be cut anywhere.
//
// Rejected: Nesterov's variant (w -= lr (d + b1 m)); muon.c has it. Momentum as a mean, m = b1 m + (1 - b1) d:
// it only rescales lr by 1 - b1, and quoted learning rates are for PyTorch's form.
#include "ops/dev_cpu.h"

static void sgd(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    if (!m) {
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
        for (size_t i = 0; i < n; i++) {
            weight[i] -= u.lr * (grad[i] * u.grad_scale + u.weight_decay * weight[i]);
            grad[i] = 0;
        }
        return;
    }
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        float mi = u.beta1 * m[i] + (grad[i] * u.grad_scale + u.weight_decay * weight[i]);
        m[i] = mi;
        weight[i] -= u.lr * mi;
        grad[i] = 0;
    }
}

void sgd_cpu_fill(Dev *dev)
{
    dev->sgd = sgd;
}
