// parity: trains a small model on every layout and compares what it computed with one rank's.
//
// DIR holds gpt.toml, llama.toml and experts.toml (test/parity.sh makes them, with their data). Each layout is a run of
// build/train under mpiexec: three steps of SGD, the third one dumped.
//
// A layout has a value on each of eleven axes, and a recipe. A choice by hand could miss the very pair that is wrong,
// and all combinations would be thousands of runs. So the list has every value alone, every pair of values of two axes,
// and seeded random combinations of three axes or more: most faults of interaction need only two switches (Kuhn,
// Wallace and Gallo, "Software fault interactions", IEEE TSE 30, 2004), and the random ones look for the rest. Only
// `refused` leaves layouts out, with a reason that a reader can check against the chapters. Every machine makes the
// same list.
//
// Recipes come at the end, each with some layouts that cut tensors, where every bit must be equal: optimizers that need
// whole tensors, adaptive clipping, a batch that grows, the noise scale, state that waits in a file or is updated on
// the host, norms of outputs. Then come hybrid sharding, other slots of stage 3, and the lookup in fp32.
//
// In deterministic mode (all layouts but those marked fast) losses, norms and every tensor of the dump must be equal to
// the last bit. What that mode refuses runs in the fast one: losses and norms are near, and build/diff says of the
// activations, losses, gradients and new weights of the first step that they differ as rounding does (diff.md).
//
// The invariant: a check that finds nothing to compare fails. Every tensor of the table must be there, whole, once.
#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "dev/check/diff.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- layouts

// Axes of a layout. Value 0 of each is the default, so that all zeros are one rank.
typedef enum {
    PARITY_DP, PARITY_TP, PARITY_CP, PARITY_PP, PARITY_ZERO, PARITY_EP, PARITY_RECOMPUTE, PARITY_MICRO, PARITY_DATA,
    PARITY_DTYPE, PARITY_ROUTE, PARITY_RECIPE, PARITY_AXES
} ParityAxis;
typedef enum { PARITY_GPT, PARITY_LLAMA, PARITY_EXPERTS, PARITY_FAMILIES } ParityFamily;

enum { PARITY_RANKS = 8, PARITY_OPTIONS = 24, PARITY_EACH = 6 };

static const char *const FAMILY[PARITY_FAMILIES] = {"gpt", "llama", "experts"}; // experts: llama, most layers with 8

typedef struct {
    ParityFamily family;
    bool fast;                 // else numerics.deterministic
    int value[PARITY_AXES];    // by axis, an index into the axis' values
} ParityLayout;

enum { MAX_VALUES = 16, MAX_LAYOUTS = 2048, RANDOM = 60, QUICK = 11 };

// A value of an axis; those after a gap are for the last layouts alone. ranks: the factor by
// which it multiplies the ranks; stages and chunks: of a pipeline.
typedef struct {
    const char *name, *option[PARITY_EACH];
    int ranks, stages, chunks;
} Value;

static const Value VALUE[PARITY_AXES][MAX_VALUES] = {
    [PARITY_DP] = {{"", {0}, 1}, {"dp2", {0}, 2}, {"dp4", {0}, 4}},
    [PARITY_TP] = {{"", {0}, 1}, {"tp2", {"--parallel.tp=2"}, 2}, {"tp4", {"--parallel.tp=4"}, 4},
                   {"tp2+sp", {"--parallel.tp=2", "--parallel.sp=true"}, 2},
                   {"tp4+sp", {"--parallel.tp=4", "--parallel.sp=true"}, 4}},
    [PARITY_CP] = {{"", {0}, 1}, {"cp2", {"--parallel.cp=2"}, 2}, {"cp4", {"--parallel.cp=4"}, 4},
                   {"cp2:contiguous", {"--parallel.cp=2", "--parallel.cp_assign=contiguous"}, 2},
                   {"cp2:gather", {"--parallel.cp=2", "--parallel.cp_way=gather"}, 2}},
    [PARITY_PP] = {{"", {0}, 1, 1, 1},
                   {"pp2", {"--parallel.pp=2"}, 2, 2, 1},
                   {"pp4", {"--parallel.pp=4"}, 4, 4, 1},
                   {"pp2:gpipe", {"--parallel.pp=2", "--parallel.schedule=gpipe"}, 2, 2, 1},
                   {"pp2:interleaved", {"--parallel.pp=2", "--parallel.schedule=interleaved"}, 2, 2, 2},
                   {"pp2:zb-h1", {"--parallel.pp=2", "--parallel.schedule=zb-h1"}, 2, 2, 1},
                   {"pp2:zb-v", {"--parallel.pp=2", "--parallel.schedule=zb-v"}, 2, 2, 2},
                   {"pp2:v-half", {"--parallel.pp=2", "--parallel.schedule=v-half"}, 2, 2, 2},
                   {"pp2:v-min", {"--parallel.pp=2", "--parallel.schedule=v-min"}, 2, 2, 2},
                   {"pp4:zb-h1", {"--parallel.pp=4", "--parallel.schedule=zb-h1"}, 4, 4, 1}},
    [PARITY_ZERO] = {{"", {0}, 1}, {"zero1", {"--parallel.zero=1"}, 1}, {"zero2", {"--parallel.zero=2"}, 1},
                     {"zero3", {"--parallel.zero=3"}, 1},
                     {"zero3:naive", {"--parallel.zero=3", "--parallel.reshard=false", "--parallel.overlap=false"}, 1},
                     [6] = {"zero1:shard2", {"--parallel.zero=1", "--parallel.shard=2"}, 1},
                     {"zero2:shard2", {"--parallel.zero=2", "--parallel.shard=2"}, 1},
                     {"zero3:shard2", {"--parallel.zero=3", "--parallel.shard=2"}, 1},
                     {"zero3:shard4", {"--parallel.zero=3", "--parallel.shard=4", "--parallel.overlap=false"}, 1},
                     {"zero3:ahead3", {"--parallel.zero=3", "--parallel.prefetch=3", "--parallel.keep=36000"}, 1},
                     {"zero3:ahead0", {"--parallel.zero=3", "--parallel.prefetch=0", "--parallel.keep=16000"}, 1}},
    [PARITY_EP] = {{"", {0}, 1}, {"ep2", {"--parallel.ep=2"}, 1}, {"ep4", {"--parallel.ep=4"}, 1}},
    [PARITY_RECOMPUTE] = {{"", {0}, 1}, {"selective", {"--memory.recompute=selective"}, 1},
                          {"full", {"--memory.recompute=full"}, 1},
                          {"attention", {"--memory.recompute=attention"}, 1},
                          {"away", {"--memory.offload_acts=cpu"}, 1},
                          {"full:away", {"--memory.recompute=full", "--memory.offload_acts=cpu"}, 1}},
    [PARITY_MICRO] = {{"", {"--batch.micro=2"}, 1}, {"micro1", {"--batch.micro=1"}, 1},
                      [3] = {"micro4", {"--batch.micro=4"}, 1}},
    [PARITY_DATA] = {{"", {0}, 1}, {"packed", {"--model.dropout=0.1", "--data.document_mask=true"}, 1}},
    [PARITY_DTYPE] = {{"", {0}, 1}, {"bf16", {"--numerics.dtype=bf16"}, 1},
                      [3] = {"bf16:embed", {"--numerics.dtype=bf16", "--numerics.embed_dtype=fp32"}, 1}},
    [PARITY_ROUTE] = {{"", {0}, 1},
                      {"capacity", {"--moe.capacity=1.1", "--moe.drop=lightest", "--moe.balance=sequence"}, 1},
                      {"one", {"--model.experts=64", "--model.experts_active=1", "--model.experts_renorm=false",
                               "--moe.capacity=1.5", "--moe.balance=batch", "--moe.z_coef=0.01"}, 1}, // some idle
                      {"biased", {"--model.experts_score=sigmoid", "--model.experts_groups=4",
                                  "--model.experts_groups_active=2", "--moe.balance=bias", "--moe.bias_rate=0.01",
                                  "--model.experts_shared=24"}, 1}},
    [PARITY_RECIPE] = {{"", {0}, 1},
                       {"muon", {"--optim.name=muon"}, 1},
                       {"adafactor", {"--optim.name=adafactor"}, 1},
                       {"adamw8bit", {"--optim.name=adamw8bit"}, 1},
                       {"agc", {"--optim.agc=0.01"}, 1},
                       {"ramp", {"--batch.ramp_from=256", "--batch.ramp_tokens=256"}, 1},
                       {"noise", {"--run.noise_every=1", "--run.norms_every=1"}, 1},
                       {"offload", {"--optim.name=adamw", "--memory.offload=disk"}, 1},
                       {"outputs", {"--model.norm_place=output"}, 1},
                       {"zero init", {"--model.zero_init=true"}, 1},
                       {"tf32", {"--numerics.dtype=tf32"}, 1},
                       {"cap", {"--model.logit_cap=2"}, 1},
                       {"relu2", {"--model.activation=relu2"}, 1},
                       {"host", {"--optim.name=adamw", "--memory.offload=cpu", "--memory.offload_update=cpu"}, 1}},
};

static int values_of(ParityAxis axis)
{
    int n = 1;
    while (n < MAX_VALUES && VALUE[axis][n].name) n++;
    return n;
}

static const Value *value_of(const ParityLayout *layout, ParityAxis axis)
{
    return &VALUE[axis][layout->value[axis]];
}

static int ranks_of(const ParityLayout *layout)
{
    int ranks = 1;
    for (int a = 0; a < PARITY_AXES; a++) ranks *= value_of(layout, (ParityAxis)a)->ranks;
    return ranks;
}

// Why a layout cannot run, or NULL. The run: 16 sequences of 32 tokens a step, 4 layers, 8 heads (llama: 2
// key/value heads).
static const char *refused(const ParityLayout *l)
{
    int replicas = value_of(l, PARITY_DP)->ranks * value_of(l, PARITY_CP)->ranks;
    int stages = value_of(l, PARITY_PP)->stages;
    const char *zero = value_of(l, PARITY_ZERO)->name;
    static const int each[] = {2, 1, 0, 4};
    int micro = 16 / value_of(l, PARITY_DP)->ranks / each[l->value[PARITY_MICRO]];
    bool parted = false;
    for (int a = PARITY_DP; a <= PARITY_MICRO; a++) parted |= l->value[a] > 0;
    if (!parted) return "the others are compared with it";
    if (ranks_of(l) > PARITY_RANKS) return "more than 8 ranks";
    if (l->family != PARITY_EXPERTS && (l->value[PARITY_EP] || l->value[PARITY_ROUTE])) return "there are no experts";
    if (replicas % (1 << l->value[PARITY_EP])) return "fewer ranks with other tokens than parallel.ep";
    if (l->value[PARITY_ROUTE] && l->fast) return "the bound is of the main loss alone";
    if (*zero && replicas == 1) return "ZeRO needs replicas";
    bool hybrid = strstr(zero, ":shard"), four = strstr(zero, ":shard4");
    if (hybrid && replicas < (four ? 8 : 4)) return "all replicas are one row of shards";
    if (l->value[PARITY_CP] == 3 && !l->fast) return "neighbouring tokens are no branch of the tree of sums";
    if (l->family == PARITY_EXPERTS && !strcmp(value_of(l, PARITY_RECIPE)->name, "relu2"))
        return "experts are SwiGLU networks";
    if (stages > 1 && micro < stages) return "fewer micro-batches than stages";
    return NULL;
}

// Whether deterministic mode takes the layout (doc/deterministic.md). LLaMAs have two key/value heads.
static bool has_an_order(const ParityLayout *l)
{
    int tp = value_of(l, PARITY_TP)->ranks;
    return (l->family == PARITY_GPT || tp <= 2) && (tp == 1 || !l->value[PARITY_DTYPE]);
}

static ParityLayout one_rank(const ParityLayout *layout)
{
    ParityLayout one = *layout;
    for (int a = PARITY_DP; a <= PARITY_MICRO; a++) one.value[a] = 0;
    return one;
}

static void name_of(const ParityLayout *l, char *name, size_t n_name)
{
    int at = snprintf(name, n_name, "%s%s", FAMILY[l->family], l->fast ? " fast" : "");
    bool any = false;
    for (int a = 0; a < PARITY_AXES; a++) {
        const char *text = value_of(l, (ParityAxis)a)->name;
        any |= *text != 0;
        if (*text && at < (int)n_name) at += snprintf(name + at, n_name - (size_t)at, " %s", text);
    }
    if (!any && at < (int)n_name) snprintf(name + at, n_name - (size_t)at, " one rank");
}

static int options_of(const ParityLayout *l, const char *option[PARITY_OPTIONS])
{
    int n = 0;
    if (!l->fast) option[n++] = "--numerics.deterministic=true";
    for (int a = 0; a < PARITY_AXES; a++)
        for (int i = 0; i < PARITY_EACH && value_of(l, (ParityAxis)a)->option[i]; i++) {
            check(n < PARITY_OPTIONS);
            option[n++] = value_of(l, (ParityAxis)a)->option[i];
        }
    return n;
}

// ---- the list

typedef struct {
    ParityLayout *layout;
    int n;
} List;

static void add(List *list, ParityLayout layout)
{
    layout.fast |= !has_an_order(&layout);
    if (refused(&layout)) return;
    for (int i = 0; i < list->n; i++)
        if (list->layout[i].family == layout.family && list->layout[i].fast == layout.fast &&
            !memcmp(list->layout[i].value, layout.value, sizeof layout.value)) return;
    check(list->n < MAX_LAYOUTS);
    list->layout[list->n++] = layout;
}

// Sets an axis' value. ZeRO alone gets two replicas, and experts as many as divide them.
static ParityLayout with(ParityLayout layout, ParityAxis axis, int value)
{
    layout.value[axis] = value;
    int *dp = &layout.value[PARITY_DP], ep = layout.value[PARITY_EP];
    if (axis == PARITY_ZERO && !*dp) *dp = 1;
    if (*dp < ep && !layout.value[PARITY_CP]) *dp = ep;
    return layout;
}

static void add_singles(List *list)
{
    for (int family = 0; family < PARITY_FAMILIES; family++)
        for (int fast = 0; fast < 2; fast++)
            for (int a = 0; a < PARITY_RECIPE; a++)
                for (int v = 1; v < values_of((ParityAxis)a); v++) {
                    ParityLayout none = {0};
                    none.family = (ParityFamily)family, none.fast = fast;
                    add(list, with(none, (ParityAxis)a, v));
                }
}

// Every pair of values, with the model families and the modes in turn; of experts' with the only family that has them.
static void add_pairs(List *list)
{
    int turn = 0;
    for (int a = 0; a < PARITY_RECIPE; a++)
        for (int b = a + 1; b < PARITY_RECIPE; b++)
            for (int v = 1; v < values_of((ParityAxis)a); v++)
                for (int w = 1; w < values_of((ParityAxis)b); w++, turn++) {
                    ParityLayout none = {0};
                    bool experts = a == PARITY_EP || b == PARITY_EP || a == PARITY_ROUTE || b == PARITY_ROUTE;
                    none.family = experts ? PARITY_EXPERTS : turn % 2 ? PARITY_LLAMA : PARITY_GPT;
                    none.fast = turn % 6 == 5 && a != PARITY_ROUTE && b != PARITY_ROUTE;
                    add(list, with(with(none, (ParityAxis)a, v), (ParityAxis)b, w));
                }
}

// Of models without experts, or of models whose experts ranks divide.
static void add_random(List *list, bool experts)
{
    Rng rng = rng_make(1, experts ? "parity experts" : "parity", 0);
    int wanted = list->n + RANDOM;
    for (uint64_t i = 0; list->n < wanted; i++) {
        ParityLayout layout = {0};
        layout.family = experts ? PARITY_EXPERTS : rng_below(rng, 16 * i, 2) ? PARITY_LLAMA : PARITY_GPT;
        layout.fast = rng_below(rng, 16 * i + 1, 4) == 0;
        int axes = 0;
        for (int a = 0; a < PARITY_RECIPE; a++) {
            int n = values_of((ParityAxis)a);
            int pick = (int)rng_below(rng, 16 * i + 2 + (uint64_t)a, (uint64_t)(2 * n));
            layout.value[a] = pick < n ? pick : 0;
            axes += layout.value[a] > 0;
        }
        if (experts) layout.value[PARITY_EP] = 1 + (int)(i % 2);
        if (axes > 2) add(list, layout);
    }
}

// Each recipe with layouts of tp and of ep: values of dp, tp, cp, pp, zero and ep. Key/value heads on several ranks add
// in another order, so those are GPTs.
static void add_recipes(List *list)
{
    static const int mesh[][PARITY_EP + 1] = {{0, 1}, {0, 4}, {1, 1, 0, 0, 1}, {1, 3, 0, 0, 3}, {1, 1, 1, 0, 2},
                                              {0, 1, 0, 1}, {1, 1, 0, 6, 1}, {2, 1, 0, 0, 4}, {1, 0, 0, 0, 0, 1},
                                              {2, 0, 0, 0, 3, 1}, {1, 1, 1, 0, 1, 2}, {1, 0, 0, 1, 2, 1}, {0, 0, 0, 2},
                                              {0, 0, 1, 0, 2, 1}};
    for (int recipe = 1; recipe < values_of(PARITY_RECIPE); recipe++)
        for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
            ParityLayout layout = {0};
            memcpy(layout.value, mesh[i], sizeof mesh[i]);
            layout.value[PARITY_RECIPE] = recipe;
            layout.family = layout.value[PARITY_EP] ? PARITY_EXPERTS :
                (i + (size_t)recipe) % 2 ? PARITY_LLAMA : PARITY_GPT;
            if (!has_an_order(&layout)) layout.family = PARITY_GPT;
            add(list, layout);
        }
}

// Hybrid sharding: values of dp, tp, cp, pp, zero (0: each stage in rows of two), ep, recompute and micro; of dtype and
// recipe. In the fast mode one stage of each.
static void add_shards(List *list)
{
    static const int row[][PARITY_MICRO + 3] = {
        {2}, {2, 1}, {2, 3}, {1, 0, 1}, {2, 0, 1}, {1, 0, 2}, {2, 0, 0, 1}, {2, 0, 0, 5}, {2, 0, 0, 6}, {1, 1, 1},
        {2, 0, 0, 0, 0, 1}, {2, 0, 1, 0, 9, 2}, {2, 0, 0, 0, 0, 0, 1, 1}, {2, 0, 0, 0, 0, 0, 2, 1}, {2, 0, 1, 0, 9},
        {2, 0, 0, 0, 8, 0, 0, 0, 1}, {2, 1, 0, 0, 7, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 8, 0, 0, 0, 0, 5},
        {2, 0, 0, 0, 6, 0, 0, 1, 0, 6}, {2, 0, 0, 0, 7, 0, 0, 0, 0, 7}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int zero = 6; zero < 9; zero++) {
            ParityLayout layout = {0};
            memcpy(layout.value, row[i], (PARITY_MICRO + 1) * sizeof **row);
            layout.value[PARITY_RECIPE] = row[i][PARITY_MICRO + 2];
            layout.value[PARITY_DTYPE] = row[i][PARITY_MICRO + 1];
            layout.family = row[i][PARITY_EP] ? PARITY_EXPERTS : (i + (size_t)zero) % 2 ? PARITY_LLAMA : PARITY_GPT;
            if (!row[i][PARITY_ZERO]) layout.value[PARITY_ZERO] = zero;
            add(list, layout);
            bool special = layout.value[PARITY_DTYPE] || layout.value[PARITY_RECIPE];
            layout.fast = !special && zero == 6 + (int)(i % 3);
            add(list, layout);
        }
}

// Stage 3 with other slots and some units that stay gathered: values of dp, tp, cp, pp, zero, ep, recompute and
// micro.
static void add_slots(List *list)
{
    static const int row[][PARITY_MICRO + 1] = {{1, 0, 0, 0, 10}, {2, 0, 0, 0, 11}, {1, 3, 0, 0, 10}, {1, 0, 1, 0, 11},
                                                {1, 0, 0, 5, 10}, {1, 0, 0, 6, 11}, {2, 0, 0, 0, 10, 1},
                                                {2, 0, 0, 0, 11, 2}, {2, 0, 0, 0, 10, 0, 2, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ParityLayout layout = {0};
        memcpy(layout.value, row[i], sizeof row[i]);
        layout.family = row[i][PARITY_EP] ? PARITY_EXPERTS : i % 2 ? PARITY_LLAMA : PARITY_GPT;
        layout.fast = i % 4 == 3;
        add(list, layout);
    }
}

// The lookup in fp32: values of dp, tp, cp, pp and zero. Learned positions, so GPTs alone.
static void add_lookups(List *list)
{
    static const int row[][PARITY_EP] = {{1}, {0, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 0, 1}, {1, 0, 0, 0, 2},
                                         {2, 0, 0, 0, 3}, {1, 0, 0, 1, 3}, {1, 0, 1, 6, 1}, {1, 0, 0, 0, 4},
                                         {2, 0, 0, 0, 8}, {0, 1}, {1, 3, 0, 0, 3}, {1, 1, 0, 1, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ParityLayout layout = {0};
        memcpy(layout.value, row[i], sizeof row[i]);
        layout.value[PARITY_DTYPE] = 3;
        add(list, layout);
    }
}

static ParityLayout *make_layouts(bool quick, int *n)
{
    List list = {.layout = calloc(MAX_LAYOUTS, sizeof *list.layout)};
    if (!list.layout) die("parity: no memory for %d layouts", MAX_LAYOUTS);
    add_singles(&list);
    add_pairs(&list);
    add_random(&list, false);
    add_random(&list, true);
    add_recipes(&list);
    add_shards(&list);
    add_slots(&list);
    add_lookups(&list);
    for (int i = 0; quick && i * QUICK < list.n; i++) list.layout[i] = list.layout[i * QUICK];
    *n = quick ? (list.n + QUICK - 1) / QUICK : list.n;
    return list.layout;
}

// ---- what a run wrote

enum { STEPS = 3, SECONDS = 120, NAME = 160, PATH = 1200 };

typedef struct {
    char name[NAME], dir[PATH];
    double loss[STEPS], norm[STEPS];
    int n_steps;
    DiffSide dump; // of the last update, in the fast mode of the first; n 0: none
} Outcome;

typedef struct {
    int n_tensors;
    char why[400]; // the first disagreement; "": none
    char words[100]; // of build/diff
} Verdict;

__attribute__((format(printf, 2, 3))) static void wrong(Verdict *v, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!*v->why) vsnprintf(v->why, sizeof v->why, fmt, args);
    va_end(args);
}

static void read_metrics(Outcome *out, Verdict *v)
{
    char path[PATH + 20], line[4096];
    snprintf(path, sizeof path, "%s/metrics.jsonl", out->dir);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(row, "event"));
        if (event && !strcmp(event, "train") && out->n_steps < STEPS) {
            out->loss[out->n_steps] = json_number_value(json_object_get(row, "loss"));
            out->norm[out->n_steps++] = json_number_value(json_object_get(row, "grad_norm"));
        }
        json_decref(row);
    }
    if (f) fclose(f);
    if (out->n_steps != STEPS) wrong(v, "%s: %d steps, not %d", path, out->n_steps, STEPS);
}

static void open_dump(Outcome *out, int step, Verdict *v)
{
    char dir[PATH + 40], file[PATH + 80];
    snprintf(dir, sizeof dir, "%s/dump/step_%08d", out->dir, step);
    snprintf(file, sizeof file, "%s/rank_00000.safetensors", dir);
    if (access(file, R_OK)) {
        wrong(v, "%s is not there", file);
        return;
    }
    out->dump = diff_side_open(dir);
    if (out->dump.n_absent) wrong(v, "%s: rank %d has no file", dir, out->dump.absent);
    for (int i = 0; i < out->dump.n; i++) {
        const DiffTensor *t = &out->dump.tensor[i];
        if (t->n_missing) wrong(v, "%s: %zu elements are missing", t->t.name, t->n_missing);
        if (t->disagrees) wrong(v, "%s: ranks have written different values", t->t.name);
    }
}

static void read_outcome(Outcome *out, bool fast, Verdict *v)
{
    read_metrics(out, v);
    open_dump(out, fast ? 1 : STEPS, v);
}

static void close_outcome(Outcome *out)
{
    if (out->dump.n) diff_side_close(&out->dump);
}

// ---- the verdict

// All that the last update computed: activations, losses, gradients, weights before and after.
static void check_dump(const Outcome *one, const Outcome *out, Verdict *v)
{
    if (!one->dump.n) wrong(v, "one rank has dumped nothing");
    for (int i = 0; i < one->dump.n; i++) {
        const SafeTensor *x = &one->dump.tensor[i].t;
        const DiffTensor *t = diff_side_find(&out->dump, x->name);
        if (!t && strncmp(x->name, "forward.", 8) == 0 && strstr(x->name, ".experts")) continue; // dump.c
        bool same = t && t->t.n_bytes == x->n_bytes && !memcmp(t->t.data, x->data, x->n_bytes);
        v->n_tensors++;
        if (!same) wrong(v, "%s is %s", x->name, t ? "not the same" : "not there");
    }
}

// Gradients of experts in 16 bits, of which build/diff judges activations alone: rounding may send a token to another
// expert. Each run's is off by eps of the whole gradient's norm (precision.md: 3 eps^2 = (25 L + 9) 2^-16, L = 5).
static void check_norms(const Outcome *one, const Outcome *out, Verdict *v)
{
    double all = 0, worst = 0;
    for (int i = 0; i < one->dump.n; i++) {
        const SafeTensor *x = &one->dump.tensor[i].t;
        if (strncmp(x->name, "grad.", 5)) continue;
        const DiffTensor *t = diff_side_find(&out->dump, x->name);
        if (!t || t->t.n_bytes != x->n_bytes || x->dtype != ST_F32) {
            wrong(v, "%s is not there", x->name);
            return;
        }
        const float *a = x->data, *b = t->t.data;
        double apart = 0;
        for (size_t k = 0; k < x->n_bytes / sizeof *a; k++)
            all += (double)a[k] * a[k], apart += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
        if (!(apart <= worst)) worst = apart;
    }
    double part = sqrt(worst / all) / (2 * sqrt((25 * 5 + 9) / 3.0) * 0x1p-8);
    if (!(part <= 1)) wrong(v, "a tensor's gradient is at %.2g of its bound in norm", part);
    snprintf(v->words, sizeof v->words, "in norm at most %.2g of the bound", part);
}

// build/diff's verdict on the dumps of the first update; its last line says the verdict.
static void check_rounding(const char *build, const Outcome *one, const Outcome *out, Verdict *v)
{
    char command[3 * PATH], line[2000];
    snprintf(command, sizeof command, "'%s/diff' '%s' '%s' 2>&1", build, out->dir, one->dir);
    FILE *p = popen(command, "r");
    if (!p) die("parity: no process: %s", strerror(errno));
    *line = 0;
    while (fgets(line, sizeof line, p)) {}
    line[strcspn(line, "\n")] = 0;
    const char *most = strstr(line, "at most ");
    int n = most ? (int)strcspn(most, ",") : 0;
    snprintf(v->words, sizeof v->words, "%.*s", n, most ? most : "");
    bool good = !pclose(p) && (!strncmp(line, "rounding: ", 10) || !strncmp(line, "identical: ", 11));
    if (!strncmp(line, "cannot tell: not compared: grad, updated ", 41)) check_norms(one, out, v);
    else if (!good) wrong(v, "%s", line);
}

static Verdict verdict_of(const char *build, const Outcome *one, const ParityLayout *layout, Outcome *out)
{
    Verdict v = {0};
    // The fast mode adds in another order, which 16 bits round; a wrong sum of gradients moves the next loss by more.
    bool fast = layout->fast, narrow = fast && layout->value[PARITY_DTYPE];
    double near_loss = narrow ? 1e-3 : fast ? 1e-4 : 0, near_norm = narrow ? 2e-2 : near_loss;
    read_outcome(out, fast, &v);
    for (int k = 0; k < out->n_steps; k++) {
        if (!(fabs(out->loss[k] - one->loss[k]) <= near_loss * one->loss[k]))
            wrong(&v, "step %d: loss %.9g, one rank %.9g", k + 1, out->loss[k], one->loss[k]);
        if (!(fabs(out->norm[k] - one->norm[k]) <= near_norm * one->norm[k]))
            wrong(&v, "step %d: gradient norm %.9g, one rank %.9g", k + 1, out->norm[k], one->norm[k]);
    }
    if (fast) check_rounding(build, one, out, &v);
    else check_dump(one, out, &v);
    return v;
}

// ---- the runs

typedef struct {
    const char *dir, *build, *launcher;
    bool quick, list;
    const char *only;
    int n_references;
    Outcome *reference[128];
} Parity;

// Sets the name of a run, the layout's without spaces, and its directory.
static void name_run(const Parity *p, const ParityLayout *layout, Outcome *out)
{
    name_of(layout, out->name, sizeof out->name);
    for (char *c = out->name; *c; c++)
        if (*c == ' ' || *c == ':' || *c == '+') *c = '_';
    snprintf(out->dir, sizeof out->dir, "%s/runs/%s", p->dir, out->name);
}

// Runs build/train on the layout's ranks; false: it failed, and DIR/NAME.out says why.
static bool train(const Parity *p, const ParityLayout *layout, const char *name)
{
    char file[PATH], run[NAME + 12], out[PATH], program[PATH], ranks[16];
    const char *argv[PARITY_OPTIONS + 14], *option[PARITY_OPTIONS];
    int n = 0, n_options = options_of(layout, option);
    snprintf(file, sizeof file, "%s/%s.toml", p->dir, FAMILY[layout->family]);
    snprintf(run, sizeof run, "--run.name=%s", name);
    snprintf(out, sizeof out, "%s/%s.out", p->dir, name);
    snprintf(program, sizeof program, "%s/train", p->build);
    snprintf(ranks, sizeof ranks, "%d", ranks_of(layout));
    if (ranks_of(layout) > 1) argv[n++] = p->launcher, argv[n++] = "-n", argv[n++] = ranks;
    argv[n++] = program, argv[n++] = file, argv[n++] = run;
    for (int i = 0; i < n_options; i++) argv[n++] = option[i];
    if (layout->fast) argv[n++] = "--run.dump=1"; // the weights of a later one have rounded already
    argv[n] = NULL;
    pid_t pid = fork();
    if (pid < 0) die("parity: no process: %s", strerror(errno));
    if (pid == 0) {
        if (!freopen(out, "w", stdout) || dup2(fileno(stdout), 2) < 0) _exit(126);
        alarm(SECONDS); // a layout that hangs fails
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) die("parity: %s", strerror(errno));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The one-rank run with which a layout is compared; each is run once.
static const Outcome *reference_of(Parity *p, const ParityLayout *layout)
{
    ParityLayout one = one_rank(layout);
    Verdict v = {0};
    Outcome *out = calloc(1, sizeof *out);
    if (!out) die("parity: no memory");
    name_run(p, &one, out);
    for (int i = 0; i < p->n_references; i++)
        if (!strcmp(p->reference[i]->name, out->name)) {
            free(out);
            return p->reference[i];
        }
    if (!train(p, &one, out->name)) die("parity: %s, on one rank, failed: see %s/%s.out", out->name, p->dir, out->name);
    read_outcome(out, one.fast, &v);
    if (*v.why) die("parity: %s: %s", out->name, v.why);
    check(p->n_references < 128);
    return p->reference[p->n_references++] = out;
}

// One line of the table; false: the layout does not agree.
static bool compare(Parity *p, const ParityLayout *layout)
{
    char title[NAME];
    const Outcome *one = reference_of(p, layout);
    Outcome out = {.n_steps = 0};
    Verdict v = {0};
    name_of(layout, title, sizeof title);
    name_run(p, layout, &out);
    double begin = clock_seconds();
    if (train(p, layout, out.name)) v = verdict_of(p->build, one, layout, &out);
    else wrong(&v, "the run failed: see %s/%s.out", p->dir, out.name);
    close_outcome(&out);
    printf("%-6s %-52s %d  ", *v.why ? "not ok" : "ok", title, ranks_of(layout));
    if (*v.why) printf("%s", v.why);
    else if (layout->fast) printf("%s", *v.words ? v.words : "the same bits");
    else printf("==  %d tensors", v.n_tensors);
    printf("  %.1f s\n", clock_seconds() - begin);
    fflush(stdout);
    return !*v.why;
}

static const char help[] =
    "usage: parity DIR [--quick] [--only WORD] [--list]\n"
    "  DIR          holds gpt.toml, llama.toml and experts.toml: test/parity.sh makes them, with their data\n"
    "  --quick      every eleventh layout\n"
    "  --only WORD  those with the word in their names; --list: names alone\n"
    "  exit         0 all agree, 1 not, 2 usage\n";

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    Parity p = {.build = getenv("BUILD") ? getenv("BUILD") : "build",
                .launcher = getenv("MPIEXEC") ? getenv("MPIEXEC") : "mpiexec"};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--quick")) p.quick = true;
        else if (!strcmp(argv[i], "--list")) p.list = true;
        else if (!strcmp(argv[i], "--only") && i + 1 < argc) p.only = argv[++i];
        else if (argv[i][0] != '-' && !p.dir) p.dir = argv[i];
        else die_usage("parity: '%s' (try --help)", argv[i]);
    }
    if (!p.dir && !p.list) die_usage("parity: no DIR (try --help)");
    int n, n_bad = 0, n_equal = 0, n_run = 0;
    ParityLayout *layout = make_layouts(p.quick, &n);
    for (int i = 0; i < n; i++) {
        char name[NAME];
        name_of(&layout[i], name, sizeof name);
        if (p.only && !strstr(name, p.only)) continue;
        n_run++;
        n_equal += !layout[i].fast;
        if (p.list) printf("%d  %s\n", ranks_of(&layout[i]), name);
        else n_bad += !compare(&p, &layout[i]);
    }
    printf("%d layouts, %d of them to the last bit; %d do not agree\n", n_run, n_equal, n_bad);
    for (int i = 0; i < p.n_references; i++) close_outcome(p.reference[i]), free(p.reference[i]);
    free(layout);
    return n_bad > 0;
}
