// schedule: linear warm-up, then one of five curves; a momentum and a batch that grow. See schedule.h for the formulas
// and where they come from.
//
// The invariant: the learning rate is a function of the step and the settings alone, so a resumed run or
// one that is stopped early follows the same curve. WSD adds: the rate before decay_start does not depend on
// when the decay begins or ends, so one stable run can be continued, or brought down, from any checkpoint.
//
// All decays are one function: from 1 to 0 between two steps, in one of four shapes. Cosine and linear are WSD without
// the stable part.
//
// Rejected: computing the rate from the previous one (a scheduler with state must be saved, and adds a rounding error
// per step); s / W in the warm-up (the first update would be 0); a schedule over tokens instead of steps (the two
// differ only during the batch ramp, and warm-up depends on the number of updates in Adam's averages).
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

// Where the decay begins; from there to decay_steps p goes from 0 to 1.
static double begin(const Schedule *s)
{
    if (s->moved || (s->kind == SCHEDULE_WSD && s->decay_start > (double)s->warmup)) return s->decay_start;
    return (double)s->warmup;
}

static double decayed(const Schedule *s, ScheduleShape shape, long step)
{
    double start = begin(s);
    if (step >= s->decay_steps) return s->min_lr;
    if ((double)step <= start) return s->lr;
    double p = ((double)step - start) / ((double)s->decay_steps - start);
    if (shape == SCHEDULE_SHAPE_EXPONENTIAL) return s->lr * pow(s->min_lr / s->lr, p);
    return s->min_lr + (s->lr - s->min_lr) * fall(shape, p);
}

double schedule_lr(const Schedule *s, long step)
{
    long W = s->warmup;
    if (step < W) return s->lr * (double)(step + 1) / (double)W;
    switch (s->kind) {
    case SCHEDULE_COSINE: return decayed(s, SCHEDULE_SHAPE_COSINE, step);
    case SCHEDULE_LINEAR: return decayed(s, SCHEDULE_SHAPE_LINEAR, step);
    case SCHEDULE_INVSQRT: return s->lr * sqrt((double)(W > 0 ? W : 1) / (double)(step + 1));
    case SCHEDULE_CONSTANT: return s->lr;
    case SCHEDULE_WSD: return decayed(s, s->shape, step);
    }
    check(!"a schedule of a kind that exists");
    return NAN;
}

void schedule_move_end(Schedule *s, long step, long end, long decay)
{
    double start = begin(s), at = (double)step, p = at > start ? (at - start) / ((double)s->decay_steps - start) : 0;
    if (end <= step || (at > start && step >= s->decay_steps)) return;
    if (p > 0) start = (at - p * (double)end) / (1 - p);
    else if (s->kind == SCHEDULE_WSD) start = fmax(fmax((double)(end - decay), at), (double)s->warmup);
    s->decay_start = start, s->decay_steps = end, s->moved = true;
}

double schedule_momentum(const Schedule *s, long step)
{
    if (step >= s->momentum_warmup) return s->momentum;
    return s->momentum_start + (s->momentum - s->momentum_start) * (double)step / (double)s->momentum_warmup;
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
    if (s->decay_start < 0 || s->decay_start > (double)s->decay_steps)
        die("optim.wsd_decay: %ld steps of decay are not between 0 and optim.decay_steps %ld",
            s->decay_steps - (long)s->decay_start, s->decay_steps);
    if (s->shape == SCHEDULE_SHAPE_EXPONENTIAL && s->min_lr == 0)
        die("optim.wsd_shape: exponential decay never gets to optim.min_lr 0 (try --optim.min_lr=%g, or "
            "--optim.wsd_shape=sqrt)", s->lr > 0 ? s->lr / 100 : 1e-5);
}

// ---- the batch
//
// The batch size of each step is a function of the step alone too: step k + 1 begins at the very sample after the last
// one of step k, whatever the sizes. Both come out of the same walk, so a run that is resumed in the middle of the ramp
// needs nothing but its step.
//
// The size depends on the tokens seen, and these on all sizes before: a recurrence. But the size takes few
// values (levels), and stays on each for a whole number of steps. Level j begins with the first step at which
//
//     t >= begin(j) = ceil(j R / J)          (the same as floor(J t / R) >= j)
//
// and a level that is entered at t lasts ceil((begin(j + 1) - t) / batch) steps. Where one step goes past
// several begins (R small against the batch), t is beyond begin(j + 1) by less than a batch, and the formula
// gives these levels 0 steps. So the walk goes up level by level and never asks which is next.
//
// Rejected: a counter of samples carried from step to step and saved in the checkpoint (one more thing that a
// resume can get wrong, and step 1,000,000 could not be drawn without the 999,999 before it); sizes rounded to
// the nearest level (the first level would be half as long as the others); the line over steps instead of
// tokens (the guides' lengths are in tokens, and steps of a growing batch are not equal shares of them).

// J, the number of times the batch grows; 0 without a ramp.
static int64_t levels(const Ramp *r)
{
    return r->tokens > 0 ? (r->to - r->from) / r->by : 0;
}

// The tokens from which on level j holds. j R needs up to 20 + 44 bits.
static int64_t begin_of(const Ramp *r, int64_t j, int64_t n_levels)
{
    return (int64_t)(((__int128)j * r->tokens + n_levels - 1) / n_levels);
}

// Where the walk stands: `step` is the first step of the level `level`.
typedef struct {
    int64_t level, sequences, step, before;
} Walk;

static Walk walk_start(const Ramp *r)
{
    return (Walk){.sequences = r->tokens > 0 ? r->from : r->to};
}

// How many steps the level holds, 0 or more. Not for the last one, which has no end.
static int64_t walk_length(const Ramp *r, const Walk *w, int64_t n_levels)
{
    int64_t left = begin_of(r, w->level + 1, n_levels) - w->before * r->context, batch = w->sequences * r->context;
    return (left + batch - 1) / batch;
}

static void walk_on(const Ramp *r, Walk *w, int64_t length)
{
    w->step += length;
    w->before += length * w->sequences;
    w->level++;
    w->sequences += r->by;
}

RampStep schedule_ramp_at(const Ramp *ramp, long step)
{
    check(step >= 0);
    Walk w = walk_start(ramp);
    int64_t n_levels = levels(ramp);
    while (w.level < n_levels) {
        int64_t length = walk_length(ramp, &w, n_levels);
        if (step < w.step + length) break;
        walk_on(ramp, &w, length);
    }
    return (RampStep){.sequences = w.sequences, .before = w.before + (step - w.step) * w.sequences};
}

long schedule_reaches(const Ramp *ramp, int64_t sequences)
{
    check(sequences <= ramp->to);
    Walk w = walk_start(ramp);
    int64_t n_levels = levels(ramp);
    while (w.sequences < sequences) walk_on(ramp, &w, walk_length(ramp, &w, n_levels));
    return (long)w.step;
}

long schedule_step_of(const Ramp *ramp, int64_t tokens)
{
    Walk w = walk_start(ramp);
    int64_t n_levels = levels(ramp);
    while (w.level < n_levels) {
        int64_t length = walk_length(ramp, &w, n_levels);
        if (tokens <= (w.before + length * w.sequences) * ramp->context) break;
        walk_on(ramp, &w, length);
    }
    int64_t left = tokens - w.before * ramp->context, batch = w.sequences * ramp->context;
    return (long)(w.step + (left > 0 ? (left + batch - 1) / batch : 0));
}

// The greatest divisor of n that is at most `most`; 1 where there is none.
static long long greatest_divisor(long long n, long long most)
{
    for (long long d = most < n ? most : n; d > 1; d--)
        if (n % d == 0) return d;
    return 1;
}

double schedule_lr_factor(const Ramp *ramp, long step)
{
    if (!ramp->scale_lr) return 1;
    return sqrt((double)schedule_ramp_at(ramp, step).sequences / (double)ramp->to);
}

Ramp schedule_ramp_make(int64_t from_tokens, int64_t full_tokens, int64_t by_tokens, int64_t ramp_tokens,
                        int64_t context, bool scale_lr)
{
    check(context > 0 && full_tokens > 0 && full_tokens % context == 0);
    long long from = from_tokens, full = full_tokens, by = by_tokens ? by_tokens : from_tokens, T = context;
    if (from < 0 || from > full)
        die("batch.ramp_from: %lld is not between 0 and batch.tokens %lld (0: no ramp)", from, full);
    if (from % T)
        die("batch.ramp_from: %lld is not a multiple of model.context %lld (try %lld)", from, T,
            from < T ? T : from / T * T);
    if (from && ramp_tokens && (by < 0 || by % T || (full - from) % by))
        die("batch.ramp_by: %lld tokens at a time, sequences of %lld, do not lead from batch.ramp_from %lld to "
            "batch.tokens %lld (try %lld)", by, T, from, full, greatest_divisor((full - from) / T, by / T) * T);
    if (ramp_tokens < 0) die("batch.ramp_tokens: %lld is below 0 (0: no ramp)", (long long)ramp_tokens);
    bool ramps = from > 0 && ramp_tokens > 0;
    return (Ramp){.from = (ramps ? from : full) / T, .to = full / T, .by = ramps ? by / T : 1, .context = T,
                  .tokens = ramps ? ramp_tokens : 0, .scale_lr = scale_lr};
}

double schedule_lr_ramped(const Schedule *s, const Ramp *ramp, long step)
{
    return schedule_lr(s, step) * schedule_lr_factor(ramp, step);
}
