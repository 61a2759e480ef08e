// plan_cluster: how much of the predicted speed is left on many machines. See plan_show.h.
//
// Two things grow with the number of nodes: stragglers and failures (doc/plan_cluster.md).
//
//     clock: 0 ...... checkpoint ...... checkpoint ... failure -> restart, back to the checkpoint
//
// Steps are drawn first: the mean over 200 steps of the slowest of n nodes. Then time is simulated from event to event:
// the time to the next failure is exponential, -(M / n) ln(u).
//
// The default failure rate and its source are in plan_job.h; jitter 0.5% and one slow node in 1000 by 5% are
// assumptions for the reader to change.
//
// The invariant: useful + waiting + saving + again + restarting is the simulated time, to rounding.
//
// Rejected: simulating every step of every node for weeks (10^10 draws for a mean that a few hundred steps give);
// correlated failures of racks and switches, of which no published rates exist.
#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "base/rng.h"

#include <math.h>

enum { SAMPLED_STEPS = 200 };

PlanCluster plan_cluster_default(void)
{
    return (PlanCluster){.step = 1, .nodes = 1, .gpus = 8, .jitter = 0.005, .slow_nodes = 0.001, .slow = 0.05,
                         .mean = INFINITY, .save = 30, .restart = 600, .interval = 3600,
                         .seconds = 30 * 86400.0, .seed = 1};
}

// The mean of the slowest node's time, in ideal steps.
static double slowest(const PlanCluster *c)
{
    Rng rng = rng_make(c->seed, "cluster.jitter", 0), which = rng_make(c->seed, "cluster.slow", 0);
    double sum = 0;
    for (int step = 0; step < SAMPLED_STEPS; step++) {
        double most = 0;
        for (int node = 0; node < c->nodes; node++) {
            double z = rng_normal(rng, (uint64_t)step * (uint64_t)c->nodes + (uint64_t)node);
            double slow = rng_uniform(which, (uint64_t)node) < c->slow_nodes ? c->slow : 0;
            most = fmax(most, 1 + slow + c->jitter * z);
        }
        sum += most;
    }
    return fmax(1, sum / SAMPLED_STEPS);
}

PlanClusterResult plan_cluster(const PlanCluster *c)
{
    check(c->nodes > 0 && c->step > 0 && c->interval > 0 && c->seconds > 0 && c->save >= 0 && c->restart >= 0);
    Rng rng = rng_make(c->seed, "cluster.failures", 0);
    PlanClusterResult r = {.step = c->step * slowest(c)};
    double done = 0, clock = 0; // done: seconds of training that were not lost
    double fails = isfinite(c->mean) ? -c->mean * log(1 - rng_uniform(rng, 0)) : INFINITY;
    while (clock < c->seconds) {
        double saved = clock + c->interval + c->save, end = fmin(saved, c->seconds);
        if (fails < end) { // while training or saving: back to the last checkpoint
            double worked = fmin(fails - clock, c->interval);
            r.again += worked, r.saving += fails - clock - worked;
            r.failures++;
            double back = fmin(c->restart, c->seconds - fails);
            r.restarting += back;
            clock = fails + back;
            fails = clock - c->mean * log(1 - rng_uniform(rng, (uint64_t)r.failures));
            continue;
        }
        double worked = fmin(end - clock, c->interval);
        r.saving += end - clock - worked;
        done += worked, clock = end;
        r.checkpoints += end == saved;
    }
    r.useful = done * c->step / r.step; // the rest of each step waits for the slowest
    r.waiting = done - r.useful;
    r.steps = (long)(done / r.step);
    r.goodput = r.useful / c->seconds;
    return r;
}
