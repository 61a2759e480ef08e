// run_step: one optimizer update: data, micro-batches forward and backward, norm, verdict, clip, update.
//
// The invariant: a step is a function of (config, step, weights, optimizer state, scales, the monitor's windows).
// Sample s of the run always holds the same tokens, step k always takes the samples behind those of step k - 1, and
// nothing else is carried from step to step; so a run that was stopped and resumed goes through the same states, bit
// for bit, as one that was not.
//
// The loss of a step is the sum of token losses over the number of valid tokens of the whole global
// batch. That number is known before the first micro-batch runs, and every micro-batch scales its
// gradient by it; averaging the averages of micro-batches would weigh tokens unequally when their valid
// counts differ.
//
// In fp16 the loss is multiplied by the loss scale S (scaler.h) before backward, and the gradient by 1 / S
// before its norm is taken, so clipping sees the true gradient.
//
// The monitor sees loss and norm before the optimizer sees the gradient. A batch that it skips is gone: its samples
// count as taken, its gradient is zeroed, and neither weights nor moments nor the optimizer's count of updates change.
//
// Of several ranks each takes its share of the step's sequences, one behind the other in the order of samples, so a
// step is the same function on any number of them. Valid tokens, losses and gradients are added over the ranks
// (run_ranks.c).
#include "train/run.h"

#include "base/check.h"
#include "base/clock.h"
#include "text/packing.h"
#include "dev/draw/pipeline_draw.h"

#include <math.h>
#include <stdlib.h>

int64_t run_tokens(const Run *run, long step)
{
    return ramp_at(&run->ramp, step).before * run->cfg.model.context;
}

static size_t count_valid(const int32_t *target, size_t n)
{
    size_t valid = 0;
    for (size_t i = 0; i < n; i++) valid += target[i] >= 0;
    return valid;
}

static void load_sample(Run *run, int64_t sample, size_t at)
{
    const Config *cfg = &run->cfg;
    uint64_t seed = (uint64_t)cfg->run.seed;
    int32_t *token = run->token + at, *target = run->target + at;
    if (cfg->data.packing == CONFIG_PACKING_BEST_FIT)
        dataset_row(run->train, sample, seed, cfg->data.shuffle, token, target, run->pos + at, run->first + at);
    else dataset_window(run->train, sample, (int)cfg->model.context, seed, cfg->data.shuffle, token, target);
    if (run->faults.n) run_fault_sample(run, sample, token, target);
}

// Tokens, targets, and where asked for positions and document starts, of this rank's sequences; those of the next step
// are fetched while this one runs. Returns the number of valid targets of the whole step.
static size_t load_step(Run *run, RampStep share, RampStep next)
{
    const Config *cfg = &run->cfg;
    size_t T = (size_t)cfg->model.context, rows = (size_t)share.sequences, valid;
    for (size_t i = 0; i < rows; i++) load_sample(run, share.before + (int64_t)i, i * T);
    for (int64_t i = 0; i < next.sequences; i++)
        dataset_ahead(run->train, next.before + i, (int)T, (uint64_t)cfg->run.seed, cfg->data.shuffle);
    if (run->first && cfg->data.packing == CONFIG_PACKING_CUT)
        packing_positions(run->token, rows, T, tokenizer_eot(run->tokenizer), run->pos, run->first, run->target);
    valid = (size_t)run_sum_samples(run, (int64_t)count_valid(run->target, rows * T));
    if (!valid)
        die("data.train: a step of %zu tokens has no target that counts", (size_t)run->shape.dp * rows * T);
    return valid;
}

// What the noise scale needs of a step: the first micro-batch's gradient.
typedef struct {
    double squares; // of the mean gradient over its tokens
    size_t valid;   // these tokens; 0: not measured
} FirstMicro;

// trace.json: what the stages of rank 0's copy of the model have just done. (Their clocks are those of their machines.)
static void write_trace(Run *run)
{
    char path[700];
    PipelineTimeline line = pipeline_timeline(run->pipeline);
    snprintf(path, sizeof path, "%s/trace.json", run->dir);
    if (run->rank == 0) pipeline_draw_trace(&line, 1e6, path);
    progress_note(run->progress, "trace    %s: update %ld, %.1f%% of the stages' time idle (ui.perfetto.dev opens it)",
                  path, run->trace_update, 100 * pipeline_time_bubble(&line));
    pipeline_time_free(&line);
    run->pipeline->recording = false;
}

// All micro-batches through the stages of a pipeline. Returns the sum of the losses of those with the head on this
// rank.
static double run_stages(Run *run, long step, RampStep share, float scale)
{
    const Config *cfg = &run->cfg;
    size_t B = (size_t)cfg->batch.micro, T = (size_t)cfg->model.context;
    for (int k = 0; k < run->table->m; k++) {
        size_t at = (size_t)k * B * T;
        run->micro[k] = (PipelineMicro){
            .token = run->token + at, .target = run->target + at, .pos = run->pos ? run->pos + at : NULL,
            .first = run->first ? run->first + at : NULL, .B = B, .T = T, .dropout = (float)cfg->model.dropout,
            .seed = (uint64_t)cfg->run.seed, .step = (uint32_t)step, .sample = (uint64_t)share.before + (size_t)k * B};
    }
    bool traced = step + 1 == run->trace_update;
    if (traced) pipeline_record(run->pipeline, NULL);
    zero_micro(run->zero, true);
    double loss = pipeline_step(run->pipeline, run->micro, scale);
    supervisor_progress(comm_heartbeat(run->world));
    if (traced) write_trace(run);
    return loss;
}

// Forward and backward of this rank's micro-batches; the sum of the token losses of all ranks, and of the gradients.
// first or NULL.
static double accumulate(Run *run, long step, RampStep share, float scale, FirstMicro *first)
{
    const Config *cfg = &run->cfg;
    size_t B = (size_t)cfg->batch.micro, T = (size_t)cfg->model.context, rows = (size_t)share.sequences;
    double loss = run->pipeline ? run_stages(run, step, share, scale) : 0;
    for (size_t row = 0; !run->pipeline && row < rows; row += B) {
        size_t at = row * T;
        dev_mark(run->dev, "micro-batch");
        zero_micro(run->zero, row + B >= rows);
        model_set_batch(run->model, run->token + at, run->pos ? run->pos + at : NULL, run->target + at, B, T);
        if (run->first) model_set_documents(run->model, run->first + at);
        model_set_dropout(run->model, (float)cfg->model.dropout, (uint64_t)cfg->run.seed, (uint32_t)step,
                          (uint64_t)share.before + row);
        model_forward_backward(run->model, scale);
        supervisor_progress(comm_heartbeat(run->world));
        dev_mark(run->dev, NULL);
        if (row > 0 || !first) continue;
        first->valid = count_valid(run->target, B * T);
        double norm = clip_norm(run->dev, &run->model->params, run->model->grads,
                                1 / ((double)scale * (double)first->valid));
        first->squares = norm * norm;
    }
    if (!run->pipeline) loss = model_step_finish(run->model);
    zero_reduce(run->zero);
    return run_sum_loss(run, loss);
}

// The gradient noise scale (noise.h), batches in tokens.
static void measure_noise(Run *run, long step, FirstMicro first, double norm, size_t valid)
{
    noise_add(&run->noise, first.squares, (double)first.valid, norm * norm, (double)valid);
    progress_note(run->progress, "noise    step %ld: B_simple %.4g tokens (tr Sigma %.4g, |G|^2 %.4g; this batch %zu)",
                  step, noise_scale(&run->noise), noise_trace(&run->noise), noise_signal(&run->noise), valid);
}

static bool due(long every, long update)
{
    return every > 0 && update % every == 0;
}

StepResult run_step(Run *run, long step)
{
    double begin = clock_seconds();
    run_phase(run, step, "training");
    dev_mark(run->dev, "update");
    run_fault_before(run, step);
    locate_step(&run->locate);
    if (run->cfg.run.account && step == run->first_step) comm_reset_counts(run->world);
    RampStep batch = run_samples(run, step), share = run_share(run, batch);
    size_t T = (size_t)run->cfg.model.context;
    size_t valid = load_step(run, share, run_share(run, run_samples(run, step + 1)));
    if (step + 1 == run->dump_update) run_dump_begin(run, step);

    StepResult result = {.lr = schedule_lr_ramped(&run->schedule, &run->ramp, step) * run_cool(run, step),
                         .tokens = batch.sequences * (int64_t)T};
    if (run->fp8) fp8_step_begin(run->fp8);
    FirstMicro first = {0};
    bool noise = due(run->cfg.run.noise_every, step + 1) && batch.sequences > run->cfg.batch.micro && run->progress;
    result.loss = accumulate(run, step, share, run->scaler.scale / (float)valid, noise ? &first : NULL) /
                  (double)valid;
    run->optim.grad_scale = 1 / (double)run->scaler.scale;
    run_dump_grads(run);
    if (run->fp8) run_fp8(run);
    if (run->fp8 && !fp8_step_end(run->fp8)) run->optim.grad_scale = NAN; // a saturating cast hid an overflow
    result.grad_norm = optim_norm(&run->optim, run->model);
    result.verdict = run_judge(run, step, result.loss, result.grad_norm);
    bool norms = due(run->cfg.run.norms_every, step + 1) && run->progress;
    if (noise && first.valid) measure_noise(run, step + 1, first, result.grad_norm, valid);
    if (norms) norms_before(&run->norms, run->model, run->optim.grad_scale);
    dev_mark(run->dev, "optimizer");
    if (result.verdict.action < MONITOR_SKIP) optim_apply(&run->optim, run->model, result.grad_norm, result.lr);
    else optim_drop(run->model);
    zero_end(run->zero);
    run_share_weights(run);
    dev_mark(run->dev, NULL);
    run_dump_end(run);
    if (norms) norms_after(&run->norms, run->model, step + 1);
    run_fault_after(run, step);
    if (due(run->cfg.monitor.agree_every, step + 1)) run_agree(run, step + 1);
    float scale = run->scaler.scale;
    scaler_update(&run->scaler, isfinite(result.grad_norm));
    result.rescaled = run->scaler.scale < scale;
    result.seconds = clock_seconds() - begin;
    run->seconds += result.seconds;
    dev_mark(run->dev, NULL);
    return result;
}
