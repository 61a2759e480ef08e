// The trainer's own.
#include "rotary.h"

#include "ops/dev.h"

#include <stdlib.h>

static void run(float *x, size_t T, size_t H, size_t D, size_t first, float theta, bool backward)
{
    Dev *dev = dev_cpu_create(1);
    int32_t *pos = malloc((T + 1) * sizeof *pos);
    for (size_t t = 0; t < T; t++) pos[t] = (int32_t)(first + t);
    Rope rope = {.theta = theta, .kind = ROPE_NONE, .factor = 1};
    (backward ? dev->rope_backward : dev->rope_forward)(dev, (X *)x, pos, T, H, D, H * D, rope);
    free(pos);
    dev_cpu_free(dev);
}

void rotary_forward(float *x, size_t T, size_t H, size_t D, size_t first, float theta)
{
    run(x, T, H, D, first, theta, false);
}

void rotary_backward(float *dx, size_t T, size_t H, size_t D, size_t first, float theta)
{
    run(dx, T, H, D, first, theta, true);
}
