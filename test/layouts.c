// layouts: build/train itself on the layouts of a table (layouts.tsv), its ranks as threads of one process, and the
// verdicts on each of them.
//
//   build/test/layouts TABLE core|long DATA WORK [WORD]     rows of the core, or all; with WORD in their name
//
// A row's layout runs three times. Deterministic, for two updates: the bits are those of the row's `one`, a run of the
// same recipe (b: weights, optimizer's state, scales, losses, norms, evaluation, samples, dumped activations and
// gradients), and every rank holds what build/plan says (m). Resumed for a third update, from what the row above wrote
// on its layout: again the bits (r). And not deterministic: what is held, and what is sent by group and kind, is
// the plan's to the byte (m, t); the run's own formulas hold (f); losses and norms are those of `one` but for rounding
// (c). A row names in its third column which of these letters do not apply. Rows `refused` must end with one line. Rows
// `any`: the deterministic run has the bits, or is refused in one line before anything is saved.
//
// Each row is a process of its own (fork), so that one that dies or hangs is one failure. What this cannot show is
// what processes, MPI, signals and launchers do: test_parallel.sh.
#define _GNU_SOURCE // nftw, vasprintf
#define main train_main
#include "train.c"
#undef main

#include "dev/check/comm_threads.h"
#include "dev/check/diff.h"
#include "dev/plan/plan.h"
#include "dev/plan/plan_show.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 96, LAST = 3, HANG = 600 }; // settings of a run; its updates; seconds that a row may take

typedef struct {
    int n;
    char *word[WORDS];
} Settings;

typedef struct {
    char kind[8], without[16];
    int line, ranks, above; // above: the line whose run this row resumes
    char *settings, *says;  // says: of a row that is refused
} Row;

static Settings all, family, one; // settings of every run, of a family, and of the rows below a line `one`
static const char *work, *data;
static FILE *why;              // a row's complaints

__attribute__((format(printf, 1, 2))) static void wrong(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(why, "  ");
    vfprintf(why, fmt, args);
    fprintf(why, "\n");
    va_end(args);
}

// Text that stays to the end: no leak.
static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *fmt, ...)
{
    static struct Kept { char *text; struct Kept *next; } *all_kept;
    struct Kept *kept = malloc(sizeof *kept);
    va_list args;
    va_start(args, fmt);
    if (!kept || vasprintf(&kept->text, fmt, args) < 0) die("layouts: no memory");
    va_end(args);
    kept->next = all_kept, all_kept = kept;
    return kept->text;
}

static void add_word(Settings *words, char *word)
{
    if (words->n + 1 == WORDS) die("layouts: more than %d settings", WORDS);
    words->word[words->n++] = word;
}

static void add(Settings *words, const char *settings) // "section.key=value section.key=@/file of DATA ..."
{
    char *copy = strdup(settings), *rest;
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) {
        char *file = strstr(w, "@/");
        if (file) add_word(words, format("--%.*s%s%s", (int)(file - w), w, data, file + 1));
        else add_word(words, format("--%s", w));
    }
    free(copy);
}

static const char *value_of(const Settings *words, const char *key) // "" where it is not set
{
    const char *value = "";
    size_t n = strlen(key);
    for (int i = 1; i < words->n; i++)
        if (!strncmp(words->word[i] + 2, key, n) && words->word[i][2 + n] == '=') value = words->word[i] + 3 + n;
    return value;
}

static bool is_narrow(const Settings *words) // numbers of 16 bits
{
    const char *type = value_of(words, "numerics.dtype");
    return *type && !strstr(type, "32");
}

static Settings settings_of(const Row *row)
{
    Settings w = {1, {"train"}};
    const Settings *from[] = {&all, &family, &one};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < from[i]->n; k++) add_word(&w, from[i]->word[k]);
    add(&w, row->settings);
    return w;
}

// ---- a run

typedef struct {
    Settings words;
    atomic_int failed;
} Job;

static void play(Comm *world, void *arg)
{
    Job *job = arg;
    if (train(world, job->words.n, job->words.word)) job->failed = 1;
}

static void run_on(int ranks, Settings words, const char *name, const char *more)
{
    Job job = {.words = words};
    add(&job.words, more);
    add_word(&job.words, format("--run.name=%s", name));
    if (ranks > 1) {
        comm_threads_run(ranks, play, &job);
    } else {
        Comm *world = comm_self();
        play(world, &job);
        comm_free(world);
    }
    if (job.failed) wrong("%s: exit status 1", name);
}

// ---- bits

static char *path_of(const char *run, const char *file)
{
    return format("%s/runs/%s/%s", work, run, file);
}

static char *checkpoint(const char *run, int step)
{
    return format("%s/runs/%s/checkpoints/step_%08d", work, run, step);
}

static bool same_tensor(const SafeTensor *a, const SafeTensor *b)
{
    return a->dtype == b->dtype && a->n_bytes == b->n_bytes && !memcmp(a->data, b->data, a->n_bytes);
}

static json_t *json_of(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json) wrong("%s: %s", path, error.text);
    return json;
}

static void same_state(const char *run, const char *other, int step)
{
    char error[CKPT_ERROR];
    Ckpt *a = ckpt_open(checkpoint(run, step), true, error, sizeof error), *b = NULL;
    if (a) b = ckpt_open(checkpoint(other, step), true, error, sizeof error);
    if (!b) {
        wrong("step %d: %s", step, error);
        return;
    }
    if (a->n != b->n || a->n_model != b->n_model) wrong("step %d: %d tensors, not %d", step, a->n, b->n);
    int n = 0;
    for (int i = 0; i < a->n && i < b->n; i++)
        if (strcmp(a->tensor[i]->name, b->tensor[i]->name) || !same_tensor(a->tensor[i], b->tensor[i])) {
            if (!n++) wrong("step %d: %s has other bits", step, b->tensor[i]->name);
        }
    json_t *x = json_of(format("%s/manifest.json", checkpoint(run, step))),
           *y = json_of(format("%s/manifest.json", checkpoint(other, step)));
    if (!json_equal(json_object_get(x, "extra"), json_object_get(y, "extra")))
        wrong("step %d: other scales, windows or loads", step);
    json_decref(x), json_decref(y);
    ckpt_close(a), ckpt_close(b);
}

static void same_dump(const char *run, const char *other)
{
    DiffSide a = diff_side_open(path_of(run, "dump/step_00000002")),
             b = diff_side_open(path_of(other, "dump/step_00000002"));
    int n = 0;
    if (a.n_absent) wrong("the dump: %d ranks have none", a.n_absent);
    for (int i = 0; i < b.n; i++) {
        const DiffTensor *y = &b.tensor[i], *x = diff_side_find(&a, y->t.name);
        if (!x && strstr(y->t.name, ".experts_")) continue; // slots are in another order where ranks divide experts
        if ((!x || x->n_missing || x->disagrees || !same_tensor(&x->t, &y->t)) && !n++)
            wrong("the dump: %s %s", y->t.name, x ? "has other bits" : "is not there");
    }
    if (a.before != b.before) wrong("the dump: another state before the update");
    if (a.n > b.n || !a.n) wrong("the dump: %d tensors, not %d", a.n, b.n);
    diff_side_close(&a), diff_side_close(&b);
}

// The lines of an event about a step in metrics.jsonl, without what depends on the clock: a list.
static json_t *metrics(const char *run, const char *event, int step)
{
    static const char *const measured[] = {"dt_ms", "tok_s", "mfu", "samples_s", "data_ms", "forward_ms", "backward_ms",
                                           "comm_ms", "optim_ms", "save_ms", "eval_ms", "t", "seconds", "event"};
    char line[8192];
    FILE *f = fopen(path_of(run, "metrics.jsonl"), "r");
    json_t *found = json_array();
    while (f && fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, NULL);
        const char *is = json_string_value(json_object_get(row, "event"));
        bool wanted = is && !strcmp(is, event) && json_integer_value(json_object_get(row, "step")) == step;
        for (size_t i = 0; wanted && i < sizeof measured / sizeof *measured; i++) json_object_del(row, measured[i]);
        if (wanted) json_array_append(found, row);
        json_decref(row);
    }
    if (f) fclose(f);
    return found;
}

// What a line of the same event lacks, or has otherwise; of another event, only the latter.
static void same_line(const json_t *x, json_t *y, const char *event, bool all_keys, int step)
{
    const char *key;
    json_t *value;
    json_object_foreach(y, key, value) {
        json_t *own = json_object_get(x, key);
        if (own ? !json_equal(own, value) : all_keys)
            wrong("step %d: %s %s is %s, not %s", step, event, key, json_dumps(own, JSON_ENCODE_ANY),
                  json_dumps(value, JSON_ENCODE_ANY));
    }
}

static void same_lines(const char *run, const char *event, const char *other, const char *its_event, int step)
{
    json_t *x = metrics(run, event, step), *y = metrics(other, its_event, step);
    size_t n = json_array_size(y);
    if (json_array_size(x) != n || (!n && strcmp(event, "experts")))
        wrong("step %d: %zu lines %s in the metrics, not %zu", step, json_array_size(x), event, n);
    for (size_t i = 0; i < n && i < json_array_size(x); i++)
        same_line(json_array_get(x, i), json_array_get(y, i), event, !strcmp(event, its_event), step);
    json_decref(x), json_decref(y);
}

// Of a file that both have; whole: to its end.
static void same_text(const char *run, const char *other, const char *file, bool whole)
{
    size_t n = 0, m = 0;
    char *a = disk_read_file(path_of(run, file), &n, 1 << 20), *b = disk_read_file(path_of(other, file), &m, 1 << 20);
    if (b && (!a || !n || (whole ? n != m : n > m) || memcmp(a, b, n))) wrong("another %s", file);
    free(a), free(b);
}

// Everything that a run writes for people, up to a step.
static void same_reports(const char *run, const char *other, const Settings *words, int step)
{
    for (int i = 1; i <= step; i++) same_lines(run, "train", other, "train", i);
    same_lines(run, "end", other, step < LAST ? "val" : "end", step);
    same_lines(run, "experts", other, "experts", step);
    same_text(run, other, "samples.txt", step == LAST);
    if (strcmp(value_of(words, "run.norms_every"), "0")) same_text(run, other, "norms.csv", step == LAST);
}

static void same_bits(const char *run, const char *other, const Settings *words)
{
    same_state(run, other, 2);
    same_dump(run, other);
    same_reports(run, other, words, 2);
}

// ---- what is held and sent

static Config *planned_config(Settings words, int ranks)
{
    Config *cfg = calloc(1, sizeof *cfg);
    if (!cfg) die("layouts: no memory");
    config_defaults(cfg);
    config_set_derived(cfg, "parallel.ranks", ranks);
    config_parse(cfg, words.n, words.word);
    config_resolve(cfg);
    plan_vocab(cfg);
    return cfg;
}

static void as_planned(const char *run, Settings words, int ranks)
{
    static Run plan; // large
    Config *cfg = planned_config(words, ranks);
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    json_t *account = json_of(path_of(run, "account.json")), *held = json_object_get(account, "memory");
    if ((int)json_object_size(held) != ranks) wrong("%s: account.json has %zu ranks", run, json_object_size(held));
    for (int r = 0; r < ranks; r++) {
        plan_open(&plan, cfg, dev, r);
        AccountRank rank = account_rank(&plan.mem, NULL, NULL);
        json_t *own = json_object_get(held, format("%d", r));
        for (int tag = 0; tag <= MEM_TAGS + 1; tag++) {
            const char *name = tag < MEM_TAGS ? mem_tag_name((MemTag)tag) : tag == MEM_TAGS ? "total" : "peak";
            size_t want = tag < MEM_TAGS ? rank.bytes[tag] : tag == MEM_TAGS ? rank.total : rank.peak;
            long long got = json_object_get(own, name) ? json_integer_value(json_object_get(own, name)) : -1;
            if (got != (long long)want)
                wrong("%s: rank %d holds %lld bytes of %s, planned %zu", run, r, got, name, want);
            if (tag < MEM_TAGS) plan_checked(&plan, (MemTag)tag);
        }
        plan_close(&plan);
    }
    json_decref(account);
    run_device_free(dev, cpu);
    free(cfg);
}

// Bytes by "GROUP KIND", over the ranks.
typedef struct {
    int n;
    struct { char name[32]; double planned, counted; } flow[64];
} Traffic;

static void sent(Traffic *t, const char *group, const char *kind, double planned, double counted)
{
    char name[32];
    snprintf(name, sizeof name, "%s %s", strcmp(group, "tp kv") ? group : "tp", kind); // neighbours, a part of a group
    int i = 0;
    while (i < t->n && strcmp(t->flow[i].name, name)) i++;
    if (i == t->n) memcpy(t->flow[t->n++].name, name, sizeof name);
    t->flow[i].planned += planned, t->flow[i].counted += counted;
}

static void add_counted(Traffic *t, const char *run)
{
    json_t *account = json_of(path_of(run, "account.json")), *rank, *group, *kind;
    const char *r, *g, *k;
    json_object_foreach(json_object_get(account, "traffic"), r, rank)
        json_object_foreach(rank, g, group)
            json_object_foreach(group, k, kind)
                if (strcmp(g, "control")) sent(t, g, k, 0, json_number_value(json_object_get(kind, "sent")));
    json_decref(account);
}

static void add_planned(Traffic *t, Settings words, int ranks)
{
    static PlanOptions o; // large
    char *argv[WORDS + 8] = {"plan", "traffic", format("%s/empty.toml", work)};
    int n = 3;
    for (int i = 1; i < words.n; i++) argv[n++] = words.word[i];
    argv[n++] = "--gpus", argv[n++] = format("%d", ranks);
    plan_options_read(&o, n, argv, true);
    if (!is_narrow(&words)) o.job.x_bytes = 4; // of a GPU, as the plan's table of machines has it, 2
    plan_layout_must(&o.job, false);
    PlanTraffic plan = plan_traffic(&o.job);
    for (int i = 0; i < plan.n; i++)
        sent(t, plan.flow[i].group, comm_kind_name(plan.flow[i].kind), (double)plan.flow[i].all, 0);
    PlanHost h = plan_traffic_host(&o.job);
    if (!o.job.layout.offload && !o.job.layout.offload_acts) return;
    for (int in = 0; in < 2; in++)
        sent(t, "host", in ? "in" : "out", (double)(h.acts[in].all + h.update[in].all + (in ? h.gathers.all : 0)), 0);
}

// Rows to experts: the plan has equal loads, so the difference is in whole rows, of four times C elements and two
// weights, and small. What is computed again sends its rows again, another number of times in each layer.
static bool whole_rows(double planned, double counted, Settings words, int ranks)
{
    Config *cfg = planned_config(words, ranks);
    long long row = 4 * cfg->model.channels * (config_stores_fp32(cfg) ? 4 : 2) + 8;
    bool again = cfg->memory.recompute == RECOMPUTE_FULL || cfg->memory.recompute == RECOMPUTE_SQRT;
    free(cfg);
    return fabs(planned - counted) < planned / 4 && (again || (long long)(planned - counted) % row == 0);
}

static char *text_of(const char *file)
{
    size_t n;
    char *text = disk_read_file(format("%s/%s", work, file), &n, 1 << 20);
    return text ? text : strdup("");
}

// What account.json has of the groups that divide a model, the run has printed.
static void is_printed(const Traffic *t, const char *run)
{
    char *log = text_of(format("runs/%s/log.txt", run));
    for (int i = 0; i < t->n; i++) {
        const char *name = t->flow[i].name;
        bool divides = strchr("tcep", *name) && strncmp(name, "experts", 7) && strncmp(name, "copies", 6);
        if (divides && t->flow[i].counted > 0 &&
            !strstr(log, format("  %s: %.0f bytes sent by all ranks", name, t->flow[i].counted)))
            wrong("%s: log.txt does not say that %s has sent %.0f bytes", run, name, t->flow[i].counted);
    }
    free(log);
}

static void sent_as_planned(const char *run, Settings words, int ranks)
{
    Traffic t = {0};
    add_counted(&t, run);
    is_printed(&t, run);
    add_planned(&t, words, ranks);
    if (!t.n && ranks > 1) wrong("%s: nothing is planned or sent", run);
    for (int i = 0; i < t.n; i++) {
        double planned = t.flow[i].planned, counted = t.flow[i].counted;
        bool rows = !strcmp(t.flow[i].name, "ep all_to_all");
        if (rows ? !whole_rows(planned, counted, words, ranks) : planned != counted)
            wrong("%s: %s: %.0f bytes are sent, planned %.0f", run, t.flow[i].name, counted, planned);
    }
}

// The table that run.account prints from the line with `begin` on: no row with a formula has a difference.
static void formulas_hold(const char *run, const char *begin, int least)
{
    char line[1024], *log = path_of(run, "log.txt"), left[256];
    FILE *f = fopen(log, "r");
    bool in_table = false;
    int n = 0;
    while (f && fgets(line, sizeof line, f)) {
        long long formula, counted, difference, first;
        if (strstr(line, begin)) in_table = true;
        char *at = line + strlen(line);
        for (int words = 0; at > line && words < 4; words++) { // the last four numbers
            while (at > line && at[-1] <= ' ') at--;
            while (at > line && at[-1] > ' ') at--;
        }
        if (!in_table || sscanf(at, "%lld %lld %lld %lld %255s", &formula, &counted, &difference, &first, left) != 4)
            continue;
        n++;
        if (difference) wrong("%s: the run's table: %s", run, line);
    }
    if (f) fclose(f);
    if (n < least) wrong("%s: the run's table has %d formulas", run, n);
}

static void close_number(const char *what, json_t *x, json_t *y, const char *key, double bound)
{
    double a = json_number_value(json_object_get(json_array_get(x, 0), key));
    double b = json_number_value(json_object_get(json_array_get(y, 0), key));
    if (!(fabs(a - b) <= bound * fabs(b)) || !(b > 0)) wrong("%s: %s %g, not %g", what, key, a, b);
}

// One update, and what the weights after it make of the validation data.
static void close_losses(const char *run, const char *other, bool narrow)
{
    double bound = narrow ? 3e-4 : 1e-4;
    json_t *x = metrics(run, "train", 1), *y = metrics(other, "train", 1);
    json_t *after = metrics(run, "end", 1), *its = metrics(other, "val", 1);
    close_number(run, x, y, "loss", bound), close_number(run, after, its, "val_loss", bound);
    close_number(run, x, y, "grad_norm", narrow ? 2e-2 : bound);
    json_decref(x), json_decref(y), json_decref(after), json_decref(its);
}

// ---- a row

static bool applies(const Row *row, char verdict)
{
    return !strchr(row->without, verdict);
}

static void judge(const Row *row, const char *reference)
{
    if (!strcmp(row->kind, "any")) {
        Settings asked = settings_of(row);
        run_on(row->ranks, asked, "any", "numerics.deterministic=true run.stop_at=2 run.dump=2");
        same_bits("any", reference, &asked);
        return;
    }
    const char *own = format("line%d", row->line), *fast = format("fast%d", row->line);
    const char *above = row->above ? format("line%d", row->above) : NULL;
    Settings words = settings_of(row), loose = words;
    add(&words, "numerics.deterministic=true"), add(&loose, "numerics.deterministic=false");
    if (applies(row, 'd')) run_on(row->ranks, words, own, "run.stop_at=2 run.dump=2 run.account=true");
    if (applies(row, 'd') && applies(row, 'b')) same_bits(own, reference, &words);
    if (applies(row, 'd') && applies(row, 'm')) as_planned(own, words, row->ranks);
    if (applies(row, 'd') && applies(row, 'g')) formulas_hold(own, "bytes sent", 0); // whole gradients, with their tree
    if (applies(row, 'd') && applies(row, 'r') && above) {
        run_on(row->ranks, words, above, "run.stop_at=3 ckpt.resume=true");
        same_state(above, reference, LAST);
        same_reports(above, reference, &words, LAST);
    }
    if (!applies(row, 'm') && !applies(row, 't') && !applies(row, 'f') && !applies(row, 'c')) return;
    run_on(row->ranks, loose, fast, "run.stop_at=1 run.account=true run.eval_every=0 sample.count=0");
    if (applies(row, 'm')) as_planned(fast, loose, row->ranks);
    if (applies(row, 't')) sent_as_planned(fast, loose, row->ranks);
    if (applies(row, 'f')) formulas_hold(fast, "account: stage", 3);
    if (applies(row, 'c')) close_losses(fast, reference, is_narrow(&loose));
}

// In a process of its own, whose output goes to files.
static void child(const Row *row, const char *reference)
{
    alarm(HANG);
    if (!freopen(format("%s/row.out", work), "w", stdout)) _exit(9);
    if (!freopen(format("%s/row.err", work), "w", stderr)) _exit(9);
    Settings words = settings_of(row);
    if (!strcmp(row->kind, "refused")) {
        run_on(row->ranks, words, "refused", "");
    } else if (!strcmp(row->kind, "one")) {
        run_on(row->ranks, words, reference, "numerics.deterministic=true run.save_every=1 run.dump=2");
    } else {
        judge(row, reference);
    }
    exit(0);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

static void forget_run(const char *name)
{
    nftw(path_of(name, ""), remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool was_refused(const Row *row, int status, const char *error)
{
    const char *end = strchr(error, '\n');
    return WIFEXITED(status) && WEXITSTATUS(status) == 1 && !strncmp(error, "error: ", 7) && end && !end[1] &&
           strstr(error, row->says) && access(path_of(row->kind, "checkpoints"), F_OK);
}

static bool fares_well(const Row *row, const char *reference)
{
    int status = 0;
    why = fopen(format("%s/row.why", work), "w");
    if (!why) die("layouts: %s: cannot write", work);
    setvbuf(why, NULL, _IOLBF, 0);
    fflush(NULL);
    pid_t id = fork();
    if (id == 0) child(row, reference);
    if (id < 0 || waitpid(id, &status, 0) != id) die("layouts: no process");
    fclose(why);
    char *complaints = text_of("row.why"), *error = text_of("row.err");
    bool refused = !strcmp(row->kind, "refused"), any = !strcmp(row->kind, "any");
    bool well = !refused && !status && !*complaints && !*error, says_no = (refused || any) && was_refused(row, status, error);
    printf("%s %d: %s%d rank%s", well || says_no ? "ok" : "not ok", row->line, any && says_no ? "refused: " : "", row->ranks,
           row->ranks > 1 ? "s" : "");
    for (int i = 0; i < one.n; i++) printf(" %s", one.word[i] + 2);
    printf(" %s\n", row->settings);
    well |= says_no;
    if (!well || (any && says_no)) printf("%s%s%s", complaints, *error || refused ? "  stderr: " : "", error);
    if (!well && status) printf("  wait status %d\n", status);
    fflush(stdout);
    free(complaints), free(error);
    return well;
}

static char *next(char **rest) // the next of a line's columns
{
    char *word = strsep(rest, "\t");
    return word ? word : "";
}

// Reads a line. False: it is no row, but settings or a remark.
static bool parse(char *line, Row *row)
{
    static struct { char *name, *settings; } known[16];
    static int n_known;
    char *rest = line;
    snprintf(row->kind, sizeof row->kind, "%s", next(&rest));
    if (!*row->kind || *row->kind == '#') return false;
    if (!strcmp(row->kind, "all")) {
        add(&all, next(&rest));
        return false;
    }
    if (!strcmp(row->kind, "family")) {
        if (n_known == 16) die("layouts: more than 16 families");
        known[n_known].name = format("%s", next(&rest));
        known[n_known++].settings = format("%s", rest ? rest : "");
        return false;
    }
    row->ranks = atoi(next(&rest));
    const char *third = next(&rest);
    row->settings = format("%s", next(&rest)), row->says = format("%s", next(&rest));
    snprintf(row->without, sizeof row->without, "%s", third);
    if (row->ranks < 1) die("layouts: line %d has no ranks", row->line);
    bool single = !strcmp(row->kind, "one");
    if (!single && strcmp(row->kind, "refused")) return true;
    for (int i = 0; i < n_known; i++)
        if (!strcmp(third, known[i].name)) {
            family.n = one.n = 0;
            add(&family, known[i].settings);
            if (single) add(&one, row->settings), row->settings = format("%s", "");
            return true;
        }
    die("layouts: line %d: no family %s", row->line, third);
}

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
    if (argc < 5) die_usage("usage: layouts TABLE core|long DATA WORK [WORD]");
    bool deep = !strcmp(argv[2], "long"), good = true, there = false;
    const char *word = argc > 5 ? argv[5] : "";
    char *reference = NULL, *line;
    int number = 0, above = 0;
    size_t n_table;
    Row pending = {.line = 0};
    data = argv[3], work = argv[4];
    char *table = disk_read_file(argv[1], &n_table, 1 << 20), *left = table;
    if (!table || !disk_write_file(format("%s/empty.toml", work), "", 0))
        die("layouts: %s or %s: %s", argv[1], work, strerror(errno));
    add_word(&all, format("--run.dir=%s/runs", work));
    add(&all, "data.train=@/train_*.bin data.val=@/val_*.bin data.tokenizer=@/");
    while ((line = strsep(&left, "\n"))) {
        Row row = {.line = ++number};
        if (!parse(line, &row)) continue;
        if (!strcmp(row.kind, "one")) {
            pending = row, there = false;
            continue;
        }
        bool refused = !strcmp(row.kind, "refused");
        if (refused) pending.line = 0;
        else if (!pending.line) die("layouts: line %d: no line `one` above", number);
        if (!strcmp(row.kind, "long") && !deep) continue;
        if (*word && !strstr(row.settings, word)) continue;
        if (!refused && !there) { // its one rank, when the first row needs it
            if (above) forget_run(format("line%d", above));
            if (reference) forget_run(reference);
            there = true, above = 0, reference = format("one%d", pending.line);
            good &= fares_well(&pending, reference);
        }
        row.above = above;
        good &= fares_well(&row, reference);
        forget_run("any");
        if (refused || !strcmp(row.kind, "any")) continue;
        forget_run(format("fast%d", row.line));
        bool goes_on = applies(&row, 'd') && applies(&row, 'b'); // the next row, from what this one wrote
        int over = goes_on ? above : row.line;
        if (over) forget_run(format("line%d", over));
        if (goes_on) above = row.line;
    }
    if (above) forget_run(format("line%d", above)); // another table has other runs under these names
    if (reference) forget_run(reference);
    free(table);
    return good ? 0 : 1;
}
