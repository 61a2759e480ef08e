// eval: how well a trained model predicts texts: loss, perplexity and bits per byte, one row for each set.
//
//   build/eval runs/stories                                         the run's own validation set
//   build/eval runs/stories 'other/val_*.bin' book.txt lines.jsonl  token shards; text, JSONL, packed, folders
//   build/eval runs/stories mix.toml --stride 64 --json             each source of a mixture
//   build/eval runs/stories --task hellaswag.jsonl --task val.bin   benchmark tasks: accuracies
//
// The figures are those of a run: without options the run's own set gives what its last evaluation in fp32 wrote.
// Text becomes tokens as build/prepare makes them: the token that a text starts with (of a run: end-of-text), then the
// document. They are held in memory, and in a file without a name.
#include "base/check.h"
#include "base/disk.h"
#include "base/clock.h"
#include "tools/options.h"
#include "data/prep/corpus.h"
#include "models/trained.h"
#include "ops/dev_cpu.h"
#include "eval/eval.h"
#include "eval/tasks.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *tokenizer_dir, *items_path;
static size_t tokens, stride, batch, context, threads;
static bool json, bare;
static int status; // CORPUS_LOST where a text lost many of its documents
static OptionList task_list;
static TasksOptions task_options;

static Option options[] = {
    OPTION(SIZE, "--tokens", "N", "of a set, the first; 0: all [of the run]", &tokens, .most = 1e15),
    OPTION(SIZE, "--stride", "N", "from one window to the next; 0: no overlap [of the run]", &stride, .most = 1e9),
    OPTION(SIZE, "--batch", "N", "windows at a time [of the run]", &batch, .least = 1, .most = 1e6),
    OPTION(SIZE, "--context", "N", "tokens of a window, at most [of the model]", &context, .least = 2, .most = 1e9),
    OPTION(TEXT, "--tokenizer", "DIR", "the tokenizer's folder [of the run]", &tokenizer_dir),
    OPTION(SIZE, "--threads", "N", "0: one a core [0]", &threads, .most = 1024),
    OPTION(SWITCH, "--json", NULL, "a line of JSON for each set or task", &json),
    OPTION_HEAD("tasks"),
    OPTION(LIST, "--task", "FILE", "of HellaSwag, PIQA, ARC, ...; may be repeated. NAME=FILE names its format",
           &task_list),
    OPTION(SIZE, "--limit", "N", "items of a task, the first; 0: all [0]", &task_options.limit, .most = 1e9),
    OPTION(SIZE, "--shots", "N", "solved items before each [0]", &task_options.shots, .most = 1000),
    OPTION(TEXT, "--shots-from", "FILE", "their file, the first ones of it", &task_options.from),
    OPTION(SWITCH, "--bare", NULL, "nothing before an item but a BOS token that the tokenizer itself adds", &bare),
    OPTION(TEXT, "--items", "FILE", "write the log-likelihoods of every item", &items_path),
};
static OptionSet set = {.program = "eval", .row = options, .n = sizeof options / sizeof *options, .usage =
    "usage: eval MODEL [SET]... [--option VALUE]...\n"
    "MODEL: a run, a checkpoint, a folder of Transformers, a GGUF file, or a model file of llm.c.\n"
    "SET: token shards (*.bin; a pattern is quoted), a mixture (*.toml), or text: a file, JSONL, a folder,\n"
    "- (standard input). Without one, and without --task: the run's validation set. Exit status 3: a text has no\n"
    "document, or lost more than a tenth of them.\n\n"};

// What every set is measured with.
typedef struct {
    Trained *model;
    int32_t *token_bytes;
    Tasks **task; // (task_list.n)
} Judge;

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end);
}

static void print_head(void)
{
    if (!json)
        printf("%12s %12s %11s %7s %11s %10s  %s\n", "tokens", "bytes", "nats/token", "+-", "perplexity", "bits/byte",
               "set");
}

// Of numbers that JSON can say.
static void put(json_t *row, const char *name, const char *more, double x)
{
    char key[40];
    snprintf(key, sizeof key, "%s%s", name, more);
    if (isfinite(x)) json_object_set_new(row, key, json_real(x));
}

static void print_line(json_t *row, const char *name) // takes row
{
    char *line = row ? json_dumps(row, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (!line) die("eval: %s: cannot be written as JSON (a name that is not UTF-8?)", name);
    puts(line);
    free(line);
    json_decref(row);
}

// first: the token that begins a document.
static void measure(Judge *j, const char *name, Dataset *ds, int32_t first)
{
    const Config *cfg = &j->model->cfg;
    const Model *m = j->model->model;
    int32_t eot = cfg->data.document_mask ? first : -1;
    if (dataset_tokens(ds) < 2) die("%s: %lld tokens, 2 are the least", name, (long long)dataset_tokens(ds));
    doing(name);
    EvalResult r = eval_run(j->model->model, ds, (int64_t)tokens, (int64_t)stride, 1, m->max_batch, m->max_tokens,
                            j->token_bytes, eot, NULL);
    dataset_close(ds);
    doing(NULL);
    if (!isfinite(r.loss)) die("%s: the loss is not finite (are the weights of %s?)", name, j->model->dir);
    if (json) {
        json_t *row = json_pack("{s:s, s:I, s:I}", "set", name, "tokens", (json_int_t)r.tokens, "bytes",
                                (json_int_t)r.bytes);
        put(row, "loss", "", r.loss);
        put(row, "perplexity", "", exp(r.loss));
        put(row, "bpb", "", r.bpb);
        put(row, "loss", "_stderr", r.error);
        put(row, "perplexity", "_stderr", exp(r.loss) * r.error);
        print_line(row, name);
    } else {
        char error[20] = "-";
        if (isfinite(r.error)) snprintf(error, sizeof error, "%.4f", r.error);
        printf("%12lld %12lld %11.4f %7s %11.4g %10.4f  %s\n", (long long)r.tokens, (long long)r.bytes, r.loss, error,
               exp(r.loss), r.bpb, name);
    }
    fflush(stdout);
}

// The tokens of a text's documents, each after the token `first`.
static TokenIds encode(const Judge *j, const char *path, int32_t first)
{
    Tokenizer *t = j->model->tokenizer;
    CorpusReader *reader = corpus_open(&path, 1, (CorpusOptions){.separator = TOKENIZER_EOT, .log = stderr});
    TokenIds ids = {0};
    CorpusRecord doc;
    while (corpus_next(reader, &doc)) {
        token_ids_push(&ids, first);
        tokenizer_encode(t, doc.text, doc.n_bytes, &ids);
    }
    CorpusCounts counts = corpus_counts(reader);
    status |= corpus_judge(&counts, path);
    corpus_close(reader);
    return ids;
}

// A shard that has no name any more once it is open.
static Dataset *open_tokens(const Judge *j, const TokenIds *ids)
{
    const char *tmp = getenv("TMPDIR");
    char folder[512], shard[540];
    int vocab = (int)j->model->model->shape.vocab;
    if ((size_t)snprintf(folder, sizeof folder, "%s/eval.XXXXXX", tmp && *tmp ? tmp : "/tmp") >= sizeof folder ||
        !mkdtemp(folder)) die("eval: %s: cannot make a folder for tokens: %s (try another TMPDIR)", folder,
                              strerror(errno));
    snprintf(shard, sizeof shard, "%s/tokens.bin", folder);
    DatasetWriter *w = dataset_writer_open(shard, vocab, DATASET_AUTO);
    dataset_writer_append(w, ids->id, ids->n);
    dataset_writer_finish(w);
    Dataset *ds = dataset_open(shard, vocab);
    unlink(shard);
    rmdir(folder);
    return ds;
}

static void measure_set(Judge *j, const char *name)
{
    Tokenizer *t = j->model->tokenizer;
    const Config *cfg = &j->model->cfg;
    int vocab = (int)j->model->model->shape.vocab;
    if (ends_with(name, ".toml")) {
        Sources sources = sources_read(name);
        for (size_t i = 0; i < sources.n; i++)
            measure(j, sources.source[i].name, dataset_open(sources.source[i].path, vocab), tokenizer_eot(t));
        sources_free(&sources);
    } else if (ends_with(name, ".bin")) {
        Dataset *ds = dataset_open(name, vocab);
        if (cfg->data.loss == CONFIG_LOSS_ASSISTANT && !strcmp(name, cfg->data.val)) { // as the run measures it
            Chat *chat = chat_open(t, NULL, cfg->data.tokenizer);
            dataset_turns(ds, chat);
            chat_free(chat);
        }
        measure(j, name, ds, tokenizer_eot(t));
    } else {
        int32_t first = tokenizer_bos(t) >= 0 ? tokenizer_bos(t) : tokenizer_need_eot(t, "eval: the tokenizer");
        TokenIds ids = encode(j, name, first);
        measure(j, name, open_tokens(j, &ids), first);
        token_ids_free(&ids);
    }
}

// ---- tasks

static void print_tasks_head(void)
{
    if (json) return;
    printf("%8s %7s %7s", "items", "acc", "+-");
    for (int rule = 1; rule < TASKS_RULES; rule++) printf(" %10s", tasks_rule_name((TasksRule)rule));
    printf(" %8s %11s %8s  %s\n", "centred", "perplexity", "+-", "task");
}

static void print_number(int width, const char *fmt, double x)
{
    if (isnan(x)) printf(" %*s", width, "-");
    else printf(fmt, width, x);
}

// error: the standard error of acc.
static void print_row(const TasksResult *r, double error, const char *name, const char *part)
{
    printf("%8zu", r->items);
    print_number(7, " %*.4f", r->acc[TASKS_SUM]);
    print_number(7, " %*.4f", error);
    for (int rule = 1; rule < TASKS_RULES; rule++) print_number(10, " %*.4f", r->acc[rule]);
    print_number(8, " %*.4f", r->centred);
    print_number(11, " %*.4g", r->perplexity);
    print_number(8, " %*.2g", r->perplexity_error);
    printf("  %s%s%s\n", name, *part ? ": " : "", part);
}

static void print_task(const Tasks *t, const TasksResult *r, const TasksSubject *subject, size_t subjects)
{
    print_row(r, tasks_stderr(r, TASKS_SUM), t->name, "");
    if (subjects) {
        TasksResult mean = {.items = r->items, .centred = NAN, .perplexity = NAN,
                            .perplexity_error = NAN};
        double error[TASKS_RULES];
        for (int rule = 0; rule < TASKS_RULES; rule++)
            mean.acc[rule] = tasks_macro(subject, subjects, (TasksRule)rule, &error[rule]);
        print_row(&mean, error[TASKS_SUM], t->name, "mean of subjects");
    }
    for (size_t s = 0; s < subjects; s++)
        print_row(&subject[s].result, tasks_stderr(&subject[s].result, TASKS_SUM), t->name, subject[s].name);
    if (r->cut)
        fprintf(stderr, "%s: %zu endings with their contexts are longer than --context, and lost their beginning\n",
                t->name, r->cut);
}

static json_t *json_row(const Tasks *t, const TasksResult *r)
{
    json_t *row = json_pack("{s:s, s:I, s:I}", "task", t->name, "items", (json_int_t)r->items, "cut",
                            (json_int_t)r->cut);
    for (int rule = 0; rule < TASKS_RULES; rule++) {
        put(row, tasks_rule_name((TasksRule)rule), "", r->acc[rule]);
        put(row, tasks_rule_name((TasksRule)rule), "_stderr", tasks_stderr(r, (TasksRule)rule));
    }
    put(row, "chance", "", r->chance);
    put(row, "centred", "", r->centred);
    put(row, "perplexity", "", r->perplexity);
    put(row, "perplexity", "_stderr", r->perplexity_error);
    return row;
}

static void print_task_json(const Tasks *t, const TasksResult *r, const TasksSubject *subject, size_t subjects)
{
    json_t *row = json_row(t, r);
    for (int rule = 0; rule < TASKS_RULES && subjects; rule++) {
        double error, mean = tasks_macro(subject, subjects, (TasksRule)rule, &error);
        put(row, tasks_rule_name((TasksRule)rule), "_macro", mean);
        put(row, tasks_rule_name((TasksRule)rule), "_macro_stderr", error);
    }
    print_line(row, t->name);
    for (size_t s = 0; s < subjects; s++) {
        row = json_row(t, &subject[s].result);
        json_object_set_new(row, "subject", json_string(subject[s].name));
        print_line(row, t->name);
    }
}

// All of them before anything is measured: what is wrong with a file shows at once.
static void open_tasks(Judge *j)
{
    const Model *m = j->model->model;
    j->task = calloc(task_list.n + 1, sizeof *j->task);
    if (!j->task) die("eval: no memory for %zu tasks", task_list.n);
    for (size_t i = 0; i < task_list.n; i++) {
        j->task[i] = tasks_open(task_list.word[i], task_options);
        tasks_encode(j->task[i], j->model->tokenizer, m->shape.vocab, m->max_tokens, bare);
    }
}

// Training records what a broken model scores; a judgement of it would be of no use.
static void check_finite(const Judge *j, const Tasks *t)
{
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->item[i].n; k++)
            if (!isfinite(t->item[i].choice[k].loglik))
                die("%s:%d: choice %zu: its log-likelihood is not finite (are the weights of %s?)", t->path,
                    t->item[i].line, k + 1, j->model->dir);
}

static void measure_tasks(const Judge *j)
{
    Model *m = j->model->model;
    if (!task_list.n) return;
    KvCache cache = model_cache_for(m, m->max_tokens);
    DiskOut *items = items_path ? disk_out_open(items_path) : NULL;
    print_tasks_head();
    for (size_t i = 0; i < task_list.n; i++) {
        Tasks *t = j->task[i];
        tasks_run(t, m, NULL, (SampleForward){0}, &cache);
        check_finite(j, t);
        TasksResult r = tasks_result(t);
        TasksSubject *subject;
        size_t subjects = tasks_subjects(t, &subject);
        if (json) print_task_json(t, &r, subject, subjects);
        else print_task(t, &r, subject, subjects);
        free(subject);
        fflush(stdout);
        if (items) tasks_write_items(t, items->f);
        tasks_free(t);
    }
    if (items) disk_out_commit(items);
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    size_t n = options_read(&set, argc, argv);
    if (!n) die_usage("usage: eval MODEL [SET]... (try --help)");
    dev_cpu_blas_room((int)threads, false);
    Judge j = {.model = trained_open(argv[1], (TrainedOptions){tokenizer_dir, batch, context, (int)threads, 0})};
    trained_tokenizer(j.model);
    const Config *cfg = &j.model->cfg;
    if (!options_given(&set, "--tokens")) tokens = (size_t)cfg->eval.tokens;
    if (!options_given(&set, "--stride")) stride = (size_t)cfg->eval.stride;
    size_t V = j.model->model->shape.vocab, known = (size_t)tokenizer_vocab_size(j.model->tokenizer);
    j.token_bytes = calloc(V, sizeof *j.token_bytes);
    if (!j.token_bytes) die("eval: no memory for %zu token lengths", V);
    for (size_t i = 0; i < known; i++)
        j.token_bytes[i] = (int32_t)tokenizer_text_bytes(j.model->tokenizer, (int32_t)i);
    open_tasks(&j);
    bool own = n == 1 && !task_list.n;
    if (own || n > 1) print_head();
    for (size_t i = 2; i <= n; i++) measure_set(&j, argv[i]);
    if (own && !*cfg->data.val) die("%s: names no validation set (try: build/eval MODEL SET...)", argv[1]);
    if (own) measure_set(&j, cfg->data.val);
    measure_tasks(&j);
    free(j.task);
    free(task_list.word);
    free(j.token_bytes);
    trained_close(j.model);
    return status;
}
