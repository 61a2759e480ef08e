// optim_rows: the rows of test_ops for the optimizers other than AdamW: one update of a larger tensor from a random
// state; and for adaptive clipping and the difference of two arrays. Tests only.
// Trajectories: test_optim.c; fixtures: test_optim.c.
#ifndef OPTIM_ROWS_H
#define OPTIM_ROWS_H
#include "ops/dev_cpu.h"
#include "ops_run.h"
#include "optim_ref.h"
#include "train/optim.h"

static Update row_hyper(int step)
{
    return (Update){.lr = 1e-2f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f, .grad_scale = 0.37f,
                    .step = step};
}

static void expect_zero(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_true(x[i] == 0);
}

// n, rule: the formula in double, with the errors that fp32 may make.
static void row_update(Run *r)
{
    size_t n = r->dim[0];
    OptimName rule = (OptimName)r->dim[1];
    int moments = optim_kind(rule)->n_states;
    const float *weight = run_in(r, "weight", n), *start = run_in(r, "m", n), *grad = run_in(r, "grad", n);
    float *w = run_copy(r, weight, n), *m = run_copy(r, start, n), *v = run_copy(r, run_in(r, "v", n), n);
    float *g = run_copy(r, grad, n);
    for (size_t i = 0; i < n; i++) v[i] = fabsf(v[i]);
    double *ref[3] = {run_wide(r, weight, n), run_wide(r, start, n), run_wide(r, v, n)};
    double *err[3] = {run_zeros(r, n), run_zeros(r, n), run_zeros(r, n)};
    for (size_t i = 0; i < n; i++) {
        double e[3] = {0};
        ref_update(rule, ref[0] + i, ref[1] + i, ref[2] + i, e, grad[i], row_hyper(3));
        for (int k = 0; k < 3; k++) err[k][i] = e[k];
    }
    r->dev->update(r->dev, rule, w, moments > 0 ? m : NULL, moments > 1 ? v : NULL, g, n, row_hyper(3));
    expect_ref(r, "weight", w, ref[0], err[0], n);
    if (moments > 0) expect_ref(r, "m", m, ref[1], err[1], n);
    if (moments > 1) expect_ref(r, "v", v, ref[2], err[2], n);
    expect_zero(g, n);
}

static void row_adamw8bit(Run *r)
{
    size_t n = r->dim[0], blocks = (n + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
    const float *weight = run_in(r, "weight", n), *grad = run_in(r, "grad", n);
    float *w = run_copy(r, weight, n), *g = run_copy(r, grad, n), book[2][256];
    const int32_t *start[2] = {run_ints(r, "m", n, 0, 256), run_ints(r, "v", n, 0, 256)};
    double *ref[3] = {run_wide(r, weight, n), run_zeros(r, n), run_zeros(r, n)};
    double *err[3] = {run_zeros(r, n), run_zeros(r, n), run_zeros(r, n)};
    uint8_t *code[2];
    float *scale[2];
    for (int k = 0; k < 2; k++) {
        updates_8bit_codes(k == 0, book[k]);
        code[k] = run_room(r, n);
        scale[k] = run_copy(r, run_in(r, k ? "v_scale" : "m_scale", blocks), blocks);
        for (size_t b = 0; b < blocks; b++) scale[k][b] = fabsf(scale[k][b]);
        for (size_t i = 0; i < n; i++) {
            code[k][i] = (uint8_t)start[k][i];
            ref[1 + k][i] = (double)book[k][code[k][i]] * scale[k][i / UPDATE_BLOCK];
        }
    }
    for (size_t i = 0; i < n; i++) {
        double e[3];
        ref_adamw(ref[0] + i, ref[1] + i, ref[2] + i, e, grad[i], row_hyper(3), false);
        for (int k = 0; k < 3; k++) err[k][i] = e[k];
    }
    r->dev->adamw8bit(r->dev, w, code[0], scale[0], code[1], scale[1], g, n, row_hyper(3));
    expect_ref(r, "weight", w, ref[0], err[0], n);
    for (int k = 0; k < 2; k++) {
        run_record(r, code[k], n);
        run_record(r, scale[k], blocks * sizeof(float));
        size_t bad = ref_codes(code[k], scale[k], ref[1 + k], err[1 + k], n, book[k], k == 1);
        if (bad < n) fail_msg("code %d of %zu: %d", k, bad, code[k][bad]);
    }
    expect_zero(g, n);
}

// R, C, factored or not
static void row_adafactor(Run *r)
{
    size_t R = r->dim[0], C = r->dim[1], n = R * C, n_row = r->dim[2] ? R : n, n_col = r->dim[2] ? C : 0;
    const float *weight = run_in(r, "weight", n), *grad = run_in(r, "grad", n);
    float *w = run_copy(r, weight, n), *g = run_copy(r, grad, n);
    float *row = run_copy(r, run_in(r, "row", n_row), n_row), *col = run_copy(r, run_in(r, "col", n_col), n_col);
    for (size_t i = 0; i < n_row; i++) row[i] = fabsf(row[i]);
    for (size_t j = 0; j < n_col; j++) col[j] = fabsf(col[j]);
    double *ref[3] = {run_wide(r, weight, n), run_wide(r, row, n_row), run_wide(r, col, n_col)};
    double *err[3] = {run_zeros(r, n), run_zeros(r, n_row), run_zeros(r, n_col)};
    ref_adafactor(ref[0], ref[1], n_col ? ref[2] : NULL, err[0], err[1], err[2], grad, R, C, row_hyper(3));
    r->dev->adafactor(r->dev, w, row, n_col ? col : NULL, g, R, C, row_hyper(3));
    expect_ref(r, "weight", w, ref[0], err[0], n);
    expect_ref(r, "row", row, ref[1], err[1], n_row);
    expect_ref(r, "col", col, ref[2], err[2], n_col);
    expect_zero(g, n);
}

// R, C, with rows (NorMuon) or not
static void row_muon(Run *r)
{
    size_t R = r->dim[0], C = r->dim[1], n = R * C, k = R < C ? R : C;
    const float *weight = run_in(r, "weight", n), *start = run_in(r, "m", n), *grad = run_in(r, "grad", n);
    float *w = run_copy(r, weight, n), *m = run_copy(r, start, n), *g = run_copy(r, grad, n);
    double *ref[2] = {run_wide(r, weight, n), run_wide(r, start, n)}, *err[2] = {run_zeros(r, n), run_zeros(r, n)};
    const float *means = run_in(r, "row", R);
    float *row = run_copy(r, means, R);
    for (size_t i = 0; i < R; i++) row[i] = fabsf(row[i]);
    double *ref_row = run_wide(r, row, R), *row_err = run_zeros(r, R);
    bool rows = r->dim[2];
    Update u = row_hyper(3);
    u.cautious = rows;
    ref_muon(ref[0], ref[1], rows ? ref_row : NULL, err[0], err[1], row_err, grad, R, C, u);
    r->dev->muon(r->dev, w, m, rows ? row : NULL, g, run_out(r, n + 2 * k * k), R, C, u);
    expect_ref(r, "row", row, ref_row, row_err, R);
    expect_ref(r, "weight", w, ref[0], err[0], n);
    expect_ref(r, "m", m, ref[1], err[1], n);
    expect_zero(g, n);
}

// ---- adaptive clipping, and the difference of two arrays

// The sum of n squares in spans of 1024 errs by gam(1025), so a norm by half of that, and the factor, a quotient of two
// norms, by gam(1025) and a few roundings. A row within the limit keeps its bits; no norm is so close to the limit that
// the errors could decide.
static void row_clip_units(Run *r)
{
    size_t R = r->dim[0], C = r->dim[1], n = R * C, clipped = 0, kept = 0;
    const float *start = run_in(r, "grad", n), *from = run_in(r, "weight", n), limit = 0.5f, least = 1e-3f;
    float *grad = run_copy(r, start, n), *weight = run_copy(r, from, n), *old = run_room(r, n * sizeof *old);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    for (size_t i = 0; i < n; i++) // rows of 1/4 to 4 times the limit; every seventh row of weights is zero
        grad[i] *= 0.125f * (float)(1 << i / C % 5), weight[i] *= i / C % 7 == 6 ? 0 : 1;
    if (R == 1) memcpy(grad, start, n * sizeof *grad);
    for (size_t i = 0; i < R; i++) {
        double g = 0, w = 0;
        for (size_t j = i * C; j < (i + 1) * C; j++) g += (double)grad[j] * grad[j], w += (double)weight[j] * weight[j];
        double ratio = limit * fmax(sqrt(w), least) / sqrt(g);
        assert_true(fabs(ratio - 1) > 4 * gam(1025));
        for (size_t j = i * C; j < (i + 1) * C; j++) {
            ref[j] = grad[j] * fmin(1, ratio);
            err[j] = ratio < 1 ? (gam(1025) + 8 * U) * fabs(ref[j]) : 0;
        }
        *(ratio < 1 ? &clipped : &kept) += 1;
    }
    assert_true(clipped > 0 && (R == 1 || kept > 0));
    memcpy(old, weight, n * sizeof *old);
    r->dev->clip_units(r->dev, grad, weight, R, C, limit, least);
    expect_ref(r, "grad", grad, ref, err, n);
    assert_memory_equal(weight, old, n * sizeof *old);
    float *none = run_room(r, n * sizeof *none); // a zero gradient stays zero, also where the limit is zero
    memset(none, 0, n * sizeof *none);
    r->dev->clip_units(r->dev, none, weight, R, C, 0, least);
    for (size_t i = 0; i < n; i++) assert_true(none[i] == 0);
}

static void row_subtract(Run *r)
{
    size_t n = r->dim[0];
    const float *a = run_in(r, "a", n), *b = run_in(r, "b", n);
    float *out = run_out(r, n), *in_place = run_copy(r, b, n), *copy = run_out(r, n);
    r->dev->subtract(r->dev, out, a, b, n);
    r->dev->subtract(r->dev, in_place, a, in_place, n);
    r->dev->subtract(r->dev, copy, a, NULL, n);
    for (size_t i = 0; i < n; i++) assert_true(out[i] == a[i] - b[i]);
    assert_memory_equal(in_place, out, n * sizeof *out);
    assert_memory_equal(copy, a, n * sizeof *a);
    run_record(r, out, n * sizeof *out);
}
#endif
