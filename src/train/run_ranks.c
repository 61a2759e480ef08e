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
// Groups come from the mesh (mesh.h). Those of the mesh carry gradients, weights and activations, where the device has
// them, so their counters are the guides' traffic; numbers go through groups of their own, of the host's memory
// (comm_host). There sums are always ordered
// (comm.h): the same bits on every rank. In the mesh's they are where numerics.deterministic is set, and there the
// losses of ranks continue the tree of their sequences, as gradients do: N ranks give the bits of one.
//
// Rejected: a stop by one rank's own decision (the others would wait for it for ever).
#include "train/run.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void run_place(Run *run)
{
    const Config *cfg = &run->cfg;
    run->ranks = (int)cfg->parallel.ranks;
    run->shape = mesh_shape(run->ranks, (int)cfg->parallel.pp, (int)cfg->parallel.cp, 1, (int)cfg->parallel.tp);
    run->place = mesh_place(run->shape, run->rank);
}

// A group's ranks once more, for the host's numbers: always ordered.
static Comm *again(Comm *group, const char *name)
{
    Comm *comm = comm_split(comm_host(group), 0, group->rank, name);
    comm_set_ordered(comm, true);
    return comm;
}

// Compared and slowed down are the calls that carry arrays.
void run_ranks(Run *run, Comm *world)
{
    const Config *cfg = &run->cfg;
    check(world->size == cfg->parallel.ranks);
    run->rank = world->rank;
    run_place(run);
    run->world = comm_host(world);
    comm_set_checked(world, cfg->comm.checked);
    comm_set_slow(world, cfg->comm.slow_alpha, cfg->comm.slow_beta);
    run->mesh = mesh_create(world, run->shape);
    for (int g = 0; g < MESH_GROUPS; g++)
        if (run->mesh.group[g]) comm_set_ordered(run->mesh.group[g], cfg->numerics.deterministic);
    comm_set_algorithm(run->mesh.group[MESH_REPLICAS], COMM_ALL_REDUCE, cfg->comm.all_reduce);
    run->control = again(world, "control");
    run->replicas = again(run->mesh.group[MESH_REPLICAS], "control replicas");
    run->parts = again(run->mesh.group[MESH_MODEL], "control parts");
}

static bool alone(const Run *run)
{
    return run->ranks == 1;
}

void run_share_weights(Run *run)
{
    if (run->pipeline) pipeline_share_guest(run->pipeline);
}

RampStep run_share(const Run *run, RampStep batch)
{
    size_t begin, n = ddp_share((size_t)batch.sequences, run->place.dp, run->shape.dp, &begin);
    return (RampStep){.sequences = (int64_t)n, .before = batch.before + (int64_t)begin};
}

double run_sum(Run *run, double x)
{
    return alone(run) ? x : ddp_sum(run->control, x);
}

// Ranks with other tokens are in `replicas`: those of one sequence, which have all counted it, are cp of them.
int64_t run_sum_samples(Run *run, int64_t x)
{
    return alone(run) ? x : ddp_sum_int(run->replicas, x) / run->shape.cp;
}

double run_sum_loss(Run *run, double x)
{
    if (alone(run)) return x;
    x = ddp_sum(run->replicas, x);
    CommRequest request = comm_broadcast(run->parts, &x, 1, COMM_FP64, run->loss_stage * run->shape.tp);
    comm_wait(run->parts, &request);
    return x;
}

bool run_has_losses(const Run *run)
{
    return run->place.pp == run->loss_stage && run->place.tp == 0;
}

bool run_any(Run *run, bool flag)
{
    return !alone(run) && ddp_sum_int(run->control, flag) > 0 ? true : flag;
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
    fp8_collect(fp8);
    size_t n = (size_t)fp8->n_sites * FP8_ROLES;
    Comm *same[] = {run->mesh.group[MESH_REPLICAS], run->mesh.group[MESH_TP]}; // ranks with the same tensors
    for (int i = 0; i < 2; i++) {
        CommRequest request = comm_all_reduce(comm_host(same[i]), fp8->now, fp8->now, n, COMM_FP32, COMM_MAX);
        comm_wait(comm_host(same[i]), &request);
    }
    fp8->bad = run_any(run, fp8->bad);
}
