// adamw: Adam's update, with the decay on the weight or through the gradient, and the squared norm of a
// gradient, on the CPU.
//
//   m = b1 m + (1 - b1) g,   v = b2 v + (1 - b2) g^2,   w -= lr (mhat / (sqrt(vhat) + eps) + decay w)
//   mhat = m / (1 - b1^t),   vhat = v / (1 - b2^t)          (Loshchilov & Hutter, arXiv 1711.05101; PyTorch's form)
//
// The decay acts on the weight itself, not through the gradient: that is the W. With l2 it is g + decay w that
// takes g's place, and no decay besides (Adam with L2, Kingma & Ba, arXiv 1412.6980): then the pull towards
// zero is divided by sqrt(vhat) like everything else, and a weight with large gradients is hardly pulled.
// One pass over memory: read g, m, v, w; write m, v, w and a zero to g, so that the next step starts from
// clean accumulators without a pass of its own.
// The invariant: element-wise, so ZeRO may cut the range anywhere. sum_squares adds fixed ranges in a
// fixed order, in double, so that the norm's bits depend neither on threads nor on luck.
#include "ops/dev_cpu.h"

#include <math.h>

static void adamw(Dev *dev, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    float c1 = (float)(1 / (1 - pow(u.beta1, u.step))), c2 = (float)(1 / (1 - pow(u.beta2, u.step)));
    float b1 = u.beta1, b2 = u.beta2;
    float shrink = u.l2 ? 1 : 1 - u.lr * u.weight_decay, pull = u.l2 ? u.weight_decay : 0;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * u.grad_scale + pull * weight[i];
        float mi = b1 * m[i] + (1 - b1) * g;
        float vi = b2 * v[i] + (1 - b2) * g * g;
        m[i] = mi;
        v[i] = vi;
        weight[i] = weight[i] * shrink - u.lr * (mi * c1) / (sqrtf(vi * c2) + u.eps);
        grad[i] = 0;
    }
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    enum { RANGES = 256, SPAN = 1024 };
    double partial[RANGES];
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < RANGES; i++) {
        double sum = 0;
        size_t end = (i + 1) * n / RANGES;
        for (size_t begin = i * n / RANGES; begin < end; begin += SPAN) {
            size_t stop = begin + SPAN < end ? begin + SPAN : end;
            float part = 0;
#pragma omp simd reduction(+ : part)
            for (size_t j = begin; j < stop; j++) part += x[j] * x[j];
            sum += part;
        }
        partial[i] = sum;
    }
    double total = 0;
    for (size_t i = 0; i < RANGES; i++) total += partial[i];
    return total;
}

static void sum_squares_exact(Dev *dev, ExactSum *sum, const float *x, size_t n)
{
    (void)dev;
    formats_sum_squares(sum, x, n);
}

void adamw_cpu_fill(Dev *dev)
{
    dev->adamw = adamw;
    dev->sum_squares = sum_squares;
    dev->sum_squares_exact = sum_squares_exact;
}
