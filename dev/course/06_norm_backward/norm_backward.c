#include "norm_backward.h"

void layernorm_backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *mean,
                        const float *rstd, const float *w, size_t N, size_t C)
{
    //[
    //+ (void)dx, (void)dw, (void)db, (void)dy, (void)x, (void)mean, (void)rstd, (void)w, (void)N, (void)C;
    for (size_t n = 0; n < N; n++, x += C, dy += C, dx += C) {
        float g_mean = 0, gn_mean = 0;
        for (size_t c = 0; c < C; c++) {
            float norm = (x[c] - mean[n]) * rstd[n], g = dy[c] * w[c];
            g_mean += g / (float)C;
            gn_mean += g * norm / (float)C;
            dw[c] += dy[c] * norm;
            db[c] += dy[c];
        }
        for (size_t c = 0; c < C; c++) {
            float norm = (x[c] - mean[n]) * rstd[n], g = dy[c] * w[c];
            dx[c] = rstd[n] * (g - g_mean - norm * gn_mean);
        }
    }
    //]
}

void rmsnorm_backward(float *dx, float *dw, const float *dy, const float *x, const float *rstd, const float *w,
                      size_t N, size_t C)
{
    //[
    //+ (void)dx, (void)dw, (void)dy, (void)x, (void)rstd, (void)w, (void)N, (void)C;
    for (size_t n = 0; n < N; n++, x += C, dy += C, dx += C) {
        float mean_product = 0;
        for (size_t c = 0; c < C; c++) {
            mean_product += dy[c] * w[c] * x[c] * rstd[n] / (float)C;
            dw[c] += dy[c] * x[c] * rstd[n];
        }
        for (size_t c = 0; c < C; c++) dx[c] = rstd[n] * (dy[c] * w[c] - x[c] * rstd[n] * mean_product);
    }
    //]
}
