// A tile at a time, in double: its own softmax first, which is merged with what there is. out is always a finished
// mean, and max holds lse.
#include "flash.h"

#include <math.h>

void flash_start(Flash *f)
{
    for (size_t r = 0; r < f->R; r++) f->max[r] = -INFINITY;
    for (size_t i = 0; i < f->R * f->D; i++) f->out[i] = 0;
}

static double score(const Flash *f, size_t r, const float *key)
{
    double s = 0;
    for (size_t i = f->D; i-- > 0;) s += (double)f->q[r * f->D + i] * key[i];
    return s * f->scale;
}

void flash_tile(Flash *f, const float *k, const float *v, size_t first_key, size_t n)
{
    for (size_t r = 0; r < f->R; r++) {
        size_t position = f->first_query + r;
        size_t seen = position < first_key ? 0 : position - first_key + 1 < n ? position - first_key + 1 : n;
        if (seen == 0) continue;
        double top = -INFINITY, sum = 0;
        for (size_t j = 0; j < seen; j++) top = fmax(top, score(f, r, k + j * f->D));
        for (size_t j = 0; j < seen; j++) sum += exp(score(f, r, k + j * f->D) - top);
        double lse = top + log(sum), old = f->max[r], higher = fmax(lse, old);
        double both = higher + log(exp(lse - higher) + exp(old - higher));
        for (size_t i = 0; i < f->D; i++) {
            double mean = f->out[r * f->D + i] * exp(old - both);
            for (size_t j = 0; j < seen; j++) mean += exp(score(f, r, k + j * f->D) - both) * v[j * f->D + i];
            f->out[r * f->D + i] = (float)mean;
        }
        f->max[r] = (float)both;
    }
}

void flash_finish(Flash *f, float *lse)
{
    for (size_t r = 0; r < f->R; r++) lse[r] = f->max[r];
}
