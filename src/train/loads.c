// loads: counts how many slots each expert got in a step, and moves biases and shares by it.
//
//   bias    b_e += rate sign(mean load - load_e)    after each update (Wang et al., arXiv 2408.15664)
//   share   f_e = load_e / sum of loads
//
// The invariant: loads are whole numbers of slots of all tokens of a step, each counted once (experts.c), added over
// ranks in double, which is exact. So biases and shares are the same on every rank and every layout, with any number of
// micro-batches. Dropped slots count as load: what is measured is what the router wants. The sums over tokens are exact
// too (experts.c), so every figure is the same on all layouts, where the routers' outputs are.
//
// How many steps a thing has gone on is not part of a checkpoint: a resumed run counts again.
#include "train/loads.h"

#include "base/check.h"
#include "net/experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Loads loads_create(const ModelShape *shape)
{
    const ModelExperts *x = &shape->experts;
    bool balanced = x->balance == MOE_BALANCE_SEQUENCE || x->balance == MOE_BALANCE_BATCH;
    Loads l = {.layers = shape->layers, .E = x->n, .k = x->k, .z_coef = x->z_coef,
               .balance_coef = balanced ? x->balance_coef : 0, .biased = x->balance == MOE_BALANCE_BIAS};
    l.n_state = l.layers * 2 * l.E;
    l.count = calloc(l.layers * (l.E + 1), sizeof *l.count);
    l.state = calloc(l.n_state, sizeof *l.state);
    l.own = calloc(2 * l.layers * EXPERTS_SUMS, sizeof *l.own), l.sum = l.own + l.layers * EXPERTS_SUMS;
    l.idle = calloc(l.layers * (l.E + 1), sizeof *l.idle), l.uneven = l.idle + l.layers * l.E;
    if (!l.count || !l.state || !l.own || !l.idle) die("loads: no memory for %zu experts in %zu layers", l.E, l.layers);
    for (size_t i = 0; i < l.layers; i++)
        for (size_t e = 0; e < l.E; e++) l.state[(2 * i + 1) * l.E + e] = 1 / (double)l.E;
    return l;
}

void loads_free(Loads *l)
{
    free(l->count);
    free(l->state);
    free(l->own);
    free(l->idle);
    *l = (Loads){.E = 0};
}

// The counts and sums of this rank's layers, which begin again at zero.
static void take(Loads *l, Model *m)
{
    float *own = malloc((l->E + 1) * sizeof *own);
    if (!own) die("loads: no memory for %zu experts", l->E);
    memset(l->count, 0, l->layers * (l->E + 1) * sizeof *l->count);
    memcpy(l->sum, l->own, l->layers * EXPERTS_SUMS * sizeof *l->sum);
    memset(l->own, 0, l->layers * EXPERTS_SUMS * sizeof *l->own);
    for (int u = 0; u < m->n_units; u++) {
        if (m->unit[u].kind != &unit_experts) continue;
        double *to = l->count + (size_t)(m->unit[u].place - 1) * (l->E + 1);
        m->dev->to_host(m->dev, own, m->experts[u].count, (l->E + 1) * sizeof *own);
        m->dev->zero(m->dev, m->experts[u].count, (l->E + 1) * sizeof *own);
        for (size_t e = 0; e <= l->E; e++) to[e] = own[e];
    }
    free(own);
}

void loads_watch(Loads *l, Model *m, bool on)
{
    l->watched = on;
    for (int u = 0; u < m->n_units; u++)
        if (m->unit[u].kind == &unit_experts)
            m->experts[u].sum = on ? l->own + (size_t)(m->unit[u].place - 1) * EXPERTS_SUMS : NULL;
}

void loads_step(Loads *l, Model *m, Replicas *replicas, bool updates)
{
    take(l, m);
    replicas_add(replicas, l->count, l->layers * (l->E + 1), COMM_FP64);
    if (l->watched) replicas_add(replicas, l->sum, l->layers * EXPERTS_SUMS, COMM_FP64);
    for (size_t i = 0; updates && i < l->layers; i++) {
        const double *count = l->count + i * (l->E + 1);
        double *bias = l->state + 2 * i * l->E, *share = bias + l->E, sum = 0;
        for (size_t e = 0; e < l->E; e++) sum += count[e];
        for (size_t e = 0; sum > 0 && e < l->E; e++) {
            double more = sum / (double)l->E - count[e];
            bias[e] += m->shape.experts.bias_rate * ((more > 0) - (more < 0));
            share[e] = count[e] / sum;
        }
    }
    if (updates) loads_tell(l, m);
}

void loads_tell(const Loads *l, Model *m)
{
    float *own = malloc((l->E + 1) * sizeof *own);
    if (!own) die("loads: no memory for %zu experts", l->E);
    for (int u = 0; u < m->n_units; u++) {
        if (m->unit[u].kind != &unit_experts) continue;
        float *to[] = {m->experts[u].bias, m->experts[u].load};
        for (int part = 0; part < 2; part++) {
            const double *from = l->state + ((size_t)(m->unit[u].place - 1) * 2 + (size_t)part) * l->E;
            for (size_t e = 0; e < l->E; e++) own[e] = (float)from[e];
            if (to[part]) m->dev->to_device(m->dev, to[part], own, l->E * sizeof *own);
        }
    }
    free(own);
}

LoadFigures loads_figures(const Loads *l, size_t layer)
{
    const double *count = l->count + layer * (l->E + 1);
    LoadFigures f = {.least = INFINITY};
    for (size_t e = 0; e < l->E; e++) f.slots += count[e];
    if (f.slots == 0) return (LoadFigures){.slots = 0};
    const double *bias = l->state + 2 * layer * l->E, *sum = l->sum + layer * EXPERTS_SUMS;
    for (size_t e = 0; e < l->E; e++) {
        double share = count[e] / f.slots;
        f.most = fmax(f.most, share * (double)l->E);
        f.least = fmin(f.least, share * (double)l->E);
        f.idle += count[e] == 0;
        if (l->biased) f.bias[0] = fmin(f.bias[0], bias[e]), f.bias[1] = fmax(f.bias[1], bias[e]);
        if (share > 0) f.nats -= share * log(share);
    }
    f.entropy = l->E > 1 ? f.nats / log((double)l->E) : 1;
    f.dropped = count[l->E] / f.slots;
    double tokens = l->watched ? sum[EXPERTS_TOKENS] : 0; // 0 / 0 is NAN
    f.largest = sum[EXPERTS_LARGEST] / tokens;
    f.balance = l->balance_coef * (sum[EXPERTS_BALANCE] / tokens);
    f.z = l->z_coef * (sum[EXPERTS_Z] / tokens);
    return f;
}

bool loads_judge(Loads *l, size_t layer, long steps, double least, char text[LOADS_TEXT])
{
    const double *count = l->count + layer * (l->E + 1), even = log((double)l->E), same = log((double)l->k);
    long *idle = l->idle + layer * l->E, *uneven = l->uneven + layer;
    LoadFigures f = loads_figures(l, layer);
    bool now = false;
    size_t n = 0, at;
    if (!steps || f.slots == 0) return false;
    for (size_t e = 0; e < l->E; e++) {
        idle[e] = count[e] > 0 ? 0 : idle[e] + 1;
        n += idle[e] >= steps, now |= idle[e] == steps;
    }
    *uneven = f.nats - same < least * (even - same) ? *uneven + 1 : 0;
    if (!now && *uneven != steps) return false;
    at = (size_t)snprintf(text, LOADS_TEXT, "experts of layers.%zu: for %ld steps ", layer, steps);
    if (*uneven >= steps)
        at += (size_t)snprintf(text + at, LOADS_TEXT - at, "the entropy of their loads has been as low as if %.1f of "
                               "%zu were used evenly%s", exp(f.nats), l->E, n ? ", and " : "");
    if (n) at += (size_t)snprintf(text + at, LOADS_TEXT - at, "no token has used %zu of them:", n);
    for (size_t e = 0, shown = 0; n && e < l->E && shown < 8; e++)
        if (idle[e] >= steps) shown++, at += (size_t)snprintf(text + at, LOADS_TEXT - at, " %zu", e);
    snprintf(text + at, LOADS_TEXT - at, "%s", n > 8 ? " ..." : "");
    return true;
}

void loads_report(const Loads *l, Progress *progress, int64_t step, int64_t tokens)
{
    if (!progress) return;
    LoadFigures worst = {.least = INFINITY, .entropy = INFINITY};
    size_t room = l->E * 21 + 1;
    char *text = malloc(room);
    if (!text) die("loads: no memory for %zu experts", l->E);
    for (size_t i = 0; i < l->layers; i++) {
        LoadFigures f = loads_figures(l, i);
        if (f.slots == 0) continue;
        char name[32];
        snprintf(name, sizeof name, "layers.%zu", i);
        *text = 0;
        for (size_t e = 0, at = 0; e < l->E; e++)
            at += (size_t)snprintf(text + at, room - at, "%s%.0f", e ? " " : "", l->count[i * (l->E + 1) + e]);
        progress_experts(progress, &(MetricsRow){.step = step, .tokens = tokens, .name = name, .text = text,
                                                 .load_max = f.most, .load_min = f.least, .max_vio = f.most - 1,
                                                 .share_max = f.most / (double)l->E,
                                                 .share_min = f.least / (double)l->E,
                                                 .idle = (int64_t)f.idle, .entropy = f.entropy, .entropy_nats = f.nats,
                                                 .dropped = f.dropped, .gate_max = f.largest, .balance_loss = f.balance,
                                                 .z_loss = f.z, .bias_min = f.bias[0], .bias_max = f.bias[1]});
        worst = (LoadFigures){.most = fmax(worst.most, f.most), .least = fmin(worst.least, f.least),
                              .idle = worst.idle + f.idle, .entropy = fmin(worst.entropy, f.entropy),
                              .dropped = fmax(worst.dropped, f.dropped)};
    }
    free(text);
    if (worst.most > 0)
        progress_note(progress, "%-8s step %lld: loads of experts between %.2f and %.2f of the even one, entropy %.3f, "
                      "%.2g%% dropped (the worst layer of each); %zu without a token", "experts", (long long)step,
                      worst.least, worst.most, worst.entropy, 100 * worst.dropped, worst.idle);
}
