// dev_check_matmul: the matrix products on two devices, and how far they may be apart.
//
// u = 2^-24. A sum of K products in any order errs by at most K u / (1 - K u) sum |a b| (Higham, Accuracy and Stability
// of Numerical Algorithms, 3.1). A tensor core may cut where fp32 rounds, 2 u a term, so
//
//     err = 2 (K + 2) u size,    size = |A| |B| + |start|
//
// size is a product too: of the inputs without their signs, by the CPU in fp32; it counts 1% more for its own error.
// GELU: |gelu'| <= 1.13, and gelu(x) itself errs by 9 u |x| (test/ops_ref.h); its slope by u (8 + 17 |x| slope). The
// product of backward may be stored before it meets the slope, which rounds once more.
#include "dev_check.h"

#include "vmath.h"

#include <math.h>

static const double U = DEV_CHECK_U;

// err (n) of sums of K terms with these sizes
static double *errors(DevCheckCall *c, const float *size, size_t n, size_t K)
{
    double *err = dev_check_d(c, n);
    for (size_t i = 0; i < n; i++) err[i] = 1.01 * 2 * ((double)K + 2) * U * size[i];
    return err;
}

// Sizes of out = inp weight^T + bias. The arguments are the host's copies.
static float *forward_size(DevCheckCall *c, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC)
{
    float *size = (float *)dev_check_room(c, N * OC * sizeof *size);
    c->wide->matmul_forward(c->wide, (X *)size, (X *)dev_check_wide(c, inp, N * C, true),
                            (X *)dev_check_wide(c, weight, OC * C, true), (X *)dev_check_wide(c, bias, OC, true), N, C,
                            OC, -1);
    return size;
}

static float *input_size(DevCheckCall *c, const X *dout, const X *weight, size_t N, size_t C, size_t OC)
{
    float *size = (float *)dev_check_room(c, N * C * sizeof *size);
    c->wide->matmul_backward_input(c->wide, (X *)size, (X *)dev_check_wide(c, dout, N * OC, true),
                                   (X *)dev_check_wide(c, weight, OC * C, true), N, C, OC, -1);
    return size;
}

static void forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC,
                    const DevParts *parts, int site)
{
    DevCheckCall c = dev_check_begin(dev, parts ? "matmul_parts_forward" : "matmul_forward");
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, OC * C), *b = dev_check_x(&c, bias, OC);
    X *want = (X *)dev_check_room(&c, N * OC * c.fast->x_bytes);
    if (parts) {
        c.ref->matmul_parts_forward(c.ref, want, x, w, b, N, C, OC, *parts, site);
        c.fast->matmul_parts_forward(c.fast, out, inp, weight, bias, N, C, OC, *parts, site);
    } else {
        c.ref->matmul_forward(c.ref, want, x, w, b, N, C, OC, site);
        c.fast->matmul_forward(c.fast, out, inp, weight, bias, N, C, OC, site);
    }
    dev_check_expect_x(&c, "out", want, out, N, OC, OC, errors(&c, forward_size(&c, x, w, b, N, C, OC), N * OC, C));
    dev_check_end(&c);
}

static void matmul_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C,
                           size_t OC, int site)
{
    forward(dev, out, inp, weight, bias, N, C, OC, NULL, site);
}

static void matmul_parts_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C,
                                 size_t OC, DevParts parts, int site)
{
    forward(dev, out, inp, weight, bias, N, C, OC, &parts, site);
}

static void matmul_gelu_forward(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t N,
                                size_t C, size_t OC, int site)
{
    DevCheckCall c = dev_check_begin(dev, "matmul_gelu_forward");
    size_t n = N * OC;
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, OC * C), *b = dev_check_x(&c, bias, OC);
    X *want = (X *)dev_check_room(&c, n * c.fast->x_bytes), *fed = (X *)dev_check_room(&c, n * c.fast->x_bytes);
    c.ref->matmul_gelu_forward(c.ref, want, fed, x, w, b, N, C, OC, site);
    c.fast->matmul_gelu_forward(c.fast, out, pre, inp, weight, bias, N, C, OC, site);
    double *err = errors(&c, forward_size(&c, x, w, b, N, C, OC), n, C), *gelu_err = dev_check_d(&c, n);
    const float *z = dev_check_wide(&c, fed, n, false);
    for (size_t i = 0; i < n; i++) {
        double of_pre = err[i] + c.ux * (fabs((double)z[i]) + 2 * err[i]);
        gelu_err[i] = 1.13 * of_pre + 9 * U * fabs((double)z[i]);
    }
    if (pre) dev_check_expect_x(&c, "pre", fed, pre, N, OC, OC, err);
    dev_check_expect_x(&c, "out", want, out, N, OC, OC, gelu_err);
    if (pre) { // and it is the GELU of what was stored
        for (size_t i = 0; i < n; i++) gelu_err[i] = 9 * U * fabs((double)z[i]);
        c.ref->gelu_forward(c.ref, want, dev_check_x(&c, pre, n), n);
        dev_check_expect_x(&c, "out, of the stored pre", want, out, N, OC, OC, gelu_err);
    }
    dev_check_end(&c);
}

static void backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC,
                           const DevParts *parts, int site)
{
    DevCheckCall c = dev_check_begin(dev, parts ? "matmul_parts_backward_input" : "matmul_backward_input");
    const X *dy = dev_check_x(&c, dout, N * OC), *w = dev_check_x(&c, weight, OC * C);
    X *want = (X *)dev_check_room(&c, N * C * c.fast->x_bytes);
    if (parts) {
        c.ref->matmul_parts_backward_input(c.ref, want, dy, w, N, C, OC, *parts, site);
        c.fast->matmul_parts_backward_input(c.fast, dinp, dout, weight, N, C, OC, *parts, site);
    } else {
        c.ref->matmul_backward_input(c.ref, want, dy, w, N, C, OC, site);
        c.fast->matmul_backward_input(c.fast, dinp, dout, weight, N, C, OC, site);
    }
    dev_check_expect_x(&c, "dinp", want, dinp, N, C, C, errors(&c, input_size(&c, dy, w, N, C, OC), N * C, OC));
    dev_check_end(&c);
}

static void matmul_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC,
                                  int site)
{
    backward_input(dev, dinp, dout, weight, N, C, OC, NULL, site);
}

static void matmul_parts_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C,
                                        size_t OC, DevParts parts, int site)
{
    backward_input(dev, dinp, dout, weight, N, C, OC, &parts, site);
}

static void matmul_gelu_backward_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre, size_t N,
                                       size_t C, size_t OC, int site)
{
    DevCheckCall c = dev_check_begin(dev, "matmul_gelu_backward_input");
    const X *dy = dev_check_x(&c, dout, N * OC), *w = dev_check_x(&c, weight, OC * C), *p = dev_check_x(&c, pre, N * C);
    X *want = (X *)dev_check_room(&c, N * C * c.fast->x_bytes);
    c.ref->matmul_gelu_backward_input(c.ref, want, dy, w, p, N, C, OC, site);
    c.fast->matmul_gelu_backward_input(c.fast, dpre, dout, weight, pre, N, C, OC, site);
    const float *size = input_size(&c, dy, w, N, C, OC), *x = dev_check_wide(&c, p, N * C, false);
    const float *y = dev_check_wide(&c, want, N * C, false);
    double *err = errors(&c, size, N * C, OC);
    for (size_t i = 0; i < N * C; i++) {
        double slope = 0.79788456 * (1 + 3 * 0.044715 * (double)x[i] * x[i]), at = fabs((double)vmath_gelu_grad(x[i]));
        err[i] = err[i] * at + size[i] * U * (8 + 17 * fabs((double)x[i]) * slope);
        err[i] += c.ux * (fabs((double)y[i]) + err[i]) + (c.x_type == X_FP16 ? 0x1p-25 * at : 0);
    }
    dev_check_expect_x(&c, "dpre", want, dpre, N, C, C, err);
    dev_check_end(&c);
}

static void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t N,
                                   size_t C, size_t OC, int site)
{
    DevCheckCall c = dev_check_begin(dev, "matmul_backward_weight");
    const X *dy = dev_check_x(&c, dout, N * OC), *x = dev_check_x(&c, inp, N * C);
    float *want = dev_check_f(&c, dweight, OC * C), *want_bias = dev_check_f(&c, dbias, OC);
    float *size = dev_check_abs(&c, want, OC * C), *size_bias = dev_check_abs(&c, want_bias, OC);
    c.wide->matmul_backward_weight(c.wide, size, size_bias, (X *)dev_check_wide(&c, dy, N * OC, true),
                                   (X *)dev_check_wide(&c, x, N * C, true), N, C, OC, -1);
    c.ref->matmul_backward_weight(c.ref, want, want_bias, dy, x, N, C, OC, site);
    c.fast->matmul_backward_weight(c.fast, dweight, dbias, dout, inp, N, C, OC, site);
    dev_check_expect_f(&c, "dweight", want, dweight, OC * C, errors(&c, size, OC * C, N));
    if (dbias) dev_check_expect_f(&c, "dbias", want_bias, dbias, OC, errors(&c, size_bias, OC, N));
    dev_check_end(&c);
}

void dev_check_matmul_fill(Dev *dev)
{
    dev->matmul_forward = matmul_forward;
    dev->matmul_parts_forward = matmul_parts_forward;
    dev->matmul_gelu_forward = matmul_gelu_forward;
    dev->matmul_backward_input = matmul_backward_input;
    dev->matmul_parts_backward_input = matmul_parts_backward_input;
    dev->matmul_gelu_backward_input = matmul_gelu_backward_input;
    dev->matmul_backward_weight = matmul_backward_weight;
}
