// plan: what a run will need, from its configuration alone: memory to the byte, parameters, operations, schedule.
//
// The plans are in `usage`. CONFIG and the keys are those of build/train, and plan refuses what train would refuse.
// Nothing is allocated, so any preset can be planned on any machine, for any number of ranks. memory --json prints what
// the run itself writes to account.json with --run.account=true.
//
// Exit status: 0, 1 for a configuration that cannot be planned, 2 for a wrong command line.
#include "src/check/account.h"
#include "base/check.h"
#include "base/words.h"
#include "train/grads.h"
#include "base/config.h"
#include "ops/dev_cpu.h"
#include "narrow/narrow.h"
#include "dev/plan/plan.h"
#include "dev/plan/plan_show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: plan WHAT CONFIG [--section.key=value ...]\n"
    "  memory      bytes that a training run holds, by tag, with their formulas; --json: as account.json has them;\n"
    "              --ranks N: for a run on N ranks (mpiexec -n N; by default the fewest), rank by rank;\n"
    "              --gpu NAME: whether that fits, and the largest micro-batch that does\n"
    "  table       bytes for every precision and optimizer, and for every precision and recomputation (markdown)\n"
    "  recompute   what each mode of recomputation keeps and does again (when it pays: layout)\n"
    "  params      the parameter table and its totals; --json\n"
    "  flops       floating-point operations per token, step and run; --explain: formulas with their numbers; --json\n"
    "  schedule    learning rate and batch over the run; --svg FILE: as a picture too\n"
    "  fp8         the format in which each matrix runs, with --numerics.dtype=fp8\n"
    "  CONFIG      a file or preset, and keys, as for build/train (build/train --help lists them)\n"
    "with CONFIG, on accelerators:\n"
    "  time        a step's time by operation, the pipeline's bubble, MFU, days, cost, checkpoint interval\n"
    "  traffic     what ranks send in a step (ZeRO, tp, pp, ...): bytes and seconds by group, kind and link\n"
    "  layout      every tp, cp, pp, chunks, ZeRO stage, recomputation and micro-batch that --gpus allow, "
    "by predicted\n"
    "              time; --write FILE: the fastest one's configuration\n"
    "  cluster     the same model on 1, 8, 64 ... --gpus, with stragglers and failures\n"
    "without CONFIG:\n"
    "  scaling     parameters and tokens for a budget: one or two of --flops C, --params N, --tokens D\n"
    "  approach    which parallelism for how many parameters: a guide's words, and what the search of layouts finds\n"
    "  for         the settings of a model for --bytes N of text and --minutes M on this machine\n"
    "  prepare     data for --tokens N on --hosts N: time, traffic, memory, failures, from a small preparation's --log\n"
    "  recipe      the presets in a table; recipe MODEL: as a configuration\n"
    "  machines    the tables of accelerators and links\n"
    "  published   reported runs, predicted (markdown)\n"
    "  guides      five guides' numbers beside ours (markdown); guides G1, guides wrong, guides G1-28-e: one, explained\n"
    "  optimizers  their arrays and bytes (markdown)\n"
    "  formats     range and precision of the number formats\n"
    "  noise       two estimators of the gradient noise scale, on synthetic gradients (markdown)\n";

// ---- what a configuration alone tells

static void print_schedule(Config *cfg, Run *run, const char *svg)
{
    if (!cfg->run.steps) die("run.steps is 0, so the run's length is not known before it runs (try --run.steps=1000)");
    run->cfg = *cfg;
    run_schedule(run);
    schedule_check(&run->schedule);
    schedule_print(&run->schedule, &run->ramp, cfg->run.steps, stdout);
    if (!svg) return;
    schedule_print_svg(&run->schedule, &run->ramp, cfg->run.steps, svg);
    printf("\n%s is written\n", svg);
}

// ---- what needs the run's buffers, counted

// Rank 0 in full, the others by tag; every rank is checked against its formulas.
static void print_memory(const Config *cfg, Run *run, Dev *dev, bool json)
{
    int n = (int)cfg->parallel.ranks;
    AccountRank *rank = calloc((size_t)n, sizeof *rank);
    if (!rank) die("plan: no memory for %d ranks", n);
    for (int r = 0; r < n; r++) {
        plan_open(run, cfg, dev, r);
        rank[r] = account_rank(&run->mem, NULL, NULL);
        for (int tag = 0; tag < MEM_TAGS; tag++) plan_checked(run, (MemTag)tag);
        if (r == 0 && !json) plan_print_memory(run, stdout);
        plan_close(run);
    }
    if (json) account_print(rank, n, stdout);
    for (int r = -1; !json && n > 1 && r < n; r++) { // the head, and a line for each
        printf(r < 0 ? "\nrank " : "%-5d", r);
        for (int tag = 0; tag < MEM_TAGS; tag++)
            if (r < 0) printf(" %17s", mem_tag_name((MemTag)tag));
            else printf(" %17zu", rank[r].bytes[tag]);
        if (r < 0) printf(" %17s\n", "total");
        else printf(" %17zu\n", rank[r].total);
    }
    free(rank);
}

static void print_recompute(const Run *run)
{
    Mem door = plan_door();
    recompute_print(&run->model->shape, run->dev, &door, run->model->max_batch, run->model->max_tokens, stdout);
}

// What each matrix of the table runs in.
static void print_fp8(const Run *run)
{
    Fp8 *fp8 = run->dev->fp8;
    fp8_set_sites(fp8, &run->model->params, run->cfg.numerics.fp8_keep);
    for (int i = 0; i < fp8->n_sites; i++)
        if (fp8->params->row[i].ndim == 2)
            printf("%-32s %s\n", fp8->params->row[i].name, fp8->on[i] ? "fp8" : "bf16");
}

// Checks how the model is cut over ranks, then sets everything to one rank: the cut does not change the whole model
// or its cost. Nor does the batch: a step of more micro-batches than a pipeline's table holds is checked with fewer.
static void uncut(Config *cfg, Run *run, Dev *dev)
{
    static Config few; // large
    long most = PIPELINE_MAX_MICRO / cfg->parallel.pp * cfg->parallel.pp;
    few = *cfg;
    if (cfg->parallel.pp > 1 && few.batch.accum > most) {
        few.batch.tokens = few.batch.tokens / few.batch.accum * most, few.batch.accum = most;
        few.batch.ramp_from = few.batch.ramp_by = few.batch.ramp_tokens = 0;
    }
    plan_open(run, &few, dev, 0);
    plan_close(run);
    cfg->parallel.ranks = cfg->parallel.dp = cfg->parallel.tp = cfg->parallel.cp = cfg->parallel.pp = 1;
    cfg->parallel.ep = 1;
    cfg->parallel.sp = false;
    cfg->parallel.zero = 0, cfg->parallel.chunks = 1;
    cfg->parallel.schedule = PIPELINE_1F1B;
    cfg->parallel.layers[0] = '\0';
}

typedef enum { MEMORY, TABLE, RECOMPUTE, PARAMS, FLOPS, SCHEDULE, FP8, OPTIMIZERS, FORMATS, NOISE, PLANS } Plan;
static const char *const name[PLANS] = {"memory", "table", "recompute", "params", "flops", "schedule", "fp8",
                                        "optimizers", "formats", "noise"};

// What these plans take beside a configuration and keys; the last three with a value. Memory always explains.
enum { JSON, EXPLAIN, RANKS, GPU, SVG, FLAGS };
static const struct {
    const char *name, *plans;
} flag[FLAGS] = {{"--json", "memory, params, flops, and those about accelerators"},
                 {"--explain", "memory, flops, and those about accelerators"}, {"--ranks", "memory"},
                 {"--gpu", "memory, time, traffic, layout and cluster"}, {"--svg", "schedule"}};

static void print_counted(Plan plan, Config *cfg, Run *run, bool json, bool explain, const char *gpu)
{
    plan_vocab(cfg);
    if (plan == TABLE) {
        plan_print_table(cfg, stdout);
        return;
    }
    if (plan == FP8 && cfg->numerics.dtype != CONFIG_DTYPE_FP8)
        die("numerics.dtype is not fp8 (try --numerics.dtype=fp8)");
    dev_cpu_blas_room(1, false);
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    if (plan == MEMORY) print_memory(cfg, run, dev, json);
    if (gpu) {
        Machine machine = machines_find(gpu);
        plan_print_fits(cfg, &machine, stdout);
    }
    if (plan != MEMORY) uncut(cfg, run, dev);
    plan_open(run, cfg, dev, 0);
    if (plan == RECOMPUTE) print_recompute(run);
    if (plan == PARAMS && json) plan_report_params(run, stdout);
    else if (plan == PARAMS) plan_print_params(run, stdout);
    if (plan == FLOPS && (json || explain)) plan_report_flops(run, json, stdout);
    else if (plan == FLOPS) plan_print_flops(run, stdout);
    if (plan == FP8) print_fp8(run);
    plan_close(run);
    run_device_free(dev, cpu);
}

static Plan plan_named(const char *what)
{
    int best = 0, best_distance = 1000;
    for (int i = 0; i < PLANS; i++) {
        bool begins = *what && !strncmp(what, name[i], strlen(what)); // "opt"
        int distance = begins ? 0 : words_distance(what, name[i], 1000);
        if (!strcmp(what, name[i])) return (Plan)i;
        if (distance < best_distance) best = i, best_distance = distance;
    }
    die_usage("%s: not a plan (did you mean plan %s? plan --help lists them)", what, name[best]);
}

static long number_of_ranks(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 1000000)
        die_usage("--ranks: '%s' is no number of ranks (write --ranks 4)", text);
    return n;
}

// Ranks of one copy of the model, or of several that have its experts between them.
static long fewest_ranks(const Config *cfg)
{
    long cp = cfg->parallel.cp, ep = cfg->parallel.ep, dp = 1;
    while (dp * cp % ep) dp++;
    return cfg->parallel.tp * cfg->parallel.pp * cp * dp;
}

int main(int argc, char **argv)
{
    static Config cfg;
    static Run run;
    dev_cpu_choose_blas(argv);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") && strcmp(argv[i], "-h")) continue;
        fputs(usage, stdout);
        plan_options_help();
        return 0;
    }
    if (plan_show(argc, argv, stdout)) {
        if (fflush(stdout)) die("plan: cannot write the table");
        return 0;
    }
    Plan plan = argc > 1 ? plan_named(argv[1]) : PLANS;
    bool alone = plan == OPTIMIZERS || plan == FORMATS || plan == NOISE;
    if (plan == PLANS || (!alone && argc < 3)) {
        fputs(usage, stderr);
        return 2;
    }
    if (alone && argc > 2) die_usage("%s: plan %s takes no argument", argv[2], name[plan]);

    const char *given[FLAGS] = {NULL};
    int n = 1; // argv[1 ...]: what train would be given
    argv[1] = argv[0];
    for (int i = 2; i < argc; i++) {
        int f = 0;
        while (f < FLAGS && strcmp(argv[i], flag[f].name)) f++;
        if (f == FLAGS) argv[1 + n++] = argv[i];
        else given[f] = f <= EXPLAIN ? "" : i + 1 < argc ? argv[++i] : "";
    }
    for (int f = 0; f < FLAGS; f++)
        if (given[f] && !strstr(flag[f].plans, name[plan]))
            die_usage("%s: only for plan %s", flag[f].name, flag[f].plans);
    const char *svg = given[SVG], *ranks = given[RANKS], *gpu = given[GPU];
    bool json = given[JSON], explain = given[EXPLAIN];
    if (gpu && json) die_usage("--gpu: not with --json, which has the form of account.json");
    if (svg && !*svg) die_usage("--svg: no file (write --svg FILE)");

    if (!alone) {
        config_defaults(&cfg);
        if (ranks) config_set_derived(&cfg, "parallel.ranks", number_of_ranks(ranks));
        config_parse(&cfg, n, argv + 1);
        if (!ranks) config_set_derived(&cfg, "parallel.ranks", fewest_ranks(&cfg));
        config_resolve(&cfg);
    }
    if (plan == FORMATS) plan_print_formats(stdout);
    else if (plan == NOISE) plan_print_noise(stdout, 1);
    else if (plan == OPTIMIZERS) plan_print_optimizers(stdout);
    else if (plan == SCHEDULE) print_schedule(&cfg, &run, svg);
    else print_counted(plan, &cfg, &run, json, explain, gpu);
    if (fflush(stdout)) die("plan: cannot write the table");
    return 0;
}
