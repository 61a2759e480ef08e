// parity: layouts of one small training run, and which of them must give the same gradients.
//
// A layout is a value on each of nine axes. Choosing by hand would leave out the pair that is wrong; all combinations
// would be some thousands. So: every value alone, every pair of values of two axes, and seeded random combinations
// of three axes or more. That is what finds interactions (most need two switches: Kuhn, Wallace and Gallo, "Software
// fault interactions", IEEE TSE 30, 2004), and the random ones look for the rest.
//
// The invariant: what is left out is left out by parity_refused, with a reason that a reader can check against the
// chapters, and nothing else. The same list comes out everywhere.
//
// In deterministic mode (all but those marked fast) gradients must be equal to the last bit, but where a chapter says
// that they cannot be: ranks that share a key/value head add their own queries first, and in 16 bits tensor-parallel
// ranks round what they send.
#include "dev/check/parity.h"

#include "base/check.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VALUES = 11, MAX_LAYOUTS = 1024, RANDOM = 60, QUICK = 7 };

// A value of an axis. ranks: by which it multiplies; stages and chunks: of a pipeline.
typedef struct {
    const char *name, *option[3];
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
                   {"pp4:zb-h1", {"--parallel.pp=4", "--parallel.schedule=zb-h1"}, 4, 4, 1}},
    [PARITY_ZERO] = {{"", {0}, 1}, {"zero1", {"--parallel.zero=1"}, 1}, {"zero2", {"--parallel.zero=2"}, 1},
                     {"zero3", {"--parallel.zero=3"}, 1},
                     {"zero3:naive", {"--parallel.zero=3", "--parallel.reshard=false", "--parallel.overlap=false"}, 1}},
    [PARITY_RECOMPUTE] = {{"", {0}, 1}, {"selective", {"--memory.recompute=selective"}, 1},
                          {"full", {"--memory.recompute=full"}, 1}},
    [PARITY_MICRO] = {{"", {"--batch.micro=2"}, 1}, {"micro1", {"--batch.micro=1"}, 1}},
    [PARITY_DATA] = {{"", {0}, 1}, {"packed", {"--model.dropout=0.1", "--data.document_mask=true"}, 1}},
    [PARITY_DTYPE] = {{"", {0}, 1}, {"bf16", {"--numerics.dtype=bf16"}, 1}},
};

int parity_values(ParityAxis axis)
{
    int n = 1;
    while (n < MAX_VALUES && VALUE[axis][n].name) n++;
    return n;
}

static const Value *value_of(const ParityLayout *layout, ParityAxis axis)
{
    return &VALUE[axis][layout->value[axis]];
}

int parity_ranks(const ParityLayout *layout)
{
    int ranks = 1;
    for (int a = 0; a < PARITY_AXES; a++) ranks *= value_of(layout, (ParityAxis)a)->ranks;
    return ranks;
}

// The run: 16 sequences of 32 tokens a step, 4 layers, 8 heads (llama: 2 key/value heads).
const char *parity_refused(const ParityLayout *l)
{
    int replicas = value_of(l, PARITY_DP)->ranks * value_of(l, PARITY_CP)->ranks;
    int stages = value_of(l, PARITY_PP)->stages;
    const char *zero = value_of(l, PARITY_ZERO)->name;
    int micro = 16 / value_of(l, PARITY_DP)->ranks / (l->value[PARITY_MICRO] ? 1 : 2);
    bool parted = false;
    for (int a = PARITY_DP; a <= PARITY_MICRO; a++) parted |= l->value[a] > 0;
    if (!parted) return "that is what others are compared with";
    if (parity_ranks(l) > PARITY_RANKS) return "more than 8 ranks";
    if (*zero && replicas == 1) return "ZeRO needs replicas";
    if (stages > 1 && *zero && strcmp(zero, "zero1")) return "a pipeline takes ZeRO 0 and 1";
    if (l->value[PARITY_CP] == 3 && !l->fast) return "neighbouring tokens are no branch of the tree of sums";
    if (stages > 1 && micro < stages) return "fewer micro-batches than stages";
    return NULL;
}

bool parity_exact(const ParityLayout *l)
{
    bool tp = value_of(l, PARITY_TP)->ranks > 1;
    bool shared = l->llama && value_of(l, PARITY_TP)->ranks > 2; // two key/value heads
    return !l->fast && !shared && !(tp && l->value[PARITY_DTYPE]);
}

ParityLayout parity_reference(const ParityLayout *layout)
{
    ParityLayout one = *layout;
    for (int a = PARITY_DP; a <= PARITY_MICRO; a++) one.value[a] = 0;
    return one;
}

void parity_name(const ParityLayout *l, char *name, size_t n_name)
{
    int at = snprintf(name, n_name, "%s%s", l->llama ? "llama" : "gpt", l->fast ? " fast" : "");
    bool any = false;
    for (int a = 0; a < PARITY_AXES; a++) {
        const char *text = value_of(l, (ParityAxis)a)->name;
        any |= *text != 0;
        if (*text && at < (int)n_name) at += snprintf(name + at, n_name - (size_t)at, " %s", text);
    }
    if (!any && at < (int)n_name) snprintf(name + at, n_name - (size_t)at, " one rank");
}

int parity_options(const ParityLayout *l, const char *option[PARITY_OPTIONS])
{
    int n = 0;
    if (!l->fast) option[n++] = "--numerics.deterministic=true";
    for (int a = 0; a < PARITY_AXES; a++)
        for (int i = 0; i < 3 && value_of(l, (ParityAxis)a)->option[i]; i++) {
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
    if (parity_refused(&layout)) return;
    for (int i = 0; i < list->n; i++)
        if (list->layout[i].llama == layout.llama && list->layout[i].fast == layout.fast &&
            !memcmp(list->layout[i].value, layout.value, sizeof layout.value)) return;
    check(list->n < MAX_LAYOUTS);
    list->layout[list->n++] = layout;
}

// ZeRO alone is ZeRO with two replicas.
static ParityLayout with(ParityLayout layout, ParityAxis axis, int value)
{
    layout.value[axis] = value;
    if (axis == PARITY_ZERO && !layout.value[PARITY_DP]) layout.value[PARITY_DP] = 1;
    return layout;
}

static void add_singles(List *list)
{
    for (int family = 0; family < 2; family++)
        for (int fast = 0; fast < 2; fast++)
            for (int a = 0; a < PARITY_AXES; a++)
                for (int v = 1; v < parity_values((ParityAxis)a); v++) {
                    ParityLayout none;
                    memset(&none, 0, sizeof none);
                    none.llama = family, none.fast = fast;
                    add(list, with(none, (ParityAxis)a, v));
                }
}

// Every pair of values, the families and modes in turn.
static void add_pairs(List *list)
{
    int turn = 0;
    for (int a = 0; a < PARITY_AXES; a++)
        for (int b = a + 1; b < PARITY_AXES; b++)
            for (int v = 1; v < parity_values((ParityAxis)a); v++)
                for (int w = 1; w < parity_values((ParityAxis)b); w++, turn++) {
                    ParityLayout none;
                    memset(&none, 0, sizeof none);
                    none.llama = turn % 2, none.fast = turn % 6 == 5;
                    add(list, with(with(none, (ParityAxis)a, v), (ParityAxis)b, w));
                }
}

static void add_random(List *list)
{
    Rng rng = rng_make(1, "parity", 0);
    int wanted = list->n + RANDOM;
    for (uint64_t i = 0; list->n < wanted; i++) {
        ParityLayout layout;
        memset(&layout, 0, sizeof layout);
        layout.llama = rng_below(rng, 16 * i, 2), layout.fast = rng_below(rng, 16 * i + 1, 4) == 0;
        int axes = 0;
        for (int a = 0; a < PARITY_AXES; a++) {
            int n = parity_values((ParityAxis)a);
            int pick = (int)rng_below(rng, 16 * i + 2 + (uint64_t)a, (uint64_t)(2 * n));
            layout.value[a] = pick < n ? pick : 0;
            axes += layout.value[a] > 0;
        }
        if (axes > 2) add(list, layout);
    }
}

ParityLayout *parity_layouts(bool quick, int *n)
{
    List list = {.layout = calloc(MAX_LAYOUTS, sizeof *list.layout)};
    if (!list.layout) die("parity: no memory for %d layouts", MAX_LAYOUTS);
    add_singles(&list);
    add_pairs(&list);
    add_random(&list);
    for (int i = 0; quick && i * QUICK < list.n; i++) list.layout[i] = list.layout[i * QUICK];
    *n = quick ? (list.n + QUICK - 1) / QUICK : list.n;
    return list.layout;
}
