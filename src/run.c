// run: builds a training run from its config and provides the steps of the loop.
//
// The invariant: a step is a function of (config, step, weights, optimizer state). Sample s of the run
// always holds the same tokens, step k always takes samples [k n, (k + 1) n), and nothing else is
// carried from step to step; so a run that was stopped and resumed goes through the same states, bit for
// bit, as one that was not.
//
// The loss of a step is the sum of token losses over the number of valid tokens of the whole global
// batch. That number is known before the first micro-batch runs, and every micro-batch scales its
// gradient by it; averaging the averages of micro-batches would weigh tokens unequally when their valid
// counts differ.
#include "run.h"

#include "account.h"
#include "blas.h"
#include "check.h"
#include "disk.h"
#include "dump.h"
#include "sample.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ModelShape run_shape(const Config *cfg)
{
    return (ModelShape){
        .layers = (size_t)cfg->model.layers, .channels = (size_t)cfg->model.channels,
        .heads = (size_t)cfg->model.heads, .kv_heads = (size_t)cfg->model.kv_heads,
        .head_size = (size_t)cfg->model.head_size, .ffn = (size_t)cfg->model.ffn,
        .vocab = (size_t)cfg->model.vocab, .context = (size_t)cfg->model.context,
        .norm = cfg->model.norm == CONFIG_NORM_RMSNORM ? NORM_RMSNORM : NORM_LAYERNORM,
        .norm_eps = (float)cfg->model.norm_eps, .rope_theta = (float)cfg->model.rope_theta,
        .swiglu = cfg->model.activation == CONFIG_ACTIVATION_SWIGLU,
        .rope = cfg->model.position == CONFIG_POSITION_ROPE,
        .bias = cfg->model.bias, .tie = cfg->model.tie, .qk_norm = cfg->model.qk_norm,
    };
}

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

// The corpus' entropy, where the validation text came from a source that knows it: floor.json of
// build/stories.
static void read_floor(Run *run)
{
    const char *path = run->cfg.data.floor;
    if (!path[0]) return;
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) die("%s:%d: %s (data.floor: the floor.json of build/stories)", path, error.line, error.text);
    json_t *val = json_object_get(root, "val");
    double nats = json_number_value(json_object_get(val, "nats"));
    double bits_per_byte = json_number_value(json_object_get(val, "bits_per_byte"));
    if (!(nats > 0) || !(bits_per_byte > 0)) die("%s: val.nats and val.bits_per_byte are not there", path);
    run->floor_loss = nats / (double)(dataset_tokens(run->val) - 1); // the targets; the first token is given
    run->floor_bpb = bits_per_byte;
    json_decref(root);
}

static void open_data(Run *run)
{
    Config *cfg = &run->cfg;
    if (!cfg->data.train[0] || !cfg->data.val[0] || !cfg->data.tokenizer[0])
        die("data.train, data.val and data.tokenizer: all three are needed (make them with build/prepare, "
            "or try: make run)");
    run->tokenizer = tokenizer_load(cfg->data.tokenizer);
    int vocab = tokenizer_vocab_size(run->tokenizer);
    if (!cfg->model.vocab) {
        config_set_derived(cfg, "model.vocab", vocab);
        config_resolve(cfg);
    }
    if (cfg->model.vocab < vocab)
        die("model.vocab = %ld: the tokenizer has %d tokens (try --model.vocab=0)", cfg->model.vocab, vocab);
    run->train = dataset_open(cfg->data.train, vocab);
    run->val = dataset_open(cfg->data.val, vocab);
    if (dataset_windows(run->train, (int)cfg->model.context) < 1)
        die("%s: %lld tokens are fewer than model.context + 1 = %ld", cfg->data.train,
            (long long)dataset_tokens(run->train), cfg->model.context + 1);
    run->token_bytes = calloc((size_t)cfg->model.vocab, sizeof *run->token_bytes);
    if (!run->token_bytes) die("run: no memory for %ld token lengths", cfg->model.vocab);
    for (int i = 0; i < vocab; i++) run->token_bytes[i] = (int32_t)tokenizer_text_bytes(run->tokenizer, i);
    read_floor(run);
}

// The forward matmuls of a micro-batch, for the yardstick of MFU.
static double measure_peak(const ModelShape *s, size_t N, int threads)
{
    size_t C = s->channels, hd = s->heads * s->head_size, qkv = hd + 2 * s->kv_heads * s->head_size;
    BlasShape shape[] = {{N, qkv, C}, {N, C, hd}, {N, s->ffn, C}, {N, C, s->ffn}, {N < 1024 ? N : 1024, s->vocab, C}};
    return 1e9 * blas_peak(shape, sizeof shape / sizeof *shape, threads, 0.5);
}

void run_allocate(Run *run)
{
    const Config *cfg = &run->cfg;
    ModelShape shape = run_shape(cfg);
    size_t n = (size_t)cfg->batch.tokens;
    run->model = model_allocate(&shape, run->dev, &run->mem, (size_t)cfg->batch.micro, shape.context, true);
    run->optim = optim_create(run->model, (float)cfg->optim.beta1, (float)cfg->optim.beta2, (float)cfg->optim.eps,
                              (float)cfg->optim.weight_decay, (float)cfg->optim.clip);
    run->cache = model_cache_create(run->model);
    run->token = mem_alloc(&run->mem, MEM_SCRATCH, 2 * n * sizeof *run->token, "a step's tokens");
    run->target = run->token + n;
}

static void build_model(Run *run)
{
    run_allocate(run);
    Model *model = run->model;
    params_init(&model->params, (uint64_t)run->cfg.run.seed, model->weights);
    run->peak = measure_peak(&model->shape, model->max_batch * model->max_tokens, run->dev->threads);
}

// run.minutes: times a few updates on the fresh model, puts the model back to its start, and sets run.steps.
static void derive_steps(Run *run)
{
    enum { TRIES = 6 };
    double best = 1e30, begin = now_s();
    for (int i = 0; i < TRIES && (i < 2 || now_s() - begin < 20); i++) {
        StepResult r = run_step(run, i);
        if (i > 0 && r.seconds < best) best = r.seconds; // the first one touches the memory
    }
    size_t n_bytes = run->model->params.n_elems * sizeof(float);
    params_init(&run->model->params, (uint64_t)run->cfg.run.seed, run->model->weights);
    run->dev->zero(run->dev, run->optim.m, n_bytes);
    run->dev->zero(run->dev, run->optim.v, n_bytes);
    run->optim.step = 0;
    run->seconds = 0;
    long steps = (long)(60 * run->cfg.run.minutes / best);
    config_set_derived(&run->cfg, "run.steps", steps > 0 ? steps : 1);
    config_resolve(&run->cfg);
}

static void set_schedule(Run *run)
{
    const Config *cfg = &run->cfg;
    run->schedule = (Schedule){
        .kind = cfg->optim.schedule == CONFIG_SCHEDULE_COSINE ? SCHEDULE_COSINE : SCHEDULE_CONSTANT,
        .lr = cfg->optim.lr, .min_lr = cfg->optim.min_lr, .warmup = cfg->optim.warmup,
        .decay_steps = cfg->optim.decay_steps};
    run->last_step = cfg->run.stop_at && cfg->run.stop_at < cfg->run.steps ? cfg->run.stop_at : cfg->run.steps;
}

// The resolved config as config_write prints it.
static char *config_text(const Run *run)
{
    char path[700];
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/config.toml.tmp", run->dir);
    config_write(&run->cfg, path);
    char *text = disk_read_file(path, &n_bytes, 1 << 20);
    if (!text || unlink(path)) die("%s: %s", path, strerror(errno));
    return text;
}

// The data order goes on only where seed and samples a step are the same.
static void check_resumed(const Run *run, const CkptState *state)
{
    const Config *cfg = &run->cfg;
    uint64_t sample = (uint64_t)state->step * (uint64_t)(cfg->batch.tokens / cfg->model.context);
    if (state->seed != (uint64_t)cfg->run.seed)
        die("%s: run.seed: the checkpoint was trained with %llu, this run has %ld (set it so, or use another run.name)",
            run->dir, (unsigned long long)state->seed, cfg->run.seed);
    if (state->sample != sample)
        die("%s: batch.tokens: the checkpoint of step %ld has seen %llu samples, with %ld tokens a step it would be %llu "
            "(set it as it was, or use another run.name)", run->dir, state->step, (unsigned long long)state->sample,
            cfg->batch.tokens, (unsigned long long)sample);
}

static void resume_or_start(Run *run)
{
    Config *cfg = &run->cfg;
    long newest = ckpt_newest_step(run->dir);
    if (!cfg->ckpt.resume && newest >= 0)
        die("%s: holds a run of %ld steps already (try --ckpt.resume=true to go on, another --run.name, or remove it)",
            run->dir, newest);
    char path[700];
    snprintf(path, sizeof path, "%s/config.toml", run->dir);
    if (cfg->run.steps == 0 && cfg->run.minutes > 0) {
        if (newest >= 0) { // the first start measured them
            static Config before;
            config_defaults(&before);
            config_load_file(&before, path);
            config_set_derived(cfg, "run.steps", before.run.steps);
            config_resolve(cfg);
        } else {
            set_schedule(run);
            derive_steps(run);
        }
    }
    if (cfg->run.steps == 0) die("run.steps is 0 (try --run.steps=1000, or --run.minutes=5)");
    if (cfg->run.dump > cfg->run.steps)
        die("run.dump = %ld: the run has %ld updates (try --run.dump=%ld)", cfg->run.dump, cfg->run.steps,
            cfg->run.steps);
    run->config_text = config_text(run);
    set_schedule(run);
    CkptState state = {.config = run->config_text};
    bool resumed = cfg->ckpt.resume &&
                   ckpt_load_newest(run->dir, &run->model->params, run->model->weights, run->optim.m,
                                    run->optim.v, &state);
    if (resumed) check_resumed(run, &state);
    config_write(cfg, path); // a resume that is refused leaves the run's own
    if (!resumed) return;
    run->first_step = state.step;
    run->optim.step = (int)state.adam_step;
    run->seconds = state.seconds;
    run->best_val = state.best_val;
}

static void begin_progress(Run *run)
{
    const Config *cfg = &run->cfg;
    char text[200];
    snprintf(text, sizeof text, "%s, %ld layers x %ld channels, %ld heads, vocabulary %ld, context %ld",
             cfg->model.position == CONFIG_POSITION_ROPE ? "LLaMA family" : "GPT family", cfg->model.layers,
             cfg->model.channels, cfg->model.heads, cfg->model.vocab, cfg->model.context);
    ProgressPlan plan = {.dir = run->dir, .name = cfg->run.name, .model = text,
                         .params = (int64_t)run->model->params.n_elems, .batch_tokens = cfg->batch.tokens,
                         .steps = cfg->run.steps, .first_step = run->first_step, .log_every = cfg->run.log_every,
                         .floor_loss = run->floor_loss, .floor_bpb = run->floor_bpb,
                         .floor_is_bound = run->floor_is_bound};
    run->progress = progress_begin(&plan);
    config_print(cfg, stdout);
    config_print(cfg, progress_log(run->progress));
    progress_note(run->progress,
                  "matmul: OpenBLAS, %s kernels (%s), %.0f GFLOP/s on this model's shapes with %d threads",
                  blas_kernel(), blas_reason(), run->peak / 1e9, run->dev->threads);
    char line[300] = "";
    for (int tag = 0; tag < MEM_TAGS; tag++)
        if (run->mem.tag_bytes[tag])
            snprintf(line + strlen(line), sizeof line - strlen(line), ", %s %.1f", mem_tag_name((MemTag)tag),
                     (double)run->mem.tag_bytes[tag] / 1e6);
    progress_note(run->progress, "memory: %.1f MB%s", (double)run->mem.bytes / 1e6, line);
    progress_note(run->progress, "data: %lld training tokens, %lld validation tokens; %ld tokens a step",
                  (long long)dataset_tokens(run->train), (long long)dataset_tokens(run->val), cfg->batch.tokens);
}

void run_open(Run *run, const Config *cfg, Dev *dev)
{
    *run = (Run){.cfg = *cfg, .dev = dev, .best_val = INFINITY};
    open_data(run);
    int n = snprintf(run->dir, sizeof run->dir, "%s/%s", cfg->run.dir, cfg->run.name);
    if (n < 0 || n >= (int)sizeof run->dir) die("run.dir and run.name: longer than %zu characters", sizeof run->dir);
    make_dirs(run->dir);
    build_model(run);
    resume_or_start(run);
    run->dump_update = cfg->run.dump; // not earlier: the updates of derive_steps are not the run's
    begin_progress(run);
}

void run_close(Run *run)
{
    free(run->config_text);
    free(run->token_bytes);
    dataset_close(run->train);
    dataset_close(run->val);
    tokenizer_free(run->tokenizer);
    mem_free_all(&run->mem);
    model_free(run->model);
}

StepResult run_step(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    double begin = now_s();
    size_t B = (size_t)cfg->batch.micro, T = (size_t)cfg->model.context, rows = (size_t)cfg->batch.tokens / T;
    size_t valid = 0;
    for (size_t i = 0; i < rows; i++)
        dataset_window(run->train, (int64_t)step * (int64_t)rows + (int64_t)i, (int)T, (uint64_t)cfg->run.seed,
                       cfg->data.shuffle, run->token + i * T, run->target + i * T);
    for (size_t i = 0; i < rows * T; i++) valid += run->target[i] >= 0;

    bool dump = step + 1 == run->dump_update;
    float *losses = dump ? calloc(rows * T, sizeof *losses) : NULL;
    if (dump && !losses) die("run.dump: no memory for the losses of %zu tokens", rows * T);
    StepResult result = {.lr = schedule_lr(&run->schedule, step)};
    for (long micro = 0; micro < cfg->batch.accum; micro++) {
        size_t at = (size_t)micro * B * T;
        model_set_batch(run->model, run->token + at, NULL, run->target + at, B, T);
        result.loss += model_forward_backward(run->model, 1 / (float)valid);
        if (dump) run->dev->to_host(run->dev, losses + at, run->model->loss, B * T * sizeof *losses);
    }
    result.loss /= (double)valid;
    if (dump) dump_write(run->dir, step + 1, run->model, losses, rows);
    free(losses);
    result.grad_norm = optim_step(&run->optim, run->model, result.lr);
    result.seconds = now_s() - begin;
    run->seconds += result.seconds;
    return result;
}

static MetricsRow evaluate(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    EvalResult result = eval_run(run->model, run->val, cfg->eval.tokens, cfg->eval.stride, (size_t)cfg->batch.micro,
                                 (size_t)cfg->model.context, run->token_bytes);
    if (result.loss < run->best_val) run->best_val = result.loss;
    return (MetricsRow){.step = step, .tokens = step * cfg->batch.tokens, .val_loss = result.loss,
                        .val_bpb = result.bpb, .seconds = run->seconds};
}

void run_eval(Run *run, long step)
{
    MetricsRow row = evaluate(run, step);
    progress_val(run->progress, &row);
}

void run_end(Run *run, long step, bool interrupted)
{
    MetricsRow row = {.step = step, .tokens = step * run->cfg.batch.tokens, .val_loss = NAN, .val_bpb = NAN,
                      .seconds = run->seconds};
    if (interrupted) progress_note(run->progress, "stopped by a signal after step %ld; to go on, the same command with "
                                   "--ckpt.resume=true", step);
    else row = evaluate(run, step);
    progress_end(run->progress, &row);
    run->progress = NULL;
}

void run_sample(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    char path[700];
    snprintf(path, sizeof path, "%s/samples.txt", run->dir);
    FILE *out = fopen(path, "a");
    if (!out) die("%s: %s", path, strerror(errno));
    SampleRule rule = {cfg->sample.temperature, cfg->sample.top_k, cfg->sample.top_p};
    for (long i = 0; i < cfg->sample.count; i++) {
        char name[32];
        snprintf(name, sizeof name, "sample %ld", i);
        char *text = sample_text(run->model, &run->cache, run->tokenizer, cfg->sample.prompt,
                                 (size_t)cfg->sample.tokens, rule,
                                 rng_make((uint64_t)cfg->run.seed, name, (uint32_t)step));
        fprintf(out, "== step %ld, sample %ld\n%s\n\n", step, i, text);
        progress_event(run->progress, METRICS_SAMPLE, step, "%s", text);
        free(text);
    }
    if (fclose(out)) die("%s: %s", path, strerror(errno));
}

void run_account(const Run *run)
{
    char path[700];
    snprintf(path, sizeof path, "%s/account.json", run->dir);
    account_write(&run->mem, path);
}

bool run_save(Run *run, long step)
{
    const Config *cfg = &run->cfg;
    char error[600];
    CkptState state = {.step = step, .adam_step = run->optim.step,
                       .sample = (uint64_t)step * (uint64_t)(cfg->batch.tokens / cfg->model.context),
                       .tokens = (uint64_t)step * (uint64_t)cfg->batch.tokens, .seed = (uint64_t)cfg->run.seed,
                       .seconds = run->seconds, .best_val = run->best_val, .config = run->config_text};
    int keep = cfg->ckpt.keep ? (int)cfg->ckpt.keep : 1 << 30;
    bool saved = ckpt_save(run->dir, &state, &run->model->params, run->model->weights, run->optim.m, run->optim.v, keep,
                           error, sizeof error);
    if (saved) progress_event(run->progress, METRICS_SAVE, step, "%s/checkpoints/step_%08ld", run->dir, step);
    else progress_note(run->progress, "checkpoint of step %ld NOT saved: %s; the run goes on", step, error);
    return saved;
}
