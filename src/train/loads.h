// loads: how evenly a model's experts are used, over all ranks and layers; and what follows from it after each step:
// the biases of the choice (moe.balance=bias), the shares that the next step's balance loss reads (batch), the metrics,
// and warnings.
#ifndef LOADS_H
#define LOADS_H
#include "net/model.h"
#include "record/progress.h"
#include "train/replicas.h"
#ifdef __cplusplus
extern "C" {
#endif

// Arrays by layer: counts of the last step (layers, E + 1), last of each layer the dropped slots; state: for each layer
// E biases, then E shares. `state` is what a checkpoint keeps.
typedef struct {
    size_t layers, E, k;
    double *count, *state;
    size_t n_state;
    double balance_coef, z_coef; // of the losses that are on; 0: none
    double *own, *sum;           // (layers, EXPERTS_SUMS) of this rank so far, and of all; loads_watch
    bool watched, biased;        // biased: the biases of `state` act on the choice
    long *idle, *uneven;         // steps in a row: (layers, E) without a slot; (layers) of a low entropy
} Loads;

// Of a model with experts.
Loads loads_create(const ModelShape *shape);
void loads_free(Loads *loads);
// After a step's backward: takes the counts of all ranks. updates: the step changes the weights, and so biases and
// shares move; else its counts are only read.
void loads_step(Loads *loads, Model *model, Replicas *replicas, bool updates);
// From here on the sums that need every token's scores are made, too, or no longer: what they cost is a copy of the
// routers' outputs to the host. The same on all ranks.
void loads_watch(Loads *loads, Model *model, bool on);
// The model gets `state`, which was made or loaded.
void loads_tell(const Loads *loads, Model *model);

// One layer's figures of the last step.
typedef struct {
    double slots, most, least; // chosen; the largest and smallest load, as multiples of the even one
    double nats, entropy;      // of the shares; as a part of ln E: 1 when even, 0 when one expert has all
    double dropped;            // part of the slots
    size_t idle;               // experts without a slot
    double largest;            // mean over tokens of the largest weight; NAN where the step was not watched, as are:
    double balance, z;         // the losses that are on, as doc/experts.md has them
    double bias[2];            // lowest and highest, where they act
} LoadFigures;
LoadFigures loads_figures(const Loads *loads, size_t layer);
// Counts a finished step; true, with a line of words, where something has gone on for exactly `steps` of them: an
// expert got no slot, or the entropy H of the loads was so low that (H - ln k) / (ln E - ln k) < least: 0 when all
// tokens use the same k experts, 1 when loads are even. steps 0: never.
enum { LOADS_TEXT = 300 };
bool loads_judge(Loads *loads, size_t layer, long steps, double least, char text[LOADS_TEXT]);
// A line of metrics for each layer with experts.
void loads_report(const Loads *loads, Progress *progress, int64_t step, int64_t tokens);

#ifdef __cplusplus
}
#endif
#endif
