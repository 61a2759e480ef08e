// plan_traffic: what a layout sends in a step: by group and kind, in bytes and in seconds.
#ifndef PLAN_TRAFFIC_H
#define PLAN_TRAFFIC_H
#include "comm/comm.h"
#include "dev/plan/plan_layout.h"

#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// How a group is placed on the nodes, and its ranks' links, with the bandwidths that collectives reach.
typedef struct {
    int size, inside; // ranks; those of them on one node
    MachineLink in, out;
} PlanGroup;

// One kind of call of one group.
typedef struct {
    const char *group;
    CommKind kind;
    PlanGroup where;
    double calls, payload; // of a rank of the busiest stage, in a step; bytes of one call
    size_t all;            // bytes that all ranks together send in a step; rows to experts: when these have equal loads
    double seconds;        // of those calls, one after the other
    const char *algorithm;
    char formula[120];     // of `all`
} PlanFlow;

enum { PLAN_FLOWS = 16 };

typedef struct {
    PlanFlow flow[PLAN_FLOWS];
    int n;
    size_t all;
} PlanTraffic;

PlanGroup plan_traffic_group(const PlanJob *job, MeshGroup group);
// One layer with experts and one micro-batch: bytes that a rank sends to the others of its ep group in one direction,
// each way: rows (of x C bytes), weights of rows or their gradients, and numbers of rows.
typedef struct {
    double rows, weights, numbers;
} PlanRows;
PlanRows plan_traffic_rows(const PlanJob *job);
// Seconds of one call by the fastest of ring, tree, halving and hierarchical (in the node, between nodes, in the node);
// says which. n_bytes as in collectives_seconds: the longer side of the buffers.
double plan_traffic_seconds(const PlanGroup *where, CommKind kind, double n_bytes, const char **algorithm);
// All of a step. Bytes are those that the trainer's own modules count (tp.h, cp.h, account.h), to the byte, except of
// rows to experts: there they are the mean, with equal loads.
PlanTraffic plan_traffic(const PlanJob *job);

// What goes out of a rank's device memory to its host, [0], and comes in, [1]: of the rank that moves the most, and of
// all ranks together, which is what a run counts, to the byte (with AdamW, for which all state is planned).
typedef struct {
    double rank;
    size_t all;
} PlanMove;
typedef struct {
    PlanMove acts[2], update[2]; // memory.offload_acts; memory.offload
    PlanMove gathers;            // in: of stage 3's gathers from the store
    double chunk[2];             // of acts: one micro-batch of the chunk that has the most
    double bandwidth;            // bytes/s that are reached
} PlanHost;
PlanHost plan_traffic_host(const PlanJob *job);

#ifdef __cplusplus
}
#endif
#endif
