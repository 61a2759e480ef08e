// run_ranks: what a run with several ranks adds to a run: groups, the share of a batch, agreeing.
//
// Every rank runs the same loop on its part of each batch. What differs between ranks is here, so that the loop need
// not know: rank 0 alone reads and writes files and talks; whatever decides what happens next is made the same on all
// ranks first.
//
// The invariant: between two collective calls no rank takes a branch that another does not take. Loss, number of valid
// tokens and norm are sums over all ranks before anything looks at them; a stop signal, which reaches the ranks
// at different times, counts when the step is over and all have been asked; clocks and files are rank 0's.
//
// Two groups of the same ranks: `dp` carries gradients and weights and nothing else, so its counters are the guides'
// traffic; `control` carries numbers. On `control` sums are always ordered (comm.h): the same bits on every rank. On
// `dp` they are where numerics.deterministic is set, and there the losses of ranks continue the tree of their
// sequences, as gradients do: N ranks give the bits of one.
//
// Rejected: a stop by one rank's own decision (the others would wait for it for ever).
#include "run.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)COMM_NATIVE == (int)CONFIG_ALL_REDUCE_MPI && (int)COMM_RING == (int)CONFIG_ALL_REDUCE_RING &&
               (int)COMM_TREE == (int)CONFIG_ALL_REDUCE_TREE && (int)COMM_HALVING == (int)CONFIG_ALL_REDUCE_HALVING,
               "comm.all_reduce is out of step with comm.h");

void run_ranks(Run *run, Comm *world)
{
    const Config *cfg = &run->cfg;
    check(world->size == cfg->parallel.dp);
    run->rank = world->rank;
    run->world = world;
    comm_set_checked(world, cfg->comm.checked);
    comm_set_slow(world, cfg->comm.slow_alpha, cfg->comm.slow_beta);
    run->dp = comm_split(world, 0, world->rank, "dp");
    run->control = comm_split(world, 0, world->rank, "control");
    comm_set_algorithm(run->dp, COMM_ALL_REDUCE, (CommAlgorithm)cfg->comm.all_reduce);
    comm_set_ordered(run->dp, cfg->numerics.deterministic);
    comm_set_ordered(run->control, true);
}

static bool alone(const Run *run)
{
    return run->ranks == 1;
}

RampStep run_share(const Run *run, RampStep batch)
{
    size_t begin, n = ddp_share((size_t)batch.sequences, run->rank, run->ranks, &begin);
    return (RampStep){.sequences = (int64_t)n, .before = batch.before + (int64_t)begin};
}

double run_sum(Run *run, double x)
{
    return alone(run) ? x : ddp_sum(run->control, x);
}

int64_t run_sum_int(Run *run, int64_t x)
{
    return alone(run) ? x : ddp_sum_int(run->control, x);
}

bool run_any(Run *run, bool flag)
{
    return run_sum_int(run, flag) > 0;
}

void run_tell(Run *run, void *data, size_t n)
{
    if (alone(run) || !n) return;
    CommRequest request = comm_broadcast(run->control, data, n, COMM_BYTE, 0);
    comm_wait(run->control, &request);
}

void run_wait(Run *run)
{
    if (alone(run)) return;
    CommRequest request = comm_barrier(run->control);
    comm_wait(run->control, &request);
}

void run_fp8(Run *run)
{
    if (alone(run)) return;
    Fp8 *fp8 = run->fp8;
    size_t n = (size_t)fp8->n_sites * FP8_ROLES;
    CommRequest request = comm_all_reduce(run->control, fp8->now, fp8->now, n, COMM_FP32, COMM_MAX);
    comm_wait(run->control, &request);
    fp8->bad = run_any(run, fp8->bad);
}

void run_gather_losses(Run *run, float *all, const float *share, size_t n)
{
    if (alone(run)) {
        memcpy(all, share, n * sizeof *all);
        return;
    }
    size_t counts[run->ranks];
    for (int r = 0; r < run->ranks; r++) counts[r] = n;
    CommRequest request = comm_all_gather(run->control, all, share, counts, COMM_FP32);
    comm_wait(run->control, &request);
}
