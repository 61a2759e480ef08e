// dev_check_loss: softmax with cross-entropy, whole and in its three steps, on two devices, and how far they may be
// apart.
//
// An exponent z - top is off by 2 u (|z| + |top|), exp by FN u, the sum by gam(V + 2), so
//
//   total      sum_v e_v (2 u (|z_v| + |top|) + FN u) + gam(V + 2) total
//   loss       that relative to the total, FN u |log total|, and the roundings of top, target and result
//   dz         scale p times what exp and the total are off by; what the subtraction of scale rounds
//
// xent_max is the largest of given numbers, and the target's logit one of them: the same on both devices.
#include "dev/check/dev_check.h"

#include <math.h>

static const double U = DEV_CHECK_U;
enum { FN = DEV_CHECK_FN };

static double gam(size_t n)
{
    return (double)n * U / (1 - (double)n * U);
}

static double exp_err(double z, double top)
{
    return 2 * U * (fabs(z) + fabs(top)) + FN * U;
}

// Error of dz = scale (p - hit), where p = exp(z - top) / total and the total is off by total_rel.
static void gradient_errors(double *err, const float *z, size_t V, double top, double total, double total_rel,
                            double scale, int32_t target)
{
    for (size_t v = 0; v < V; v++) {
        double p = exp(z[v] - top) / total, hit = target == (int32_t)v;
        err[v] = fabs(scale) * p * (exp_err(z[v], top) + total_rel + 4 * U) + U * fabs(scale * (p - hit));
    }
}

static void softmax_xent(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, size_t N, size_t V,
                         float scale)
{
    DevCheckCall c = dev_check_begin(dev, "softmax_xent");
    const X *z = dev_check_x(&c, logits, N * V);
    const int32_t *y = dev_check_i(&c, target, N);
    const float *wide = dev_check_wide(&c, z, N * V, false);
    X *want = dlogits ? (X *)dev_check_room(&c, N * V * c.fast->x_bytes) : NULL;
    float *want_loss = (float *)dev_check_room(&c, N * sizeof(float));
    c.ref->softmax_xent(c.ref, want_loss, want, z, y, N, V, scale);
    c.fast->softmax_xent(c.fast, loss, dlogits, logits, target, N, V, scale);
    double *err = dev_check_d(&c, N * V), *loss_err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++) {
        const float *row = wide + n * V;
        double top = -INFINITY, total = 0, rel = gam(V + 2);
        if (y[n] < 0) continue; // exactly nothing
        for (size_t v = 0; v < V; v++) top = row[v] > top ? row[v] : top;
        for (size_t v = 0; v < V; v++) total += exp(row[v] - top);
        for (size_t v = 0; v < V; v++) rel += exp(row[v] - top) / total * exp_err(row[v], top);
        double hit = row[y[n]], value = log(total) + (top - hit);
        loss_err[n] = rel + FN * U * fabs(log(total)) + 3 * U * (fabs(top) + fabs(hit)) + U * fabs(value);
        gradient_errors(err + n * V, row, V, top, total, rel, scale, y[n]);
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
                     size_t N, size_t V, DevParts parts)
{
    DevCheckCall c = dev_check_begin(dev, "xent_sum");
    const X *z = dev_check_x(&c, logits, N * V);
    const int32_t *y = dev_check_i(&c, target, N);
    const float *t = dev_check_f(&c, top, N), *wide = dev_check_wide(&c, z, N * V, false);
    float *want = (float *)dev_check_room(&c, N * sizeof(float)), *want_hit = (float *)dev_check_room(&c, N * 4);
    c.ref->xent_sum(c.ref, want, want_hit, z, y, t, N, V, parts);
    c.fast->xent_sum(c.fast, total, hit, logits, target, top, N, V, parts);
    double *err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++)
        for (size_t v = 0; v < V; v++)
            err[n] += exp((double)wide[n * V + v] - t[n]) * (exp_err(wide[n * V + v], t[n]) + gam(V + 2));
    dev_check_expect_f(&c, "total", want, total, N, err);
    dev_check_expect_f(&c, "hit", want_hit, hit, N, NULL);
    dev_check_end(&c);
}

static void xent_loss(Dev *dev, float *loss, X *dlogits, const X *logits, const int32_t *target, const float *top,
                      const float *total, const float *hit, size_t N, size_t V, float scale)
{
    DevCheckCall c = dev_check_begin(dev, "xent_loss");
    const X *z = dev_check_x(&c, logits, N * V);
    const int32_t *y = dev_check_i(&c, target, N);
    const float *t = dev_check_f(&c, top, N), *sum = dev_check_f(&c, total, N), *h = dev_check_f(&c, hit, N);
    const float *wide = dev_check_wide(&c, z, N * V, false);
    X *want = dlogits ? (X *)dev_check_room(&c, N * V * c.fast->x_bytes) : NULL;
    float *want_loss = (float *)dev_check_room(&c, N * sizeof(float));
    c.ref->xent_loss(c.ref, want_loss, want, z, y, t, sum, h, N, V, scale);
    c.fast->xent_loss(c.fast, loss, dlogits, logits, target, top, total, hit, N, V, scale);
    double *err = dev_check_d(&c, N * V), *loss_err = dev_check_d(&c, N);
    for (size_t n = 0; n < N; n++) {
        if (y[n] < 0) continue;
        loss_err[n] = FN * U * fabs(log((double)sum[n])) + 3 * U * (fabs((double)t[n]) + fabs((double)h[n])) +
                      2 * U * fabs((double)want_loss[n]);
        gradient_errors(err + n * V, wide + n * V, V, t[n], sum[n], 0, scale, y[n]);
    }
    dev_check_expect_f(&c, "loss", want_loss, loss, N, loss_err);
    if (dlogits) dev_check_expect_x(&c, "dlogits", want, dlogits, N, V, V, err);
    dev_check_end(&c);
}

void dev_check_loss_fill(Dev *dev)
{
    dev->softmax_xent = softmax_xent;
    dev->xent_max = xent_max;
    dev->xent_sum = xent_sum;
    dev->xent_loss = xent_loss;
}
