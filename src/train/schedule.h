// schedule: the learning rate, the momentum and the batch size of each step.
#ifndef SCHEDULE_H
#define SCHEDULE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/config.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    ScheduleKind kind;
    double lr, min_lr; // peak and final
    long warmup, decay_steps; // steps of linear warm-up; step at which the decay has ended
    double decay_start; // WSD: the first step of the decay; one within the warm-up counts as the warm-up's end
    bool moved;         // by schedule_move_end: decay_start is where any decay begins, between two steps or before 0
    ScheduleShape shape; // WSD
    double momentum, momentum_start; // of Muon's matrices: final and first
    long momentum_warmup;            // steps from one to the other; 0: always the final one
} Schedule;

// Learning rate of update s, counted from 0, with warm-up W and end of decay E (decay_steps):
//
//   s < W      lr (s + 1) / W: the first update is not empty, update W - 1 is the first one at the peak
//   s >= W
//   cosine     min_lr + (lr - min_lr) (1 + cos(pi p)) / 2       Loshchilov & Hutter, arXiv 1608.03983,
//                                                               without restarts
//   linear     min_lr + (lr - min_lr) (1 - p)
//   invsqrt    lr sqrt(W / (s + 1)), with 1 for W = 0           Vaswani et al., arXiv 1706.03762, 5.3: no end
//   constant   lr                                               no end
//   wsd        lr until the decay starts, then by shape         Hu et al. (MiniCPM), arXiv 2404.06395
//     linear, cosine: as above
//     exponential  lr (min_lr / lr)^p                           the same factor each step, as MiniCPM decays
//     sqrt         min_lr + (lr - min_lr) (1 - sqrt(p))         Haegele et al., arXiv 2405.18392
//
// p is 0 at the first step of the decay, where the rate is still lr, 1 at E, and stays 1: min_lr exactly.
// The decay starts at W, that of WSD at decay_start (never before W). A run of E steps ends with update
// E - 1, one step before min_lr. E <= W: min_lr right after the warm-up.
double schedule_lr(const Schedule *schedule, long step);

// Before update `step` of a run whose length has changed: the decay ends at `end`, and its share p that is done stays,
// so the rate does not jump:
//
//     start' = (step - p end) / (1 - p)
//
// A decay of WSD that has not begun takes `decay` steps then, or those that are left. One that is over stays so; an end
// that has passed moves nothing.
void schedule_move_end(Schedule *schedule, long step, long end, long decay);

// Muon's momentum at update s, counted from 0, with momentum_warmup W: start + (momentum - start) s / W for s < W, then
// momentum. A function of the step alone, as the learning rate.
double schedule_momentum(const Schedule *schedule, long step);

// Dies with the name of the setting when the settings make no curve: lr or a step count below 0, min_lr not in
// [0, lr], or an exponential decay to 0, which would be all in its first step.
void schedule_check(const Schedule *schedule);

// ---- the batch grows

// Sizes are in sequences of `context` tokens. from == to or tokens == 0: no ramp, every batch is full.
typedef struct {
    int64_t from, to; // first and full batch; 0 < from <= to
    int64_t by;       // what it grows by at a time: divides to - from
    int64_t context;  // tokens of a sequence
    int64_t tokens;   // R: the batch is full once this many tokens have been seen
    bool scale_lr;    // learning rate times sqrt(batch / full batch)
} Ramp;

typedef struct {
    int64_t sequences; // that this step takes
    int64_t before;    // that all earlier steps took: the step takes samples [before, before + sequences)
} RampStep;

// From the settings, in tokens: batch.ramp_from (0: no ramp), batch.tokens, batch.ramp_by (0: ramp_from),
// batch.ramp_tokens. Dies with the name of the setting where they do not fit: ramp_from below 0, above batch.tokens or
// not a multiple of the context; ramp_by not a divisor of what the batch grows; ramp_tokens below 0. batch.tokens must
// be a multiple of the context already.
Ramp schedule_ramp_make(int64_t from_tokens, int64_t full_tokens, int64_t by_tokens, int64_t ramp_tokens,
                        int64_t context, bool scale_lr);

// Update `step`, counted from 0. With J = (to - from) / by and t the tokens of all earlier steps,
//
//     sequences = from + by min(J, floor(J t / R))
//
// so the batch is linear in tokens, rounded down to a size: `from` at t = 0 and `to` from t = R on (Brown
// et al., GPT-3, arXiv 2005.14165, appendix B). t is worked out exactly, in integers, from the settings
// alone. Takes time in proportion to the number of different batch sizes, not to step.
RampStep schedule_ramp_at(const Ramp *ramp, long step);

// The first step whose batch has at least this many sequences; sequences <= to. With `to`: the ramp's length.
long schedule_reaches(const Ramp *ramp, int64_t sequences);

// The first step before which at least this many tokens have been seen: the number of steps that take them.
long schedule_step_of(const Ramp *ramp, int64_t tokens);

// What the learning rate of a step is multiplied by: sqrt(sequences / to) with scale_lr, else 1. The noise of
// a gradient falls with the root of the batch, and Adam's step is the gradient over its own scale (Krizhevsky,
// arXiv 1404.5997; for Adam: Malladi et al., arXiv 2205.10287).
double schedule_lr_factor(const Ramp *ramp, long step);

// What is used for update `step` of a run with a batch ramp: schedule_lr times schedule_lr_factor.
double schedule_lr_ramped(const Schedule *schedule, const Ramp *ramp, long step);

// Prints the first `steps` updates (at least 1): settings, a table of the steps where something begins or
// ends, and a drawing of the learning rate, and of the batch if it grows.
void schedule_print(const Schedule *schedule, const Ramp *ramp, long steps, FILE *out);
// The same as a picture: learning rate and batch over tokens. Written aside, then renamed; dies when it
// cannot be written.
void schedule_print_svg(const Schedule *schedule, const Ramp *ramp, long steps, const char *path);

// ---- pace.c: how a run that is given minutes (run.minutes) ends when they are over, whatever the machine does meanwhile

// From update `step` on the run is planned to have `steps` updates in all.
typedef struct {
    long step, steps;
} PaceMark;

typedef struct {
    double budget;            // seconds; 0: the run has a number of steps, and no pace
    long steps;               // as planned now
    double spent, begun;      // seconds of earlier processes; when this one began to train, by its clock
    double next;              // seconds: the next look at the clock
    double trained;           // seconds of updates since the last look
    long from;                // updates before it
    double all_trained;       // seconds of updates of this process
    double seconds;           // an update
    double end;               // that the last evaluation will take
    int tenth;                // tenths of the budget, or of the recorded steps, that are over
    PaceMark *recorded;       // run.pace: what another run decided
    int n_recorded;
    long eval_tokens;         // that it scored; 0: all
} Pace;

// From now on, by the clock, after `done` updates of the pace->steps that are planned. A run that was over goes on for
// the time that it is given more.
void pace_begin(Pace *pace, double minutes, long done);
// Takes the decisions of the metrics.jsonl at `path` in place of the clock's: its start, its resumptions and its pace
// lines. Dies with a line where it has none.
void pace_read(Pace *pace, const char *path);
void pace_free(Pace *pace);

// What a checkpoint holds of it, and of the schedule that it has moved.
enum { PACE_SECONDS, PACE_STEPS, PACE_DECAY_START, PACE_DECAY_STEPS, PACE_STATE };
void pace_save(const Pace *pace, const Schedule *schedule, double state[PACE_STATE]);
void pace_load(Pace *pace, Schedule *schedule, const double state[PACE_STATE]);

// Seconds of the run so far: evaluations, samples and saves included.
double pace_elapsed(const Pace *pace);

// After update `step` (counted from 1), which took so many seconds: how many updates the run shall have. It looks at
// the clock at each hundredth of the budget, and at each tenth of the updates that were left then.
long pace_steps(Pace *pace, long step, double seconds);

// The number of the tenth of the run that was over since the last call, 0: none.
int pace_tenth(Pace *pace, long step);

#ifdef __cplusplus
}
#endif
#endif
