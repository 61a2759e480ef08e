// acts_rows: what test_ops does with the ops of dropout, recomputation, compressed activations and conversion. Tests
// only.
#ifndef ACTS_ROWS_H
#define ACTS_ROWS_H
#include "ops_rows.h"

// Kept elements are inp / (1 - p) up to three roundings (1 - p, its inverse, the product), and dev.h's rule says which
// are kept. A part of the array, given where it begins, gets its part of the mask; in place gives the same.
static void row_dropout(Run *r)
{
    size_t n = r->dim[0], n_dropped = 0, cut = n / 3 + 1;
    const float *inp = run_in(r, "inp", n);
    for (uint64_t first = 0; first < 12; first += 11) {
        Dropout drop = {.p = 0.3f, .rng = rng_make(9, "mask", 2), .first = first};
        float *out = run_out(r, n), *part = run_out(r, n), *in_place = run_copy(r, inp, n);
        double *ref = run_zeros(r, n), *err = run_zeros(r, n);
        for (size_t i = 0; i < n; i++) {
            uint32_t word[4];
            rng_words(drop.rng, (first + i) / 4, word);
            bool kept = word[(first + i) % 4] >= (double)drop.p * 4294967296.0;
            ref[i] = kept ? inp[i] / (1 - (double)drop.p) : 0;
            err[i] = 3 * U * fabs(ref[i]);
            n_dropped += !kept;
        }
        r->dev->dropout(r->dev, XM(out), XC(inp), n, drop);
        expect_ref(r, "out", out, ref, err, n);
        r->dev->dropout(r->dev, XM(in_place), XC(in_place), n, drop);
        assert_memory_equal(in_place, out, n * sizeof *out);
        r->dev->dropout(r->dev, XM(part), XC(inp), cut, drop);
        drop.first += cut;
        r->dev->dropout(r->dev, XM(part + cut), XC(inp + cut), n - cut, drop);
        assert_memory_equal(part, out, n * sizeof *out);
    }
    double share = (double)n_dropped / (2.0 * (double)n); // 5 standard deviations; the two masks overlap: n, not 2 n
    assert_true(fabs(share - 0.3) <= 5 * sqrt(0.3 * 0.7 / (double)n));
}

// Each activation and its slope in double precision, with the errors that fp32 may have.
static double ref_act(ActKind kind, double x, double *err)
{
    *err = kind == ACT_GELU ? ref_gelu_err(fabs(x)) : 0;
    return kind == ACT_GELU ? ref_gelu(x) : x > 0 ? (float)(x * x) : 0;
}

static double ref_act_slope(ActKind kind, double x, double *err)
{
    *err = 0;
    return kind == ACT_GELU ? ref_gelu_grad(x, err) : x > 0 ? 2 * x : 0;
}

static void row_act_forward(Run *r)
{
    size_t n = r->dim[0];
    ActKind kind = (ActKind)r->dim[1];
    const float *pre = run_in(r, "pre", n), strange[] = {NAN, INFINITY};
    float *out = run_out(r, n), *in_place = run_copy(r, pre, n), *of_strange = run_out(r, 2);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    r->dev->act_forward(r->dev, XM(out), XC(pre), n, kind);
    for (size_t i = 0; i < n; i++) ref[i] = ref_act(kind, pre[i], err + i);
    expect_ref(r, "out", out, ref, err, n);
    r->dev->act_forward(r->dev, XM(in_place), XC(in_place), n, kind);
    assert_memory_equal(in_place, out, n * sizeof *out);
    r->dev->act_forward(r->dev, XM(of_strange), XC(strange), 2, kind);
    assert_true(isnan(of_strange[0]) && of_strange[1] == INFINITY);
}

static void row_act_backward(Run *r)
{
    size_t n = r->dim[0];
    ActKind kind = (ActKind)r->dim[1];
    const float *pre = run_in(r, "pre", n), *dout = run_in(r, "dout", n);
    float *dpre = run_out(r, n), *in_place = run_copy(r, dout, n);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    r->dev->act_backward(r->dev, XM(dpre), XC(dout), XC(pre), n, kind);
    for (size_t i = 0; i < n; i++) {
        ref[i] = dout[i] * ref_act_slope(kind, pre[i], err + i);
        err[i] = fabs(dout[i] * err[i]) + U * fabs(ref[i]);
    }
    expect_ref(r, "dpre", dpre, ref, err, n);
    r->dev->act_backward(r->dev, XM(in_place), XC(in_place), XC(pre), n, kind);
    assert_memory_equal(in_place, dpre, n * sizeof *dpre);
}

// Inputs for the 8-bit copies: rows of w elements with an outlier, a group of zeros, one of the smallest numbers.
static float *eight_bit_inputs(Run *r, size_t N, size_t w)
{
    float *x = run_copy(r, run_in(r, "inp", N * w), N * w);
    x[w - 1] = -1e4f;
    for (size_t c = 0; c < w && c < DEV_GROUP; c++) x[w + c] = 0, x[2 * w + c] = 1e-40f * (float)c;
    return x;
}

// Largest magnitude of element i's group.
static double group_top(const float *x, size_t i, size_t w)
{
    size_t from = i % w / DEV_GROUP * DEV_GROUP, row = i / w * w, to = from + DEV_GROUP < w ? from + DEV_GROUP : w;
    double top = 0;
    for (size_t c = from; c < to; c++) top = fmax(top, fabs(x[row + c]));
    return top;
}

// There and back: |x - x'| <= scale / 2, with scale = top / 127 of the element's own group. In addition, x times the
// rounded 127 / top is off by 3 roundings of at most 127, which may move the nearest integer (3 * 127 u scale), and
// q times the rounded scale is off by 2 roundings of at most top = 127 scale.
static void row_compress(Run *r)
{
    size_t N = r->dim[0], w = r->dim[1], n = N * w, groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    float *x = eight_bit_inputs(r, N, w), *back = run_out(r, n), *scale = run_out(r, N * groups);
    int8_t *q = run_room(r, n);
    double *ref = run_wide(r, x, n), *err = run_zeros(r, n);
    for (size_t i = 0; i < n; i++) err[i] = group_top(x, i, w) / 127 * (0.5 + 5 * 127 * U);
    r->dev->compress(r->dev, q, scale, XC(x), N, w);
    r->dev->decompress(r->dev, XM(back), q, scale, N, w);
    expect_ref(r, "there and back", back, ref, err, n);
    run_record(r, q, n);
    bool full = false; // the whole range is used; otherwise a scale twice too large could pass
    for (size_t i = 0; i < n; i++) full = full || q[i] == 127;
    assert_true(full && q[w - 1] == -127);
    x[3] = NAN, x[w + 1] = -INFINITY; // their groups come back as NaN, their neighbours as before
    float *before = run_copy(r, back, n);
    r->dev->compress(r->dev, q, scale, XC(x), N, w);
    r->dev->decompress(r->dev, XM(back), q, scale, N, w);
    for (size_t i = 0; i < n; i++)
        assert_true(i / w < 2 && i % w < DEV_GROUP ? isnan(back[i]) : back[i] == before[i]);
}

static void row_decompress(Run *r)
{
    size_t N = r->dim[0], w = r->dim[1], n = N * w, groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    const float *scale = run_in(r, "scale", N * groups);
    int8_t *q = run_room(r, n);
    float *out = run_out(r, n);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    for (size_t i = 0; i < n; i++) {
        q[i] = (int8_t)((int)(i * 37 % 255) - 127);
        ref[i] = (double)q[i] * scale[i / w * groups + i % w / DEV_GROUP];
        err[i] = U * fabs(ref[i]);
    }
    r->dev->decompress(r->dev, XM(out), q, scale, N, w);
    expect_ref(r, "out", out, ref, err, n);
}

static void row_accumulate(Run *r)
{
    size_t n = r->dim[0];
    const float *a = run_in(r, "a", n), *b = run_in(r, "b", n);
    float *sum = run_copy(r, a, n), *part = run_copy(r, b, n);
    r->dev->accumulate(r->dev, sum, part, n);
    for (size_t i = 0; i < n; i++) assert_true(sum[i] == a[i] + b[i] && part[i] == 0);
    run_record(r, sum, n * sizeof *sum);
}

// fp32 storage: a conversion is a copy.
static void row_to_x(Run *r)
{
    size_t n = r->dim[0];
    const float *x = run_in(r, "x", n);
    float *there = run_out(r, n), *back = run_out(r, n);
    r->dev->to_x(r->dev, XM(there), x, n);
    r->dev->from_x(r->dev, back, XC(there), n);
    assert_memory_equal(there, x, n * sizeof *x);
    assert_memory_equal(back, x, n * sizeof *x);
}

static void row_from_x(Run *r)
{
    row_to_x(r);
}

#endif
