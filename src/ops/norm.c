// norm: LayerNorm, RMSNorm, and the per-head RMSNorm of queries and keys, on the CPU. The first two are fused with the
// residual addition.
//
//   LayerNorm (Ba et al., arXiv 1607.06450)      y = w (x - mean) rstd + b,  rstd = 1 / sqrt(var + eps)
//   RMSNorm   (Zhang & Sennrich, arXiv 1910.07467)  y = w x rstd,            rstd = 1 / sqrt(mean(x^2) + eps)
//
// With n = the normalised x and g = dy * w, both have  dx = rstd (g - mean(g) - n mean(g n)), where
// RMSNorm has no mean(g) term. The op also does the addition to the residual stream before the norm and, in backward,
// the addition of the stream's own gradient: one pass over memory, as in a GPU kernel.
//
// The invariant: rows are independent; the gradients of w and b, which sum over rows, are summed within
// NORM_BLOCKS fixed ranges of rows and then over the ranges in order, so the bits do not depend on the number
// of threads.
#include "ops/dev_cpu.h"

#include <math.h>
#include <string.h>

static float row_sum(const float *x, size_t C)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t c = 0; c < C; c++) sum += x[c];
    return sum;
}

static float row_squares(const float *x, float mean, size_t C)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t c = 0; c < C; c++) sum += (x[c] - mean) * (x[c] - mean);
    return sum;
}

static void norm_forward(Dev *dev, X *out_, X *sum_, float *mean, float *rstd, const X *a_, const X *b_,
                         const X *weight, const X *bias_, size_t N, size_t C, NormKind kind, float eps)
{
    const float *w = (const float *)weight, *bias = (const float *)bias_;
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * C))
    for (size_t n = 0; n < N; n++) {
        const float *x = (const float *)a_ + n * C;
        float *out = (float *)out_ + n * C;
        if (b_) {
            const float *b = (const float *)b_ + n * C;
            float *sum = (float *)sum_ + n * C;
#pragma omp simd
            for (size_t c = 0; c < C; c++) sum[c] = x[c] + b[c];
            x = sum;
        }
        float m = kind == NORM_LAYERNORM ? row_sum(x, C) / (float)C : 0;
        float r = 1 / sqrtf(row_squares(x, m, C) / (float)C + eps);
#pragma omp simd
        for (size_t c = 0; c < C; c++) out[c] = w[c] * ((x[c] - m) * r);
        if (bias) {
#pragma omp simd
            for (size_t c = 0; c < C; c++) out[c] += bias[c];
        }
        if (kind == NORM_LAYERNORM) mean[n] = m;
        rstd[n] = r;
    }
}

void norm_cpu_backward_row(float *dinp, float *dw, float *db, const float *dout, const float *dresid, const float *inp,
                           float mean, float rstd, const float *w, size_t C, NormKind kind)
{
    float g_sum = 0, gn_sum = 0;
#pragma omp simd reduction(+ : g_sum, gn_sum)
    for (size_t c = 0; c < C; c++) {
        float n = (inp[c] - mean) * rstd, g = dout[c] * w[c];
        g_sum += g;
        gn_sum += g * n;
        dw[c] += dout[c] * n;
    }
    if (db) {
#pragma omp simd
        for (size_t c = 0; c < C; c++) db[c] += dout[c];
    }
    float g_mean = kind == NORM_LAYERNORM ? g_sum / (float)C : 0, gn_mean = gn_sum / (float)C;
#pragma omp simd
    for (size_t c = 0; c < C; c++) {
        float n = (inp[c] - mean) * rstd, g = dout[c] * w[c];
        float d = rstd * (g - g_mean - n * gn_mean);
        dinp[c] = dresid ? dresid[c] + d : d;
    }
}

void norm_cpu_add_partials(float *grad, const float *partial, size_t n_blocks, size_t stride, size_t C)
{
    for (size_t c = 0; c < C; c++) {
        float sum = 0;
        for (size_t i = 0; i < n_blocks; i++) sum += partial[i * stride + c];
        grad[c] += sum;
    }
}

static void norm_backward(Dev *dev, X *dinp_, float *dweight, float *dbias, const X *dout_, const X *dresid_,
                          const X *inp_, const float *mean, const float *rstd, const X *weight,
                          size_t N, size_t C, NormKind kind)
{
    float *dinp = (float *)dinp_;
    const float *dout = (const float *)dout_, *dresid = (const float *)dresid_, *inp = (const float *)inp_;
    size_t n_blocks = N < NORM_BLOCKS ? N : NORM_BLOCKS;
    float *partial = dev_cpu_scratch(dev, n_blocks * 2 * C);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n_blocks; i++) {
        float *dw = partial + i * 2 * C, *db = dbias ? dw + C : NULL;
        memset(dw, 0, 2 * C * sizeof *dw);
        for (size_t n = i * N / n_blocks; n < (i + 1) * N / n_blocks; n++)
            norm_cpu_backward_row(dinp + n * C, dw, db, dout + n * C, dresid ? dresid + n * C : NULL, inp + n * C,
                         kind == NORM_LAYERNORM ? mean[n] : 0, rstd[n], (const float *)weight, C, kind);
    }
    norm_cpu_add_partials(dweight, partial, n_blocks, 2 * C, C);
    if (dbias) norm_cpu_add_partials(dbias, partial + C, n_blocks, 2 * C, C);
}

static void head_norm_forward(Dev *dev, X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads,
                              size_t D, size_t ld, float eps)
{
    const float *w = (const float *)weight;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t n = 0; n < N; n++)
        for (size_t h = 0; h < heads; h++) {
            const float *x = (const float *)inp + n * ld + h * D;
            float *y = (float *)out + n * ld + h * D, r = 1 / sqrtf(row_squares(x, 0, D) / (float)D + eps);
#pragma omp simd
            for (size_t d = 0; d < D; d++) y[d] = w[d] * (x[d] * r);
            rstd[n * heads + h] = r;
        }
}

static void head_norm_backward(Dev *dev, X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd,
                               const X *weight, size_t N, size_t heads, size_t D, size_t ld)
{
    size_t n_blocks = N < NORM_BLOCKS ? N : NORM_BLOCKS, groups = 1;
    while (dev->deterministic && heads % (2 * groups) == 0) groups *= 2; // of heads: a tree over them, as over ranks
    float *partial = dev_cpu_scratch(dev, n_blocks * groups * D);
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < n_blocks; i++) {
        float *dw = partial + i * groups * D;
        memset(dw, 0, groups * D * sizeof *dw);
        for (size_t n = i * N / n_blocks; n < (i + 1) * N / n_blocks; n++)
            for (size_t h = 0; h < heads; h++) {
                size_t at = n * ld + h * D;
                norm_cpu_backward_row((float *)dinp + at, dw + h * groups / heads * D, NULL, (const float *)dout + at, NULL,
                             (const float *)inp + at, 0, rstd[n * heads + h], (const float *)weight, D, NORM_RMSNORM);
            }
    }
    for (size_t j = 0; j < groups * D; j++)
        for (size_t i = 1; i < n_blocks; i++) partial[j] += partial[i * groups * D + j];
    for (size_t step = 1; step < groups; step *= 2)
        for (size_t g = 0; g < groups; g += 2 * step)
            for (size_t d = 0; d < D; d++) partial[g * D + d] += partial[(g + step) * D + d];
    for (size_t d = 0; d < D; d++) dweight[d] += partial[d];
}

void norm_cpu_fill(Dev *dev)
{
    dev->norm_forward = norm_forward;
    dev->norm_backward = norm_backward;
    dev->head_norm_forward = head_norm_forward;
    dev->head_norm_backward = head_norm_backward;
}
