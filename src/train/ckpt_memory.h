// ckpt_memory: checkpoints in the memory of hosts, each part on two of them, between those that are files.
//
//   MEMORY/pretrain-ID/rank_00003_of_00004/checkpoints/step_00000120/   what rank 3 saved: files and manifest of ckpt.h
//
// MEMORY is a folder that survives the process, but not the host: /dev/shm. The host of rank r has the directories of
// its own ranks, and of those whose copies it keeps. ID belongs to the run: RUN/memory.id.
#ifndef CKPT_MEMORY_H
#define CKPT_MEMORY_H
#include "train/ckpt.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct CkptMemory CkptMemory;

// memory_dir may differ from rank to rank; ranks with another host name or another memory_dir are on another host.
// fresh: a new run, which forgets what an earlier one of this name left. Collective. Dies where the folder cannot be
// used. world may be NULL: one process alone.
CkptMemory *ckpt_memory_open(Comm *world, const char *run_dir, const char *memory_dir, bool fresh);
// Saves each rank's part on its host, then sends it to the next host; the last two steps are kept. False, on all
// ranks: error says what failed; the step before is still there. Collective.
bool ckpt_memory_save(CkptMemory *memory, const CkptState *state, const CkptPart *part, char *error, size_t n_error);
// Whether copies go to another host: false when there is one host, or one has more than half of the ranks.
bool ckpt_memory_copies(const CkptMemory *memory);
// When the hosts hold, between them, all parts of a step after the newest in RUN/checkpoints, writes them there as a
// checkpoint. Returns that step, or -1. It is not verified: loading does that. Collective; call it before any load.
long ckpt_memory_restore(CkptMemory *memory);
// Removes all that the hosts hold: the run has it in files, or has gone back before it. Every rank calls it.
void ckpt_memory_forget(CkptMemory *memory);
void ckpt_memory_close(CkptMemory *memory); // NULL is allowed

#ifdef __cplusplus
}
#endif
#endif
