// The trainer's own op. The orthogonal matrix alone is the update of weights of 0 without momentum.
#include "muon.h"

#include "ops/dev_cpu.h"

#include <stdlib.h>
#include <string.h>

void muon_step(float *weight, float *m, const float *grad, size_t R, size_t C, float lr, float beta, float decay)
{
    static Dev *dev;
    if (!dev) dev = dev_cpu_create(1);
    size_t k = R < C ? R : C;
    float *copy = (float *)malloc(R * C * sizeof *copy);
    float *scratch = (float *)malloc((R * C + 2 * k * k) * sizeof *scratch);
    memcpy(copy, grad, R * C * sizeof *copy);
    dev->muon(dev, weight, m, NULL, copy, scratch, R, C,
              (Update){.lr = lr, .beta1 = beta, .weight_decay = decay, .grad_scale = 1, .step = 1});
    free(copy), free(scratch);
}

void orthogonalize(float *x, size_t R, size_t C)
{
    float *grad = (float *)malloc(R * C * sizeof *grad), *m = (float *)calloc(R * C, sizeof *m);
    memcpy(grad, x, R * C * sizeof *grad), memset(x, 0, R * C * sizeof *x);
    muon_step(x, m, grad, R, C, -1 / (0.2f * sqrtf((float)(R > C ? R : C))), 0, 0);
    free(grad), free(m);
}
