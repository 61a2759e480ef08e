// schedule: linear warm-up, then one of five curves. See schedule.h for the formulas and where they come from.
//
// The invariant: the learning rate is a function of the step and the settings alone, so a resumed run or
// one that is stopped early follows the same curve. WSD adds: the rate before decay_start does not depend on
// when the decay begins or ends, so one stable run can be continued, or brought down, from any checkpoint.
//
// All decays are one picture: a fall from 1 to 0 between two steps, in one of four shapes. Cosine and linear
// are WSD without the stable part.
//
// Rejected: the rate as a product of the one before (a scheduler object with state: it must be saved, and it
// drifts by a rounding a step); s / W in the warm-up (its first update would be nothing); steps counted in
// tokens (the two agree but for the batch ramp, and warm-up is about how many updates Adam's averages have
// seen).
#include "train/schedule.h"

#include <math.h>

#include "base/check.h"

// The part of lr - min_lr that is left at p in (0, 1).
static double fall(ScheduleShape shape, double p)
{
    switch (shape) {
    case SCHEDULE_SHAPE_COSINE: return 0.5 * (1 + cos(3.14159265358979323846 * p));
    case SCHEDULE_SHAPE_SQRT: return 1 - sqrt(p);
    default: return 1 - p;
    }
}

static double decayed(const Schedule *s, ScheduleShape shape, long start, long step)
{
    if (step >= s->decay_steps) return s->min_lr;
    if (step <= start) return s->lr;
    double p = (double)(step - start) / (double)(s->decay_steps - start);
    if (shape == SCHEDULE_SHAPE_EXPONENTIAL) return s->lr * pow(s->min_lr / s->lr, p);
    return s->min_lr + (s->lr - s->min_lr) * fall(shape, p);
}

double schedule_lr(const Schedule *s, long step)
{
    long W = s->warmup;
    if (step < W) return s->lr * (double)(step + 1) / (double)W;
    switch (s->kind) {
    case SCHEDULE_COSINE: return decayed(s, SCHEDULE_SHAPE_COSINE, W, step);
    case SCHEDULE_LINEAR: return decayed(s, SCHEDULE_SHAPE_LINEAR, W, step);
    case SCHEDULE_INVSQRT: return s->lr * sqrt((double)(W > 0 ? W : 1) / (double)(step + 1));
    case SCHEDULE_CONSTANT: return s->lr;
    case SCHEDULE_WSD: return decayed(s, s->shape, s->decay_start > W ? s->decay_start : W, step);
    }
    check(!"a schedule of a kind that exists");
    return NAN;
}

double schedule_lr_ramped(const Schedule *s, const Ramp *ramp, long step)
{
    return schedule_lr(s, step) * ramp_lr_factor(ramp, step);
}

void schedule_check(const Schedule *s)
{
    if (!(s->lr >= 0)) die("optim.lr: %g is below 0", s->lr);
    if (s->warmup < 0) die("optim.warmup: %ld steps are below 0", s->warmup);
    if (s->kind == SCHEDULE_CONSTANT || s->kind == SCHEDULE_INVSQRT) return;
    if (s->decay_steps < 0) die("optim.decay_steps: %ld is below 0", s->decay_steps);
    if (!(s->min_lr >= 0 && s->min_lr <= s->lr))
        die("optim.min_lr: %g is not between 0 and optim.lr %g", s->min_lr, s->lr);
    if (s->kind != SCHEDULE_WSD) return;
    if (s->decay_start < 0 || s->decay_start > s->decay_steps)
        die("optim.wsd_decay: %ld steps of decay are not between 0 and optim.decay_steps %ld",
            s->decay_steps - s->decay_start, s->decay_steps);
    if (s->shape == SCHEDULE_SHAPE_EXPONENTIAL && s->min_lr == 0)
        die("optim.wsd_shape: exponential decay never gets to optim.min_lr 0 (try --optim.min_lr=%g, or "
            "--optim.wsd_shape=sqrt)", s->lr > 0 ? s->lr / 100 : 1e-5);
}
