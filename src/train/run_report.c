// run_report: the reports of a run: its settings, unusual steps, evaluations, samples, the end.
//
// The invariant: no report changes the weights or the optimizer; evaluation and sampling only read the weights.
#include "train/run.h"

#include "base/words.h"
#include "base/check.h"
#include "base/stop.h"
#include "base/clock.h"
#include "ops/dev_cpu.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- the first lines

// Of the whole model, of which this rank may have a part.
static int64_t parameters(const ModelShape *shape)
{
    Params params;
    Unit *unit;
    model_describe(shape, &params, &unit);
    int64_t n = (int64_t)params.n_elems;
    params_free(&params);
    free(unit);
    return n;
}

void run_announce(Run *run)
{
    const Config *cfg = &run->cfg;
    char text[200], count[32];
    snprintf(text, sizeof text, "%s, %ld layer%s x %ld channels, %ld head%s, vocabulary %ld, context %ld",
             cfg->model.position == CONFIG_POSITION_ROPE ? "LLaMA family" : "GPT family", cfg->model.layers,
             words_s((uint64_t)cfg->model.layers), cfg->model.channels, cfg->model.heads,
             words_s((uint64_t)cfg->model.heads), cfg->model.vocab, cfg->model.context);
    ProgressPlan plan = {.dir = run->dir, .name = cfg->run.name, .model = text,
                         .params = parameters(&run->model->shape), .batch_tokens = cfg->batch.tokens,
                         .steps = run->pace.budget > 0 ? run->pace.steps : cfg->run.steps,
                         .eval_tokens = run->paced && !config_is_set(cfg, "eval.tokens") ? cfg->eval.tokens : 0,
                         .first_step = run->first_step, .log_every = cfg->run.log_every,
                         .floor_loss = run->data.floor_loss, .floor_bpb = run->data.floor_bpb,
                         .floor_is_bound = run->data.floor_is_bound};
    for (int tag = 0; tag < MEM_TAGS; tag++) plan.mem[tag] = (int64_t)run->mem.tag_bytes[tag];
    progress_count(count, (double)plan.params);
    run->progress = progress_begin(&plan);
    int columns = progress_columns();
    progress_note(run->progress, "%s: %s parameters\nsettings that were given (all are in %s/config.toml, their "
                  "meaning: --help):", text, count, run->dir);
    config_print(cfg, stdout, columns < 100 ? columns : 100);
    config_print(cfg, progress_log(run->progress), 100);
    const char *of = cfg->run.peak > 0 ? "by run.peak" : "on this model's shapes";
    char ranks[32] = "";
    if (run->replicas.size > 1) snprintf(ranks, sizeof ranks, "%d ranks of ", run->replicas.size);
    const char *bf16 = run_bf16_products(cfg) ? "; bf16 matrices: AVX512-BF16"
                       : cfg->numerics.dtype == CONFIG_DTYPE_BF16 ? "; bf16 matrices: widened to fp32" : "";
    if (run->dev->raw_alloc)
        progress_note(run->progress, "matmul: %s%s, %.0f GFLOP/s %s", ranks, run->dev->name, run->peak / 1e9, of);
    else
        progress_note(run->progress, "matmul: OpenBLAS, %s kernels (%s)%s, %.0f GFLOP/s %s with %s%d thread%s",
                      dev_cpu_blas(), dev_cpu_blas_reason(), bf16, run->peak / 1e9, of, ranks, run->dev->threads,
                      run->dev->threads > 1 ? "s" : "");
    if (run->dev->raw_alloc && cfg->numerics.deterministic)
        progress_note(run->progress, "numerics.deterministic on a GPU: the same bits again on this layout; another one "
                      "differs by rounding (doc/deterministic.md)");
    if (run->replicas.transport)
        progress_note(run->progress, "ranks: their arrays travel by %s", run->replicas.transport);
    char line[300] = "";
    for (int tag = 0; tag < MEM_TAGS; tag++)
        if (run->mem.tag_bytes[tag])
            snprintf(line + strlen(line), sizeof line - strlen(line), ", %s %.1f", mem_tag_name((MemTag)tag),
                     (double)run->mem.tag_bytes[tag] / 1e6);
    progress_note(run->progress, "memory%s: %.1f MB%s", run->replicas.size > 1 ? " of rank 0" : "",
                  (double)run->mem.bytes / 1e6, line);
    if (cfg->parallel.zero && cfg->parallel.dp * cfg->parallel.cp == 1 && cfg->memory.offload == OFFLOAD_NONE)
        progress_note(run->progress, "parallel.zero = %ld has no effect: parallel.dp * cp = 1, so no rank has what another "
                      "has (mpiexec -n %d starts several)", cfg->parallel.zero, 2 * run->replicas.size);
    if (run->first_step == 0 && *cfg->ckpt.init)
        progress_note(run->progress, "weights%s: those of %s, step %ld%s",
                      cfg->ckpt.init_state ? " and optimizer's state" : "", cfg->ckpt.init, run->saves.init_step,
                      run->saves.upcycled ? "; each expert begins as its layer's one network, routers are new" : "");
    if (run->first_step > 0) progress_note(run->progress, "resumed: after step %ld of this run", run->first_step);
    char scored[90] = "";
    if (cfg->eval.tokens && cfg->eval.tokens < (long)dataset_tokens(run->data.val))
        snprintf(scored, sizeof scored, " (%s%ld are scored: eval.tokens)",
                 config_is_set(cfg, "eval.tokens") ? "the first " : "", cfg->eval.tokens);
    progress_note(run->progress, "data: %lld training tokens, %lld validation tokens%s; %ld tokens a step",
                  (long long)dataset_tokens(run->data.train), (long long)dataset_tokens(run->data.val), scored,
                  cfg->batch.tokens);
    for (const Observer *o = run->observer; o < run->observer + run->n_observers; o++)
        if (o->announce) o->announce(o->self, run);
    const char *both = dataset_shared(run->data.val, run->data.train);
    if (both)
        progress_event(run->progress, METRICS_WARN, run->first_step, "data.val: %s is also among data.train: the "
                       "validation loss is of text that the run learns (prepare writes files of both kinds)", both);
    const char *other = dataset_altered(run->data.train);
    if (!other) other = dataset_altered(run->data.val);
    if (other)
        progress_event(run->progress, METRICS_WARN, run->first_step, "%s: other tokens than prepare wrote there: its "
                       "manifest.json has another hash (replaced, or damaged?)", other);
    if (run->data.other)
        progress_event(run->progress, METRICS_WARN, run->first_step,
                       "other training data than the checkpoint's: other tokens, tokenizer, sources, packing, order or "
                       "context; goes on from their sample %lld", (long long)run_samples(run, run->first_step).before);
}

// ---- unusual steps

// "loss nan, first in rank 2: the gradient of ...". Collective where it has to ask.
static void explain(Run *run, const StepResult *r, char *why, size_t n)
{
    monitor_explain(&run->monitor, r->verdict, why, n);
    bool asks = r->verdict.reason == MONITOR_NOT_FINITE && !r->rescaled;
    for (const Observer *o = run->observer; asks && o < run->observer + run->n_observers; o++)
        if (o->explain) o->explain(o->self, run, why + strlen(why), n - strlen(why));
}

void run_verdict(Run *run, long step, StepResult *r)
{
    MonitorVerdict v = r->verdict;
    if (v.action == MONITOR_ACCEPT && v.reason != MONITOR_NEW_LEVEL) return;
    RampStep batch = run_samples(run, step - 1);
    explain(run, r, r->why, sizeof r->why);
    char advice[1000];
    int n = snprintf(advice, sizeof advice, "%s", monitor_advice(v));
    if (v.reason != MONITOR_PLATEAU && run->data.tokenizer)
        snprintf(advice + n, sizeof advice - (size_t)n, "; the batch: build/prepare show %s --sample %lld --count %lld",
                 run->dir, (long long)batch.before, (long long)batch.sequences);
    if (r->rescaled)
        progress_event(run->progress, METRICS_SKIP, step,
                       "gradient overflow: weights left as they were, loss scale lowered to %g",
                       (double)run->scales.scaler.scale);
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

bool run_by_tenths(const Run *run)
{
    return run->pace.budget > 0 && !config_is_set(&run->cfg, "run.eval_every");
}

// whole: at the run's end. Before, a run of so many minutes scores each tenth window at each tenth of its time; and where
// its time is too short for the whole text, fewer windows of all of it.
static EvalResult evaluate_set(Run *run, const Dataset *set, bool whole)
{
    const Config *cfg = &run->cfg;
    long tokens = cfg->eval.tokens, all = (long)dataset_tokens(set), every = 1;
    if (run->paced && tokens && !config_is_set(cfg, "eval.tokens")) every = (all + tokens - 1) / tokens, tokens = 0;
    if (!whole && run_by_tenths(run)) every *= 10;
    EvalResult result = eval_run(run->model, set, tokens, cfg->eval.stride, (size_t)every, (size_t)cfg->batch.micro,
                                 (size_t)cfg->model.context, run->data.token_bytes,
                                 cfg->data.document_mask ? tokenizer_eot(run->data.tokenizer) : -1,
                                 replicas_evaluation(&run->replicas));
    if (!run->data.token_bytes) result.bpb = NAN; // how many bytes a token has is not known
    return result;
}

// False: a signal asks the run to end; *row has no losses.
static bool evaluate(Run *run, long step, bool whole, MetricsRow *row)
{
    EvalResult result = evaluate_set(run, run->data.val, whole);
    if (result.loss < run->best_val) run->best_val = result.loss;
    *row = (MetricsRow){.step = step, .tokens = run_tokens(run, step), .val_loss = result.loss,
                        .val_bpb = result.bpb, .seconds = run->seconds};
    return !result.stopped;
}

// False: a signal asks the run to end, and nothing is reported.
static bool evaluate_sets(Run *run, long step, bool whole)
{
    for (size_t i = 0; i < run->data.n_sets; i++) {
        const RunSet *set = &run->data.set[i];
        EvalResult r = evaluate_set(run, set->tokens, whole);
        if (r.stopped) return false;
        progress_set(run->progress, &(MetricsRow){.step = step, .tokens = run_tokens(run, step), .name = set->name,
                                                  .val_loss = r.loss, .val_bpb = r.bpb});
    }
    return true;
}

void run_eval(Run *run, long step)
{
    replicas_phase(&run->replicas, step, "evaluation");
    bool beaten = replicas_any(&run->replicas, run->beaten);
    if (beaten && !run->dev->raw_alloc) run_measure_peak(run); // it was measured while the machine was busy
    run->beaten = false;
    double begin = clock_seconds();
    MetricsRow row;
    if (!evaluate(run, step, false, &row)) return;
    if (run_by_tenths(run)) row.name = ", a tenth of the text";
    progress_val(run->progress, &row);
    if (!evaluate_sets(run, step, false)) return;
    run->pace.end = (run_by_tenths(run) ? 10 : 1) * (clock_seconds() - begin);
    if (run->loads.E) loads_report(&run->loads, run->progress, step, run_tokens(run, step));
}

bool run_tasks(Run *run, long step)
{
    bool writes; // samples; every process takes part in tasks
    SampleForward forward = replicas_sampling(&run->replicas, &writes);
    if (run->data.n_tasks) replicas_phase(&run->replicas, step, "tasks");
    for (size_t i = 0; i < run->data.n_tasks; i++) {
        Tasks *t = run->data.task[i];
        char text[300];
        if (!tasks_run(t, run->model, replicas_evaluation(&run->replicas), forward, &run->cache)) return false;
        TasksResult r = tasks_result(t);
        tasks_describe(&r, text, sizeof text);
        progress_task(run->progress, &(MetricsRow){.step = step, .tokens = run_tokens(run, step), .name = t->name,
                      .items = (int64_t)r.items, .acc = r.acc[TASKS_SUM], .acc_norm = r.acc[TASKS_CHARS],
                      .acc_token = r.acc[TASKS_TOKENS], .centred = r.centred, .perplexity = r.perplexity}, text);
    }
    return true;
}

void run_end(Run *run, long step, bool stopped, const char *command)
{
    if (stop_unread && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) clearerr(stdout); // since the last step
    replicas_phase(&run->replicas, step, "last evaluation");
    MetricsRow row = {.step = step, .tokens = run_tokens(run, step), .val_loss = NAN, .val_bpb = NAN,
                      .seconds = run->seconds};
    stopped = stopped || !evaluate(run, step, true, &row) || !evaluate_sets(run, step, true);
    if (!stopped && run->loads.E) loads_report(&run->loads, run->progress, step, run_tokens(run, step));
    stopped = stopped || !run_tasks(run, step);
    const RunData *d = &run->data;
    if (d->screen && d->targets_all)
        progress_note(run->progress, "screened    %lld of %lld targets, %.2f%%: documents beyond data.max_repeat or max_broken",
                      (long long)d->screened_all, (long long)d->targets_all,
                      100 * (double)d->screened_all / (double)d->targets_all);
    if (stopped && run->progress)
        fprintf(progress_log(run->progress), "stopped by a signal after step %ld\n", step);
    progress_end(run->progress, &row);
    if (stopped && run->progress) printf("stopped by a signal after step %ld; to go on:\n%s\n", step, command);
    run->progress = NULL;
}

// Where several processes hold the model between them all run it, and rank 0 has the file.
void run_sample(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    char path[700];
    bool takes_part;
    if (replicas_any(&run->replicas, stop_asked)) return; // before anyone leaves: all are asked
    SampleForward forward = replicas_sampling(&run->replicas, &takes_part);
    int rank = run->replicas.rank;
    if (!takes_part) return;
    replicas_phase(&run->replicas, step, "sampling");
    snprintf(path, sizeof path, "%s/samples.txt", run->dir);
    FILE *out = rank ? NULL : fopen(path, "a");
    if (!out && !rank) die("%s: %s", path, strerror(errno));
    SampleRule rule = {.temperature = cfg->sample.temperature, .top_k = cfg->sample.top_k, .top_p = cfg->sample.top_p,
                       .min_p = cfg->sample.min_p, .repetition = cfg->sample.repetition};
    for (long i = 0; i < cfg->sample.count; i++) {
        char name[32];
        snprintf(name, sizeof name, "sample %ld", i);
        char *text = sample_text(run->model, forward, &run->cache, run->data.tokenizer, cfg->sample.prompt,
                                 (size_t)cfg->sample.tokens, rule,
                                 rng_make((uint64_t)cfg->run.seed, name, (uint32_t)step));
        if (out) fprintf(out, "== step %ld, sample %ld\n%s\n\n", step, i, text);
        progress_event(run->progress, METRICS_SAMPLE, step, "%s", text);
        free(text);
    }
    if (out && fclose(out)) die("%s: %s", path, strerror(errno));
}
