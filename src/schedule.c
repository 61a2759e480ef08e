// schedule: linear warm-up, then cosine or constant. See schedule.h for the formulas.
//
// The invariant: the learning rate is a function of the step and the settings alone, so a resumed run or
// one that is stopped early follows the same curve.
#include "schedule.h"

#include <math.h>

double schedule_lr(const Schedule *s, long step)
{
    if (step < s->warmup) return s->lr * (double)(step + 1) / (double)s->warmup;
    if (s->kind == SCHEDULE_CONSTANT) return s->lr;
    if (step >= s->decay_steps) return s->min_lr;
    double p = (double)(step - s->warmup) / (double)(s->decay_steps - s->warmup);
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + cos(3.14159265358979323846 * p));
}
