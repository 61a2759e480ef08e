// observers: the observers of a training step (Observer of run.h). Each is a few lines that connect a component, which
// does not depend on runs, with the step. sharding.h has one more (run.account).
#ifndef OBSERVERS_H
#define OBSERVERS_H
#include "train/run.h"
#ifdef __cplusplus
extern "C" {
#endif

Observer observers_marks(void);  // ranges for a profiler: "update", "optimizer"
Observer observers_faults(const Config *cfg); // run.fault (fault.h)
Observer observers_loads(void); // the loads of experts: what the metrics want of a step, and warnings (loads.h)
Observer observers_noise(void);  // run.noise_every: the gradient noise scale (noise.h)
Observer observers_norms(void);  // run.norms_every: norms of each tensor (grads.h)
Observer observers_dump(void);   // run.dump: every tensor of one update (dump.h)
Observer observers_agree(void);  // monitor.agree_every: whether replicas are still the same (ranks.c)
// trace.c: run.trace. Writes RUN/trace.json after that update. It does nothing in runs with parallel.pp = 1.
Observer trace_observer(void);

// ---- locate.c: where the first number that is not finite came from, tensor and rank (monitor.locate)

Observer locate_observer(Model *model);

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
// Whether all n numbers are finite, in the storage type.
bool locate_finite_x(const Dev *dev, const X *x, size_t n);

#ifdef __cplusplus
}
#endif
#endif
