// routing: the choice of experts is a step function, so rounding can turn it: where two scores are equal but for
// rounding, A and B may both be right and choose differently. What follows is then not rounding, but another function.
//
//     near a tie    |score of what B chose - score of what A chose| <= what rounding may do to both,  in B's numbers
//
// for each expert that one side alone chose, against each that the other alone chose; and where both chose the same in
// another order, against the one at the same place. Scores are the router's outputs or, where biases take part, the
// keys of dump.c, whose slope is at most 1/2 (|ds| <= s 2 max |dz| (1 - s)).
//
// A choice that differs and is not near a tie is an error of the choice. After one that is, this is left out:
//
//     the layer's own tensors      that token; those by slot and the weights also where the order alone differs
//     later layers and the loss    that token and those after it, which see it
//     backward                     the whole sequence
//     grad, state, updated         all: they are sums over tokens
//
// Rejected: leaving out nothing (any flip would be reported as a bug, and one in some thousand tokens flips in bf16);
// forcing A's choices upon B (two programs would have to do that); a bound for gradients with a few other tokens (it
// would be so wide that no error is seen).
//
// With capacity a flip makes it drop another slot of the sequence, too. So where a sequence has a flip, a token of
// which one side dropped a slot and the other did not counts as one that chose otherwise.
//
// Not seen: two groups of experts in a tie (model.experts_groups).
#include "dev/check/routing.h"

#include "base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const DiffTensor *sibling(const DiffSide *s, size_t layer, const char *name)
{
    char full[80];
    snprintf(full, sizeof full, "forward.layers.%zu.%s", layer, name);
    return diff_side_find(s, full);
}

// "forward.layers.3.choice" is tensor "choice" of layer 3; NULL: not of a layer's forward.
static const char *of_layer(const char *name, size_t *layer)
{
    unsigned long number;
    int n = 0;
    if (sscanf(name, "forward.layers.%lu.%n", &number, &n) != 1 || !n) return NULL;
    *layer = number;
    return name + n;
}

// ---- how near a tie

typedef struct {
    const SafeTensor *score, *logits; // (tokens, E) of B
    size_t E;
    double error, whole; // of the logits: what is expected relative to their size, and that size
    double tail;
    bool keys;
} Scores;

// What rounding may do to an expert's score: as diff.c has it for an element of the router's outputs.
static double allowed(const Scores *s, size_t token, size_t e)
{
    double size = fmax(fabs(diff_stats_value(s->logits, token * s->E + e)), s->whole);
    return DIFF_STATS_SAFETY * s->error * s->tail * size * (s->keys ? 0.5 : 1);
}

// B chose b where A chose a: the gap, as a part of what rounding may do.
static double ratio_of(const Scores *s, size_t token, size_t a, size_t b)
{
    double gap = fabs(diff_stats_value(s->score, token * s->E + b) - diff_stats_value(s->score, token * s->E + a));
    double limit = allowed(s, token, a) + allowed(s, token, b);
    return gap == 0 ? 0 : limit > 0 ? gap / limit : INFINITY;
}

static bool scores_of(Scores *s, const DiffSide *a, const DiffSide *b, size_t layer, size_t tokens)
{
    const DiffTensor *logits = sibling(b, layer, "router"), *other = sibling(a, layer, "router");
    const DiffTensor *keys = sibling(b, layer, "keys");
    if (!logits || !logits->t.ndim) return false;
    *s = (Scores){.score = keys ? &keys->t : &logits->t, .logits = &logits->t, .keys = keys != NULL,
                  .E = logits->t.shape[logits->t.ndim - 1], .whole = diff_stats_rms(&logits->t),
                  .tail = sqrt(2 * log(2e6 * (double)logits->t.n_elems))};
    double own = logits->error > 0 ? logits->error : other ? other->error : 0;
    s->error = hypot(own, other && other->error > 0 ? other->error : own);
    return logits->t.n_elems == tokens * s->E && (!keys || keys->t.n_elems == logits->t.n_elems);
}

static bool has(const size_t *list, size_t k, size_t e)
{
    for (size_t j = 0; j < k; j++)
        if (list[j] == e) return true;
    return false;
}

// Compares a token's choices; known: the scores are. Without them nothing shows that it is a tie.
static void look(RoutingLayer *l, const Scores *s, bool known, size_t token, const size_t *a, const size_t *b)
{
    double worst = 0;
    unsigned char kind = 0;
    for (size_t j = 0; j < l->k; j++) {
        if (a[j] != b[j] && !kind) kind = 1;
        if (!has(b, l->k, a[j])) kind = 2;
        known = known && a[j] < s->E && b[j] < s->E;
    }
    for (size_t i = 0; kind && known && i < l->k; i++)
        for (size_t j = 0; j < l->k; j++) {
            bool compared = kind == 1 ? i == j && a[i] != b[j] : !has(b, l->k, a[i]) && !has(a, l->k, b[j]);
            if (compared) worst = fmax(worst, ratio_of(s, token, a[i], b[j]));
        }
    l->differs[token] = kind;
    l->ratio[token] = kind && !known ? INFINITY : worst;
    l->order += kind == 1, l->other += kind == 2, l->far += !(l->ratio[token] <= 1);
}

// Whether a token, or one before it in its sequence, chose otherwise in an earlier layer: then its scores here are
// those of another function.
static bool changed_before(const Routing *r, const RoutingLayer *l, size_t token)
{
    size_t T = l->choice->t.shape[1];
    for (int i = 0; i < r->n; i++) {
        const RoutingLayer *below = &r->layer[i];
        if (below->tokens != l->tokens) continue;
        for (size_t n = token - token % T; n <= token; n++)
            if (below->differs[n] == 2) return true;
    }
    return false;
}

// Whether one side alone dropped a slot of the token: its row of experts_down is 0 there.
static bool drops_differ(const SafeTensor *a, const SafeTensor *b, size_t token, size_t k, size_t tokens)
{
    size_t width = a->n_elems / tokens / k;
    for (size_t j = 0; j < k; j++) {
        bool there[2] = {false, false};
        for (size_t c = 0; c < width; c++) {
            size_t i = (token * k + j) * width + c;
            there[0] |= diff_stats_value(a, i) != 0, there[1] |= diff_stats_value(b, i) != 0;
        }
        if (there[0] != there[1]) return true;
    }
    return false;
}

static void look_for_drops(RoutingLayer *l, const DiffTensor *a, const DiffTensor *b)
{
    size_t T = l->choice->t.shape[1];
    if (!a || !b || a->t.n_elems != b->t.n_elems || a->t.n_elems % (l->tokens * l->k)) return;
    for (size_t s = 0; s < l->tokens; s += T) {
        bool flip = false;
        for (size_t i = 0; i < T; i++) flip |= l->differs[s + i] > 0;
        for (size_t i = 0; flip && i < T; i++)
            if (drops_differ(&a->t, &b->t, s + i, l->k, l->tokens)) l->differs[s + i] = 2;
    }
}

// r: of the layers below.
static void read_layer(const Routing *r, RoutingLayer *l, const DiffSide *a, const DiffSide *b, const DiffTensor *other)
{
    Scores scores = {.E = 0};
    size_t *own = malloc(2 * l->k * sizeof *own);
    l->differs = calloc(l->tokens, 1);
    l->ratio = calloc(l->tokens, sizeof *l->ratio);
    if (!own || !l->differs || !l->ratio) die("diff: no memory for the choices of %zu tokens", l->tokens);
    bool known = scores_of(&scores, a, b, l->layer, l->tokens);
    for (size_t n = 0; n < l->tokens; n++) {
        for (size_t j = 0; j < l->k; j++) {
            own[j] = (size_t)diff_stats_value(&l->choice->t, n * l->k + j);
            own[l->k + j] = (size_t)diff_stats_value(&other->t, n * l->k + j);
        }
        if (!changed_before(r, l, n)) look(l, &scores, known, n, own, own + l->k);
    }
    const DiffTensor *down = sibling(a, l->layer, "experts_down");
    if (l->other + l->order) look_for_drops(l, down, sibling(b, l->layer, "experts_down"));
    free(own);
}

Routing routing_read(const DiffSide *a, const DiffSide *b)
{
    Routing r = {.n = 0};
    for (int i = 0; i < a->n; i++) {
        const DiffTensor *t = &a->tensor[i], *other;
        size_t layer;
        const char *name = of_layer(t->t.name, &layer);
        if (!name || strcmp(name, "choice") || t->t.ndim != 3 || !t->t.n_elems) continue;
        other = diff_side_find(b, t->t.name);
        if (!other || other->t.ndim != 3 || memcmp(other->t.shape, t->t.shape, 3 * sizeof *t->t.shape)) continue;
        r.layer = realloc(r.layer, ((size_t)r.n + 1) * sizeof *r.layer);
        if (!r.layer) die("diff: no memory for %d layers", r.n + 1);
        RoutingLayer *l = &r.layer[r.n];
        *l = (RoutingLayer){.choice = t, .layer = layer, .k = t->t.shape[2], .tokens = t->t.shape[0] * t->t.shape[1]};
        read_layer(&r, l, a, b, other);
        r.other += l->other, r.n++;
    }
    return r;
}

void routing_free(Routing *r)
{
    for (int i = 0; i < r->n; i++) free(r->layer[i].differs), free(r->layer[i].ratio);
    free(r->layer);
    *r = (Routing){.n = 0};
}

const RoutingLayer *routing_layer(const Routing *r, const DiffTensor *a)
{
    for (int i = 0; i < r->n; i++)
        if (r->layer[i].choice == a) return &r->layer[i];
    return NULL;
}

Judgement routing_judge(const RoutingLayer *l, const DiffTensor *a, const DiffTensor *b)
{
    DiffStatsBound any = {.mode = DIFF_STATS_GIVEN, .atol = INFINITY};
    Judgement out = {.stats = diff_stats(&a->t, &b->t, a->stored, b->stored, any), .kind = -1, .out = l->far > 0};
    out.stats.n_out = l->far * l->k;
    out.stats.ratio = 0, out.stats.n_worst = 0;
    for (size_t n = 0; n < l->tokens; n++) {
        if (l->ratio[n] > out.stats.ratio) out.stats.ratio = l->ratio[n];
        if (l->ratio[n] <= 1 || out.stats.n_worst == DIFF_STATS_WORST) continue;
        size_t j = 0; // the first place that differs
        while (j + 1 < l->k && diff_stats_value(&a->t, n * l->k + j) == diff_stats_value(&b->t, n * l->k + j)) j++;
        out.stats.worst[out.stats.n_worst] = n * l->k + j;
        out.stats.worst_ratio[out.stats.n_worst++] = l->ratio[n];
    }
    return out;
}

// ---- what follows from choices

const char *routing_lacks(const Routing *r, const DiffTensor *a)
{
    DumpKind kind;
    if (!r->other || !diff_kind(a->t.name, &kind)) return NULL;
    return kind == DUMP_GRAD || kind == DUMP_STATE || kind == DUMP_UPDATED ? "tokens chose other experts" : NULL;
}

// Marks the tokens of t = (S, T, ...) that a layer's choices have part in.
static size_t mark(unsigned char *leave, const RoutingLayer *l, const DiffTensor *t, DumpKind kind)
{
    static const char *const by_slot[] = {"weights", "experts_pre", "experts_act", "experts_down"};
    size_t T = l->choice->t.shape[1], layer = 0, n = 0;
    const char *name = of_layer(t->t.name, &layer);
    bool own = name && layer == l->layer, slots = false;
    if (kind == DUMP_FORWARD && (t->at <= l->choice->at || (own && (!strcmp(name, "router") || !strcmp(name, "keys")))))
        return 0;
    for (size_t i = 0; own && i < sizeof by_slot / sizeof *by_slot; i++) slots |= !strcmp(name, by_slot[i]);
    for (size_t s = 0; s < l->tokens; s += T) {
        bool seen = false;
        for (size_t i = 0; i < T; i++) seen |= l->differs[s + i] == 2;
        bool after = kind == DUMP_BACKWARD && seen;
        for (size_t i = 0; i < T; i++) {
            bool other = l->differs[s + i] == 2;
            after |= other && !own;
            bool left = after || other || (slots && l->differs[s + i]);
            leave[s + i] |= left, n += left;
        }
    }
    return n;
}

void *routing_masked(const Routing *r, const DiffTensor *t)
{
    DumpKind kind;
    size_t tokens = r->n ? r->layer[0].tokens : 0, n = 0;
    bool stream = tokens && diff_kind(t->t.name, &kind) && t->t.ndim >= 2 &&
                  (kind == DUMP_FORWARD || kind == DUMP_LOSS || kind == DUMP_BACKWARD) &&
                  t->t.shape[0] * t->t.shape[1] == tokens;
    if (!stream || !t->t.n_elems) return NULL;
    unsigned char *leave = calloc(tokens, 1);
    if (!leave) die("diff: no memory for %zu tokens", tokens);
    for (int i = 0; i < r->n; i++)
        if (r->layer[i].tokens == tokens) n += mark(leave, &r->layer[i], t, kind);
    char *copy = n ? malloc(t->t.n_bytes) : NULL;
    if (n && !copy) die("diff: no memory for %zu bytes of %s", t->t.n_bytes, t->t.name);
    size_t each = t->t.n_bytes / tokens;
    if (copy) memcpy(copy, t->t.data, t->t.n_bytes);
    for (size_t i = 0; copy && i < tokens; i++)
        if (leave[i]) memset(copy + i * each, 0, each);
    free(leave);
    return copy;
}
