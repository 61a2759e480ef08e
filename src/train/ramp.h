// ramp: the batch size of each step, growing from a small one to the full one.
#ifndef RAMP_H
#define RAMP_H
#include <stdbool.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// Sizes are in sequences of `context` tokens. from == to or tokens == 0: no ramp, every batch is full.
typedef struct {
    int64_t from, to; // first and full batch, both multiples of quantum; 0 < from <= to
    int64_t quantum;  // the grain: sequences that one micro-batch of every data rank holds together
    int64_t context;  // tokens of a sequence
    int64_t tokens;   // R: the batch is full once this many tokens have been seen
    bool scale_lr;    // learning rate times sqrt(batch / full batch)
} Ramp;

typedef struct {
    int64_t sequences; // that this step takes
    int64_t before;    // that all earlier steps took: the step takes samples [before, before + sequences)
} RampStep;

// From the settings, in tokens: batch.ramp_from (0: no ramp), batch.tokens, batch.ramp_tokens. Dies with the
// name of the setting where they do not fit: ramp_from below 0, above batch.tokens or not a multiple of
// quantum * context, ramp_tokens below 0. batch.tokens must be such a multiple already.
Ramp ramp_make(int64_t from_tokens, int64_t full_tokens, int64_t ramp_tokens, int64_t context, int64_t quantum,
               bool scale_lr);

// Update `step`, counted from 0. With J = (to - from) / quantum and t the tokens of all earlier steps,
//
//     sequences = from + quantum min(J, floor(J t / R))
//
// so the batch is linear in tokens, rounded down to the grain: `from` at t = 0 and `to` from t = R on (Brown
// et al., GPT-3, arXiv 2005.14165, appendix B). t is worked out exactly, in integers, from the settings
// alone. Takes time in proportion to the number of different batch sizes, not to step.
RampStep ramp_at(const Ramp *ramp, long step);

// The first step whose batch has at least this many sequences; sequences <= to. With `to`: the ramp's length.
long ramp_reaches(const Ramp *ramp, int64_t sequences);

// What the learning rate of a step is multiplied by: sqrt(sequences / to) with scale_lr, else 1. The noise of
// a gradient falls with the root of the batch, and Adam's step is the gradient over its own scale (Krizhevsky,
// arXiv 1404.5997; for Adam: Malladi et al., arXiv 2205.10287).
double ramp_lr_factor(const Ramp *ramp, long step);

#ifdef __cplusplus
}
#endif
#endif
