// observers: the observers of a training step (Observer of run.h). Each is a few lines that connect a component, which
// does not depend on runs, with the step. sharding.h (run.account), trace.h and locate.h of this room have three more.
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

#ifdef __cplusplus
}
#endif
#endif
