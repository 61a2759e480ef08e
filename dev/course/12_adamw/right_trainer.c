// The trainer's own op, which clears the gradient: it gets a copy.
#include "adamw.h"

#include "ops/dev_cpu.h"

#include <stdlib.h>
#include <string.h>

void adamw_step(float *weight, float *m, float *v, const float *grad, size_t n, int step, AdamW a)
{
    static Dev *dev;
    if (!dev) dev = dev_cpu_create(1);
    float *copy = (float *)malloc(n * sizeof *copy);
    memcpy(copy, grad, n * sizeof *copy);
    dev->update(dev, OPTIM_ADAMW, weight, m, v, copy, n,
                (Update){.lr = (float)a.lr, .beta1 = a.beta1, .beta2 = a.beta2, .eps = (float)a.eps,
                         .weight_decay = (float)a.weight_decay, .grad_scale = 1, .step = step});
    free(copy);
}
