// pace: a number of steps for a number of minutes, planned again while the run goes on. See schedule.h.
//
// At each hundredth of the budget, and where a tenth of the steps that were left is done before it, with `now` seconds
// gone, of which `other` were not updates, and s seconds an update:
//
//     steps = step + (budget - now - end) (1 - other / now) / s
//
// where `end` is what the evaluation after the last update will take. s is a mean that halves with each look.
//
// The learning rate follows (schedule_move_end): the share of its decay that is done stays, so it never jumps, and it
// is done when the time is over. Every decision is a line of metrics.jsonl, so that a run can be made again to the bit
// (run.pace), and what it has come to is in the checkpoint.
//
// Rejected: steps from the speed of the first seconds alone (a compiler beside the start of a run of 4 minutes made it
// one of 2.5, with a tenth of its steps); a learning rate that is a function of the clock at each step (the same, but a
// record would need every step's).
#include "train/schedule.h"

#include "base/check.h"
#include "base/clock.h"
#include "record/metrics.h"

#include <math.h>
#include <stdlib.h>

enum { LOOKS = 100, TENTHS = 10 };

void pace_begin(Pace *p, double minutes, long done)
{
    p->budget = 60 * minutes;
    double left = p->budget - p->spent;
    long more = p->spent > 0 && !p->recorded ? (long)(left * (double)done / p->spent) : 0;
    if (done && done >= p->steps && more > 0) p->steps = done + more;
    p->from = done;
    p->begun = clock_seconds();
    p->next = (floor(LOOKS * p->spent / p->budget) + 1) * p->budget / LOOKS;
    p->tenth = (int)(TENTHS * p->spent / p->budget);
}

void pace_save(const Pace *p, const Schedule *s, double state[PACE_STATE])
{
    state[PACE_SECONDS] = pace_elapsed(p);
    state[PACE_STEPS] = (double)p->steps;
    state[PACE_DECAY_START] = s->moved ? s->decay_start : NAN;
    state[PACE_DECAY_STEPS] = (double)s->decay_steps;
}

void pace_load(Pace *p, Schedule *s, const double state[PACE_STATE])
{
    s->moved = !isnan(state[PACE_DECAY_START]);
    if (s->moved) s->decay_start = state[PACE_DECAY_START], s->decay_steps = (long)state[PACE_DECAY_STEPS];
    if (!(p->budget > 0)) p->spent = state[PACE_SECONDS]; // a rollback gives no time back
    p->steps = (long)state[PACE_STEPS];
}

void pace_read(Pace *p, const char *path)
{
    MetricsLog log = metrics_read(path);
    p->recorded = calloc(log.n_rows + 1, sizeof *p->recorded);
    if (!p->recorded) die("run.pace: no memory");
    for (size_t i = 0; i < log.n_rows; i++) {
        const MetricsRow *row = &log.row[i];
        bool decides = row->event == METRICS_START || row->event == METRICS_RESUME || row->event == METRICS_PACE;
        if (row->event == METRICS_START) p->eval_tokens = (long)row->eval_tokens;
        if (decides && row->steps > 0) p->recorded[p->n_recorded++] = (PaceMark){(long)row->step, (long)row->steps};
    }
    metrics_log_free(&log);
    if (!p->n_recorded || p->recorded[0].step)
        die("run.pace: %s has no start line with a number of steps (the metrics.jsonl of a run)", path);
}

void pace_free(Pace *p)
{
    free(p->recorded);
}

double pace_elapsed(const Pace *p)
{
    return p->spent + (p->budget > 0 ? clock_seconds() - p->begun : 0);
}

static long recorded_steps(const Pace *p, long step)
{
    long steps = p->steps;
    for (int i = 0; i < p->n_recorded; i++)
        if (p->recorded[i].step == step) steps = p->recorded[i].steps;
    return steps;
}

long pace_steps(Pace *p, long step, double seconds)
{
    if (p->recorded) return recorded_steps(p, step);
    double now = pace_elapsed(p);
    p->trained += seconds, p->all_trained += seconds;
    if (now < p->next && 10 * (step - p->from) < p->steps - p->from) return p->steps;
    double mean = p->trained / (double)(step - p->from);
    p->seconds = p->seconds > 0 ? (p->seconds + mean) / 2 : mean;
    p->from = step, p->trained = 0;
    p->next = (floor(LOOKS * now / p->budget) + 1) * p->budget / LOOKS;
    double here = now - p->spent, used = here > 0 ? p->all_trained / here : 1;
    double left = (p->budget - now - p->end) * used / p->seconds;
    return step + (left > 0 ? lround(left) : 0);
}

int pace_tenth(Pace *p, long step)
{
    double done = p->recorded ? (double)step / (double)p->steps : pace_elapsed(p) / p->budget;
    int tenth = (int)(TENTHS * done);
    bool another = tenth > p->tenth;
    p->tenth = tenth;
    return another ? tenth : 0;
}
