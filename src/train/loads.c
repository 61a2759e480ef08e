// loads: counts how many slots each expert got in a step, and moves biases and shares by it.
//
//   bias    b_e += rate sign(mean load - load_e)    after each update (Wang et al., arXiv 2408.15664)
//   share   f_e = load_e / sum of loads
//
// The invariant: loads are whole numbers of slots of all tokens of a step, each counted once (experts.c), added over
// ranks in double, which is exact. So biases and shares are the same on every rank and every layout, with any number of
// micro-batches. Dropped slots count as load: what is measured is what the router wants.
#include "train/loads.h"

#include "base/check.h"
#include "net/experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Loads loads_create(const ModelShape *shape)
{
    Loads l = {.layers = shape->layers, .E = shape->experts.n};
    l.n_state = l.layers * 2 * l.E;
    l.count = calloc(l.layers * (l.E + 1), sizeof *l.count);
    l.state = calloc(l.n_state, sizeof *l.state);
    if (!l.count || !l.state) die("loads: no memory for %zu experts in %zu layers", l.E, l.layers);
    for (size_t i = 0; i < l.layers; i++)
        for (size_t e = 0; e < l.E; e++) l.state[(2 * i + 1) * l.E + e] = 1 / (double)l.E;
    return l;
}

void loads_free(Loads *l)
{
    free(l->count);
    free(l->state);
    *l = (Loads){.E = 0};
}

// The counts of this rank's layers, which begin again at zero.
static void take(Loads *l, Model *m)
{
    float *own = malloc((l->E + 1) * sizeof *own);
    if (!own) die("loads: no memory for %zu experts", l->E);
    memset(l->count, 0, l->layers * (l->E + 1) * sizeof *l->count);
    for (int u = 0; u < m->n_units; u++) {
        if (m->unit[u].kind != &unit_experts) continue;
        double *to = l->count + (size_t)(m->unit[u].place - 1) * (l->E + 1);
        m->dev->to_host(m->dev, own, m->experts[u].count, (l->E + 1) * sizeof *own);
        m->dev->zero(m->dev, m->experts[u].count, (l->E + 1) * sizeof *own);
        for (size_t e = 0; e <= l->E; e++) to[e] = own[e];
    }
    free(own);
}

void loads_step(Loads *l, Model *m, Replicas *replicas, bool updates)
{
    take(l, m);
    replicas_add(replicas, l->count, l->layers * (l->E + 1), COMM_FP64);
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
    for (size_t e = 0; e < l->E; e++) {
        double share = count[e] / f.slots;
        f.most = fmax(f.most, share * (double)l->E);
        f.least = fmin(f.least, share * (double)l->E);
        if (share > 0) f.entropy -= share * log(share);
    }
    f.entropy = l->E > 1 ? f.entropy / log((double)l->E) : 1;
    f.dropped = count[l->E] / f.slots;
    return f;
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
                                                 .load_max = f.most, .load_min = f.least, .entropy = f.entropy,
                                                 .dropped = f.dropped});
        worst = (LoadFigures){.most = fmax(worst.most, f.most), .least = fmin(worst.least, f.least),
                              .entropy = fmin(worst.entropy, f.entropy), .dropped = fmax(worst.dropped, f.dropped)};
    }
    free(text);
    if (worst.most > 0)
        progress_note(progress, "%-8s step %lld: loads of experts between %.2f and %.2f of the even one, entropy %.3f, "
                      "%.2g%% dropped (the worst layer of each)", "experts", (long long)step, worst.least, worst.most,
                      worst.entropy, 100 * worst.dropped);
}
