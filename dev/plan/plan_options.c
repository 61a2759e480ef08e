// plan_options: reads options like --gpu H100 --gpus 512 --tp 8, and makes a job of them. See plan_show.h.
//
// What is not given comes from the configuration: model, context, batch, layout, recomputation, steps. For plan layout
// a size that is given is fixed, and any other is searched. Accelerators compute in bf16 with fp32 master weights, with
// numerics.dtype=tf32 in TF32; the CPU in fp32.
//
// The invariant: nothing is guessed. A text that is not a number, a number out of range, a size that does not divide,
// an unknown accelerator: each ends the program with one line that says what to write instead.
//
// Rejected: more keys in the configuration. A price or a failure rate is not a property of a training run.
#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "tools/options.h"
#include "base/config.h"
#include "dev/plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// The plans that take options, as bits; an option has those that it has an effect on.
enum { TIME = 1, TRAFFIC = 2, LAYOUT = 4, CLUSTER = 8, SCALING = 16, APPROACH = 32, PREPARE = 64, FOR = 128 };
enum { RUN = TIME | LAYOUT | CLUSTER, JOB = RUN | TRAFFIC, MONEY = RUN | SCALING, ANY = JOB | SCALING };
static const char *const plan_name[] = {"time", "traffic", "layout", "cluster", "scaling", "approach",
                                        "prepare", "for"};
enum { MOST = 100, NOT_GIVEN = -1 };

// Where the options are read to. A row without `where` has its heading's.
static PlanOptions said;
static Option row[] = {
    {.name = "of time, traffic, layout and cluster:", .where = JOB},
    OPTION(INT, "--gpus", "N", "how many accelerators (1); of scaling too: days by the clock", &said.given.gpus, 1,
           .where = JOB | SCALING),
    OPTION(INT, "--tp", "N", "ranks of a tensor parallel group (parallel.tp)", &said.given.tp, 1),
    OPTION(INT, "--pp", "N", "stages of a pipeline (parallel.pp)", &said.given.pp, 1),
    OPTION(INT, "--cp", "N", "ranks that share a sequence (parallel.cp)", &said.given.cp, 1),
    OPTION(INT, "--dp", "N", "replicas: what is left", &said.given.dp, 1),
    OPTION(INT, "--ep", "N", "ranks of dp cp that divide the experts among them (parallel.ep)", &said.given.ep, 1),
    OPTION(SWITCH, "--sp", NULL, "sequence parallelism with --tp (on by default; --no-sp)", &said.given.sp),
    OPTION(SWITCH, "--no-sp", NULL, "no sequence parallelism", &said.given.no_sp),
    OPTION(INT, "--vpp", "N", "chunks of a stage (1); more: the schedule interleaved", &said.given.vpp, 1),
    OPTION(TEXT, "--schedule", "NAME", "gpipe, 1f1b, interleaved, zb-h1, zb-v, v-half, v-min", &said.given.schedule),
    OPTION(INT, "--micro", "N", "sequences of a micro-batch (batch.micro)", &said.given.micro, 1),
    OPTION(INT, "--batch", "N", "sequences of a step (batch.tokens / model.context)", &said.given.batch, 1),
    OPTION(INT, "--zero", "N", "stage (parallel.zero)", &said.given.zero),
    OPTION(INT, "--shard", "N", "of the replicas, that cut what it cuts (parallel.shard; 0: all)", &said.given.shard),
    OPTION(TEXT, "--recompute", "MODE", "none, selective, attention, sqrt, full (memory.recompute)",
           &said.given.recompute),
    OPTION(TEXT, "--attention", "KIND", "fused, plain (all T x T scores in memory)", &said.given.attention),
    OPTION(TEXT, "--overlap", "LIST", "none, or some of tp,pp,dp (pp,dp)", &said.given.overlap),
    OPTION(TEXT, "--link", "NAME", "between nodes (plan machines lists them)", &said.given.link),
    OPTION(TEXT, "--links", "FILE", "links that a run with comm.measure=true measured: its links.json",
           &said.given.links),
    {.name = "of these and of scaling:", .where = ANY},
    OPTION(TEXT, "--gpu", "NAME", "H100 (default), A100-80, A100-40, H200, B200, V100, A10G, A10; cpu: measured",
           &said.given.gpu),
    OPTION(TEXT, "--price", "USD", "an accelerator hour, or a cloud: aws, gcp, azure, lambda; not of traffic",
           &said.given.price, .where = MONEY | PREPARE),
    OPTION(NUMBER, "--tokens", "N", "of the whole run (run.steps * batch.tokens); not of traffic",
           &said.tokens, 1, .where = MONEY | PREPARE),
    OPTION(SWITCH, "--explain", NULL, "each formula with its numbers", &said.explain, .where = ANY | PREPARE),
    OPTION(SWITCH, "--json", NULL, "for programs", &said.json, .where = ANY | APPROACH | PREPARE),
    {.name = "of time, layout and cluster:", .where = RUN},
    OPTION(NUMBER, "--save", "S", "seconds that a checkpoint stops training (30)", &said.save),
    OPTION(NUMBER, "--restart", "S", "seconds that a restart takes (600)", &said.restart, .where = RUN | PREPARE),
    OPTION(NUMBER, "--mtbf", "HOURS", "between failures of one accelerator (50677: LLaMA-3)",
           &said.mean, 1e-6, .where = RUN | PREPARE),
    OPTION(NUMBER, "--interval", "S", "of time and cluster: seconds of training between checkpoints (Daly's best)",
           &said.interval, 1e-3, .where = TIME | CLUSTER),
    {.name = "of layout:", .where = LAYOUT},
    OPTION(TEXT, "--write", "FILE", "the fastest one's configuration", &said.write),
    {.name = "of cluster:", .where = CLUSTER},
    OPTION(NUMBER, "--days", "N", "days played (30)", &said.days, 1e-3, 36525),
    OPTION(NUMBER, "--jitter", "X", "of a step (0.005)", &said.jitter),
    OPTION(INT, "--seed", "N", "of the failures (1)", &said.seed, 0, 1e9),
    {.name = "of scaling:", .where = SCALING},
    OPTION(NUMBER, "--flops", "C", "one or two of this, --params, --tokens; one alone: 20 tokens a parameter",
           &said.budget, 1),
    OPTION(NUMBER, "--params", "N", "parameters", &said.params, 1),
    OPTION(NUMBER, "--mfu", "X", "part of the peak for the hours (0.4)", &said.mfu, 1e-3, 1),
    OPTION(NUMBER, "--served", "N", "tokens that the model will write", &said.served),
    OPTION(NUMBER, "--loss", "L", "that it must have then (the optimum's)", &said.loss),
    {.name = "of prepare (--price, --mtbf, --restart: of a host):", .where = PREPARE},
    OPTION(TEXT, "--log", "FILE", "of mpiexec -n N build/prepare RECIPE.toml, 2>&1, for a small part of the corpus",
           &said.prepare.log),
    OPTION(INT, "--hosts", "N", "hosts (1000)", &said.prepare.hosts, 1),
    OPTION(INT, "--cores", "N", "cores of each (64)", &said.prepare.cores, 1),
    OPTION(NUMBER, "--io", "X", "GB/s of a host to the file system (1.25)", &said.prepare.io, 1e-3),
    OPTION(NUMBER, "--ram", "X", "GB of its memory (256)", &said.prepare.ram, 1e-3),
    OPTION(INT, "--parts", "N", "of the corpus, prepared one after another (1)", &said.prepare.parts, 1),
    OPTION(NUMBER, "--unit", "X", "recipe.unit, MiB (128)", &said.prepare.unit, 0.01),
    OPTION(INT, "--bands", "N", "of [dedup] (those of 128 permutations at 0.8)", &said.prepare.bands, 1),
    {.name = "of for:", .where = FOR},
    OPTION(NUMBER, "--bytes", "N", "of the text", &said.model.bytes, 1),
    OPTION(NUMBER, "--minutes", "M", "of training", &said.model.minutes, 0.01),
    OPTION(NUMBER, "--peak", "X", "GFLOP/s of large products on all cores (by default measured)", &said.model.peak)};
enum { ROWS = sizeof row / sizeof *row };

static void ready_rows(void)
{
    for (int i = 0, group = 0; i < ROWS; i++) {
        row[i].given = false;
        if (row[i].kind == OPTION_INT && !(row[i].most > 0)) row[i].most = 1e9; // twice that is still an int
        if (row[i].kind == OPTION_NOTE) group = row[i].where;
        else if (!row[i].where) row[i].where = group;
    }
}

void plan_options_help(void)
{
    ready_rows();
    options_print(&(OptionSet){.row = row, .n = ROWS});
}

// What stands where nothing is given.
static PlanOptions none_given(void)
{
    const int no = NOT_GIVEN;
    return (PlanOptions){.given = {no, no, no, no, no, no, no, no, no, no, no, .sp = false},
                         .job.layout = plan_layout_default(), .save = 30, .restart = 600, .jitter = 0.005, .days = 30,
                         .seed = 1, .mfu = 0.4,
                         .prepare = {.hosts = 1000, .cores = 64, .parts = 1, .io = 1.25, .ram = 256, .unit = 128}};
}

// Reads the options, and leaves in word[1 ...] what is a configuration or a key of one. Returns how many there are.
static int read_rows(int argc, char **argv, char **word)
{
    char name[40], *ours[MOST] = {argv[0]}, *keys[MOST];
    OptionSet set = {.program = name, .usage = "", .row = row, .n = ROWS};
    int n_ours = 1, n_keys = 0, n = 1;
    said = none_given();
    ready_rows();
    snprintf(name, sizeof name, "plan %s", argv[1]);
    if (argc > MOST) die("%s: more than %d words", argv[argc - 1], MOST);
    for (int i = 2; i < argc; i++) {
        const char *dot = strchr(argv[i], '.'), *equals = strchr(argv[i], '=');
        bool is_key = !strncmp(argv[i], "--", 2) && dot && (!equals || dot < equals);
        if (is_key) keys[n_keys++] = argv[i];
        else ours[n_ours++] = argv[i];
    }
    size_t left = options_read(&set, n_ours, ours);
    for (size_t i = 0; i < left; i++) word[n++] = ours[1 + i];
    if (n > 1) said.config = word[n - 1];
    for (int i = 0; i < n_keys; i++) word[n++] = keys[i];
    for (int k = 0; k < (int)(sizeof plan_name / sizeof *plan_name); k++)
        for (size_t i = 0; !strcmp(argv[1], plan_name[k]) && i < set.n; i++)
            if (row[i].given && !(row[i].where >> k & 1))
                die("%s: has no effect on plan %s (plan --help says which options it has)", row[i].name, argv[1]);
    return n;
}

// ---- the job

static RecomputeMode recompute_named(const char *text)
{
    if (!strcmp(text, "none")) return RECOMPUTE_NONE;
    if (!strcmp(text, "selective")) return RECOMPUTE_SELECTIVE;
    if (!strcmp(text, "attention")) return RECOMPUTE_ATTENTION;
    if (!strcmp(text, "sqrt")) return RECOMPUTE_SQRT;
    if (!strcmp(text, "full")) return RECOMPUTE_FULL;
    die("--recompute: '%s' (none, selective, attention, sqrt or full)", text);
}

static void set_overlap(PlanLayout *l, const char *list)
{
    if (!list) return;
    char copy[64];
    snprintf(copy, sizeof copy, "%s", list);
    l->overlap_tp = l->overlap_pp = l->overlap_dp = false;
    for (char *word = strtok(copy, ","); word; word = strtok(NULL, ",")) {
        bool *which = !strcmp(word, "tp") ? &l->overlap_tp : !strcmp(word, "pp") ? &l->overlap_pp :
                      !strcmp(word, "dp") ? &l->overlap_dp : NULL;
        if (!which && strcmp(word, "none")) die("--overlap: '%s' (none, or some of tp,pp,dp)", word);
        if (which) *which = true;
    }
}

static int or_one(int given)
{
    return given == NOT_GIVEN ? 1 : given;
}

// Takes from the configuration what the command line leaves open of the layout. The keys are then unset, because the
// configuration is resolved for one rank, and the layout is checked here.
static void take_layout(PlanOptions *o)
{
    Config *cfg = &o->cfg;
    PlanGiven *g = &o->given;
    static const char *const groups[] = {"parallel.tp", "parallel.cp", "parallel.pp", "parallel.schedule",
                                         "parallel.ep", "parallel.shard"};
    int n_keys;
    char why[200];
    const ConfigKey *key = config_table(&n_keys);
    if (cfg->parallel.schedule == PIPELINE_USER || *cfg->parallel.layers)
        die("parallel.table, parallel.layers: not planned for time (plan memory --ranks N takes them)");
    if (g->tp == NOT_GIVEN && cfg->parallel.tp > 1) {
        g->tp = (int)cfg->parallel.tp;
        if (!cfg->parallel.sp && !g->sp) g->no_sp = true;
    }
    if (g->cp == NOT_GIVEN && cfg->parallel.cp > 1) g->cp = (int)cfg->parallel.cp;
    if (g->ep == NOT_GIVEN && cfg->parallel.ep > 1) g->ep = (int)cfg->parallel.ep;
    if (g->shard == NOT_GIVEN) g->shard = (int)cfg->parallel.shard;
    o->job.shape.experts.room = cfg->moe.room; // the key is unset too
    if (g->pp == NOT_GIVEN && cfg->parallel.pp > 1) {
        g->pp = (int)cfg->parallel.pp;
        if (!g->schedule && config_is_set(cfg, "parallel.schedule"))
            g->schedule = pipeline_table_name(cfg->parallel.schedule);
        if (g->vpp == NOT_GIVEN && cfg->parallel.chunks) g->vpp = (int)cfg->parallel.chunks;
    }
    for (int row = 0; row < n_keys; row++) { // the sizes, and the keys that have an effect only with one of them
        bool ours = false, quoted = key[row].type == CONFIG_STRING || key[row].type == CONFIG_CHOICE;
        for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
            ours |= !strcmp(key[row].name, groups[i]) || !strncmp(key[row].needs, groups[i], strlen(groups[i]));
        if (!ours) continue;
        if (!config_table_parse(&key[row], cfg, key[row].def, quoted, why, sizeof why))
            die("%s: %s", key[row].name, why);
        cfg->origin[row] = (ConfigOrigin){.source = CONFIG_DEFAULT};
    }
}

static void set_groups(PlanOptions *o)
{
    const PlanGiven *g = &o->given;
    PlanLayout *l = &o->job.layout;
    l->tp = or_one(g->tp), l->pp = or_one(g->pp), l->cp = or_one(g->cp), l->ep = or_one(g->ep);
    double ranks = (double)l->tp * l->pp * l->cp * or_one(g->dp);
    if (ranks > 1e9)
        die("tp %d * pp %d * cp %d * dp %d: %g accelerators (at most 1e9)", l->tp, l->pp, l->cp, or_one(g->dp), ranks);
    long model = (long)l->tp * l->pp * l->cp;
    l->gpus = g->gpus != NOT_GIVEN ? g->gpus : (int)(model * or_one(g->dp));
    if (l->gpus % model || (g->dp != NOT_GIVEN && g->dp * model != l->gpus))
        die("--gpus %d: is not a multiple of tp %d * pp %d * cp %d, or not dp times it", l->gpus, l->tp, l->pp, l->cp);
    l->dp = (int)(l->gpus / model);
    if (g->sp && g->no_sp) die("--sp and --no-sp: choose one");
    l->sp = l->tp > 1 && !g->no_sp;
    l->chunks = or_one(g->vpp);
    l->schedule = l->chunks > 1 ? PIPELINE_INTERLEAVED : PIPELINE_1F1B;
    if (!g->schedule) return;
    l->schedule = pipeline_table_find(g->schedule);
    if (l->schedule >= PIPELINE_USER)
        die("--schedule: '%s' (gpipe, 1f1b, interleaved, zb-h1, zb-v, v-half or v-min)", g->schedule);
    bool two = pipeline_table_chunks(l->schedule) != 1;
    if (two && g->vpp == NOT_GIVEN) l->chunks = 2; // what the schedule needs
}

static void make_job(PlanOptions *o)
{
    const PlanGiven *g = &o->given;
    PlanJob *job = &o->job;
    PlanLayout *l = &job->layout;
    Config *cfg = &o->cfg;
    double room = job->shape.experts.room;
    if (cfg->numerics.dtype == CONFIG_DTYPE_TF32) job->machine = machines_tf32(job->machine), job->x_bytes = 4;
    plan_vocab(cfg);
    job->shape = run_shape(cfg), job->shape.experts.room = room;
    job->T = (size_t)cfg->model.context;
    job->embed_fp32 = cfg->numerics.embed_dtype == CONFIG_EMBED_FP32 && !config_stores_fp32(cfg) && job->x_bytes < 4;
    job->optim = cfg->optim.name, job->agc = cfg->optim.agc > 0, job->agc_unit = cfg->optim.agc_unit;
    job->batch = g->batch != NOT_GIVEN ? g->batch : cfg->batch.tokens / cfg->model.context;
    l->micro = g->micro != NOT_GIVEN ? g->micro : cfg->batch.micro;
    l->zero = g->zero != NOT_GIVEN ? g->zero : (int)cfg->parallel.zero;
    if (l->zero > 3) die("--zero: %d (0, 1, 2 or 3)", l->zero);
    l->shard = g->shard != NOT_GIVEN ? g->shard : 0;
    l->reshard = cfg->parallel.reshard, l->prefetch = cfg->parallel.prefetch, l->keep = cfg->parallel.keep;
    l->recompute = g->recompute ? recompute_named(g->recompute) : cfg->memory.recompute;
    if (l->recompute == RECOMPUTE_EVERY)
        die("memory.recompute: every N is not planned for time (none, selective, attention, sqrt, full)");
    if (g->attention && strcmp(g->attention, "fused") && strcmp(g->attention, "plain"))
        die("--attention: '%s' (fused or plain)", g->attention);
    l->fused_attention = !g->attention || !strcmp(g->attention, "fused");
    set_overlap(l, g->overlap);
    if (cfg->memory.offload == OFFLOAD_DISK)
        die("memory.offload=disk: no disk is in the table of machines (cpu; plan memory has the bytes)");
    l->offload = cfg->memory.offload != OFFLOAD_NONE, l->host_updates = cfg->memory.offload_update == OFFLOAD_CPU;
    l->offload_acts = cfg->memory.offload_acts != OFFLOAD_NONE;
    bool adam = job->optim == OPTIM_ADAMW || job->optim == OPTIM_ADAM;
    if (l->offload && !l->host_updates && !adam)
        die("memory.offload with optim.name=%s: of state that moves only AdamW's is planned here (plan memory has the "
            "bytes)", optim_kind(job->optim)->name);
    o->is_free = (LayoutSearchFree){.tp = g->tp == NOT_GIVEN, .pp = g->pp == NOT_GIVEN, .cp = g->cp == NOT_GIVEN,
                                    .ep = g->ep == NOT_GIVEN, .zero = g->zero == NOT_GIVEN,
                                    .chunks = g->vpp == NOT_GIVEN && !g->schedule,
                                    .micro = g->micro == NOT_GIVEN, .recompute = !g->recompute};
    o->is_free.vees = o->is_free.chunks;
    double tokens = g->batch == NOT_GIVEN ? plan_tokens(cfg, cfg->run.steps)
                                          : (double)cfg->run.steps * (double)job->batch * (double)job->T;
    if (!(o->tokens > 0)) o->tokens = tokens;
}

static void set_machine(PlanOptions *o)
{
    const PlanGiven *g = &o->given;
    PlanJob *job = &o->job;
    job->machine = machines_find(g->gpu ? g->gpu : "H100");
    bool cpu = !strcmp(job->machine.name, "cpu");
    job->x_bytes = cpu ? 4 : 2;
    if (g->links) machines_links(&job->machine, g->links);
    if (g->link && !job->machine.between.source) die("--link %s: --links has a link between hosts too", g->link);
    if (g->link) job->machine.between = machines_link(g->link);
    char *end = NULL;
    o->price = g->price ? strtod(g->price, &end) : job->machine.price;
    if (g->price && (end == g->price || *end)) o->price = machines_price(g->price, job->machine.name);
    if (!(o->price >= 0 && isfinite(o->price))) die("--price: %s (dollars an hour, 0 or more, or a cloud)", g->price);
}

static void check_prepare(PlanOptions *o)
{
    const char *price = o->given.price;
    char *end = NULL;
    if (!o->prepare.log) die("plan prepare: no --log FILE (what mpiexec -n 2 build/prepare RECIPE.toml printed, 2>&1)");
    if (!(o->tokens > 0)) die("plan prepare: no --tokens N (of the whole corpus; 15e12 for a LLaMA-3)");
    if (price && ((o->prepare.price = strtod(price, &end)) < 0 || end == price || *end))
        die("--price: %s (dollars an hour of a host)", price);
    o->prepare.tokens = o->tokens, o->prepare.restart = o->restart, o->prepare.mean = o->mean;
}

void plan_options_read(PlanOptions *o, int argc, char **argv, bool needs_config)
{
    char *for_config[MOST] = {argv[0]};
    int n = read_rows(argc, argv, for_config);
    *o = said;
    if (needs_config && !o->config) die("plan %s: no configuration (write a file or a preset, as llama3-8b)", argv[1]);
    if (!needs_config && n > 1) die("%s: plan %s takes no configuration and no keys", for_config[1], argv[1]);
    o->mean *= 3600, o->prepare.io *= 1e9, o->prepare.ram *= 1e9, o->prepare.unit *= 1048576, o->model.peak *= 1e9;
    if (!strcmp(argv[1], "for") && !(o->model.bytes > 0 && o->model.minutes > 0))
        die("plan for: give --bytes N (of the text) and --minutes M");
    if (!strcmp(argv[1], "prepare")) check_prepare(o);
    if (!strcmp(argv[1], "for") || !strcmp(argv[1], "prepare")) return;
    set_machine(o);
    config_defaults(&o->cfg);
    if (o->config) {
        config_parse(&o->cfg, n, for_config);
        take_layout(o);
        config_resolve(&o->cfg);
    }
    set_groups(o);
    if (needs_config) make_job(o);
    int gpus = o->job.layout.gpus;
    o->mean = o->mean > 0 ? o->mean / gpus : plan_time_between_failures(gpus);
}
