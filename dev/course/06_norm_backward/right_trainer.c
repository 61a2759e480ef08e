// The trainer's own.
#include "norm_backward.h"

#include "ops/dev.h"

static void backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *mean,
                     const float *rstd, const float *w, size_t N, size_t C, NormKind kind)
{
    Dev *dev = dev_cpu_create(1);
    dev->norm_backward(dev, (X *)dx, dw, db, (const X *)dy, NULL, (const X *)x, mean, rstd, (const X *)w, N, C, kind);
    dev_cpu_free(dev);
}

void layernorm_backward(float *dx, float *dw, float *db, const float *dy, const float *x, const float *mean,
                        const float *rstd, const float *w, size_t N, size_t C)
{
    backward(dx, dw, db, dy, x, mean, rstd, w, N, C, NORM_LAYERNORM);
}

void rmsnorm_backward(float *dx, float *dw, const float *dy, const float *x, const float *rstd, const float *w,
                      size_t N, size_t C)
{
    backward(dx, dw, NULL, dy, x, NULL, rstd, w, N, C, NORM_RMSNORM);
}
