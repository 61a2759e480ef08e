// ckpt_async: checkpoints that are written while training goes on.
//
// A save copies this rank's pieces into memory of its own and returns; a thread writes them. All calls are collective,
// for the thread that trains:
//
//     while (ckpt_async_full(a, step)) { ckpt_async_poll(a, true, &done); report(done); }
//     ckpt_async_save(a, &state);
//     ...                                                              // at every step's end:
//     while (ckpt_async_poll(a, false, &done)) report(done);
#ifndef CKPT_ASYNC_H
#define CKPT_ASYNC_H
#include "train/ckpt.h"
#include "base/mem.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { CKPT_ASYNC_SAVES = 2 }; // at a time

typedef struct CkptAsync CkptAsync;

// A save that has come to an end.
typedef struct {
    long step;
    bool ok;          // committed, on all ranks or on none
    char error[600];  // what failed, and on which rank
    size_t n_bytes;   // that this rank wrote
    double seconds;   // that its thread took
    double busy;      // of these, a processor's: with all cores training it is taken from training
    double stalled;   // that training stood still for it: the copy, and waiting where all were in use
} CkptDone;

// Bytes of one snapshot; there are CKPT_ASYNC_SAVES.
size_t ckpt_async_bytes(const CkptPart *part);
// Snapshots come from `host`, tag MEM_HOST; the thread starts with the first save. part, and what run points to, must
// outlive it; run->world may be NULL in a plan.
CkptAsync *ckpt_async_create(const CkptRun *run, const CkptPart *part, Mem *host);
// Waits for the thread; what was not polled is not committed. Before mem_free_all. NULL is allowed.
void ckpt_async_free(CkptAsync *async);

// Whether there is room for no other save, or one of this step is on its way.
bool ckpt_async_full(const CkptAsync *async, long step);
// Begins a save of what the run holds now. What the state points to, but for config and optim, is copied.
void ckpt_async_save(CkptAsync *async, const CkptState *state);
// True: the oldest save has ended, and *done says how. Without `wait` it costs one small message where a save is on its
// way, and nothing where none is. False: none has ended (wait: there is none).
bool ckpt_async_poll(CkptAsync *async, bool wait, CkptDone *done);

#ifdef __cplusplus
}
#endif
#endif
