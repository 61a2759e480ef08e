// diff: is this difference rounding or a bug? Compares two sets of named tensors, element by element.
//
//   build/diff A B [--only PATTERN] [--exact] [--rtol X] [--atol X] [--a-dtype TYPE] [--b-dtype TYPE] [--all] [--json]
//
// A and B are dumps of an update (run.dump), runs (their latest common dump, else their newest checkpoints),
// checkpoints, or safetensors files. B is the reference. A dump's pieces are put together whatever the layout that
// wrote them; what is missing is reported.
//
// The tensors are walked in the order in which A's program computed them, because the first one that leaves the
// bound is where to look: what comes later may only inherit its error.
//
// For dumps, and files of other programs whose tensors have a dump's names, the bound is what rounding may do to the
// tensor, given the type it was stored in, its depth and the length of its sums (dev/check/diff.c, doc/diff.md), and
// the difference must not be systematic (dev/check/systematic.c). For everything else, and with --exact: equal bits.
// With --rtol or --atol: |a - b| <= atol + rtol |b|, and both finite or equal bits. Every test reads
// !(difference <= bound), so that NaN fails it.
//
// What went in (tokens, targets, weights, the optimizer's state) must be the same: else the verdict is `cannot tell`,
// as it is where a whole group of tensors was not compared.
//
// Exit status: 0 identical, or rounding; 1 different (or a file cannot be read); 2 wrong command line; 3 cannot tell.
#include "base/check.h"
#include "tools/options.h"
#include "dev/check/curves.h"
#include "dev/check/judge.h"
#include "dev/check/routing.h"
#include "dev/check/twice.h"

#include <fnmatch.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 37, AFTER = 6, BAR = 40, GROUPS = DUMP_UPDATED + 1 }; // AFTER: rows after the first one out of bound

typedef struct {
    bool all, json, quiet;                 // quiet: the verdict is all that is asked for
    bool gone;                             // the runs will be: no command names them
    OptionList only;                       // patterns of names; none: all
    const char *red, *green, *dim, *plain; // escape codes for a terminal; else empty
} Options;

typedef struct {
    Judge judge;
    Routing routing;          // which experts tokens chose; empty: there are none, or bits are compared
    Options o;
    DiffStats all;
    Judgement first_judged;
    const DiffTensor *first;  // out of bound; NULL: none
    const DiffTensor *worst;  // nearest to its bound, of those that are within
    double worst_ratio;
    double *seen;             // of the tensors that differ: from which factor on an error would have been seen
    int n_seen;
    const DiffTensor *blind, *sharp; // of these, the one with the largest, with the smallest
    double blind_seen, sharp_seen;
    int n_tensors, n_out, n_differ, n_equal, n_hidden; // n_equal: successive, not printed yet
    int n_apart;              // on one side only, or lacking something: not compared
    int n_routed;             // of these, sums over tokens that chose other experts
    int n_of[GROUPS][2];      // of each DumpKind: tensors that either side has; that were compared
    char other_input[2600];   // which inputs differ, and what to do; empty: none that is known
    char group[16];
    // The row to be printed next: of the unit's tensors that differ within their bounds, the nearest to its bound.
    char unit[80], row[300];
    double row_ratio;
    int n_unit; // tensors of the unit so far
} Report;

static bool begins(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

static bool same_shape(const SafeTensor *a, const SafeTensor *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

// ---- the table

static const char *shape_text(char text[80], const SafeTensor *t)
{
    int at = snprintf(text, 80, "(");
    for (int d = 0; d < t->ndim && at < 56; d++)
        at += snprintf(text + at, 80 - (size_t)at, "%s%zu", d ? "," : "", t->shape[d]);
    snprintf(text + at, 80 - (size_t)at, ")");
    return text;
}

// Prints the rows that wait.
static void flush_rows(Report *r)
{
    if (r->n_unit) printf(r->n_unit > 1 ? "%s of %d\n" : "%s\n", r->row, r->n_unit);
    r->n_unit = 0;
    if (r->n_equal)
        printf("  %s%d tensor%s: identical%s\n", r->o.dim, r->n_equal, r->n_equal > 1 ? "s" : "", r->o.plain);
    r->n_equal = 0;
}

// A dump's tensors are grouped by the first word of their names (grad, weight, ...); rows print the rest.
static const char *group_of(Report *r, const char *name)
{
    const char *dot = strchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : strlen(name);
    if (!r->judge.a->dump || n >= sizeof r->group) return name;
    if (strncmp(r->group, name, n) || r->group[n]) {
        flush_rows(r);
        snprintf(r->group, sizeof r->group, "%.*s", (int)n, name);
        const char *more = strcmp(r->group, "grad") ? "" : "ients, summed over the update";
        if (r->o.all || r->n_out <= AFTER) printf("%s%s\n", r->group, more);
    }
    return dot ? dot + 1 : name;
}

static bool hides(Report *r)
{
    if (r->o.all || r->n_out <= AFTER) return false;
    r->n_hidden++;
    return true;
}

static void row_trouble(Report *r, const char *name, const char *shape, const char *trouble)
{
    if (r->o.json || r->o.quiet) return;
    name = group_of(r, name);
    if (hides(r)) return;
    flush_rows(r);
    printf("  %-*s %12s  %s%s%s\n", NAME - 2, name, shape, r->o.red, trouble, r->o.plain);
}

// The part of a name that stands for its unit: "grad.layers.3", "forward.head".
static void unit_of(const char *name, char unit[80])
{
    const char *layers = strstr(name, "layers."), *dot = strchr(name, '.');
    const char *end = layers ? strchr(layers + strlen("layers."), '.') : dot ? strchr(dot + 1, '.') : NULL;
    snprintf(unit, 80, "%.*s", end ? (int)(end - name) : 79, name);
}

// A number in 8 columns, or what stands for it.
static const char *short_number(char text[24], bool known, double x)
{
    if (!known) snprintf(text, 24, "%s", "");
    else if (isfinite(x)) snprintf(text, 24, "%.2g", x);
    else snprintf(text, 24, "-");
    return text;
}

static void write_row(char row[300], const Report *r, const DiffTensor *a, const char *name, const Judgement *j)
{
    const DiffStats *s = &j->stats;
    char shape[80], median[48], part[24], scale[24], seen[24], power[64] = "";
    int middle = diff_stats_median(s);
    diff_stats_label(middle, median);
    if (middle > 13 && middle != DIFF_STATS_NAN) snprintf(median, sizeof median, "~2^%d", middle - 1);
    if (r->judge.rule == JUDGE_EXACT) snprintf(part, sizeof part, "%zu", s->n_differ);
    else short_number(part, true, s->ratio);
    bool fitted = j->tested && s->n_differ && j->systematic.test[0].limit < INFINITY;
    if (r->judge.rule == JUDGE_ROUNDING)
        snprintf(power, sizeof power, " %8s %8s", short_number(scale, fitted, j->systematic.test[0].x),
                 short_number(seen, j->tested, j->systematic.seen));
    snprintf(row, 300, "  %-*s %12s %8.2g %8.2g %8s %10llu %8s%s %s%s%s%s%s", NAME - 2, name, shape_text(shape, &a->t),
             s->max_abs, s->max_rel, median, (unsigned long long)s->max_ulp, part, power,
             j->out ? r->o.red : s->n_differ ? "" : r->o.green, j->out ? "OUT" : s->n_differ ? "~" : "=", r->o.plain,
             j->kind >= 0 ? " " : "", systematic_name(j->kind));
}

static void row_numbers(Report *r, const DiffTensor *a, const Judgement *j)
{
    char unit[80];
    if (r->o.json || r->o.quiet) return;
    const char *name = group_of(r, a->t.name);
    bool brief = r->judge.a->dump && !r->o.all && !j->out;
    unit_of(a->t.name, unit);
    bool same_unit = brief && r->n_unit && !strcmp(unit, r->unit);
    if (same_unit) r->n_unit++;
    if (!j->out && !j->stats.n_differ && !r->o.all) {
        r->n_equal += !same_unit;
        return;
    }
    if (hides(r) || (same_unit && j->stats.ratio <= r->row_ratio)) return;
    if (!same_unit) {
        flush_rows(r);
        r->n_unit = 1;
        snprintf(r->unit, sizeof r->unit, "%s", unit);
    }
    write_row(r->row, r, a, name, j);
    r->row_ratio = j->stats.ratio;
    if (!brief) flush_rows(r);
}

static void note_out(Report *r, const DiffTensor *a, const Judgement *j)
{
    if (r->n_out++) return;
    r->first = a;
    if (j) r->first_judged = *j;
}

static void note_seen(Report *r, const DiffTensor *a, const Judgement *j)
{
    if (!j->tested || !j->stats.n_differ) return; // of equal bits all would be seen
    r->seen = realloc(r->seen, ((size_t)r->n_seen + 1) * sizeof *r->seen);
    if (!r->seen) die("diff: no memory for %d tensors", r->n_seen);
    r->seen[r->n_seen++] = j->systematic.seen;
    if (!r->blind || j->systematic.seen > r->blind_seen) r->blind = a, r->blind_seen = j->systematic.seen;
    if (!r->sharp || j->systematic.seen < r->sharp_seen) r->sharp = a, r->sharp_seen = j->systematic.seen;
}

// What is wrong with a pair before its numbers are looked at; NULL: nothing.
static const char *trouble_of(const Report *r, const DiffTensor *a, const DiffTensor *b, char text[200])
{
    char other[80];
    const DiffTensor *side[2] = {a, b};
    if (!same_shape(&a->t, &b->t)) {
        snprintf(text, 200, "shape is %s in B", shape_text(other, &b->t));
        return text;
    }
    for (int i = 0; i < 2; i++) {
        if (side[i]->n_missing)
            snprintf(text, 200, "%zu of %zu elements are in no file of %c", side[i]->n_missing, side[i]->t.n_elems,
                     "AB"[i]);
        else if (side[i]->disagrees)
            snprintf(text, 200, "ranks of %c do not agree in the %zu elements that they share", "AB"[i],
                     side[i]->n_twice);
        else continue;
        return text;
    }
    if (r->judge.rule == JUDGE_EXACT && a->t.dtype != b->t.dtype) {
        snprintf(text, 200, "dtype is %s, %s in B", safetensors_dtype_name(a->t.dtype),
                 safetensors_dtype_name(b->t.dtype));
        return text;
    }
    return NULL;
}

static bool wanted(const Report *r, const char *name)
{
    for (size_t i = 0; i < r->o.only.n; i++)
        if (fnmatch(r->o.only.word[i], name, 0) == 0) return true;
    return !r->o.only.n;
}

// Rows by slot, which ranks that divide the experts, or their columns, do not have (dump.h); tokens, of older dumps.
static bool optional(const char *name)
{
    const char *last = strrchr(name, '.');
    return begins(name, "input.") || (last && (!strcmp(last, ".experts_pre") || !strcmp(last, ".experts_act") || !strcmp(last, ".experts_down")));
}

// A tensor that cannot be compared. must: of a whole dump each should be there; another program's file has what it has.
static void row_apart(Report *r, const DiffTensor *t, const char *why, bool must)
{
    char shape[80];
    bool whole = must && ((r->judge.a->header && r->judge.b->header) || r->judge.rule != JUDGE_ROUNDING);
    if (whole) note_out(r, t, NULL), r->n_tensors++;
    else r->n_apart++;
    if (whole || r->o.all) row_trouble(r, t->t.name, shape_text(shape, &t->t), why);
}

// Without what follows from choices of experts that differ.
static Judgement judge_pair(const Report *r, const DiffTensor *a, const DiffTensor *b)
{
    const RoutingLayer *layer = routing_layer(&r->routing, a);
    if (layer) return routing_judge(layer, a, b);
    DiffTensor own_a = *a, own_b = *b;
    void *masked_a = routing_masked(&r->routing, a), *masked_b = NULL;
    if (masked_a) { // of both the same tokens: those of A's order
        own_b.at = a->at;
        masked_b = routing_masked(&r->routing, &own_b);
        own_a.t.data = masked_a, own_b.t.data = masked_b;
    }
    Judgement j = judge(&r->judge, &own_a, &own_b);
    free(masked_a), free(masked_b);
    return j;
}

static void count_group(Report *r, const DiffTensor *t, int compared)
{
    DumpKind kind;
    if (diff_kind(t->t.name, &kind)) r->n_of[kind][compared]++;
}

static void compare(Report *r, const DiffTensor *a)
{
    char text[200], shape[80];
    count_group(r, a, 0);
    const DiffTensor *b = diff_side_find(r->judge.b, a->t.name);
    const char *lacks = b ? judge_lacks(&r->judge, a) : "not in B";
    if (lacks) {
        row_apart(r, a, lacks, b || !optional(a->t.name));
        return;
    }
    if ((lacks = routing_lacks(&r->routing, a))) {
        row_apart(r, a, lacks, false);
        r->n_routed++;
        return;
    }
    const char *trouble = trouble_of(r, a, b, text);
    r->n_tensors++;
    count_group(r, a, 1);
    if (trouble) {
        note_out(r, a, NULL);
        row_trouble(r, a->t.name, shape_text(shape, &a->t), trouble);
        return;
    }
    Judgement j = judge_pair(r, a, b);
    diff_stats_add(&r->all, &j.stats);
    r->n_differ += j.stats.n_differ > 0;
    note_seen(r, a, &j);
    if (j.out) note_out(r, a, &j);
    else if (j.stats.ratio > r->worst_ratio) {
        r->worst_ratio = j.stats.ratio;
        r->worst = a;
    }
    row_numbers(r, a, &j);
}

// ---- what went in

static void place_text(char text[120], const Report *r, const DiffTensor *t, size_t i);

// What a path stands in, in a command that may itself be in single quotes.
static const char *quote_of(const char *path)
{
    return path[strcspn(path, " \t()&;<>|*?[]#~")] ? "\"" : "";
}

// How a dump's run is made again.
static void command_of(const DiffSide *s, char side, bool gone, char text[1100])
{
    char path[1100], ranks[40] = "";
    const char *dump = strstr(s->path, "/dump/step_");
    snprintf(path, sizeof path, "%.*s/config.toml", dump ? (int)(dump - s->path) : 0, s->path);
    if (s->ranks > 1) snprintf(ranks, sizeof ranks, "mpiexec -n %ld ", s->ranks);
    bool plain = !path[strcspn(path, "'\"$`\\")]; // others are left to the reader
    const char *quote = quote_of(path);
    if (dump && !gone && plain && !access(path, R_OK))
        snprintf(text, 1100, "%sbuild/train %s%.1000s%s", ranks, quote, path, quote);
    else snprintf(text, 1100, "COMMAND OF %c", side);
}

// Commands that begin with the same: --twice after the first update, else the weights of B in A's run, or of another
// program's A in B's.
static void say_other_start(Report *r, bool weights)
{
    const char *what = weights ? "the weights" : "the optimizer's state";
    char command[2][1100], more[1200] = "";
    const DiffSide *a = r->judge.a, *b = r->judge.b, *from = a->header ? b : a;
    bool later = a->update > 1 && b->update > 1;
    command_of(a, 'A', r->o.gone, command[0]), command_of(b, 'B', r->o.gone, command[1]);
    if (!later && !weights) { // no command sets the state alone
        snprintf(r->other_input, sizeof r->other_input, "%s already differed before this step: begin both with a fresh "
                 "optimizer, or from the same checkpoint", what);
        return;
    }
    if (later) snprintf(more, sizeof more, "' '%s' --update %ld", command[1], a->update);
    else if (r->o.gone || from->ranks > 1) snprintf(more, sizeof more, " --ckpt.init=MODEL.safetensors, and so B");
    else snprintf(more, sizeof more, " --ckpt.init=%s%.1000s%s%s", quote_of(from->path), from->path,
                  from->ranks == 1 && !strstr(from->path, ".safetensors") ? "/rank_00000.safetensors" : "",
                  quote_of(from->path));
    snprintf(r->other_input, sizeof r->other_input, "%s already differed before this step: start both from the same "
             "checkpoint: %s%s%s", what, later ? "build/diff --twice '" : "", command[!later && from == a], more);
}

// Finds out whether both began with the same. With --exact the first bit that differs is asked for, of inputs too; and
// a weight that one dump lacks, or that has another shape, is a difference of the models.
static void check_input(Report *r)
{
    const Judge *j = &r->judge;
    bool weights = false, before = j->a->knows_before && j->b->knows_before && j->a->before != j->b->before;
    char place[120] = "the first";
    for (int i = 0; i < j->a->n && j->rule != JUDGE_EXACT; i++) {
        const DiffTensor *a = &j->a->tensor[i], *b = diff_side_find(j->b, a->t.name);
        bool input = begins(a->t.name, "input."), same = b && same_shape(&a->t, &b->t);
        if (!input && !begins(a->t.name, "weight.")) continue;
        if (!input && !same && j->a->header && j->b->header) return;
        if (!b || a->n_missing || b->n_missing || (same && !judge(j, a, b).out)) continue;
        weights |= !input;
        if (!input) continue;
        for (size_t at = 0; same && at < a->t.n_elems; at++)
            if (diff_stats_bits(&a->t, at) != diff_stats_bits(&b->t, at)) {
                place_text(place, r, a, at);
                break;
            }
        snprintf(r->other_input, sizeof r->other_input, "other %s, from %s on: dump both for the same batch",
                 a->t.name + strlen("input."), place);
        return;
    }
    if (j->rule == JUDGE_ROUNDING && (weights || before))
        say_other_start(r, weights);
}

// ---- below the table

// Where element i stands: sample, token and channel of a dump's activations, else an index for each axis.
static void place_text(char text[120], const Report *r, const DiffTensor *t, size_t i)
{
    const char *name = t->t.name, *last = strrchr(name, '.');
    size_t index[PART_DIMS] = {0}, D = r->judge.a->head_size;
    int ndim = t->t.ndim <= PART_DIMS ? t->t.ndim : 0, at = 0;
    for (int d = ndim - 1; d >= 0; d--) {
        index[d] = i % t->t.shape[d];
        i /= t->t.shape[d];
    }
    if (r->judge.a->dump && (begins(name, "forward.") || begins(name, "backward.") || begins(name, "loss") ||
                             begins(name, "input."))) {
        at = snprintf(text, 120, "sample %zu, token %zu", index[0], index[1]);
        if (ndim < 3) return;
        bool heads = D && last && begins(name, "forward.layers.") &&
                     (strchr("qkv", last[1]) || !strcmp(last, ".attn"));
        bool chosen = last && (!strcmp(last, ".choice") || !strcmp(last, ".weights"));
        if (heads) snprintf(text + at, 120 - (size_t)at, ", head %zu, %zu", index[2] / D, index[2] % D);
        else if (chosen) snprintf(text + at, 120 - (size_t)at, ", choice %zu", index[2]);
        else if (last && !strcmp(last, ".router")) snprintf(text + at, 120 - (size_t)at, ", expert %zu", index[2]);
        else snprintf(text + at, 120 - (size_t)at, ", channel %zu", index[2]);
        return;
    }
    at = snprintf(text, 120, "[");
    for (int d = 0; d < ndim; d++) at += snprintf(text + at, 120 - (size_t)at, "%s%zu", d ? "," : "", index[d]);
    snprintf(text + at, 120 - (size_t)at, "]");
}

// What is systematic about the first tensor out of bound, in words.
static void print_systematic(const Report *r, const Judgement *j)
{
    static const char *const words[] = {
        "each number of A is that of B times 1 %+.2g", "A has %+.2g rms(B) more everywhere",
        "A is %+.2g |B| above B", "A over B changes by %+.2g from the middle to the last row (token)",
        "A over B changes by %+.2g from the middle to the last column"};
    const Systematic *s = &j->systematic;
    if (j->kind < 0) return;
    const SystematicTest *t = &s->test[j->kind];
    printf("  systematic (%s%s%s): ", r->o.red, systematic_name(j->kind), r->o.plain);
    printf(words[j->kind], t->x);
    printf(", known to %.1g; rounding may do %.2g\n", t->error, t->limit);
}

static void print_first(const Report *r)
{
    char shape[80], place[120], ratio[24];
    const DiffTensor *a = r->first, *b = diff_side_find(r->judge.b, a->t.name);
    const DiffStats *s = &r->first_judged.stats;
    printf("\n%sfirst out of bound: %s%s %s", r->o.red, a->t.name, r->o.plain, shape_text(shape, &a->t));
    if (!s->n) { // not compared
        printf("\n");
        return;
    }
    printf(", %zu of %zu elements\n", s->n_out, s->n);
    print_systematic(r, &r->first_judged);
    printf("  %-34s %15s %15s %10s  %s\n", "worst elements", "A", "B",
           r->judge.rule == JUDGE_EXACT ? "" : "of bound", "bits");
    for (int k = 0; k < s->n_worst; k++) {
        size_t i = s->worst[k];
        snprintf(ratio, sizeof ratio, "%.3g", s->worst_ratio[k]);
        place_text(place, r, a, i);
        int n_a = 2 * (int)safetensors_dtype_bytes(a->t.dtype), n_b = 2 * (int)safetensors_dtype_bytes(b->t.dtype);
        printf("  %-34s %15.9g %15.9g %10s  %0*llx %0*llx\n", place, diff_stats_value(&a->t, i),
               diff_stats_value(&b->t, i), r->judge.rule == JUDGE_EXACT ? "" : ratio, n_a,
               (unsigned long long)diff_stats_bits(&a->t, i), n_b, (unsigned long long)diff_stats_bits(&b->t, i));
    }
}

static void print_histogram(const Report *r)
{
    const DiffStats *first = r->first && r->first_judged.stats.n ? &r->first_judged.stats : NULL;
    const DiffStats *drawn = first ? first : &r->all;
    const SafeTensor *t = first ? &r->first->t : NULL;
    size_t most = 1, label = 0;
    int top = 0;
    char text[48];
    for (int i = 0; i < DIFF_STATS_BUCKETS; i++) {
        if (drawn->bucket[i] > most) most = drawn->bucket[i];
        if (r->all.bucket[i] && i != DIFF_STATS_NAN) top = i;
    }
    if (t) label = strlen(t->name);
    printf("\n  %-16s %14s", "ULPs apart", "all elements");
    if (t) printf(" %*s", label > 14 ? (int)label : 14, t->name);
    printf("\n");
    for (int i = 0; i < DIFF_STATS_BUCKETS; i++) {
        if (i > top && !(i == DIFF_STATS_NAN && r->all.bucket[i])) continue;
        if (i > 0 && !r->all.bucket[i] && !r->all.bucket[i - 1]) continue; // prints the first of several empty ones
        printf("  %-16s %14zu", diff_stats_label(i, text), r->all.bucket[i]);
        if (t) printf(" %*zu", label > 14 ? (int)label : 14, first->bucket[i]);
        size_t bar = (drawn->bucket[i] * BAR + most - 1) / most;
        printf(bar ? "  %.*s\n" : "\n", (int)bar, "########################################");
    }
}

static void print_notes(const Report *r)
{
    const DiffSide *side[2] = {r->judge.a, r->judge.b};
    if (r->all.n_both_nan) printf("note: %zu elements are the same NaN on both sides\n", r->all.n_both_nan);
    for (int i = 0; i < 2; i++) {
        size_t twice = 0;
        for (int k = 0; k < side[i]->n; k++) twice += side[i]->tensor[k].n_twice;
        if (side[i]->n_absent)
            printf("note: %c lacks the files of %d rank%s, the first is rank %d\n", "AB"[i], side[i]->n_absent,
                   side[i]->n_absent > 1 ? "s" : "", side[i]->absent);
        if (twice) printf("note: %zu elements of %c are in more than one file\n", twice, "AB"[i]);
    }
    for (int i = 0; i < r->routing.n; i++) {
        const RoutingLayer *l = &r->routing.layer[i];
        if (!l->other && !l->order) continue;
        printf("note: layers.%zu: %zu of %zu tokens chose other experts, %zu the same in another order: ", l->layer,
               l->other, l->tokens, l->order);
        if (l->far) printf("%zu of them by more than rounding\n", l->far);
        else printf("ties, but for rounding\n");
    }
    if (r->n_routed)
        printf("note: %d gradients, states and updates were not compared, nor activations that these tokens changed (in "
               "fp32 ties are rare; with model.experts_active = model.experts there are none)\n", r->n_routed);
    if (r->n_apart > r->n_routed)
        printf("note: %d tensors were not compared: one side does not have them, or lacks what their bound needs "
               "(--all names them)\n", r->n_apart - r->n_routed);
}

// The groups of which nothing was compared, as "grad, state". Another program's file may lack them. False: none.
static bool groups_apart(const Report *r, char text[100])
{
    static const char *const name[GROUPS] = {"weight", "forward", "loss", "backward", "grad", "state", "updated"};
    int at = 0;
    text[0] = '\0';
    for (int k = 0; k < GROUPS && r->judge.rule == JUDGE_ROUNDING; k++)
        if (r->n_of[k][0] && !r->n_of[k][1])
            at += snprintf(text + at, 100 - (size_t)at, "%s%s", at ? ", " : "", name[k]);
    return at > 0;
}

typedef enum { ALIKE, DIFFERENT, CANNOT_TELL = 3 } Verdict; // the exit status

static Verdict verdict_of(const Report *r)
{
    char text[100];
    if (*r->other_input) return CANNOT_TELL;
    return r->n_out ? DIFFERENT : r->n_tensors && !groups_apart(r, text) ? ALIKE : CANNOT_TELL;
}

static const char *verdict_word(const Report *r)
{
    Verdict v = verdict_of(r);
    return v == DIFFERENT ? "DIFFERENT" : v == CANNOT_TELL ? "cannot tell" : !r->n_differ ? "identical"
           : r->judge.rule == JUDGE_ROUNDING ? "rounding" : "within";
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The factor that would have been seen in half of the tensors that were tested; -1: none was.
static double median_seen(const Report *r)
{
    if (!r->n_seen) return -1;
    qsort(r->seen, (size_t)r->n_seen, sizeof *r->seen, by_size);
    return r->seen[r->n_seen / 2];
}

static void print_seen(const char *where, double seen)
{
    if (isfinite(seen)) printf("%s from 1 +- %.1g on", where, seen);
    else printf("%s never", where);
}

// What the verdict may hide: the end of its line.
static void print_power(const Report *r)
{
    double median = median_seen(r);
    if (r->judge.rule == JUDGE_GIVEN) printf("; more than %g + %g |b| would be seen\n", r->judge.atol, r->judge.rtol);
    else if (median < 0) printf("; one bit would be seen\n");
    else {
        print_seen("; a factor on all of a tensor would be seen", r->sharp_seen);
        printf(" (%s)", r->sharp->t.name);
        print_seen(", in half of those that differ", median);
        printf(", in %s", r->blind->t.name);
        print_seen("", r->blind_seen);
        printf("\n");
    }
}

// Two checkpoints are compared bit by bit. What else may have made them different?
static void print_checkpoints(const Report *r)
{
    const Ckpt *a = r->judge.a->ckpt, *b = r->judge.b->ckpt;
    if (!a || !b) return;
    if (a->state.step != b->state.step)
        printf("; A is after update %ld, B after update %ld", a->state.step, b->state.step);
    else if (r->judge.rule == JUDGE_EXACT)
        printf("; if only the order of sums or the dtype differs, one update from the same weights tells rounding from a bug: "
               "build/diff --twice 'COMMAND OF A' 'COMMAND OF B'");
}

static void print_verdict(const Report *r)
{
    char apart[100];
    Verdict v = verdict_of(r);
    bool groups = groups_apart(r, apart);
    printf("\n%s%s%s: ", v == ALIKE ? r->o.green : r->o.red, verdict_word(r), r->o.plain);
    if (*r->other_input) {
        printf("%s\n", r->other_input);
        return;
    }
    if (!r->n_tensors) {
        printf("no tensor that both have and whose bound is known%s (tensors are compared by name: weight., forward., "
               "loss, backward., grad., state., updated.)\n", r->o.only.n ? ", of those that --only names" : "");
        return;
    }
    if (v == DIFFERENT) printf("first at %s; %d of %d tensors out of bound", r->first->t.name, r->n_out, r->n_tensors);
    if (groups) printf("%snot compared: %s", v == DIFFERENT ? "; " : "", apart);
    if (v == CANNOT_TELL) printf(" (--only PATTERN judges the others alone); ");
    if (v != DIFFERENT && !r->n_differ) printf("%d tensors, %zu elements", r->n_tensors, r->all.n);
    else if (v != DIFFERENT)
        printf("%d of %d tensors differ, %zu of %zu elements", r->n_differ, r->n_tensors, r->all.n_differ, r->all.n);
    if (v != DIFFERENT && r->n_differ && r->worst)
        printf("; at most %.2g of the bound, at %s", r->worst_ratio, r->worst->t.name);
    if (r->n_apart) printf("; %d not compared", r->n_apart);
    if (v == DIFFERENT && !(diff_side_find(r->judge.a, "input.tokens") && diff_side_find(r->judge.b, "input.tokens")) &&
        r->judge.rule == JUDGE_ROUNDING)
        printf("; whether the tokens are the same is not known");
    if (v == DIFFERENT) print_checkpoints(r);
    print_power(r);
}

// One line for programs.
static void print_json(const Report *r)
{
    char apart[100];
    double median = median_seen(r);
    const char *kind = systematic_name(r->first ? r->first_judged.kind : -1);
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:i, s:s?, s:s}", "verdict", verdict_word(r), "compared", r->n_tensors,
                          "apart", r->n_apart, "differ", r->n_differ, "out", r->n_out, "first",
                          r->first ? r->first->t.name : NULL, "systematic", kind);
    if (!o) die("diff: no memory for a line of JSON");
    if (r->routing.n) json_object_set_new(o, "chose_otherwise", json_integer((json_int_t)r->routing.other));
    if (median >= 0 && isfinite(median)) json_object_set_new(o, "seen_median", json_real(median));
    if (r->sharp && isfinite(r->sharp_seen)) json_object_set_new(o, "seen_least", json_real(r->sharp_seen));
    if (groups_apart(r, apart)) json_object_set_new(o, "not_compared", json_string(apart));
    if (*r->other_input) json_object_set_new(o, "why", json_string(r->other_input));
    if (r->blind && isfinite(r->blind_seen)) json_object_set_new(o, "seen_weakest", json_real(r->blind_seen));
    char *line = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(4));
    if (!line) die("diff: no memory for a line of JSON");
    puts(line);
    free(line);
    json_decref(o);
}

static void print_head(const Report *r)
{
    const Judge *j = &r->judge;
    printf("A  %s%s%s\nB  %s%s%s  (the reference)\n", j->a->path, *j->a->about ? "  " : "", j->a->about, j->b->path,
           *j->b->about ? "  " : "", j->b->about);
    if (j->rule == JUDGE_ROUNDING)
        printf("bound: what rounding may do to each tensor, from its type, depth and sums (A %s, B %s)\n", j->a->dtype,
               j->b->dtype);
    else if (j->rule == JUDGE_EXACT) printf("bound: equal bits\n");
    else printf("bound: |a - b| <= %g + %g |b|\n", j->atol, j->rtol);
    bool power = j->rule == JUDGE_ROUNDING;
    printf("\n  %-*s %12s %8s %8s %8s %10s %8s%s\n", NAME - 2, "", "", "max abs", "max rel", "ULPs", "max", "",
           power ? "   factor     seen" : "");
    printf("  %-*s %12s %8s %8s %8s %10s %8s%s\n", NAME - 2, "tensor", "shape", "", "", "(median)", "ULPs",
           j->rule == JUDGE_EXACT ? "differ" : "of bound", power ? "      - 1     from" : "");
}

// Prints everything.
static Verdict report(Judge j, Options o)
{
    Report r = {.judge = j, .o = o};
    if (j.rule == JUDGE_ROUNDING) r.routing = routing_read(j.a, j.b);
    check_input(&r);
    if (!o.json && !o.quiet) print_head(&r);
    for (int i = 0; i < j.a->n; i++)
        if (wanted(&r, j.a->tensor[i].t.name)) compare(&r, &j.a->tensor[i]);
    for (int i = 0; i < j.b->n; i++)
        if (wanted(&r, j.b->tensor[i].t.name) && !diff_side_find(j.a, j.b->tensor[i].t.name))
            count_group(&r, &j.b->tensor[i], 0), row_apart(&r, &j.b->tensor[i], "not in A",
                                                           !optional(j.b->tensor[i].t.name));
    if (o.json) print_json(&r);
    else if (!o.quiet) {
        flush_rows(&r);
        if (r.n_hidden) printf("  ... and %d more (--all prints them)\n", r.n_hidden);
        if (r.first) print_first(&r);
        if (r.n_differ) print_histogram(&r);
        print_notes(&r);
        print_verdict(&r);
    }
    free(r.seen);
    routing_free(&r.routing);
    return verdict_of(&r);
}

// ---- runs: their losses, and one update of two commands

// Rows at steps 1, 2, 4, ... and the last.
static void print_curves(const Curve *a, const Curve *b, const Curve *c, const Curves *r)
{
    printf("%8s %12s %12s %10s %10s\n", "update", "loss of A", "of B", "|A - B|", c ? "|C - B|" : "");
    for (long t = 1; t <= r->both; t = t < r->both && 2 * t > r->both ? r->both : 2 * t) {
        printf("%8ld %12.9g %12.9g %10.2g", t, a->loss[t - 1], b->loss[t - 1], fabs(a->loss[t - 1] - b->loss[t - 1]));
        if (c) printf(" %10.2g", fabs(c->loss[t - 1] - b->loss[t - 1]));
        printf("\n");
    }
}

static Verdict curves_verdict(const char *run_a, const char *run_b, const char *run_c)
{
    Curve a = curves_read(run_a), b = curves_read(run_b), c = run_c ? curves_read(run_c) : (Curve){.n = 0};
    Curves r = curves_compare(&a, &b, run_c ? &c : NULL);
    Verdict v = !r.first ? ALIKE : !run_c ? CANNOT_TELL : r.out ? DIFFERENT : ALIKE;
    if (!r.both) die("%s, %s: no update that all have logged", run_a, run_b);
    print_curves(&a, &b, run_c ? &c : NULL, &r);
    if (!r.first) printf("\nidentical: the losses of %ld updates\n", r.both);
    else if (v == CANNOT_TELL)
        printf("\ncannot tell: the losses part at update %ld. How fast rounding makes them part shows a third run: that "
               "of B with another --batch.micro or --run.threads, as --third RUN\n", r.first);
    else if (v == ALIKE)
        printf("\nrounding: the losses part at update %ld, and at most %.2g times as far as A and C may (%g |C - B|)\n",
               r.first, r.largest, CURVES_FACTOR);
    else
        printf("\nDIFFERENT: from update %ld on A is more than %g |C - B| from B. Which update goes wrong, and where in it: "
               "build/diff --twice 'COMMAND OF A' 'COMMAND OF B' --first %ld\n", r.out, CURVES_FACTOR, r.out);
    curves_free(&a), curves_free(&b), curves_free(&c);
    return v;
}

static Verdict compare_paths(const char *a_name, const char *b_name, Options how);

// The first update up to `last` that is different, by bisection; 0: none of those that were tried.
static long first_different(Twice *t, long last, Options how)
{
    char a[1000], b[1000];
    long same = 0, different = last + 1;
    how.quiet = true;
    while (different - same > 1) {
        long middle = different > last ? last : (same + different) / 2;
        twice_run(t, middle, a, b);
        Verdict v = compare_paths(a, b, how);
        fprintf(stderr, "diff: update %ld: %s\n", middle, v == ALIKE ? "alike" : "different");
        if (v != ALIKE) different = middle;
        else if (middle == last) return 0;
        else same = middle;
    }
    return different;
}

static Verdict twice_verdict(const char *a, const char *b, size_t update, size_t first, bool keep, Options how)
{
    char path_a[1000], path_b[1000];
    Verdict v = ALIKE;
    Twice t = twice_begin(a, b);
    how.gone = !keep;
    twice_base(&t, (long)(first ? first : update) - 1);
    if (first) update = (size_t)first_different(&t, (long)first, how);
    if (update) {
        twice_run(&t, (long)update, path_a, path_b);
        if (first && !how.json) printf("update %zu is the first that is different, if all after it are\n\n", update);
        v = compare_paths(path_a, path_b, how);
    } else printf("rounding: update %zu, from the same state (--update K asks for another one)\n", first);
    twice_end(&t, keep);
    return v;
}

// ---- the command line

static Options o;
static bool twice, curves, keep;
static size_t update, first_of;
static const char *third;
static double rtol, atol_given;
static bool exact;
static const char *a_dtype, *b_dtype;

static Option options[] = {
    OPTION(LIST, "--only", "PATTERN", "compare the tensors whose names match, as 'grad.*'; more than one may be given",
           &o.only),
    OPTION(TEXT, "--a-dtype", "TYPE", "A's arithmetic: fp32, tf32, bf16, bf16-autocast, fp16, fp8 [what its file says]",
           &a_dtype),
    OPTION(TEXT, "--b-dtype", "TYPE", "B's", &b_dtype),
    OPTION(SWITCH, "--exact", NULL, "ask for equal bits", &exact),
    OPTION(NUMBER, "--rtol", "X", "ask for |a - b| <= atol + rtol |b|", &rtol),
    OPTION(NUMBER, "--atol", "X", "the same", &atol_given),
    OPTION(SWITCH, "--all", NULL, "a row for every tensor; without it dumps show each unit's nearest to its bound",
           &o.all),
    OPTION(SWITCH, "--json", NULL, "one line of JSON and nothing else", &o.json),
    OPTION(SWITCH, "--twice", NULL, "A and B are commands that train; both do one update from the same state, of B",
           &twice),
    OPTION(SIZE, "--update", "N", "with --twice: which update [1]", &update, .least = 1, .most = 1e9),
    OPTION(SIZE, "--first", "N", "with --twice: find the first of N updates that is different", &first_of, .least = 1,
           .most = 1e6),
    OPTION(SWITCH, "--keep", NULL, "with --twice: leave the runs where they are", &keep),
    OPTION(SWITCH, "--curves", NULL, "compare the losses of two runs, update by update", &curves),
    OPTION(TEXT, "--third", "RUN", "with --curves: B with another order of sums, which shows what rounding does", &third),
};
static OptionSet set = {.program = "diff", .row = options, .n = sizeof options / sizeof *options, .usage =
    "usage: diff A B [--option VALUE]...\n"
    "       diff --twice 'COMMAND A' 'COMMAND B' [--update N | --first N]\n"
    "       diff --curves RUN_A RUN_B [--third RUN]\n"
    "A, B: dumps (run.dump), runs (their latest common dump, else their newest checkpoints), checkpoints, or\n"
    "safetensors files; B is the reference. Dumps, and files whose tensors have a dump's names, may differ by what\n"
    "rounding does; anything else must have equal bits.\n"
    "The last line: identical, rounding (within, for a bound that was given), DIFFERENT, or cannot tell.\n"
    "Exit status: 0 identical or within the bound, 1 different, 2 usage, 3 cannot tell.\n\n"};

static void choose_colours(void)
{
    bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    o.red = colour ? "\033[1;31m" : "";
    o.green = colour ? "\033[32m" : "";
    o.dim = colour ? "\033[2m" : "";
    o.plain = colour ? "\033[0m" : "";
}

static void declare(DiffSide *side, const char *option, const char *dtype)
{
    if (dtype && !diff_side_declare(side, dtype))
        die_usage("diff: %s '%s' (fp32, fp64, tf32, bf16, bf16-autocast, fp16 or fp8)", option, dtype);
}

static Verdict compare_paths(const char *a_name, const char *b_name, Options how)
{
    bool given = options_given(&set, "--rtol") || options_given(&set, "--atol");
    char path_a[1000], path_b[1000];
    diff_side_resolve(a_name, b_name, path_a, path_b);
    DiffSide a = diff_side_open(path_a), b = diff_side_open(path_b);
    diff_side_complete(&a, &b);
    diff_side_complete(&b, &a);
    if (!a.n && !b.n) die("%s, %s: no tensor in either (nothing to compare)", a_name, b_name);
    declare(&a, "--a-dtype", a_dtype);
    declare(&b, "--b-dtype", b_dtype);
    judge_prepare(&a, &b);
    Judge j = {.a = &a, .b = &b, .rtol = rtol, .atol = atol_given, .tests = SYSTEMATIC_KINDS * (double)(a.n ? a.n : 1),
               .rule = given ? JUDGE_GIVEN : !exact && a.dump && b.dump ? JUDGE_ROUNDING : JUDGE_EXACT};
    Verdict verdict = report(j, how);
    diff_side_close(&a);
    diff_side_close(&b);
    return verdict;
}

int main(int argc, char **argv)
{
    if (options_read(&set, argc, argv) != 2) die_usage("usage: diff A B [--option VALUE]... (try --help)");
    if (exact && (options_given(&set, "--rtol") || options_given(&set, "--atol")))
        die_usage("--exact with --rtol or --atol: which of them?");
    if (twice && curves) die_usage("diff: --twice with --curves: which of them?");
    if ((update || first_of || keep) && !twice) die_usage("diff: --update, --first, --keep: only with --twice");
    if (update && first_of) die_usage("diff: --update with --first: which of them?");
    if (third && !curves) die_usage("diff: --third: only with --curves");
    choose_colours();
    Verdict verdict = curves  ? curves_verdict(argv[1], argv[2], third)
                      : twice ? twice_verdict(argv[1], argv[2], update ? update : 1, first_of, keep, o)
                              : compare_paths(argv[1], argv[2], o);
    if (fflush(stdout) != 0) die("cannot write the report");
    free(o.only.word);
    return (int)verdict;
}
