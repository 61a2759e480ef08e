// dev_check_matmul: the matrix products and attention on two devices, and how far they may be apart.
//
// u = 2^-24. A sum of K products in any order errs by at most K u / (1 - K u) sum |a b| (Higham, Accuracy and Stability
// of Numerical Algorithms, 3.1). A tensor core may truncate where fp32 rounds, 2 u a term, so
//
//     err = 2 (K + 2) u size,    size = |A| |B| + |start|
//
// size is a product too: of the inputs' absolute values, by the CPU in fp32, plus 1% for its own error. GELU:
// |gelu'| <= 1.13, and gelu(x) itself errs by 9 u |x| (test/ops_ref.h), its slope by u (8 + 17 |x| slope). The product
// of backward may be stored before it is multiplied by the slope, which rounds once more.
//
// TF32: both devices round the operands to 11 bits, so a product has 22 and is exact in fp32. Rounded operands are at
// most 2^-11 larger, less than the 1%. A GPU says itself how much its rounding may differ from the specification's (gpu.h).
#include "src/check/dev_check.h"

#include "formats/formats.h"
#include "formats/fp8.h"
#include "ops/activation.h"

#include <math.h>
#include <string.h>

static const double U = DEV_CHECK_U;

// ---- fp8: both devices quantise with the same scales (fp8.h), which are copied to the reference before the call, and
// must have noted the same magnitudes after it.
//
// fp8: sizes are those of the quantised operands. The scales are divided out with a rounded inverse and a rounded
// product, from each operand before the sum (the CPU) or from the sum (a GPU): 6 roundings at most. The fast device
// says itself what a tensor core loses beyond fp32 (gpu.h).

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

// Sizes of an operand's n elements on the host; quantised where the op quantises them.
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
    if (c->fast->tf32) more = c->fast->tf32_error; // the products themselves are exact in fp32
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
        gelu_err[i] = 1.13 * of_pre + U * act_gelu_bound((double)z[i]);
    }
    if (pre) dev_check_expect_x(&c, "pre", fed, pre, N, OC, OC, err);
    dev_check_expect_x(&c, "out", want, out, N, OC, OC, gelu_err);
    if (pre) { // and it is the GELU of what was stored
        for (size_t i = 0; i < n; i++) gelu_err[i] = U * act_gelu_bound((double)z[i]);
        c.ref->act_forward(c.ref, want, dev_check_x(&c, pre, n), n, ACT_GELU);
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
        double at = fabs((double)act_gelu_slope(x[i]));
        err[i] = err[i] * at + size[i] * (U * act_gelu_slope_bound((double)x[i]) + c.fast->dgelu_error);
        // A kernel may round the product before it multiplies by gelu'.
        err[i] += c.ux * ((c.fast->dgelu_error > 0 ? 2 : 1) * fabs((double)y[i]) + err[i]) + (c.x_type == X_FP16 ? 0x1p-25 * at : 0);
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
    const float *dy_size = dev_check_wide(&c, dy, N * OC, true); // a bias gradient is no product: never in 8 bits
    for (size_t i = 0; dbias && i < N * OC; i++) size_bias[i % OC] += dy_size[i];
    c.ref->matmul_backward_weight(c.ref, want, want_bias, dy, x, N, C, OC, site);
    c.fast->matmul_backward_weight(c.fast, dweight, dbias, dout, inp, N, C, OC, site);
    dev_check_expect_f(&c, "dweight", want, dweight, OC * C, errors(&c, size, OC * C, N, site));
    if (dbias) dev_check_expect_f(&c, "dbias", want_bias, dbias, OC, errors(&c, size_bias, OC, N, -1));
    expect_noted(&c, site);
    dev_check_end(&c);
}

// ---- attention
//
// Attention, whole and in pieces.
//
// u = 2^-24, r = u_X where a tensor core rounds P and dS (16 bits; else 0), n keys, S the largest size that a row's
// scores may have: scale |q| max |k|. Sums on tensor cores count 2 u a term.
//
//   score            (2 D + 16) u S; the relative error of p is the same, plus FN u for exp
//   running sums     (S + 8) 2 u each time that the maximum moves, at most once in 16 keys
//   out              twice that (p and the sum), r, and (6 n + 32) u:  rel times  sum_j p_j |v_j|
//   dS = c P (dP - delta)     |dP| + |delta| is at most a = |dout| max |v| / (1 - p) + sum |dout out|, so dS errs by
//                    c P a rel,   rel = that of P, of dP and delta (2 D + 16) u, r, and the sum's 2 u a term
//
//   in fp16          P and dS err by 2^-25 as well, where they are rounded
//   backward         P errs by 2^-126 as well: below that exp may give 0 or the smallest normal number
//
// The sums that remain are attention themselves: sum_j P_j |v_j| is attention over |v|; sum_j P_j |k_j| attention
// over |k|; sum_t P_tj x_t is what backward gives as dv for dout = x. The CPU's fp32 attention does them.

static const double SMALLEST = 0x1p-126;

// The host's side of a call. s.first is in host memory; wide arrays have the layout of the originals.
typedef struct {
    AttnShape s;
    bool piece;
    const X *q, *k, *v;
    float *wide_q, *wide_k, *wide_v;
    size_t n_q, n_kv, n_out, n_stat; // elements from the first to the last; of out; of lse
} Args;

static Args arguments(DevCheckCall *c, bool piece, const X *q, const X *k, const X *v, AttnShape s)
{
    Args a = {.s = s, .piece = piece, .n_q = (s.B * s.Tq - 1) * s.ldq + s.H * s.D,
              .n_kv = (s.B * s.Tk - 1) * s.ldkv + s.G * s.D, .n_out = s.B * s.Tq * s.H * s.D,
              .n_stat = s.B * s.H * s.Tq};
    a.s.first = dev_check_i(c, s.first, s.B * s.Tq);
    a.q = dev_check_x(c, q, a.n_q), a.k = dev_check_x(c, k, a.n_kv), a.v = dev_check_x(c, v, a.n_kv);
    a.wide_q = dev_check_wide(c, a.q, a.n_q, false);
    a.wide_k = dev_check_wide(c, a.k, a.n_kv, false), a.wide_v = dev_check_wide(c, a.v, a.n_kv, false);
    return a;
}

static double norm(const float *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

// The largest norm of the rows of key/value head g of sequence b.
static double largest(const float *x, const AttnShape *s, size_t b, size_t g)
{
    double most = 0;
    for (size_t j = 0; j < s->Tk; j++) most = fmax(most, norm(x + (b * s->Tk + j) * s->ldkv + g * s->D, s->D));
    return most;
}

// S of each row (B, H, Tq).
static double *score_sizes(DevCheckCall *c, const Args *a)
{
    const AttnShape *s = &a->s;
    double *size = dev_check_d(c, a->n_stat), scale = s->scale > 0 ? s->scale : 1 / sqrt((double)s->D);
    for (size_t i = 0; i < s->B * s->H; i++) {
        size_t b = i / s->H, h = i % s->H;
        double most = largest(a->wide_k, s, b, h / (s->H / s->G));
        for (size_t t = 0; t < s->Tq; t++)
            size[i * s->Tq + t] = scale * most * norm(a->wide_q + (b * s->Tq + t) * s->ldq + h * s->D, s->D);
    }
    return size;
}

static double score_err(const Args *a, double S)
{
    return (2 * (double)a->s.D + 16) * U * S + DEV_CHECK_FN * U;
}

static double running_err(const Args *a, double S)
{
    return (S + 8) * 2 * U * ((double)a->s.Tk / 16 + 1);
}

// Index of (b, h, t) in statistics for element i of out (B, Tq, H, D).
static size_t stat_of(const AttnShape *s, size_t i)
{
    size_t row = i / s->D, h = row % s->H, t = row / s->H % s->Tq, b = row / s->H / s->Tq;
    return (b * s->H + h) * s->Tq + t;
}

// sum_j P_j |x_j| (B, Tq, H, D), with dropout or without; lse: that of P's softmax.
static float *weighted(DevCheckCall *c, const Args *a, const float *x, bool drop, const float *lse)
{
    AttnShape s = a->s;
    float *out = (float *)dev_check_room(c, a->n_out * sizeof *out), *own = (float *)dev_check_room(c, a->n_stat * 4);
    const float *size = dev_check_abs(c, x, a->n_kv);
    if (!drop) s.drop.p = 0;
    if (a->piece) c->wide->attention_part_forward(c->wide, out, own, (X *)a->wide_q, (X *)a->wide_k, (X *)size, s);
    else c->wide->attention_forward(c->wide, (X *)out, own, (X *)a->wide_q, (X *)a->wide_k, (X *)size, s);
    for (size_t i = 0; a->piece && lse && i < a->n_out; i++)
        out[i] *= (float)exp((double)own[stat_of(&s, i)] - lse[stat_of(&s, i)]);
    return out;
}

static void forward_errors(DevCheckCall *c, const Args *a, double *err, double *lse_err, const float *lse)
{
    const double *S = score_sizes(c, a), n = (double)a->s.Tk;
    double tiny = 0;
    const AttnShape *s = &a->s;
    const float *size = weighted(c, a, a->wide_v, true, NULL);
    for (size_t i = 0; i < a->n_out; i++) {
        double at = S[stat_of(s, i)];
        size_t h = i / s->D % s->H, b = i / s->D / s->H / s->Tq;
        err[i] = 1.01 * size[i] * (2 * (score_err(a, at) + running_err(a, at)) + c->ux + (6 * n + 32) * U);
        if (c->x_type == X_FP16 && i % s->D == 0)
            tiny = 0x1p-25 * n * largest(a->wide_v, s, b, h / (s->H / s->G)) / (1 - (double)s->drop.p);
        err[i] += tiny;
    }
    for (size_t i = 0; i < a->n_stat; i++)
        lse_err[i] = score_err(a, S[i]) + running_err(a, S[i]) + (n + 10) * U + 4 * U * (S[i] + fabs((double)lse[i]));
    for (size_t i = 0; i < a->n_stat; i++)
        if (lse[i] == -INFINITY) lse_err[i] = 0; // no keys: the result must be exact
}

static void attention_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    DevCheckCall c = dev_check_begin(dev, "attention_forward");
    Args a = arguments(&c, false, q, k, v, s);
    X *want = (X *)dev_check_room(&c, a.n_out * c.fast->x_bytes);
    float *want_lse = (float *)dev_check_room(&c, a.n_stat * sizeof(float));
    c.ref->attention_forward(c.ref, want, want_lse, a.q, a.k, a.v, a.s);
    c.fast->attention_forward(c.fast, out, lse, q, k, v, s);
    double *err = dev_check_d(&c, a.n_out), *lse_err = dev_check_d(&c, a.n_stat);
    forward_errors(&c, &a, err, lse_err, want_lse);
    dev_check_expect_x(&c, "out", want, out, 1, a.n_out, a.n_out, err);
    if (lse) dev_check_expect_f(&c, "lse", want_lse, lse, a.n_stat, lse_err);
    dev_check_end(&c);
}

static void attention_part_forward(Dev *dev, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    DevCheckCall c = dev_check_begin(dev, "attention_part_forward");
    Args a = arguments(&c, true, q, k, v, s);
    float *want = (float *)dev_check_room(&c, a.n_out * sizeof(float));
    float *want_lse = (float *)dev_check_room(&c, a.n_stat * sizeof(float));
    c.ref->attention_part_forward(c.ref, want, want_lse, a.q, a.k, a.v, a.s);
    c.fast->attention_part_forward(c.fast, out, lse, q, k, v, s);
    double *err = dev_check_d(&c, a.n_out), *lse_err = dev_check_d(&c, a.n_stat);
    forward_errors(&c, &a, err, lse_err, want_lse);
    dev_check_expect_f(&c, "out", want, out, a.n_out, err);
    dev_check_expect_f(&c, "lse", want_lse, lse, a.n_stat, lse_err);
    dev_check_end(&c);
}

// sum over the queries of a group's heads of P_tj x_t: (B, Tk, G, D), rows ldkv apart unless in pieces.
static float *gathered(DevCheckCall *c, const Args *a, const float *x, bool drop, const float *lse)
{
    AttnShape s = a->s;
    size_t n_kv = a->piece ? s.B * s.Tk * s.G * s.D : a->n_kv, n_q = a->piece ? a->n_out : a->n_q;
    float *dq = (float *)dev_check_room(c, n_q * sizeof *dq), *dk = (float *)dev_check_room(c, n_kv * sizeof *dk);
    float *dv = (float *)dev_check_room(c, n_kv * sizeof *dv), *none = (float *)dev_check_room(c, a->n_out * 4);
    if (!drop) s.drop.p = 0;
    if (a->piece)
        c->wide->attention_part_backward(c->wide, dq, dk, dv, (X *)x, (X *)none, lse, (X *)a->wide_q, (X *)a->wide_k,
                                         (X *)a->wide_v, s);
    else
        c->wide->attention_backward(c->wide, (X *)dq, (X *)dk, (X *)dv, (X *)x, (X *)none, lse, (X *)a->wide_q,
                                    (X *)a->wide_k, (X *)a->wide_v, s);
    return dv;
}

// err of dq (B, Tq, H D), of dk and dv (B, Tk, G D), without gaps. dout, out: in fp32.
static void backward_errors(DevCheckCall *c, const Args *a, double *eq, double *ek, double *ev, const float *dout,
                            const float *out, const float *lse)
{
    AttnShape s = a->s;
    double *S = score_sizes(c, a), scale = s.scale > 0 ? s.scale : 1 / sqrt((double)s.D), n = (double)s.Tk;
    double terms = (double)(s.Tq * (s.H / s.G)), keep = 1 / (1 - (double)s.drop.p);
    float *to_k = (float *)dev_check_room(c, a->n_out * 4), *to_v = (float *)dev_check_room(c, a->n_out * 4);
    const float *size = weighted(c, a, a->wide_k, false, lse);
    double *all_k = dev_check_d(c, s.B * s.G * s.D), *all_v = dev_check_d(c, s.B * s.G * s.D); // not relative to P
    double tiny = c->x_type == X_FP16 ? 0x1p-25 : 0;
    for (size_t i = 0; i < a->n_out; i += s.D) { // (b, t, h)
        size_t row = i / s.D, h = row % s.H, b = row / s.H / s.Tq, t = row / s.H % s.Tq, stat = stat_of(&s, i);
        double most = norm(dout + i, s.D) * largest(a->wide_v, &s, b, h / (s.H / s.G)) * keep;
        for (size_t d = 0; d < s.D; d++) most += fabs((double)dout[i + d] * out[i + d]);
        double of_p = score_err(a, S[stat]) + 2 * U * (S[stat] + fabs((double)lse[stat])) + 4 * U;
        double rel = of_p + (2 * (double)s.D + 16) * U + c->ux;
        size_t g = h / (s.H / s.G), group = (b * s.G + g) * s.D;
        double every_k = n * largest(a->wide_k, &s, b, g);
        for (size_t d = 0; d < s.D; d++) {
            double q = a->wide_q[(b * s.Tq + t) * s.ldq + h * s.D + d];
            eq[i + d] = 1.01 * scale * most * (size[i + d] * (rel + 2 * (n + 8) * U) + SMALLEST * every_k);
            eq[i + d] += tiny * every_k;
            all_k[group + d] += (SMALLEST * scale * most + tiny) * fabs(q);
            all_v[group + d] += (SMALLEST * keep + tiny) * fabs((double)dout[i + d]);
            to_k[i + d] = (float)(1.01 * scale * most * fabs(q) * (rel + 2 * (terms + 8) * U));
            to_v[i + d] = (float)(1.01 * fabs((double)dout[i + d]) * (of_p + c->ux + 2 * (terms + 8) * U));
        }
    }
    const float *of_k = gathered(c, a, to_k, false, lse), *of_v = gathered(c, a, to_v, true, lse);
    size_t width = s.G * s.D, ld = a->piece ? width : s.ldkv;
    for (size_t i = 0; i < s.B * s.Tk * width; i++) {
        size_t at = i / width * ld + i % width, of_all = i / width / s.Tk * width + i % width;
        ek[i] = of_k[at] + all_k[of_all];
        ev[i] = of_v[at] + all_v[of_all];
    }
}

static void attention_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q,
                               const X *k, const X *v, AttnShape s)
{
    DevCheckCall c = dev_check_begin(dev, "attention_backward");
    Args a = arguments(&c, false, q, k, v, s);
    size_t rows_q = s.B * s.Tq, rows_k = s.B * s.Tk, hd = s.H * s.D, gd = s.G * s.D, bytes = c.fast->x_bytes;
    const X *dy = dev_check_x(&c, dout, a.n_out), *y = dev_check_x(&c, out, a.n_out);
    const float *stat = dev_check_f(&c, lse, a.n_stat);
    X *want_q = (X *)dev_check_room(&c, a.n_q * bytes), *want_k = (X *)dev_check_room(&c, a.n_kv * bytes),
      *want_v = (X *)dev_check_room(&c, a.n_kv * bytes);
    c.ref->attention_backward(c.ref, want_q, want_k, want_v, dy, y, stat, a.q, a.k, a.v, a.s);
    c.fast->attention_backward(c.fast, dq, dk, dv, dout, out, lse, q, k, v, s);
    double *eq = dev_check_d(&c, rows_q * hd), *ek = dev_check_d(&c, rows_k * gd), *ev = dev_check_d(&c, rows_k * gd);
    backward_errors(&c, &a, eq, ek, ev, dev_check_wide(&c, dy, a.n_out, false), dev_check_wide(&c, y, a.n_out, false),
                    stat);
    dev_check_expect_x(&c, "dq", want_q, dq, rows_q, hd, s.ldq, eq);
    dev_check_expect_x(&c, "dk", want_k, dk, rows_k, gd, s.ldkv, ek);
    dev_check_expect_x(&c, "dv", want_v, dv, rows_k, gd, s.ldkv, ev);
    dev_check_end(&c);
}

static void attention_part_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out,
                                    const float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    DevCheckCall c = dev_check_begin(dev, "attention_part_backward");
    Args a = arguments(&c, true, q, k, v, s);
    size_t n_kv = s.B * s.Tk * s.G * s.D;
    const X *dy = dev_check_x(&c, dout, a.n_out), *y = dev_check_x(&c, out, a.n_out);
    const float *stat = dev_check_f(&c, lse, a.n_stat);
    float *want_q = (float *)dev_check_room(&c, a.n_out * 4), *want_k = (float *)dev_check_room(&c, n_kv * 4),
          *want_v = (float *)dev_check_room(&c, n_kv * 4);
    c.ref->attention_part_backward(c.ref, want_q, want_k, want_v, dy, y, stat, a.q, a.k, a.v, a.s);
    c.fast->attention_part_backward(c.fast, dq, dk, dv, dout, out, lse, q, k, v, s);
    double *eq = dev_check_d(&c, a.n_out), *ek = dev_check_d(&c, n_kv), *ev = dev_check_d(&c, n_kv);
    backward_errors(&c, &a, eq, ek, ev, dev_check_wide(&c, dy, a.n_out, false), dev_check_wide(&c, y, a.n_out, false),
                    stat);
    dev_check_expect_f(&c, "dq", want_q, dq, a.n_out, eq);
    dev_check_expect_f(&c, "dk", want_k, dk, n_kv, ek);
    dev_check_expect_f(&c, "dv", want_v, dv, n_kv, ev);
    dev_check_end(&c);
}

// Exponents are rounded once, exp errs by FN u, then an addition, a division, two products and their addition.
static void attention_merge(Dev *dev, float *out, float *lse, const float *part_out, const float *part_lse, size_t B,
                            size_t T, size_t H, size_t D)
{
    DevCheckCall c = dev_check_begin(dev, "attention_merge");
    size_t n = B * T * H * D, n_stat = B * H * T;
    AttnShape s = {.B = B, .Tq = T, .H = H, .D = D};
    float *want = dev_check_f(&c, out, n), *want_lse = dev_check_f(&c, lse, n_stat);
    const float *b = dev_check_f(&c, part_out, n), *lb = dev_check_f(&c, part_lse, n_stat);
    double *err = dev_check_d(&c, n), *lse_err = dev_check_d(&c, n_stat);
    for (size_t i = 0; i < n; i++) {
        size_t stat = stat_of(&s, i);
        double la = want_lse[stat], top = fmax(la, lb[stat]), wa = exp(la - top), wb = exp(lb[stat] - top);
        if (!(wa > 0) || !(wb > 0)) continue; // one of the two has no keys: the result is the other, bit for bit
        double e = DEV_CHECK_FN * U + 6 * U + U * fmax(fabs(la - top), fabs(lb[stat] - top));
        err[i] = 2 * e * (wa * fabs((double)want[i]) + wb * fabs((double)b[i])) / (wa + wb);
        lse_err[stat] = 2 * e + U * fabs(top + log(wa + wb));
    }
    c.ref->attention_merge(c.ref, want, want_lse, b, lb, B, T, H, D);
    c.fast->attention_merge(c.fast, out, lse, part_out, part_lse, B, T, H, D);
    dev_check_expect_f(&c, "out", want, out, n, err);
    dev_check_expect_f(&c, "lse", want_lse, lse, n_stat, lse_err);
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
    dev->attention_forward = attention_forward;
    dev->attention_backward = attention_backward;
    dev->attention_part_forward = attention_part_forward;
    dev->attention_part_backward = attention_part_backward;
    dev->attention_merge = attention_merge;
}
