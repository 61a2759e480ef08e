// parity: trains a small model on every layout and compares every gradient with one rank's.
//
// DIR holds gpt.toml, llama.toml and experts.toml (test/parity.sh makes them, with their data). Each layout is a run of
// build/train under mpiexec: three steps of SGD, the third one dumped. Compared with the run of one rank: the losses
// and gradient norms of all steps, and every element of the third gradient.
//
//   ==       equal to the last bit, losses and norms too
//   0.012    largest |g - g1| / bound of a tensor, in norms; at most 1
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
// In deterministic mode (all layouts but those marked fast) gradients must be equal to the last bit. What that mode
// refuses runs in the fast one.
//
// Elsewhere they may differ by a bound. Both runs add the same terms in different orders, so a gradient is within
// lambda sqrt(n) u sum |term| of the exact sum, with u = 2^-24, and the two gradients are at most twice that apart. In
// norms sum |term| is at most the sum over tokens of |gradient of the token's loss|, which is computed here, token by
// token. Errors of the first two steps reach the third gradient through the weights. For plain SGD:
//
//   b        2 lambda sqrt(n) u sum over tokens |gradient of the token's loss|    one gradient, added in two orders
//   a        lr S, S the spectral norm of the loss' Hessian (power iteration on differences of gradients)
//   step 1   |dg| <= b                          weights are equal
//   step 2   |dw| <= lr b          |dg| <= b + S lr b = b (1 + a)
//   step 3   |dw| <= lr b (2 + a)  |dg| <= b (1 + a)^2
//
// n is the longest chain of additions: all tokens of a step, and in each of L + 2 units at most max(F, V) products for
// each of T rows. lambda = 6: rounding errors of either sign add up like a random walk, and exceed lambda sqrt(n) u
// with probability 2 exp(-lambda^2 / 2) (Higham and Mary, SIAM J. Sci. Comput. 41, 2019). The certain bound, n u, is as
// large as the gradient itself here, and would prove nothing. A loss, a mean over tokens, may differ by
// 2 lambda sqrt(n) u L from rounding, and by |g| |dw| from the weights. In 16 bits the bound is four times what
// rounding moves one rank's gradient.
//
// The invariant: a check that finds nothing to compare fails. Every tensor of the table must be there, whole, once.
#include "base/check.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/rng.h"
#include "dev/check/diff.h"
#include "net/model.h"
#include "ops/dev_cpu.h"
#include "text/packing.h"
#include "train/grads.h"
#include "train/run.h"

#include <errno.h>
#include <float.h>
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
                    ParityLayout none;
                    memset(&none, 0, sizeof none);
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
                    ParityLayout none;
                    memset(&none, 0, sizeof none);
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
        ParityLayout layout;
        memset(&layout, 0, sizeof layout);
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
            ParityLayout layout;
            memset(&layout, 0, sizeof layout);
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
            ParityLayout layout;
            memset(&layout, 0, sizeof layout);
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
        ParityLayout layout;
        memset(&layout, 0, sizeof layout);
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
        ParityLayout layout;
        memset(&layout, 0, sizeof layout);
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

// ---- one rank, and what is compared with it

typedef struct ParityReference ParityReference;

typedef struct {
    bool agrees, equal; // equal: all bits
    int n_tensors;
    double worst;       // largest |g - g1| / bound of a tensor, in norms
    char where[80];     // that tensor
    char why[200];      // the first disagreement
} ParityVerdict;

enum { STEPS = 3, ROUNDS = 10, LAMBDA = 6 };

// The files that a run wrote.
typedef struct {
    double loss[STEPS], norm[STEPS];
    float *grads;  // (n_elems), whole
    DiffSide dump; // everything else of the last update; valid if `open`
    bool open;
} Outcome;

struct ParityReference {
    char name[200];
    Config cfg;
    ModelShape shape;
    Params params;
    Outcome out;
    float *weights;    // before the last update
    bool bounded;      // each and a are known
    double each, a;    // b and a
    double rounding;   // |g - g in fp32|, the effect of 16 bits on the gradient; 0 in fp32
    double chain;
    const ParityReference *exact;
};

static bool fail(ParityVerdict *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static bool fail(ParityVerdict *v, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!*v->why) vsnprintf(v->why, sizeof v->why, fmt, args);
    va_end(args);
    v->agrees = false;
    return false;
}

// ---- a run's files

static bool read_metrics(const char *run_dir, Outcome *out, ParityVerdict *v)
{
    char path[600], line[4096];
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    FILE *f = fopen(path, "r");
    if (!f) return fail(v, "%s is not there", path);
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, NULL);
        const char *event = json_string_value(json_object_get(row, "event"));
        if (event && !strcmp(event, "train") && n < STEPS) {
            out->loss[n] = json_number_value(json_object_get(row, "loss"));
            out->norm[n++] = json_number_value(json_object_get(row, "grad_norm"));
        }
        json_decref(row);
    }
    fclose(f);
    return n == STEPS || fail(v, "%s: %d steps, not %d", path, n, STEPS);
}

static float *room(size_t n)
{
    float *x = calloc(n, sizeof *x);
    if (!x) die("parity: no memory for %zu floats", n);
    return x;
}

// The dump of the last update. False: there is none, or a part of it is missing.
static bool open_dump(const char *run_dir, DiffSide *side, ParityVerdict *v)
{
    char dir[700], file[740];
    snprintf(dir, sizeof dir, "%s/dump/step_%08d", run_dir, STEPS);
    snprintf(file, sizeof file, "%s/rank_00000.safetensors", dir);
    if (access(file, R_OK)) return fail(v, "%s is not there", file);
    *side = diff_side_open(dir);
    bool good = side->n_absent == 0 || fail(v, "%s: rank %d has no file", dir, side->absent);
    for (int i = 0; good && i < side->n; i++) {
        const DiffTensor *t = &side->tensor[i];
        if (t->n_missing) good = fail(v, "%s: %zu elements are missing", t->t.name, t->n_missing);
        else if (t->disagrees) good = fail(v, "%s: ranks have written different values", t->t.name);
    }
    if (!good) diff_side_close(side);
    return good;
}

// Reads all tensors of a kind ("grad", "weight"), whole, in the order of the table.
static bool read_rows(const DiffSide *side, const Params *params, const char *kind, float *flat, ParityVerdict *v)
{
    char name[PARAM_NAME + 16];
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        snprintf(name, sizeof name, "%s.%s", kind, row->name);
        const DiffTensor *t = diff_side_find(side, name);
        if (!t || t->t.dtype != ST_F32 || t->t.n_bytes != row->n_elems * sizeof *flat)
            return fail(v, "%s: not there, or not %zu floats", name, row->n_elems);
        memcpy(flat + row->offset, t->t.data, t->t.n_bytes);
    }
    return true;
}

static bool read_outcome(const char *run_dir, const Params *params, Outcome *out, ParityVerdict *v)
{
    if (!read_metrics(run_dir, out, v) || !open_dump(run_dir, &out->dump, v)) return false;
    out->open = true;
    return read_rows(&out->dump, params, "grad", out->grads, v);
}

static void close_outcome(Outcome *out)
{
    if (out->open) diff_side_close(&out->dump);
    free(out->grads);
}

static const char *reference_name(const ParityReference *reference)
{
    return reference->name;
}

static double distance(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

static ParityReference *reference_open(const char *name, const char *run_dir, const char *config,
                                   const ParityReference *exact)
{
    ParityReference *r = calloc(1, sizeof *r);
    ParityVerdict v = {.agrees = true};
    Unit *unit;
    if (!r) die("parity: no memory");
    snprintf(r->name, sizeof r->name, "%s", name);
    config_defaults(&r->cfg);
    config_load_file(&r->cfg, config);
    config_resolve(&r->cfg);
    if (r->cfg.run.steps != STEPS) die("%s: run.steps = %ld, not %d", config, r->cfg.run.steps, STEPS);
    r->shape = run_shape(&r->cfg);
    model_describe(&r->shape, &r->params, &unit);
    free(unit);
    r->out.grads = room(r->params.n_elems);
    r->weights = room(r->params.n_elems);
    if (!read_outcome(run_dir, &r->params, &r->out, &v) ||
        !read_rows(&r->out.dump, &r->params, "weight", r->weights, &v))
        die("parity: %s: %s", name, v.why);
    r->exact = exact;
    if (exact) r->rounding = distance(r->out.grads, exact->out.grads, r->params.n_elems);
    size_t width = r->shape.ffn > r->shape.vocab ? r->shape.ffn : r->shape.vocab;
    r->chain = (double)r->cfg.batch.tokens + (double)(r->shape.layers + 2) * (double)(r->shape.context * width);
    return r;
}

static void reference_close(ParityReference *r)
{
    params_free(&r->params);
    close_outcome(&r->out);
    free(r->weights);
    free(r);
}

// ---- the bound

// One rank's model in this process, which gives the gradients of single tokens.
typedef struct {
    const ParityReference *r;
    Model *m;
    Dataset *data;
    int32_t *token, *target, *pos, *first, *one;
    size_t valid; // of the step
    int32_t eot;
} Probe;

static void load(Probe *p, int step, size_t i)
{
    const Config *cfg = &p->r->cfg;
    size_t T = p->r->shape.context, per_step = (size_t)cfg->batch.tokens / T;
    uint64_t sample = (uint64_t)step * per_step + i;
    dataset_window(p->data, (int64_t)sample, (int)T, (uint64_t)cfg->run.seed, cfg->data.shuffle, p->token, p->target);
    if (cfg->data.document_mask) packing_positions(p->token, 1, T, p->eot, p->pos, p->first, p->target);
    model_set_dropout(p->m, (float)cfg->model.dropout, (uint64_t)cfg->run.seed, (uint32_t)step, sample);
}

static void forward_backward(Probe *p, const int32_t *target)
{
    bool documents = p->r->cfg.data.document_mask;
    model_set_batch(p->m, p->token, documents ? p->pos : NULL, target, 1, p->r->shape.context);
    if (documents) model_set_documents(p->m, p->first);
    model_forward_backward(p->m, 1 / (float)p->valid);
}

static void clear(Probe *p)
{
    p->m->dev->zero(p->m->dev, p->m->grads, p->m->params.n_elems * sizeof(float));
}

static size_t count_valid(Probe *p, int step)
{
    size_t n = 0, T = p->r->shape.context;
    for (size_t i = 0; i < (size_t)p->r->cfg.batch.tokens / T; i++) {
        load(p, step, i);
        for (size_t t = 0; t < T; t++) n += p->target[t] >= 0;
    }
    return n;
}

// Sum over the step's tokens of |gradient of the token's loss|.
static double sum_of_norms(Probe *p, int step, const float *weights)
{
    size_t T = p->r->shape.context;
    double sum = 0;
    memcpy(p->m->weights, weights, p->m->params.n_elems * sizeof *weights);
    p->valid = count_valid(p, step);
    for (size_t i = 0; i < (size_t)p->r->cfg.batch.tokens / T; i++) {
        load(p, step, i);
        for (size_t t = 0; t < T; t++) {
            if (p->target[t] < 0) continue;
            for (size_t s = 0; s < T; s++) p->one[s] = s == t ? p->target[s] : -1;
            clear(p);
            forward_backward(p, p->one);
            sum += grads_norm(p->m->dev, &p->m->params, p->m->grads, 1);
        }
    }
    return sum;
}

// Computes the last step's gradient at these weights, in m->grads.
static void gradient(Probe *p, const float *weights)
{
    memcpy(p->m->weights, weights, p->m->params.n_elems * sizeof *weights);
    clear(p);
    for (size_t i = 0; i < (size_t)p->r->cfg.batch.tokens / p->r->shape.context; i++) {
        load(p, STEPS - 1, i);
        forward_backward(p, p->target);
    }
}

// The spectral norm of the loss' Hessian at the last weights, by power iteration: |g(w + e v) - g(w)| / e is the
// estimate, and the normalized difference is the next v.
static double sensitivity(Probe *p)
{
    size_t n = p->m->params.n_elems;
    float *base = room(n), *moved = room(n);
    double s = 0, norm = 0;
    gradient(p, p->r->weights);
    memcpy(base, p->m->grads, n * sizeof *base);
    double e = 1e-3 * grads_norm(p->m->dev, &p->m->params, p->r->weights, 1) / sqrt((double)p->r->shape.layers);
    for (size_t i = 0; i < n; i++) norm += (double)base[i] * base[i];
    for (size_t i = 0; i < n; i++) moved[i] = base[i] / (float)sqrt(norm); // the first direction: the gradient's
    for (int k = 0; k < ROUNDS; k++) {
        for (size_t i = 0; i < n; i++) moved[i] = p->r->weights[i] + (float)e * moved[i];
        gradient(p, moved);
        double length = distance(p->m->grads, base, n);
        if (length / e > s) s = length / e;
        for (size_t i = 0; i < n; i++) moved[i] = (float)((p->m->grads[i] - base[i]) / length);
    }
    free(base);
    free(moved);
    return s;
}

static void find_bound(ParityReference *r)
{
    size_t T = r->shape.context, n = r->params.n_elems;
    Mem mem = {0};
    dev_cpu_blas_room(0, false);
    Dev *dev = dev_cpu_create(0);
    Probe p = {.r = r, .m = model_allocate(&r->shape, dev, &mem, 1, T, true)};
    Tokenizer *tokenizer = tokenizer_load(r->cfg.data.tokenizer);
    p.eot = tokenizer_eot(tokenizer);
    p.data = dataset_open(r->cfg.data.train, (int)r->cfg.model.vocab);
    p.token = calloc(5 * T, sizeof *p.token);
    if (!p.token) die("parity: no memory for %zu tokens", T);
    p.target = p.token + T, p.pos = p.target + T, p.first = p.pos + T, p.one = p.first + T;
    float *start = room(n);
    params_init(&r->params, (uint64_t)r->cfg.run.seed, start);
    double begin = sum_of_norms(&p, 0, start), end = sum_of_norms(&p, STEPS - 1, r->weights);
    r->each = 2 * LAMBDA * sqrt(r->chain) * (FLT_EPSILON / 2) * (begin > end ? begin : end);
    r->a = r->cfg.optim.lr * sensitivity(&p);
    r->bounded = true;
    double norm = r->out.norm[STEPS - 1], bound = r->each * (1 + r->a) * (1 + r->a);
    if (!(bound <= 0.1 * norm)) // or a missing tensor would not be noticed
        die("parity: %s: the bound %.3g is not far below the gradient's norm %.3g (lr S = %.2g: try a lower optim.lr)",
            r->name, bound, norm, r->a);
    free(start);
    free(p.token);
    dataset_close(p.data);
    tokenizer_free(tokenizer);
    model_free(p.m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

// ---- the verdict

// Compares losses and norms; `bound` is that of the last gradient.
static void check_steps(const ParityReference *r, const Outcome *out, bool exact, double bound, ParityVerdict *v)
{
    for (int k = 0; k < STEPS; k++) {
        double loss = 0, norm = 0, unit = r->exact ? 0x1p-8 : LAMBDA * sqrt(r->chain) * FLT_EPSILON;
        if (!exact) {
            loss = unit * r->out.loss[k] + 2 * r->cfg.optim.lr * bound * r->out.norm[k];
            norm = bound + 1e-8 * r->out.norm[k]; // 9 digits are printed
        }
        if (!(fabs(out->loss[k] - r->out.loss[k]) <= loss))
            fail(v, "step %d: loss %.9g, one rank %.9g, bound %.2g", k + 1, out->loss[k], r->out.loss[k], loss);
        if (!(fabs(out->norm[k] - r->out.norm[k]) <= norm))
            fail(v, "step %d: gradient norm %.9g, one rank %.9g, bound %.2g",
                 k + 1, out->norm[k], r->out.norm[k], norm);
    }
}

// Compares everything that the last update computed: activations, losses, gradients, weights before and after.
static void check_dump(const ParityReference *r, const Outcome *out, ParityVerdict *v)
{
    for (int i = 0; i < r->out.dump.n; i++) {
        const SafeTensor *one = &r->out.dump.tensor[i].t;
        const DiffTensor *t = diff_side_find(&out->dump, one->name);
        if (!t && strncmp(one->name, "forward.", 8) == 0 && strstr(one->name, ".experts")) continue; // dump.c
        bool same = t && t->t.n_bytes == one->n_bytes && !memcmp(t->t.data, one->data, one->n_bytes);
        v->equal &= same;
        v->n_tensors++;
        if (!same) fail(v, "%s is %s", one->name, t ? "not the same" : "not there");
    }
}

static void check_grads(const ParityReference *r, const Outcome *out, double bound, ParityVerdict *v)
{
    double largest = 0;
    for (int i = 0; i < r->params.n_rows; i++) {
        const Param *row = &r->params.row[i];
        const float *g = out->grads + row->offset, *one = r->out.grads + row->offset;
        double apart = distance(g, one, row->n_elems);
        v->equal &= !memcmp(g, one, row->n_elems * sizeof *g);
        v->n_tensors++;
        if (!(apart <= largest)) largest = apart, snprintf(v->where, sizeof v->where, "%s", row->name);
        if (!(apart <= bound))
            fail(v, "the gradient of %s is %.3g apart in norm, bound %.3g", row->name, apart, bound);
    }
    v->worst = bound > 0 ? largest / bound : largest;
}

static ParityVerdict verdict_of(ParityReference *r, const char *run_dir, bool to_the_bit)
{
    ParityVerdict v = {.agrees = true, .equal = true};
    Outcome out = {.grads = room(r->params.n_elems)};
    double bound = 0;
    if (!to_the_bit && !r->exact && !r->bounded) find_bound(r);
    if (!to_the_bit) bound = r->exact ? 4 * r->rounding : r->each * (1 + r->a) * (1 + r->a);
    if (read_outcome(run_dir, &r->params, &out, &v)) {
        check_steps(r, &out, to_the_bit, bound, &v);
        if (to_the_bit) check_dump(r, &out, &v);
        else check_grads(r, &out, bound, &v);
    }
    close_outcome(&out);
    return v;
}

// ---- the runs

enum { SECONDS = 120, NAME = 160, PATH = 1200 };

typedef struct {
    const char *dir, *build, *launcher;
    bool quick, list;
    const char *only;
    int n_references;
    ParityReference *reference[128];
} Parity;

// The name of a run's directory: the layout's, without spaces.
static void run_name(const ParityLayout *layout, char *name, size_t n_name)
{
    name_of(layout, name, n_name);
    for (char *p = name; *p; p++)
        if (*p == ' ' || *p == ':' || *p == '+') *p = '_';
}

// Runs build/train on the layout's ranks; false: it failed, and DIR/NAME.out says why.
static bool train(const Parity *p, const ParityLayout *layout, const char *name)
{
    char file[PATH], run[NAME + 12], out[PATH], program[PATH], ranks[16];
    const char *argv[PARITY_OPTIONS + 12], *option[PARITY_OPTIONS];
    int n = 0, n_options = options_of(layout, option);
    snprintf(file, sizeof file, "%s/%s.toml", p->dir, FAMILY[layout->family]);
    snprintf(run, sizeof run, "--run.name=%s", name);
    snprintf(out, sizeof out, "%s/%s.out", p->dir, name);
    snprintf(program, sizeof program, "%s/train", p->build);
    snprintf(ranks, sizeof ranks, "%d", ranks_of(layout));
    if (ranks_of(layout) > 1) argv[n++] = p->launcher, argv[n++] = "-n", argv[n++] = ranks;
    argv[n++] = program, argv[n++] = file, argv[n++] = run;
    for (int i = 0; i < n_options; i++) argv[n++] = option[i];
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

static void run_dir(const Parity *p, const char *name, char *dir, size_t n_dir)
{
    snprintf(dir, n_dir, "%s/runs/%s", p->dir, name);
}

// The one-rank run with which a layout is compared; each is run once.
static ParityReference *reference_of(Parity *p, const ParityLayout *layout)
{
    ParityLayout one = one_rank(layout);
    char name[NAME], dir[PATH], file[PATH + 20];
    run_name(&one, name, sizeof name);
    for (int i = 0; i < p->n_references; i++)
        if (!strcmp(reference_name(p->reference[i]), name)) return p->reference[i];
    if (!train(p, &one, name)) die("parity: %s, on one rank, failed: see %s/%s.out", name, p->dir, name);
    check(p->n_references < 128);
    const ParityReference *exact = NULL; // of a 16-bit run: the same in fp32
    ParityLayout wide = one;
    wide.value[PARITY_DTYPE] = 0;
    if (one.value[PARITY_DTYPE]) exact = reference_of(p, &wide);
    run_dir(p, name, dir, sizeof dir);
    snprintf(file, sizeof file, "%s/config.toml", dir);
    p->reference[p->n_references] = reference_open(name, dir, file, exact);
    return p->reference[p->n_references++];
}

// One line of the table; false: the layout does not agree.
static bool compare(Parity *p, const ParityLayout *layout)
{
    char name[NAME], dir[PATH], title[NAME];
    ParityReference *one = reference_of(p, layout);
    run_name(layout, name, sizeof name);
    name_of(layout, title, sizeof title);
    run_dir(p, name, dir, sizeof dir);
    double begin = clock_seconds();
    bool ran = train(p, layout, name);
    ParityVerdict v = {0};
    if (ran) v = verdict_of(one, dir, !layout->fast);
    printf("%-6s %-52s %d  ", ran && v.agrees ? "ok" : "not ok", title, ranks_of(layout));
    if (!ran) printf("the run failed: see %s/%s.out", p->dir, name);
    else if (v.equal) printf("%10s  %d tensors", "==", v.n_tensors);
    else printf("%10.2e  %s", v.worst, v.where);
    printf("  %.1f s\n", clock_seconds() - begin);
    if (ran && !v.agrees) printf("       %s\n", v.why);
    fflush(stdout);
    return ran && v.agrees;
}

static const char help[] =
    "usage: parity DIR [--quick] [--only WORD] [--list]\n"
    "  DIR          holds gpt.toml, llama.toml and experts.toml: test/parity.sh makes them, with their data\n"
    "  --quick      every eleventh layout\n"
    "  --only WORD  those with the word in their names; --list: names alone\n"
    "  exit         0 all agree, 1 not, 2 usage\n";

int main(int argc, char **argv)
{
    dev_cpu_choose_blas(argv);
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
    for (int i = 0; i < p.n_references; i++) reference_close(p.reference[i]);
    free(layout);
    return n_bad > 0;
}
