// run_data: what a run reads: tokenizer, training and validation tokens, what is known of their entropy, and the
// sequences of each step.
//
// The invariant: all ranks, and all parts of a run that was stopped and resumed, train on the same data, or a message
// says otherwise. Each rank opens the files that its machine has under that name. A rank with other tokens would train
// on wrong batches, and no loss would show it; with another tokenizer its documents begin elsewhere, or its model has
// another shape. Both are errors, and are found before the data is used. A checkpoint also stores a hash of the data. A
// run that is resumed on other data prints a `warn` line and continues, because the last stage of a training often uses
// a mixture of its own. It continues at the stored number of the sample, which is another text in the new data.
//
// Sample s of the run always holds the same tokens, and step k always takes the samples after those of step k - 1. So
// the data order depends on neither the number of processes nor on where a run was stopped.
//
// Rejected: comparing names and sizes of files (a file that is made again with another tokenizer setting may have the
// same name and size); refusing other data (the last stage could then not keep the optimizer's state).
#include "train/run.h"

#include "base/check.h"
#include "base/clock.h"
#include "text/packing.h"
#include "text/sources.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

// The corpus' entropy, where the validation text came from a source that knows it: floor.json of
// build/stories.
static void read_floor(RunData *d, const char *path)
{
    if (!path[0]) return;
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root) die("%s:%d: %s (data.floor: the floor.json of build/stories)", path, error.line, error.text);
    json_t *val = json_object_get(root, "val");
    double nats = json_number_value(json_object_get(val, "nats"));
    double bits_per_byte = json_number_value(json_object_get(val, "bits_per_byte"));
    if (!(nats > 0) || !(bits_per_byte > 0)) die("%s: val.nats and val.bits_per_byte are not there", path);
    d->floor_loss = nats / (double)(dataset_tokens(d->val) - 1); // the targets; the first token is given
    d->floor_bpb = bits_per_byte;
    json_decref(root);
}

// Ends the job when a rank has another hash of this file than rank 0.
static void same_on_all(Replicas *all, uint64_t hash, const char *path, const char *what)
{
    uint64_t first = hash;
    replicas_tell(all, &first, sizeof first);
    if (hash != first)
        die("%s: %s than rank 0 reads under that name (copy it again to this machine)", path, what);
}

// Of the tokens' bytes, by number, and of <|endoftext|>'s, whatever files they came from.
static uint64_t tokenizer_hash(const Tokenizer *t)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) die("run: no memory to compare tokenizers");
    XXH3_64bits_reset(state);
    int32_t eot = tokenizer_eot(t);
    XXH3_64bits_update(state, &eot, sizeof eot);
    for (int32_t i = 0; i < tokenizer_vocab_size(t); i++) {
        size_t n;
        const char *bytes = tokenizer_decode(t, i, &n);
        XXH3_64bits_update(state, &n, sizeof n);
        XXH3_64bits_update(state, bytes, n);
    }
    uint64_t hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

// Sets d->hash: what decides which tokens sample s is, and what they mean, apart from the seed. Two numbers of
// 32 bits, for a double holds 53.
static void hash_data(RunData *d, const Config *cfg, uint64_t tokenizer)
{
    uint64_t order[] = {dataset_hash(d->train), tokenizer, (uint64_t)cfg->model.context,
                        (uint64_t)cfg->data.packing, cfg->data.shuffle};
    uint64_t hash = XXH3_64bits(order, sizeof order);
    double bounds[] = {cfg->data.max_repeat, cfg->data.max_broken};
    if (d->screen) hash ^= XXH3_64bits(bounds, sizeof bounds); // so that without it the hash is as it was
    d->saved_hash[0] = d->hash[0] = (double)(hash >> 32);
    d->saved_hash[1] = d->hash[1] = (double)(hash & UINT32_MAX);
}

// ---- eval.sets, eval.tasks

static void add_set(Run *run, const char *name, const char *path)
{
    RunData *d = &run->data;
    d->set = realloc(d->set, (d->n_sets + 1) * sizeof *d->set);
    char *copy = strdup(name);
    if (!d->set || !copy) die("run: no memory for validation set %s", name);
    RunSet set = {copy, dataset_open(path, d->vocab)};
    if (dataset_tokens(set.tokens) < 2)
        die("eval.sets: %s: %lld tokens, 2 are the least", path, (long long)dataset_tokens(set.tokens));
    same_on_all(&run->replicas, dataset_hash(set.tokens), path, "other tokens");
    d->set[d->n_sets++] = set;
}

static void add_task(Run *run, const char *name, const char *path)
{
    RunData *d = &run->data;
    const Config *cfg = &run->cfg;
    char text[2 * CONFIG_TEXT + 100];
    if ((size_t)snprintf(text, sizeof text, "%s=%s", name, path) >= sizeof text)
        die("eval.tasks: %s: a longer path than can be used", path);
    d->task = realloc(d->task, (d->n_tasks + 1) * sizeof *d->task);
    if (!d->task) die("run: no memory for task %s", name);
    Tasks *t = tasks_open(text, (TasksOptions){.limit = (size_t)cfg->eval.tasks_limit});
    same_on_all(&run->replicas, t->hash, path, "other items");
    tasks_encode(t, d->tokenizer, (size_t)cfg->model.vocab, (size_t)cfg->model.context, false);
    d->task[d->n_tasks++] = t;
}

// NAME=PATH,NAME=PATH, or the sources of a *.toml.
static void each_of(Run *run, const char *key, const char *value, void (*add)(Run *, const char *, const char *))
{
    char list[CONFIG_TEXT], *rest = list;
    size_t n = strlen(value);
    if (n > 5 && !strcmp(value + n - 5, ".toml") && !strpbrk(value, "=,")) {
        Sources sources = sources_read(value);
        for (size_t i = 0; i < sources.n; i++) add(run, sources.source[i].name, sources.source[i].path);
        sources_free(&sources);
        return;
    }
    snprintf(list, sizeof list, "%s", value);
    for (char *word; (word = strsep(&rest, ",")) && *value;) {
        char *equals = strchr(word, '=');
        if (!equals || equals == word || !equals[1])
            die("%s: '%s' is not NAME=PATH (try --%s=web=web.bin,books=books.bin or a *.toml)", key, word, key);
        *equals = 0;
        add(run, word, equals + 1);
    }
}

// Reads the tokenizer, and returns its hash. A run that writes and reads no text can do without: tokens are then
// numbers below model.vocab, and losses have no bits per byte.
static uint64_t open_tokenizer(Run *run)
{
    Config *cfg = &run->cfg;
    bool none = !cfg->data.tokenizer[0];
    run->data.vocab = (int)cfg->model.vocab;
    if (!cfg->data.train[0] || !cfg->data.val[0] || (none && !cfg->model.vocab))
        die("data.train, data.val and data.tokenizer: all three are needed (make them with build/prepare, "
            "or try: make run)");
    bool broken = cfg->data.max_broken < 1;
    bool turns = cfg->data.loss == CONFIG_LOSS_ASSISTANT;
    if (none && (cfg->sample.count || cfg->eval.tasks[0] || cfg->data.document_mask || broken || turns))
        die("data.tokenizer is empty, and %s needs it (name its folder%s)",
            cfg->sample.count ? "sample.count" : cfg->eval.tasks[0] ? "eval.tasks"
            : cfg->data.document_mask ? "data.document_mask" : turns ? "data.loss" : "data.max_broken",
            cfg->sample.count ? ", or try --sample.count=0" : "");
    if (none) return 0;
    run->data.tokenizer = tokenizer_load(cfg->data.tokenizer);
    uint64_t hash = tokenizer_hash(run->data.tokenizer);
    same_on_all(&run->replicas, hash, cfg->data.tokenizer, "another tokenizer");
    int vocab = run->data.vocab = tokenizer_vocab_size(run->data.tokenizer);
    if (!cfg->model.vocab) {
        config_set_derived(cfg, "model.vocab", vocab);
        config_resolve(cfg);
    }
    if (cfg->data.document_mask && tokenizer_eot(run->data.tokenizer) < 0)
        die("data.document_mask: the tokenizer in %s has no <|endoftext|>, which is where documents start",
            cfg->data.tokenizer);
    if (cfg->model.vocab < vocab)
        die("model.vocab = %ld: the tokenizer has %d tokens (try --model.vocab=0)", cfg->model.vocab, vocab);
    run->data.token_bytes = calloc((size_t)cfg->model.vocab, sizeof *run->data.token_bytes);
    if (!run->data.token_bytes) die("run: no memory for %ld token lengths", cfg->model.vocab);
    for (int i = 0; i < vocab; i++) run->data.token_bytes[i] = (int32_t)tokenizer_text_bytes(run->data.tokenizer, i);
    return hash;
}

static void count_turns(RunData *d, const Config *cfg)
{
    Chat *chat = chat_open(d->tokenizer, NULL, cfg->data.tokenizer);
    dataset_turns(d->train, chat);
    dataset_turns(d->val, chat);
    chat_free(chat);
}

void run_open_data(Run *run)
{
    const Config *cfg = &run->cfg;
    if (run->replicas.rank == 0) doing("reading the data");
    uint64_t tokenizer = open_tokenizer(run);
    int vocab = run->data.vocab;
    run->data.train = dataset_open(cfg->data.train, vocab);
    same_on_all(&run->replicas, dataset_hash(run->data.train), cfg->data.train, "other tokens");
    if (cfg->data.packing == CONFIG_PACKING_BEST_FIT)
        dataset_pack(run->data.train, (int)cfg->model.context, tokenizer_eot(run->data.tokenizer));
    run->data.val = dataset_open(cfg->data.val, vocab);
    same_on_all(&run->replicas, dataset_hash(run->data.val), cfg->data.val, "other tokens");
    if (cfg->data.max_repeat < 1 || cfg->data.max_broken < 1)
        run->data.screen = screen_new(cfg->data.max_repeat, cfg->data.max_broken, (size_t)cfg->model.context,
                                      run->data.tokenizer);
    if (cfg->data.loss == CONFIG_LOSS_ASSISTANT) count_turns(&run->data, cfg);
    hash_data(&run->data, cfg, tokenizer);
    if (dataset_windows(run->data.train, (int)cfg->model.context) < 1)
        die("%s: %lld tokens are fewer than model.context + 1 = %ld", cfg->data.train,
            (long long)dataset_tokens(run->data.train), cfg->model.context + 1);
    each_of(run, "eval.sets", cfg->eval.sets, add_set);
    each_of(run, "eval.tasks", cfg->eval.tasks, add_task);
    read_floor(&run->data, cfg->data.floor);
}

void run_close_data(Run *run)
{
    for (size_t i = 0; i < run->data.n_sets; i++) {
        free(run->data.set[i].name);
        dataset_close(run->data.set[i].tokens);
    }
    for (size_t i = 0; i < run->data.n_tasks; i++) tasks_free(run->data.task[i]);
    free(run->data.set);
    free(run->data.task);
    free(run->data.token_bytes);
    if (run->data.screen) screen_free(run->data.screen);
    dataset_close(run->data.train);
    dataset_close(run->data.val);
    tokenizer_free(run->data.tokenizer);
}

// ---- the sequences of a step

RampStep run_samples(const Run *run, long step)
{
    RampStep batch = schedule_ramp_at(&run->ramp, step);
    batch.before += (int64_t)run->saves.guard[RUN_SKIPPED];
    return batch;
}

int64_t run_tokens(const Run *run, long step)
{
    return schedule_ramp_at(&run->ramp, step).before * run->cfg.model.context;
}

// How many sequences of a step are this process'; *sample: the global index of the first one.
static size_t share_of(const Run *run, RampStep batch, int64_t *sample)
{
    size_t first, n = replicas_share(&run->replicas, (size_t)batch.sequences, &first);
    *sample = batch.before + (int64_t)first;
    return n;
}

static void load_sample(Run *run, int64_t sample, size_t at)
{
    const Config *cfg = &run->cfg;
    RunData *d = &run->data;
    uint64_t seed = (uint64_t)cfg->run.seed;
    int32_t *token = d->token + at, *target = d->target + at;
    if (cfg->data.packing == CONFIG_PACKING_BEST_FIT)
        dataset_row(d->train, sample, seed, cfg->data.shuffle, token, target, d->pos + at, d->first + at);
    else dataset_window(d->train, sample, (int)cfg->model.context, seed, cfg->data.shuffle, token, target);
    for (const Observer *o = run->observer; o < run->observer + run->n_observers; o++)
        if (o->sample) o->sample(o->self, run, sample, token, target);
}

Micro run_micro(const Run *run, long step, int64_t row)
{
    const Config *cfg = &run->cfg;
    const RunData *d = &run->data;
    size_t T = (size_t)cfg->model.context, B = (size_t)cfg->batch.micro, at = (size_t)row * T;
    return (Micro){.token = d->token + at, .target = d->target + at, .pos = d->pos ? d->pos + at : NULL,
                   .first = d->first ? d->first + at : NULL, .B = B, .T = T,
                   .dropout = (float)cfg->model.dropout, .seed = (uint64_t)cfg->run.seed, .step = (uint32_t)step,
                   .sample = (uint64_t)(d->sample + row),
                   .each = run->scales.scaler.scale / (float)run_samples(run, step).sequences};
}

// The samples of a step, and how many targets of them count.
static size_t load_samples(Run *run, RampStep batch, RampStep next, size_t *rows)
{
    const Config *cfg = &run->cfg;
    RunData *d = &run->data;
    int64_t screened = 0, ahead;
    size_t T = (size_t)cfg->model.context, counted = 0, next_rows = share_of(run, next, &ahead);
    *rows = share_of(run, batch, &d->sample);
    for (size_t i = 0; i < *rows; i++) load_sample(run, d->sample + (int64_t)i, i * T);
    for (size_t i = 0; i < next_rows; i++)
        dataset_ahead(d->train, ahead + (int64_t)i, (int)T, (uint64_t)cfg->run.seed, cfg->data.shuffle);
    if (d->first && cfg->data.packing == CONFIG_PACKING_CUT)
        packing_positions(d->token, *rows, T, tokenizer_eot(d->tokenizer), d->pos, d->first, d->target);
    for (size_t i = 0; i < *rows && d->screen; i++)
        screened += (int64_t)screen_sequence(d->screen, d->token + i * T, T, d->target + i * T);
    for (size_t i = 0; i < *rows * T; i++) counted += d->target[i] >= 0;
    size_t valid = (size_t)replicas_sum_targets(&run->replicas, (int64_t)counted);
    if (!d->screen) return valid;
    d->screened = (size_t)replicas_sum_targets(&run->replicas, screened);
    d->screened_all += (int64_t)d->screened;
    d->targets_all += (int64_t)(valid + d->screened);
    return valid;
}

int64_t run_load_step(Run *run, long step, size_t *valid)
{
    const RunData *d = &run->data;
    int64_t windows = dataset_windows(d->train, (int)run->cfg.model.context);
    size_t rows;
    for (int64_t passed = 0;; passed++) {
        RampStep batch = run_samples(run, step);
        *valid = load_samples(run, batch, run_samples(run, step + 1), &rows);
        if (*valid) return (int64_t)rows;
        if (passed * batch.sequences > windows) // a whole epoch
            die("data.train: no target counts in %lld batches after sample %lld (data.max_repeat, data.max_broken: "
                "try higher ones; data.loss=assistant: are there conversations?)", (long long)passed + 1, (long long)(batch.before - passed * batch.sequences));
        run->saves.guard[RUN_SKIPPED] += (double)batch.sequences;
        if (run->begun && !passed)
            progress_note(run->progress, "step %ld: no target of samples %lld to %lld counts (data.max_repeat, "
                          "data.max_broken took %zu): goes on after them", step + 1, (long long)batch.before,
                          (long long)(batch.before + batch.sequences - 1), d->screened);
    }
}
