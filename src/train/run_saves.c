// run_saves: a run's checkpoints: their contents, the messages about them, resuming from one, and rolling back to one.
//
// Saving. A failed save changes only the log. All processes get the same result, and the run continues. With ckpt.async
// a save is begun here and reported by a later step (ckpt.c). The end of the run and a rollback need the files, so they
// first wait for saves in progress. After an update whose loss or gradient norm was not finite nothing is saved, nor is
// a tensor with such a number (ckpt.c): a run that restarts goes back past the harm, and no good checkpoint is deleted
// for a bad one. (An fp16 overflow that lowers the loss scale is no harm.) A run that ends so has not succeeded.
//
// Rolling back, at update u (PaLM, arXiv 2204.02311, section 5.1; doc/monitor.md):
//
//     s        newest checkpoint with s <= u - 1 - rollback_steps
//     jump     max(rollback_skip, u - s) batches from s on: at least up to the bad one
//     sample   of update k + 1 from then on:  schedule_ramp_at(k).before + skipped,   skipped += samples of the jump
//
// The order of a rollback matters, because a kill may come at any point, and s may be damaged: then the next older one
// is taken. So s is loaded, and thereby verified, before anything is removed. Then the checkpoints after s are
// removed, the newest first: they belong to the abandoned updates. metrics.jsonl is cut back and gets its rollback
// line, and s is saved again with the new count. A run that is killed before that save resumes from s or one of the
// later ones, meets the same batch, and rolls back again.
//
// The invariant: which checkpoint, how far, and the verdict itself are the same on all processes, and functions of the
// run's own numbers; so the same rollback twice gives the same bytes.
//
// Rejected: a process that gathers the model in order to write it (zero_part.c says what each one writes instead);
// loading weights alone (Adam's moments hold the spike for 1 / (1 - beta2) steps).
#include "train/run.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXTRAS = 8 };

static CkptRun place_of(const Run *run)
{
    const Config *cfg = &run->cfg;
    return (CkptRun){.run_dir = run->dir, .world = run->replicas.world,
                     .keep = cfg->ckpt.keep ? (int)cfg->ckpt.keep : 1 << 30,
                     .keep_every = (int)cfg->ckpt.keep_every};
}

// ---- the numbers beside the tensors

// Names them in extra, to be stored or filled; returns how many there are.
static int numbers(Run *run, CkptExtra extra[EXTRAS])
{
    RunScales *scales = &run->scales;
    size_t n = 0;
    float *amax = scales->fp8 ? fp8_state(scales->fp8, &n) : NULL;
    if (amax && !scales->fp8_amax) scales->fp8_amax = calloc(n, sizeof *scales->fp8_amax);
    if (amax && !scales->fp8_amax) die("run: no memory for %zu scales", n);
    for (size_t i = 0; i < n; i++) scales->fp8_amax[i] = amax[i];
    scales->scaler_state[0] = scales->scaler.scale;
    scales->scaler_state[1] = scales->scaler.good_steps;
    int used = 0;
    if (run->cfg.numerics.dtype == CONFIG_DTYPE_FP16) // other types have scale 1, which fp16 must not resume with
        extra[used++] = (CkptExtra){"loss_scale", 2, scales->scaler_state};
    extra[used++] = (CkptExtra){"data", 2, run->data.saved_hash};
    if (n) extra[used++] = (CkptExtra){"fp8.amax", n, scales->fp8_amax};
    if (run->loads.E) extra[used++] = (CkptExtra){"experts", run->loads.n_state, run->loads.state};
    extra[used++] = (CkptExtra){"guard", RUN_GUARD, run->saves.guard};
    if (run->paced) {
        pace_save(&run->pace, &run->schedule, run->pace_state);
        extra[used++] = (CkptExtra){"pace", PACE_STATE, run->pace_state};
    }
    if (monitor_plateau(&run->monitor))
        extra[used++] = (CkptExtra){"plateau", MONITOR_PROGRESS, monitor_progress(&run->monitor)};
    if (monitor_active(&run->monitor)) {
        CkptExtra *windows = &extra[used++];
        windows->name = "monitor";
        windows->value = monitor_state(&run->monitor, &windows->n);
    }
    return used;
}

// The way back: what they point at has been filled from a checkpoint.
static void numbers_loaded(Run *run)
{
    RunScales *scales = &run->scales;
    RunData *data = &run->data;
    size_t n = 0;
    float *amax = scales->fp8 ? fp8_state(scales->fp8, &n) : NULL;
    for (int i = 0; i < 2; i++) {
        if (data->saved_hash[i] != data->hash[i]) data->other = true;
        data->saved_hash[i] = data->hash[i];
    }
    for (size_t i = 0; i < n; i++) amax[i] = (float)scales->fp8_amax[i];
    if (run->loads.E) loads_tell(&run->loads, run->model);
    if (run->cfg.numerics.dtype != CONFIG_DTYPE_FP16) return;
    scales->scaler.scale = (float)scales->scaler_state[0];
    scales->scaler.good_steps = (int)scales->scaler_state[1];
}

// ---- what is said

static void tell_observers(Run *run, long step, bool begins)
{
    for (const Observer *o = run->observer; o < run->observer + run->n_observers; o++)
        if (o->save) o->save(o->self, run, step, begins);
}

static void report(Run *run, const CkptDone *done)
{
    tell_observers(run, done->step, false);
    if (!done->ok) {
        progress_note(run->progress, "checkpoint of step %ld NOT saved: %s; the run goes on", done->step, done->error);
        return;
    }
    run->saves.last = done->step;
    progress_event(run->progress, METRICS_SAVE, done->step, "%s/checkpoints/step_%08ld", run->dir, done->step);
    double mb = (double)done->n_bytes / 1e6;
    char busy[64] = "";
    if (done->busy > 0) snprintf(busy, sizeof busy, ", the thread computed for %.3f s", done->busy);
    progress_note(run->progress, "         %.1f MB%s in %.3f s (%.0f MB/s), training stood still for %.3f s%s", mb,
                  run->replicas.size > 1 ? " of rank 0" : "", done->seconds, mb / done->seconds, done->stalled, busy);
}

static void poll(Run *run, bool wait)
{
    CkptDone done;
    while (run->saves.async && ckpt_async_poll(run->saves.async, wait, &done)) report(run, &done);
}

void run_poll_saves(Run *run)
{
    poll(run, false);
}

// ---- load and save

void run_saves_allocate(Run *run)
{
    run->saves.last = -1;
    if (!run->cfg.ckpt.async) return;
    CkptRun place = place_of(run);
    run->saves.part = replicas_checkpoint(&run->replicas, true);
    run->saves.async = ckpt_async_create(&place, &run->saves.part, &run->mem);
}

void run_saves_free(Run *run)
{
    if (!run->saves.async) return;
    ckpt_async_free(run->saves.async);
    replicas_checkpoint_free(&run->replicas, &run->saves.part);
}

// Of the numbers beside the tensors those that a run takes over from another one. Experts' biases belong to the weights:
// without them other experts are chosen.
static int inherited(Run *run, bool stage, CkptExtra extra[EXTRAS])
{
    static const char *const name[] = {"experts", "loss_scale", "fp8.amax", "data"};
    int n = numbers(run, extra), kept = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < (stage ? 4 : 1); k++)
            if (!strcmp(extra[i].name, name[k])) extra[kept++] = extra[i];
    return kept;
}

void run_init(Run *run)
{
    Replicas *r = &run->replicas;
    bool stage = run->cfg.ckpt.init_state;
    CkptPart part = replicas_checkpoint(r, false);
    while (!stage && part.n && part.piece[part.n - 1].array >= 0) part.n--; // the weights' pieces stand first
    if (!stage) part.n_arrays = 0;
    CkptExtra extra[EXTRAS];
    CkptState state = {.config = run->config_text, .init = true, .optim = stage ? run->optim.kind->name : NULL,
                       .extra = extra, .n_extra = inherited(run, stage, extra)};
    ckpt_load_weights(r->world, run->cfg.ckpt.init, &part, &state);
    replicas_weights_loaded(r);
    if (stage) {
        run->optim.step = (int)state.adam_step;
        run->saves.guard[RUN_SKIPPED] = (double)state.sample; // they are behind it, as batches that are passed over
    }
    numbers_loaded(run);
    run->saves.upcycled = state.upcycled;
    replicas_checkpoint_free(r, &part);
    run->saves.init_step = state.step;
}

static void save_now(Run *run, const CkptState *state)
{
    CkptRun place = place_of(run);
    CkptDone done = {.step = state->step};
    double begin = clock_seconds();
    CkptPart part = replicas_checkpoint(&run->replicas, true);
    done.ok = ckpt_save_part(&place, state, &part, done.error, sizeof done.error);
    done.n_bytes = ckpt_async_bytes(&part);
    replicas_checkpoint_free(&run->replicas, &part);
    done.seconds = done.stalled = clock_seconds() - begin;
    report(run, &done);
}

void run_save(Run *run, long step)
{
    if (run->saves.harmed) {
        progress_note(run->progress, "checkpoint of step %ld NOT saved: the last %ld update%s had no finite loss and "
                      "gradient norm; the run goes on", step, run->saves.harmed, run->saves.harmed > 1 ? "s" : "");
        return;
    }
    CkptAsync *async = run->saves.async;
    CkptExtra extra[EXTRAS];
    CkptState state = {.step = step, .adam_step = run->optim.step,
                       .sample = (uint64_t)run_samples(run, step).before,
                       .tokens = (uint64_t)run_tokens(run, step), .seed = (uint64_t)run->cfg.run.seed,
                       .seconds = run->seconds, .best_val = run->best_val, .config = run->config_text,
                       .optim = run->optim.kind->name, .extra = extra, .n_extra = numbers(run, extra)};
    replicas_phase(&run->replicas, step, "checkpoint");
    replicas_agree(&run->replicas, step);
    if (!async) {
        tell_observers(run, step, true);
        save_now(run, &state);
        return;
    }
    double begin = clock_seconds();
    bool full = ckpt_async_full(async, step);
    CkptDone done;
    while (ckpt_async_full(async, step) && ckpt_async_poll(async, true, &done)) report(run, &done);
    if (full)
        progress_note(run->progress,
                      "checkpoint of step %ld: waited %.3f s for the one of step %ld (the disk is slower than the "
                      "saves: try a larger --run.save_every)", step, clock_seconds() - begin, done.step);
    tell_observers(run, step, true);
    ckpt_async_save(async, &state);
}

bool run_saved(Run *run, long step)
{
    poll(run, true);
    if (run->saves.last != step) run_save(run, step);
    poll(run, true);
    if (run->saves.last == step) return true;
    if (run->replicas.rank == 0)
        fprintf(stderr, "error: %s: step %ld is not saved (%s)\n", run->dir, step, run->saves.harmed
                ? "the run ends without a finite loss and gradient norm" : "the log says why");
    return false;
}

// ---- resuming

// The data order continues only when the seed and the samples per step are the same.
static void check_resumed(const Run *run, const CkptState *state)
{
    const Config *cfg = &run->cfg;
    uint64_t sample = (uint64_t)run_samples(run, state->step).before;
    if (state->seed != (uint64_t)cfg->run.seed)
        die("%s: run.seed: the checkpoint was trained with %llu, this run has %ld (set it so, or use another run.name)",
            run->dir, (unsigned long long)state->seed, cfg->run.seed);
    if (state->sample != sample)
        die("%s: batch.tokens: the checkpoint of step %ld has seen %llu samples, with %ld tokens a step "
            "%sit would be %llu (set it as it was, or use another run.name)", run->dir, state->step,
            (unsigned long long)state->sample, cfg->batch.tokens, cfg->batch.ramp_from ?
            "and batch.ramp_by and ramp_tokens as they are " : "", (unsigned long long)sample);
}

long run_restore(Run *run, long up_to)
{
    CkptRun place = place_of(run);
    place.up_to = up_to;
    CkptExtra extra[EXTRAS];
    CkptState state = {.config = run->config_text, .optim = run->optim.kind->name, .extra = extra,
                       .n_extra = numbers(run, extra)};
    poll(run, true);
    CkptPart part = replicas_checkpoint(&run->replicas, false);
    bool loaded = ckpt_load_part(&place, &part, &state);
    if (loaded) replicas_weights_loaded(&run->replicas);
    replicas_checkpoint_free(&run->replicas, &part);
    if (!loaded) return -1;
    check_resumed(run, &state);
    run->optim.step = (int)state.adam_step;
    run->seconds = state.seconds;
    run->best_val = state.best_val;
    numbers_loaded(run);
    if (run->paced) run_pace_loaded(run);
    return state.step;
}

// ---- rolling back

double run_cool(const Run *run, long step)
{
    return (double)step < run->saves.guard[RUN_COOL_UNTIL] ? run->cfg.monitor.cool : 1;
}

MonitorVerdict run_judge(Run *run, long step, double loss, double grad_norm)
{
    const Config *cfg = &run->cfg;
    MonitorVerdict v = monitor_judge(&run->monitor, loss, grad_norm);
    // An overflow is the loss scale's business, as long as the loss itself is finite.
    if (v.reason == MONITOR_NOT_FINITE && run->scales.scaler.interval && v.signal == MONITOR_GRAD_NORM)
        v.action = MONITOR_SKIP;
    if (run->begun && step + 1 == cfg->monitor.rollback_at && run->saves.guard[RUN_ROLLBACKS] == 0)
        v.action = MONITOR_ROLLBACK, v.reason = MONITOR_DRILL;
    if (v.action == MONITOR_COOL) run->saves.guard[RUN_COOL_UNTIL] = (double)(step + 1 + cfg->monitor.cool_steps);
    return v;
}

// Removes the checkpoints after `to`, the newest first; before that each gets a name under which it is never loaded.
static void remove_later(const Run *run, long to)
{
    char dir[700], path[740], aside[760];
    long *steps;
    snprintf(dir, sizeof dir, "%s/checkpoints", run->dir);
    for (int n = ckpt_list_steps(dir, false, &steps); n > 0 && steps[n - 1] > to; n--) {
        snprintf(path, sizeof path, "%s/step_%08ld", dir, steps[n - 1]);
        snprintf(aside, sizeof aside, "%s.tmp", path);
        if (rename(path, aside) || !disk_sync_parent(path))
            die("%s: cannot be set aside for a rollback: %s", path, strerror(errno));
        if (!disk_remove_dir(aside)) progress_note(run->progress, "%s: cannot be removed: %s", aside, strerror(errno));
    }
    free(steps);
}

long run_rollback(Run *run, long step, const StepResult *r)
{
    const Config *cfg = &run->cfg;
    const char *advice = monitor_advice(r->verdict);
    double seconds = run->seconds, rollbacks = run->saves.guard[RUN_ROLLBACKS];
    if (run->saves.guard[RUN_ROLLBACKS] >= (double)cfg->monitor.max_rollbacks)
        die("step %ld: %s, and the run has been rolled back %ld times (monitor.max_rollbacks; try a lower optim.lr)",
            step, r->why, cfg->monitor.max_rollbacks);
    poll(run, true); // a save that is on its way would be the newest
    replicas_phase(&run->replicas, step, "rollback");
    long limit = step - 1 - cfg->monitor.rollback_steps, to = limit > 0 ? run_restore(run, limit) : -1;
    if (to < 0) {
        progress_event(run->progress, METRICS_SKIP, step,
                       "%s: no checkpoint to go back to (see run.save_every): weights left as they were", r->why);
        if (r->verdict.reason != MONITOR_NOT_FINITE) *run->monitor.skips += 1; // of monitor.max_skips
        return step;
    }
    if (run->replicas.rank == 0) remove_later(run, to);
    run->seconds = seconds; // was spent
    run->saves.harmed = 0;
    long jump = step - to > cfg->monitor.rollback_skip ? step - to : cfg->monitor.rollback_skip;
    int64_t first = schedule_ramp_at(&run->ramp, to).before + (int64_t)run->saves.guard[RUN_SKIPPED];
    int64_t samples = schedule_ramp_at(&run->ramp, to + jump).before - schedule_ramp_at(&run->ramp, to).before;
    run->saves.guard[RUN_SKIPPED] += (double)samples;
    run->saves.guard[RUN_ROLLBACKS] = rollbacks + 1;
    if (cfg->monitor.rollback_cool) run->saves.guard[RUN_COOL_UNTIL] = (double)(to + cfg->monitor.cool_steps);
    progress_rollback(run->progress, to, "update %ld: %s: back to the checkpoint of step %ld, samples %lld to %lld "
                      "skipped%s%s%s", step, r->why, to, (long long)first, (long long)(first + samples - 1),
                      cfg->monitor.rollback_cool ? ", learning rate lowered" : "", *advice ? "; " : "", advice);
    run->saves.last = -1;
    run_save(run, to);
    return to;
}
