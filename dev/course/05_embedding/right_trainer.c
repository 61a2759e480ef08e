// The trainer's own.
#include "embedding.h"

#include "ops/dev.h"

#include <stdlib.h>

static int32_t *positions(size_t B, size_t T)
{
    int32_t *pos = malloc((B * T + 1) * sizeof *pos);
    for (size_t n = 0; n < B * T; n++) pos[n] = (int32_t)(n % T);
    return pos;
}

void embed_forward(float *out, const int32_t *token, const float *token_table, const float *position_table, size_t B,
                   size_t T, size_t C)
{
    Dev *dev = dev_cpu_create(1);
    int32_t *pos = positions(B, T);
    dev->embed_forward(dev, (X *)out, token, pos, (const X *)token_table, (const X *)position_table, B * T, C);
    free(pos);
    dev_cpu_free(dev);
}

void embed_backward(float *d_token, float *d_position, const float *dout, const int32_t *token, size_t B, size_t T,
                    size_t C)
{
    Dev *dev = dev_cpu_create(1);
    int32_t *pos = positions(B, T);
    dev->embed_backward(dev, d_token, d_position, (const X *)dout, token, pos, B * T, C, 0);
    free(pos);
    dev_cpu_free(dev);
}
