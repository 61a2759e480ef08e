// The trainer's state machine and its factor of clipping.
#include "scaling.h"

#include "train/grads.h"

#include <math.h>

Step scaled_step(LossScale *s, float *weight, float *grad, size_t n, float lr, double clip, double *norm)
{
    double squares = 0, scale = s->scale;
    for (size_t i = 0; i < n; i++) squares += (double)grad[i] * grad[i];
    if (!isfinite(squares) && s->interval && scale == SCALE_LEAST) return STEP_FAILED; // where the trainer ends the run
    LossScaler scaler = grads_scaler_create(s->scale, s->interval);
    scaler.good_steps = s->good;
    bool made = grads_scaler_update(&scaler, isfinite(squares));
    s->scale = scaler.scale, s->good = scaler.good_steps;
    if (!made) return STEP_SKIPPED;
    *norm = sqrt(squares) / scale;
    double factor = grads_clip_factor(*norm, clip) / scale;
    for (size_t i = 0; i < n; i++) weight[i] -= (float)(lr * factor * grad[i]);
    return STEP_MADE;
}
