// comm_nccl: groups of ranks with one GPU each, over NCCL.
//
// Collectives are NCCL's and stay on the GPUs; messages of single ranks go as in comm_staged.h, where it also stands
// when a call runs and when its result may be used. The numbers keep comm.h's contract: `ordered` sums, sums in 16 bits
// and maxima that keep NaN are not NCCL's own but exchanged by it and added here, in the tree of comm.h.
//
// An error of NCCL, at once or later, ends all ranks with one line.
#ifndef COMM_NCCL_H
#define COMM_NCCL_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

// A "world" of the ranks of `host` (comm_mpi's world, or comm_self), each with its own GPU, `device` from 0 on its
// machine; their buffers are that GPU's memory. NCCL's id goes through `host`. Collective. Freed before `host` is.
// comm_staged_order (comm_staged.h) names the caller's stream. Dies in a program that was built without NCCL.
Comm *comm_nccl_start(Comm *host, int device);
// Whether this program was built with NCCL.
bool comm_nccl_built(void);

#ifdef __cplusplus
}
#endif
#endif
