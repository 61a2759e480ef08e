// Each curve without cases for its parts: p is cut off to 0 .. 1, and the cosine is a square (half the angle).
#include "lr.h"

#include <math.h>

double learning_rate(const LrSchedule *s, long step)
{
    double W = (double)s->warmup, t = (double)step, at = t - W, length = (double)s->end - W;
    if (t < W) return (t + 1) * (s->peak / W);
    if (s->kind == LR_INVSQRT) return s->peak / sqrt((t + 1) / fmax(W, 1));
    if (s->kind == LR_WSD) {
        double stable = fmax((double)s->decay_start - W, 0);
        at -= stable, length -= stable;
    }
    double p = step >= s->end ? 1 : fmax(0, at / length), c = cos(p * 0.78539816339744830962 * 2);
    double part = s->kind == LR_WSD ? 1 - p : c * c;
    return part * s->peak + (1 - part) * s->least;
}
