// loss: softmax and cross-entropy in one pass per row, on the CPU.
//
//   loss = log(sum_v exp(z_v - max)) + max - z_target,   dz_v = scale (p_v - [v = target]), p = softmax(z)
//
// With a cap, c_v = cap tanh(z_v / cap) stands for z_v, and dz_v is times dc_v / dz_v = 1 - (c_v / cap)^2. The capped
// logits are computed again where they are read, so they need no memory, and are not rounded where z is stored in 16 bits.
//
// The probabilities are never stored: dz is written over the logits. A target below 0 is not counted:
// loss 0, gradient 0.
// When the vocabulary is divided over ranks, the same takes three steps, and the ranks exchange three numbers per row:
// the largest logit, the sum of exponentials, the target's logit. These are the xent_ entries; tp.c combines them.
//
// The invariant: scale is 1 / (number of valid tokens of the whole global batch), chosen by the caller,
// so that micro-batches with different numbers of valid tokens weigh by their tokens. NaN and Inf logits
// give a NaN loss; with a cap, Inf is the cap.
#include "ops/dev_cpu.h"

#include "base/vmath.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

static float largest(const float *z, size_t V)
{
    float most = z[0];
#pragma omp simd reduction(max : most)
    for (size_t v = 0; v < V; v++) most = z[v] > most ? z[v] : most;
    return most;
}

// Sum of exp(z - top), z capped, in a fixed number of lanes, so that neither the compiler nor the alignment of z decides
// the order.
static float sum_exp(const float *z, size_t n, float top, float cap)
{
    float lane[LANES] = {0};
    for (size_t v = 0; v < n; v += LANES) {
        size_t w = n - v < LANES ? n - v : LANES;
        if (cap > 0) {
#pragma omp simd
            for (size_t i = 0; i < w; i++) lane[i] += vmath_exp(cap * vmath_tanh(z[v + i] / cap) - top);
        } else {
#pragma omp simd
            for (size_t i = 0; i < w; i++) lane[i] += vmath_exp(z[v + i] - top);
        }
    }
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

// dz may be z. top, of capped logits; a target >= V is not in this row.
static void row_gradient(float *dz, const float *z, int32_t target, size_t V, float scale, float top, float total,
                         float cap)
{
    float factor = scale / total, slope = 1;
    bool here = (size_t)target < V;
    if (cap > 0) {
        float t = here ? vmath_tanh(z[target] / cap) : 0;
        slope = 1 - t * t;
#pragma omp simd
        for (size_t v = 0; v < V; v++) {
            float tanh_z = vmath_tanh(z[v] / cap);
            dz[v] = vmath_exp(cap * tanh_z - top) * factor * (1 - tanh_z * tanh_z);
        }
    } else {
#pragma omp simd
        for (size_t v = 0; v < V; v++) dz[v] = vmath_exp(z[v] - top) * factor;
    }
    if (here) dz[target] -= scale * slope;
}

static void xent_row(float *loss, float *dz, const float *z, int32_t target, size_t V, float scale, float cap)
{
    if (target < 0) {
        *loss = 0;
        if (dz) memset(dz, 0, V * sizeof *dz);
        return;
    }
    if (cap > 0) { // twice the same tanh: there is no room to keep it
        float most = vmath_cap(largest(z, V), cap), sum = sum_exp(z, V, most, cap);
        *loss = logf(sum) + (most - vmath_cap(z[target], cap));
        if (dz) row_gradient(dz, z, target, V, scale, most, sum, cap);
        return;
    }
    float top = largest(z, V), total = 0, z_target = z[target];
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
                         size_t N, size_t V, float scale, float cap)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++)
        xent_row(loss + n, dlogits ? (float *)dlogits + n * V : NULL, (const float *)logits + n * V, target[n], V,
                 scale, cap);
}

// ---- the three steps

static void xent_max(Dev *dev, float *top, const X *logits, size_t N, size_t V)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) top[n] = largest((const float *)logits + n * V, V);
}

static float sum_parts(const float *z, float top, float cap, DevParts parts, size_t p, size_t n)
{
    size_t left = 1;
    if (n > 1) {
        while (2 * left < n) left *= 2;
        float first = sum_parts(z, top, cap, parts, p, left);
        return first + sum_parts(z, top, cap, parts, p + left, n - left);
    }
    float sum = 0;
    for (size_t i = p * parts.each; i < (p + 1) * parts.each; i++)
        sum += sum_exp(z + parts.range[i].begin, parts.range[i].end - parts.range[i].begin, top, cap);
    return sum;
}

static void xent_sum(Dev *dev, float *total, float *hit, const X *logits, const int32_t *target, const float *top,
                     size_t N, size_t V, DevParts parts, float cap)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        const float *z = (const float *)logits + n * V;
        total[n] = sum_parts(z, vmath_cap(top[n], cap), cap, parts, 0, parts.n);
        hit[n] = target[n] >= 0 && (size_t)target[n] < V ? z[target[n]] : 0;
    }
}

static void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale, float cap)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        float *dz = dlogits ? (float *)dlogits + n * V : NULL, most = vmath_cap(top[n], cap);
        loss[n] = target[n] < 0 ? 0 : logf(total[n]) + (most - vmath_cap(hit[n], cap));
        if (dz && target[n] < 0) memset(dz, 0, V * sizeof *dz);
        else if (dz) row_gradient(dz, (const float *)logits + n * V, target[n], V, scale, most, total[n], cap);
    }
}

void loss_cpu_fill(Dev *dev)
{
    dev->xent_max = xent_max;
    dev->xent_sum = xent_sum;
    dev->xent_loss = xent_loss;
    dev->softmax_xent = softmax_xent;
}
