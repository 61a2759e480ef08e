// experts: the ops of mixture of experts on the CPU, but for the products (matmul.c): the choice of experts, the
// sorting of slots, rows to the experts and back, SwiGLU times the weight of a slot.
//
// Backward of the choice. With the scores s of the k chosen, S their sum and c the scale, weights are g_j = c s_j / S
// (renorm) or c s_j. So
//
//   ds_j = c (dg_j - sum_i dg_i s_i / S) / S           or c dg_j; 0 for experts that were not chosen
//   P_e  = s_e / sum s,  ds_e += (even_e - sum_i even_i P_i) / sum s                    the balance loss
//   softmax   dz_e = s_e (ds_e - sum_i ds_i s_i)                                        sigmoid: ds_e s_e (1 - s_e)
//   z loss    dz_e += 2 z lse softmax(z)_e
//
// Which experts are chosen is a step function, whose derivative is 0 wherever it has one.
//
// The invariant: each result is one sum in a fixed order, made by one thread, so no bits depend on threads; a row's
// results depend on its own token only, except for what capacity drops. Slots of an expert are sorted stably, by
// counting: the order in which an expert's gradient adds tokens is that of the tokens. No atomic additions.
#include "ops/dev_cpu.h"

#include "base/check.h"
#include "base/vmath.h"

#include <stdlib.h>
#include <string.h>

// ---- scores and choice

static float score_row(float *s, const float *z, DevRouter r)
{
    float top = z[0], sum = 0;
    for (size_t e = 0; e < r.E; e++) top = z[e] > top || z[e] != z[e] ? z[e] : top; // a NaN stays
    for (size_t e = 0; e < r.E; e++) {
        s[e] = r.sigmoid ? vmath_sigmoid(z[e]) : vmath_exp(z[e] - top);
        sum += s[e];
    }
    for (size_t e = 0; !r.sigmoid && e < r.E; e++) s[e] /= sum;
    return top + logf(sum); // softmax: log sum exp z
}

// The largest of n keys that is not taken, the first of equal ones.
static size_t largest(const float *key, const bool *taken, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || key[i] > key[best])) best = i;
    return best;
}

// Marks the experts of all but the best groups as taken.
static void keep_groups(const float *key, bool *taken, float *value, bool *chosen, DevRouter r)
{
    size_t each = r.E / r.groups;
    for (size_t g = 0; g < r.groups; g++) {
        const float *own = key + g * each;
        size_t first = largest(own, taken + g * each, each);
        value[g] = own[first];
        chosen[g] = false;
        if (!r.sigmoid || each == 1) continue;
        taken[g * each + first] = true;
        value[g] += own[largest(own, taken + g * each, each)];
        taken[g * each + first] = false;
    }
    for (size_t i = 0; i < r.best; i++) chosen[largest(value, chosen, r.groups)] = true;
    for (size_t e = 0; e < r.E; e++) taken[e] = !chosen[e / each];
}

// Is added to a sum of scores that divides, as DeepSeek-V3 does: of sigmoids, all may be as small as 1e-38, and 1 / 1e-38
// is near the largest number.
#define LEAST_SCORE 1e-20f

static void choose(int32_t *choice, float *gate, const float *z, const float *bias, float *room, bool *taken,
                   DevRouter r)
{
    float *s = room, *key = room + r.E, sum = LEAST_SCORE;
    score_row(s, z, r);
    for (size_t e = 0; e < r.E; e++) {
        key[e] = s[e] + (bias ? bias[e] : 0), taken[e] = false;
        if (key[e] != key[e]) key[e] = -INFINITY; // keys have an order, so k different experts come out
    }
    if (r.groups) keep_groups(key, taken, room + 2 * r.E, taken + r.E, r);
    for (size_t j = 0; j < r.k; j++) {
        size_t e = largest(key, taken, r.E);
        taken[e] = true;
        choice[j] = (int32_t)e;
        sum += gate[j] = s[e];
    }
    for (size_t j = 0; j < r.k; j++) gate[j] = r.scale * (r.renorm ? gate[j] / sum : gate[j]);
}

static void route_forward(Dev *dev, int32_t *choice, float *gate, const float *logits, const float *bias, size_t N,
                          DevRouter r)
{
#pragma omp parallel num_threads(dev_cpu_team(dev, N * r.E))
    {
        float *room = malloc(3 * r.E * sizeof *room);
        bool *taken = malloc(2 * r.E);
        if (!room || !taken) die("cpu: no memory for %zu experts", r.E);
#pragma omp for schedule(static)
        for (size_t n = 0; n < N; n++)
            choose(choice + n * r.k, gate + n * r.k, logits + n * r.E, bias, room, taken, r);
        free(room), free(taken);
    }
}

static void choose_backward(float *dz, const float *dgate, const float *z, const int32_t *choice, const float *even,
                            float even_scale, float z_scale, float *s, float *ds, DevRouter r)
{
    float lse = score_row(s, z, r), chosen = LEAST_SCORE, all = chosen, total = 0, dot = 0;
    for (size_t e = 0; e < r.E; e++) ds[e] = 0, all += s[e];
    for (size_t j = 0; j < r.k; j++) chosen += s[choice[j]];
    for (size_t j = 0; j < r.k; j++) total += dgate[j] * (s[choice[j]] / chosen);
    for (size_t j = 0; j < r.k; j++)
        ds[choice[j]] = r.scale * (r.renorm ? (dgate[j] - total) / chosen : dgate[j]);
    if (even) {
        for (size_t e = 0; e < r.E; e++) dot += even[e] * (s[e] / all);
        for (size_t e = 0; e < r.E; e++) ds[e] += even_scale * (even[e] - dot) / all;
    }
    dot = 0;
    for (size_t e = 0; e < r.E; e++) dot += ds[e] * s[e];
    for (size_t e = 0; e < r.E; e++) dz[e] = r.sigmoid ? ds[e] * s[e] * (1 - s[e]) : s[e] * (ds[e] - dot);
    if (z_scale == 0) return;
    if (r.sigmoid) lse = score_row(s, z, (DevRouter){.E = r.E});
    for (size_t e = 0; e < r.E; e++) dz[e] += 2 * z_scale * lse * s[e];
}

static void route_backward(Dev *dev, float *dlogits, const float *dgate, const float *logits, const int32_t *choice,
                           const float *even, float even_scale, float z, size_t N, size_t T, DevRouter r)
{
#pragma omp parallel num_threads(dev_cpu_team(dev, N * r.E))
    {
        float *room = malloc(2 * r.E * sizeof *room);
        if (!room) die("cpu: no memory for %zu experts", r.E);
#pragma omp for schedule(static)
        for (size_t n = 0; n < N; n++)
            choose_backward(dlogits + n * r.E, dgate + n * r.k, logits + n * r.E, choice + n * r.k,
                            even ? even + n / T * r.E : NULL, even_scale, z, room, room + r.E, r);
        free(room);
    }
}

// ---- slots and rows

static void experts_count(Dev *dev, float *count, const int32_t *choice, const int32_t *row, size_t N, size_t T,
                          size_t k, size_t E)
{
    (void)dev;
    memset(count, 0, N / T * (E + 1) * sizeof *count);
    for (size_t i = 0; i < N * k; i++) {
        float *own = count + i / (T * k) * (E + 1);
        own[choice[i]]++;
        if (row && row[i] < 0) own[E]++;
    }
}

typedef struct {
    float gate;
    size_t slot;
} Bid;

static int by_gate_then_slot(const void *a, const void *b)
{
    const Bid *x = a, *y = b;
    if (x->gate < y->gate || x->gate > y->gate) return x->gate < y->gate ? 1 : -1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

// Of slots [first, first + n), sets row to -1 where an expert has `cap` before it, in the order of slots or of weights.
static void drop(int32_t *row, const int32_t *choice, const float *gate, size_t first, size_t n, size_t E, size_t cap,
                 bool by_gate)
{
    Bid *bid = malloc(n * sizeof *bid);
    size_t *taken = calloc(E, sizeof *taken);
    if (!bid || !taken) die("cpu: no memory for %zu slots", n);
    for (size_t i = 0; i < n; i++) { // a NaN has no place in an order
        float g = gate[first + i];
        bid[i] = (Bid){g == g ? g : -INFINITY, first + i};
    }
    if (by_gate) qsort(bid, n, sizeof *bid, by_gate_then_slot);
    for (size_t i = 0; i < n; i++)
        if (taken[choice[bid[i].slot]]++ >= cap) row[bid[i].slot] = -1;
    free(bid);
    free(taken);
}

static void experts_sort(Dev *dev, int32_t *offset, int32_t *row, int32_t *slot, const int32_t *choice,
                         const float *gate, size_t N, size_t T, size_t k, size_t E, size_t cap, bool by_gate)
{
    (void)dev;
    size_t R = N * k;
    bool given = cap == DEV_ROWS_GIVEN;
    if (!given) memset(row, 0, R * sizeof *row);
    for (size_t first = 0; cap && !given && first < R; first += T * k) drop(row, choice, gate, first, T * k, E, cap, by_gate);
    memset(offset, 0, (E + 1) * sizeof *offset);
    for (size_t i = 0; i < R; i++)
        if (row[i] >= 0) offset[choice[i] + 1]++;
    for (size_t e = 0; e < E; e++) offset[e + 1] += offset[e];
    for (size_t i = 0; i < R; i++) slot[i] = -1;
    for (size_t i = 0; i < R; i++) { // offset[e] becomes the end of e's rows, which is the beginning of the next ones
        if (row[i] < 0) continue;
        row[i] = offset[choice[i]]++;
        slot[row[i]] = (int32_t)i;
    }
    for (size_t e = E; e > 0; e--) offset[e] = offset[e - 1];
    offset[0] = 0;
}

static void experts_gather(Dev *dev, X *out_, const X *inp_, const int32_t *slot, size_t R, size_t k, size_t C)
{
    float *out = (float *)out_;
    const float *inp = (const float *)inp_;
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, R * C))
    for (size_t r = 0; r < R; r++) {
        if (slot[r] < 0) memset(out + r * C, 0, C * sizeof *out);
        else memcpy(out + r * C, inp + (size_t)slot[r] / k * C, C * sizeof *out);
    }
}

static void experts_combine(Dev *dev, X *out_, const X *inp_, const int32_t *row, size_t N, size_t k, size_t C)
{
    float *out = (float *)out_;
    const float *inp = (const float *)inp_;
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, N * k * C))
    for (size_t n = 0; n < N; n++) {
        float *to = out + n * C;
        memset(to, 0, C * sizeof *to);
        for (size_t j = 0; j < k; j++) {
            if (row[n * k + j] < 0) continue;
            const float *from = inp + (size_t)row[n * k + j] * C;
#pragma omp simd
            for (size_t c = 0; c < C; c++) to[c] += from[c];
        }
    }
}

static void experts_pick(Dev *dev, float *out, const float *inp, const int32_t *index, size_t n)
{
    (void)dev;
    for (size_t i = 0; i < n; i++) out[i] = index[i] < 0 ? 0 : inp[index[i]];
}

// ---- SwiGLU times the weight of the slot

static void experts_swiglu_forward(Dev *dev, X *out_, const X *gate_up, const float *gate, const int32_t *slot,
                                   size_t R, size_t F)
{
    float *out = (float *)out_;
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, R * F))
    for (size_t r = 0; r < R; r++) {
        const float *g = (const float *)gate_up + r * 2 * F, *u = g + F;
        if (slot && slot[r] < 0) {
            memset(out + r * F, 0, F * sizeof *out);
            continue;
        }
        float weight = gate[slot ? (size_t)slot[r] : r];
#pragma omp simd
        for (size_t f = 0; f < F; f++) out[r * F + f] = weight * (g[f] * vmath_sigmoid(g[f]) * u[f]);
    }
}

// The sum of n numbers, which are lost: of both halves, as long as there are halves. So where 2, 4, 8 ... ranks divide
// the columns, each rank's are a subtree.
static float sum_in_halves(float *x, size_t n)
{
    size_t leaves = 1;
    while (n > 0 && n % 2 == 0) n /= 2, leaves *= 2;
    for (size_t i = 0; i < leaves; i++) {
        float sum = 0;
        for (size_t j = i * n; j < (i + 1) * n; j++) sum += x[j];
        x[i] = sum;
    }
    for (; leaves > 1; leaves /= 2)
        for (size_t i = 0; i < leaves / 2; i++) x[i] = x[2 * i] + x[2 * i + 1];
    return x[0];
}

static void experts_swiglu_backward(Dev *dev, X *dgate_up, float *dgate, const X *dout, const X *gate_up,
                                    const float *gate, const int32_t *slot, size_t R, size_t F)
{
#pragma omp parallel for schedule(static) num_threads(dev_cpu_team(dev, R * F))
    for (size_t r = 0; r < R; r++) {
        const float *g = (const float *)gate_up + r * 2 * F, *u = g + F, *d = (const float *)dout + r * F;
        float *dg = (float *)dgate_up + r * 2 * F, *du = dg + F, sum = 0;
        if (slot && slot[r] < 0) {
            memset(dg, 0, 2 * F * sizeof *dg);
            continue;
        }
        size_t at = slot ? (size_t)slot[r] : r;
        float weight = gate[at], ordered = 0;
        if (dev->deterministic) {
#pragma omp simd
            for (size_t f = 0; f < F; f++) du[f] = d[f] * (g[f] * vmath_sigmoid(g[f]) * u[f]);
            ordered = sum_in_halves(du, F);
        }
#pragma omp simd reduction(+ : sum)
        for (size_t f = 0; f < F; f++) {
            float sigmoid = vmath_sigmoid(g[f]), silu = g[f] * sigmoid, dy = weight * d[f];
            sum += d[f] * (silu * u[f]);
            dg[f] = dy * u[f] * sigmoid * (1 + g[f] * (1 - sigmoid));
            du[f] = dy * g[f] * sigmoid;
        }
        dgate[at] = dev->deterministic ? ordered : sum;
    }
}

void experts_cpu_fill(Dev *dev)
{
    dev->route_forward = route_forward;
    dev->route_backward = route_backward;
    dev->experts_count = experts_count;
    dev->experts_sort = experts_sort;
    dev->experts_gather = experts_gather;
    dev->experts_combine = experts_combine;
    dev->experts_pick = experts_pick;
    dev->experts_swiglu_forward = experts_swiglu_forward;
    dev->experts_swiglu_backward = experts_swiglu_backward;
}
