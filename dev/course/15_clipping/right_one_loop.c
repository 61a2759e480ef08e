// The same with one list of elements and fma, from the last one to the first.
#include "clipping.h"

#include <math.h>

static float *at(float **grads, const size_t *n, size_t i)
{
    for (; i >= *n; grads++) i -= *n++;
    return &(*grads)[i];
}

double clip_by_global_norm(float **grads, const size_t *n, int tensors, double clip)
{
    size_t all = 0;
    for (int t = 0; t < tensors; t++) all += n[t];
    double sum = 0;
    for (size_t i = all; i-- > 0;) {
        double g = *at(grads, n, i);
        sum = fma(g, g, sum);
    }
    double norm = sqrt(sum), factor = clip == 0 ? 1 : fmin(1, clip / norm);
    for (size_t i = 0; i < all && factor < 1; i++) *at(grads, n, i) *= (float)factor;
    return norm;
}
