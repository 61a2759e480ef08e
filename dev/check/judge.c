// judge: the bound of each tensor of a dump, by its name.
//
//     input.NAME, weight.NAME     equal bits: what went in must be the same
//     updated.NAME    the bound of an optimizer's step (diff.c), and the steps must not differ systematically
//     anything else   the bound of rounding, from `error` (dump.h), and no systematic difference (systematic.c);
//                     for gradients of queries and keys also from what attention cancels
//
// A file of another program has tensors with a dump's names and nothing more. Then `error` follows from what is there:
// the depth from the numbers of the layers, the longest sum from the largest axis of any tensor, the type from what was
// declared, or else from how the file stores them.
#include "dev/check/judge.h"

#include "base/check.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static bool same_shape(const SafeTensor *a, const SafeTensor *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape);
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

// ---- files that do not say how exact they are

// Depth, longest sum and tokens, as the tensors of both sides show them.
typedef struct {
    size_t layers, longest, tokens;
} Sizes;

static size_t layer_of(const char *name, bool *found)
{
    unsigned long layer;
    const char *at = strstr(name, "layers.");
    *found = at && sscanf(at, "layers.%lu", &layer) == 1;
    return *found ? layer : 0;
}

static void measure(Sizes *z, const DiffSide *s)
{
    for (int i = 0; i < s->n; i++) {
        const SafeTensor *t = &s->tensor[i].t;
        bool found, stream = begins(t->name, "forward.") || begins(t->name, "backward.");
        if (begins(t->name, "input.")) continue;
        size_t layer = layer_of(t->name, &found);
        if (found && layer + 1 > z->layers) z->layers = layer + 1;
        for (int d = stream && t->ndim == 3; d < t->ndim; d++) // the sequences are no sum
            if (t->shape[d] > z->longest && strcmp(t->name, "loss")) z->longest = t->shape[d];
        size_t tokens = stream && t->ndim == 3 ? t->shape[0] * t->shape[1] : strcmp(t->name, "loss") ? 0 : t->n_elems;
        if (tokens > z->tokens) z->tokens = tokens;
    }
}

static DumpKind kind_of(const char *name)
{
    DumpKind kind = DUMP_WEIGHT;
    diff_kind(name, &kind);
    return kind;
}

// The place of a tensor in the order of a step, of those that the other side does not number either.
static long number_of(const char *name, const Sizes *z, int i)
{
    DumpKind kind = kind_of(name);
    bool found, back = kind == DUMP_BACKWARD || kind == DUMP_GRAD;
    size_t layer = layer_of(name, &found), place = found ? 1 + layer : strstr(name, "embed") ? 0 : z->layers + 1;
    return (long)kind * 100000000 + (long)(back ? z->layers + 1 - place : place) * 1000 + i % 1000;
}

static void assume(DiffSide *s, const DiffSide *other, const Sizes *z)
{
    ModelShape shape = {.layers = z->layers, .channels = z->longest};
    XType type = !strcmp(s->dtype, "fp16") || !strcmp(s->dtype, "tf32") ? X_FP16 : s->low ? X_BF16 : X_FP32;
    for (int i = 0; i < s->n; i++) {
        DiffTensor *t = &s->tensor[i];
        const DiffTensor *twin = other->header ? diff_side_find(other, t->t.name) : NULL;
        bool found;
        size_t layer = layer_of(t->t.name, &found);
        size_t place = found ? 1 + layer : strstr(t->t.name, "embed") ? 0 : z->layers + 1;
        DumpKind kind = kind_of(t->t.name);
        if (kind != DUMP_WEIGHT && (t->error == 0 || s->declared))
            t->error = dump_error(&shape, type, !strcmp(s->dtype, "fp8"), kind, place, z->tokens);
        if (s->header) continue;
        if (s->low && strcmp(s->dtype, "tf32")) t->stored = type == X_FP16 ? ST_F16 : ST_BF16;
        t->at = twin ? twin->at : number_of(t->t.name, z, i);
    }
    diff_side_sort(s);
}

// The unit roundoff of what a side stores.
static double roundoff(const DiffSide *s)
{
    bool eleven = !strcmp(s->dtype, "fp16") || !strcmp(s->dtype, "tf32");
    return eleven ? 0x1p-11 : s->low ? 0x1p-8 : 0x1p-24;
}

// ---- what attention cancels
//
// The gradient of a query is a covariance. With p the probabilities, o = sum_j p_j v_j, dO its gradient and x = k,
//
//     dq  =  scale sum_j p_j (dO . v_j - dO . o) x_j  =  scale dO . cov(v, x)
//
// so what all values or all keys have in common cancels, but is rounded with the rest: o is stored with a relative
// error u, which moves dq by u (dO . o) mean(x). Over all queries that is so many times u of the gradient:
//
//     sqrt(sum |o|^2 |mean(x)|^2  /  sum |cov(v, x)|^2)
//
// The same holds for the gradient of the keys' matrix, with x = norm1, which the matrix multiplies. Attention is taken
// to be uniform, as in a model that has just begun, because a dump does not say which keys a query sees; |cov|^2 is
// estimated by a random dO for each head of each sequence.

typedef struct {
    double common, left; // the two sums
} Cancelled;

// A head's columns of a sequence: element d of token i is at `at` + i ld + d.
typedef struct {
    const SafeTensor *t;
    size_t at, ld, width;
} HeadRows;

static Cancelled cancelled_in(HeadRows v, HeadRows x, size_t T)
{
    double along = 0, *o = calloc(2 * (v.width + x.width), sizeof *o); // sums over the keys to the query
    if (!o) die("diff: no memory for %zu numbers of %s", 2 * (v.width + x.width), x.t->name);
    double *dO = o + v.width, *mean = dO + v.width, *both = mean + x.width;
    Cancelled sum = {0, 0};
    for (size_t d = 0; d < v.width; d++) dO[d] = rng_normal(rng_make(1, "dO", 0), v.at + d);
    for (size_t i = 0; i < T; i++) {
        double dp = 0, oo = 0, mm = 0, n = (double)(i + 1);
        for (size_t d = 0; d < v.width; d++) {
            double value = diff_stats_value(v.t, v.at + i * v.ld + d);
            o[d] += value, dp += dO[d] * value, oo += o[d] * o[d];
        }
        along += dp;
        for (size_t d = 0; d < x.width; d++) {
            double value = diff_stats_value(x.t, x.at + i * x.ld + d);
            mean[d] += value, both[d] += dp * value, mm += mean[d] * mean[d];
            sum.left += pow(both[d] / n - along / n * mean[d] / n, 2);
        }
        sum.common += oo / (n * n) * mm / (n * n);
    }
    free(o);
    return sum;
}

// Of v (S, T, heads D) and x: the keys, with as many heads, or what all heads read.
static double cancelled(const SafeTensor *v, const SafeTensor *x, size_t D, bool keys)
{
    size_t T = v->shape[1], ldv = v->shape[2], ldx = x->shape[2];
    Cancelled all = {0, 0};
    for (size_t row = 0; row < v->shape[0] * T; row += T)
        for (size_t head = 0; head < ldv; head += D) {
            HeadRows from = {v, row * ldv + head, ldv, D}, to = {x, row * ldx, ldx, ldx};
            if (keys) to.at += head, to.width = D;
            Cancelled one = cancelled_in(from, to, T);
            all.common += one.common, all.left += one.left;
        }
    return all.left > 0 ? sqrt(all.common / all.left) : 0;
}

static const DiffTensor *activation(const DiffSide *a, const DiffSide *b, size_t layer, const char *name)
{
    char prefix[60];
    snprintf(prefix, sizeof prefix, "forward.layers.%zu.", layer);
    const DiffTensor *found = sibling(b, prefix, name);
    if (!found) found = sibling(a, prefix, name);
    return found && found->t.ndim == 3 ? found : NULL;
}

// Adds to `error` of the gradients of a layer's queries and keys, and of the optimizer's state of them.
static void add_cancelled(DiffSide *s, size_t layer, size_t T, double queries, double keys)
{
    double u = roundoff(s), error = sqrt((u * u + (double)T * 0x1p-48) / 3);
    for (int i = 0; i < s->n; i++) {
        DiffTensor *t = &s->tensor[i];
        const char *row = strstr(t->t.name, ".attn.");
        bool found, summed = begins(t->t.name, "grad.") || begins(t->t.name, "state.");
        if (!row || !summed || t->error == 0 || layer_of(t->t.name, &found) != layer) continue;
        if (row[6] == 'q') t->error = hypot(t->error, error * queries);
        if (row[6] == 'k') t->error = hypot(t->error, error * keys);
    }
}

static void measure_attention(DiffSide *a, DiffSide *b, size_t layers)
{
    size_t D = b->head_size ? b->head_size : a->head_size;
    for (size_t layer = 0; layer < layers; layer++) {
        const DiffTensor *v = activation(a, b, layer, "v"), *norm = activation(a, b, layer, "norm1");
        const DiffTensor *k = activation(a, b, layer, "k_normed");
        if (!k) k = activation(a, b, layer, "k");
        if (!v || !k || !norm || !same_shape(&v->t, &k->t)) continue;
        if (v->t.shape[0] != norm->t.shape[0] || v->t.shape[1] != norm->t.shape[1]) continue;
        size_t head = D && v->t.shape[2] % D == 0 ? D : v->t.shape[2];
        double queries = cancelled(&v->t, &k->t, head, true), keys = cancelled(&v->t, &norm->t, head, false);
        add_cancelled(a, layer, v->t.shape[1], queries, keys);
        add_cancelled(b, layer, v->t.shape[1], queries, keys);
    }
}

// ---- before the comparison

// Of tokens with gradients of size g there are (sum g^2)^2 / sum g^4: as many of equal size would average as well.
static double effective_tokens(const SafeTensor *t)
{
    size_t width = t->ndim ? t->shape[t->ndim - 1] : 1;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < t->n_elems; i += width) {
        double row = 0;
        for (size_t c = 0; c < width; c++) row += diff_stats_value(t, i + c) * diff_stats_value(t, i + c);
        sum += row, squares += row * row;
    }
    return squares > 0 ? sum * sum / squares : 0;
}

static void measure_norms(DiffSide *s)
{
    const DiffTensor *head = diff_side_find(s, "grad.head.weight");
    if (!head) head = diff_side_find(s, "grad.embed.tokens.weight");
    double square = 0;
    for (int i = 0; i < s->n; i++)
        if (begins(s->tensor[i].t.name, "grad."))
            square += pow(diff_stats_rms(&s->tensor[i].t), 2) * (double)s->tensor[i].t.n_elems;
    s->norm[0] = sqrt(square);
    s->norm[1] = head ? diff_stats_rms(&head->t) * sqrt((double)head->t.n_elems) : 0;
}

void judge_prepare(DiffSide *a, DiffSide *b)
{
    Sizes z = {0};
    if (!a->dump || !b->dump) return;
    for (int i = 0; i < b->n; i++)
        if (begins(b->tensor[i].t.name, "backward.")) b->tensor[i].tokens = effective_tokens(&b->tensor[i].t);
    measure(&z, a);
    measure(&z, b);
    measure_norms(a);
    measure_norms(b);
    if (!a->header || a->declared) assume(a, b, &z);
    if (!b->header || b->declared) assume(b, a, &z);
    measure_attention(a, b, z.layers);
}

// ---- the bound

// The largest |update| of a row of B; 0 where B lacks the weight before or after.
static double largest_update(const DiffSide *s, const DiffTensor *updated)
{
    const DiffTensor *weight = updated ? sibling(s, "weight.", updated->t.name + strlen("updated.")) : NULL;
    return weight && same_shape(&weight->t, &updated->t) ? diff_stats_most(&updated->t, &weight->t) : 0;
}

// rms(a - b) / rms(b), at most 1.
static double apart(const SafeTensor *a, const SafeTensor *b)
{
    double gap = 0, size = 0;
    for (size_t i = 0; i < b->n_elems; i++) {
        double y = diff_stats_value(b, i), d = diff_stats_value(a, i) - y;
        gap += d * d, size += y * y;
    }
    return gap < size ? sqrt(gap / size) : gap > 0;
}

// An element's step is as uncertain as its gradient, and as that of the tensor, by whose size it may have been clipped
// (Adafactor, adaptive clipping). Where it is uncertain, either side may have the largest step: Adam's are smaller
// than the learning rate where the gradients are rounding error, of the size of eps. Without the gradients behind it
// an element's step may be anything that the largest one of B is.
static DiffStatsBound bound_of_update(const Judge *j, const DiffTensor *b, double error)
{
    const char *row = b->t.name + strlen("updated.");
    const DiffTensor *grad_a = sibling(j->a, "grad.", row), *grad_b = sibling(j->b, "grad.", row);
    bool known = grad_a && grad_b && same_shape(&grad_a->t, &b->t) && same_shape(&grad_b->t, &b->t);
    double most = fmax(largest_update(j->b, b), largest_update(j->b, matrix_of(j->b, b->t.name)));
    if (!known || error == 0) return (DiffStatsBound){.mode = DIFF_STATS_UPDATE, .most = most};
    return (DiffStatsBound){.mode = DIFF_STATS_UPDATE, .error = error + apart(&grad_a->t, &grad_b->t),
                            .most = fmax(most, largest_update(j->a, diff_side_find(j->a, b->t.name))),
                            .grad_a = &grad_a->t, .grad_b = &grad_b->t};
}

// The least size of a bias' gradient: its matrix'.
static double least_gradient(const Judge *j, const char *grad)
{
    const DiffTensor *matrix = matrix_of(j->b, grad);
    return matrix ? diff_stats_rms(&matrix->t) : 0;
}

// Of the optimizer's state it is as many times larger than the state is, as that of the gradient than the gradient. A
// bias' matrix does not show it: it may have been clipped by another factor, or have another optimizer (Muon).
static double floor_of(const Judge *j, const DiffTensor *b, bool square)
{
    if (begins(b->t.name, "grad.")) return least_gradient(j, b->t.name);
    const DiffTensor *matrix = matrix_of(j->b, b->t.name), *grad = NULL;
    if (!begins(b->t.name, "state.")) return 0;
    for (const char *row = b->t.name; !grad && (row = strchr(row, '.')); ) grad = sibling(j->b, "grad.", ++row);
    double floor = matrix ? diff_stats_rms(&matrix->t) : 0, size = grad ? diff_stats_rms(&grad->t) : 0;
    double times = size > 0 ? least_gradient(j, grad->t.name) / size : 0;
    return fmax(floor, diff_stats_rms(&b->t) * (square ? times * times : times));
}

static DiffStatsBound bound_of(const Judge *j, const DiffTensor *a, const DiffTensor *b)
{
    const char *name = a->t.name;
    if (j->rule == JUDGE_GIVEN && !begins(name, "input."))
        return (DiffStatsBound){.mode = DIFF_STATS_GIVEN, .rtol = j->rtol, .atol = j->atol};
    double error_a = a->error > 0 ? a->error : b->error, error_b = b->error > 0 ? b->error : a->error;
    double error = hypot(error_a, error_b);
    bool rounding = j->rule == JUDGE_ROUNDING;
    if (rounding && begins(name, "updated.")) return bound_of_update(j, b, error);
    if (!rounding || begins(name, "weight.") || error == 0) return (DiffStatsBound){.mode = DIFF_STATS_EXACT};
    bool square = begins(name, "state.") && strstr(name, "_sq.");
    if (square) error *= 2;
    return (DiffStatsBound){.mode = DIFF_STATS_DERIVED, .error = error, .floor = floor_of(j, b, square)};
}

const char *judge_lacks(const Judge *j, const DiffTensor *a)
{
    if (j->rule != JUDGE_ROUNDING || !begins(a->t.name, "updated.")) return NULL;
    const char *row = a->t.name + strlen("updated.");
    return sibling(j->a, "weight.", row) && sibling(j->b, "weight.", row) ? NULL : "needs the weight before the update";
}

// ---- what is systematic

enum { SHARED = 8, LOW_SHARED = 2, UNKNOWN_TERMS = 64 };

// Tokens of the update; 0: not known.
static size_t tokens_of(const Judge *j)
{
    Sizes z = {0};
    measure(&z, j->b);
    if (!z.tokens) measure(&z, j->a);
    return z.tokens;
}

// How many tokens a gradient is the sum of: the fewest of the streams above and below its unit, as they are in B.
static double terms_of(const Judge *j, const char *name)
{
    bool found;
    size_t layer = layer_of(name, &found);
    char below[40] = "head", above[40] = "head";
    if (found || strstr(name, "embed")) snprintf(below, sizeof below, "layers.%zu", layer);
    if (found) snprintf(above, sizeof above, "layers.%zu", layer + 1);
    const DiffTensor *b = sibling(j->b, "backward.", below), *a = sibling(j->b, "backward.", above);
    if (!a) a = sibling(j->b, "backward.", "head");
    double terms = tokens_of(j) ? (double)tokens_of(j) : UNKNOWN_TERMS;
    if (!a && !b) terms = fmin(terms, UNKNOWN_TERMS);
    if (a && a->tokens > 0) terms = fmin(terms, a->tokens);
    if (b && b->tokens > 0) terms = fmin(terms, b->tokens);
    return terms;
}

// The norm of the gradients is rounding like them, and clipping divides all of them by it: the factor that the two
// sides' states may differ by. With adaptive clipping it is the norm of what that leaves, mostly the classifier's.
static double clip_gap(const Judge *j)
{
    double gap = 0;
    for (int i = 0; i < 2; i++)
        if (j->a->norm[i] > 0 && j->b->norm[i] > 0) gap = fmax(gap, fabs(j->a->norm[i] / j->b->norm[i] - 1));
    return gap;
}

// Rows are tokens, or rows of a matrix; what has one axis, and the losses, are one column. SHARED roundings reach all
// elements: of 1 / N, of a scale and back, of the clip coefficient; of the optimizer's constants as many. In 2 bytes
// LOW_SHARED stored numbers may be the same for all tokens: p - 1 of a fresh model, and the attention probabilities of
// its rows. And weights are rounded: a weight's error is shared by all tokens, so a sum over tokens averages little,
// and a loss nothing.
static SystematicModel model_of(const Judge *j, const DiffTensor *b)
{
    const char *name = b->t.name;
    bool state = begins(name, "state."), updated = begins(name, "updated."), loss = !strcmp(name, "loss");
    bool summed = begins(name, "grad.") || state || updated, low = j->a->low || j->b->low;
    SystematicModel m = {.columns = b->t.ndim > 1 && !loss ? b->t.shape[b->t.ndim - 1] : 1, .tests = j->tests,
                         .shared = (state || updated ? 2 : 1) * SHARED * 0x1p-24, .terms = INFINITY};
    if (state) m.shared += (strstr(name, "_sq.") ? 2 : 1) * clip_gap(j);
    else if (updated) m.shared += clip_gap(j);
    m.rows = b->t.n_elems / m.columns;
    m.period = b->t.ndim == 3 || (loss && b->t.ndim == 2) ? b->t.shape[1] : m.rows;
    if (summed) m.terms = terms_of(j, name);
    if (low) m.shared += LOW_SHARED * fmax(roundoff(j->a), roundoff(j->b));
    if (low) m.terms = loss ? 1 : fmin(m.terms, UNKNOWN_TERMS);
    return m;
}

// What is compared: elements, or of weights after the update the steps.
static double element(const DiffTensor *t, const DiffTensor *weight, size_t i)
{
    return diff_stats_value(&t->t, i) - (weight ? diff_stats_value(&weight->t, i) : 0);
}

static Systematic systematic_of(const Judge *j, const DiffTensor *a, const DiffTensor *b)
{
    const DiffTensor *weight_a = NULL, *weight_b = NULL;
    if (begins(b->t.name, "updated.")) {
        weight_a = sibling(j->a, "weight.", b->t.name + strlen("updated."));
        weight_b = sibling(j->b, "weight.", b->t.name + strlen("updated."));
    }
    size_t n = b->t.n_elems;
    double *d = malloc((2 * n + 1) * sizeof *d), *size = d + n;
    if (!d) die("diff: no memory for %zu elements of %s", n, b->t.name);
    for (size_t i = 0; i < n; i++) {
        size[i] = element(b, weight_b, i);
        d[i] = element(a, weight_a, i) - size[i];
    }
    Systematic s = systematic(d, size, model_of(j, b));
    free(d);
    return s;
}

Judgement judge(const Judge *j, const DiffTensor *a, const DiffTensor *b)
{
    DiffStatsBound bound = bound_of(j, a, b);
    Judgement out = {.stats = diff_stats(&a->t, &b->t, a->stored, b->stored, bound), .kind = -1};
    out.out = out.stats.n_out || !(out.stats.ratio <= 1);
    out.tested = bound.mode == DIFF_STATS_DERIVED || bound.mode == DIFF_STATS_UPDATE;
    if (!out.tested || !a->t.n_elems) return out;
    out.systematic = systematic_of(j, a, b);
    out.kind = systematic_worst(&out.systematic);
    if (bound.mode == DIFF_STATS_DERIVED) // a factor that brings rms(a - b) out of its bound
        out.systematic.seen = fmin(out.systematic.seen, DIFF_STATS_SAFETY * bound.error *
                                                            fmax(1, bound.floor / diff_stats_rms(&b->t)));
    out.out |= out.kind >= 0;
    return out;
}
