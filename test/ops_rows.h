// ops_rows: what test_ops does with each op: one function per op, run on a PyTorch fixture or on random
// inputs. Tests only.
//
// Every function calls the op in each way that dev.h allows (without bias, in place, with an output not
// wanted, onto a gradient that is not zero) and hands results, double version and bound to expect() of
// ops_run.h.
#ifndef OPS_ROWS_H
#define OPS_ROWS_H
#include "ops_run.h"

#include "ops/dev_cpu.h"

#define EPS 1e-5f
#define ROTARY ((Rope){.theta = 10000})
#define XC(ptr) ((const X *)(ptr))
#define XM(ptr) ((X *)(ptr))

static void row_matmul_forward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2];
    const float *inp = run_in(r, "inp", N * C), *weight = run_in(r, "weight", OC * C),
                *bias = run_in(r, "bias", OC);
    double *x = run_wide(r, inp, N * C), *w = run_wide(r, weight, OC * C), *b = run_wide(r, bias, OC);
    double *ref = run_zeros(r, N * OC), *err = run_zeros(r, N * OC);
    float *out = run_out(r, N * OC);
    r->dev->matmul_forward(r->dev, XM(out), XC(inp), XC(weight), XC(bias), N, C, OC, -1);
    ref_matmul(ref, err, x, w, b, N, C, OC);
    expect(r, "out", out, ref, err, N * OC);
    r->dev->matmul_forward(r->dev, XM(out), XC(inp), XC(weight), NULL, N, C, OC, -1);
    ref_matmul(ref, err, x, w, NULL, N, C, OC);
    if (r->prefix && strcmp(r->prefix, "matmul") == 0) expect(r, "out_no_bias", out, ref, err, N * OC);
    else expect_ref(r, "out without bias", out, ref, err, N * OC);
}

static void row_matmul_gelu_forward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2], n = N * OC;
    const float *inp = run_in(r, "inp", N * C), *weight = run_in(r, "weight", OC * C),
                *bias = run_in(r, "bias", OC);
    double *x = run_wide(r, inp, N * C), *w = run_wide(r, weight, OC * C), *b = run_wide(r, bias, OC);
    double *pre_ref = run_zeros(r, n), *pre_err = run_zeros(r, n), *ref = run_zeros(r, n),
           *err = run_zeros(r, n);
    float *out = run_out(r, n), *pre = run_out(r, n);
    for (int with_bias = 1; with_bias >= 0; with_bias--) {
        ref_matmul(pre_ref, pre_err, x, w, with_bias ? b : NULL, N, C, OC);
        for (size_t i = 0; i < n; i++) { // |gelu'| <= 1.13
            ref[i] = ref_gelu(pre_ref[i]);
            err[i] = 1.13 * pre_err[i] + ref_gelu_err(fabs(pre_ref[i]) + pre_err[i]);
        }
        const X *bias_arg = with_bias ? XC(bias) : NULL;
        r->dev->matmul_gelu_forward(r->dev, XM(out), XM(pre), XC(inp), XC(weight), bias_arg, N, C, OC, -1);
        (with_bias ? expect : expect_ref)(r, "pre", pre, pre_ref, pre_err, n);
        (with_bias ? expect : expect_ref)(r, "out", out, ref, err, n);
        float *alone = run_out(r, n);
        r->dev->matmul_gelu_forward(r->dev, XM(alone), NULL, XC(inp), XC(weight), bias_arg, N, C, OC, -1);
        assert_memory_equal(alone, out, n * sizeof *out);
        r->dev->act_forward(r->dev, XM(alone), XC(pre), n, ACT_GELU); // as in recomputation: the same bits
        assert_memory_equal(alone, out, n * sizeof *out);
    }
}

static void row_matmul_backward_input(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2];
    const float *dout = run_in(r, "dout", N * OC), *weight = run_in(r, "weight", OC * C);
    double *ref = run_zeros(r, N * C), *err = run_zeros(r, N * C);
    float *dinp = run_out(r, N * C);
    r->dev->matmul_backward_input(r->dev, XM(dinp), XC(dout), XC(weight), N, C, OC, -1);
    ref_matmul_back_input(ref, err, run_wide(r, dout, N * OC), run_wide(r, weight, OC * C), N, C, OC);
    expect(r, "dinp", dinp, ref, err, N * C);
}

// n parts of two ranges of a sum over K terms: a range from the first half of the terms, one from the second.
static DevParts run_parts(Run *r, size_t K, size_t n)
{
    DevRange *range = (DevRange *)run_room(r, 2 * n * sizeof *range);
    for (size_t p = 0; p < n; p++) {
        range[2 * p] = (DevRange){K / 2 * p / n, K / 2 * (p + 1) / n};
        range[2 * p + 1] = (DevRange){K / 2 + (K - K / 2) * p / n, K / 2 + (K - K / 2) * (p + 1) / n};
    }
    return (DevParts){.range = range, .n = n, .each = 2};
}

static void row_matmul_parts_forward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2];
    const float *inp = run_in(r, "inp", N * C), *weight = run_in(r, "weight", OC * C), *bias = run_in(r, "bias", OC);
    double *x = run_wide(r, inp, N * C), *w = run_wide(r, weight, OC * C), *ref = run_zeros(r, N * OC),
           *err = run_zeros(r, N * OC);
    DevParts parts = run_parts(r, C, r->dim[3]);
    float *out = run_out(r, N * OC);
    r->dev->matmul_parts_forward(r->dev, XM(out), XC(inp), XC(weight), XC(bias), N, C, OC, parts, -1);
    ref_matmul(ref, err, x, w, run_wide(r, bias, OC), N, C, OC);
    expect(r, "out", out, ref, err, N * OC);
    r->dev->matmul_parts_forward(r->dev, XM(out), XC(inp), XC(weight), NULL, N, C, OC, parts, -1);
    ref_matmul(ref, err, x, w, NULL, N, C, OC);
    expect(r, "out without bias", out, ref, err, N * OC);
}

static void row_matmul_parts_backward_input(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2];
    const float *dout = run_in(r, "dout", N * OC), *weight = run_in(r, "weight", OC * C);
    double *ref = run_zeros(r, N * C), *err = run_zeros(r, N * C);
    float *dinp = run_out(r, N * C);
    DevParts parts = run_parts(r, OC, r->dim[3]);
    r->dev->matmul_parts_backward_input(r->dev, XM(dinp), XC(dout), XC(weight), N, C, OC, parts, -1);
    ref_matmul_back_input(ref, err, run_wide(r, dout, N * OC), run_wide(r, weight, OC * C), N, C, OC);
    expect(r, "dinp", dinp, ref, err, N * C);
}

static void row_matmul_gelu_backward_input(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2];
    const float *dout = run_in(r, "dout", N * OC), *weight = run_in(r, "weight", OC * C),
                *pre = run_in(r, "fed", N * C);
    double *ref = run_zeros(r, N * C), *err = run_zeros(r, N * C);
    float *dpre = run_out(r, N * C);
    r->dev->matmul_gelu_backward_input(r->dev, XM(dpre), XC(dout), XC(weight), XC(pre), N, C, OC, -1);
    ref_matmul_back_input(ref, err, run_wide(r, dout, N * OC), run_wide(r, weight, OC * C), N, C, OC);
    for (size_t i = 0; i < N * C; i++) {
        double slope_err, slope = ref_gelu_grad(pre[i], &slope_err);
        err[i] = err[i] * fabs(slope) + fabs(ref[i]) * (slope_err + U * fabs(slope));
        ref[i] *= slope;
    }
    expect(r, "dpre", dpre, ref, err, N * C);
}

static void row_matmul_backward_weight(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], OC = r->dim[2];
    const float *dout = run_in(r, "dout", N * OC), *inp = run_in(r, "inp", N * C);
    const float *w_start = run_in(r, "dweight_start", OC * C), *b_start = run_in(r, "dbias_start", OC);
    double *ref = run_wide(r, w_start, OC * C), *err = run_zeros(r, OC * C), *dy = run_wide(r, dout, N * OC);
    double *b_ref = run_wide(r, b_start, OC), *b_err = run_zeros(r, OC), *ones = run_zeros(r, N);
    for (size_t n = 0; n < N; n++) ones[n] = 1;
    float *dweight = run_copy(r, w_start, OC * C), *dbias = run_copy(r, b_start, OC);
    r->dev->matmul_backward_weight(r->dev, dweight, dbias, XC(dout), XC(inp), N, C, OC, -1);
    ref_outer_sum(ref, err, dy, run_wide(r, inp, N * C), N, OC, C);
    ref_outer_sum(b_ref, b_err, dy, ones, N, OC, 1);
    expect(r, "dweight", dweight, ref, err, OC * C);
    expect(r, "dbias", dbias, b_ref, b_err, OC);
    dweight = run_copy(r, w_start, OC * C);
    r->dev->matmul_backward_weight(r->dev, dweight, NULL, XC(dout), XC(inp), N, C, OC, -1);
    expect(r, "dweight", dweight, ref, err, OC * C);
}

static void row_swiglu_forward(Run *r)
{
    size_t N = r->dim[0], F = r->dim[1];
    const float *gate_up = run_in(r, "gate_up", N * 2 * F);
    double *ref = run_zeros(r, N * F), *err = run_zeros(r, N * F);
    float *out = run_out(r, N * F);
    r->dev->swiglu_forward(r->dev, XM(out), XC(gate_up), N, F);
    ref_swiglu(ref, err, run_wide(r, gate_up, N * 2 * F), N, F);
    expect(r, "out", out, ref, err, N * F);
}

static void row_swiglu_backward(Run *r)
{
    size_t N = r->dim[0], F = r->dim[1];
    const float *gate_up = run_in(r, "gate_up", N * 2 * F), *dout = run_in(r, "dout", N * F);
    double *ref = run_zeros(r, N * 2 * F), *err = run_zeros(r, N * 2 * F);
    float *dgate_up = run_out(r, N * 2 * F);
    r->dev->swiglu_backward(r->dev, XM(dgate_up), XC(dout), XC(gate_up), N, F);
    ref_swiglu_back(ref, err, run_wide(r, dout, N * F), run_wide(r, gate_up, N * 2 * F), N, F);
    expect(r, "dgate_up", dgate_up, ref, err, N * 2 * F);
}

// One float32 addition is the rounded exact sum: no error allowed.
static void row_add(Run *r)
{
    size_t n = r->dim[0];
    const float *a = run_in(r, "a", n), *b = run_in(r, "b", n);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n);
    float *out = run_out(r, n), *on_a = run_copy(r, a, n), *on_b = run_copy(r, b, n);
    for (size_t i = 0; i < n; i++) ref[i] = a[i] + b[i];
    r->dev->add(r->dev, XM(out), XC(a), XC(b), n);
    r->dev->add(r->dev, XM(on_a), XC(on_a), XC(b), n);
    r->dev->add(r->dev, XM(on_b), XC(a), XC(on_b), n);
    expect(r, "out", out, ref, err, n);
    assert_memory_equal(on_a, out, n * sizeof *out);
    assert_memory_equal(on_b, out, n * sizeof *out);
}

// Elements between the rows keep their values.
static void row_copy(Run *r)
{
    size_t rows = r->dim[0], width = r->dim[1], to = r->dim[2], from = r->dim[3], n = rows * to;
    const float *inp = run_in(r, "inp", rows * from), *before = run_in(r, "before", n);
    float *out = run_copy(r, before, n);
    r->dev->copy(r->dev, XM(out), XC(inp), rows, width, to, from);
    for (size_t i = 0; i < n; i++)
        assert_true(out[i] == (i % to < width ? inp[i / to * from + i % to] : before[i]));
    run_record(r, out, n * sizeof *out);
}

// A token of another rank: zeros, whatever its position; its gradient goes only to the position.
static void expect_absent(Run *r, const float *wte, const float *wpe, size_t C)
{
    int32_t token[2] = {-1, 1}, pos[2] = {1, 1};
    float *out = run_out(r, 2 * C), *dout = run_out(r, 2 * C), *dwte = run_out(r, 2 * C), *dwpe = run_out(r, 2 * C);
    r->dev->embed_forward(r->dev, XM(out), token, pos, XC(wte), XC(wpe), 2, C);
    for (size_t c = 0; c < C; c++) assert_true(out[c] == 0 && out[C + c] == wte[C + c] + wpe[C + c]);
    r->dev->embed_forward(r->dev, XM(out), token, pos, XC(wte), NULL, 2, C);
    for (size_t c = 0; c < C; c++) assert_true(out[c] == 0 && out[C + c] == wte[C + c]);
    for (size_t c = 0; c < C; c++) dout[c] = 1, dout[C + c] = 2, dwte[c] = dwte[C + c] = dwpe[c] = dwpe[C + c] = 0;
    r->dev->embed_backward(r->dev, dwte, dwpe, XC(dout), token, pos, 2, C, 2);
    for (size_t c = 0; c < C; c++) assert_true(dwte[c] == 0 && dwte[C + c] == 2 && dwpe[c] == 0 && dwpe[C + c] == 3);
}

static void row_embed_forward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], V = r->dim[2], T = r->dim[3];
    const int32_t *token = run_ints(r, "token", N, 0, (int)V), *pos = run_ints(r, "pos", N, 0, (int)T);
    const float *wte = run_in(r, "wte", V * C), *wpe = run_in(r, "wpe", T * C);
    double *ref = run_zeros(r, N * C), *err = run_zeros(r, N * C), *t = run_wide(r, wte, V * C);
    float *out = run_out(r, N * C);
    r->dev->embed_forward(r->dev, XM(out), token, pos, XC(wte), XC(wpe), N, C);
    ref_embed(ref, err, token, pos, t, run_wide(r, wpe, T * C), N, C);
    expect(r, "out", out, ref, err, N * C);
    r->dev->embed_forward(r->dev, XM(out), token, pos, XC(wte), NULL, N, C);
    ref_embed(ref, err, token, pos, t, NULL, N, C);
    expect(r, "out_no_pos", out, ref, err, N * C);
    expect_absent(r, wte, wpe, C);
}

static void row_embed_backward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], V = r->dim[2], T = r->dim[3];
    const int32_t *token = run_ints(r, "token", N, 0, (int)V), *pos = run_ints(r, "pos", N, 0, (int)T);
    const float *dout = run_in(r, "dout", N * C);
    const float *t_start = run_in(r, "dwte_start", V * C), *p_start = run_in(r, "dwpe_start", T * C);
    double *t_ref = run_wide(r, t_start, V * C), *p_ref = run_wide(r, p_start, T * C),
           *dy = run_wide(r, dout, N * C);
    double *t_err = run_zeros(r, V * C), *p_err = run_zeros(r, T * C);
    float *dwte = run_copy(r, t_start, V * C), *dwpe = run_copy(r, p_start, T * C);
    r->dev->embed_backward(r->dev, dwte, dwpe, XC(dout), token, pos, N, C, V);
    ref_scatter(t_ref, t_err, dy, token, N, C, V);
    ref_scatter(p_ref, p_err, dy, pos, N, C, T);
    expect(r, "dwte", dwte, t_ref, t_err, V * C);
    expect(r, "dwpe", dwpe, p_ref, p_err, T * C);
    dwte = run_copy(r, t_start, V * C);
    r->dev->embed_backward(r->dev, dwte, NULL, XC(dout), token, pos, N, C, V);
    expect(r, "dwte", dwte, t_ref, t_err, V * C);
}

static void expect_moments(Run *r, const float *mean, const float *rstd, const RefMoments *m, size_t N,
                           NormKind kind)
{
    double *ref = run_zeros(r, N), *err = run_zeros(r, N);
    for (size_t n = 0; n < N; n++) ref[n] = m[n].rstd, err[n] = m[n].rstd * (m[n].rstd_rel + U);
    expect(r, "rstd", rstd, ref, err, N);
    if (kind == NORM_RMSNORM) return;
    for (size_t n = 0; n < N; n++) ref[n] = m[n].mean, err[n] = m[n].mean_err + U * fabs(m[n].mean);
    expect(r, "mean", mean, ref, err, N);
}

static void row_norm_forward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1];
    NormKind kind = (NormKind)r->dim[2];
    const float *a = run_in(r, "a", N * C), *b = run_in(r, "b", N * C), *weight = run_in(r, "weight", C);
    const float *bias = kind == NORM_LAYERNORM ? run_in(r, "bias", C) : NULL;
    float *out = run_out(r, N * C), *sum = run_out(r, N * C), *mean = run_out(r, N), *rstd = run_out(r, N);
    double *x = run_zeros(r, N * C), *ref = run_zeros(r, N * C), *err = run_zeros(r, N * C),
           *w = run_wide(r, weight, C);
    RefMoments *m = run_room(r, N * sizeof *m);
    r->dev->norm_forward(r->dev, XM(out), XM(sum), mean, rstd, XC(a), XC(b), XC(weight), XC(bias), N, C, kind,
                         EPS);
    for (size_t i = 0; i < N * C; i++) x[i] = a[i] + b[i]; // one float32 addition: no error allowed
    expect(r, "sum", sum, x, err, N * C);
    ref_norm(ref, err, m, x, w, bias ? run_wide(r, bias, C) : NULL, N, C, kind, EPS);
    expect(r, "out", out, ref, err, N * C);
    expect_moments(r, mean, rstd, m, N, kind);
    if (kind == NORM_RMSNORM)
        for (size_t n = 0; n < N; n++) assert_true(isnan(mean[n])); // left alone
    float *alone = run_out(r, N * C); // no second addend: norm(sum) is the same, and nothing else is written
    r->dev->norm_forward(r->dev, XM(alone), NULL, mean, rstd, XC(sum), NULL, XC(weight), XC(bias), N, C, kind,
                         EPS);
    assert_memory_equal(alone, out, N * C * sizeof *out);
    r->dev->norm_forward(r->dev, XM(out), NULL, mean, rstd, XC(sum), NULL, XC(weight), NULL, N, C, kind, EPS);
    ref_norm(ref, err, m, x, w, NULL, N, C, kind, EPS);
    expect_ref(r, "out without bias", out, ref, err, N * C);
}

static void row_norm_backward(Run *r)
{
    size_t N = r->dim[0], C = r->dim[1], n = N * C;
    NormKind kind = (NormKind)r->dim[2];
    const float *inp = run_in(r, "sum", n), *dout = run_in(r, "dout", n), *dresid = run_in(r, "dresid", n);
    const float *weight = run_in(r, "weight", C), *w_start = run_in(r, "dweight_start", C);
    const float *b_start = kind == NORM_LAYERNORM ? run_in(r, "dbias_start", C) : NULL;
    double *x = run_wide(r, inp, n), *dy = run_wide(r, dout, n), *w = run_wide(r, weight, C),
           *ones = run_zeros(r, N);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n), *w_ref = run_wide(r, w_start, C),
           *w_err = run_zeros(r, C);
    float *mean = run_out(r, N), *rstd = run_out(r, N);
    for (size_t i = 0; i < N; i++) {
        RefMoments m = ref_moments(x + i * C, C, kind, EPS);
        if (kind == NORM_LAYERNORM) mean[i] = (float)m.mean;
        rstd[i] = (float)m.rstd;
        ones[i] = 1;
    }
    ref_norm_back(ref, err, w_ref, w_err, dy, x, w, N, C, kind, EPS);
    for (int variant = 0; variant < 3; variant++) { // no residual gradient; one apart; one in place
        float *dinp = variant == 2 ? run_copy(r, dresid, n) : run_out(r, n);
        const X *resid = variant == 0 ? NULL : variant == 1 ? XC(dresid) : XC(dinp);
        float *dweight = run_copy(r, w_start, C), *dbias = b_start ? run_copy(r, b_start, C) : NULL;
        r->dev->norm_backward(r->dev, XM(dinp), dweight, dbias, XC(dout), resid, XC(inp), mean, rstd,
                              XC(weight), N, C, kind);
        if (variant == 1)
            for (size_t i = 0; i < n; i++) ref[i] += dresid[i], err[i] += U * fabs(ref[i]);
        expect(r, variant == 0 ? "dinp" : "dinp_resid", dinp, ref, err, n);
        expect(r, "dweight", dweight, w_ref, w_err, C);
        if (!dbias) continue;
        double *b_ref = run_wide(r, b_start, C), *b_err = run_zeros(r, C);
        ref_outer_sum(b_ref, b_err, dy, ones, N, C, 1);
        expect(r, "dbias", dbias, b_ref, b_err, C);
    }
}

// The first `used` of every `ld` elements, back to back; the others must be as in `before`.
static float *gather(Run *r, const float *x, const float *before, size_t N, size_t used, size_t ld)
{
    float *packed = run_room(r, N * used * sizeof *packed);
    for (size_t n = 0; n < N; n++) {
        memcpy(packed + n * used, x + n * ld, used * sizeof *x);
        assert_memory_equal(x + n * ld + used, before + n * ld + used, (ld - used) * sizeof *x);
    }
    return packed;
}

static void row_head_norm_forward(Run *r)
{
    size_t N = r->dim[0], heads = r->dim[1], D = r->dim[2], ld = r->dim[3], used = heads * D, n = N * used;
    const float *inp = run_in(r, "inp", N * ld), *weight = run_in(r, "weight", D);
    double *x = run_wide(r, gather(r, inp, inp, N, used, ld), n), *ref = run_zeros(r, n),
           *err = run_zeros(r, n);
    RefMoments *m = run_room(r, N * heads * sizeof *m);
    float *out = run_out(r, N * ld), *before = run_copy(r, out, N * ld), *rstd = run_out(r, N * heads);
    r->dev->head_norm_forward(r->dev, XM(out), rstd, XC(inp), XC(weight), N, heads, D, ld, EPS);
    ref_norm(ref, err, m, x, run_wide(r, weight, D), NULL, N * heads, D, NORM_RMSNORM, EPS);
    float *packed = gather(r, out, before, N, used, ld);
    expect(r, "out", packed, ref, err, n);
    expect_moments(r, NULL, rstd, m, N * heads, NORM_RMSNORM);
    float *in_place = run_copy(r, inp, N * ld);
    r->dev->head_norm_forward(r->dev, XM(in_place), rstd, XC(in_place), XC(weight), N, heads, D, ld, EPS);
    assert_memory_equal(gather(r, in_place, inp, N, used, ld), packed, n * sizeof *packed);
}

static void row_head_norm_backward(Run *r)
{
    size_t N = r->dim[0], heads = r->dim[1], D = r->dim[2], ld = r->dim[3], used = heads * D, n = N * used;
    const float *inp = run_in(r, "inp", N * ld), *dout = run_in(r, "dout", N * ld),
                *weight = run_in(r, "weight", D);
    const float *start = run_in(r, "dweight_start", D);
    double *x = run_wide(r, gather(r, inp, inp, N, used, ld), n),
           *dy = run_wide(r, gather(r, dout, dout, N, used, ld), n);
    double *ref = run_zeros(r, n), *err = run_zeros(r, n), *w_ref = run_wide(r, start, D),
           *w_err = run_zeros(r, D);
    float *dinp = run_out(r, N * ld), *before = run_copy(r, dinp, N * ld), *dweight = run_copy(r, start, D);
    float *rstd = run_out(r, N * heads);
    for (size_t i = 0; i < N * heads; i++) rstd[i] = (float)ref_moments(x + i * D, D, NORM_RMSNORM, EPS).rstd;
    r->dev->head_norm_backward(r->dev, XM(dinp), dweight, XC(dout), XC(inp), rstd, XC(weight), N, heads, D,
                               ld);
    ref_norm_back(ref, err, w_ref, w_err, dy, x, run_wide(r, weight, D), N * heads, D, NORM_RMSNORM, EPS);
    expect(r, "dinp", gather(r, dinp, before, N, used, ld), ref, err, n);
    expect(r, "dweight", dweight, w_ref, w_err, D);
    float *in_place = run_copy(r, dout, N * ld);
    dweight = run_copy(r, start, D);
    r->dev->head_norm_backward(r->dev, XM(in_place), dweight, XC(in_place), XC(inp), rstd, XC(weight), N,
                               heads, D, ld);
    expect(r, "dinp", gather(r, in_place, dout, N, used, ld), ref, err, n);
    expect(r, "dweight", dweight, w_ref, w_err, D);
}

static void rope_row(Run *r, const char *from, const char *to, double sign)
{
    size_t N = r->dim[0], heads = r->dim[1], D = r->dim[2], ld = r->dim[3], used = heads * D, n = N * used;
    const float *inp = run_in(r, from, N * ld);
    const int32_t *pos = run_ints(r, "pos", N, 0, 100000);
    double *ref = run_wide(r, gather(r, inp, inp, N, used, ld), n), *err = run_zeros(r, n);
    float *x = run_copy(r, inp, N * ld);
    (sign > 0 ? r->dev->rope_forward : r->dev->rope_backward)(r->dev, XM(x), pos, N, heads, D, ld, ROTARY);
    ref_rope(ref, err, pos, N, heads, D, ROTARY, sign);
    expect(r, to, gather(r, x, inp, N, used, ld), ref, err, n);
    for (int kind = ROPE_LINEAR; kind <= ROPE_LLAMA3; kind++) {
        Rope rope = {.theta = 500, .kind = (RopeKind)kind, .factor = 4, .original = 300, .slow = 1, .fast = 8};
        double *stretched = run_wide(r, gather(r, inp, inp, N, used, ld), n);
        float *y = run_copy(r, inp, N * ld);
        (sign > 0 ? r->dev->rope_forward : r->dev->rope_backward)(r->dev, XM(y), pos, N, heads, D, ld, rope);
        ref_rope(stretched, err, pos, N, heads, D, rope, sign);
        expect_ref(r, "stretched", gather(r, y, inp, N, used, ld), stretched, err, n);
    }
}

static void row_rope_forward(Run *r)
{
    rope_row(r, "x", "out", 1);
}

static void row_rope_backward(Run *r)
{
    rope_row(r, "dout", "dinp", -1);
}

// q, k and v of an attention case: packed in one row when Tq == Tk, otherwise q apart (a key/value cache).
typedef struct {
    AttnShape s;
    const float *q, *k, *v;
    double *wide_q, *wide_k, *wide_v;
    size_t n_out, n_packed;
} Attn;

enum { DOCUMENTS = 1, DROPPED = 2 }; // the last of the sizes but one; the last: the window, or 0

static Attn attention_inputs(Run *r)
{
    const size_t *d = r->dim;
    AttnShape s = {
        .B = d[0], .Tq = d[1], .Tk = d[2], .H = d[3], .G = d[4], .D = d[5], .q_start = d[2] - d[1],
        .window = d[7]};
    if (d[6] & DOCUMENTS) s.first = run_documents(r, s.B, s.Tq, s.q_start);
    if (d[6] & DROPPED) s.drop = (Dropout){.p = 0.3f, .rng = rng_make(5, "dropped", 9), .first = 11};
    bool packed = s.Tq == s.Tk;
    s.ldkv = packed ? (s.H + 2 * s.G) * s.D : 2 * s.G * s.D;
    s.ldq = packed ? s.ldkv : s.H * s.D;
    size_t n_q = s.B * s.Tq * s.ldq, n_kv = s.B * s.Tk * s.ldkv;
    Attn a = {.s = s, .n_out = s.B * s.Tq * s.H * s.D, .n_packed = n_kv};
    const float *kv = run_in(r, packed ? "qkv" : "kv", n_kv);
    double *wide_kv = run_wide(r, kv, n_kv);
    a.q = packed ? kv : run_in(r, "q", n_q);
    a.wide_q = packed ? wide_kv : run_wide(r, a.q, n_q);
    size_t skip = packed ? s.H * s.D : 0;
    a.k = kv + skip, a.v = a.k + s.G * s.D;
    a.wide_k = wide_kv + skip, a.wide_v = a.wide_k + s.G * s.D;
    return a;
}

static void row_attention_forward(Run *r)
{
    Attn a = attention_inputs(r);
    size_t n_rows = a.s.B * a.s.H * a.s.Tq;
    double *ref = run_zeros(r, a.n_out), *err = run_zeros(r, a.n_out);
    double *lse_ref = run_zeros(r, n_rows), *lse_err = run_zeros(r, n_rows);
    float *out = run_out(r, a.n_out), *lse = run_out(r, n_rows), *alone = run_out(r, a.n_out);
    r->dev->attention_forward(r->dev, XM(out), lse, XC(a.q), XC(a.k), XC(a.v), a.s);
    ref_attention(ref, err, lse_ref, lse_err, a.wide_q, a.wide_k, a.wide_v, a.s);
    expect(r, "out", out, ref, err, a.n_out);
    expect(r, "lse", lse, lse_ref, lse_err, n_rows);
    r->dev->attention_forward(r->dev, XM(alone), NULL, XC(a.q), XC(a.k), XC(a.v), a.s);
    assert_memory_equal(alone, out, a.n_out * sizeof *out);
    attention_forward_naive(alone, lse, a.q, a.k, a.v, a.s); // the twin with the whole matrix
    expect(r, "out", alone, ref, err, a.n_out);
    expect(r, "lse", lse, lse_ref, lse_err, n_rows);
}

static void row_attention_backward(Run *r)
{
    Attn a = attention_inputs(r);
    AttnShape s = a.s;
    size_t n_rows = s.B * s.H * s.Tq, k0 = s.H * s.D, v0 = (s.H + s.G) * s.D;
    const float *dout = run_in(r, "dout", a.n_out);
    double *out = run_zeros(r, a.n_out), *lse = run_zeros(r, n_rows);
    double *ref = run_zeros(r, a.n_packed), *err = run_zeros(r, a.n_packed);
    ref_attention(out, NULL, lse, NULL, a.wide_q, a.wide_k, a.wide_v, s);
    ref_attention_back(ref, ref + k0, ref + v0, err, err + k0, err + v0, run_wide(r, dout, a.n_out),
                       a.wide_q, a.wide_k, a.wide_v, s);
    float *dqkv = run_out(r, a.n_packed);
    r->dev->attention_backward(r->dev, XM(dqkv), XM(dqkv + k0), XM(dqkv + v0), XC(dout),
                               XC(run_narrow(r, out, a.n_out)), run_narrow(r, lse, n_rows), XC(a.q), XC(a.k),
                               XC(a.v), s);
    expect(r, "dqkv", dqkv, ref, err, a.n_packed);
}

static void row_softmax_xent(Run *r)
{
    size_t N = r->dim[0], V = r->dim[1], n = N * V;
    float scale = 0.125f, cap = (float)r->dim[2];
    const float *logits = run_in(r, "logits", n);
    const int32_t *target = run_ints(r, "target", N, -1, (int)V);
    double *loss_ref = run_zeros(r, N), *loss_err = run_zeros(r, N), *ref = run_zeros(r, n),
           *err = run_zeros(r, n);
    float *loss = run_out(r, N), *alone = run_out(r, N), *dlogits = run_out(r, n),
          *in_place = run_copy(r, logits, n);
    r->dev->softmax_xent(r->dev, loss, XM(dlogits), XC(logits), target, N, V, scale, cap);
    ref_xent(loss_ref, loss_err, ref, err, run_wide(r, logits, n), target, N, V, scale, cap);
    expect(r, "loss", loss, loss_ref, loss_err, N);
    expect(r, "dlogits", dlogits, ref, err, n);
    for (size_t i = 0; i < N; i++) // what is not counted is exactly 0
        for (size_t v = 0; target[i] < 0 && v < V; v++) assert_true(loss[i] == 0 && dlogits[i * V + v] == 0);
    r->dev->softmax_xent(r->dev, alone, NULL, XC(logits), target, N, V, scale, cap);
    expect(r, "loss", alone, loss_ref, loss_err, N);
    r->dev->softmax_xent(r->dev, alone, XM(in_place), XC(in_place), target, N, V, scale, cap);
    assert_memory_equal(in_place, dlogits, n * sizeof *dlogits);
    assert_memory_equal(alone, loss, N * sizeof *loss);
}

// The three steps on a vocabulary cut in two: together they are softmax_xent of the whole.
static void xent_steps(Run *r)
{
    size_t N = r->dim[0], V = r->dim[1], cut = V / 3, width[2] = {cut, V - cut};
    float scale = 0.125f, cap = (float)r->dim[2];
    const float *logits = run_in(r, "logits", N * V);
    const int32_t *target = run_ints(r, "target", N, -1, (int)V);
    double *loss_ref = run_zeros(r, N), *loss_err = run_zeros(r, N), *ref = run_zeros(r, N * V),
           *err = run_zeros(r, N * V);
    ref_xent(loss_ref, loss_err, ref, err, run_wide(r, logits, N * V), target, N, V, scale, cap);
    float *z[2], *loss[2], *top[2], *total[2], *hit[2], *dlogits = run_out(r, N * V);
    int32_t *own[2];
    for (int i = 0; i < 2; i++) {
        size_t w = width[i], first = i ? cut : 0;
        z[i] = run_out(r, N * w), loss[i] = run_out(r, N), top[i] = run_out(r, N);
        total[i] = run_out(r, N), hit[i] = run_out(r, N);
        own[i] = (int32_t *)run_room(r, N * sizeof(int32_t));
        for (size_t n = 0; n < N; n++) {
            int32_t t = target[n] - (int32_t)first;
            own[i][n] = target[n] < 0 ? -1 : t >= 0 && t < (int32_t)w ? t : (int32_t)w; // w: another rank's
            memcpy(z[i] + n * w, logits + n * V + first, w * sizeof(float));
        }
        r->dev->xent_max(r->dev, top[i], XC(z[i]), N, w);
    }
    for (size_t n = 0; n < N; n++) {
        float most = logits[n * V];
        for (size_t v = 0; v < V; v++) most = fmaxf(most, logits[n * V + v]);
        assert_true(fmaxf(top[0][n], top[1][n]) == most);
        top[0][n] = top[1][n] = most;
    }
    for (int i = 0; i < 2; i++)
        r->dev->xent_sum(r->dev, total[i], hit[i], XC(z[i]), own[i], top[i], N, width[i], run_parts(r, width[i], 5),
                         cap);
    for (size_t n = 0; n < N; n++) {
        total[0][n] = total[1][n] = total[0][n] + total[1][n];
        assert_true(target[n] < 0 || hit[0][n] == 0 || hit[1][n] == 0);
        hit[0][n] = hit[1][n] = hit[0][n] + hit[1][n];
    }
    for (int i = 0; i < 2; i++) {
        r->dev->xent_loss(r->dev, loss[i], NULL, XC(z[i]), own[i], top[i], total[i], hit[i], N, width[i], scale, cap);
        expect(r, "loss", loss[i], loss_ref, loss_err, N);
        r->dev->xent_loss(r->dev, loss[i], XM(z[i]), XC(z[i]), own[i], top[i], total[i], hit[i], N, width[i], scale,
                          cap);
        expect(r, "loss", loss[i], loss_ref, loss_err, N);
        for (size_t n = 0; n < N; n++)
            memcpy(dlogits + n * V + (i ? cut : 0), z[i] + n * width[i], width[i] * sizeof(float));
    }
    expect(r, "dlogits", dlogits, ref, err, N * V);
}

static void row_xent_max(Run *r)
{
    xent_steps(r);
}

static void row_xent_sum(Run *r)
{
    xent_steps(r);
}

static void row_xent_loss(Run *r)
{
    xent_steps(r);
}

// Partial sums of at most SPAN squares may be float32, the rest must be double: a norm over a billion
// gradients needs it.
static void row_sum_squares(Run *r)
{
    enum { SPAN = 1024 };
    size_t n = r->dim[0];
    const float *x = run_in(r, "x", n);
    double want = 0, got = r->dev->sum_squares(r->dev, x, n), none = r->dev->sum_squares(r->dev, x, 0);
    for (size_t i = 0; i < n; i++) want += (double)x[i] * x[i];
    run_record(r, &got, sizeof got);
    if (!within(got, want, gam(SPAN + 1) * want))
        fail_msg("sum of squares %.17g, should be %.17g", got, want);
    if (r->fx) assert_true(within(want, fixture_f32(r->fx, run_key(r, "sum"), 1)[0], 2 * U * want));
    assert_true(none == 0);
    float *small = run_copy(r, x, n); // squares too small for a float
    for (size_t i = 0; i < n; i++) small[i] *= 0x1p-80f;
    got = r->dev->sum_squares(r->dev, small, n), want = ldexp(want, -160);
    if (!within(got, want, gam(SPAN + 1) * want)) fail_msg("sum of squares %.17g, should be %.17g", got, want);
}

// Every square is added exactly; the resulting double is truncated below its last bit.
static void row_sum_squares_exact(Run *r)
{
    size_t n = r->dim[0];
    const float *x = run_in(r, "x", n);
    ExactSum sum = {{0}};
    double want = 0;
    r->dev->sum_squares_exact(r->dev, &sum, x, n / 3);
    r->dev->sum_squares_exact(r->dev, &sum, x + n / 3, n - n / 3);
    run_record(r, &sum, sizeof sum);
    for (size_t i = 0; i < n; i++) want += (double)x[i] * x[i];
    double got = formats_sum_value(&sum);
    if (!within(got, want, ((double)n + 1) * 0x1p-52 * want))
        fail_msg("exact sum of squares %.17g, should be %.17g", got, want);
    const float not_finite[] = {NAN, copysignf(NAN, -1), INFINITY, -INFINITY};
    for (int i = 0; i < 4 && n; i++) {
        float *bad = run_copy(r, x, n);
        bad[n / 2] = not_finite[i];
        sum = (ExactSum){{0}};
        r->dev->sum_squares_exact(r->dev, &sum, bad, n);
        if (!isnan(formats_sum_value(&sum))) fail_msg("exact sum of squares with %g is not NaN", not_finite[i]);
    }
}

static void row_adamw(Run *r)
{
    size_t n = r->dim[0];
    Update h = {.lr = 1e-3f,
               .beta1 = 0.9f,
               .beta2 = 0.95f,
               .eps = 1e-8f,
               .weight_decay = (float)r->dim[2] / 10.0f,
               .grad_scale = 0.37f,
               .step = (int)r->dim[1]};
    const float *grad = run_in(r, "grad", n), *weight = run_in(r, "weight", n), *m = run_in(r, "m", n);
    float *v = run_copy(r, run_in(r, "v", n), n);
    for (size_t i = 0; i < n; i++) v[i] = fabsf(v[i]);
    double *ref[3] = {run_wide(r, weight, n), run_wide(r, m, n), run_wide(r, v, n)};
    double *err[3] = {run_zeros(r, n), run_zeros(r, n), run_zeros(r, n)};
    for (size_t i = 0; i < n; i++) {
        double e[3];
        ref_adamw(ref[0] + i, ref[1] + i, ref[2] + i, e, grad[i], h, false);
        for (int k = 0; k < 3; k++) err[k][i] = e[k];
    }
    float *w = run_copy(r, weight, n), *mm = run_copy(r, m, n), *vv = run_copy(r, v, n), *g = run_copy(r, grad, n);
    r->dev->update(r->dev, OPTIM_ADAMW, w, mm, vv, g, n, h);
    expect(r, "weight_after", w, ref[0], err[0], n);
    expect(r, "m_after", mm, ref[1], err[1], n);
    expect(r, "v_after", vv, ref[2], err[2], n);
    for (size_t i = 0; i < n; i++) assert_true(g[i] == 0);
}

// There and back, and zeroed.
static void row_memory(Run *r)
{
    size_t n = r->dim[0];
    const float *x = run_in(r, "memory", n);
    float *back = run_out(r, n);
    float *ptr = run_out(r, n);
    r->dev->to_device(r->dev, ptr, x, n * sizeof *x);
    r->dev->to_host(r->dev, back, ptr, n * sizeof *x);
    assert_memory_equal(back, x, n * sizeof *x);
    r->dev->zero(r->dev, ptr, (n - 1) * sizeof *x);
    r->dev->to_host(r->dev, back, ptr, n * sizeof *x);
    for (size_t i = 0; i < n - 1; i++) assert_true(back[i] == 0);
    assert_true(back[n - 1] == x[n - 1]);
}

#endif
