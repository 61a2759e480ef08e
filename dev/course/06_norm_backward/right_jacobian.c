// Each row times the matrix of its derivatives dn_i/dx_j in double, from the last row to the first, and dw by columns.
#include "norm_backward.h"

static void row(float *dx, const float *dy, const float *x, double mean, double rstd, const float *w, size_t C,
                int center)
{
    double out[C];
    for (size_t j = 0; j < C; j++) {
        out[j] = 0;
        for (size_t i = 0; i < C; i++) {
            double same = i == j, from_mean = center ? 1 / (double)C : 0;
            double d = rstd * (same - from_mean) - rstd * rstd * rstd * (x[i] - mean) * (x[j] - mean) / (double)C;
            out[j] += (double)dy[i] * w[i] * d;
        }
    }
    for (size_t j = 0; j < C; j++) dx[j] = (float)out[j];
}

static void column(float *dw, float *db, const float *dy, const float *x, const float *mean, const float *rstd,
                   size_t N, size_t C)
{
    double sum_w = 0, sum_b = 0;
    for (size_t n = 0; n < N; n++, dy += C, x += C)
        sum_w += *dy * ((double)*x - (mean ? mean[n] : 0)) * rstd[n], sum_b += *dy;
    *dw += (float)sum_w;
    if (db) *db += (float)sum_b;
}

void layernorm_backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *mean,
                        const float *rstd, const float *w, size_t N, size_t C)
{
    for (size_t c = 0; c < C; c++) column(dw + c, db + c, dy + c, x + c, mean, rstd, N, C);
    for (size_t n = N; n-- > 0;) row(dx + n * C, dy + n * C, x + n * C, mean[n], rstd[n], w, C, 1);
}

void rmsnorm_backward(float *dx, float *dw, const float *dy, const float *x, const float *rstd, const float *w,
                      size_t N, size_t C)
{
    for (size_t c = 0; c < C; c++) column(dw + c, 0, dy + c, x + c, 0, rstd, N, C);
    for (size_t n = N; n-- > 0;) row(dx + n * C, dy + n * C, x + n * C, 0, rstd[n], w, C, 0);
}
