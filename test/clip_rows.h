// clip_rows: the rows of test_ops for adaptive clipping and the difference of two arrays. Tests only.
#ifndef CLIP_ROWS_H
#define CLIP_ROWS_H
#include "ops_run.h"

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
