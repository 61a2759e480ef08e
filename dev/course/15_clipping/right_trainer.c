// The trainer's own.
#include "clipping.h"

#include "train/grads.h"

#include <math.h>

double clip_by_global_norm(float **grads, const size_t *n, int tensors, double clip)
{
    double sum = 0;
    for (int t = 0; t < tensors; t++)
        for (size_t i = 0; i < n[t]; i++) sum += (double)grads[t][i] * grads[t][i];
    double factor = grads_clip_factor(sqrt(sum), clip);
    for (int t = 0; t < tensors; t++)
        for (size_t i = 0; i < n[t]; i++) grads[t][i] *= (float)factor;
    return sqrt(sum);
}
