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
//
// fp8: sizes are those of the operands as they are quantised. Each is then divided by its scale: by a rounded inverse,
// and a rounded product (the CPU, before the sum), or the sum by both (a GPU): 6 roundings at most. What a tensor core
// loses beyond fp32 the fast device says itself (gpu.h).
#include "dev/check/dev_check.h"

#include "base/formats.h"
#include "ops/fp8.h"
#include "ops/vmath.h"

#include <math.h>

static const double U = DEV_CHECK_U;

// ---- fp8: both devices quantise with the same scales (fp8.h), the reference's made equal to the fast one's before the
// call, and must have noted the same magnitudes after it.

static bool in_fp8(const DevCheckCall *c, int site)
{
    return c->fast->fp8 && fp8_runs(c->fast->fp8, site);
}

static void follow(DevCheckCall *c, int site)
{
    if (!in_fp8(c, site)) return;
    fp8_collect(c->fast->fp8);
    fp8_copy(c->ref->fp8, c->fast->fp8);
}

static void expect_noted(DevCheckCall *c, int site)
{
    if (!in_fp8(c, site)) return;
    const Fp8 *fast = c->fast->fp8, *ref = c->ref->fp8;
    fp8_collect(c->fast->fp8);
    dev_check_expect_one(c, "not finite", 0, 1, fast->bad, ref->bad, 0);
    for (size_t i = 0; !ref->bad && i < FP8_ROLES; i++)
        dev_check_expect_one(c, "largest magnitude, by role", i, FP8_ROLES, fast->now[(size_t)site * FP8_ROLES + i],
                             ref->now[(size_t)site * FP8_ROLES + i], 0);
}

// Sizes of an operand's elements, n of the host's: as they are quantised, where they are.
static X *sizes(DevCheckCall *c, const X *host, size_t n, int site, Fp8Role role)
{
    float *x = dev_check_wide(c, host, n, true), amax = 0;
    if (!x || !in_fp8(c, site)) return (X *)x;
    for (size_t i = 0; i < n; i++)
        if (!(x[i] <= amax) && !isnan(amax)) amax = x[i];
    Format format = fp8_format(role);
    float scale = fp8_scale(c->ref->fp8, site, role, amax);
    for (size_t i = 0; i < n; i++) x[i] = formats_decode(format, formats_encode(format, x[i] * scale, true)) / scale;
    return (X *)x;
}

// err (n) of sums of K terms with these sizes
static double *errors(DevCheckCall *c, const float *size, size_t n, size_t K, int site)
{
    double *err = dev_check_d(c, n), more = in_fp8(c, site) ? c->fast->fp8_error + 2 * 6 * U : 0;
    for (size_t i = 0; i < n; i++) err[i] = 1.01 * (2 * ((double)K + 2) * U + more) * size[i];
    return err;
}

// Sizes of out = inp weight^T + bias. The arguments are the host's copies.
static float *forward_size(DevCheckCall *c, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC,
                           int site)
{
    float *size = (float *)dev_check_room(c, N * OC * sizeof *size);
    c->wide->matmul_forward(c->wide, (X *)size, sizes(c, inp, N * C, site, FP8_INP),
                            sizes(c, weight, OC * C, site, FP8_WEIGHT), (X *)dev_check_wide(c, bias, OC, true), N, C,
                            OC, -1);
    return size;
}

static float *input_size(DevCheckCall *c, const X *dout, const X *weight, size_t N, size_t C, size_t OC, int site)
{
    float *size = (float *)dev_check_room(c, N * C * sizeof *size);
    c->wide->matmul_backward_input(c->wide, (X *)size, sizes(c, dout, N * OC, site, FP8_DOUT),
                                   sizes(c, weight, OC * C, site, FP8_WEIGHT), N, C, OC, -1);
    return size;
}

// ---- the ops

static void forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC,
                    const DevParts *parts, int site)
{
    DevCheckCall c = dev_check_begin(dev, parts ? "matmul_parts_forward" : "matmul_forward");
    follow(&c, site);
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, OC * C), *b = dev_check_x(&c, bias, OC);
    X *want = (X *)dev_check_room(&c, N * OC * c.fast->x_bytes);
    if (parts) {
        c.ref->matmul_parts_forward(c.ref, want, x, w, b, N, C, OC, *parts, site);
        c.fast->matmul_parts_forward(c.fast, out, inp, weight, bias, N, C, OC, *parts, site);
    } else {
        c.ref->matmul_forward(c.ref, want, x, w, b, N, C, OC, site);
        c.fast->matmul_forward(c.fast, out, inp, weight, bias, N, C, OC, site);
    }
    const float *size = forward_size(&c, x, w, b, N, C, OC, site);
    dev_check_expect_x(&c, "out", want, out, N, OC, OC, errors(&c, size, N * OC, C, site));
    expect_noted(&c, site);
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
    follow(&c, site);
    size_t n = N * OC;
    const X *x = dev_check_x(&c, inp, N * C), *w = dev_check_x(&c, weight, OC * C), *b = dev_check_x(&c, bias, OC);
    X *want = (X *)dev_check_room(&c, n * c.fast->x_bytes), *fed = (X *)dev_check_room(&c, n * c.fast->x_bytes);
    c.ref->matmul_gelu_forward(c.ref, want, fed, x, w, b, N, C, OC, site);
    c.fast->matmul_gelu_forward(c.fast, out, pre, inp, weight, bias, N, C, OC, site);
    double *err = errors(&c, forward_size(&c, x, w, b, N, C, OC, site), n, C, site), *gelu_err = dev_check_d(&c, n);
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
    expect_noted(&c, site);
    dev_check_end(&c);
}

static void backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC,
                           const DevParts *parts, int site)
{
    DevCheckCall c = dev_check_begin(dev, parts ? "matmul_parts_backward_input" : "matmul_backward_input");
    follow(&c, site);
    const X *dy = dev_check_x(&c, dout, N * OC), *w = dev_check_x(&c, weight, OC * C);
    X *want = (X *)dev_check_room(&c, N * C * c.fast->x_bytes);
    if (parts) {
        c.ref->matmul_parts_backward_input(c.ref, want, dy, w, N, C, OC, *parts, site);
        c.fast->matmul_parts_backward_input(c.fast, dinp, dout, weight, N, C, OC, *parts, site);
    } else {
        c.ref->matmul_backward_input(c.ref, want, dy, w, N, C, OC, site);
        c.fast->matmul_backward_input(c.fast, dinp, dout, weight, N, C, OC, site);
    }
    const float *size = input_size(&c, dy, w, N, C, OC, site);
    dev_check_expect_x(&c, "dinp", want, dinp, N, C, C, errors(&c, size, N * C, OC, site));
    expect_noted(&c, site);
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
    follow(&c, site);
    const X *dy = dev_check_x(&c, dout, N * OC), *w = dev_check_x(&c, weight, OC * C), *p = dev_check_x(&c, pre, N * C);
    X *want = (X *)dev_check_room(&c, N * C * c.fast->x_bytes);
    c.ref->matmul_gelu_backward_input(c.ref, want, dy, w, p, N, C, OC, site);
    c.fast->matmul_gelu_backward_input(c.fast, dpre, dout, weight, pre, N, C, OC, site);
    const float *size = input_size(&c, dy, w, N, C, OC, site), *x = dev_check_wide(&c, p, N * C, false);
    const float *y = dev_check_wide(&c, want, N * C, false);
    double *err = errors(&c, size, N * C, OC, site);
    for (size_t i = 0; i < N * C; i++) {
        double slope = 0.79788456 * (1 + 3 * 0.044715 * (double)x[i] * x[i]), at = fabs((double)vmath_gelu_grad(x[i]));
        err[i] = err[i] * at + size[i] * U * (8 + 17 * fabs((double)x[i]) * slope);
        err[i] += c.ux * (fabs((double)y[i]) + err[i]) + (c.x_type == X_FP16 ? 0x1p-25 * at : 0);
    }
    dev_check_expect_x(&c, "dpre", want, dpre, N, C, C, err);
    expect_noted(&c, site);
    dev_check_end(&c);
}

static void matmul_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t N,
                                   size_t C, size_t OC, int site)
{
    DevCheckCall c = dev_check_begin(dev, "matmul_backward_weight");
    follow(&c, site);
    const X *dy = dev_check_x(&c, dout, N * OC), *x = dev_check_x(&c, inp, N * C);
    float *want = dev_check_f(&c, dweight, OC * C), *want_bias = dev_check_f(&c, dbias, OC);
    float *size = dev_check_abs(&c, want, OC * C), *size_bias = dev_check_abs(&c, want_bias, OC);
    c.wide->matmul_backward_weight(c.wide, size, NULL, sizes(&c, dy, N * OC, site, FP8_DOUT),
                                   sizes(&c, x, N * C, site, FP8_INP), N, C, OC, -1);
    const float *dy_size = dev_check_wide(&c, dy, N * OC, true); // a bias is no product: never in 8 bits
    for (size_t i = 0; dbias && i < N * OC; i++) size_bias[i % OC] += dy_size[i];
    c.ref->matmul_backward_weight(c.ref, want, want_bias, dy, x, N, C, OC, site);
    c.fast->matmul_backward_weight(c.fast, dweight, dbias, dout, inp, N, C, OC, site);
    dev_check_expect_f(&c, "dweight", want, dweight, OC * C, errors(&c, size, OC * C, N, site));
    if (dbias) dev_check_expect_f(&c, "dbias", want_bias, dbias, OC, errors(&c, size_bias, OC, N, -1));
    expect_noted(&c, site);
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
