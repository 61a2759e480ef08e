// dev_check_optim: sums of squares, clipping and the optimizers' updates on two devices, and how far they may be apart.
//
// Errors are carried through the formulas of the optimizers (updates.c, updates_matrix.c), with a rounding for each operation:
//
//   sums of squares     spans of up to 1024 in fp32, the rest in double: gam(1025); a root of them half of that and 3 u
//   moments             m = b m + (1 - b) g:  4 u (|b m| + |(1 - b) g|), and what g is off by
//   AdamW               the root of v: half of v's relative error; a product, a quotient, two sums
//   Lion                where fp32 cannot know the sign of c, any of the three will do: 2 lr
//   codes of adamw8bit  may not be farther from the moment than the reference's, but for the moment's own error
//   Adafactor           means are sums of positive terms: 8 u; u = g / sqrt(row col / mean): half of three such errors,
//                       two roots, four products, and the two roots of sums of squares
//   Muon                the polynomial's slope is at most 4.25 on [0, 1.21], so e' = 4.25 e + local, in the Frobenius
//                       norm; with k singular values of at most 1.21, |X| <= 1.21 sqrt(k), |A| <= 1.47 sqrt(k), |B| <=
//                       3.45 sqrt(k). A worst case five times over: tight for small matrices, loose for large ones
#include "dev/check/dev_check.h"

#include "ops/dev_cpu.h"

#include <math.h>

static const double U = DEV_CHECK_U;
enum { FN = DEV_CHECK_FN };

static double gam(size_t n)
{
    return (double)n * U / (1 - (double)n * U);
}

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

static void sgd(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "sgd");
    Step s = step_begin(&c, weight, m, NULL, grad, n);
    c.ref->sgd(c.ref, s.want_w, s.want_m, s.want_g, n, u);
    c.fast->sgd(c.fast, weight, m, grad, n, u);
    for (size_t i = 0; i < n; i++) {
        double g = (double)s.g[i] * u.grad_scale, pull = (double)u.weight_decay * s.w[i];
        double d = g + pull, d_err = 3 * U * (fabs(g) + fabs(pull));
        if (m) {
            double old = (double)u.beta1 * s.m[i];
            d_err += 2 * U * (fabs(old) + fabs(d)), d += old;
        }
        s.m_err[i] = d_err;
        s.w_err[i] = u.lr * (d_err + U * fabs(d)) + 2 * U * (fabs((double)s.w[i]) + u.lr * fabs(d));
    }
    step_end(&c, &s, weight, m, NULL, grad, n);
}

static void lion(Dev *dev, float *weight, float *m, float *grad, size_t n, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "lion");
    Step s = step_begin(&c, weight, m, NULL, grad, n);
    c.ref->lion(c.ref, s.want_w, s.want_m, s.want_g, n, u);
    c.fast->lion(c.fast, weight, m, grad, n, u);
    for (size_t i = 0; i < n; i++) {
        double g = (double)s.g[i] * u.grad_scale, old = s.m[i], b1 = u.beta1, b2 = u.beta2;
        double sum = b1 * old + (1 - b1) * g, sum_err = 4 * U * (fabs(b1 * old) + fabs((1 - b1) * g));
        s.m_err[i] = 4 * U * (fabs(b2 * old) + fabs((1 - b2) * g));
        s.w_err[i] = 4 * U * (fabs((double)s.w[i]) + u.lr);
        if (sum_err > 0 && fabs(sum) <= sum_err) s.w_err[i] += u.lr; // twice that lies between -1 and 1
    }
    step_end(&c, &s, weight, m, NULL, grad, n);
}

// One element of AdamW from m and v: errors of m, v and the weight.
static void adam_errors(double *w_err, double *m_err, double *v_err, double w, double m, double v, double grad,
                        Update u)
{
    double c1 = 1 / (1 - pow(u.beta1, u.step)), c2 = 1 / (1 - pow(u.beta2, u.step)), b1 = u.beta1, b2 = u.beta2;
    double pull = u.l2 ? u.weight_decay * w : 0, g = grad * u.grad_scale + pull;
    double g_err = 3 * U * (fabs(grad * u.grad_scale) + fabs(pull));
    double new_m = b1 * m + (1 - b1) * g, new_v = b2 * v + (1 - b2) * g * g;
    *m_err = 4 * U * (fabs(b1 * m) + fabs((1 - b1) * g)) + (1 - b1) * g_err;
    *v_err = 6 * U * new_v + (1 - b2) * (2 * fabs(g) * g_err + g_err * g_err);
    double root = sqrt(new_v * c2), below = root + u.eps, move = u.lr * new_m * c1 / below;
    double root_err = (root > 0 ? c2 * *v_err / (2 * root) : sqrt(c2 * *v_err)) + 3 * U * root;
    *w_err = 4 * U * (fabs(w) + fabs(move)) + u.lr * c1 * *m_err / below + fabs(move) * (root_err / below + 4 * U);
}

static void adamw(Dev *dev, float *weight, float *m, float *v, float *grad, size_t n, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "adamw");
    Step s = step_begin(&c, weight, m, v, grad, n);
    c.ref->adamw(c.ref, s.want_w, s.want_m, s.want_v, s.want_g, n, u);
    c.fast->adamw(c.fast, weight, m, v, grad, n, u);
    for (size_t i = 0; i < n; i++)
        adam_errors(s.w_err + i, s.m_err + i, s.v_err + i, s.w[i], s.m[i], s.v[i], s.g[i], u);
    step_end(&c, &s, weight, m, v, grad, n);
}

// Codes after the update: x is the moment, x_err what it may be off by.
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
        u.l2 = false;
        adam_errors(s.w_err + i, s.m_err + i, s.v_err + i, s.w[i], old_m, old_v, s.g[i], u);
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

// What five steps of the polynomial on X (k, L), k <= L, make of an error e at the start.
static double polynomial_err(double e, size_t k, size_t L)
{
    const double top = 1.21, root = sqrt((double)k), a = 1.47 * root, b = 3.45 * root, x = top * root;
    for (int i = 0; i < 5; i++) {
        double of_a = 2 * gam(L) * x * x;
        double of_b = (2 * gam(k) + 3 * U) * 2.0315 * a * a + 3 * U * (4.775 * a + b) +
                      of_a * (2 * 2.0315 * top * top + 4.775);
        e = 4.25 * e + 2 * gam(k) * b * x + of_b * top;
    }
    return e;
}

static void muon(Dev *dev, float *weight, float *m, float *grad, float *scratch, size_t R, size_t C, Update u)
{
    DevCheckCall c = dev_check_begin(dev, "muon");
    size_t n = R * C, k = R < C ? R : C, L = R < C ? C : R;
    Step s = step_begin(&c, weight, m, NULL, grad, n);
    float *room = (float *)dev_check_room(&c, (n + 2 * k * k) * sizeof *room);
    c.ref->muon(c.ref, s.want_w, s.want_m, s.want_g, room, R, C, u);
    c.fast->muon(c.fast, weight, m, grad, scratch, R, C, u);
    double off = 0, norm = 0, b = u.beta1, scale = u.lr * 0.2 * sqrt((double)L);
    for (size_t i = 0; i < n; i++) {
        double g = (double)s.g[i] * u.grad_scale, size = fabs(b * s.m[i]) + fabs((1 - b) * g);
        double new_m = b * s.m[i] + (1 - b) * g, x = (1 - b) * g + b * new_m;
        s.m_err[i] = 4 * U * size;
        double e = 4 * U * (fabs((1 - b) * g) + fabs(b * new_m)) + b * s.m_err[i];
        off += e * e, norm += x * x;
    }
    double e = polynomial_err(norm > 0 ? sqrt(off / norm) + rms_err(n) + 2 * U : 0, k, L);
    for (size_t i = 0; i < n; i++) s.w_err[i] = 4 * U * (fabs((double)s.w[i]) + scale) + scale * e;
    step_end(&c, &s, weight, m, NULL, grad, n);
}

void dev_check_optim_fill(Dev *dev)
{
    dev->sum_squares = sum_squares;
    dev->sum_squares_exact = sum_squares_exact;
    dev->clip_units = clip_units;
    dev->sgd = sgd;
    dev->adamw = adamw;
    dev->adamw8bit = adamw8bit;
    dev->lion = lion;
    dev->adafactor = adafactor;
    dev->muon = muon;
}
