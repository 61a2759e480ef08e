// The trainer's own, which stores the logarithm of a row's sum in place of the weights.
#include "attention.h"

#include "ops/dev.h"

#include <math.h>
#include <stdlib.h>

static AttnShape shape(size_t T, size_t H, size_t D)
{
    return (AttnShape){.B = 1, .Tq = T, .Tk = T, .H = H, .G = H, .D = D, .ldq = H * D, .ldkv = H * D};
}

void attention_forward(float *out, float *prob, const float *q, const float *k, const float *v, size_t T, size_t H,
                       size_t D)
{
    Dev *dev = dev_cpu_create(1);
    float *lse = malloc(H * T * sizeof *lse);
    dev->attention_forward(dev, (X *)out, lse, (const X *)q, (const X *)k, (const X *)v, shape(T, H, D));
    for (size_t i = 0; i < H * T * T; i++) {
        size_t h = i / (T * T), t = i / T % T, s = i % T;
        float dot = 0;
        for (size_t d = 0; d < D; d++) dot += q[(t * H + h) * D + d] * k[(s * H + h) * D + d];
        prob[i] = s <= t ? expf(dot / sqrtf((float)D) - lse[h * T + t]) : 0;
    }
    free(lse);
    dev_cpu_free(dev);
}

void attention_backward(float *dq, float *dk, float *dv, const float *dout, const float *prob, const float *q,
                        const float *k, const float *v, size_t T, size_t H, size_t D)
{
    (void)prob;
    Dev *dev = dev_cpu_create(1);
    float *out = malloc(T * H * D * sizeof *out), *lse = malloc(H * T * sizeof *lse);
    dev->attention_forward(dev, (X *)out, lse, (const X *)q, (const X *)k, (const X *)v, shape(T, H, D));
    dev->attention_backward(dev, (X *)dq, (X *)dk, (X *)dv, (const X *)dout, (const X *)out, lse, (const X *)q,
                            (const X *)k, (const X *)v, shape(T, H, D));
    free(out), free(lse);
    dev_cpu_free(dev);
}
