// run_rollback: going back: an earlier checkpoint, and around the data that led away from it.
//
// When a loss has spiked and does not come back, skipping the batch is too late: the weights are already somewhere
// else. PaLM's authors started again from a checkpoint about 100 steps before the spike and left out 200 to 500
// batches, those before and around it; the spike did not come back, though the same batches did no harm elsewhere
// (arXiv 2204.02311, section 5.1). So, at update u:
//
//     s        newest checkpoint with s <= u - 1 - rollback_steps
//     jump     max(rollback_skip, u - s) batches from s on: at least up to the bad one
//     sample   of update k + 1 from then on:  ramp_at(k).before + skipped,   skipped += samples of the jump
//
// What has been jumped over is part of a checkpoint (`guard` in its manifest), so it stays so after any resume. Steps,
// schedule and tokens count updates that were made: the run gets its full length, and sees other data at the end.
//
// The order matters, because a kill may come anywhere. Checkpoints behind s go first, the newest to begin with: they
// belong to a run that is no more, and a resume would take one of them. Then s is loaded, metrics.jsonl is cut back and
// gets its rollback line, and s is saved again with the new count. A run that is killed before that save resumes from
// the old s, meets the same batch, and rolls back again.
//
// The invariant: which checkpoint, how far, and the verdict itself are the same on all ranks, and functions of the
// run's own numbers; so the same rollback twice gives the same bytes.
//
// Rejected: keeping the abandoned branch under another name (a person can copy it; the text of the event has its
// numbers); loading weights alone (Adam's moments hold the spike for 1 / (1 - beta2) steps).
#include "train/run.h"

#include "base/check.h"
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

RampStep run_samples(const Run *run, long step)
{
    RampStep batch = ramp_at(&run->ramp, step);
    batch.before += (int64_t)run->guard[RUN_SKIPPED];
    return batch;
}

double run_cool(const Run *run, long step)
{
    return (double)step < run->guard[RUN_COOL_UNTIL] ? run->cfg.monitor.cool : 1;
}

MonitorVerdict run_judge(Run *run, long step, double loss, double grad_norm)
{
    const Config *cfg = &run->cfg;
    MonitorVerdict v = monitor_judge(&run->monitor, loss, grad_norm);
    // An overflow is the loss scale's business, as long as the loss itself is finite.
    if (v.reason == MONITOR_NOT_FINITE && run->scaler.interval && v.signal == MONITOR_GRAD_NORM)
        v.action = MONITOR_SKIP;
    if (run->watched && step + 1 == cfg->monitor.rollback_at && run->guard[RUN_ROLLBACKS] == 0)
        v.action = MONITOR_ROLLBACK, v.reason = MONITOR_DRILL;
    if (v.action == MONITOR_COOL) run->guard[RUN_COOL_UNTIL] = (double)(step + 1 + cfg->monitor.cool_steps);
    return v;
}

// The step of a checkpoint's directory, by its name; -1: none.
static long step_of(const char *name)
{
    char *end;
    if (strncmp(name, "step_", 5) || !name[5]) return -1;
    long step = strtol(name + 5, &end, 10);
    return *end ? -1 : step;
}

// The highest step of a checkpoint that is at most `limit`; -1: none.
static long newest_up_to(const Run *run, long limit)
{
    char path[700];
    long newest = -1;
    snprintf(path, sizeof path, "%s/checkpoints", run->dir);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        long step = step_of(e->d_name);
        if (step <= limit && step > newest) newest = step;
    }
    if (dir) closedir(dir);
    return newest;
}

// Gives a checkpoint a name under which nobody loads it, and removes it.
static void remove_checkpoint(const Run *run, long step)
{
    char path[700], aside[720];
    snprintf(path, sizeof path, "%s/checkpoints/step_%08ld", run->dir, step);
    snprintf(aside, sizeof aside, "%s.tmp", path);
    if (rename(path, aside) || !disk_sync_parent(path))
        die("%s: cannot be set aside for a rollback: %s", path, strerror(errno));
    if (!disk_remove_dir(aside)) progress_note(run->progress, "%s: cannot be removed: %s", aside, strerror(errno));
}

static long choose_target(Run *run, long step)
{
    long to = -1, newest;
    if (run->rank == 0) {
        to = newest_up_to(run, step - 1 - run->cfg.monitor.rollback_steps);
        for (newest = newest_up_to(run, step); to >= 1 && newest > to; newest = newest_up_to(run, step))
            remove_checkpoint(run, newest);
    }
    run_tell(run, &to, sizeof to);
    return to;
}

long run_rollback(Run *run, long step, const StepResult *r)
{
    const Config *cfg = &run->cfg;
    const char *advice = monitor_advice(r->verdict);
    double seconds = run->seconds, rollbacks = run->guard[RUN_ROLLBACKS];
    if (run->guard[RUN_ROLLBACKS] >= (double)cfg->monitor.max_rollbacks)
        die("step %ld: %s, and the run has been rolled back %ld times (monitor.max_rollbacks; try a lower optim.lr)",
            step, r->why, cfg->monitor.max_rollbacks);
    run_drain(run); // a save that is on its way would be the newest
    run_drain(run);
    long to = choose_target(run, step);
    if (to < 1) {
        progress_event(run->progress, METRICS_SKIP, step,
                       "%s: no checkpoint to go back to (see run.save_every): weights left as they were", r->why);
        return step;
    }
    run_phase(run, step, "rollback");
    if (run_restore(run) != to) die("%s: the checkpoint of step %ld cannot be loaded for a rollback", run->dir, to);
    run->seconds = seconds; // was spent
    long jump = step - to > cfg->monitor.rollback_skip ? step - to : cfg->monitor.rollback_skip;
    int64_t first = ramp_at(&run->ramp, to).before + (int64_t)run->guard[RUN_SKIPPED];
    int64_t samples = ramp_at(&run->ramp, to + jump).before - ramp_at(&run->ramp, to).before;
    run->guard[RUN_SKIPPED] += (double)samples;
    run->guard[RUN_ROLLBACKS] = rollbacks + 1;
    if (cfg->monitor.rollback_cool) run->guard[RUN_COOL_UNTIL] = (double)(to + cfg->monitor.cool_steps);
    progress_rollback(run->progress, to, "update %ld: %s: back to the checkpoint of step %ld, samples %lld to %lld "
                      "skipped%s%s%s", step, r->why, to, (long long)first, (long long)(first + samples - 1),
                      cfg->monitor.rollback_cool ? ", learning rate lowered" : "", *advice ? "; " : "", advice);
    run_save(run, to);
    return to;
}
