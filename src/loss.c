// loss: softmax and cross-entropy in one pass per row, on the CPU.
//
//   loss = log(sum_v exp(z_v - max)) + max - z_target,   dz_v = scale (softmax_v - [v = target])
//
// The probabilities are never stored: dz is written over the logits. A target below 0 is not counted:
// loss 0, gradient 0.
// The invariant: scale is 1 / (number of valid tokens of the whole global batch), chosen by the caller,
// so that micro-batches with different numbers of valid tokens weigh by their tokens. NaN and Inf logits
// give a NaN loss.
#include "dev_cpu.h"

#include "vmath.h"

#include <math.h>
#include <string.h>

static void xent_row(float *loss, float *dz, const float *z, int32_t target, size_t V, float scale)
{
    if (target < 0) {
        *loss = 0;
        if (dz) memset(dz, 0, V * sizeof *dz);
        return;
    }
    float top = z[0], total = 0, z_target = z[target];
#pragma omp simd reduction(max : top)
    for (size_t v = 0; v < V; v++) top = z[v] > top ? z[v] : top;
    if (dz) {
#pragma omp simd reduction(+ : total)
        for (size_t v = 0; v < V; v++) {
            float e = vmath_exp(z[v] - top);
            dz[v] = e;
            total += e;
        }
        float factor = scale / total;
#pragma omp simd
        for (size_t v = 0; v < V; v++) dz[v] *= factor;
        dz[target] -= scale;
    } else {
#pragma omp simd reduction(+ : total)
        for (size_t v = 0; v < V; v++) total += vmath_exp(z[v] - top);
    }
    *loss = logf(total) + (top - z_target);
}

static void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target,
                         size_t N, size_t V, float scale)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++)
        xent_row(loss + n, dlogits ? (float *)dlogits + n * V : NULL, (const float *)logits + n * V, target[n], V,
                 scale);
}

void loss_cpu_fill(Dev *dev)
{
    dev->softmax_xent = softmax_xent;
}
