// plan_options: reads options like --gpu H100 --gpus 512 --tp 8, and makes a job of them. See plan_show.h.
//
// What is not given comes from the configuration: model, context, batch, layout, recomputation, steps. For plan layout
// a size that is given is fixed, and any other is searched. Accelerators compute in bf16 with fp32 master weights, with
// numerics.dtype=tf32 in TF32; the CPU in fp32.
//
// Options are a table of names, kinds and places, like the configuration's keys; parser and ranges follow from it.
//
// The invariant: nothing is guessed. A text that is not a number, a number out of range, a size that does not divide,
// an unknown accelerator: each ends the program with one line that says what to write instead.
//
// Rejected: more keys in the configuration. A price or a failure rate is not a property of a training run.
#include "dev/plan/plan_show.h"

#include "base/check.h"
#include "base/words.h"
#include "base/config.h"
#include "dev/plan/plan.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const plan_options_help =
    "of time, traffic, layout and cluster:\n"
    "  --gpus N            how many accelerators (1)\n"
    "  --tp --pp --cp --dp N   sizes of the groups; dp is what is left\n"
    "  --ep N              ranks of dp cp that divide the experts among them (parallel.ep)\n"
    "  --sp                sequence parallelism with --tp (on by default; --no-sp)\n"
    "  --vpp N             chunks of a stage (1); more: the schedule interleaved\n"
    "  --schedule NAME     gpipe, 1f1b, interleaved, zb-h1, zb-v, v-half, v-min\n"
    "  --micro N           sequences of a micro-batch (batch.micro)\n"
    "  --batch N           sequences of a step (batch.tokens / model.context)\n"
    "  --zero N            stage (parallel.zero)\n"
    "  --shard N           of the replicas, that cut what it cuts (parallel.shard; 0: all)\n"
    "  --recompute MODE    none, selective, attention, sqrt, full (memory.recompute)\n"
    "  --attention KIND    fused, plain (all T x T scores in memory)\n"
    "  --overlap LIST      none, or some of tp,pp,dp (pp,dp)\n"
    "  --link NAME         between nodes (plan machines lists them)\n"
    "  --links FILE        links that a run with comm.measure=true measured: its links.json\n"
    "of these and of scaling:\n"
    "  --gpu NAME          accelerator: H100 (default), A100-80, A100-40, H200, B200, V100, A10G, A10, cpu (measured "
    "here)\n"
    "  --price USD         an accelerator hour, or a cloud: aws, gcp, azure, lambda (plan machines); not of traffic\n"
    "  --tokens N          of the whole run (run.steps * batch.tokens); not of traffic\n"
    "  --explain           each formula with its numbers;   --json\n"
    "of time, layout and cluster:\n"
    "  --save S --restart S    seconds that a checkpoint stops training (30), that a restart takes (600)\n"
    "  --mtbf HOURS        between failures of one accelerator (50677: LLaMA-3)\n"
    "  --interval S        of time and cluster: seconds of training between checkpoints (Daly's best)\n"
    "of layout:\n"
    "  --write FILE        the fastest one's configuration\n"
    "of cluster:\n"
    "  --days N --jitter X --seed N    days played (30), of a step (0.005), of the failures (1)\n"
    "of scaling:\n"
    "  --flops C --params N    one or two of these and --tokens; one alone: with 20 tokens a parameter\n"
    "  --mfu X             part of the peak for the hours (0.4)\n"
    "  --served N --loss L     tokens that the model will write, and the loss it must have (the optimum's)\n"
    "of prepare, with --tokens, --restart, --price (a host's hour), --mtbf (of a host: 6335) and --explain:\n"
    "  --log FILE          what mpiexec -n N build/prepare RECIPE.toml printed, 2>&1, for a small part of the corpus\n"
    "  --hosts N --cores N     hosts (1000), cores of each (64)\n"
    "  --io X --ram X      GB/s of a host to the file system (1.25), GB of its memory (256)\n"
    "  --parts N           of the corpus, prepared one after another (1)\n"
    "  --unit X --bands N  recipe.unit, MiB (128), and bands of [dedup] (those of 128 permutations at 0.8)\n"
    "of for:\n"
    "  --bytes N           of the text (--minutes M: of training)\n"
    "  --peak X            GFLOP/s of large products on all cores (by default measured)\n";

typedef enum { FLAG, SIZE, NUMBER, WORD } Kind;

// The plans that take options, as bits; an option has those that it has an effect on.
enum { TIME = 1, TRAFFIC = 2, LAYOUT = 4, CLUSTER = 8, SCALING = 16, APPROACH = 32, PREPARE = 64, FOR = 128 };
enum { RUN = TIME | LAYOUT | CLUSTER, JOB = RUN | TRAFFIC, MONEY = RUN | SCALING, ANY = JOB | SCALING };
static const char *const plan_name[] = {"time", "traffic", "layout", "cluster", "scaling", "approach",
                                        "prepare", "for"};

// An option's place in PlanOptions, with what stands there when it is not given; the number that is given is multiplied.
enum { NOT_GIVEN = -1 };
#define ROW(plans, kind, name, member, least, otherwise, times)                                                        \
    {name, kind, offsetof(PlanOptions, member), least, otherwise, times, plans}
#define CUT(member, least) ROW(JOB, SIZE, #member, given.member, least, NOT_GIVEN, 1)
#define TEXT(plans, member) ROW(plans, WORD, #member, given.member, 0, 0, 1)
#define NUM(plans, kind, member, least, otherwise) ROW(plans, kind, #member, member, least, otherwise, 1)
#define PREP(kind, member, least, otherwise, times)                                                                    \
    ROW(PREPARE, kind, #member, prepare.member, least, otherwise, times)
static const struct {
    const char *name;
    Kind kind;
    size_t at;
    double least, otherwise, times;
    int plans;
} option[] = {
    CUT(gpus, 1), CUT(tp, 1), CUT(pp, 1), CUT(cp, 1), CUT(dp, 1), CUT(ep, 1), CUT(vpp, 1), CUT(zero, 0), CUT(shard, 0),
    CUT(micro, 1), CUT(batch, 1), ROW(JOB, FLAG, "sp", given.sp, 0, 0, 1),
    ROW(JOB, FLAG, "no-sp", given.no_sp, 0, 0, 1), TEXT(JOB, schedule), TEXT(JOB, recompute), TEXT(JOB, attention),
    TEXT(JOB, overlap), TEXT(JOB, link), TEXT(JOB, links), TEXT(ANY, gpu), TEXT(MONEY | PREPARE, price),
    NUM(MONEY | PREPARE, NUMBER, tokens, 1, 0), NUM(ANY | PREPARE, FLAG, explain, 0, 0),
    NUM(ANY | APPROACH | PREPARE, FLAG, json, 0, 0), NUM(RUN, NUMBER, save, 0, 30),
    NUM(RUN | PREPARE, NUMBER, restart, 0, 600), ROW(RUN | PREPARE, NUMBER, "mtbf", mean, 1e-6, 0, 3600),
    NUM(TIME | CLUSTER, NUMBER, interval, 1e-3, 0), ROW(LAYOUT, WORD, "write", write, 0, 0, 1),
    NUM(CLUSTER, NUMBER, jitter, 0, 0.005), NUM(CLUSTER, NUMBER, days, 1e-3, 30), NUM(CLUSTER, SIZE, seed, 0, 1),
    ROW(SCALING, NUMBER, "flops", budget, 1, 0, 1), NUM(SCALING, NUMBER, params, 1, 0),
    NUM(SCALING, NUMBER, mfu, 1e-3, 0.4), NUM(SCALING, NUMBER, served, 0, 0), NUM(SCALING, NUMBER, loss, 0, 0),
    PREP(WORD, log, 0, 0, 1), PREP(SIZE, hosts, 1, 1000, 1), PREP(SIZE, cores, 1, 64, 1), PREP(SIZE, parts, 1, 1, 1),
    PREP(SIZE, bands, 1, 0, 1), PREP(NUMBER, io, 1e-3, 1.25, 1e9), PREP(NUMBER, ram, 1e-3, 256, 1e9),
    PREP(NUMBER, unit, 0.01, 128, 1048576), ROW(FOR, NUMBER, "bytes", model.bytes, 1, 0, 1),
    ROW(FOR, NUMBER, "minutes", model.minutes, 0.01, 0, 1), ROW(FOR, NUMBER, "peak", model.peak, 0, 0, 1e9)};
#undef ROW
enum { OPTIONS = sizeof option / sizeof *option };

// ---- the table against the command line

static double number(const char *name, const char *text, double least, bool whole)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value)) die("--%s: '%s' is no number", name, text);
    if (value < least || (whole && (value != floor(value) || value > 1e9)))
        die("--%s: %s (%s of %g or more%s)", name, text, whole ? "a whole number" : "a number", least,
            whole ? ", at most 1e9" : "");
    return value;
}

static void set(PlanOptions *o, int i, const char *text)
{
    char *place = (char *)o + option[i].at;
    if (option[i].kind == FLAG) *(bool *)place = true;
    if (option[i].kind == SIZE) *(int *)place = (int)number(option[i].name, text, option[i].least, true);
    if (option[i].kind == NUMBER)
        *(double *)place = option[i].times * number(option[i].name, text, option[i].least, false);
    if (option[i].kind == WORD) *(const char **)place = text;
}

static void none_given(PlanOptions *o)
{
    *o = (PlanOptions){.job.layout = plan_layout_default()};
    for (int i = 0; i < OPTIONS; i++) {
        char *place = (char *)o + option[i].at;
        if (option[i].kind == SIZE) *(int *)place = (int)option[i].otherwise;
        if (option[i].kind == NUMBER) *(double *)place = option[i].times * option[i].otherwise;
    }
}

// "--tp", "8" and "--tp=8". Returns how many of argv it took; 0: not an option of ours.
static int take(PlanOptions *o, const char *plan, char **argv, int left)
{
    const char *word = argv[0] + 2, *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    for (int i = 0; i < OPTIONS; i++) {
        if (strlen(option[i].name) != n || strncmp(option[i].name, word, n)) continue;
        for (int k = 0; k < (int)(sizeof plan_name / sizeof *plan_name); k++)
            if (!strcmp(plan, plan_name[k]) && !(option[i].plans >> k & 1))
                die("--%s: has no effect on plan %s (plan --help says which options it has)", option[i].name, plan);
        if (option[i].kind == FLAG && equals) die("%s: takes no value", argv[0]);
        if (option[i].kind == FLAG || equals) {
            set(o, i, equals ? equals + 1 : "");
            return 1;
        }
        if (left < 2) die("%s: no value (write --%s VALUE)", argv[0], option[i].name);
        set(o, i, argv[1]);
        return 2;
    }
    return 0;
}

static void unknown(const char *word)
{
    int best = 0, best_distance = 1000;
    for (int i = 0; i < OPTIONS; i++) {
        int distance = words_distance(word + 2, option[i].name, 1000);
        if (distance < best_distance) best = i, best_distance = distance;
    }
    die("%s: no such option (did you mean --%s? plan --help lists them)", word, option[best].name);
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
    enum { MOST = 100 };
    char *for_config[MOST] = {argv[0]};
    int n = 1;
    none_given(o);
    for (int i = 2; i < argc;) {
        bool is_key = strchr(argv[i], '.') && (!strchr(argv[i], '=') || strchr(argv[i], '.') < strchr(argv[i], '='));
        int taken = !strncmp(argv[i], "--", 2) && !is_key ? take(o, argv[1], argv + i, argc - i) : 0;
        if (!taken && !strncmp(argv[i], "--", 2) && !is_key) unknown(argv[i]);
        if (!taken) {
            if (n == MOST) die("%s: more than %d settings", argv[i], MOST - 1);
            if (strncmp(argv[i], "--", 2)) o->config = argv[i];
            for_config[n++] = argv[i];
        }
        i += taken ? taken : 1;
    }
    if (needs_config && !o->config) die("plan %s: no configuration (write a file or a preset, as llama3-8b)", argv[1]);
    if (!needs_config && n > 1) die("%s: plan %s takes no configuration and no keys", for_config[1], argv[1]);
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
    if (o->mfu > 1) die("--mfu: %g (a part of the peak, at most 1)", o->mfu);
    if (o->days > 36525) die("--days: %g (at most 36525, a hundred years: each is played)", o->days);
}
