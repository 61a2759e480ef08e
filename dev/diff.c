// diff: is this difference rounding or a bug? Compares two sets of named tensors, element by element.
//
//   build/diff A B [--exact] [--rtol X] [--atol X] [--all]
//
// A and B are dumps of an update (run.dump), runs (their latest common dump, else their newest checkpoints),
// checkpoints, or safetensors files. B is the reference. A dump's pieces are put together whatever the layout that
// wrote them; what is missing is reported.
//
// The tensors are walked in the order in which A's program computed them, because the first one that leaves the
// bound is where to look: what comes later may only inherit its error.
//
// For dumps, the bound is what rounding may do to the tensor, given the type it was stored in, its depth and the length
// of its sums (dev/check/diff.c, doc/diff.md); the weights before the update must be equal. For everything else, and
// with --exact: equal bits. With --rtol or --atol: |a - b| <= atol + rtol |b|, and both finite or equal bits. Every
// test reads !(difference <= bound), so that NaN fails it.
//
// Exit status: 0 identical, or rounding; 1 different (or a file cannot be read); 2 wrong command line.
#include "base/check.h"
#include "dev/check/diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME = 37, AFTER = 6, BAR = 40 }; // AFTER: rows after the first one out of bound

typedef struct {
    bool exact, given, all, derived; // derived: a dump, and none of these options
    double rtol, atol;
    const char *red, *green, *dim, *plain; // escape codes for a terminal; else empty
} Options;

typedef struct {
    const DiffSide *a, *b;
    Options o;
    DiffStats all, first_stats;
    const DiffTensor *first;  // out of bound; NULL: none
    const DiffTensor *worst;  // nearest to its bound, of those that are within
    double worst_ratio;
    int n_tensors, n_out, n_differ, n_extra, n_equal, n_hidden; // n_equal: successive, not printed yet
    char group[16];
    // The row to be printed next: of the unit's tensors that differ within their bounds, the nearest to its bound.
    char unit[80], row[300];
    double row_ratio;
    int n_unit; // tensors of the unit so far
} Report;

// ---- which bound

static bool begins(const char *name, const char *prefix)
{
    return !strncmp(name, prefix, strlen(prefix));
}

static const DiffTensor *sibling(const DiffSide *s, const char *prefix, const char *rest)
{
    char name[400];
    snprintf(name, sizeof name, "%s%s", prefix, rest);
    return diff_side_find(s, name);
}

// Where the loss does not depend on a bias (that of the keys), the gradient is rounding error alone. Its size is then
// that of the terms of the sum, which the bias' matrix shows: the row of the same kind that ends in .weight. NULL: the
// name is no bias's.
static const DiffTensor *matrix_of(const DiffSide *s, const char *name)
{
    char weight[400];
    size_t n = strlen(name);
    if (n < 5 || strcmp(name + n - 5, ".bias")) return NULL;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(n - 5), name);
    return diff_side_find(s, weight);
}

static bool same_shape(const SafeTensor *a, const SafeTensor *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
}

// The largest |update| of a row of B; 0 where B lacks the weight before or after.
static double largest_update(const DiffSide *s, const DiffTensor *updated)
{
    const DiffTensor *weight = updated ? sibling(s, "weight.", updated->t.name + strlen("updated.")) : NULL;
    return weight && same_shape(&weight->t, &updated->t) ? diff_stats_most(&updated->t, &weight->t) : 0;
}

static DiffStatsBound bound_of_update(const Report *r, const DiffTensor *b, double error)
{
    const char *row = b->t.name + strlen("updated.");
    const DiffTensor *grad_a = sibling(r->a, "grad.", row), *grad_b = sibling(r->b, "grad.", row);
    if (!grad_a || !grad_b || !same_shape(&grad_a->t, &b->t) || !same_shape(&grad_b->t, &b->t))
        return (DiffStatsBound){.mode = DIFF_STATS_EXACT};
    double most = fmax(largest_update(r->b, b), largest_update(r->b, matrix_of(r->b, b->t.name)));
    return (DiffStatsBound){.mode = DIFF_STATS_UPDATE, .error = error, .most = most, .grad_a = &grad_a->t,
                            .grad_b = &grad_b->t};
}

static DiffStatsBound bound_of(const Report *r, const DiffTensor *a, const DiffTensor *b)
{
    const char *name = a->t.name;
    if (r->o.given) return (DiffStatsBound){.mode = DIFF_STATS_GIVEN, .rtol = r->o.rtol, .atol = r->o.atol};
    double error_a = a->error > 0 ? a->error : b->error, error_b = b->error > 0 ? b->error : a->error;
    double error = hypot(error_a, error_b);
    if (r->o.derived && begins(name, "updated.")) return bound_of_update(r, b, error);
    if (!r->o.derived || begins(name, "weight.") || error == 0) return (DiffStatsBound){.mode = DIFF_STATS_EXACT};
    bool summed = begins(name, "grad.") || begins(name, "state.");
    const DiffTensor *matrix = summed ? matrix_of(r->b, name) : NULL;
    if (begins(name, "state.") && strstr(name, "_sq.")) error *= 2; // of a square
    return (DiffStatsBound){.mode = DIFF_STATS_DERIVED, .error = error,
                            .floor = matrix ? diff_stats_rms(&matrix->t) : 0};
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
    if (!r->a->dump || n >= sizeof r->group) return name;
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

static void row_numbers(Report *r, const DiffTensor *a, const DiffStats *s, bool out)
{
    char shape[80], median[48], part[24], row[300], unit[80];
    const char *name = group_of(r, a->t.name);
    int middle = diff_stats_median(s);
    bool brief = r->a->dump && !r->o.all && !out;
    unit_of(a->t.name, unit);
    bool same_unit = brief && r->n_unit && !strcmp(unit, r->unit);
    if (same_unit) r->n_unit++;
    if (!out && !s->n_differ && !r->o.all) {
        r->n_equal += !same_unit;
        return;
    }
    if (hides(r)) return;
    diff_stats_label(middle, median);
    if (middle > 13 && middle != DIFF_STATS_NAN) snprintf(median, sizeof median, "~2^%d", middle - 1);
    if (r->o.exact) snprintf(part, sizeof part, "%zu", s->n_differ);
    else if (isfinite(s->ratio)) snprintf(part, sizeof part, "%.2g", s->ratio);
    else snprintf(part, sizeof part, "-");
    snprintf(row, sizeof row, "  %-*s %12s %8.2g %8.2g %8s %10llu %8s %s%s%s", NAME - 2, name,
             shape_text(shape, &a->t), s->max_abs, s->max_rel, median, (unsigned long long)s->max_ulp, part,
             out ? r->o.red : s->n_differ ? "" : r->o.green, out ? "OUT" : s->n_differ ? "~" : "=", r->o.plain);
    if (same_unit && s->ratio <= r->row_ratio) return;
    if (!same_unit) {
        flush_rows(r);
        r->n_unit = 1;
        snprintf(r->unit, sizeof r->unit, "%s", unit);
    }
    snprintf(r->row, sizeof r->row, "%s", row);
    r->row_ratio = s->ratio;
    if (!brief) flush_rows(r);
}

static void note_out(Report *r, const DiffTensor *a, const DiffStats *s)
{
    if (r->n_out++) return;
    r->first = a;
    if (s) r->first_stats = *s;
}

// What is wrong with a pair before its numbers are looked at; NULL: nothing.
static const char *trouble_of(const Report *r, const DiffTensor *a, const DiffTensor *b, char text[200])
{
    char other[80];
    if (!b) return "not in B";
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
    if (r->o.exact && a->t.dtype != b->t.dtype) {
        snprintf(text, 200, "dtype is %s, %s in B", safetensors_dtype_name(a->t.dtype),
                 safetensors_dtype_name(b->t.dtype));
        return text;
    }
    return NULL;
}

static void compare(Report *r, const DiffTensor *a)
{
    char text[200], shape[80];
    const DiffTensor *b = diff_side_find(r->b, a->t.name);
    const char *trouble = trouble_of(r, a, b, text);
    r->n_tensors++;
    if (trouble) {
        note_out(r, a, NULL);
        row_trouble(r, a->t.name, shape_text(shape, &a->t), trouble);
        return;
    }
    DiffStats s = diff_stats(&a->t, &b->t, a->stored, b->stored, bound_of(r, a, b));
    bool out = s.n_out || !(s.ratio <= 1);
    diff_stats_add(&r->all, &s);
    r->n_differ += s.n_differ > 0;
    if (out) note_out(r, a, &s);
    else if (s.ratio > r->worst_ratio) {
        r->worst_ratio = s.ratio;
        r->worst = a;
    }
    row_numbers(r, a, &s, out);
}

// ---- below the table

// Where element i stands: sample, token and channel of a dump's activations, else an index for each axis.
static void place_text(char text[120], const Report *r, const DiffTensor *t, size_t i)
{
    const char *name = t->t.name, *last = strrchr(name, '.');
    size_t index[PART_DIMS] = {0}, D = r->a->head_size;
    int ndim = t->t.ndim <= PART_DIMS ? t->t.ndim : 0, at = 0;
    for (int d = ndim - 1; d >= 0; d--) {
        index[d] = i % t->t.shape[d];
        i /= t->t.shape[d];
    }
    if (r->a->dump && (begins(name, "forward.") || begins(name, "backward.") || begins(name, "loss"))) {
        at = snprintf(text, 120, "sample %zu, token %zu", index[0], index[1]);
        if (ndim < 3) return;
        bool heads = D && last && begins(name, "forward.layers.") &&
                     (strchr("qkv", last[1]) || !strcmp(last, ".attn"));
        if (heads) snprintf(text + at, 120 - (size_t)at, ", head %zu, %zu", index[2] / D, index[2] % D);
        else snprintf(text + at, 120 - (size_t)at, ", channel %zu", index[2]);
        return;
    }
    at = snprintf(text, 120, "[");
    for (int d = 0; d < ndim; d++) at += snprintf(text + at, 120 - (size_t)at, "%s%zu", d ? "," : "", index[d]);
    snprintf(text + at, 120 - (size_t)at, "]");
}

static void print_first(const Report *r)
{
    char shape[80], place[120], ratio[24];
    const DiffTensor *a = r->first, *b = diff_side_find(r->b, a->t.name);
    const DiffStats *s = &r->first_stats;
    printf("\n%sfirst out of bound: %s%s %s", r->o.red, a->t.name, r->o.plain, shape_text(shape, &a->t));
    if (!s->n) { // not compared
        printf("\n");
        return;
    }
    printf(", %zu of %zu elements\n", s->n_out, s->n);
    printf("  %-34s %15s %15s %10s  %s\n", "worst elements", "A", "B", r->o.exact ? "" : "of bound", "bits");
    for (int k = 0; k < s->n_worst; k++) {
        size_t i = s->worst[k];
        snprintf(ratio, sizeof ratio, "%.3g", s->worst_ratio[k]);
        place_text(place, r, a, i);
        int n_a = 2 * (int)safetensors_dtype_bytes(a->t.dtype), n_b = 2 * (int)safetensors_dtype_bytes(b->t.dtype);
        printf("  %-34s %15.9g %15.9g %10s  %0*llx %0*llx\n", place, diff_stats_value(&a->t, i),
               diff_stats_value(&b->t, i), r->o.exact ? "" : ratio, n_a, (unsigned long long)diff_stats_bits(&a->t, i),
               n_b, (unsigned long long)diff_stats_bits(&b->t, i));
    }
}

static void print_histogram(const Report *r)
{
    const DiffStats *first = r->first && r->first_stats.n ? &r->first_stats : NULL, *drawn = first ? first : &r->all;
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
    const DiffSide *side[2] = {r->a, r->b};
    if (r->all.n_both_nan) printf("note: %zu elements are the same NaN on both sides\n", r->all.n_both_nan);
    for (int i = 0; i < 2; i++) {
        size_t twice = 0;
        for (int k = 0; k < side[i]->n; k++) twice += side[i]->tensor[k].n_twice;
        if (side[i]->n_absent)
            printf("note: %c lacks the files of %d rank%s, the first is rank %d\n", "AB"[i], side[i]->n_absent,
                   side[i]->n_absent > 1 ? "s" : "", side[i]->absent);
        if (twice) printf("note: %zu elements of %c are in more than one file\n", twice, "AB"[i]);
    }
    if (r->first && r->o.derived && begins(r->first->t.name, "weight.") && r->first_stats.n)
        printf("note: the weights that went in differ already, so the rest may be right (dump an earlier update, "
               "or the first)\n");
}

static bool print_verdict(const Report *r)
{
    bool ok = !r->n_out && !r->n_extra;
    if (!ok) {
        printf("\n%sDIFFERENT%s: first at %s; %d of %d tensors out of bound\n", r->o.red, r->o.plain,
               r->first ? r->first->t.name : "what A does not have", r->n_out + r->n_extra, r->n_tensors + r->n_extra);
    } else if (!r->n_differ) {
        printf("\n%sidentical%s: %d tensors, %zu elements\n", r->o.green, r->o.plain, r->n_tensors, r->all.n);
    } else {
        printf("\n%s%s%s: %d of %d tensors differ, %zu of %zu elements", r->o.green,
               r->o.derived ? "rounding" : "within", r->o.plain, r->n_differ, r->n_tensors, r->all.n_differ, r->all.n);
        if (r->worst) printf("; at most %.2g of the bound, at %s", r->worst_ratio, r->worst->t.name);
        printf("\n");
    }
    return ok;
}

static void print_head(const Report *r)
{
    printf("A  %s%s%s\nB  %s%s%s  (the reference)\n", r->a->path, *r->a->about ? "  " : "", r->a->about, r->b->path,
           *r->b->about ? "  " : "", r->b->about);
    if (r->o.derived) printf("bound: what rounding may do to each tensor, from its type, depth and sums\n");
    else if (r->o.exact) printf("bound: equal bits\n");
    else printf("bound: |a - b| <= %g + %g |b|\n", r->o.atol, r->o.rtol);
    printf("\n  %-*s %12s %8s %8s %8s %10s %8s\n", NAME - 2, "", "", "max abs", "max rel", "ULPs", "max", "");
    printf("  %-*s %12s %8s %8s %8s %10s %8s\n", NAME - 2, "tensor", "shape", "", "", "(median)", "ULPs",
           r->o.exact ? "differ" : "of bound");
}

// Prints everything; true when all of it is within the bound.
static bool report(const DiffSide *a, const DiffSide *b, Options o)
{
    Report r = {.a = a, .b = b, .o = o};
    char shape[80];
    print_head(&r);
    for (int i = 0; i < a->n; i++) compare(&r, &a->tensor[i]);
    for (int i = 0; i < b->n; i++) {
        if (diff_side_find(a, b->tensor[i].t.name)) continue;
        r.n_extra++;
        row_trouble(&r, b->tensor[i].t.name, shape_text(shape, &b->tensor[i].t), "not in A");
    }
    flush_rows(&r);
    if (r.n_hidden) printf("  ... and %d more (--all prints them)\n", r.n_hidden);
    if (r.first) print_first(&r);
    if (r.n_differ) print_histogram(&r);
    print_notes(&r);
    return print_verdict(&r);
}

// ---- the command line

static double parse_bound(const char *option, const char *text)
{
    char *end;
    double x = text ? strtod(text, &end) : -1;
    if (!text || end == text || *end || !isfinite(x) || x < 0)
        die_usage("%s: %s: not a number >= 0 (try %s 1e-5)", option, text ? text : "nothing", option);
    return x;
}

static const char help[] =
    "usage: diff A B [--exact] [--rtol X] [--atol X] [--all]\n"
    "  A, B     dumps (run.dump), runs (their latest common dump, else their newest checkpoints),\n"
    "           checkpoints, or safetensors files; B is the reference\n"
    "  bound    for dumps what rounding may do; for anything else, and with --exact, equal bits;\n"
    "           with --rtol or --atol |a - b| <= atol + rtol |b|\n"
    "  --all    a row for every tensor; without it dumps show each unit's tensor nearest to its bound\n"
    "  verdict  identical, rounding (within, for a bound that was given), DIFFERENT\n"
    "  exit     0 identical or within the bound, 1 different, 2 usage\n";

static Options terminal(Options o)
{
    bool colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    o.red = colour ? "\033[1;31m" : "";
    o.green = colour ? "\033[32m" : "";
    o.dim = colour ? "\033[2m" : "";
    o.plain = colour ? "\033[0m" : "";
    return o;
}

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    const char *path[2] = {NULL, NULL};
    Options o = terminal((Options){0});
    int n_paths = 0;
    for (int i = 1; i < argc; i++) {
        bool rtol = !strcmp(argv[i], "--rtol"), atol_given = !strcmp(argv[i], "--atol");
        if (rtol || atol_given) {
            *(rtol ? &o.rtol : &o.atol) = parse_bound(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            o.given = true;
            i++;
        } else if (!strcmp(argv[i], "--exact")) o.exact = true;
        else if (!strcmp(argv[i], "--all")) o.all = true;
        else if (!strncmp(argv[i], "--", 2)) die_usage("unknown option %s (try --help)", argv[i]);
        else if (n_paths == 2) die_usage("more than two things to compare: %s (try --help)", argv[i]);
        else path[n_paths++] = argv[i];
    }
    if (n_paths < 2) die_usage("usage: diff A B [--exact] [--rtol X] [--atol X] [--all]");
    if (o.exact && o.given) die_usage("--exact with --rtol or --atol: which of them?");
    char path_a[1000], path_b[1000];
    diff_side_resolve(path[0], path[1], path_a, path_b);
    DiffSide a = diff_side_open(path_a), b = diff_side_open(path_b);
    if (!a.n && !b.n) die("%s, %s: no tensor in either (nothing to compare)", path[0], path[1]);
    o.derived = !o.exact && !o.given && (a.dump || b.dump);
    o.exact = !o.derived && !o.given;
    bool ok = report(&a, &b, o);
    if (fflush(stdout) != 0) die("cannot write the report");
    diff_side_close(&a);
    diff_side_close(&b);
    return ok ? 0 : 1;
}
