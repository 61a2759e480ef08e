// scaler: grow, back off, skip.
//
//   not finite            scale = scale * backoff, good_steps = 0, the update is skipped
//   finite                good_steps + 1; when that reaches `interval`: scale = scale * growth, good_steps = 0
//
// The scale so climbs until it overflows, loses one update, and stands for `interval` steps at half of what
// was too much: about one update in `interval` is lost, and the gradients use the upper end of fp16's range.
//
// The invariant: the scale is always a power of two within [min, max]. Scaling and unscaling then only move
// the exponent, and a run whose gradients neither overflow nor underflow gives the same bits at any scale.
//
// Growing past `max` would gain nothing: 2^24 times the smallest denormal, 2^-24, is 1. Below `min`, 1, it is
// not the scale that overflows but the model, so that is an error and not one more skip.
//
// Rejected: looking at the largest gradient and choosing the scale from it (it needs a pass of its own and
// a margin, and one outlier moves it); counting overflows within a window (two more settings).
#include "train/scaler.h"

#include "base/check.h"

#include <math.h>

static const float SCALE_MIN = 1, SCALE_MAX = 0x1p24f;

LossScaler scaler_create(float initial, int interval)
{
    int exponent;
    if (!(initial >= SCALE_MIN && initial <= SCALE_MAX) || frexpf(initial, &exponent) != 0.5f)
        die("loss scale: %g is not a power of two from %g to %g (65536 is usual)", (double)initial, (double)SCALE_MIN,
            (double)SCALE_MAX);
    if (interval < 0) die("loss scale: growth interval %d is negative (0 keeps the scale fixed)", interval);
    return (LossScaler){.scale = initial, .interval = interval, .growth = 2, .backoff = 0.5f, .min = SCALE_MIN,
                        .max = SCALE_MAX};
}

LossScaler scaler_none(void)
{
    return scaler_create(1, 0);
}

bool scaler_update(LossScaler *s, bool finite)
{
    if (s->interval == 0) return finite;
    if (!finite) {
        if (s->scale * s->backoff < s->min)
            die("loss scale: the gradients overflow even at the smallest scale, %g (lower the learning rate, or use "
                "bf16, whose range is fp32's)", (double)s->scale);
        s->scale *= s->backoff;
        s->good_steps = 0;
        return false;
    }
    if (++s->good_steps >= s->interval) {
        s->good_steps = 0;
        if (s->scale * s->growth <= s->max) s->scale *= s->growth;
    }
    return true;
}
