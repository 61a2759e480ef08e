// run: builds a training run from its config: device, data, model, optimizer, schedule, a checkpoint to go on
// from. (run_data.c has the data, run_model.c what a rank holds, run_step.c the step, run_ranks.c what several ranks
// need, run_report.c evaluation and samples.)
//
// The invariant: everything that a person can have got wrong is found here, before step 0: the order is
// config, data, directory, memory, checkpoint, and each of them dies with one line. Every rank opens and checks the
// data; rank 0 alone reads and writes the run's directory.
//
// Rejected: a model that is built from the checkpoint's own configuration. The command says what runs; a checkpoint
// that does not fit is refused.
#include "train/run.h"

#include "ops/blas.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"
#include "ops/narrow.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void make_dirs(const char *path)
{
    char part[600];
    snprintf(part, sizeof part, "%s", path);
    for (char *p = part + 1;; p++) {
        if (*p && *p != '/') continue;
        char end = *p;
        *p = 0;
        if (mkdir(part, 0777) && errno != EEXIST)
            die("run directory %s: cannot be made: %s (try another --run.dir)", path, strerror(errno));
        *p = end;
        if (!end) return;
    }
}

// Flops per second of the device's own matmul on these shapes, as blas_peak measures the CPU's.
static double device_peak(Dev *dev, const BlasShape *shape, int n)
{
    double flops = 0, seconds = 0;
    for (int i = 0; i < n; i++) {
        const BlasShape *s = &shape[i];
        X *inp = dev->raw_alloc(s->M * s->K * dev->x_bytes), *weight = dev->raw_alloc(s->N * s->K * dev->x_bytes);
        X *out = dev->raw_alloc(s->M * s->N * dev->x_bytes);
        if (!inp || !weight || !out)
            die("run: no device memory left to measure its matmul (try a smaller batch.micro)");
        double best = INFINITY, begin = clock_seconds();
        for (int k = 0; k < 20 && (k < 2 || clock_seconds() - begin < 0.1); k++) {
            dev->wait(dev);
            double start = clock_seconds();
            dev->matmul_forward(dev, out, inp, weight, NULL, s->M, s->K, s->N, -1);
            dev->wait(dev);
            best = fmin(best, clock_seconds() - start);
        }
        flops += 2.0 * (double)s->M * (double)s->K * (double)s->N, seconds += best;
        dev->raw_free(inp), dev->raw_free(weight), dev->raw_free(out);
    }
    return flops / seconds;
}

// The forward matmuls of a micro-batch, for the yardstick of MFU.
static double measure_peak(const ModelShape *s, size_t N, Dev *dev)
{
    size_t C = s->channels, hd = s->heads * s->head_size, qkv = hd + 2 * s->kv_heads * s->head_size;
    BlasShape shape[] = {{N, qkv, C}, {N, C, hd}, {N, s->ffn, C}, {N, C, s->ffn}, {N < 1024 ? N : 1024, s->vocab, C}};
    int n = sizeof shape / sizeof *shape;
    if (dev->raw_alloc) return device_peak(dev, shape, n);
    return 1e9 * blas_peak(shape, (size_t)n, dev->threads, 0.5);
}

// Scales of fp16 and fp8: what the numbers need beside the weights.
static void build_scaler(Run *run)
{
    const Config *cfg = &run->cfg;
    bool fp16 = cfg->numerics.dtype == CONFIG_DTYPE_FP16;
    run->scaler = fp16 ? scaler_create((float)cfg->numerics.loss_scale, (int)cfg->numerics.loss_growth)
                       : scaler_none();
}

static void build_precision(Run *run)
{
    const Config *cfg = &run->cfg;
    build_scaler(run);
    run->fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8 ? run->dev->fp8 : NULL;
    if (run->fp8) fp8_set_sites(run->fp8, &run->model->params, cfg->numerics.fp8_keep);
}

static void build_model(Run *run)
{
    run_allocate(run);
    Model *model = run->model;
    zero_init_weights(run->zero, &run->optim, (uint64_t)run->cfg.run.seed);
    run_share_weights(run);
    build_precision(run);
    run->monitor = monitor_create((size_t)run->cfg.monitor.window, run->cfg.monitor.skip_z, run->cfg.monitor.max_skips);
    run_rules(run);
    run_wait(run); // so that ranks that share a machine measure it at the same time, as they will use it
    double peak = 1e9 * run->cfg.run.peak, share = 1;
    if (!(peak > 0)) {
        peak = measure_peak(&model->shape, model->max_batch * model->max_tokens, run->dev);
        if (run->world) share = run->world->share; // the fastest of its moments had a whole core
    }
    run->peak = run_sum(run, peak * share);
}

// As before the first step.
static void reset_precision(Run *run)
{
    size_t n;
    float *state = run->fp8 ? fp8_state(run->fp8, &n) : NULL;
    if (state) memset(state, 0, n * sizeof *state);
    build_scaler(run);
}

// run.minutes: times a few updates on the fresh model, puts the model back to its start, and sets run.steps.
static void derive_steps(Run *run)
{
    enum { TRIES = 50 };
    double time[TRIES], spent = 0; // in ascending order
    int n = 0;
    for (int i = 0; n < TRIES && (n < 1 || spent < 3); i++) {
        double seconds = run_step(run, i).seconds;
        run_tell(run, &seconds, sizeof seconds);
        spent += seconds;
        if (i == 0) continue; // it touches the memory
        int at = n++;
        for (; at > 0 && time[at - 1] > seconds; at--) time[at] = time[at - 1];
        time[at] = seconds;
    }
    optim_reset(&run->optim, run->model);
    zero_init_weights(run->zero, &run->optim, (uint64_t)run->cfg.run.seed);
    run_share_weights(run);
    reset_precision(run);
    monitor_reset(&run->monitor);
    run->seconds = 0;
    long steps = (long)(60 * run->cfg.run.minutes / time[n / 2]);
    config_set_derived(&run->cfg, "run.steps", steps > 0 ? steps : 1);
    config_resolve(&run->cfg);
}

void run_schedule(Run *run)
{
    const Config *cfg = &run->cfg;
    long decay_start = cfg->optim.decay_steps - cfg->optim.wsd_decay;
    run->schedule = (Schedule){
        .kind = cfg->optim.schedule, .lr = cfg->optim.lr, .min_lr = cfg->optim.min_lr,
        .warmup = cfg->optim.warmup, .decay_steps = cfg->optim.decay_steps,
        .decay_start = decay_start > cfg->optim.warmup ? decay_start : cfg->optim.warmup,
        .shape = cfg->optim.wsd_shape};
    run->ramp = ramp_make(cfg->batch.ramp_from, cfg->batch.tokens, cfg->batch.ramp_tokens, cfg->model.context,
                          cfg->batch.micro * cfg->parallel.dp, cfg->optim.ramp_lr == CONFIG_RAMP_LR_SQRT);
    run->last_step = cfg->run.stop_at && cfg->run.stop_at < cfg->run.steps ? cfg->run.stop_at : cfg->run.steps;
}

// The resolved config as config_write prints it.
static char *config_text(const Run *run)
{
    char path[700];
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/config.toml.tmp", run->dir);
    unlink(path); // it may be a link to something else
    config_write(&run->cfg, path);
    char *text = disk_read_file(path, &n_bytes, 1 << 20);
    if (!text || unlink(path)) die("%s: %s", path, strerror(errno));
    return text;
}

// The data order goes on only where seed and samples a step are the same.
static void check_resumed(const Run *run, const CkptState *state)
{
    const Config *cfg = &run->cfg;
    uint64_t sample = (uint64_t)run_samples(run, state->step).before;
    if (state->seed != (uint64_t)cfg->run.seed)
        die("%s: run.seed: the checkpoint was trained with %llu, this run has %ld (set it so, or use another run.name)",
            run->dir, (unsigned long long)state->seed, cfg->run.seed);
    if (state->sample != sample)
        die("%s: batch.tokens: the checkpoint of step %ld has seen %llu samples, with %ld tokens a step "
            "it would be %llu "
            "(set it as it was, or use another run.name)", run->dir, state->step, (unsigned long long)state->sample,
            cfg->batch.tokens, (unsigned long long)sample);
}

int run_extras(Run *run, CkptExtra extra[RUN_EXTRAS])
{
    size_t n = 0;
    float *amax = run->fp8 ? fp8_state(run->fp8, &n) : NULL;
    if (amax && !run->fp8_amax) run->fp8_amax = calloc(n, sizeof *run->fp8_amax);
    if (amax && !run->fp8_amax) die("run: no memory for %zu scales", n);
    for (size_t i = 0; i < n; i++) run->fp8_amax[i] = amax[i];
    run->scaler_state[0] = run->scaler.scale;
    run->scaler_state[1] = run->scaler.good_steps;
    int used = 0;
    if (run->cfg.numerics.dtype == CONFIG_DTYPE_FP16) // 1 elsewhere, which fp16 must not go on with
        extra[used++] = (CkptExtra){"loss_scale", 2, run->scaler_state};
    extra[used++] = run_data_extra(run);
    if (n) extra[used++] = (CkptExtra){"fp8.amax", n, run->fp8_amax};
    extra[used++] = (CkptExtra){"guard", RUN_GUARD, run->guard};
    if (run->monitor.rules.on_plateau)
        extra[used++] = (CkptExtra){"plateau", MONITOR_PROGRESS, monitor_progress(&run->monitor)};
    if (monitor_active(&run->monitor)) {
        CkptExtra *windows = &extra[used++];
        windows->name = "monitor";
        windows->value = monitor_state(&run->monitor, &windows->n);
    }
    return used;
}

// The way back: what run_extras pointed at has been filled from a checkpoint.
static void extras_loaded(Run *run)
{
    size_t n = 0;
    float *amax = run->fp8 ? fp8_state(run->fp8, &n) : NULL;
    run_data_loaded(run);
    for (size_t i = 0; i < n; i++) amax[i] = (float)run->fp8_amax[i];
    if (run->cfg.numerics.dtype != CONFIG_DTYPE_FP16) return;
    run->scaler.scale = (float)run->scaler_state[0];
    run->scaler.good_steps = (int)run->scaler_state[1];
}

long run_restore(Run *run)
{
    CkptExtra extra[RUN_EXTRAS];
    CkptState state = {.config = run->config_text, .optim = run->optim.kind->name, .extra = extra,
                       .n_extra = run_extras(run, extra)};
    if (!run_load(run, &state)) return -1;
    check_resumed(run, &state);
    run->optim.step = (int)state.adam_step;
    run->seconds = state.seconds;
    run->best_val = state.best_val;
    extras_loaded(run);
    return state.step;
}

// run.minutes: from the first start's config.toml, where there was one; else measured.
static void find_steps(Run *run, bool started, const char *path)
{
    Config *cfg = &run->cfg;
    if (!started) {
        run_schedule(run);
        derive_steps(run);
        return;
    }
    long steps = 0;
    if (run->rank == 0) {
        static Config before;
        config_defaults(&before);
        config_load_file(&before, path);
        steps = before.run.steps;
    }
    run_tell(run, &steps, sizeof steps);
    config_set_derived(cfg, "run.steps", steps);
    config_resolve(cfg);
}

static void resume_or_start(Run *run)
{
    Config *cfg = &run->cfg;
    long newest = run->rank == 0 ? ckpt_newest_step(run->dir) : 0;
    run_tell(run, &newest, sizeof newest);
    if (!cfg->ckpt.resume && newest >= 0)
        die("%s: holds a run of %ld steps already (try --ckpt.resume=true to go on, another --run.name, or remove it)",
            run->dir, newest);
    char path[700];
    snprintf(path, sizeof path, "%s/config.toml", run->dir);
    if (cfg->run.steps == 0 && cfg->run.minutes > 0) find_steps(run, newest >= 0, path);
    if (cfg->run.steps == 0) die("run.steps is 0 (try --run.steps=1000, or --run.minutes=5)");
    const long one[] = {cfg->run.dump, cfg->run.trace};
    for (int i = 0; i < 2; i++)
        if (one[i] > cfg->run.steps)
            die("run.%s = %ld: the run has %ld updates (try --run.%s=%ld)",
                i ? "trace" : "dump", one[i], cfg->run.steps,
                i ? "trace" : "dump", cfg->run.steps);
    if (run->rank == 0) run->config_text = config_text(run);
    run_schedule(run);
    schedule_check(&run->schedule);
    long step = cfg->ckpt.resume ? run_restore(run) : -1;
    if (step < 0 && *cfg->ckpt.init) run_init(run);
    if (run->rank == 0) config_write(cfg, path); // a resume that is refused leaves the run's own
    if (step >= 0) run->first_step = step;
}

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

static void begin_progress(Run *run)
{
    const Config *cfg = &run->cfg;
    char text[200];
    snprintf(text, sizeof text, "%s, %ld layers x %ld channels, %ld heads, vocabulary %ld, context %ld",
             cfg->model.position == CONFIG_POSITION_ROPE ? "LLaMA family" : "GPT family", cfg->model.layers,
             cfg->model.channels, cfg->model.heads, cfg->model.vocab, cfg->model.context);
    ProgressPlan plan = {.dir = run->dir, .name = cfg->run.name, .model = text,
                         .params = parameters(&run->model->shape), .batch_tokens = cfg->batch.tokens,
                         .steps = cfg->run.steps, .first_step = run->first_step, .log_every = cfg->run.log_every,
                         .floor_loss = run->floor_loss, .floor_bpb = run->floor_bpb,
                         .floor_is_bound = run->floor_is_bound};
    run->progress = progress_begin(&plan);
    config_print(cfg, stdout);
    config_print(cfg, progress_log(run->progress));
    const char *of = cfg->run.peak > 0 ? "by run.peak" : "on this model's shapes";
    char ranks[32] = "";
    if (run->ranks > 1) snprintf(ranks, sizeof ranks, "%d ranks of ", run->ranks);
    if (run->dev->raw_alloc)
        progress_note(run->progress, "matmul: %s, %.0f GFLOP/s %s%s", run->dev->name, run->peak / 1e9, of,
                      run->ranks > 1 ? ", all ranks" : "");
    else
        progress_note(run->progress,
                  "matmul: OpenBLAS, %s kernels (%s), %.0f GFLOP/s %s with %s%d threads",
                  blas_kernel(), blas_reason(), run->peak / 1e9, of, ranks, run->dev->threads);
    if (run->mesh.world != run->world)
        progress_note(run->progress, "ranks: their arrays travel by %s", run->mesh.world->ops->name);
    char line[300] = "";
    for (int tag = 0; tag < MEM_TAGS; tag++)
        if (run->mem.tag_bytes[tag])
            snprintf(line + strlen(line), sizeof line - strlen(line), ", %s %.1f", mem_tag_name((MemTag)tag),
                     (double)run->mem.tag_bytes[tag] / 1e6);
    progress_note(run->progress, "memory%s: %.1f MB%s", run->ranks > 1 ? " of rank 0" : "",
                  (double)run->mem.bytes / 1e6, line);
    if (run->first_step == 0 && *cfg->ckpt.init)
        progress_note(run->progress, "weights: those of %s, step %ld", cfg->ckpt.init, run->init_step);
    progress_note(run->progress, "data: %lld training tokens, %lld validation tokens; %ld tokens a step",
                  (long long)dataset_tokens(run->train), (long long)dataset_tokens(run->val), cfg->batch.tokens);
    if (run->other_data)
        progress_event(run->progress, METRICS_WARN, run->first_step,
                       "other training data than the checkpoint's: other tokens, tokenizer, sources, packing, order or "
                       "context; goes on from their sample %lld", (long long)run_samples(run, run->first_step).before);
}

void run_open(Run *run, const Config *cfg, Dev *dev, Comm *world)
{
    *run = (Run){.cfg = *cfg, .dev = dev, .ranks = world->size, .best_val = INFINITY, .noise = noise_create(0.9),
                 .mem = {.raw_alloc = dev->raw_alloc, .raw_free = dev->raw_free, .device = dev->raw_alloc != NULL}};
    run_ranks(run, world);
    run_open_data(run);
    int n = snprintf(run->dir, sizeof run->dir, "%s/%s", cfg->run.dir, cfg->run.name);
    if (n < 0 || n >= (int)sizeof run->dir) die("run.dir and run.name: longer than %zu characters", sizeof run->dir);
    if (run->rank == 0) make_dirs(run->dir);
    run_lock(run);
    run_wait(run); // memory.offload: each rank puts a file there
    if (cfg->run.noise_every && cfg->batch.accum < 2)
        die("run.noise_every: needs two micro-batches in a step, batch.accum is %ld (try a smaller --batch.micro)",
            cfg->batch.accum);
    if (cfg->run.noise_every && cfg->numerics.deterministic)
        die("run.noise_every: not with numerics.deterministic, which adds gradients in another order");
    build_model(run);
    resume_or_start(run);
    run->trace_update = cfg->run.trace;
    run_watched(run);
    run->dump_update = cfg->run.dump; // not earlier: the updates of derive_steps are not the run's
    if (run->rank) return;
    if (cfg->run.norms_every) norms_open(&run->norms, run->dir);
    begin_progress(run);
}

void run_close(Run *run)
{
    free(run->config_text);
    free(run->token_bytes);
    free(run->fp8_amax);
    disk_lock_release(run->lock);
    monitor_free(&run->monitor);
    dataset_close(run->train);
    dataset_close(run->val);
    tokenizer_free(run->tokenizer);
    run_free(run);
}
