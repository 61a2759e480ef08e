#include "scaling.h"

#include <math.h>

Step scaled_step(LossScale *s, float *weight, float *grad, size_t n, float lr, double clip, double *norm)
{
    //[
    //+ (void)s, (void)weight, (void)grad, (void)n, (void)lr, (void)clip, (void)norm; // write this
    //+ return STEP_MADE;
    size_t finite = 0;
    for (size_t i = 0; i < n; i++) finite += isfinite(grad[i]) != 0;
    if (finite < n) {
        s->good = 0;
        if (s->interval == 0) return STEP_SKIPPED;
        if (s->scale <= SCALE_LEAST) return STEP_FAILED;
        s->scale /= 2;
        return STEP_SKIPPED;
    }
    double squares = 0;
    for (size_t i = 0; i < n; i++) grad[i] /= s->scale;
    for (size_t i = 0; i < n; i++) squares += (double)grad[i] * grad[i];
    *norm = sqrt(squares);
    double factor = clip > 0 && *norm > clip ? clip / *norm : 1;
    for (size_t i = 0; i < n; i++) weight[i] -= (float)(lr * factor * grad[i]);

    if (s->interval > 0 && ++s->good >= s->interval) {
        s->good = 0;
        if (s->scale < SCALE_MOST) s->scale *= 2;
    }
    return STEP_MADE;
    //]
}
