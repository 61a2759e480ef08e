// norm_forward: a template for numerics.override on the CPU (doc/override.md): residual + norm, as plain as it can be.
//
//   sum = a + b,  out = weight (sum - mean) rstd + bias,  rstd = 1 / sqrt(var + eps)       (RMSNorm: mean = 0)
//
// The contract is in src/ops/dev.h. X is fp32, bf16 or fp16, as dev->x_type says; arithmetic is fp32.
#include "src/check/override.h"

#include <math.h>

static const Format FORMAT[] = {FORMAT_FP32, FORMAT_BF16, FORMAT_FP16}; // by XType

static float get(const Dev *dev, const X *x, size_t i)
{
    return formats_decode(FORMAT[dev->x_type], dev->x_bytes == 4 ? ((uint32_t *)x)[i] : ((uint16_t *)x)[i]);
}

static void put(const Dev *dev, X *x, size_t i, float value)
{
    uint32_t bits = formats_encode(FORMAT[dev->x_type], value, false);
    if (dev->x_bytes == 4) ((uint32_t *)x)[i] = bits;
    else ((uint16_t *)x)[i] = (uint16_t)bits;
}

void norm_forward(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                  const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
#pragma omp parallel for num_threads(dev->threads)
    for (size_t n = 0; n < N; n++) {
        if (b)
            for (size_t i = n * C; i < (n + 1) * C; i++) put(dev, sum, i, get(dev, a, i) + get(dev, b, i));
        const X *x = b ? sum : a; // the norm is of what was stored
        float m = 0, var = 0;
        if (kind == NORM_LAYERNORM)
            for (size_t c = 0; c < C; c++) m += get(dev, x, n * C + c) / (float)C;
        for (size_t c = 0; c < C; c++) var += powf(get(dev, x, n * C + c) - m, 2) / (float)C;
        float r = 1 / sqrtf(var + eps);
        for (size_t c = 0; c < C; c++)
            put(dev, out, n * C + c,
                get(dev, weight, c) * (get(dev, x, n * C + c) - m) * r + (bias ? get(dev, bias, c) : 0));
        if (kind == NORM_LAYERNORM) mean[n] = m; // RMSNorm leaves it alone
        rstd[n] = r;
    }
}

OVERRIDE(norm_forward, "fp32 bf16 fp16");
