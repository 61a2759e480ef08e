// comm_nccl: groups of ranks with one GPU each, over NCCL.
//
// Collectives use NCCL and stay on the GPUs. Messages between two ranks go through the host as in comm_staged.h, which
// also says when a call runs and when its result may be used. Results keep comm.h's contract: for `ordered` sums,
// 16-bit sums and floating-point maxima NCCL only moves the data, and a kernel here adds in the tree of comm.h.
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
