// says: the scale after steps 0 to 9
#include "scaling.h"

#include <math.h>

// Halves the scale, and never doubles it: the count is forgotten.
Step scaled_step(LossScale *s, float *weight, float *grad, size_t n, float lr, double clip, double *norm)
{
    double squares = 0;
    for (size_t i = 0; i < n; i++) grad[i] /= s->scale, squares += (double)grad[i] * grad[i];
    *norm = sqrt(squares);
    if (!isfinite(squares)) {
        s->scale /= 2;
        return STEP_SKIPPED;
    }
    for (size_t i = 0; i < n; i++) weight[i] -= lr * grad[i] * (float)(clip > 0 && *norm > clip ? clip / *norm : 1);
    return STEP_MADE;
}
