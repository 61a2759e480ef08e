// says: scores or tiles are stored
#include "flash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Copies all tiles, and computes attention in the old way at the end.
static float *keys, *values;
static size_t *at, stride, room;

static size_t T;

void flash_start(Flash *f)
{
    (void)f, T = 0, room = 0;
}

void flash_tile(Flash *f, const float *k, const float *v, size_t first_key, size_t n)
{
    stride = f->D;
    if (T + n > room) {
        room = 2 * (T + n);
        keys = realloc(keys, room * stride * sizeof *keys), values = realloc(values, room * stride * sizeof *values);
        at = realloc(at, room * sizeof *at);
    }
    memcpy(keys + T * stride, k, n * stride * sizeof *k), memcpy(values + T * stride, v, n * stride * sizeof *v);
    for (size_t j = 0; j < n; j++) at[T++] = first_key + j;
}

void flash_finish(Flash *f, float *lse)
{
    size_t D = f->D;
    for (size_t r = 0; r < f->R; r++) {
        double total = 0, top = -INFINITY;
        for (int pass = 0; pass < 2; pass++)
            for (size_t j = 0; j < T; j++) {
                double s = 0;
                if (at[j] > f->first_query + r) continue;
                for (size_t i = 0; i < D; i++) s += (double)f->q[r * D + i] * keys[j * stride + i] * f->scale;
                if (pass == 0) top = fmax(top, s);
                else total += exp(s - top);
            }
        for (size_t i = 0; i < D; i++) {
            double sum = 0;
            for (size_t j = 0; j < T; j++) {
                double s = 0;
                if (at[j] > f->first_query + r) continue;
                for (size_t d = 0; d < D; d++) s += (double)f->q[r * D + d] * keys[j * stride + d] * f->scale;
                sum += exp(s - top) * values[j * stride + i];
            }
            f->out[r * D + i] = (float)(sum / total);
        }
        lse[r] = (float)(top + log(total));
    }
}
