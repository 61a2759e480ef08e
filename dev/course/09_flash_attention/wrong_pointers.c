// says: already freed
#include "flash.h"

#include <math.h>

// Remembers where the tiles are, and computes attention in the old way at the end.
enum { MOST = 1 << 22 };
static const float *key[MOST], *value[MOST];
static size_t at[MOST];

static size_t T;

void flash_start(Flash *f)
{
    (void)f, T = 0;
}

void flash_tile(Flash *f, const float *k, const float *v, size_t first_key, size_t n)
{
    for (size_t j = 0; j < n; j++, T++) key[T] = k + j * f->D, value[T] = v + j * f->D, at[T] = first_key + j;
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
                for (size_t i = 0; i < D; i++) s += (double)f->q[r * D + i] * key[j][i] * f->scale;
                if (pass == 0) top = fmax(top, s);
                else total += exp(s - top);
            }
        for (size_t i = 0; i < D; i++) {
            double sum = 0;
            for (size_t j = 0; j < T; j++) {
                double s = 0;
                if (at[j] > f->first_query + r) continue;
                for (size_t d = 0; d < D; d++) s += (double)f->q[r * D + d] * key[j][d] * f->scale;
                sum += exp(s - top) * value[j][i];
            }
            f->out[r * D + i] = (float)(sum / total);
        }
        lse[r] = (float)(top + log(total));
    }
}
