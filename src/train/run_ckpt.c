// run_ckpt: a run's checkpoints: who writes them, what goes into them, what is said about them.
//
// The invariant: a failed save changes nothing but the log. It is the same verdict on all ranks, and the run goes on.
//
// With ckpt.async a save is begun here and reported by a later step (ckpt_async.c). Whatever needs the files waits for
// those on their way first: the end of the run, and going back to an earlier checkpoint.
//
// Rejected: a rank that gathers the model in order to write it (zero_part.c says what each rank writes instead).
#include "train/run.h"

#include "base/check.h"
#include "base/clock.h"

#include <stdlib.h>

// Who writes and reads a checkpoint, and which of the ranks with the same part of the model this is.
typedef struct {
    CkptRun run;
    int replica, replicas;
} Place;

static Place place_of(const Run *run)
{
    const Config *cfg = &run->cfg;
    return (Place){{.run_dir = run->dir, .world = run->control, .keep = cfg->ckpt.keep ? (int)cfg->ckpt.keep : 1 << 30,
                    .keep_every = (int)cfg->ckpt.keep_every},
                   run->place.dp * run->shape.cp + run->place.cp, run->shape.dp * run->shape.cp};
}

// ---- what is said

static void report(Run *run, const CkptDone *done)
{
    run_fault_save(run, done->step, false);
    if (!done->ok) {
        progress_note(run->progress, "checkpoint of step %ld NOT saved: %s; the run goes on", done->step, done->error);
        return;
    }
    run->saved_step = done->step;
    progress_event(run->progress, METRICS_SAVE, done->step, "%s/checkpoints/step_%08ld", run->dir, done->step);
    double mb = (double)done->n_bytes / 1e6;
    char busy[64] = "";
    if (run->ckpt) snprintf(busy, sizeof busy, ", the thread computed for %.3f s", done->busy);
    progress_note(run->progress, "         %.1f MB%s in %.3f s (%.0f MB/s), training stood still for %.3f s%s", mb,
                  run->ranks > 1 ? " of rank 0" : "", done->seconds, mb / done->seconds, done->stalled, busy);
}

void run_saves(Run *run)
{
    CkptDone done;
    while (run->ckpt && ckpt_async_poll(run->ckpt, false, &done)) report(run, &done);
}

void run_drain(Run *run)
{
    CkptDone done;
    while (run->ckpt && ckpt_async_poll(run->ckpt, true, &done)) report(run, &done);
}

// ---- load and save

void run_ckpt_allocate(Run *run)
{
    run->saved_step = -1;
    if (!run->cfg.ckpt.async) return;
    Place place = place_of(run);
    run->ckpt_part = zero_part(run->zero, &run->optim, true, place.replica, place.replicas);
    run->ckpt = ckpt_async_create(&place.run, &run->ckpt_part, &run->mem);
}

void run_ckpt_free(Run *run)
{
    if (!run->ckpt) return;
    ckpt_async_free(run->ckpt);
    zero_part_free(&run->ckpt_part);
}

bool run_load(Run *run, CkptState *state)
{
    run_drain(run);
    Place place = place_of(run);
    CkptPart part = zero_part(run->zero, &run->optim, false, place.replica, place.replicas);
    bool loaded = ckpt_load_part(&place.run, &part, state);
    if (loaded) zero_renew(run->zero, &run->optim);
    if (loaded) run_share_weights(run);
    zero_part_free(&part);
    return loaded;
}

void run_init(Run *run)
{
    const char *path = run->cfg.ckpt.init;
    Place place = place_of(run);
    CkptPart part = zero_part(run->zero, &run->optim, false, place.replica, place.replicas);
    while (part.n && part.piece[part.n - 1].array >= 0) part.n--; // the weights' pieces stand first
    part.n_arrays = 0;
    CkptState state = {.config = run->config_text, .stretch = true};
    ckpt_load_weights(place.run.world, path, &part, &state);
    zero_renew(run->zero, &run->optim);
    run_share_weights(run);
    zero_part_free(&part);
    run->init_step = state.step;
}

static void save_now(Run *run, const CkptState *state)
{
    Place place = place_of(run);
    CkptDone done = {.step = state->step};
    double begin = clock_seconds();
    CkptPart part = zero_part(run->zero, &run->optim, true, place.replica, place.replicas);
    done.ok = ckpt_save_part(&place.run, state, &part, done.error, sizeof done.error);
    done.n_bytes = ckpt_async_bytes(&part);
    zero_part_free(&part);
    done.seconds = done.stalled = clock_seconds() - begin;
    report(run, &done);
}

void run_save(Run *run, long step)
{
    CkptExtra extra[RUN_EXTRAS];
    CkptState state = {.step = step, .adam_step = run->optim.step,
                       .sample = (uint64_t)run_samples(run, step).before,
                       .tokens = (uint64_t)run_tokens(run, step), .seed = (uint64_t)run->cfg.run.seed,
                       .seconds = run->seconds, .best_val = run->best_val, .config = run->config_text,
                       .optim = run->optim.kind->name, .extra = extra, .n_extra = run_extras(run, extra)};
    run_phase(run, step, "checkpoint");
    run_agree(run, step);
    if (!run->ckpt) {
        run_fault_save(run, step, true);
        save_now(run, &state);
        return;
    }
    double begin = clock_seconds();
    bool full = ckpt_async_full(run->ckpt, step);
    CkptDone done;
    while (ckpt_async_full(run->ckpt, step) && ckpt_async_poll(run->ckpt, true, &done)) report(run, &done);
    if (full)
        progress_note(run->progress,
                      "checkpoint of step %ld: waited %.3f s for the one of step %ld (the disk is slower than the "
                      "saves: try a larger --run.save_every)", step, clock_seconds() - begin, done.step);
    run_fault_save(run, step, true);
    ckpt_async_save(run->ckpt, &state);
}

bool run_saved(Run *run, long step)
{
    run_drain(run);
    if (run->saved_step == step) return true;
    run_save(run, step);
    run_drain(run);
    return run->saved_step == step;
}
