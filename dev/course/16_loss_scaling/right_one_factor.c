// One pass that adds squares in double, whose sum is finite exactly when all floats are; one factor for scale, clipping
// and lr; the count runs downwards from the interval, as a negative number.
#include "scaling.h"

#include <math.h>

Step scaled_step(LossScale *s, float *weight, float *grad, size_t n, float lr, double clip, double *norm)
{
    double squares = 0, scale = s->scale;
    for (size_t i = n; i-- > 0;) squares += (double)grad[i] * grad[i];
    if (!isfinite(squares)) {
        s->good = 0;
        if (s->interval && scale == SCALE_LEAST) return STEP_FAILED;
        if (s->interval) s->scale = (float)(scale / 2);
        return STEP_SKIPPED;
    }
    *norm = sqrt(squares) / scale;
    double factor = (clip > 0 ? fmin(1, clip / *norm) : 1) / scale;
    for (size_t i = n; i-- > 0;) weight[i] = (float)(weight[i] - lr * factor * grad[i]);
    if (!s->interval) return STEP_MADE;
    if (s->good == 0) s->good = -s->interval;
    if (++s->good == 0) s->scale = fminf(2 * s->scale, SCALE_MOST);
    return STEP_MADE;
}
