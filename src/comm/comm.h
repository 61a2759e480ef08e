// comm: groups of ranks, and the ten calls (collectives and messages) that they make.
//
// A Comm is one group of ranks as one of them sees it. comm_self is a group of one and the smallest
// specification; comm_mpi runs under mpiexec; comm_threads plays every rank in one process, for tests.
// Rank and size are members, never global, so a program may be in many groups at once.
//
// A call *starts* and returns a CommRequest; comm_wait finishes it. Until then its buffers belong to the call: `in`
// must not be written, `out` neither read nor written (counts are copied). All ranks of a group make the same
// collective calls in the same order; waits may come in any order. One thread of a rank makes all calls. Buffers are
// host memory, except in the groups of comm_staged.h and comm_nccl.cu, which take GPU memory; comm_host gives the group
// of the same ranks for host memory.
//
// Sums. fp32, fp64 and integers add in their own type; bf16 and fp16 add in fp32 and round once, at the end. With
// `ordered`, a floating-point sum is the binary tree over ranks (r0 + r1) + (r2 + r3), built as a binary counter counts
// (three ranks: (r0 + r1) + r2). Every algorithm then gives the same bits, equal to those of one process that adds the
// same leaves in that tree. COMM_MAX is NaN when any input is.
//
// Errors end the job with one line: a failing backend, a message of another length than expected, a call on a
// wrong rank. comm_set_checked(comm, true) also compares each collective call over the ranks before it runs.
#ifndef COMM_H
#define COMM_H
#include "base/config.h"
#include "base/mem.h"
#include "comm/supervisor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    COMM_FP32, COMM_BF16, COMM_FP16, COMM_FP64, COMM_INT32, COMM_INT64, COMM_BYTE, COMM_TYPES
} CommType; // COMM_BYTE is only moved, never reduced
typedef enum { COMM_SUM, COMM_MAX } CommOp;
typedef enum {
    COMM_ALL_REDUCE, COMM_ALL_GATHER, COMM_REDUCE_SCATTER, COMM_BROADCAST, COMM_ALL_TO_ALL, COMM_SEND, COMM_RECV,
    COMM_BARRIER, COMM_KINDS
} CommKind;
enum { COMM_NAME = 16, COMM_MAX_TAG = 32767 };

// Counts since the group was made. Bytes on the wire are this rank's. They are exact for the algorithms of
// collectives.c; for a native call they are those of the collectives.c algorithm with the fewest bytes (ring; tree for
// a broadcast).
typedef struct {
    size_t calls, payload; // payload: bytes of the longer side of the call's buffers on this rank
    size_t sent, received; // bytes on the wire
    double waited;         // seconds inside comm_wait
    double seconds;        // from start to the end of its wait, summed over calls
} CommCount;

// A call in flight; all zero: none. It may be copied, and is no longer valid after comm_wait.
typedef struct {
    unsigned slot, serial;
} CommRequest;

// The description of a call, for backends and algorithms. Counts and offsets are in elements.
typedef struct {
    CommKind kind;
    CommType type;
    CommOp op;
    void *out;
    const void *in;
    size_t n;                            // all_reduce, broadcast, send, recv
    const size_t *counts, *offsets;      // (size): shards; all_to_all: elements to each rank
    const size_t *in_counts, *in_offsets; // (size): all_to_all: elements from each rank
    int peer, tag;                       // send, recv; broadcast: the root
    int node;                            // COMM_HIERARCHICAL: ranks of a node, neighbours; divides size
    CommAlgorithm algorithm;             // for a backend with CommOps.device
    void *scratch;                       // and with CommOps.direct: collectives_scratch bytes for COMM_DIRECT's sums
} CommCall;

// A backend's message or native collective in flight.
typedef struct {
    union {
        void *pointer;
        int64_t number;
    } handle;
    const void *expect; // for a receive: marks that n_bytes must arrive from `peer`
    size_t n_bytes;
    int peer;
} CommTicket;

typedef struct Comm Comm;
typedef struct CommFamily CommFamily;

// What a backend provides. `send` and `recv` also carry the collectives of collectives.c.
typedef struct {
    const char *name;
    // Fills `child` (rank, size, state) with the ranks that passed the same color, ordered by key. Collective.
    // False: color is negative and this rank is in no new group.
    bool (*split)(Comm *comm, Comm *child, int color, int key);
    // Messages between two ranks on the same channel with the same tag arrive in the order in which they were sent.
    // Channels: 0 for comm_send, 1 for collectives, 2 for checks.
    void (*send)(Comm *comm, CommTicket *ticket, const void *buf, size_t n_bytes, int to, int tag, int channel);
    void (*recv)(Comm *comm, CommTicket *ticket, void *buf, size_t n_bytes, int from, int tag, int channel);
    bool (*test)(Comm *comm, CommTicket *ticket); // true when finished; drives progress; never blocks
    // Starts the backend's own collective; NULL: it has none. work: (4 * size) ints that last until it is finished.
    void (*native)(Comm *comm, CommTicket *ticket, const CommCall *call, int *work);
    void (*free)(Comm *comm);
    // Buffers are device memory: every call goes to send, recv and native, also in groups of one, whatever the
    // algorithm. Channel 2 carries host memory all the same.
    bool device;
    bool direct; // native does NATIVE and, for sums, DIRECT: no other algorithm is used
    void *(*alloc)(size_t n_bytes); // memory for the family: zeroed; returns NULL: none left. Both NULL: host memory
    void (*release)(void *ptr);
    // May be NULL. comm_wait calls it first: true when later work in the device's own order (stream) will find the
    // result, so that the host need not wait. The ticket is then finished.
    bool (*finish)(Comm *comm, CommTicket *ticket);
    // May be NULL. Sleeps until another rank has done something, or for so many seconds; false: cannot tell, at once.
    bool (*doze)(Comm *root, double seconds);
    // May be NULL. Called with the family's first group whenever its calls, or its partner's, are driven: it reports
    // errors of calls for which the device waits, not the host.
    void (*watch)(Comm *root);
} CommOps;

struct Comm {
    const CommOps *ops;
    int rank, size;
    double share;         // cores per rank where there are more ranks than cores; else 1
    char name[COMM_NAME]; // "world", "dp"
    CommAlgorithm algorithm[COMM_KINDS];
    int node; // of COMM_HIERARCHICAL
    int machine; // set by the backend: the same number on two ranks when they are on one machine
    bool ordered;
    bool shared; // set by the backend: native does NATIVE and DIRECT, of any length, in place, sums in the tree's order
    CommCount count[COMM_KINDS];
    unsigned sequence; // of collective calls: their tag
    CommFamily *family; // what a group shares with all groups split from it: requests, scratch, the slow link
    Comm *next;         // the family's groups, in the order in which they were made
    Comm *host;         // of a group for device memory: the same ranks, for host memory; set by the backend
    void *state;        // the backend's
};

// ---- groups

// A group of one: rank 0 of 1.
Comm *comm_self(void);
// For backends: a new family's first group. rank, size and state are set by the caller.
Comm *comm_create(const CommOps *ops, const char *name);
// Ranks that pass the same color form a group, ordered by key, then by rank; a negative color: NULL. Collective.
// The group inherits algorithms and `ordered`. Its name appears in reports and errors.
Comm *comm_split(Comm *comm, int color, int key, const char *name);
// The group of the same ranks for host memory (for a group on host memory, the group itself): for losses, norms,
// decisions, clocks and all else that the host reads or writes. comm_host(NULL) is NULL.
Comm *comm_host(Comm *comm);
// The group that all of the family were split from.
Comm *comm_root(const Comm *comm);
// host[r] (size): the machine of rank r, numbered from 0 in the order of their first ranks. Collective, on host memory.
void comm_hosts(Comm *comm, int *host);
// Of the host[n] of comm_hosts: how many neighbouring ranks each host has; 0 where that is not the same number for all.
int comm_host_ranks(const int *host, int n);
// Frees the whole family: every group split from this one. Requests must be finished.
void comm_free(Comm *comm);

// ---- settings of a family or a group; the same on all ranks

// The allocator of the family's scratch, tagged MEM_COMM: of the memory that its backend takes.
Mem *comm_mem(Comm *comm);
// Of a group, for groups split from it later too. Dies where the algorithm does not exist for the kind.
void comm_set_algorithm(Comm *comm, CommKind kind, CommAlgorithm algorithm);
// For COMM_HIERARCHICAL: ranks i node to i node + node - 1 share a node. Dies where node does not divide the group. Not
// for groups split from it, which have no nodes.
void comm_set_node(Comm *comm, int node);
void comm_set_ordered(Comm *comm, bool ordered);
// The algorithm that runs for a call, which also depends on `ordered`, the type and the backend (see collectives.c).
CommAlgorithm comm_algorithm(const Comm *comm, CommKind kind, CommType type, CommOp op);
// Whole family: compare every collective call over the ranks first. Costs a message round per call.
void comm_set_checked(Comm *comm, bool checked);
// Whole family: simulates a slow network for this rank. Every call takes at least collectives_seconds(...) on a link
// that carries one call after another; the clock runs from the start of the call, and comm_wait sleeps the remaining
// time. alpha: seconds per message; beta: seconds per byte. 0, 0: off.
void comm_set_slow(Comm *comm, double alpha, double beta);
// Whole family: trace is called at the start of every call on the slow link, with the times (clock.h) between which the
// call has the link. For drawings; it must not call comm. NULL: no trace.
typedef void (*CommTrace)(void *arg, const Comm *comm, CommKind kind, double begin, double end);
void comm_set_trace(Comm *comm, CommTrace trace, void *arg);
// Whole family: calls and waits are reported to this heartbeat (supervisor.h); NULL: none. The second returns it.
void comm_set_heartbeat(Comm *comm, Heartbeat *beat);
Heartbeat *comm_heartbeat(const Comm *comm);
// For backends: from here on, driving or waiting for calls of one of the two families also drives the other's, until
// one of them is freed.
void comm_set_partner(Comm *comm, Comm *other);
// Whole family: a waiting rank tests `spins` times before it sleeps between tests. 0 where ranks share cores.
void comm_set_spins(Comm *comm, int spins);

// ---- calls. `out` may equal `in` where said; otherwise they must not overlap.

// out (n) = op over ranks of in (n). out may equal in.
CommRequest comm_all_reduce(Comm *comm, void *out, const void *in, size_t n, CommType type, CommOp op);
// out = the ranks' shards, one after the other; in (counts[rank]). in may be its own place in out.
CommRequest comm_all_gather(Comm *comm, void *out, const void *in, const size_t *counts, CommType type);
// out (counts[rank]) = op over ranks of that shard of in (sum of counts). in is kept; out may be its own place in
// in, on all ranks or on none.
CommRequest comm_reduce_scatter(Comm *comm, void *out, const void *in, const size_t *counts, CommType type, CommOp op);
// buf (n) of rank `root` to all.
CommRequest comm_broadcast(Comm *comm, void *buf, size_t n, CommType type, int root);
// in: to[0] elements for rank 0, then to[1] for rank 1 ...; out: from[0] elements of rank 0, ...
CommRequest comm_all_to_all(Comm *comm, void *out, const void *in, const size_t *to, const size_t *from, CommType type);
// To and from another rank; tag 0 to COMM_MAX_TAG. Those of one pair and tag match in order.
CommRequest comm_send(Comm *comm, const void *buf, size_t n, CommType type, int to, int tag);
CommRequest comm_recv(Comm *comm, void *buf, size_t n, CommType type, int from, int tag);
CommRequest comm_barrier(Comm *comm);

// Finishes a call and clears *request; a cleared request returns at once.
void comm_wait(Comm *comm, CommRequest *request);
// Whether a call is over, without waiting; comm_wait then returns at once. True for a cleared request.
bool comm_done(Comm *comm, const CommRequest *request);
// Drives every call of the family that is in flight, without blocking. Long computations call it now and then, so that
// communication overlaps with them. True when all of the calls are done (they may still have to be waited for).
bool comm_progress(Comm *comm);

// ---- names and sizes

size_t comm_type_bytes(CommType type);
CommType comm_type_of(XType x); // of what is stored so: weights, activations (dev->x_type)
const char *comm_type_name(CommType type);
const char *comm_kind_name(CommKind kind);
const char *comm_algorithm_name(CommAlgorithm algorithm);
// counts[r]: n elements divided over `size` ranks: n / size, and one more for each of the first n % size.
void comm_even(size_t *counts, size_t n, int size);

// Seconds that this rank has spent inside comm_wait, in all groups of the family and of its partner's.
double comm_waited(const Comm *comm);
// Zeroes the counters of the family, and of its partner's; comm_waited goes on.
void comm_reset_counts(Comm *comm);

// ---- MPI (comm_mpi.c)

// Starts MPI and returns the group of all ranks of the job, "world". Also works for one process without mpiexec. From
// here on a process that ends without comm_mpi_stop ends the job, all ranks, with its exit status. Dies when MPI does
// not start. Under a launcher it forks first: the parent becomes the rank's supervisor.
Comm *comm_mpi_start(void);
// The same without supervisor, for debuggers: a killed rank is not named, and a rank that hangs is not ended.
Comm *comm_mpi_start_bare(void);
// Name and version of the MPI that the program is linked to: "Open MPI v4.1.4". Needs no start.
const char *comm_mpi_library(void);
// How many ranks share this rank's cores (1 under a launcher that binds each to its own), and the threads that
// this rank may use: those cores / those ranks, 1 at least.
int comm_mpi_neighbours(const Comm *world);
int comm_mpi_threads(const Comm *world);
// One line a rank on rank 0: process and machine. Collective.
void comm_mpi_places(Comm *world, FILE *out);
// Frees the family and ends MPI. Collective.
void comm_mpi_stop(Comm *world);

// ---- NCCL (comm_nccl.cu)
//
// Collectives use NCCL and stay on the GPUs. Messages between two ranks go through the host as in comm_staged.h, which
// also says when a call runs and when its result may be used. Results keep the contract above: for `ordered` sums,
// 16-bit sums and floating-point maxima NCCL only moves the data, and a kernel adds in the tree. An error of NCCL, at
// once or later, ends all ranks with one line.

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
