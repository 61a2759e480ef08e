// loads: how evenly a model's experts are used, over all ranks and layers; and what follows from it after each step:
// the biases of the choice (moe.balance=bias), the shares that the next step's balance loss reads (batch), the metrics.
#ifndef LOADS_H
#define LOADS_H
#include "net/model.h"
#include "train/progress.h"
#include "train/replicas.h"
#ifdef __cplusplus
extern "C" {
#endif

// Arrays by layer: counts of the last step (layers, E + 1), last of each layer the dropped slots; state: for each layer
// E biases, then E shares. `state` is what a checkpoint keeps.
typedef struct {
    size_t layers, E;
    double *count, *state;
    size_t n_state;
} Loads;

// Of a model with experts.
Loads loads_create(const ModelShape *shape);
void loads_free(Loads *loads);
// After a step's backward: takes the counts of all ranks. updates: the step changes the weights, and so biases and
// shares move; else its counts are only read.
void loads_step(Loads *loads, Model *model, Replicas *replicas, bool updates);
// The model gets `state`, which was made or loaded.
void loads_tell(const Loads *loads, Model *model);

// One layer's figures of the last step.
typedef struct {
    double slots, most, least; // chosen; the largest and smallest load, as multiples of the even one
    double entropy;            // of the shares, as a part of the even one's: 1 when even, 0 when one expert has all
    double dropped;            // part of the slots
} LoadFigures;
LoadFigures loads_figures(const Loads *loads, size_t layer);
// A line of metrics for each layer with experts.
void loads_report(const Loads *loads, Progress *progress, int64_t step, int64_t tokens);

#ifdef __cplusplus
}
#endif
#endif
