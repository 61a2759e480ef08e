// loss: softmax and cross-entropy in one pass per row, on the CPU.
//
//   loss = log(sum_v exp(z_v - max)) + max - z_target,   dz_v = scale (softmax_v - [v = target])
//
// The probabilities are never stored: dz is written over the logits. A target below 0 is not counted:
// loss 0, gradient 0.
// When the vocabulary is divided over ranks, the same takes three steps, and the ranks exchange three numbers per row:
// the largest logit, the sum of exponentials, the target's logit. These are the xent_ entries; tp.c combines them.
//
// The invariant: scale is 1 / (number of valid tokens of the whole global batch), chosen by the caller,
// so that micro-batches with different numbers of valid tokens weigh by their tokens. NaN and Inf logits
// give a NaN loss.
#include "ops/dev_cpu.h"

#include "ops/vmath.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

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

// ---- the three steps

static void xent_max(Dev *dev, float *top, const X *logits, size_t N, size_t V)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        const float *z = (const float *)logits + n * V;
        float most = z[0];
#pragma omp simd reduction(max : most)
        for (size_t v = 0; v < V; v++) most = z[v] > most ? z[v] : most;
        top[n] = most;
    }
}

// Sum of exp(z - top) in a fixed number of lanes, so that neither the compiler nor the alignment of z decides the
// order.
static float sum_exp(const float *z, size_t n, float top)
{
    float lane[LANES] = {0};
    for (size_t v = 0; v < n; v += LANES) {
        size_t w = n - v < LANES ? n - v : LANES;
#pragma omp simd
        for (size_t i = 0; i < w; i++) lane[i] += vmath_exp(z[v + i] - top);
    }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

static float sum_parts(const float *z, float top, DevParts parts, size_t p, size_t n)
{
    size_t left = 1;
    if (n > 1) {
        while (2 * left < n) left *= 2;
        float first = sum_parts(z, top, parts, p, left);
        return first + sum_parts(z, top, parts, p + left, n - left);
    }
    float sum = 0;
    for (size_t i = p * parts.each; i < (p + 1) * parts.each; i++)
        sum += sum_exp(z + parts.range[i].begin, parts.range[i].end - parts.range[i].begin, top);
    return sum;
}

static void xent_sum(Dev *dev, float *total, float *hit, const X *logits, const int32_t *target, const float *top,
                     size_t N, size_t V, DevParts parts)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        const float *z = (const float *)logits + n * V;
        total[n] = sum_parts(z, top[n], parts, 0, parts.n);
        hit[n] = target[n] >= 0 && (size_t)target[n] < V ? z[target[n]] : 0;
    }
}

static void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        const float *z = (const float *)logits + n * V;
        float *dz = dlogits ? (float *)dlogits + n * V : NULL, factor = scale / total[n], most = top[n];
        loss[n] = target[n] < 0 ? 0 : logf(total[n]) + (most - hit[n]);
        if (!dz) continue;
        if (target[n] < 0) {
            memset(dz, 0, V * sizeof *dz);
            continue;
        }
#pragma omp simd
        for (size_t v = 0; v < V; v++) dz[v] = vmath_exp(z[v] - most) * factor;
        if ((size_t)target[n] < V) dz[target[n]] -= scale;
    }
}

void loss_cpu_fill(Dev *dev)
{
    dev->xent_max = xent_max;
    dev->xent_sum = xent_sum;
    dev->xent_loss = xent_loss;
    dev->softmax_xent = softmax_xent;
}
