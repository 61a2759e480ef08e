// trace: run.trace: what the stages of a pipeline did in one update, as a file for ui.perfetto.dev.
#ifndef TRACE_H
#define TRACE_H
#include "train/run.h"
#ifdef __cplusplus
extern "C" {
#endif

// Writes RUN/trace.json after that update. It does nothing in runs with parallel.pp = 1.
Observer trace_observer(void);

#ifdef __cplusplus
}
#endif
#endif
