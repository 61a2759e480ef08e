// locate: where the first number that is not finite came from: tensor and rank (monitor.locate).
#ifndef LOCATE_H
#define LOCATE_H
#include "train/run.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { LOCATE_TEXT = 160 };

// Looks at what each unit writes, forward and backward, before anything of it goes to other ranks.
typedef struct {
    Model *model;
    UnitHooks inner; // the hooks that were there before
    long calls;      // units run in this step so far
    long found;      // the call after which it was; -1: none
    char what[LOCATE_TEXT];
} Locate;

// Installs itself before the model's other hooks. The struct must not move.
void locate_begin(Locate *locate, Model *model);
// Before each step.
void locate_step(Locate *locate);
// After a step whose loss or gradient was not finite, on all ranks of the group (NULL: one rank): "rank 2: the
// gradient of layers.1.ffn.up.weight". Weights come before what was computed from them. False: every rank's own
// numbers were finite, the sum over them was not.
bool locate_first(Locate *locate, Comm *ranks, char text[LOCATE_TEXT]);

Observer locate_observer(Model *model);

// Whether all n numbers are finite, in the storage type.
bool locate_finite_x(const Dev *dev, const X *x, size_t n);

#ifdef __cplusplus
}
#endif
#endif
