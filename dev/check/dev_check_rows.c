// dev_check_rows: the ops that work row by row (activations, embedding, norms, rope, losses, compression) on two
// devices, and how far they may be apart.
//
// Bounds as in dev_check.c; gam(n) = n u / (1 - n u) for a sum of n terms. Errors of intermediates are carried to the
// output by the derivative of what follows, products of two errors (u^2) are dropped.
//
//   swiglu     s = sigmoid(gate) errs by (FN + 2) u relatively, 1 - s by (FN + 3) u absolutely; products follow
//   norm       mean: dm = gam(C + 1) mean|x|; variance: gam(C + 5) var + dm^2 (sum of x - mean is 0); rstd: half of
//              that relative to var + eps, and 4 u; backward: xhat is off by rstd u (|mean| + |x - mean|) + 3 u |xhat|
//   rope       cos and sin are rounded once, two products and a sum: 4 u (|a| + |b|), times the amplitude
//   softmax    an exponent z - top is off by 2 u (|z| + |top|), exp by FN u, the sum by gam(V + 2)
//   exact      embedding forward (one addition), compression (the same arithmetic), the largest logit
#include "dev/check/dev_check.h"

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
    dev_check_expect_x(&c, "out", want, out, 1, n_out, n_out, NULL); // between the rows too
    dev_check_end(&c);
}

static void gelu_forward(Dev *dev, X *out, const X *pre, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "gelu_forward");
    const X *x = dev_check_x(&c, pre, n);
    X *want = room(&c, n);
    c.ref->gelu_forward(c.ref, want, x, n);
    c.fast->gelu_forward(c.fast, out, pre, n);
    const float *z = dev_check_wide(&c, x, n, false);
    double *err = dev_check_d(&c, n);
    for (size_t i = 0; i < n; i++) err[i] = 9 * U * fabs((double)z[i]);
    dev_check_expect_x(&c, "out", want, out, 1, n, n, err);
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
    const X *te = dev_check_x(&c, wte, rows_of(t, N) * C), *pe = dev_check_x(&c, wpe, rows_of(p, N) * C);
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

void dev_check_rows_fill(Dev *dev)
{
    dev->copy = copy;
    dev->gelu_forward = gelu_forward;
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
}
