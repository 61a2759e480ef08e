// says: -infinity minus -infinity
#include "flash.h"

#include <math.h>

// A tile at a time; a tile of which the query sees nothing is not looked for.
void flash_start(Flash *f)
{
    for (size_t r = 0; r < f->R; r++) f->max[r] = -INFINITY, f->sum[r] = 0;
    for (size_t i = 0; i < f->R * f->D; i++) f->out[i] = 0;
}

static float score_of(const Flash *f, size_t r, const float *key, size_t position)
{
    float sum = 0;
    for (size_t i = 0; i < f->D; i++) sum += f->q[r * f->D + i] * key[i];
    return position > f->first_query + r ? -INFINITY : f->scale * sum;
}

void flash_tile(Flash *f, const float *k, const float *v, size_t first_key, size_t n)
{
    size_t D = f->D;
    for (size_t r = 0; r < f->R; r++) {
        float top = f->max[r];
        for (size_t j = 0; j < n; j++) top = fmaxf(top, score_of(f, r, k + j * D, first_key + j));
        float shrink = expf(f->max[r] - top);
        f->sum[r] *= shrink, f->max[r] = top;
        for (size_t i = 0; i < D; i++) f->out[r * D + i] *= shrink;
        for (size_t j = 0; j < n; j++) {
            float p = expf(score_of(f, r, k + j * D, first_key + j) - top);
            f->sum[r] += p;
            for (size_t i = 0; i < D; i++) f->out[r * D + i] += p * v[j * D + i];
        }
    }
}

void flash_finish(Flash *f, float *lse)
{
    for (size_t r = 0; r < f->R; r++) {
        for (size_t i = 0; i < f->D; i++) f->out[r * f->D + i] /= f->sum[r];
        lse[r] = f->max[r] + logf(f->sum[r]);
    }
}
