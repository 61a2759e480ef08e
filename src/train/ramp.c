// ramp: the batch size of each step, as a function of the step alone. See ramp.h for the formula.
//
// The invariant: step k + 1 begins at the very sample behind the last one of step k, whatever the sizes. Both
// come out of the same walk, so a run that is resumed in the middle of the ramp needs nothing but its step.
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
#include "train/ramp.h"

#include <math.h>

#include "base/check.h"

// J, the number of times the batch grows; 0 without a ramp.
static int64_t levels(const Ramp *r)
{
    return r->tokens > 0 ? (r->to - r->from) / r->quantum : 0;
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
    w->sequences += r->quantum;
}

RampStep ramp_at(const Ramp *ramp, long step)
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

long ramp_reaches(const Ramp *ramp, int64_t sequences)
{
    check(sequences <= ramp->to);
    Walk w = walk_start(ramp);
    int64_t n_levels = levels(ramp);
    while (w.sequences < sequences) walk_on(ramp, &w, walk_length(ramp, &w, n_levels));
    return (long)w.step;
}

double ramp_lr_factor(const Ramp *ramp, long step)
{
    if (!ramp->scale_lr) return 1;
    return sqrt((double)ramp_at(ramp, step).sequences / (double)ramp->to);
}

Ramp ramp_make(int64_t from_tokens, int64_t full_tokens, int64_t ramp_tokens, int64_t context, int64_t quantum,
               bool scale_lr)
{
    int64_t grain = context * quantum;
    check(context > 0 && quantum > 0 && full_tokens > 0 && full_tokens % grain == 0);
    if (from_tokens < 0 || from_tokens > full_tokens)
        die("batch.ramp_from: %lld is not between 0 and batch.tokens %lld (0: no ramp)", (long long)from_tokens,
            (long long)full_tokens);
    if (from_tokens % grain)
        die("batch.ramp_from: %lld is not a multiple of a micro-batch of %lld tokens (try %lld)",
            (long long)from_tokens, (long long)grain,
            (long long)(from_tokens < grain ? grain : from_tokens / grain * grain));
    if (ramp_tokens < 0) die("batch.ramp_tokens: %lld is below 0 (0: no ramp)", (long long)ramp_tokens);
    bool ramps = from_tokens > 0 && ramp_tokens > 0;
    return (Ramp){.from = (ramps ? from_tokens : full_tokens) / context, .to = full_tokens / context,
                  .quantum = quantum, .context = context, .tokens = ramps ? ramp_tokens : 0,
                  .scale_lr = scale_lr};
}
