// plan_cluster: weeks of a run on many accelerators, simulated with stragglers, failures and checkpoints.
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double step;        // seconds, when all nodes are equally fast
    int nodes, gpus;
    double jitter;      // standard deviation of a node's time for a step, relative to the step
    double slow_nodes, slow; // the fraction of nodes that are always slower, and by which fraction
    double mean;        // seconds between failures of the whole cluster; INFINITY: none
    // seconds that a checkpoint stops training, that a restart takes, between checkpoints
    double save, restart, interval;
    double seconds;     // of wall-clock time to simulate
    uint64_t seed;
} PlanCluster;

typedef struct {
    double step;        // mean seconds of a step, with stragglers
    double useful, waiting, saving, again, restarting; // seconds; again: of work done twice
    long steps, failures, checkpoints; // steps: those not lost
    double goodput;     // useful / all
} PlanClusterResult;

PlanCluster plan_cluster_default(void);
// The result depends only on the argument, its seed included.
PlanClusterResult plan_cluster(const PlanCluster *c);

#ifdef __cplusplus
}
#endif
#endif
