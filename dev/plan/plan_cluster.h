// plan_cluster: weeks of a run on many accelerators, played with stragglers, failures and checkpoints.
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double step;        // seconds, when all nodes are equally fast
    int nodes, gpus;
    double jitter;      // standard deviation of a node's time for a step, as a part of it
    double slow_nodes, slow; // that part of the nodes is slower by that part, always
    double mean;        // seconds between failures of the whole cluster; INFINITY: none
    // seconds that a checkpoint stops training, that a restart takes, between checkpoints
    double save, restart, interval;
    double seconds;     // of wall clock to play
    uint64_t seed;
} PlanCluster;

typedef struct {
    double step;        // mean seconds of a step, with stragglers
    double useful, waiting, saving, again, restarting; // seconds: of ideal steps; for stragglers; ...; done twice
    long steps, failures, checkpoints; // steps that were kept
    double goodput;     // useful / all
} PlanClusterResult;

PlanCluster plan_cluster_default(void);
// A function of its argument: the same seed gives the same result.
PlanClusterResult plan_cluster(const PlanCluster *c);

#ifdef __cplusplus
}
#endif
#endif
