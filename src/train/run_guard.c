// run_guard: what keeps a run alive and honest, as far as it is a run's own: lock, watchdog, rules, faults, agreement.
//
// Each is a few lines between a component that knows nothing of runs (lock.h, supervisor.h, monitor.h, fault.h,
// locate.h) and the step.
//
// Agreement. Weights that every rank has are the same by construction: the same gradients, the same update. A bit that
// turns round in one rank's memory, or a processor that errs, breaks that in silence, and from then on the average of
// gradients belongs to no model at all. So ranks compare hashes, one for each tensor:
//
//     XXH3 of each row of the table, in the weights, what units read of them, and the optimizer's state
//     -> all_gather over the replicas (rows x 8 bytes a rank) -> the first row on which ranks differ
//
// With three ranks or more the one that differs from most others is named. Two can only disagree. Nothing can be mended
// here: which of the two is right is not known, and a checkpoint is; so the run ends, and goes on from there.
//
// What is cut over ranks (parallel.zero) has no twin and is not compared; nor is the optimizer's state in a store.
//
// Rejected: comparing sums (two errors cancel, NaN compares with nothing); repairing by majority (a machine that erred
// once errs again).
#include "train/run.h"

#include "base/check.h"
#include "base/disk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xxhash.h>

// ---- lock, watchdog, rules

void run_lock(Run *run)
{
    run->lock = run->rank == 0 ? disk_lock_take(run->dir) : -1;
}

void run_watched(Run *run)
{
    const Config *cfg = &run->cfg;
    Heartbeat *beat = comm_heartbeat(run->world);
    if (beat && !cfg->run.supervisor)
        die("run.supervisor = false: in a file it comes too late: the supervisors are there before files are read (try "
            "--run.supervisor=false)");
    supervisor_timeout(beat, cfg->run.hang_timeout);
    run->faults = fault_parse(cfg->run.fault);
    for (int i = 0; i < run->faults.n && cfg->ckpt.async; i++)
        if (run->faults.fault[i].kind == FAULT_SLOWDISK)
            die("run.fault: slowdisk: not with ckpt.async, which writes at another time");
    run->watched = true;
}

void run_phase(Run *run, long step, const char *phase)
{
    supervisor_phase(comm_heartbeat(run->world), step, phase);
}

void run_rules(Run *run)
{
    const Config *cfg = &run->cfg;
    monitor_set_rules(&run->monitor, (MonitorRules){
        .on_spike = cfg->monitor.on_spike,
        .on_not_finite = cfg->monitor.on_not_finite ? MONITOR_ROLLBACK : MONITOR_SKIP,
        .loss_ratio = {cfg->monitor.ratio_low, cfg->monitor.ratio_mid, cfg->monitor.ratio_high},
        .on_loss = {cfg->monitor.on_ratio_low, cfg->monitor.on_ratio_mid,
                    cfg->monitor.on_ratio_high},
        .norm_ratio = cfg->monitor.ratio_norm, .on_norm = cfg->monitor.on_ratio_norm,
        .plateau = cfg->monitor.plateau, .plateau_steps = cfg->monitor.plateau_steps,
        .on_plateau = cfg->monitor.on_plateau});
    if (cfg->monitor.locate) locate_begin(&run->locate, run->model);
}

// ---- faults

// A process fault of this update. In a resumed run there are none: it has to get past the place; nor a second time in
// an update that is made again after a rollback.
static const Fault *process_fault(const Run *run, FaultKind kind, long step)
{
    return run->first_step > 0 ? NULL : fault_at(&run->faults, kind, run->rank, step + 1);
}

static const Param *row_of(const Run *run, const Fault *f)
{
    const Params *p = &run->model->params;
    int i = params_find(p, f->tensor);
    if (i < 0) die("run.fault: no such tensor: %s", f->tensor);
    if ((size_t)f->index >= p->row[i].n_elems)
        die("run.fault: %s has %zu elements, index is %ld", f->tensor, p->row[i].n_elems, f->index);
    return &p->row[i];
}

// fp32 numbers of one row, with `of` as a fault has it: the weights, the gradients, or an array of the optimizer.
static float *numbers_of(Run *run, const Fault *f, const Param *row)
{
    Model *m = run->model;
    if (!strcmp(f->of, "weight") && m->weights && !m->shard.weights) return m->weights + row->offset;
    if (!strcmp(f->of, "gradient") && m->grads && !m->shard.grads && !m->dev->deterministic)
        return m->grads + row->offset;
    for (int s = 0; s < run->optim.kind->n_states && !run->optim.range; s++) {
        const CkptArray *state = &run->optim.state[s];
        if (!strcmp(f->of, state->prefix) && state->dtype == ST_F32 && state->data &&
            state->n_bytes == m->params.n_elems * sizeof(float))
            return (float *)state->data + row->offset;
    }
    die("run.fault: of=%s: not here: weight, gradient, or an array of the optimizer, which ranks hold whole "
        "(parallel.zero=0)", f->of);
}

void run_fault_before(Run *run, long step)
{
    const Fault *f;
    if (!run->watched || !run->faults.n || step < run->reached) return;
    if ((f = process_fault(run, FAULT_KILL, step)) || (f = process_fault(run, FAULT_EXIT, step)) ||
        (f = process_fault(run, FAULT_HANG, step)))
        fault_end_process(f);
    if (!(f = process_fault(run, FAULT_NAN, step))) return;
    const Param *row = row_of(run, f);
    float bad = NAN;
    run->dev->to_device(run->dev, numbers_of(run, f, row) + f->index, &bad, sizeof bad);
    if (!strcmp(f->of, "weight")) model_weights_changed(run->model);
}

void run_fault_after(Run *run, long step)
{
    const Fault *f = run->watched && step >= run->reached ? process_fault(run, FAULT_FLIP, step) : NULL;
    if (run->watched && step >= run->reached) run->reached = step + 1;
    if (!f) return;
    float x, *at = numbers_of(run, f, row_of(run, f)) + f->index;
    run->dev->to_host(run->dev, &x, at, sizeof x);
    fault_flip(&x, 0, f->bit);
    run->dev->to_device(run->dev, at, &x, sizeof x);
    if (!strcmp(f->of, "weight")) model_weights_changed(run->model);
}

void run_fault_sample(Run *run, int64_t sample, int32_t *token, int32_t *target)
{
    for (int i = 0; i < run->faults.n && run->watched; i++) {
        const Fault *f = &run->faults.fault[i];
        if (f->kind != FAULT_SPIKE || sample < ramp_at(&run->ramp, f->step - 1).before ||
            sample >= ramp_at(&run->ramp, f->step - 1 + f->steps).before)
            continue;
        fault_poison(token, target, (size_t)run->cfg.model.context, sample, tokenizer_vocab_size(run->tokenizer));
    }
}

void run_fault_save(Run *run, long step, bool begins)
{
    const Fault *full = process_fault(run, FAULT_ENOSPC, step - 1);
    const Fault *slow = process_fault(run, FAULT_SLOWDISK, step - 1);
    if (run->rank || !run->watched) return;
    if (full) fault_limit_files(begins ? full->bytes : 0);
    if (!slow || !begins) return;
    double whole = floor(slow->seconds);
    struct timespec t = {.tv_sec = (time_t)whole, .tv_nsec = (long)(1e9 * (slow->seconds - whole))};
    nanosleep(&t, NULL);
}

// ---- agreement

// What all ranks hold alike: an array over the whole table.
typedef struct {
    const char *what, *data;
    size_t elem_bytes; // 0: one hash for all of it
    size_t n_bytes;
} Replica;

static int replicas_of(const Run *run, Replica r[OPTIM_STATES + 2])
{
    const Model *m = run->model;
    size_t n = m->params.n_elems;
    int used = 0;
    if (m->weights && !m->shard.weights)
        r[used++] = (Replica){"weights", (const char *)m->weights, sizeof(float), n * sizeof(float)};
    if (m->x_weights && !m->shard.x_weights && (const void *)m->x_weights != (const void *)m->weights)
        r[used++] = (Replica){"weights as units read them", (const char *)m->x_weights, m->dev->x_bytes,
                              n * m->dev->x_bytes};
    for (int s = 0; s < run->optim.kind->n_states && !run->optim.range && !run->optim.store; s++) {
        const CkptArray *state = &run->optim.state[s];
        bool by_row = state->n_bytes == n * sizeof(float);
        if (state->data) r[used++] = (Replica){state->prefix, state->data, by_row ? 4 : 0, state->n_bytes};
    }
    return used;
}

static uint64_t hash_of(Dev *dev, const char *data, size_t n_bytes)
{
    if (!dev->raw_alloc) return XXH3_64bits(data, n_bytes);
    char *copy = malloc(n_bytes + 1);
    if (!copy) die("monitor.agree_every: no memory for a copy of %zu bytes", n_bytes);
    dev->to_host(dev, copy, data, n_bytes);
    uint64_t hash = XXH3_64bits(copy, n_bytes);
    free(copy);
    return hash;
}

static void hash_rows(Dev *dev, const Params *p, const Replica *r, uint64_t *hash)
{
    const size_t b = r->elem_bytes;
    for (int i = 0; i < p->n_rows; i++)
        hash[i] = b ? hash_of(dev, r->data + p->row[i].offset * b, p->row[i].n_elems * b)
                    : i ? 0 : hash_of(dev, r->data, r->n_bytes);
}

// The rank whose hash the fewest others have; -1: all have the same.
static int odd_one(const uint64_t *all, int n_ranks, size_t stride)
{
    int odd = -1, fewest = n_ranks;
    for (int a = 0; a < n_ranks; a++) {
        int same = 0;
        for (int b = 0; b < n_ranks; b++) same += all[(size_t)b * stride] == all[(size_t)a * stride];
        if (same < fewest || (same == fewest && same < n_ranks)) fewest = same, odd = a;
    }
    return fewest == n_ranks ? -1 : odd;
}

void run_agree(Run *run, long step)
{
    const Params *p = &run->model->params;
    Replica r[OPTIM_STATES + 2];
    int n = replicas_of(run, r), N = run->replicas ? run->replicas->size : 1;
    if (N == 1 || !n) return;
    // and behind the hashes who has them: the group's ranks have numbers of their own
    size_t rows = (size_t)p->n_rows, each = (size_t)n * rows + 1, counts[N];
    uint64_t *mine = malloc(each * sizeof *mine), *all = malloc((size_t)N * each * sizeof *all);
    if (!mine || !all) die("monitor.agree_every: no memory for %zu hashes", each);
    for (int k = 0; k < n; k++) hash_rows(run->dev, p, &r[k], mine + (size_t)k * rows);
    mine[each - 1] = (uint64_t)run->rank;
    for (int i = 0; i < N; i++) counts[i] = each;
    CommRequest q = comm_all_gather(run->replicas, all, mine, counts, COMM_INT64);
    comm_wait(run->replicas, &q);
    for (size_t i = 0; i + 1 < each; i++) {
        int odd = odd_one(all + i, N, each);
        if (odd < 0) continue;
        const Replica *where = &r[i / rows];
        const char *name = where->elem_bytes ? p->row[i % rows].name : "something";
        int first = (int)all[each - 1], who = (int)all[(size_t)(odd + 1) * each - 1];
        char between[48];
        if (N > 2) snprintf(between, sizeof between, "on rank %d", who);
        else snprintf(between, sizeof between, "between ranks %d and %d", first, who);
        if (run->rank == first)
            die("step %ld: the ranks' %s are not the same: %s differs %s (a machine that errs, or a bug; go on from a "
                "checkpoint with --ckpt.resume=true)", step, where->what, name, between);
        q = comm_barrier(run->replicas); // for ever: that rank ends the job
        comm_wait(run->replicas, &q);
    }
    free(mine);
    free(all);
}
