// dev_check_rows: the ops that work row by row or element by element (activations, embedding, norms, rope, losses,
// compression, optimizers' updates) on two devices, and how far they may be apart.
//
// Bounds as in dev_check.c, u = 2^-24, FN of dev_check.h; gam(n) = n u / (1 - n u) for a sum of n terms. Errors of intermediates are carried to the
// output by the derivative of what follows; products of two errors (u^2) are dropped.
//
//   swiglu     s = sigmoid(gate) errs by (FN + 2) u relatively, 1 - s by (FN + 3) u absolutely; products follow
//   norm       mean: dm = gam(C + 1) mean|x|; variance: gam(C + 5) var + dm^2 (sum of x - mean is 0); rstd: half of
//              that relative to var + eps, and 4 u; backward: xhat is off by rstd u (|mean| + |x - mean|) + 3 u |xhat|
//   rope       cos and sin are rounded once, two products and a sum: 4 u (|a| + |b|), times the amplitude
//   exact      activations of one product, embedding forward (one addition), compression (the same arithmetic), the largest logit
#include "src/check/dev_check.h"
#include "ops/activation.h"
#include "ops/dev_cpu.h"
#include "ops/update_rules.h"

#include <math.h>

static const double U = DEV_CHECK_U;
enum { FN = DEV_CHECK_FN };

static double gam(size_t n)
{
    return (double)n * U / (1 - (double)n * U);
}

static void *room(DevCheckCall *c, size_t n) // n elements of X
{
    return dev_check_room(c, n * c->fast->x_bytes);
}

// ---- activations

static void copy(Dev *dev, X *out, const X *inp, size_t rows, size_t width, size_t ld_out, size_t ld_inp)
{
    DevCheckCall c = dev_check_begin(dev, "copy");
    size_t n_out = rows ? (rows - 1) * ld_out + width : 0, n_inp = rows ? (rows - 1) * ld_inp + width : 0;
    const X *x = dev_check_x(&c, inp, n_inp);
    X *want = dev_check_x(&c, out, n_out);
    c.ref->copy(c.ref, want, x, rows, width, ld_out, ld_inp);
    c.fast->copy(c.fast, out, inp, rows, width, ld_out, ld_inp);
    dev_check_expect_x(&c, "out", want, out, 1, n_out, n_out, NULL); // all elements, also those between the rows
    dev_check_end(&c);
}

// How far f (or its slope) of one device may be from the other's.
static double act_error(ActKind kind, double x, bool slope)
{
#define BOUND(KIND, f) \
    if (kind == KIND) return U * (slope ? f##_slope_bound(x) : f##_bound(x));
    ACTIVATIONS(BOUND)
    return 0;
}

static bool act_exact(ActKind kind) // one product: the same bits
{
    return act_error(kind, 1, false) == 0 && act_error(kind, 1, true) == 0;
}

static void act_forward(Dev *dev, X *out, const X *pre, size_t n, ActKind kind)
{
    DevCheckCall c = dev_check_begin(dev, "act_forward");
    const X *x = dev_check_x(&c, pre, n);
    X *want = room(&c, n);
    c.ref->act_forward(c.ref, want, x, n, kind);
    const float *z = dev_check_wide(&c, x, n, false);
    c.fast->act_forward(c.fast, out, pre, n, kind);
    double *err = dev_check_d(&c, n);
    for (size_t i = 0; i < n; i++) err[i] = act_error(kind, (double)z[i], false);
    dev_check_expect_x(&c, "out", want, out, 1, n, n, act_exact(kind) ? NULL : err);
    dev_check_end(&c);
}

static void act_backward(Dev *dev, X *dpre, const X *dout, const X *pre, size_t n, ActKind kind)
{
    DevCheckCall c = dev_check_begin(dev, "act_backward");
    const X *x = dev_check_x(&c, pre, n), *dy = dev_check_x(&c, dout, n);
    X *want = room(&c, n);
    c.ref->act_backward(c.ref, want, dy, x, n, kind);
    const float *z = dev_check_wide(&c, x, n, false), *d = dev_check_wide(&c, dy, n, false);
    c.fast->act_backward(c.fast, dpre, dout, pre, n, kind);
    double *err = dev_check_d(&c, n);
    for (size_t i = 0; i < n; i++) err[i] = fabs((double)d[i]) * act_error(kind, (double)z[i], true);
    dev_check_expect_x(&c, "dpre", want, dpre, 1, n, n, act_exact(kind) ? NULL : err);
    dev_check_end(&c);
}

static void swiglu_forward(Dev *dev, X *out, const X *gate_up, size_t N, size_t F)
{
    DevCheckCall c = dev_check_begin(dev, "swiglu_forward");
    const X *x = dev_check_x(&c, gate_up, N * 2 * F);
    X *want = room(&c, N * F);
    c.ref->swiglu_forward(c.ref, want, x, N, F);
    c.fast->swiglu_forward(c.fast, out, gate_up, N, F);
    const float *y = dev_check_wide(&c, want, N * F, false);
    double *err = dev_check_d(&c, N * F);
    for (size_t i = 0; i < N * F; i++) err[i] = (FN + 6) * U * fabs((double)y[i]);
    dev_check_expect_x(&c, "out", want, out, N, F, F, err);
    dev_check_end(&c);
}

static void swiglu_backward(Dev *dev, X *dgate_up, const X *dout, const X *gate_up, size_t N, size_t F)
{
    DevCheckCall c = dev_check_begin(dev, "swiglu_backward");
    const X *x = dev_check_x(&c, gate_up, N * 2 * F), *dy = dev_check_x(&c, dout, N * F);
    X *want = room(&c, N * 2 * F);
    c.ref->swiglu_backward(c.ref, want, dy, x, N, F);
    c.fast->swiglu_backward(c.fast, dgate_up, dout, gate_up, N, F);
    const float *g = dev_check_wide(&c, x, N * 2 * F, false), *d = dev_check_wide(&c, dy, N * F, false);
    double *err = dev_check_d(&c, N * 2 * F);
    for (size_t i = 0; i < N * F; i++) {
        size_t gate = i / F * 2 * F + i % F, up = gate + F;
        double s = 1 / (1 + exp(-(double)g[gate])), size = fabs((double)g[gate]);
        err[gate] = (2 * FN + 10) * U * fabs((double)d[i] * g[up]) * s * (1 + size);
        err[up] = (FN + 5) * U * fabs((double)d[i]) * size * s;
    }
    dev_check_expect_x(&c, "dgate_up", want, dgate_up, N, 2 * F, 2 * F, err);
    dev_check_end(&c);
}

// ---- embedding. The tables are as long as the largest index.

static size_t rows_of(const int32_t *index, size_t N)
{
    size_t rows = 0;
    for (size_t n = 0; index && n < N; n++)
        if (index[n] >= 0 && (size_t)index[n] >= rows) rows = (size_t)index[n] + 1;
    return rows;
}

static void embed_forward(Dev *dev, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe,
                          size_t N, size_t C)
{
    DevCheckCall c = dev_check_begin(dev, "embed_forward");
    const int32_t *t = dev_check_i(&c, token, N), *p = wpe ? dev_check_i(&c, pos, N) : NULL;
    size_t each = dev->embed_fp32 ? sizeof(float) : c.fast->x_bytes;
    const X *te = (const X *)dev_check_copy(&c, wte, rows_of(t, N) * C * each);
    const X *pe = (const X *)dev_check_copy(&c, wpe, rows_of(p, N) * C * each);
    X *want = room(&c, N * C);
    c.ref->embed_forward(c.ref, want, t, p, te, pe, N, C);
    c.fast->embed_forward(c.fast, out, token, pos, wte, wpe, N, C);
    dev_check_expect_x(&c, "out", want, out, N, C, C, NULL);
    dev_check_end(&c);
}

static void embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout, const int32_t *token, const int32_t *pos,
                           size_t N, size_t C, size_t V)
{
    DevCheckCall c = dev_check_begin(dev, "embed_backward");
    const int32_t *t = dev_check_i(&c, token, N), *p = dwpe ? dev_check_i(&c, pos, N) : NULL;
    size_t n[2] = {rows_of(t, N) * C, rows_of(p, N) * C};
    float *want[2] = {dev_check_f(&c, dwte, n[0]), dev_check_f(&c, dwpe, n[1])};
    float *size[2] = {dev_check_abs(&c, want[0], n[0]), dev_check_abs(&c, want[1], n[1])};
    const X *dy = dev_check_x(&c, dout, N * C);
    c.wide->embed_backward(c.wide, size[0], size[1], (X *)dev_check_wide(&c, dy, N * C, true), t, p, N, C, V);
    c.ref->embed_backward(c.ref, want[0], want[1], dy, t, p, N, C, V);
    c.fast->embed_backward(c.fast, dwte, dwpe, dout, token, pos, N, C, V);
    for (int k = 0; k < (dwpe ? 2 : 1); k++) {
        double *err = dev_check_d(&c, n[k]);
        for (size_t i = 0; i < n[k]; i++) err[i] = 1.01 * gam(N + 1) * size[k][i];
        dev_check_expect_f(&c, k ? "dwpe" : "dwte", want[k], k ? dwpe : dwte, n[k], err);
    }
    dev_check_end(&c);
}

// ---- norms of rows of C

typedef struct {
    double mean, mean_err, rstd, rstd_rel;
} Moments;

static Moments moments(const float *x, size_t C, NormKind kind, double eps)
{
    Moments m = {0};
    double size = 0, var = 0;
    for (size_t i = 0; kind == NORM_LAYERNORM && i < C; i++) {
        m.mean += x[i] / (double)C;
        size += fabs((double)x[i]) / (double)C;
    }
    m.mean_err = gam(C + 1) * size;
    for (size_t i = 0; i < C; i++) var += (x[i] - m.mean) * (x[i] - m.mean) / (double)C;
    m.rstd = 1 / sqrt(var + eps);
    m.rstd_rel = 0.5 * (gam(C + 5) * var + m.mean_err * m.mean_err) / (var + eps) + 4 * U;
    return m;
}

// The errors of a row's outputs.
static void norm_errors(double *err, const float *x, const float *w, const float *bias, Moments m, size_t C)
{
    for (size_t i = 0; i < C; i++) {
        double y = w[i] * (x[i] - m.mean) * m.rstd, b = bias ? bias[i] : 0;
        err[i] = fabs((double)w[i]) * m.rstd * m.mean_err + fabs(y) * (m.rstd_rel + 4 * U) + U * fabs(y + b);
    }
}

static void norm_forward(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                         const X *bias, size_t N, size_t C, NormKind kind, float eps)
{
    DevCheckCall c = dev_check_begin(dev, "norm_forward");
    const X *x = dev_check_x(&c, a, N * C), *y = dev_check_x(&c, b, N * C), *w = dev_check_x(&c, weight, C),
            *shift = dev_check_x(&c, bias, C);
    X *want = room(&c, N * C), *want_sum = room(&c, N * C);
    float *want_mean = (float *)dev_check_room(&c, N * sizeof(float)), *want_rstd = (float *)dev_check_room(&c, N * 4);
    c.ref->norm_forward(c.ref, want, b ? want_sum : NULL, want_mean, want_rstd, x, y, w, shift, N, C, kind, eps);
    c.fast->norm_forward(c.fast, out, sum, mean, rstd, a, b, weight, bias, N, C, kind, eps);
    const float *inp = dev_check_wide(&c, b ? want_sum : x, N * C, false), *wide_w = dev_check_wide(&c, w, C, false),
                *wide_b = dev_check_wide(&c, shift, C, false);
    double *err = dev_check_d(&c, N * C), *mean_err = dev_check_d(&c, N), *rstd_err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++) {
        Moments m = moments(inp + n * C, C, kind, eps);
        norm_errors(err + n * C, inp + n * C, wide_w, wide_b, m, C);
        mean_err[n] = m.mean_err + U * fabs(m.mean), rstd_err[n] = m.rstd * (m.rstd_rel + U);
    }
    if (b) dev_check_expect_x(&c, "sum", want_sum, sum, N, C, C, NULL);
    dev_check_expect_x(&c, "out", want, out, N, C, C, err);
    dev_check_expect_f(&c, "rstd", want_rstd, rstd, N, rstd_err);
    if (kind == NORM_LAYERNORM) dev_check_expect_f(&c, "mean", want_mean, mean, N, mean_err);
    dev_check_end(&c);
}

// Backward of one row: err of dx; adds to the errors of dw (which start at those of the gradients before).
static void backward_errors(double *err, double *w_err, double *b_err, const float *dy, const float *x, const float *w,
                            double mean, double rstd, size_t C, NormKind kind, size_t terms)
{
    double g_mean = 0, g_size = 0, gn_mean = 0, gn_err = 0;
    for (size_t i = 0; i < C; i++) {
        double xc = x[i] - mean, hat = xc * rstd, g = (double)dy[i] * w[i];
        double e = rstd * U * (fabs(mean) + fabs(xc)) + 3 * U * fabs(hat);
        if (kind == NORM_LAYERNORM) g_mean += g / (double)C, g_size += fabs(g) / (double)C;
        gn_mean += g * hat / (double)C;
        gn_err += (gam(C + 3) * fabs(g * hat) + fabs(g) * e) / (double)C;
        w_err[i] += gam(terms + 3) * fabs(dy[i] * hat) + fabs((double)dy[i]) * e;
        if (b_err) b_err[i] += gam(terms + 1) * fabs((double)dy[i]);
    }
    for (size_t i = 0; i < C; i++) {
        double xc = x[i] - mean, hat = xc * rstd, g = (double)dy[i] * w[i];
        double e = rstd * U * (fabs(mean) + fabs(xc)) + 3 * U * fabs(hat);
        err[i] = rstd * (6 * U * (fabs(g) + fabs(g_mean) + fabs(hat * gn_mean)) + gam(C + 3) * g_size +
                         fabs(hat) * gn_err + e * fabs(gn_mean));
    }
}

static double *start_errors(DevCheckCall *c, const float *start, size_t C, size_t terms)
{
    double *err = dev_check_d(c, C);
    for (size_t i = 0; start && i < C; i++) err[i] = gam(terms + 3) * fabs((double)start[i]);
    return err;
}

static void norm_backward(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid, const X *inp,
                          const float *mean, const float *rstd, const X *weight, size_t N, size_t C, NormKind kind)
{
    DevCheckCall c = dev_check_begin(dev, "norm_backward");
    const X *dy = dev_check_x(&c, dout, N * C), *skip = dev_check_x(&c, dresid, N * C);
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, C);
    const float *m = kind == NORM_LAYERNORM ? dev_check_f(&c, mean, N) : NULL, *r = dev_check_f(&c, rstd, N);
    float *want_w = dev_check_f(&c, dweight, C), *want_b = dev_check_f(&c, dbias, C);
    double *w_err = start_errors(&c, want_w, C, N), *b_err = start_errors(&c, want_b, C, N);
    X *want = room(&c, N * C);
    c.ref->norm_backward(c.ref, want, want_w, want_b, dy, skip, x, m, r, w, N, C, kind);
    c.fast->norm_backward(c.fast, dinp, dweight, dbias, dout, dresid, inp, mean, rstd, weight, N, C, kind);
    const float *wide_dy = dev_check_wide(&c, dy, N * C, false), *wide_x = dev_check_wide(&c, x, N * C, false),
                *wide_w = dev_check_wide(&c, w, C, false), *y = dev_check_wide(&c, want, N * C, false);
    double *err = dev_check_d(&c, N * C);
    for (size_t n = 0; n < N; n++)
        backward_errors(err + n * C, w_err, b_err, wide_dy + n * C, wide_x + n * C, wide_w, m ? m[n] : 0, r[n], C, kind,
                        N);
    for (size_t i = 0; dresid && i < N * C; i++) err[i] += U * fabs((double)y[i]);
    dev_check_expect_x(&c, "dinp", want, dinp, N, C, C, err);
    dev_check_expect_f(&c, "dweight", want_w, dweight, C, w_err);
    if (dbias) dev_check_expect_f(&c, "dbias", want_b, dbias, C, b_err);
    dev_check_end(&c);
}

static size_t extent(size_t N, size_t used, size_t ld)
{
    return N ? (N - 1) * ld + used : 0;
}

static void head_norm_forward(Dev *dev, X *out, float *rstd, const X *inp, const X *weight, size_t N, size_t heads,
                              size_t D, size_t ld, float eps)
{
    DevCheckCall c = dev_check_begin(dev, "head_norm_forward");
    size_t used = heads * D, n = extent(N, used, ld);
    const X *x = dev_check_x(&c, inp, n), *w = dev_check_x(&c, weight, D);
    X *want = room(&c, n);
    float *want_rstd = (float *)dev_check_room(&c, N * heads * sizeof(float));
    c.ref->head_norm_forward(c.ref, want, want_rstd, x, w, N, heads, D, ld, eps);
    c.fast->head_norm_forward(c.fast, out, rstd, inp, weight, N, heads, D, ld, eps);
    const float *wide = dev_check_wide(&c, x, n, false), *wide_w = dev_check_wide(&c, w, D, false);
    double *err = dev_check_d(&c, N * used), *rstd_err = dev_check_d(&c, N * heads);
    for (size_t i = 0; i < N * heads; i++) {
        const float *row = wide + i / heads * ld + i % heads * D;
        Moments m = moments(row, D, NORM_RMSNORM, eps);
        norm_errors(err + i * D, row, wide_w, NULL, m, D);
        rstd_err[i] = m.rstd * (m.rstd_rel + U);
    }
    dev_check_expect_x(&c, "out", want, out, N, used, ld, err);
    dev_check_expect_f(&c, "rstd", want_rstd, rstd, N * heads, rstd_err);
    dev_check_end(&c);
}

static void head_norm_backward(Dev *dev, X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd,
                               const X *weight, size_t N, size_t heads, size_t D, size_t ld)
{
    DevCheckCall c = dev_check_begin(dev, "head_norm_backward");
    size_t used = heads * D, n = extent(N, used, ld);
    const X *dy = dev_check_x(&c, dout, n), *x = dev_check_x(&c, inp, n), *w = dev_check_x(&c, weight, D);
    const float *r = dev_check_f(&c, rstd, N * heads);
    float *want_w = dev_check_f(&c, dweight, D);
    double *err = dev_check_d(&c, N * used), *w_err = start_errors(&c, want_w, D, N * heads);
    X *want = room(&c, n);
    c.ref->head_norm_backward(c.ref, want, want_w, dy, x, r, w, N, heads, D, ld);
    c.fast->head_norm_backward(c.fast, dinp, dweight, dout, inp, rstd, weight, N, heads, D, ld);
    const float *wide_dy = dev_check_wide(&c, dy, n, false), *wide_x = dev_check_wide(&c, x, n, false),
                *wide_w = dev_check_wide(&c, w, D, false);
    for (size_t i = 0; i < N * heads; i++) {
        size_t at = i / heads * ld + i % heads * D;
        backward_errors(err + i * D, w_err, NULL, wide_dy + at, wide_x + at, wide_w, 0, r[i], D, NORM_RMSNORM,
                        N * heads);
    }
    dev_check_expect_x(&c, "dinp", want, dinp, N, used, ld, err);
    dev_check_expect_f(&c, "dweight", want_w, dweight, D, w_err);
    dev_check_end(&c);
}

// ---- rope

static void rotate(Dev *dev, bool forward, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld,
                   Rope rope)
{
    DevCheckCall c = dev_check_begin(dev, forward ? "rope_forward" : "rope_backward");
    size_t used = heads * D, n = extent(N, used, ld), half = D / 2;
    X *want = dev_check_x(&c, x, n);
    const int32_t *p = dev_check_i(&c, pos, N);
    const float *before = dev_check_wide(&c, want, n, false);
    (forward ? c.ref->rope_forward : c.ref->rope_backward)(c.ref, want, p, N, heads, D, ld, rope);
    (forward ? c.fast->rope_forward : c.fast->rope_backward)(c.fast, x, pos, N, heads, D, ld, rope);
    double *err = dev_check_d(&c, N * used);
    for (size_t i = 0; i < N * heads * half; i++) {
        size_t n_row = i / (heads * half), h = i / half % heads, d = i % half, at = n_row * ld + h * D + d;
        size_t to = n_row * used + h * D + d;
        err[to] = err[to + half] =
            4 * U * rope_amplitude(&rope) * (fabs((double)before[at]) + fabs((double)before[at + half]));
    }
    dev_check_expect_x(&c, "x", want, x, N, used, ld, err);
    dev_check_end(&c);
}

static void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate(dev, true, x, pos, N, heads, D, ld, rope);
}

static void rope_backward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate(dev, false, x, pos, N, heads, D, ld, rope);
}

// ---- compression: bytes

static void compress(Dev *dev, int8_t *q, float *scale, const X *inp, size_t N, size_t w)
{
    DevCheckCall c = dev_check_begin(dev, "compress");
    size_t groups = (w + DEV_GROUP - 1) / DEV_GROUP;
    int8_t *want = (int8_t *)dev_check_room(&c, N * w);
    float *want_scale = (float *)dev_check_room(&c, N * groups * sizeof(float));
    c.ref->compress(c.ref, want, want_scale, dev_check_x(&c, inp, N * w), N, w);
    c.fast->compress(c.fast, q, scale, inp, N, w);
    dev_check_expect_bytes(&c, "q", want, q, N * w);
    dev_check_expect_f(&c, "scale", want_scale, scale, N * groups, NULL);
    dev_check_end(&c);
}

static void decompress(Dev *dev, X *out, const int8_t *q, const float *scale, size_t N, size_t w)
{
    DevCheckCall c = dev_check_begin(dev, "decompress");
    X *want = room(&c, N * w);
    const float *s = dev_check_f(&c, scale, N * ((w + DEV_GROUP - 1) / DEV_GROUP));
    c.ref->decompress(c.ref, want, (int8_t *)dev_check_copy(&c, q, N * w), s, N, w);
    c.fast->decompress(c.fast, out, q, scale, N, w);
    dev_check_expect_x(&c, "out", want, out, N, w, w, NULL);
    dev_check_end(&c);
}

// ---- losses
//
// Softmax with cross-entropy, whole and in its three steps.
//
// An exponent z - top is off by 2 u (|z| + |top|), exp by FN u, the sum by gam(V + 2), so
//
//   total      sum_v e_v (2 u (|z_v| + |top|) + FN u) + gam(V + 2) total
//   loss       that relative to the total, FN u |log total|, and the roundings of top, target and result
//   dz         scale p times the relative errors of exp and the total; the rounding of the subtraction
//
// A capped logit c = cap tanh(z / cap) is off by (FN + 2) u |c|: the quotient moves the tanh by no more than its own
// relative error. That joins the errors of exponents, top and target. The slope 1 - (c / cap)^2 is off by (2 FN + 10) u.
//
// xent_max is the largest of given numbers, and the target's logit is one of them, so both are equal on both devices.

static double capped(double z, double cap)
{
    return cap > 0 ? cap * tanh(z / cap) : z;
}

// z and top as they are after the cap, if there is one.
static double exp_err(double z, double top, double cap)
{
    return (2 + (cap > 0 ? FN + 2 : 0)) * U * (fabs(z) + fabs(top)) + FN * U;
}

// Error of dz = scale (p - hit), where p = exp(z - top) / total and the total is off by total_rel; with a cap, of that
// times the slope. top is capped.
static void gradient_errors(double *err, const float *z, size_t V, double top, double total, double total_rel,
                            double scale, double cap, int32_t target)
{
    for (size_t v = 0; v < V; v++) {
        double c = capped(z[v], cap), p = exp(c - top) / total, size = fabs(scale * (p - (target == (int32_t)v)));
        err[v] = fabs(scale) * p * (exp_err(c, top, cap) + total_rel + 4 * U) + U * size;
        if (cap > 0) err[v] = err[v] * (1 - c / cap * (c / cap)) + size * (2 * FN + 10) * U;
    }
}

// Of top - hit, both capped.
static double loss_err_of(double top, double hit, double cap)
{
    return (3 + (cap > 0 ? FN + 2 : 0)) * U * (fabs(top) + fabs(hit));
}

static void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t N, size_t V,
                         float scale, float cap)
{
    DevCheckCall c = dev_check_begin(dev, "softmax_xent");
    const X *z = dev_check_x(&c, logits, N * V);
    const int32_t *y = dev_check_i(&c, target, N);
    const float *wide = dev_check_wide(&c, z, N * V, false);
    X *want = dlogits ? (X *)dev_check_room(&c, N * V * c.fast->x_bytes) : NULL;
    float *want_loss = (float *)dev_check_room(&c, N * sizeof(float));
    c.ref->softmax_xent(c.ref, want_loss, want, z, y, N, V, scale, cap);
    c.fast->softmax_xent(c.fast, loss, dlogits, logits, target, N, V, scale, cap);
    double *err = dev_check_d(&c, N * V), *loss_err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++) {
        const float *row = wide + n * V;
        double top = -INFINITY, total = 0, rel = gam(V + 2);
        if (y[n] < 0) continue; // exactly 0
        for (size_t v = 0; v < V; v++) top = fmax(top, capped(row[v], cap));
        for (size_t v = 0; v < V; v++) total += exp(capped(row[v], cap) - top);
        for (size_t v = 0; v < V; v++) {
            double z_v = capped(row[v], cap);
            rel += exp(z_v - top) / total * exp_err(z_v, top, cap);
        }
        double hit = capped(row[y[n]], cap), value = log(total) + (top - hit);
        loss_err[n] = rel + FN * U * fabs(log(total)) + loss_err_of(top, hit, cap) + U * fabs(value);
        gradient_errors(err + n * V, row, V, top, total, rel, scale, cap, y[n]);
    }
    dev_check_expect_f(&c, "loss", want_loss, loss, N, loss_err);
    if (dlogits) dev_check_expect_x(&c, "dlogits", want, dlogits, N, V, V, err);
    dev_check_end(&c);
}

static void xent_max(Dev *dev, float *top, const X *logits, size_t N, size_t V)
{
    DevCheckCall c = dev_check_begin(dev, "xent_max");
    float *want = (float *)dev_check_room(&c, N * sizeof(float));
    c.ref->xent_max(c.ref, want, dev_check_x(&c, logits, N * V), N, V);
    c.fast->xent_max(c.fast, top, logits, N, V);
    dev_check_expect_f(&c, "top", want, top, N, NULL);
    dev_check_end(&c);
}

static void xent_sum(Dev *dev, float *total, float *hit, const X *logits, const int32_t *target, const float *top,
                     size_t N, size_t V, DevParts parts, float cap)
{
    DevCheckCall c = dev_check_begin(dev, "xent_sum");
    const X *z = dev_check_x(&c, logits, N * V);
    const int32_t *y = dev_check_i(&c, target, N);
    const float *t = dev_check_f(&c, top, N), *wide = dev_check_wide(&c, z, N * V, false);
    float *want = (float *)dev_check_room(&c, N * sizeof(float)), *want_hit = (float *)dev_check_room(&c, N * 4);
    c.ref->xent_sum(c.ref, want, want_hit, z, y, t, N, V, parts, cap);
    c.fast->xent_sum(c.fast, total, hit, logits, target, top, N, V, parts, cap);
    double *err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++)
        for (size_t v = 0; v < V; v++) {
            double z_v = capped(wide[n * V + v], cap), most = capped(t[n], cap);
            err[n] += exp(z_v - most) * (exp_err(z_v, most, cap) + gam(V + 2));
        }
    dev_check_expect_f(&c, "total", want, total, N, err);
    dev_check_expect_f(&c, "hit", want_hit, hit, N, NULL);
    dev_check_end(&c);
}

static void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale, float cap)
{
    DevCheckCall c = dev_check_begin(dev, "xent_loss");
    const X *z = dev_check_x(&c, logits, N * V);
    const int32_t *y = dev_check_i(&c, target, N);
    const float *t = dev_check_f(&c, top, N), *sum = dev_check_f(&c, total, N), *h = dev_check_f(&c, hit, N);
    const float *wide = dev_check_wide(&c, z, N * V, false);
    X *want = dlogits ? (X *)dev_check_room(&c, N * V * c.fast->x_bytes) : NULL;
    float *want_loss = (float *)dev_check_room(&c, N * sizeof(float));
    c.ref->xent_loss(c.ref, want_loss, want, z, y, t, sum, h, N, V, scale, cap);
    c.fast->xent_loss(c.fast, loss, dlogits, logits, target, top, total, hit, N, V, scale, cap);
    double *err = dev_check_d(&c, N * V), *loss_err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++) {
        if (y[n] < 0) continue;
        double most = capped(t[n], cap);
        loss_err[n] = FN * U * fabs(log((double)sum[n])) + loss_err_of(most, capped(h[n], cap), cap) +
                      2 * U * fabs((double)want_loss[n]);
        gradient_errors(err + n * V, wide + n * V, V, most, sum[n], 0, scale, cap, y[n]);
    }
    dev_check_expect_f(&c, "loss", want_loss, loss, N, loss_err);
    if (dlogits) dev_check_expect_x(&c, "dlogits", want, dlogits, N, V, V, err);
    dev_check_end(&c);
}

// ---- optimizers
//
// Errors are carried through the formulas of the optimizers (updates.c, updates_matrix.c), one rounding an operation:
//
//   sums of squares     spans of up to 1024 in fp32, the rest in double: gam(1025); their root: half of that and 3 u
//   AdamW, SGD, Lion    in update_rules.h
//   codes of adamw8bit  may not be farther from the moment than the reference's, except by the moment's own error
//   Adafactor           means are sums of positive terms: 8 u; u = g / sqrt(row col / mean): half of three such errors,
//                       two roots, four products, and the two roots of sums of squares
//   Muon                the polynomial's slope is at most 4.25 on [0, 1.21], so e' = 4.25 e + local, in the Frobenius
//                       norm; with k singular values of at most 1.21, |X| <= 1.21 sqrt(k), |A| <= 1.47 sqrt(k), |B| <=
//                       3.45 sqrt(k). A worst case five times over: tight for small matrices, loose for large ones

static double rms_err(size_t n)
{
    return gam((n < 1024 ? n : 1024) + 1) / 2 + 3 * U;
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "sum_squares");
    double want = c.ref->sum_squares(c.ref, dev_check_f(&c, x, n), n), got = c.fast->sum_squares(c.fast, x, n);
    dev_check_expect_one(&c, "sum", 0, 1, got, want, 2 * gam((n < 1024 ? n : 1024) + 1) * want);
    dev_check_end(&c);
    return got;
}

static void sum_squares_exact(Dev *dev, ExactSum *sum, const float *x, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "sum_squares_exact");
    ExactSum want = *sum;
    c.ref->sum_squares_exact(c.ref, &want, dev_check_f(&c, x, n), n);
    c.fast->sum_squares_exact(c.fast, sum, x, n);
    bool finite = !want.word[EXACT_LIMBS] && !sum->word[EXACT_LIMBS];
    for (size_t i = 0; i < EXACT_LIMBS && finite; i++)
        dev_check_expect_one(&c, "word", i, EXACT_LIMBS, (double)sum->word[i], (double)want.word[i], 0);
    dev_check_expect_one(&c, "value", 0, 1, formats_sum_value(sum), formats_sum_value(&want), 0);
    dev_check_end(&c);
}

static void clip_units(Dev *dev, float *grad, const float *weight, size_t R, size_t C, float limit, float least)
{
    DevCheckCall c = dev_check_begin(dev, "clip_units");
    float *want = dev_check_f(&c, grad, R * C);
    c.ref->clip_units(c.ref, want, dev_check_f(&c, weight, R * C), R, C, limit, least);
    c.fast->clip_units(c.fast, grad, weight, R, C, limit, least);
    double *err = dev_check_d(&c, R * C);
    for (size_t i = 0; i < R * C; i++) err[i] = (2 * rms_err(C) + 4 * U) * fabs((double)want[i]);
    dev_check_expect_f(&c, "grad", want, grad, R * C, err);
    dev_check_end(&c);
}

// The host's copies of an update, before it; want: the reference's after it.
typedef struct {
    float *w, *m, *v, *g; // before
    float *want_w, *want_m, *want_v, *want_g;
    double *w_err, *m_err, *v_err;
} Step;

static Step step_begin(DevCheckCall *c, const float *w, const float *m, const float *v, const float *g, size_t n)
{
    return (Step){.w = dev_check_f(c, w, n), .m = dev_check_f(c, m, n), .v = dev_check_f(c, v, n),
                  .g = dev_check_f(c, g, n), .want_w = dev_check_f(c, w, n), .want_m = dev_check_f(c, m, n),
                  .want_v = dev_check_f(c, v, n), .want_g = dev_check_f(c, g, n), .w_err = dev_check_d(c, n),
                  .m_err = dev_check_d(c, n), .v_err = dev_check_d(c, n)};
}

static void step_end(DevCheckCall *c, const Step *s, const float *w, const float *m, const float *v, const float *g,
                     size_t n)
{
    dev_check_expect_f(c, "weight", s->want_w, w, n, s->w_err);
    if (m) dev_check_expect_f(c, "m", s->want_m, m, n, s->m_err);
    if (v) dev_check_expect_f(c, "v", s->want_v, v, n, s->v_err);
    dev_check_expect_f(c, "grad", s->want_g, g, n, NULL); // zeros
    dev_check_end(c);
}

static ElementError update_error(OptimName rule, Element x, double g, Update u)
{
#define UPDATE_BOUND(KIND, name, moments) \
    if (rule == KIND) return bound_##name(x, g, 3 * U * fabs(g), u);
    UPDATE_RULES(UPDATE_BOUND)
    return (ElementError){0, 0, 0};
}

static void update(Dev *dev, OptimName rule, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "update");
    Step s = step_begin(&c, weight, m, v, grad, n);
    X *copy = u.copy;
    u.copy = NULL;
    c.ref->update(c.ref, rule, s.want_w, s.want_m, s.want_v, s.want_g, n, u);
    u.copy = copy;
    c.fast->update(c.fast, rule, weight, m, v, grad, n, u);
    if (copy) { // one rounding of what it stored
        X *want = room(&c, n);
        c.ref->to_x(c.ref, want, dev_check_f(&c, weight, n), n);
        dev_check_expect_x(&c, "copy", want, copy, 1, n, n, NULL);
    }
    for (size_t i = 0; i < n; i++) {
        Element x = {s.w[i], m ? s.m[i] : 0, v ? s.v[i] : 0};
        ElementError e = update_error(rule, x, (double)s.g[i] * u.grad_scale, u);
        s.w_err[i] = e.w, s.m_err[i] = e.m, s.v_err[i] = e.v;
    }
    step_end(&c, &s, weight, m, v, grad, n);
}

// Codes after the update: x is the moment, x_err its error.
static void expect_codes(DevCheckCall *c, const char *name, const uint8_t *want, const float *want_scale,
                         const uint8_t *fast, const float *scale, const double *x, const double *x_err, size_t n,
                         const float book[256])
{
    size_t blocks = (n + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
    const uint8_t *got = (const uint8_t *)dev_check_copy(c, fast, n);
    const float *s = dev_check_f(c, scale, blocks);
    double *err = dev_check_d(c, blocks);
    for (size_t i = 0; i < n; i++) err[i / UPDATE_BLOCK] = fmax(err[i / UPDATE_BLOCK], x_err[i]);
    dev_check_expect_f(c, name, want_scale, scale, blocks, err);
    for (size_t i = 0; i < n; i++) {
        size_t b = i / UPDATE_BLOCK;
        double far = fabs((double)book[got[i]] * s[b] - x[i]);
        double near = fabs((double)book[want[i]] * want_scale[b] - x[i]);
        double bound = 4 * x_err[i] + 2 * err[b] + 8 * U * fabs(x[i]) + 0x1p-110;
        if (got[i] != want[i]) dev_check_expect_one(c, name, i, n, fmax(far, near), near, bound);
    }
}

static void adamw8bit(Dev *dev, float *weight, uint8_t *m, float *m_scale, uint8_t *v, float *v_scale, float *grad,
                      size_t n, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "adamw8bit");
    size_t blocks = (n + UPDATE_BLOCK - 1) / UPDATE_BLOCK;
    Step s = step_begin(&c, weight, NULL, NULL, grad, n);
    uint8_t *code[2] = {dev_check_copy(&c, m, n), dev_check_copy(&c, v, n)};
    float *scale[2] = {dev_check_f(&c, m_scale, blocks), dev_check_f(&c, v_scale, blocks)}, book[2][256];
    double *x[2] = {dev_check_d(&c, n), dev_check_d(&c, n)};
    for (int k = 0; k < 2; k++) updates_8bit_codes(k == 0, book[k]);
    for (size_t i = 0; i < n; i++) {
        double old_m = (double)book[0][code[0][i]] * scale[0][i / UPDATE_BLOCK], g = (double)s.g[i] * u.grad_scale;
        double old_v = (double)book[1][code[1][i]] * scale[1][i / UPDATE_BLOCK], b1 = u.beta1, b2 = u.beta2;
        ElementError e = bound_adamw((Element){s.w[i], (float)old_m, (float)old_v}, g, 3 * U * fabs(g), u);
        s.w_err[i] = e.w, s.m_err[i] = e.m, s.v_err[i] = e.v;
        x[0][i] = b1 * old_m + (1 - b1) * g;
        x[1][i] = b2 * old_v + (1 - b2) * g * g;
    }
    c.ref->adamw8bit(c.ref, s.want_w, code[0], scale[0], code[1], scale[1], s.want_g, n, u);
    c.fast->adamw8bit(c.fast, weight, m, m_scale, v, v_scale, grad, n, u);
    expect_codes(&c, "m", code[0], scale[0], m, m_scale, x[0], s.m_err, n, book[0]);
    expect_codes(&c, "v", code[1], scale[1], v, v_scale, x[1], s.v_err, n, book[1]);
    step_end(&c, &s, weight, NULL, NULL, grad, n);
}

static void adafactor(Dev *dev, float *weight, float *row, float *col, float *grad, size_t R, size_t C, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "adafactor");
    size_t n = R * C, n_row = col ? R : n;
    Step s = step_begin(&c, weight, NULL, NULL, grad, n);
    float *want_row = dev_check_f(&c, row, n_row), *want_col = dev_check_f(&c, col, C);
    c.ref->adafactor(c.ref, s.want_w, want_row, want_col, s.want_g, R, C, u);
    c.fast->adafactor(c.fast, weight, row, col, grad, R, C, u);
    double *row_err = dev_check_d(&c, n_row), *col_err = dev_check_d(&c, C), rms = 0;
    for (size_t i = 0; i < n_row; i++) row_err[i] = 8 * U * want_row[i];
    for (size_t j = 0; col && j < C; j++) col_err[j] = 8 * U * want_col[j];
    for (size_t i = 0; i < n; i++) rms += (double)s.w[i] * s.w[i] / (double)n;
    double step = u.lr * fmax(sqrt(rms), 1e-3), decay = step * u.weight_decay;
    for (size_t i = 0; i < n; i++) {
        double w = s.w[i], move = fabs(s.want_w[i] - w * (1 - decay));
        double rel = 2 * (12 + 2 * FN + 4) * U + 2 * rms_err(n) + 8 * U;
        s.w_err[i] = 4 * U * (fabs(w) + move) + (rms_err(n) + 2 * U) * decay * fabs(w) + move * rel;
    }
    dev_check_expect_f(&c, "row", want_row, row, n_row, row_err);
    if (col) dev_check_expect_f(&c, "col", want_col, col, C, col_err);
    step_end(&c, &s, weight, NULL, NULL, grad, n);
}

// What five steps of the polynomial on X (k, L), k <= L, make of an error e at the start, where each of two devices
// rounds the operands of its products by up to r, relatively.
static double polynomial_err(double e, double r, size_t k, size_t L)
{
    const double top = 1.21, root = sqrt((double)k), a = 1.47 * root, b = 3.45 * root, x = top * root;
    for (int i = 0; i < 5; i++) {
        double of_a = 2 * (gam(L) + (2 + r) * r) * x * x + 2 * r * a;
        double of_b = (2 * gam(k) + 3 * U) * 2.0315 * a * a + 3 * U * (4.775 * a + b) +
                      of_a * (2 * 2.0315 * top * top + 4.775) + 2 * r * b;
        e = 4.25 * e + 2 * (gam(k + 1) + r) * (b + 3.4445) * x + of_b * top;
    }
    return e;
}

// NorMuon's division of X (R, C) by rows, where X is off by e in the Frobenius norm. A row's norm |x| and the root of
// its mean follow from the means before and after. The root is a norm too, so it is off by sqrt(1 - b) e / sqrt(C).
static void row_errors(double *move_err, double *row_err, const float *old, const float *now, double e, size_t R,
                       size_t C, Update u)
{
    double of_x = 0, of_y = 0, worst = 0, rest = 1 - u.beta2;
    for (size_t i = 0; i < R; i++) {
        double root = sqrt(now[i]), below = root + u.eps, mean = fmax(0, (now[i] - u.beta2 * old[i]) / rest);
        double x = sqrt((double)C * mean), root_err = sqrt(rest / (double)C) * e + 6 * U * root;
        row_err[i] = 2 * root * root_err + root_err * root_err;
        move_err[i] = e / below + x * root_err / (below * below) + 6 * U * x / below;
        worst = fmax(worst, move_err[i]);
        of_x += x * x, of_y += x * x / (below * below);
    }
    of_x = sqrt(of_x), of_y = sqrt(of_y);
    double rel = of_y > 0 ? e / of_x + worst * sqrt((double)R) / of_y + 2 * rms_err(R * C) : 0;
    for (size_t i = 0; i < R; i++) {
        double y = sqrt(fmax(0, (now[i] - u.beta2 * old[i]) / rest) * (double)C) / (sqrt(now[i]) + u.eps);
        move_err[i] = of_y > 0 ? of_x / of_y * (move_err[i] + y * (rel + 4 * U)) * (1 + rel) : 0;
    }
}

static void muon(Dev *dev, float *weight, float *m, float *row, float *grad, float *scratch, size_t R, size_t C,
                 Update u)
{
    DevCheckCall c = dev_check_begin(dev, "muon");
    size_t n = R * C, k = R < C ? R : C, L = R < C ? C : R;
    Step s = step_begin(&c, weight, m, NULL, grad, n);
    float *room = (float *)dev_check_room(&c, (n + 2 * k * k) * sizeof *room);
    float *old_row = dev_check_f(&c, row, R), *want_row = dev_check_f(&c, row, R);
    c.ref->muon(c.ref, s.want_w, s.want_m, row ? want_row : NULL, s.want_g, room, R, C, u);
    c.fast->muon(c.fast, weight, m, row, grad, scratch, R, C, u);
    double off = 0, norm = 0, b = u.beta1, scale = u.lr * 0.2 * sqrt((double)L);
    for (size_t i = 0; i < n; i++) {
        double g = (double)s.g[i] * u.grad_scale, size = fabs(b * s.m[i]) + fabs((1 - b) * g);
        double new_m = b * s.m[i] + (1 - b) * g, x = (1 - b) * g + b * new_m;
        s.m_err[i] = 6 * U * size;
        double e = 6 * U * (fabs((1 - b) * g) + fabs(b * new_m)) + b * s.m_err[i];
        off += e * e, norm += x * x;
    }
    double r = c.ref->x_type == X_BF16 && !c.ref->fp8 ? 0x1p-9 : 0; // of either device, or of one
    double e = polynomial_err(norm > 0 ? sqrt(off / norm) + rms_err(n) + 2 * U : 0, r, k, L);
    double *row_err = dev_check_d(&c, R), *move_err = dev_check_d(&c, R);
    for (size_t i = 0; i < R; i++) move_err[i] = 4 * U + e;
    if (row) row_errors(move_err, row_err, old_row, want_row, e, R, C, u);
    for (size_t i = 0; i < n; i++) {
        double w = s.w[i], decay = u.lr * u.weight_decay * fabs(w), left = fabs(w - s.want_w[i]);
        s.w_err[i] = 4 * U * fabs(w) + scale * move_err[i / C];
        if (u.cautious && left <= s.w_err[i] + decay) s.w_err[i] += decay; // the update's sign may be either
    }
    if (row) dev_check_expect_f(&c, "row", want_row, row, R, row_err);
    step_end(&c, &s, weight, m, NULL, grad, n);
}

void dev_check_rows_fill(Dev *dev)
{
    dev->copy = copy;
    dev->act_forward = act_forward;
    dev->act_backward = act_backward;
    dev->swiglu_forward = swiglu_forward;
    dev->swiglu_backward = swiglu_backward;
    dev->embed_forward = embed_forward;
    dev->embed_backward = embed_backward;
    dev->norm_forward = norm_forward;
    dev->norm_backward = norm_backward;
    dev->head_norm_forward = head_norm_forward;
    dev->head_norm_backward = head_norm_backward;
    dev->rope_forward = rope_forward;
    dev->rope_backward = rope_backward;
    dev->compress = compress;
    dev->decompress = decompress;
    dev->softmax_xent = softmax_xent;
    dev->xent_max = xent_max;
    dev->xent_sum = xent_sum;
    dev->xent_loss = xent_loss;
    dev->sum_squares = sum_squares;
    dev->sum_squares_exact = sum_squares_exact;
    dev->clip_units = clip_units;
    dev->update = update;
    dev->adamw8bit = adamw8bit;
    dev->adafactor = adafactor;
    dev->muon = muon;
}
