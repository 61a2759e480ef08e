// run_ckpt: a run's checkpoints: who writes them, what goes into them, what is said about them.
//
// The invariant: a failed save changes nothing but the log. It is the same verdict on all ranks, and the run goes on.
//
// Rejected: a rank that gathers the model in order to write it (zero_part.c says what each rank writes instead).
#include "run.h"

#include "check.h"

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

bool run_load(Run *run, CkptState *state)
{
    Place place = place_of(run);
    CkptPart part = zero_part(run->zero, &run->optim, false, place.replica, place.replicas);
    bool loaded = ckpt_load_part(&place.run, &part, state);
    if (loaded) zero_renew(run->zero, &run->optim);
    if (loaded) run_share_weights(run);
    zero_part_free(&part);
    return loaded;
}

// Weights that are the same by construction, and a rank whose memory or processor errs.
static void check_weights(Run *run)
{
    const Model *m = run->model;
    if (run->ranks == 1 || m->shard.x_weights) return;
    if (!ddp_agree(run->replicas, (const float *)m->x_weights, m->params.n_elems * m->dev->x_bytes / sizeof(float)))
        die("%s: the ranks' weights are not the same (a bug, or a machine that errs: go on from the checkpoint before)",
            run->dir);
}

bool run_save(Run *run, long step)
{
    char error[600];
    CkptExtra extra[RUN_EXTRAS];
    CkptState state = {.step = step, .adam_step = run->optim.step,
                       .sample = (uint64_t)ramp_at(&run->ramp, step).before,
                       .tokens = (uint64_t)run_tokens(run, step), .seed = (uint64_t)run->cfg.run.seed,
                       .seconds = run->seconds, .best_val = run->best_val, .config = run->config_text,
                       .optim = run->optim.kind->name, .extra = extra, .n_extra = run_extras(run, extra)};
    Place place = place_of(run);
    check_weights(run);
    CkptPart part = zero_part(run->zero, &run->optim, true, place.replica, place.replicas);
    bool saved = ckpt_save_part(&place.run, &state, &part, error, sizeof error);
    zero_part_free(&part);
    if (saved) progress_event(run->progress, METRICS_SAVE, step, "%s/checkpoints/step_%08ld", run->dir, step);
    else progress_note(run->progress, "checkpoint of step %ld NOT saved: %s; the run goes on", step, error);
    return saved;
}
