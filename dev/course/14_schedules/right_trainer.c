// The trainer's own.
#include "lr.h"

#include "train/schedule.h"

double learning_rate(const LrSchedule *s, long step)
{
    static const ScheduleKind kind[3] = {SCHEDULE_COSINE, SCHEDULE_WSD, SCHEDULE_INVSQRT};
    Schedule same = {.kind = kind[s->kind], .lr = s->peak, .min_lr = s->least, .warmup = s->warmup,
                     .decay_start = s->decay_start, .decay_steps = s->end, .shape = SCHEDULE_SHAPE_LINEAR};
    return schedule_lr(&same, step);
}
