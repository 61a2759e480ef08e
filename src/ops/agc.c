// agc: adaptive clipping of the rows of a matrix, on the CPU.
//
//   grad_i *= min(1, limit max(|weight_i|, least) / |grad_i|)        (Brock et al., arXiv 2102.06171, equation 3)
//
// What the unit is, and which tensors it applies to, is decided in clip.c; here a unit is a row, and a whole
// tensor is a matrix of one row.
//
// The invariant: a row's norms are added in spans of fixed length, the sum of the spans in double, by one thread. A
// single row is shared by the threads through sum_squares, whose ranges are fixed too. Which of the two is
// chosen by the shape, so the number of threads does not show in a bit. A row that keeps the limit is not written.
//
// Rejected: norms in a pass of their own, into an array of R: the second reading of a row comes out of the cache.
#include "ops/dev_cpu.h"

#include <math.h>

static double row_squares(const float *x, size_t n)
{
    enum { SPAN = 1024 };
    double sum = 0;
    for (size_t begin = 0; begin < n; begin += SPAN) {
        size_t stop = begin + SPAN < n ? begin + SPAN : n;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (size_t j = begin; j < stop; j++) part += x[j] * x[j];
        sum += part;
    }
    return sum;
}

// What a row is multiplied by; 1 where its gradient is within the limit, or zero.
static float factor(double grad_squares, double weight_squares, float limit, float least)
{
    double norm = sqrt(grad_squares), most = limit * fmax(sqrt(weight_squares), least);
    return norm > most ? (float)(most / norm) : 1;
}

static void clip_units(Dev *dev, float *grad, const float *weight, size_t R, size_t C, float limit, float least)
{
    if (R == 1) {
        float f = factor(dev->sum_squares(dev, grad, C), dev->sum_squares(dev, weight, C), limit, least);
        if (f == 1) return;
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
        for (size_t j = 0; j < C; j++) grad[j] *= f;
        return;
    }
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R; i++) {
        float *g = grad + i * C, f = factor(row_squares(g, C), row_squares(weight + i * C, C), limit, least);
        if (f == 1) continue;
#pragma omp simd
        for (size_t j = 0; j < C; j++) g[j] *= f;
    }
}

void agc_cpu_fill(Dev *dev)
{
    dev->clip_units = clip_units;
}
