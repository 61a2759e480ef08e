// run_report: what a run tells and keeps: evaluations, samples, the account of its memory, checkpoints.
//
// The invariant: nothing here changes the run. Evaluation and sampling read the weights, a checkpoint that cannot be
// written is reported and the run goes on.
#include "train/run.h"

#include "train/account.h"
#include "base/check.h"
#include "train/replicas.h"
#include "train/sample.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// "loss nan, first in rank 2: the gradient of ...". Collective where it has to ask.
static void explain(Run *run, const StepResult *r, char *why, size_t n)
{
    char first[LOCATE_TEXT];
    monitor_explain(&run->monitor, r->verdict, why, n);
    if (r->verdict.reason != MONITOR_NOT_FINITE || !run->cfg.monitor.locate || r->rescaled) return;
    size_t at = strlen(why);
    if (locate_first(&run->locate, run->control, first)) snprintf(why + at, n - at, ", first in %s", first);
    else snprintf(why + at, n - at, ", though every rank's own numbers were finite: their sum overflows");
}

void run_verdict(Run *run, long step, StepResult *r)
{
    MonitorVerdict v = r->verdict;
    if (v.action == MONITOR_ACCEPT && v.reason != MONITOR_NEW_LEVEL) return;
    RampStep batch = run_samples(run, step - 1);
    explain(run, r, r->why, sizeof r->why);
    const char *advice = monitor_advice(v);
    if (r->rescaled)
        progress_event(run->progress, METRICS_SKIP, step,
                       "gradient overflow: weights left as they were, loss scale lowered to %g",
                       (double)run->scaler.scale);
    else if (v.action == MONITOR_SKIP)
        progress_event(run->progress, METRICS_SKIP, step,
                       "%s: weights left as they were, samples %lld to %lld skipped; %s", r->why,
                       (long long)batch.before, (long long)(batch.before + batch.sequences - 1), advice);
    else if (v.action == MONITOR_COOL)
        progress_event(run->progress, METRICS_WARN, step, "%s: learning rate times %g for %ld steps; %s", r->why,
                       run->cfg.monitor.cool, run->cfg.monitor.cool_steps, advice);
    else if (v.action == MONITOR_WARN)
        progress_event(run->progress, METRICS_WARN, step, "%s; %s", r->why, advice);
    else if (v.reason == MONITOR_NEW_LEVEL)
        progress_event(run->progress, METRICS_WARN, step, "%s: accepted as the new level after %ld skips; %s", r->why,
                       run->cfg.monitor.max_skips, advice);
}

static MetricsRow evaluate(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    EvalRanks ranks = {.all = run->control, .replica = run->place.dp, .replicas = run->shape.dp,
                       .pipeline = run->pipeline, .counts = run_has_losses(run)};
    EvalResult result = eval_run(run->model, run->val, cfg->eval.tokens, cfg->eval.stride, (size_t)cfg->batch.micro,
                                 (size_t)cfg->model.context, run->token_bytes,
                                 cfg->data.document_mask ? tokenizer_eot(run->tokenizer) : -1,
                                 run->ranks > 1 ? &ranks : NULL);
    if (result.loss < run->best_val) run->best_val = result.loss;
    return (MetricsRow){.step = step, .tokens = run_tokens(run, step), .val_loss = result.loss,
                        .val_bpb = result.bpb, .seconds = run->seconds};
}

void run_eval(Run *run, long step)
{
    run_phase(run, step, "evaluation");
    MetricsRow row = evaluate(run, step);
    progress_val(run->progress, &row);
}

void run_end(Run *run, long step, bool interrupted)
{
    run_phase(run, step, "the end");
    MetricsRow row = {.step = step, .tokens = run_tokens(run, step), .val_loss = NAN, .val_bpb = NAN,
                      .seconds = run->seconds};
    if (interrupted) progress_note(run->progress, "stopped by a signal after step %ld; to go on, the same command with "
                                   "--ckpt.resume=true", step);
    else row = evaluate(run, step);
    progress_end(run->progress, &row);
    run->progress = NULL;
}

// Where several ranks hold the model all run it, and rank 0 has the file.
void run_sample(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    char path[700];
    bool together = run->model->shard.x_weights || run->shape.dp < run->ranks;
    if (run->rank && !together) return;
    run_phase(run, step, "sampling");
    snprintf(path, sizeof path, "%s/samples.txt", run->dir);
    FILE *out = run->rank ? NULL : fopen(path, "a");
    if (!out && !run->rank) die("%s: %s", path, strerror(errno));
    SampleRule rule = {cfg->sample.temperature, cfg->sample.top_k, cfg->sample.top_p};
    for (long i = 0; i < cfg->sample.count; i++) {
        char name[32];
        snprintf(name, sizeof name, "sample %ld", i);
        char *text = sample_text(run->model, run->pipeline, &run->cache, run->tokenizer, cfg->sample.prompt,
                                 (size_t)cfg->sample.tokens, rule,
                                 rng_make((uint64_t)cfg->run.seed, name, (uint32_t)step));
        if (out) fprintf(out, "== step %ld, sample %ld\n%s\n\n", step, i, text);
        progress_event(run->progress, METRICS_SAMPLE, step, "%s", text);
        free(text);
    }
    if (out && fclose(out)) die("%s: %s", path, strerror(errno));
}

void run_account(Run *run)
{
    char path[700], *text, *line, *rest;
    size_t n_text, counts[run->ranks];
    AccountRank mine = account_rank(&run->mem, &run->mesh, run->control);
    account_add(&mine, ACCOUNT_CONTROL, run->replicas);
    account_add(&mine, ACCOUNT_CONTROL, run->parts);
    // ranks that share a key/value head are neighbours of a tp group
    if (run->model->tp.neighbours) account_add(&mine, ACCOUNT_TP, run->model->tp.neighbours);
    AccountRank *all = calloc((size_t)run->ranks, sizeof *all);
    if (!all) die("account: no memory for %d ranks", run->ranks);
    for (int r = 0; r < run->ranks; r++) counts[r] = sizeof mine;
    CommRequest request = comm_all_gather(run->control, all, &mine, counts, COMM_BYTE);
    comm_wait(run->control, &request);
    snprintf(path, sizeof path, "%s/account.json", run->dir);
    if (run->rank == 0) {
        account_write(all, run->ranks, path);
        FILE *out = open_memstream(&text, &n_text);
        if (!out) die("account: no memory for the table");
        ReplicasCase is = replicas_case(run);
        AccountRank replica[is.ranks];
        int member[run->ranks];
        int n = mesh_members(run->shape, 0, MESH_REPLICAS, member);
        for (int i = 0; i < n; i++) replica[i] = all[member[i]];
        replicas_print(&is, replica, out);
        if (fclose(out)) die("account: no memory for the table");
        for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            progress_note(run->progress, "%s", line);
        free(text);
    }
    free(all);
}
