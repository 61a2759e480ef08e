// The trainer's own: attention of a piece of the text for each tile, and the merging of two pieces (doc/cp.md).
#include "flash.h"

#include "ops/dev_cpu.h"

#include <math.h>
#include <stdlib.h>

static Dev *dev;

void flash_start(Flash *f)
{
    if (!dev) dev = dev_cpu_create(1);
    for (size_t r = 0; r < f->R; r++) f->max[r] = -INFINITY;
    for (size_t i = 0; i < f->R * f->D; i++) f->out[i] = 0;
}

void flash_tile(Flash *f, const float *k, const float *v, size_t first_key, size_t n)
{
    size_t R = f->R, D = f->D;
    float *out = (float *)calloc(R * D, sizeof *out), *lse = (float *)calloc(R, sizeof *lse);
    AttnShape shape = {.B = 1, .Tq = R, .Tk = n, .H = 1, .G = 1, .D = D, .ldq = D, .ldkv = D, .q_start = f->first_query,
                       .k_start = first_key, .q_cut = R, .k_cut = n, .scale = f->scale};
    shape.T = (first_key + n > f->first_query + R ? first_key + n : f->first_query + R) + 1;
    dev->attention_part_forward(dev, out, lse, (const X *)f->q, (const X *)k, (const X *)v, shape);
    dev->attention_merge(dev, f->out, f->max, out, lse, 1, R, 1, D);
    free(out), free(lse);
}

void flash_finish(Flash *f, float *lse)
{
    for (size_t r = 0; r < f->R; r++) lse[r] = f->max[r];
}
