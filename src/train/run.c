// run: builds a training run from its config: device, data, model, optimizer, schedule, a checkpoint to resume from.
//
//   run_open       config, data, directory and lock, memory: model, optimizer and buffers
//   run_begin      the number of steps, the schedule; the newest checkpoint, or ckpt.init, or the random weights
//
// The invariant: every mistake of a user is found here, before the first step, and ends the program with one line. All
// memory that grows with the model is allocated in run_allocate, in a fixed order that depends only on configuration
// and rank. So build/plan calls run_allocate with an allocator that only counts, and is exact to the byte.
//
// Rejected: building the model from the checkpoint's configuration. The command line decides what runs, and a
// checkpoint that does not fit is refused.
#include "train/run.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/disk.h"
#include "base/rng.h"
#include "comm/supervisor.h"
#include "ops/dev_cpu.h"
#include "narrow/narrow.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the settings as components take them

static ModelExperts run_experts(const Config *cfg)
{
    if (!cfg->model.experts) return (ModelExperts){.n = 0};
    return (ModelExperts){
        .n = (size_t)cfg->model.experts, .k = (size_t)cfg->model.experts_active,
        .ffn = (size_t)cfg->model.experts_ffn, .shared = (size_t)cfg->model.experts_shared,
        .dense = (size_t)cfg->model.experts_dense, .every = (size_t)cfg->model.experts_every,
        .groups = (size_t)cfg->model.experts_groups, .best = (size_t)cfg->model.experts_groups_active,
        .sigmoid = cfg->model.experts_score == MOE_SIGMOID, .renorm = cfg->model.experts_renorm,
        .scale = (float)cfg->model.experts_scale, .balance = cfg->moe.balance,
        .balance_coef = (float)cfg->moe.balance_coef, .z_coef = (float)cfg->moe.z_coef,
        .bias_rate = (float)cfg->moe.bias_rate, .capacity = cfg->moe.capacity,
        .room = cfg->moe.room,
        .by_gate = cfg->moe.drop == MOE_DROP_LIGHTEST};
}

ModelShape run_shape(const Config *cfg)
{
    ModelShape s = {
        .layers = (size_t)cfg->model.layers, .channels = (size_t)cfg->model.channels,
        .heads = (size_t)cfg->model.heads, .kv_heads = (size_t)cfg->model.kv_heads,
        .head_size = (size_t)cfg->model.head_size, .ffn = (size_t)cfg->model.ffn,
        .vocab = (size_t)cfg->model.vocab, .context = (size_t)cfg->model.context,
        .norm = cfg->model.norm,
        .norm_eps = (float)cfg->model.norm_eps,
        .rotary = {.theta = (float)cfg->model.rope_theta, .kind = cfg->model.rope_scaling,
                   .factor = (float)cfg->model.rope_factor, .original = (float)cfg->model.rope_original,
                   .slow = (float)cfg->model.rope_slow, .fast = (float)cfg->model.rope_fast},
        .act = cfg->model.activation, .swiglu = cfg->model.activation == ACT_SWIGLU,
        .rope = cfg->model.position == CONFIG_POSITION_ROPE,
        .bias = cfg->model.bias, .tie = cfg->model.tie, .qk_norm = cfg->model.qk_norm,
        .norm_place = cfg->model.norm_place, .zero_init = cfg->model.zero_init,
        .window = (size_t)cfg->model.window, .logit_cap = (float)cfg->model.logit_cap,
        .mup_base = (size_t)cfg->optim.mup_base, .mup_base_head = (size_t)cfg->optim.mup_base_head,
        .experts = run_experts(cfg),
    };
    memcpy(s.window_pattern, cfg->model.window_pattern, sizeof s.window_pattern);
    return s;
}

Dev *run_device(const Config *cfg, Dev *cpu)
{
    cpu->deterministic = cfg->numerics.deterministic;
    cpu->tf32 = cfg->numerics.dtype == CONFIG_DTYPE_TF32;
    if (config_stores_fp32(cfg)) return cpu;
    Dev *dev = narrow_create(cpu, (NarrowOptions){
        .x_type = cfg->numerics.dtype == CONFIG_DTYPE_FP16 ? X_FP16 : X_BF16,
        .fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8,
        .scaling = cfg->numerics.fp8_scaling,
        .history = (int)cfg->numerics.amax_history,
        .products = cfg->numerics.bf16_products});
    dev->embed_fp32 = cfg->numerics.embed_dtype == CONFIG_EMBED_FP32;
    return dev;
}

bool run_bf16_products(const Config *cfg)
{
    return cfg->numerics.dtype == CONFIG_DTYPE_BF16 && narrow_hardware(cfg->numerics.bf16_products);
}

void run_device_free(Dev *dev, Dev *cpu)
{
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

OptimSettings run_optim_settings(const Config *cfg)
{
    return (OptimSettings){
        .name = cfg->optim.name, .beta1 = cfg->optim.beta1, .beta2 = cfg->optim.beta2,
        .eps = (float)cfg->optim.eps, .weight_decay = (float)cfg->optim.weight_decay,
        .momentum = cfg->optim.momentum, .row_beta2 = cfg->optim.row_beta2,
        .matrix_lr = (float)cfg->optim.matrix_lr, .cautious_decay = cfg->optim.cautious_decay,
        .relative_step = cfg->optim.relative_step, .clip = (float)cfg->optim.clip,
        .agc = (float)cfg->optim.agc, .agc_unit = cfg->optim.agc_unit};
}

ModelOptions run_model_options(const Config *cfg)
{
    return (ModelOptions){
        .recompute = {.mode = cfg->memory.recompute, .every = (size_t)cfg->memory.recompute_every,
                      .compress = cfg->memory.compress == CONFIG_COMPRESS_INT8,
                      .offload = cfg->memory.offload_acts == OFFLOAD_CPU},
        .documents = cfg->data.document_mask,
        .sequences = (size_t)(cfg->batch.tokens / cfg->parallel.dp / cfg->model.context)};
}

static void set_rules(Monitor *monitor, const Config *cfg)
{
    MonitorRules rules = {.on_spike = cfg->monitor.on_spike,
                          .on_not_finite = cfg->monitor.on_not_finite ? MONITOR_ROLLBACK : MONITOR_SKIP,
                          .clip = cfg->optim.clip, .plateau_steps = cfg->monitor.plateau_steps};
    monitor_parse_rules(cfg->monitor.rules, &rules);
    for (int i = 0; i < rules.n; i++)
        if (rules.rule[i].kind == MONITOR_OF_CLIP && !(rules.clip > 0))
            die("monitor.rules: clip %g: optim.clip is 0", rules.rule[i].limit);
    monitor_set_rules(monitor, rules);
}

// A length of the schedule in steps: given in tokens, as a part of so many steps (rounded up), or in steps.
static long in_steps(const Ramp *ramp, long tokens, double part, long of, long steps)
{
    if (tokens) return schedule_step_of(ramp, tokens);
    return part > 0 ? (long)ceil(part * (double)of * (1 - 0x1p-40)) : steps; // 0.1 is a little more in binary
}

// Steps of the decay of wsd, of a run whose decay ends at step `end`.
static long wsd_decay(const Config *cfg, long end)
{
    return cfg->optim.wsd_decay ? cfg->optim.wsd_decay : in_steps(NULL, 0, cfg->optim.wsd_part, end, 0);
}

static void end_at(Run *run, long steps)
{
    long stop = run->cfg.run.stop_at;
    run->last_step = stop && stop < steps ? stop : steps;
}

// The sizes of a growing batch are the run's, whatever the layout; each must be whole micro-batches of all ranks.
static void refuse_ramp(const Config *cfg)
{
    long grain = cfg->parallel.dp * cfg->batch.micro * cfg->model.context * config_micro_grain(cfg);
    if (cfg->batch.ramp_tokens && (cfg->batch.ramp_from % grain || cfg->batch.ramp_by % grain))
        die("batch.ramp_from %ld and batch.ramp_by %ld are not both multiples of the %ld tokens that all ranks take at "
            "once (try a smaller --batch.micro, fewer replicas, or larger sizes)", cfg->batch.ramp_from,
            cfg->batch.ramp_by, grain);
}

void run_schedule(Run *run)
{
    const Config *cfg = &run->cfg;
    refuse_ramp(cfg);
    run->ramp = schedule_ramp_make(cfg->batch.ramp_from, cfg->batch.tokens, cfg->batch.ramp_by,
                                   cfg->batch.ramp_tokens, cfg->model.context, cfg->optim.ramp_lr == CONFIG_RAMP_LR_SQRT);
    Schedule *s = &run->schedule;
    *s = (Schedule){
        .kind = cfg->optim.schedule, .lr = cfg->optim.lr, .min_lr = cfg->optim.min_lr,
        .shape = cfg->optim.wsd_shape, .momentum = cfg->optim.momentum,
        .momentum_start = cfg->optim.momentum_start, .momentum_warmup = cfg->optim.momentum_warmup};
    s->warmup = in_steps(&run->ramp, cfg->optim.warmup_tokens, cfg->optim.warmup_part, cfg->run.steps, cfg->optim.warmup);
    s->decay_steps = in_steps(&run->ramp, cfg->optim.decay_tokens, 0, 0, cfg->optim.decay_steps);
    if (cfg->optim.decay_tokens && s->decay_steps <= s->warmup)
        die("optim.decay_tokens: %ld tokens are %ld steps, which are not more than the warm-up's %ld",
            cfg->optim.decay_tokens, s->decay_steps, s->warmup);
    long decay = wsd_decay(cfg, s->decay_steps);
    s->decay_start = (double)(s->decay_steps - decay > s->warmup ? s->decay_steps - decay : s->warmup);
    end_at(run, cfg->run.steps);
}

// ---- run.minutes

// After update `step`: the run shall have `steps`. A decay that has a length of its own stays as it is.
static void plan_end(Run *run, long step, long steps)
{
    run->pace.steps = steps;
    if (!config_is_set(&run->cfg, "optim.decay_steps") && !run->cfg.optim.decay_tokens)
        schedule_move_end(&run->schedule, step, steps, wsd_decay(&run->cfg, steps));
    end_at(run, steps);
}

int run_pace(Run *run, long step, double seconds)
{
    Pace *p = &run->pace;
    if (!(p->budget > 0)) return 0;
    struct {
        long steps, tenth;
        double elapsed;
    } told = {0};
    if (run->replicas.rank == 0)
        told.steps = pace_steps(p, step, seconds), told.tenth = pace_tenth(p, step), told.elapsed = pace_elapsed(p);
    replicas_tell(&run->replicas, &told, sizeof told);
    if (told.steps != p->steps) {
        plan_end(run, step, told.steps);
        progress_pace(run->progress, step, p->steps, told.elapsed);
    }
    return (int)told.tenth;
}

void run_pace_loaded(Run *run)
{
    pace_load(&run->pace, &run->schedule, run->pace_state);
    end_at(run, run->pace.steps);
}

static void begin_pace(Run *run)
{
    const Config *cfg = &run->cfg;
    if (!run->paced) return;
    long planned = run->pace.steps;
    pace_begin(&run->pace, cfg->run.minutes, run->first_step);
    if (run->pace.steps != planned) plan_end(run, run->first_step, run->pace.steps);
}

// ---- memory

// Of the whole model's tensors, whatever this process has of them.
static Norms create_norms(const Model *model, const Replicas *all)
{
    Params whole;
    Unit *units;
    OptimRange range;
    size_t n = 0;
    for (int u = 0; u < model->params.n_units; u++, n += range.end - range.begin) replicas_range(all, u, &range);
    model_describe(&model->shape, &whole, &units);
    free(units);
    return grads_norms_create(model, whole, n);
}

void run_allocate(Run *run)
{
    const Config *cfg = &run->cfg;
    ModelShape shape = run_shape(cfg);
    if (shape.mup_base) mup_check(&shape, optim_kind(cfg->optim.name)->name);
    replicas_allocate(&run->replicas, &run->optim, cfg, run->dev, &run->mem, run->dir);
    run->model = run->replicas.model;
    run->cache = model_cache_create(run->model);
    size_t n = (size_t)(cfg->batch.tokens / cfg->parallel.dp);
    bool mask = cfg->data.document_mask;
    RunData *d = &run->data;
    d->token = mem_alloc_host(&run->mem, MEM_SCRATCH, (mask ? 4 : 2) * n * sizeof *d->token, "a step's tokens");
    d->target = d->token + n;
    d->pos = mask ? d->token + 2 * n : NULL;
    d->first = mask ? d->token + 3 * n : NULL;
    if (cfg->run.norms_every) run->norms = create_norms(run->model, &run->replicas);
    run_saves_allocate(run);
}

void run_free(Run *run)
{
    if (run->cfg.run.norms_every) grads_norms_close(&run->norms);
    run_saves_free(run);
    optim_free(&run->optim);
    replicas_free(&run->replicas);
    mem_free_all(&run->mem);
    model_free(run->model);
}

// ---- how fast this machine multiplies

// An array full of random numbers: a GPU that multiplies zeros draws less power, and is faster than in training.
static void *peak_room(Dev *dev, size_t n_elems, const float *noise, size_t n_noise)
{
    size_t n_bytes = n_elems * dev->x_bytes;
    char *room = dev->raw_alloc ? dev->raw_alloc(n_bytes) : aligned_alloc(64, (n_bytes + 63) / 64 * 64);
    if (!room) die("run: no memory left to measure its matmul (try a smaller batch.micro)");
    for (size_t i = 0; i < n_elems; i += n_noise)
        dev->to_x(dev, (X *)(room + i * dev->x_bytes), noise, n_elems - i < n_noise ? n_elems - i : n_noise);
    return room;
}

// Of one product of this shape by the device's own matmul; the best of several.
static double shape_seconds(Dev *dev, MatmulShape s, const float *noise, size_t n_noise)
{
    void (*release)(void *) = dev->raw_free ? dev->raw_free : free;
    void *inp = peak_room(dev, s.M * s.K, noise, n_noise), *weight = peak_room(dev, s.N * s.K, noise, n_noise);
    void *out = peak_room(dev, s.M * s.N, noise, n_noise);
    double best = INFINITY, begin = clock_seconds();
    for (int k = 0; k < 20 && (k < 2 || clock_seconds() - begin < 0.1); k++) {
        if (dev->wait) dev->wait(dev);
        double start = clock_seconds();
        dev->matmul_forward(dev, out, inp, weight, NULL, s.M, s.K, s.N, -1);
        if (dev->wait) dev->wait(dev);
        best = fmin(best, clock_seconds() - start);
    }
    release(inp), release(weight), release(out);
    return best;
}

// Flops per second of the device's own matmul on these shapes, as dev_cpu_peak measures OpenBLAS'.
static double device_peak(Dev *dev, const MatmulShape *shape, int n)
{
    enum { NORMAL = 1 << 14, NOISE = 1 << 20 }; // so many are drawn, and repeated
    double flops = 0, seconds = 0;
    float *host = malloc(NOISE * sizeof *host), *noise = host;
    if (host && dev->raw_alloc) noise = dev->raw_alloc(NOISE * sizeof *host);
    if (!noise) die("run: no memory left to measure its matmul (try a smaller batch.micro)");
    for (size_t i = 0; i < NOISE; i++)
        host[i] = i < NORMAL ? (float)rng_normal(rng_make(1, "peak", 0), i) : host[i - NORMAL];
    if (noise != host) dev->to_device(dev, noise, host, NOISE * sizeof *host);
    for (int i = 0; i < n; i++) {
        flops += 2.0 * (double)shape[i].M * (double)shape[i].K * (double)shape[i].N;
        seconds += shape_seconds(dev, shape[i], noise, NOISE);
    }
    if (noise != host) dev->raw_free(noise);
    free(host);
    return flops / seconds;
}

// The forward matmuls of a micro-batch, for the yardstick of MFU.
static double measure_peak(const ModelShape *s, size_t N, Dev *dev, bool own)
{
    size_t C = s->channels, hd = s->heads * s->head_size, qkv = hd + 2 * s->kv_heads * s->head_size;
    MatmulShape shape[] = {{N, qkv, C}, {N, C, hd}, {N, s->ffn, C}, {N, C, s->ffn}, {N < 1024 ? N : 1024, s->vocab, C}};
    int n = sizeof shape / sizeof *shape;
    if (own) return device_peak(dev, shape, n);
    return 1e9 * dev_cpu_peak(shape, (size_t)n, dev->threads, 0.5);
}

void run_measure_peak(Run *run)
{
    Replicas *r = &run->replicas;
    double peak = 1e9 * run->cfg.run.peak, cores = 1;
    if (r->rank == 0) doing("measuring the speed of matrix products");
    replicas_wait(r); // so that processes that share a machine measure it at the same time, as they will use it
    if (!(peak > 0)) {
        bool own = run->dev->raw_alloc || (run_bf16_products(&run->cfg) && !run->cfg.numerics.check);
        peak = measure_peak(&run->model->shape, run->model->max_batch * run->model->max_tokens, run->dev, own);
        cores = r->cores; // the fastest of its moments had a whole core
    }
    run->peak = fmax(run->peak, replicas_sum(r, peak * cores));
}

// ---- the directory

static void set_dir(Run *run, const char *name)
{
    int n = snprintf(run->dir, sizeof run->dir, "%s/%s", run->cfg.run.dir, name);
    if (n < 0 || n >= (int)sizeof run->dir) die("run.dir and run.name: longer than %zu characters", sizeof run->dir);
}

// Whether a run has trained in this directory: it has a checkpoint, or a training line of a run that died before its
// first one.
static bool has_trained(const char *dir)
{
    char path[700], line[4096];
    struct stat st;
    if (ckpt_newest_step(dir) >= 0) return true;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) found = strstr(line, "\"event\":\"train\"") != NULL;
    if (f) fclose(f);
    return found;
}

// The run's directory, the same on all processes. A new run never takes one in which another has trained: it takes
// NAME-2, NAME-3, ..., and the configuration has that name from here on.
static void choose_dir(Run *run)
{
    Config *cfg = &run->cfg;
    char name[CONFIG_TEXT + 16], where[CONFIG_WHERE];
    long number = 1;
    snprintf(name, sizeof name, "%s", cfg->run.name);
    set_dir(run, name);
    if (run->replicas.rank == 0 && cfg->ckpt.resume == CONFIG_RESUME_TRUE && ckpt_newest_step(run->dir) < 0)
        die("%s: ckpt.resume = true, but there is no checkpoint (try --ckpt.resume=auto to begin where there is none)",
            run->dir);
    if (run->replicas.rank == 0 && cfg->ckpt.resume == CONFIG_RESUME_FALSE)
        while (has_trained(run->dir)) {
            snprintf(name, sizeof name, "%s-%ld", cfg->run.name, ++number);
            set_dir(run, name);
        }
    replicas_tell(&run->replicas, &number, sizeof number);
    if (number == 1) return;
    snprintf(name, sizeof name, "%s-%ld", cfg->run.name, number);
    snprintf(where, sizeof where, "%.80s is taken", cfg->run.name);
    if (run->replicas.rank == 0) {
        set_dir(run, cfg->run.name);
        printf("%s holds a run already: this new one is %s/%s%s\n", run->dir, cfg->run.dir, name,
               ckpt_newest_step(run->dir) < 0 ? "" : " (--ckpt.resume=true goes on with the old one)");
        fflush(stdout);
    }
    config_set(cfg, "run.name", name, where);
    set_dir(run, name);
}

// ---- open

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

static void build_model(Run *run)
{
    const Config *cfg = &run->cfg;
    if (run->replicas.rank == 0) doing("making the model");
    run_allocate(run);
    replicas_init_weights(&run->replicas, (uint64_t)cfg->run.seed);
    bool fp16 = cfg->numerics.dtype == CONFIG_DTYPE_FP16;
    run->scales.scaler = fp16 ? grads_scaler_create((float)cfg->numerics.loss_scale, (int)cfg->numerics.loss_growth)
                              : grads_scaler_none();
    Fp8 *fp8 = run->scales.fp8 = cfg->numerics.dtype == CONFIG_DTYPE_FP8 ? run->dev->fp8 : NULL;
    if (fp8) fp8_set_sites(fp8, &run->model->params, cfg->numerics.fp8_keep);
    run->monitor = monitor_create((size_t)cfg->monitor.window, cfg->monitor.skip_z, cfg->monitor.max_skips);
    set_rules(&run->monitor, cfg);
    phases_begin(&run->phases, run->model, run->replicas.world);
    if (!run->model->shape.experts.n) return;
    run->loads = loads_create(&run->model->shape);
    loads_tell(&run->loads, run->model);
}

// The supervisors write to DIR/failure.jsonl from here on; that of an earlier job is removed.
static void report_failures(const Replicas *all, const char *dir)
{
    char path[SUPERVISOR_PATH];
    if ((size_t)snprintf(path, sizeof path, "%s/failure.jsonl", dir) >= sizeof path) return;
    if (all->rank == 0) unlink(path);
    supervisor_file(comm_heartbeat(all->world), path);
}

void run_open(Run *run, const Config *cfg, Dev *dev, Replicas replicas)
{
    *run = (Run){.cfg = *cfg, .dev = dev, .replicas = replicas, .best_val = INFINITY,
                 .paced = cfg->run.minutes > 0 && (!cfg->run.steps || !config_is_set(cfg, "run.steps")),
                 .mem = {.raw_alloc = dev->raw_alloc, .raw_free = dev->raw_free, .device = true}};
    bool first = replicas.rank == 0;
    run_schedule(run); // refuses what does not fit
    run_open_data(run);
    choose_dir(run);
    if (first) make_dirs(run->dir);
    static const char *const own[] = {"lock", "config.toml", "config.toml.tmp", "log.txt", "metrics.jsonl", "samples.txt",
        "norms.csv", "report.html", "loss.svg", "account.json", "trace.json", "links.json", "failure.jsonl", NULL};
    if (first) disk_refuse_links(run->dir, own);
    run->lock = first ? disk_lock_take(run->dir) : (DiskLock){-1, -1};
    report_failures(&run->replicas, run->dir);
    replicas_wait(&run->replicas); // memory.offload: each rank puts a file there
    build_model(run);
}

void run_close(Run *run)
{
    for (int i = 0; i < run->n_observers; i++)
        if (run->observer[i].free) run->observer[i].free(run->observer[i].self);
    free(run->config_text);
    free(run->scales.fp8_amax);
    if (run->loads.E) loads_free(&run->loads);
    disk_lock_release(run->lock);
    monitor_free(&run->monitor);
    if (run->paced) pace_free(&run->pace);
    run_close_data(run);
    run_free(run);
}

void run_observe(Run *run, Observer observer)
{
    check(run->n_observers < RUN_OBSERVERS);
    run->observer[run->n_observers++] = observer;
}

// ---- begin

// The resolved config as config_write prints it.
static char *config_text(const Config *cfg, const char *dir)
{
    char path[700];
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/config.toml.tmp", dir);
    unlink(path); // it may be a link to something else
    config_write(cfg, path);
    char *text = disk_read_file(path, &n_bytes, 1 << 20);
    if (!text || unlink(path)) die("%s: %s", path, strerror(errno));
    return text;
}

// run.minutes: how many tokens of a set are scored, where a tenth of the minutes is too short for all: at the end, and a
// tenth of them ten times. A token of a window costs a forward, a third of an update's.
static void limit_evaluation(Run *run, double seconds_a_step)
{
    Config *cfg = &run->cfg;
    double window = seconds_a_step / (double)cfg->batch.tokens / 3 * (double)cfg->model.context;
    long windows = (long)(60 * cfg->run.minutes / 10 / 2 / (double)(1 + run->data.n_sets) / window);
    long tokens = (windows > 1 ? windows : 1) * cfg->eval.stride;
    if (!config_is_set(cfg, "eval.tokens") && tokens < (long)dataset_tokens(run->data.val))
        config_set_derived(cfg, "eval.tokens", tokens);
}

void run_plan(Run *run, double seconds_a_step)
{
    Config *cfg = &run->cfg;
    double most = (double)(CONFIG_LARGEST / cfg->batch.tokens);
    long steps = (long)fmin(60 * cfg->run.minutes / seconds_a_step, most);
    config_set_derived(cfg, "run.steps", steps > 0 ? steps : 1);
    limit_evaluation(run, seconds_a_step);
    config_resolve(cfg);
}

// The step of the newest checkpoint, -1: none; the same on all processes.
static long newest_step(Replicas *all, const char *dir)
{
    long newest = all->rank == 0 ? ckpt_newest_step(dir) : 0;
    replicas_tell(all, &newest, sizeof newest);
    return newest;
}

bool run_wants_timing(Run *run)
{
    Config *cfg = &run->cfg;
    if (!run->paced || cfg->run.steps) return false; // run_plan has been here
    Pace *pace = &run->pace, first = {0};
    bool fresh = newest_step(&run->replicas, run->dir) < 0;
    if (*cfg->run.pace) pace_read(pace, cfg->run.pace);
    if (fresh && !pace->recorded) {
        run_schedule(run);
        return true;
    }
    char path[700];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run->dir);
    if (!fresh && run->replicas.rank == 0 && !access(path, R_OK)) pace_read(&first, path);
    else if (fresh) first = *pace;
    long derived[2] = {first.n_recorded ? first.recorded[0].steps : 1, first.eval_tokens}; // the checkpoint knows better
    replicas_tell(&run->replicas, derived, sizeof derived);
    if (!fresh) pace_free(&first);
    config_set_derived(cfg, "run.steps", derived[0]);
    if (!config_is_set(cfg, "eval.tokens")) config_set_derived(cfg, "eval.tokens", derived[1]);
    config_resolve(cfg);
    if (fresh) run_schedule(run);
    return false;
}

static void check_steps(const Config *cfg)
{
    if (cfg->run.steps == 0) die("run.steps is 0 (try --run.steps=1000, or --run.minutes=5)");
    const long one[] = {cfg->run.dump, cfg->run.trace};
    for (int i = 0; i < 2; i++)
        if (one[i] > cfg->run.steps)
            die("run.%s = %ld: the run has %ld updates (try --run.%s=%ld)",
                i ? "trace" : "dump", one[i], cfg->run.steps,
                i ? "trace" : "dump", cfg->run.steps);
}

// From here on a process that gets nowhere for run.hang_timeout ends the job.
static void watch(Run *run)
{
    const Config *cfg = &run->cfg;
    Heartbeat *beat = comm_heartbeat(run->replicas.world);
    if (beat && !cfg->run.supervisor)
        die("run.supervisor = false: in a file it comes too late: the supervisors are there before files are read (try "
            "--run.supervisor=false)");
    if (beat) supervisor_timeout(beat, cfg->run.hang_timeout);
    run->begun = true;
}

void run_begin(Run *run)
{
    const Config *cfg = &run->cfg;
    char path[700];
    check_steps(cfg);
    if (cfg->ckpt.init_state && !*cfg->ckpt.init)
        die("ckpt.init_state has no effect without ckpt.init, the run whose state it is (try --ckpt.init=runs/NAME)");
    snprintf(path, sizeof path, "%s/config.toml", run->dir);
    if (run->replicas.rank == 0) run->config_text = config_text(cfg, run->dir);
    run_schedule(run);
    schedule_check(&run->schedule);
    run->pace.steps = cfg->run.steps; // a checkpoint of a run of minutes knows better
    long step = cfg->ckpt.resume != CONFIG_RESUME_FALSE ? run_restore(run, 0) : -1;
    if (step < 0 && *cfg->ckpt.init) run_init(run);
    if (run->replicas.rank == 0) config_write(cfg, path); // a resume that is refused leaves the run's own
    if (step >= 0) run->first_step = step;
    run_measure_peak(run);
    begin_pace(run);
    watch(run);
    if (run->replicas.rank) return;
    if (cfg->run.norms_every) grads_norms_open(&run->norms, run->dir);
    run_announce(run);
}
