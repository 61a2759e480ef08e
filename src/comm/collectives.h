// collectives: the algorithms ring, tree, halving, hierarchical and direct, written on send and receive.
//
// An algorithm is a list of steps. collectives_step gives step k of a rank as data: what to send where, what to
// receive from whom, what to add when both are done. It is a pure function, so a test (or a reader) can print
// the steps of every rank of a group of any size without one message. comm.c executes them, step by step, without
// blocking.
//
// Cost of a message of n bytes: alpha + n beta (seconds a message, seconds a byte). With N ranks, L = ceil(log2 N),
// n bytes on every rank:
//
//     all_reduce      ring      2 (N-1) alpha + 2 (N-1)/N n beta
//                     tree      2 L (alpha + n beta)
//                     halving   2 L alpha     + 2 (N-1)/N n beta      N a power of two (else collectives.c)
//                     direct    as ring; its sums are ordered
//                     hierarchical, nodes of k ranks:  2 (k-1 + N/k-1) alpha + 2 (N-1)/N n beta
//     all_gather      ring        (N-1) alpha +   (N-1)/N n beta
//     reduce_scatter  ring, direct                as all_gather
//     broadcast       tree        L (alpha + n beta)
//     all_to_all      direct      (N-1) alpha +   (N-1)/N n beta
//     barrier         tree        L alpha
#ifndef COLLECTIVES_H
#define COLLECTIVES_H
#include "comm/comm.h"
#ifdef __cplusplus
extern "C" {
#endif

// One rank's part in one collective.
typedef struct {
    CommCall call;
    CommAlgorithm algorithm; // not COMM_NATIVE
    int rank, size;
    size_t bytes;  // of an element
    char *scratch; // collectives_scratch bytes
} Collective;

typedef enum { COLLECTIVES_NOTHING, COLLECTIVES_ADD, COLLECTIVES_FOLD } CollectiveAction;

// One step: a send and a receive at the same time, either of which may be absent (-1), then an action.
typedef struct {
    int send_to, recv_from;
    const void *send;
    void *recv;
    size_t n_send, n_recv; // elements
    CollectiveAction action; // ADD: sum = left op right, n elements. FOLD: see collectives_act
    void *sum;
    const void *left, *right;
    size_t n;
} CollectiveStep;

// Whether the algorithm exists for the kind.
bool collectives_exists(CommKind kind, CommAlgorithm algorithm);
// Bytes of scratch that the rank needs.
size_t collectives_scratch(const CommCall *call, CommAlgorithm algorithm, int rank, int size);
// Before a rank's first step: copies its own data to its place in out.
void collectives_begin(const Collective *c);
int collectives_steps(const Collective *c);
CollectiveStep collectives_step(const Collective *c, int k);
// Does the step's action; call it when the step's send and receive are finished.
void collectives_act(const Collective *c, const CollectiveStep *step);

// The formulas. Bytes that this rank sends and receives, without running anything; exact for uneven shards too.
// COMM_NATIVE counts as the algorithm of this file with the fewest bytes.
void collectives_bytes(const CommCall *call, CommAlgorithm algorithm, int rank, int size, size_t *sent,
                       size_t *received);
// Seconds of the slowest rank by the table above; n_bytes is the whole payload (the longer side of the buffers).
double collectives_seconds(CommKind kind, CommAlgorithm algorithm, int size, size_t n_bytes, double alpha, double beta);
// The same of COMM_HIERARCHICAL, over `nodes` nodes of `node` ranks.
double collectives_hierarchical_seconds(int node, int nodes, size_t n_bytes, double alpha, double beta);

#ifdef __cplusplus
}
#endif
#endif
