// experts_rows: the rows of test_ops for mixture of experts. Tests only.
#ifndef EXPERTS_ROWS_H
#define EXPERTS_ROWS_H
#include "experts_ref.h"
#include "ops_run.h"

enum { SIGMOID = 1, RENORM = 2, BIASED = 4, BALANCED = 8, Z_LOSS = 16 };
enum { BY_GATE = 1 };

// ---- the router and its choice

static void row_router_forward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], E = r->dim[2];
    const float *inp = run_in(r, "inp", N * C), *weight = run_in(r, "weight", E * C);
    double *ref = run_zeros(r, N * E), *err = run_zeros(r, N * E);
    float *logits = run_out(r, N * E);
    r->dev->router_forward(r->dev, logits, (const X *)inp, (const X *)weight, N, C, E);
    ref_matmul(ref, err, run_wide(r, inp, N * C), run_wide(r, weight, E * C), NULL, N, C, E);
    expect_ref(r, "logits", logits, ref, err, N * E);
}

// dinp += dlogits weight is the outer sum of dlogits^T and weight over experts.
static void row_router_backward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], E = r->dim[2];
    const float *inp = run_in(r, "inp", N * C), *weight = run_in(r, "weight", E * C), *dz = run_in(r, "dz", N * E);
    float *dinp = run_copy(r, run_in(r, "dinp", N * C), N * C), *dw = run_copy(r, run_in(r, "dw", E * C), E * C);
    double *ref = run_wide(r, dinp, N * C), *w_ref = run_wide(r, dw, E * C), *turned = run_zeros(r, N * E);
    double *err = run_zeros(r, N * C), *w_err = run_zeros(r, E * C);
    for (size_t i = 0; i < N * E; i++) turned[i % E * N + i / E] = dz[i];
    ref_outer_sum(ref, err, turned, run_wide(r, weight, E * C), E, N, C);
    ref_outer_sum(w_ref, w_err, run_wide(r, dz, N * E), run_wide(r, inp, N * C), N, E, C);
    r->dev->router_backward(r->dev, (X *)dinp, dw, dz, (const X *)inp, (const X *)weight, N, C, E);
    expect_ref(r, "dinp", dinp, ref, err, N * C);
    expect_ref(r, "dweight", dw, w_ref, w_err, E * C);
}

// Dimensions: N, E, k, flags, groups, best.
static DevRouter row_router(const Run *r)
{
    return (DevRouter){.E = r->dim[1], .k = r->dim[2], .groups = r->dim[4], .best = r->dim[5], .scale = 2.5f,
                       .sigmoid = r->dim[3] & SIGMOID, .renorm = r->dim[3] & RENORM};
}

// Where fp32 cannot decide between two keys the choice may be another one than in double. That is rare.
static void row_route_forward(Run *r)
{
    DevRouter router = row_router(r);
    size_t N = r->dim[0], E = router.E, k = router.k, others = 0;
    const float *logits = run_in(r, "logits", N * E), *bias = r->dim[3] & BIASED ? run_in(r, "bias", E) : NULL;
    double *z = run_wide(r, logits, N * E), *ref = run_zeros(r, N * k), *err = run_zeros(r, N * k);
    int32_t *choice = run_room(r, N * k * sizeof *choice), *want = run_room(r, k * sizeof *want);
    float *gate = run_out(r, N * k);
    memset(choice, 0xff, N * k * sizeof *choice);
    r->dev->route_forward(r->dev, choice, gate, logits, bias, N, router);
    for (size_t n = 0; n < N; n++) {
        ref_choose(want, z + n * E, bias, router);
        others += memcmp(want, choice + n * k, k * sizeof *want) != 0;
        if (!dev_check_route_choice(choice + n * k, logits + n * E, bias, router))
            fail_msg("token %zu chose expert %d first, not %d, or a wrong one after it", n, choice[n * k], want[0]);
        double s[256], sum = 0;
        ref_scores(s, z + n * E, router);
        for (size_t j = 0; j < k; j++) sum += s[choice[n * k + j]];
        for (size_t j = 0; j < k; j++)
            ref[n * k + j] = router.scale * s[choice[n * k + j]] / (router.renorm ? sum : 1);
        double again[8];
        dev_check_route_weights(again, err + n * k, logits + n * E, choice + n * k, router);
        for (size_t j = 0; j < k; j++) assert_true(fabs(again[j] - ref[n * k + j]) <= 1e-12);
    }
    assert_true(others <= N / 50);
    run_record(r, choice, N * k * sizeof *choice);
    expect_ref(r, "gate", gate, ref, err, N * k);
}

static void row_route_backward(Run *r)
{
    DevRouter router = row_router(r);
    size_t N = r->dim[0], E = router.E, k = router.k, T = N / 2;
    const float *logits = run_in(r, "logits", N * E), *dgate = run_in(r, "dgate", N * k);
    const float *even = r->dim[3] & BALANCED ? run_in(r, "even", 2 * E) : NULL, z = r->dim[3] & Z_LOSS ? 0.1f : 0;
    int32_t *choice = run_room(r, N * k * sizeof *choice);
    float *dlogits = run_out(r, N * E);
    double *ref = run_zeros(r, N * E), *err = run_zeros(r, N * E);
    ref_random_choice(choice, N, k, E);
    r->dev->route_backward(r->dev, dlogits, dgate, logits, choice, even, 0.3f, z, N, T, router);
    for (size_t n = 0; n < N; n++)
        dev_check_route_backward(ref + n * E, err + n * E, dgate + n * k, logits + n * E, choice + n * k,
                                 even ? even + n / T * E : NULL, 0.3f, z, router);
    expect_ref(r, "dlogits", dlogits, ref, err, N * E);
}

// ---- slots and rows. Dimensions: N, T, k, E, cap, flags.

typedef struct {
    size_t N, T, k, E, R;
    int32_t *choice, *offset, *row, *slot;
    float *gate;
} Slots;

static Slots row_slots(Run *r)
{
    Slots s = {.N = r->dim[0], .T = r->dim[1], .k = r->dim[2], .E = r->dim[3], .R = r->dim[0] * r->dim[2]};
    s.choice = run_room(r, s.R * sizeof *s.choice), s.row = run_room(r, s.R * sizeof *s.row);
    s.slot = run_room(r, s.R * sizeof *s.slot), s.offset = run_room(r, (s.E + 1) * sizeof *s.offset);
    s.gate = run_copy(r, run_in(r, "gate", s.R), s.R);
    for (size_t i = 0; i < s.R; i++) s.gate[i] = roundf(4 * s.gate[i]) / 4; // many equal ones
    ref_random_choice(s.choice, s.N, s.k, s.E);
    ref_sort(s.offset, s.row, s.slot, s.choice, s.gate, s.N, s.T, s.k, s.E, r->dim[4], r->dim[5] & BY_GATE);
    return s;
}

static void row_experts_sort(Run *r)
{
    Slots s = row_slots(r);
    int32_t *offset = run_room(r, (s.E + 1) * sizeof *offset), *row = run_room(r, s.R * sizeof *row);
    int32_t *slot = run_room(r, s.R * sizeof *slot);
    r->dev->experts_sort(r->dev, offset, row, slot, s.choice, s.gate, s.N, s.T, s.k, s.E, r->dim[4],
                         r->dim[5] & BY_GATE);
    assert_memory_equal(offset, s.offset, (s.E + 1) * sizeof *offset);
    assert_memory_equal(row, s.row, s.R * sizeof *row);
    assert_memory_equal(slot, s.slot, s.R * sizeof *slot);
    assert_true(r->dim[4] == 0 || s.offset[s.E] < (int32_t)s.R); // some are dropped
}

static void row_experts_count(Run *r)
{
    Slots s = row_slots(r);
    size_t n = s.N / s.T * (s.E + 1);
    double *want = run_zeros(r, n), *err = run_zeros(r, n);
    float *count = run_out(r, n);
    for (size_t i = 0; i < s.R; i++) {
        double *own = want + i / (s.T * s.k) * (s.E + 1);
        own[s.choice[i]]++, own[s.E] += s.row[i] < 0;
    }
    r->dev->experts_count(r->dev, count, s.choice, s.row, s.N, s.T, s.k, s.E);
    expect_ref(r, "count", count, want, err, n);
    for (size_t i = 0; i < n; i++) want[i] = i % (s.E + 1) == s.E ? 0 : want[i];
    r->dev->experts_count(r->dev, count, s.choice, NULL, s.N, s.T, s.k, s.E);
    expect_ref(r, "count of all", count, want, err, n);
}

enum { WIDTH = 37 };

static void row_experts_gather(Run *r)
{
    Slots s = row_slots(r);
    const float *inp = run_in(r, "inp", s.N * WIDTH);
    double *ref = run_zeros(r, s.R * WIDTH), *err = run_zeros(r, s.R * WIDTH);
    float *out = run_out(r, s.R * WIDTH);
    for (size_t i = 0; i < s.R * WIDTH; i++) {
        int32_t slot = s.slot[i / WIDTH];
        ref[i] = slot < 0 ? 0 : inp[(size_t)slot / s.k * WIDTH + i % WIDTH];
    }
    r->dev->experts_gather(r->dev, (X *)out, (const X *)inp, s.slot, s.R, s.k, WIDTH);
    expect_ref(r, "out", out, ref, err, s.R * WIDTH);
}

static void row_experts_combine(Run *r)
{
    Slots s = row_slots(r);
    const float *inp = run_in(r, "inp", s.R * WIDTH);
    double *ref = run_zeros(r, s.N * WIDTH), *err = run_zeros(r, s.N * WIDTH);
    float *out = run_out(r, s.N * WIDTH);
    for (size_t i = 0; i < s.R * WIDTH; i++) {
        size_t slot = i / WIDTH, to = slot / s.k * WIDTH + i % WIDTH;
        if (s.row[slot] < 0) continue;
        double x = inp[(size_t)s.row[slot] * WIDTH + i % WIDTH];
        ref[to] += x, err[to] += gam(s.k) * fabs(x);
    }
    r->dev->experts_combine(r->dev, (X *)out, (const X *)inp, s.row, s.N, s.k, WIDTH);
    expect_ref(r, "out", out, ref, err, s.N * WIDTH);
}

static void row_experts_pick(Run *r)
{
    Slots s = row_slots(r);
    double *ref = run_zeros(r, s.R), *err = run_zeros(r, s.R);
    float *out = run_out(r, s.R);
    for (size_t i = 0; i < s.R; i++) ref[i] = s.slot[i] < 0 ? 0 : s.gate[s.slot[i]];
    r->dev->experts_pick(r->dev, out, s.gate, s.slot, s.R);
    expect_ref(r, "out", out, ref, err, s.R);
}

// One product more than in swiglu, hence u more; dgate: four factors and FN + 2 for the sigmoid.
static void row_experts_swiglu_forward(Run *r)
{
    Slots s = row_slots(r);
    size_t n = s.R * WIDTH;
    const float *gate_up = run_in(r, "gate_up", 2 * n);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    float *out = run_out(r, n);
    ref_experts_swiglu(ref, run_wide(r, gate_up, 2 * n), run_wide(r, s.gate, s.R), s.slot, s.R, WIDTH);
    for (size_t i = 0; i < n; i++) err[i] = (FN + 6) * U * fabs(ref[i]);
    r->dev->experts_swiglu_forward(r->dev, (X *)out, (const X *)gate_up, s.gate, s.slot, s.R, WIDTH);
    expect_ref(r, "out", out, ref, err, n);
}

static void row_experts_swiglu_backward(Run *r)
{
    Slots s = row_slots(r);
    size_t n = s.R * WIDTH;
    const float *gate_up = run_in(r, "gate_up", 2 * n), *dout = run_in(r, "dout", n);
    float *dgate_up = run_out(r, 2 * n), *dgate = run_copy(r, run_in(r, "dgate", s.R), s.R);
    double *x = run_wide(r, gate_up, 2 * n), *dy = run_wide(r, dout, n), *ref = run_zeros(r, 2 * n);
    double *err = run_zeros(r, 2 * n), *g_ref = run_wide(r, dgate, s.R), *g_err = run_zeros(r, s.R);
    for (size_t i = 0; i < s.R; i++) {
        double weight = s.slot[i] < 0 ? 0 : s.gate[s.slot[i]], sum = 0, size = 0;
        for (size_t f = i * WIDTH; f < (i + 1) * WIDTH; f++) {
            double gate = x[i * WIDTH + f], y = dy[f] * gate * ref_sigmoid(gate) * x[i * WIDTH + f + WIDTH];
            sum += y, size += fabs(y);
            dy[f] *= weight;
        }
        if (s.slot[i] < 0) continue;
        g_ref[s.slot[i]] = sum, g_err[s.slot[i]] = (gam(WIDTH) + (FN + 6) * U) * size;
    }
    ref_swiglu_back(ref, err, dy, x, s.R, WIDTH);
    for (size_t i = 0; i < 2 * n; i++) err[i] *= 1 + 1.0 / FN;
    r->dev->experts_swiglu_backward(r->dev, (X *)dgate_up, dgate, (const X *)dout, (const X *)gate_up, s.gate, s.slot,
                                    s.R, WIDTH);
    expect_ref(r, "dgate_up", dgate_up, ref, err, 2 * n);
    expect_ref(r, "dgate", dgate, g_ref, g_err, s.R); // of a dropped slot what it was
}

// ---- products. Dimensions: R, C, OC, E, sources, parts. The first groups have few rows or none, the last one most;
// some rows have no expert.

// Parts of two ranges each, one of either half of K terms, which they leave in another order.
static DevParts row_parts(Run *r, size_t K, size_t n)
{
    DevRange *range = run_room(r, 2 * n * sizeof *range);
    for (size_t p = 0; p < n; p++) {
        range[2 * p] = (DevRange){K / 2 * p / n, K / 2 * (p + 1) / n};
        range[2 * p + 1] = (DevRange){K / 2 + (K - K / 2) * p / n, K / 2 + (K - K / 2) * (p + 1) / n};
    }
    return (DevParts){range, n, 2};
}

static DevExperts row_experts(Run *r, size_t K)
{
    size_t R = r->dim[0], E = r->dim[3], groups = E * r->dim[4], held = R - R / 8;
    int32_t *offset = run_room(r, (groups + 1) * sizeof *offset);
    for (size_t g = 0; g < groups; g++) offset[g] = (int32_t)(g * g * held / (groups * groups * (g % 2 ? 2 : 3)));
    for (size_t g = 1; g < groups; g++) offset[g] = offset[g] < offset[g - 1] ? offset[g - 1] : offset[g];
    offset[groups] = (int32_t)held;
    return (DevExperts){offset, E, R, r->dim[1] * r->dim[2] + 5, r->dim[4], row_parts(r, K, r->dim[5])};
}

static void row_experts_product(Run *r, int which)
{
    size_t C = r->dim[1], OC = r->dim[2];
    DevExperts x = row_experts(r, which == 0 ? C : OC);
    size_t n_w = x.E * x.stride, n_out = which == 0 ? x.R * OC : which == 1 ? x.R * C : n_w;
    const float *inp = run_in(r, "inp", x.R * C), *weight = run_in(r, "weight", n_w);
    const float *dout = run_in(r, "dout", x.R * OC);
    double *a = run_wide(r, inp, x.R * C), *w = run_wide(r, weight, n_w), *dy = run_wide(r, dout, x.R * OC);
    float *out = which == 2 ? run_copy(r, weight, n_w) : run_out(r, n_out);
    double *ref = which == 2 ? run_wide(r, weight, n_w) : run_zeros(r, n_out), *err = run_zeros(r, n_out);
    for (size_t g = 0; g < x.sources * x.E; g++) {
        size_t first = (size_t)x.offset[g], n = (size_t)x.offset[g + 1] - first, e = g % x.E;
        const double *own_x = a + first * C, *own_y = dy + first * OC;
        if (which == 0) ref_matmul(ref + first * OC, err + first * OC, own_x, w + e * x.stride, NULL, n, C, OC);
        if (which == 1) ref_matmul_back_input(ref + first * C, err + first * C, own_y, w + e * x.stride, n, C, OC);
    }
    for (size_t e = 0; which == 2 && e < x.E; e++) { // one sum over the rows of all sources
        double *rows_x = run_zeros(r, x.R * C), *rows_y = run_zeros(r, x.R * OC);
        size_t n = 0;
        for (size_t g = e; g < x.sources * x.E; g += x.E)
            for (int32_t i = x.offset[g]; i < x.offset[g + 1]; i++, n++) {
                memcpy(rows_x + n * C, a + (size_t)i * C, C * sizeof *a);
                memcpy(rows_y + n * OC, dy + (size_t)i * OC, OC * sizeof *dy);
            }
        ref_outer_sum(ref + e * x.stride, err + e * x.stride, rows_y, rows_x, n, OC, C);
    }
    if (which == 0) r->dev->experts_forward(r->dev, (X *)out, (const X *)inp, (const X *)weight, C, OC, x);
    if (which == 1) r->dev->experts_backward_input(r->dev, (X *)out, (const X *)dout, (const X *)weight, C, OC, x);
    if (which == 2) r->dev->experts_backward_weight(r->dev, out, (const X *)dout, (const X *)inp, C, OC, x);
    expect_ref(r, "product", out, ref, err, n_out);
}

static void row_experts_forward(Run *r)
{
    row_experts_product(r, 0);
}

static void row_experts_backward_input(Run *r)
{
    row_experts_product(r, 1);
}

static void row_experts_backward_weight(Run *r)
{
    row_experts_product(r, 2);
}

#endif
