// lion: the sign of a mean of gradients, on the CPU.
//
//   c = b1 m + (1 - b1) g;    w -= lr (sign(c) + decay w);    m = b2 m + (1 - b2) g
//                                          (Chen et al., arXiv 2302.06675, algorithm 2; sign(0) = 0)
//
// One moment instead of two: 4 bytes a parameter. The step uses a mean that leans to the newest gradient
// (b1 = 0.9), the memory is kept longer (b2 = 0.99). Every element moves by exactly lr, so lr is 3 to 10
// times smaller than AdamW's and decay as much larger, for the same lr * decay.
//
// The invariant: element-wise, so a range may be cut anywhere. m is updated after it was used for c.
//
// Rejected: a sign taken of m itself (signSGD with momentum): the paper's search found the two betas to
// matter.
#include "ops/dev_cpu.h"

static void lion(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    float b1 = u.beta1, b2 = u.beta2, shrink = 1 - u.lr * u.weight_decay;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * u.grad_scale;
        float c = b1 * m[i] + (1 - b1) * g;
        float sign = (c > 0 ? 1.0f : 0.0f) - (c < 0 ? 1.0f : 0.0f);
        m[i] = b2 * m[i] + (1 - b2) * g;
        weight[i] = weight[i] * shrink - u.lr * sign;
        grad[i] = 0;
    }
}

void lion_cpu_fill(Dev *dev)
{
    dev->lion = lion;
}
