// comm_staged: groups of ranks whose buffers are GPU memory: all data goes through pinned host memory and a group of
// host ranks (comm_mpi).
//
// So several ranks may share one GPU, and a machine without NCCL can train on several. Sums are computed on the host,
// by the same code and in the same order as those of host memory: the same bits. comm_nccl.cu is faster.
//
// When a call may run, and when its result may be used:
//   - without comm_staged_order: the call's input must be complete when the call starts; comm_wait returns when the
//     result is in the buffers
//   - with it: the call runs after all work that is in the caller's stream when it starts, and work that is put into
//     that stream after comm_wait finds the result. comm_wait returns at once where the GPU itself can wait
//     (collectives of comm_nccl)
#ifndef COMM_STAGED_H
#define COMM_STAGED_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

// A "world" of the ranks of `host` (comm_mpi's world, or comm_self), for memory of GPU `device`, from 0; comm_host of
// it is `host`. Splitting it splits `host` too, twice: for comm_host, and for what this backend itself sends.
// Collective. Freed (comm_free) before `host` is.
Comm *comm_staged_start(Comm *host, int device);
// The caller's stream (a cudaStream_t), for the whole family of comm_staged_start or comm_nccl_start, which it
// outlives.
void comm_staged_order(Comm *world, void *stream);

#ifdef __cplusplus
}

#include "base/gpu.h"

#include <deque>
#include <vector>

// ---- for comm_nccl.cu, which is this with collectives of its own

struct StagedJob { // a call in flight
    bool used, staged; // staged: through the host; otherwise `event` alone says when it is over
    bool queued;       // its host call has not started
    Comm *comm;
    CommCall call;
    CommAlgorithm algorithm; // the group's settings when the call was made: its host call starts later
    bool in_order;
    cudaEvent_t event;
    char *pinned, *out; // the host's copies: the input, and after it the output
    size_t room;
    CommRequest request; // of the host's group
    size_t n_in, n_out;  // bytes
    bool arrived;        // the host's call is over, and its result is being copied to the GPU
};

struct StagedFamily {
    int device, groups;
    cudaStream_t copies;     // between the host and the GPU
    cudaStream_t order;      // the caller's
    cudaEvent_t ready;       // the caller's stream, when the last call started
    bool ordered;            // there is one
    std::vector<StagedJob *> jobs;
    std::deque<StagedJob *> queue; // whose host calls have not started, in the order of the calls
};

struct StagedGroup {
    StagedFamily *family;
    Comm *host;           // for this backend's own calls only: they start later than the program's
    void *nccl;           // comm_nccl.cu's
    cudaStream_t talk;
};

inline StagedGroup *staged_group(const Comm *comm)
{
    return (StagedGroup *)comm->state;
}
// A family's first group, over the ranks of `host`.
Comm *comm_staged_world(const CommOps *ops, Comm *host, int device);
// Makes `stream` wait for the work that is in the caller's stream now.
void comm_staged_after(StagedFamily *f, cudaStream_t stream);
StagedJob *comm_staged_job(Comm *comm, CommTicket *ticket, const CommCall *call);
bool comm_staged_split(Comm *comm, Comm *child, int color, int key);
void comm_staged_send(Comm *comm, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel);
void comm_staged_recv(Comm *comm, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel);
bool comm_staged_test(Comm *comm, CommTicket *ticket);
void comm_staged_native(Comm *comm, CommTicket *ticket, const CommCall *call, int *work);
void comm_staged_free(Comm *comm);
#endif
#endif
