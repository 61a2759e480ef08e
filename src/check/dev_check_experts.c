// dev_check_experts: mixture of experts on two devices, and how far they may be apart.
//
// Bounds as in dev_check.c; u = 2^-24, gam(n) = n u / (1 - n u) for a sum of n terms.
//
//   scores     softmax: z - top is off by u |z - top|, exp by FN u, the sum of E positive terms by as much and
//              gam(E), the quotient by u: relatively 2 (FN u + u span) + gam(E) + 2 u, where span is the largest
//              |z - top| (88 at most: exp is 0 beyond). sigmoid: (FN + 3) u.
//              log sum exp: the error of the sum, FN u |log|, u |lse|
//   weights    with renorm the score's error, that of the sum of k, a quotient and a product
//   backward   the formulas of experts.c, term by term; where two terms are subtracted, the sizes of both are added
//   products   dev_check_matmul.c: 2 (K + 2) u size, where size is the product of the absolute values
//   combine    gam(k) sum |x|; swiglu as in dev_check_rows.c with one product more; dgate: gam(F) and 8 factors' errors
//   exact      counts, sorting, gathering
//
// Which experts are chosen: fp32 may order two keys otherwise where their true values are no farther apart than their
// errors. So a choice is judged by itself: an expert that was passed over must not be better than the chosen one by
// more than both errors (or its group may have been dropped, judged in the same way by the groups' values). Of equal
// logits with equal biases every device computes equal keys, so there the lower number is demanded. The weights are
// compared with those of the choice that was made, in double.
#include "src/check/dev_check.h"

#include <math.h>
#include <string.h>

static const double U = DEV_CHECK_U, TINY = 0x1p-110;
enum { FN = DEV_CHECK_FN };

static double gam(size_t n)
{
    return (double)n * U / (1 - (double)n * U);
}

// ---- the choice in double

typedef struct {
    double rel, lse, lse_err; // rel: of each score
} Scores;

static Scores scores_of(double *s, const float *z, bool sigmoid, size_t E)
{
    double top = z[0], sum = 0, span = 0;
    for (size_t e = 0; e < E; e++) top = z[e] > top ? z[e] : top;
    for (size_t e = 0; e < E; e++) {
        s[e] = sigmoid ? 1 / (1 + exp(-(double)z[e])) : exp(z[e] - top);
        sum += s[e];
        span = fmax(span, fmin(fabs(z[e] - top), 88));
    }
    if (sigmoid) return (Scores){.rel = (FN + 3) * U};
    for (size_t e = 0; e < E; e++) s[e] /= sum;
    double of_exp = (FN + span) * U, lse = top + log(sum);
    return (Scores){2 * of_exp + gam(E) + 2 * U, lse, of_exp + gam(E) + FN * U * fabs(log(sum)) + U * fabs(lse)};
}

void dev_check_route_weights(double *gate, double *err, const float *z, const int32_t *choice, DevRouter r)
{
    double s[r.E], sum = 0, rel = scores_of(s, z, r.sigmoid, r.E).rel;
    for (size_t j = 0; j < r.k; j++) sum += s[choice[j]];
    for (size_t j = 0; j < r.k; j++) {
        gate[j] = r.scale * s[choice[j]] / (r.renorm ? sum : 1);
        err[j] = 1.01 * fabs(gate[j]) * (r.renorm ? 2 * rel + gam(r.k) + 2 * U : rel + U);
    }
}

// The most that the best of n keys may sum to (sign 1), or the least (-1): of the best two where `two`.
static double best_of(const double *key, const double *err, size_t n, bool two, double sign)
{
    double first = -INFINITY, second = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        double x = key[i] + sign * err[i];
        if (x > first) second = first, first = x;
        else if (x > second) second = x;
    }
    double sum = two && n > 1 ? first + second : first;
    return sum + (two && sum > -INFINITY ? sign * U * fabs(sum) : 0);
}

typedef struct {
    const double *high, *low; // value of each group
    DevRouter r;
} Groups;

static bool may_stay(Groups g, size_t i)
{
    size_t better = 0;
    for (size_t h = 0; h < g.r.groups; h++) better += g.low[h] > g.high[i];
    return better < g.r.best;
}

static bool may_go(Groups g, size_t i)
{
    size_t others = 0;
    for (size_t h = 0; h < g.r.groups; h++) others += h != i && g.high[h] >= g.low[i];
    return others >= g.r.best;
}

// Are the groups of the k chosen ones at most `best`, each of which may be among them?
static bool right_groups(Groups g, const int32_t *choice)
{
    size_t each = g.r.E / g.r.groups, used = 0;
    for (size_t i = 0; i < g.r.groups; i++) {
        bool in = false;
        for (size_t j = 0; j < g.r.k; j++) in = in || (size_t)choice[j] / each == i;
        if (in && !may_stay(g, i)) return false;
        used += in;
    }
    return used <= g.r.best;
}

bool dev_check_route_choice(const int32_t *choice, const float *z, const float *bias, DevRouter r)
{
    size_t groups = r.groups ? r.groups : 1, each = r.E / groups;
    double key[r.E], err[r.E], high[groups], low[groups];
    bool taken[r.E];
    double rel = scores_of(key, z, r.sigmoid, r.E).rel;
    for (size_t e = 0; e < r.E; e++) {
        err[e] = 1.01 * rel * key[e] + TINY;
        if (bias) key[e] += bias[e], err[e] += U * fabs(key[e]);
        if (!(key[e] > -INFINITY)) key[e] = -INFINITY, err[e] = 0;
        taken[e] = false;
    }
    for (size_t g = 0; g < groups; g++) {
        high[g] = best_of(key + g * each, err + g * each, each, r.sigmoid, 1);
        low[g] = best_of(key + g * each, err + g * each, each, r.sigmoid, -1);
    }
    Groups all = {high, low, r};
    for (size_t j = 0; j < r.k; j++) {
        if (choice[j] < 0 || (size_t)choice[j] >= r.E || taken[choice[j]]) return false;
        size_t c = (size_t)choice[j];
        taken[c] = true;
        for (size_t i = 0; i < r.E; i++) {
            if (taken[i]) continue;
            bool same = i / each == c / each, equal = z[i] == z[c] && (!bias || bias[i] == bias[c]);
            equal = equal || (key[i] == -INFINITY && key[c] == -INFINITY);
            if (same && equal && i < c) return false;
            if (key[i] - err[i] > key[c] + err[c] && (same || !r.groups || !may_go(all, i / each))) return false;
        }
    }
    return !r.groups || right_groups(all, choice);
}

// Gradient of the scores: of the k weights, and of the balance loss.
static void scores_backward(double *ds, double *err, const double *s, double rel, const float *dgate,
                            const int32_t *choice, const float *even, double even_scale, DevRouter r)
{
    double S = 0, t = 0, A = 0, all = 0, dot = 0, B = 0, c = r.scale;
    for (size_t e = 0; e < r.E; e++) ds[e] = err[e] = 0, all += s[e];
    for (size_t j = 0; j < r.k; j++) {
        double x = dgate[j] * s[choice[j]];
        S += s[choice[j]], t += x, A += fabs(x);
    }
    double of_sum = rel + gam(r.k), of_ratio = A / S * (2 * rel + 2 * gam(r.k + 1) + U);
    for (size_t j = 0; j < r.k; j++) {
        double d = fabs((double)dgate[j]), *x = ds + choice[j], *e = err + choice[j];
        *x = r.renorm ? c * (dgate[j] - t / S) / S : c * dgate[j];
        *e = fabs(c) * (r.renorm ? ((d + A / S) * (3 * U + of_sum) + of_ratio) / S : U * d);
    }
    if (!even) return;
    for (size_t e = 0; e < r.E; e++) dot += even[e] * s[e] / all, B += fabs((double)even[e]) * s[e] / all;
    for (size_t e = 0; e < r.E; e++) {
        double x = even_scale * (even[e] - dot) / all, size = fabs(even_scale) / all;
        err[e] += size * ((fabs((double)even[e]) + B) * (4 * U + rel + gam(r.E)) + B * 2 * (rel + gam(r.E + 1) + U));
        err[e] += U * (fabs(ds[e]) + fabs(x));
        ds[e] += x;
    }
}

void dev_check_route_backward(double *dz, double *err, const float *dgate, const float *z, const int32_t *choice,
                              const float *even, float even_scale, float z_scale, DevRouter r)
{
    double s[r.E], ds[r.E], ds_err[r.E], dot = 0, D = 0, dot_err = 0;
    Scores x = scores_of(s, z, r.sigmoid, r.E);
    scores_backward(ds, ds_err, s, x.rel, dgate, choice, even, even_scale, r);
    for (size_t e = 0; e < r.E; e++) {
        dot += ds[e] * s[e], D += fabs(ds[e]) * s[e];
        dot_err += ds_err[e] * s[e];
    }
    dot_err += (x.rel + gam(r.E + 1)) * D;
    for (size_t e = 0; e < r.E; e++) {
        dz[e] = r.sigmoid ? ds[e] * s[e] * (1 - s[e]) : s[e] * (ds[e] - dot);
        err[e] = r.sigmoid ? s[e] * (ds_err[e] * (1 - s[e]) + fabs(ds[e]) * (x.rel + 3 * U))
                           : s[e] * (ds_err[e] + dot_err + (fabs(ds[e]) + D) * (x.rel + 2 * U));
    }
    if (r.sigmoid) x = scores_of(s, z, false, r.E);
    for (size_t e = 0; e < r.E; e++) {
        double more = 2 * (double)z_scale * x.lse * s[e];
        dz[e] += more;
        err[e] += 2 * fabs((double)z_scale) * s[e] * x.lse_err + fabs(more) * (x.rel + 3 * U);
        err[e] = 1.01 * (err[e] + U * (fabs(dz[e]) + fabs(more))) + TINY;
    }
}

static void route_forward(Dev *dev, int32_t *choice, float *gate, const float *logits, const float *bias, size_t N,
                          DevRouter r)
{
    DevCheckCall c = dev_check_begin(dev, "route_forward");
    const float *z = dev_check_f(&c, logits, N * r.E), *b = dev_check_f(&c, bias, r.E);
    size_t n = N * r.k;
    int32_t *want = dev_check_room(&c, n * sizeof *want);
    c.ref->route_forward(c.ref, want, dev_check_room(&c, n * sizeof *gate), z, b, N, r);
    c.fast->route_forward(c.fast, choice, gate, logits, bias, N, r);
    const int32_t *got = dev_check_i(&c, choice, n);
    double *g = dev_check_d(&c, n), *err = dev_check_d(&c, n);
    const float *weight = dev_check_f(&c, gate, n);
    for (size_t i = 0; i < N; i++) {
        size_t at = i * r.k;
        if (!dev_check_route_choice(got + at, z + i * r.E, b, r)) {
            size_t j = 0; // where it differs first
            while (j + 1 < r.k && got[at + j] == want[at + j]) j++;
            dev_check_expect_one(&c, "choice", at + j, n, got[at + j], want[at + j], 0);
            continue;
        }
        dev_check_route_weights(g + at, err + at, z + i * r.E, got + at, r);
        for (size_t j = 0; j < r.k; j++)
            dev_check_expect_one(&c, "gate", at + j, n, weight[at + j], g[at + j], err[at + j] + TINY);
    }
    dev_check_end(&c);
}

static void route_backward(Dev *dev, float *dlogits, const float *dgate, const float *logits, const int32_t *choice,
                           const float *even, float even_scale, float z, size_t N, size_t T, DevRouter r)
{
    DevCheckCall c = dev_check_begin(dev, "route_backward");
    size_t n = N * r.E;
    const float *dg = dev_check_f(&c, dgate, N * r.k), *x = dev_check_f(&c, logits, n);
    const float *balance = dev_check_f(&c, even, N / T * r.E);
    const int32_t *chosen = dev_check_i(&c, choice, N * r.k);
    float *want = dev_check_room(&c, n * sizeof *want);
    c.ref->route_backward(c.ref, want, dg, x, chosen, balance, even_scale, z, N, T, r);
    c.fast->route_backward(c.fast, dlogits, dgate, logits, choice, even, even_scale, z, N, T, r);
    double *err = dev_check_d(&c, n), *dz = dev_check_d(&c, r.E);
    for (size_t i = 0; i < N; i++)
        dev_check_route_backward(dz, err + i * r.E, dg + i * r.k, x + i * r.E, chosen + i * r.k,
                                 balance ? balance + i / T * r.E : NULL, even_scale, z, r);
    dev_check_expect_f(&c, "dlogits", want, dlogits, n, err);
    dev_check_end(&c);
}

// ---- products

static double *errors(DevCheckCall *c, const float *size, size_t n, size_t K)
{
    double *err = dev_check_d(c, n);
    for (size_t i = 0; i < n; i++) err[i] = 1.01 * 2 * ((double)K + 2) * U * size[i];
    return err;
}

static void router_forward(Dev *dev, float *logits, const X *inp, const X *weight, size_t N, size_t C, size_t E)
{
    DevCheckCall c = dev_check_begin(dev, "router_forward");
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, E * C);
    float *want = dev_check_room(&c, N * E * sizeof *want), *size = dev_check_room(&c, N * E * sizeof *size);
    c.ref->router_forward(c.ref, want, x, w, N, C, E);
    c.fast->router_forward(c.fast, logits, inp, weight, N, C, E);
    c.wide->router_forward(c.wide, size, (X *)dev_check_wide(&c, x, N * C, true),
                           (X *)dev_check_wide(&c, w, E * C, true), N, C, E);
    dev_check_expect_f(&c, "logits", want, logits, N * E, errors(&c, size, N * E, C));
    dev_check_end(&c);
}

static void router_backward(Dev *dev, X *dinp, float *dweight, const float *dlogits, const X *inp, const X *weight,
                            size_t N, size_t C, size_t E)
{
    DevCheckCall c = dev_check_begin(dev, "router_backward");
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, E * C);
    X *want = dev_check_x(&c, dinp, N * C), *size = (X *)dev_check_wide(&c, want, N * C, true);
    float *dw = dev_check_f(&c, dweight, E * C), *dw_size = dev_check_abs(&c, dw, E * C);
    const float *dz = dev_check_f(&c, dlogits, N * E);
    c.ref->router_backward(c.ref, want, dw, dz, x, w, N, C, E);
    c.fast->router_backward(c.fast, dinp, dweight, dlogits, inp, weight, N, C, E);
    c.wide->router_backward(c.wide, size, dw_size, dev_check_abs(&c, dz, N * E),
                            (X *)dev_check_wide(&c, x, N * C, true), (X *)dev_check_wide(&c, w, E * C, true), N, C, E);
    dev_check_expect_x(&c, "dinp", want, dinp, N, C, C, errors(&c, (float *)size, N * C, E + 1));
    dev_check_expect_f(&c, "dweight", dw, dweight, E * C, errors(&c, dw_size, E * C, N + 1));
    dev_check_end(&c);
}

// forward: (R, K) to (R, W), with weights (W, K); else weights (K, W).
static void rows(Dev *dev, bool forward, X *out, const X *inp, const X *weight, size_t K, size_t W, DevExperts experts)
{
    DevCheckCall c = dev_check_begin(dev, forward ? "experts_forward" : "experts_backward_input");
    size_t R = experts.R, n_weight = (experts.E - 1) * experts.stride + K * W;
    const X *x = dev_check_x(&c, inp, R * K), *w = dev_check_x(&c, weight, n_weight);
    X *want = dev_check_room(&c, R * W * c.fast->x_bytes), *size = dev_check_room(&c, R * W * sizeof(float));
    const X *a = (X *)dev_check_wide(&c, x, R * K, true), *b = (X *)dev_check_wide(&c, w, n_weight, true);
    DevExperts host = experts;
    host.offset = dev_check_i(&c, experts.offset, experts.sources * experts.E + 1);
    if (forward) {
        c.ref->experts_forward(c.ref, want, x, w, K, W, host);
        c.fast->experts_forward(c.fast, out, inp, weight, K, W, experts);
        c.wide->experts_forward(c.wide, size, a, b, K, W, host);
    } else {
        c.ref->experts_backward_input(c.ref, want, x, w, W, K, host);
        c.fast->experts_backward_input(c.fast, out, inp, weight, W, K, experts);
        c.wide->experts_backward_input(c.wide, size, a, b, W, K, host);
    }
    dev_check_expect_x(&c, forward ? "out" : "dinp", want, out, R, W, W, errors(&c, (float *)size, R * W, K));
    dev_check_end(&c);
}

static void experts_forward(Dev *dev, X *out, const X *inp, const X *weight, size_t C, size_t OC, DevExperts experts)
{
    rows(dev, true, out, inp, weight, C, OC, experts);
}

static void experts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t C, size_t OC,
                                   DevExperts experts)
{
    rows(dev, false, dinp, dout, weight, OC, C, experts);
}

static void experts_backward_weight(Dev *dev, float *dweight, const X *dout, const X *inp, size_t C, size_t OC,
                                    DevExperts experts)
{
    DevCheckCall c = dev_check_begin(dev, "experts_backward_weight");
    size_t R = experts.R, n = (experts.E - 1) * experts.stride + OC * C, most = 0;
    const X *x = dev_check_x(&c, inp, R * C), *dy = dev_check_x(&c, dout, R * OC);
    float *want = dev_check_f(&c, dweight, n), *size = dev_check_abs(&c, want, n);
    DevExperts host = experts;
    host.offset = dev_check_i(&c, experts.offset, experts.sources * experts.E + 1);
    c.ref->experts_backward_weight(c.ref, want, dy, x, C, OC, host);
    c.fast->experts_backward_weight(c.fast, dweight, dout, inp, C, OC, experts);
    c.wide->experts_backward_weight(c.wide, size, (X *)dev_check_wide(&c, dy, R * OC, true),
                                    (X *)dev_check_wide(&c, x, R * C, true), C, OC, host);
    for (size_t e = 0; e < host.E; e++) {
        size_t held = 0;
        for (size_t g = e; g < host.sources * host.E; g += host.E)
            held += (size_t)(host.offset[g + 1] - host.offset[g]);
        most = held > most ? held : most;
    }
    dev_check_expect_f(&c, "dweight", want, dweight, n, errors(&c, size, n, most + 1));
    dev_check_end(&c);
}

// ---- slots and rows

static void experts_count(Dev *dev, float *count, const int32_t *choice, const int32_t *row, size_t N, size_t T,
                          size_t k, size_t E)
{
    DevCheckCall c = dev_check_begin(dev, "experts_count");
    size_t n = N / T * (E + 1);
    float *want = dev_check_room(&c, n * sizeof *want);
    c.ref->experts_count(c.ref, want, dev_check_i(&c, choice, N * k), dev_check_i(&c, row, N * k), N, T, k, E);
    c.fast->experts_count(c.fast, count, choice, row, N, T, k, E);
    dev_check_expect_f(&c, "count", want, count, n, NULL);
    dev_check_end(&c);
}

static void expect_ints(DevCheckCall *c, const char *name, const int32_t *want, const int32_t *fast, size_t n)
{
    const int32_t *got = dev_check_i(c, fast, n);
    for (size_t i = 0; i < n; i++) dev_check_expect_one(c, name, i, n, got[i], want[i], 0);
}

static void experts_sort(Dev *dev, int32_t *offset, int32_t *row, int32_t *slot, const int32_t *choice,
                         const float *gate, size_t N, size_t T, size_t k, size_t E, size_t cap, bool by_gate)
{
    DevCheckCall c = dev_check_begin(dev, "experts_sort");
    size_t R = N * k;
    int32_t *want[3] = {dev_check_room(&c, (E + 1) * sizeof **want), dev_check_room(&c, R * sizeof **want),
                        dev_check_room(&c, R * sizeof **want)};
    if (cap == DEV_ROWS_GIVEN) want[1] = dev_check_i(&c, row, R);
    c.ref->experts_sort(c.ref, want[0], want[1], want[2], dev_check_i(&c, choice, R), dev_check_f(&c, gate, R), N, T, k,
                        E, cap, by_gate);
    c.fast->experts_sort(c.fast, offset, row, slot, choice, gate, N, T, k, E, cap, by_gate);
    expect_ints(&c, "offset", want[0], offset, E + 1);
    expect_ints(&c, "row", want[1], row, R);
    expect_ints(&c, "slot", want[2], slot, R);
    dev_check_end(&c);
}

// One more than the largest of n numbers.
static size_t end_of(const int32_t *x, size_t n)
{
    size_t end = 0;
    for (size_t i = 0; i < n; i++)
        if (x[i] >= 0 && (size_t)x[i] >= end) end = (size_t)x[i] + 1;
    return end;
}

static void experts_gather(Dev *dev, X *out, const X *inp, const int32_t *slot, size_t R, size_t k, size_t C)
{
    DevCheckCall c = dev_check_begin(dev, "experts_gather");
    const int32_t *s = dev_check_i(&c, slot, R);
    const X *x = dev_check_x(&c, inp, (end_of(s, R) + k - 1) / k * C);
    X *want = dev_check_room(&c, R * C * c.fast->x_bytes);
    c.ref->experts_gather(c.ref, want, x, s, R, k, C);
    c.fast->experts_gather(c.fast, out, inp, slot, R, k, C);
    dev_check_expect_x(&c, "out", want, out, R, C, C, NULL);
    dev_check_end(&c);
}

static void experts_combine(Dev *dev, X *out, const X *inp, const int32_t *row, size_t N, size_t k, size_t C)
{
    DevCheckCall c = dev_check_begin(dev, "experts_combine");
    const int32_t *r = dev_check_i(&c, row, N * k);
    size_t n = end_of(r, N * k) * C;
    const X *x = dev_check_x(&c, inp, n);
    X *want = dev_check_room(&c, N * C * c.fast->x_bytes), *size = dev_check_room(&c, N * C * sizeof(float));
    c.ref->experts_combine(c.ref, want, x, r, N, k, C);
    c.fast->experts_combine(c.fast, out, inp, row, N, k, C);
    c.wide->experts_combine(c.wide, size, (X *)dev_check_wide(&c, x, n, true), r, N, k, C);
    double *err = dev_check_d(&c, N * C);
    for (size_t i = 0; i < N * C; i++) err[i] = 1.01 * gam(k) * ((float *)size)[i];
    dev_check_expect_x(&c, "out", want, out, N, C, C, k == 1 ? NULL : err);
    dev_check_end(&c);
}

static void experts_pick(Dev *dev, float *out, const float *inp, const int32_t *index, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "experts_pick");
    const int32_t *from = dev_check_i(&c, index, n);
    float *want = dev_check_room(&c, n * sizeof *want);
    c.ref->experts_pick(c.ref, want, dev_check_f(&c, inp, end_of(from, n)), from, n);
    c.fast->experts_pick(c.fast, out, inp, index, n);
    dev_check_expect_f(&c, "out", want, out, n, NULL);
    dev_check_end(&c);
}

// The slots of R rows; NULL: row i is slot i.
static const int32_t *slots_of(DevCheckCall *c, const int32_t *slot, size_t R)
{
    int32_t *own = slot ? dev_check_i(c, slot, R) : dev_check_room(c, R * sizeof *own);
    for (size_t i = 0; !slot && i < R; i++) own[i] = (int32_t)i;
    return own;
}

static void experts_swiglu_forward(Dev *dev, X *out, const X *gate_up, const float *gate, const int32_t *slot, size_t R,
                                   size_t F)
{
    DevCheckCall c = dev_check_begin(dev, "experts_swiglu_forward");
    const int32_t *s = slots_of(&c, slot, R);
    X *want = dev_check_room(&c, R * F * c.fast->x_bytes);
    c.ref->experts_swiglu_forward(c.ref, want, dev_check_x(&c, gate_up, R * 2 * F), dev_check_f(&c, gate, end_of(s, R)),
                                  s, R, F);
    c.fast->experts_swiglu_forward(c.fast, out, gate_up, gate, slot, R, F);
    const float *y = dev_check_wide(&c, want, R * F, false);
    double *err = dev_check_d(&c, R * F);
    for (size_t i = 0; i < R * F; i++) err[i] = (FN + 7) * U * fabs((double)y[i]);
    dev_check_expect_x(&c, "out", want, out, R, F, F, err);
    dev_check_end(&c);
}

static void experts_swiglu_backward(Dev *dev, X *dgate_up, float *dgate, const X *dout, const X *gate_up,
                                    const float *gate, const int32_t *slot, size_t R, size_t F)
{
    DevCheckCall c = dev_check_begin(dev, "experts_swiglu_backward");
    const int32_t *s = slots_of(&c, slot, R);
    size_t n = end_of(s, R);
    const X *x = dev_check_x(&c, gate_up, R * 2 * F), *dy = dev_check_x(&c, dout, R * F);
    const float *weight = dev_check_f(&c, gate, n);
    X *want = dev_check_room(&c, R * 2 * F * c.fast->x_bytes);
    float *dg = dev_check_f(&c, dgate, n);
    c.ref->experts_swiglu_backward(c.ref, want, dg, dy, x, weight, s, R, F);
    c.fast->experts_swiglu_backward(c.fast, dgate_up, dgate, dout, gate_up, gate, slot, R, F);
    const float *g = dev_check_wide(&c, x, R * 2 * F, false), *d = dev_check_wide(&c, dy, R * F, false);
    double *err = dev_check_d(&c, R * 2 * F), *dg_err = dev_check_d(&c, n);
    for (size_t i = 0; i < R * F; i++) {
        size_t r = i / F, gate_at = r * 2 * F + i % F, up_at = gate_at + F;
        if (s[r] < 0) continue;
        double sigmoid = 1 / (1 + exp(-(double)g[gate_at])), size = fabs((double)g[gate_at]);
        double dys = fabs((double)d[i] * weight[s[r]]), up = fabs((double)g[up_at]);
        err[gate_at] = (2 * FN + 11) * U * dys * up * sigmoid * (1 + size);
        err[up_at] = (FN + 6) * U * dys * size * sigmoid;
        dg_err[s[r]] += (gam(F) + (FN + 8) * U) * fabs((double)d[i]) * size * sigmoid * up;
    }
    dev_check_expect_x(&c, "dgate_up", want, dgate_up, R, 2 * F, 2 * F, err);
    dev_check_expect_f(&c, "dgate", dg, dgate, n, dg_err);
    dev_check_end(&c);
}

void dev_check_experts_fill(Dev *dev)
{
    dev->router_forward = router_forward;
    dev->router_backward = router_backward;
    dev->route_forward = route_forward;
    dev->route_backward = route_backward;
    dev->experts_count = experts_count;
    dev->experts_sort = experts_sort;
    dev->experts_gather = experts_gather;
    dev->experts_combine = experts_combine;
    dev->experts_pick = experts_pick;
    dev->experts_forward = experts_forward;
    dev->experts_backward_input = experts_backward_input;
    dev->experts_backward_weight = experts_backward_weight;
    dev->experts_swiglu_forward = experts_swiglu_forward;
    dev->experts_swiglu_backward = experts_swiglu_backward;
}
