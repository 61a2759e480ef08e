#include "clipping.h"

#include <math.h>

double clip_by_global_norm(float **grads, const size_t *n, int tensors, double clip)
{
    //[
    //+ (void)grads, (void)n, (void)tensors, (void)clip; // write this
    //+ return 0;
    double sum = 0;
    for (int t = 0; t < tensors; t++)
        for (size_t i = 0; i < n[t]; i++) sum += (double)grads[t][i] * grads[t][i];
    double norm = sqrt(sum);
    if (clip > 0 && norm > clip) {
        double factor = clip / norm;
        for (int t = 0; t < tensors; t++)
            for (size_t i = 0; i < n[t]; i++) grads[t][i] = (float)(grads[t][i] * factor);
    }
    return norm;
    //]
}
