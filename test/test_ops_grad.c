// test_ops_grad: every backward op against finite differences of its forward, taken in double.
//
// For a function f, weights c and a direction r, all random, L(x) = sum_i c_i f_i(x) is one number, and
//
//   D(h) = (L(x + h r) - L(x - h r)) / 2h = sum_j dx_j r_j + h^2 L'''(r) / 6 + ...
//
// where dx is what backward gives for dout = c.
//
// f is the plain double version of ops_ref.h, dx the float32 op. Three things may keep the two sides apart,
// and the bound is their sum: truncation, at most |D(h) - D(2h)|, which is three times the h^2 term;
// rounding of L in double, 1e4 * 2^-53 times sum |c_i f_i|, over h; and the op's own error in float32,
// sum_j |r_j| err_j, from ops_ref.h. Every input is varied alone, in DIRECTIONS directions. A wrong factor,
// sign, index or missing term is of order one.
#include "experts_ref.h"
#include "ops_run.h"

#define EPS 1e-5f
#define ROTARY ((Rope){.theta = 10000})
#define XC(ptr) ((const X *)(ptr))
#define XM(ptr) ((X *)(ptr))
#define STEP 0x1p-12
enum { DIRECTIONS = 4 };

// f writes n_out numbers; its inputs are where the test put them (args), so that moving one input moves f.
typedef struct {
    void (*f)(double *out, void *args);
    void *args;
    const double *c;
    double *out;
    size_t n_out;
} Functional;

static double value(const Functional *l, double *size)
{
    double sum = 0;
    *size = 0;
    l->f(l->out, l->args);
    for (size_t i = 0; i < l->n_out; i++) {
        sum += l->c[i] * l->out[i];
        *size += fabs(l->c[i] * l->out[i]);
    }
    return sum;
}

// (L(x + h r) - L(x - h r)) / 2h; x comes back unchanged, bit for bit.
static double slope(const Functional *l, double *x, const double *origin, const double *r, size_t n, double h,
                    double *size)
{
    double up, down, size_down;
    for (size_t i = 0; i < n; i++) x[i] = origin[i] + h * r[i];
    up = value(l, size);
    for (size_t i = 0; i < n; i++) x[i] = origin[i] - h * r[i];
    down = value(l, &size_down);
    memcpy(x, origin, n * sizeof *x);
    *size += size_down;
    return (up - down) / (2 * h);
}

// dx, err: the op's gradient of input x (n) and its float32 bound.
static void check_input(Run *run, const char *name, const Functional *l, double *x, const float *dx,
                        const double *err, size_t n)
{
    double *origin = run_zeros(run, n), *r = run_zeros(run, n), size;
    memcpy(origin, x, n * sizeof *x);
    for (uint32_t k = 0; k < DIRECTIONS; k++) {
        double want = 0, rounding = 0;
        for (size_t i = 0; i < n; i++) {
            r[i] = rng_normal(rng_make(2, name, k), i);
            want += dx[i] * r[i];
            rounding += fabs(r[i]) * (err[i] + UNDERFLOW);
        }
        double twice = slope(l, x, origin, r, n, 2 * STEP, &size),
               once = slope(l, x, origin, r, n, STEP, &size);
        double bound = fabs(once - twice) + 1e4 * 0x1p-53 * size / STEP + rounding;
        if (!within(want, once, bound))
            fail_msg("%s, direction %u: backward gives %.9g, differences give %.9g, bound %.3g", name, k,
                     want, once, bound);
        if (!(bound <=
              1e-3 * (fabs(once) + sqrt((double)n)))) // a bound that forgives everything tests nothing
            fail_msg("%s, direction %u: the bound %.3g says nothing about %.3g", name, k, bound, once);
    }
}

static Run run_make(void)
{
    return (Run){.dev = dev_cpu_create(2)};
}

static void run_end(Run *r)
{
    dev_cpu_free(r->dev);
    run_free(r);
}

// Random c, and the functional that weighs f with it.
static Functional functional(Run *r, void (*f)(double *, void *), void *args, const float *c, size_t n)
{
    return (Functional){.f = f, .args = args, .c = run_wide(r, c, n), .out = run_zeros(r, n), .n_out = n};
}

// ---- matmul
typedef struct {
    size_t N, C, OC;
    double *inp, *weight, *bias;
    bool gelu; // of the input
} Matmul;

static void matmul(double *out, void *args)
{
    Matmul *a = args;
    double *inp = zeroed(a->N * a->C * sizeof *inp);
    for (size_t i = 0; i < a->N * a->C; i++) inp[i] = a->gelu ? ref_gelu(a->inp[i]) : a->inp[i];
    ref_matmul(out, NULL, inp, a->weight, a->bias, a->N, a->C, a->OC);
    free(inp);
}

TEST(test_matmul)
{
    Run r = run_make();
    size_t N = 5, C = 11, OC = 7;
    const float *inp = run_in(&r, "inp", N * C), *weight = run_in(&r, "weight", OC * C),
                *bias = run_in(&r, "bias", OC);
    const float *dout = run_in(&r, "dout", N * OC);
    Matmul a = {N,    C, OC, run_wide(&r, inp, N * C), run_wide(&r, weight, OC * C), run_wide(&r, bias, OC),
                false};
    Functional l = functional(&r, matmul, &a, dout, N * OC);
    double *dy = run_wide(&r, dout, N * OC), *ones = run_zeros(&r, N), *ref = run_zeros(&r, N * C);
    double *err = run_zeros(&r, N * C), *w_ref = run_zeros(&r, OC * C), *w_err = run_zeros(&r, OC * C);
    double *b_ref = run_zeros(&r, OC), *b_err = run_zeros(&r, OC);
    for (size_t n = 0; n < N; n++) ones[n] = 1;
    ref_matmul_back_input(ref, err, dy, a.weight, N, C, OC);
    ref_outer_sum(w_ref, w_err, dy, a.inp, N, OC, C);
    ref_outer_sum(b_ref, b_err, dy, ones, N, OC, 1);

    float *dinp = run_out(&r, N * C), *dpre = run_out(&r, N * C);
    float *dweight = run_narrow(&r, run_zeros(&r, OC * C), OC * C),
          *dbias = run_narrow(&r, run_zeros(&r, OC), OC);
    r.dev->matmul_backward_input(r.dev, XM(dinp), XC(dout), XC(weight), N, C, OC, -1);
    r.dev->matmul_backward_weight(r.dev, dweight, dbias, XC(dout), XC(inp), N, C, OC, -1);
    r.dev->matmul_gelu_backward_input(r.dev, XM(dpre), XC(dout), XC(weight), XC(inp), N, C, OC, -1);
    check_input(&r, "matmul inp", &l, a.inp, dinp, err, N * C);
    check_input(&r, "matmul weight", &l, a.weight, dweight, w_err, OC * C);
    check_input(&r, "matmul bias", &l, a.bias, dbias, b_err, OC);
    a.gelu = true;
    for (size_t i = 0; i < N * C; i++) {
        double e, g = ref_gelu_grad(inp[i], &e);
        err[i] = err[i] * fabs(g) + fabs(ref[i]) * (e + U * fabs(g));
    }
    check_input(&r, "matmul gelu inp", &l, a.inp, dpre, err, N * C);
    run_end(&r);
}

// ---- squared ReLU
typedef struct {
    size_t n;
    double *pre;
} Relu2;

static void relu2(double *out, void *args)
{
    Relu2 *a = args;
    for (size_t i = 0; i < a->n; i++) out[i] = a->pre[i] > 0 ? a->pre[i] * a->pre[i] : 0;
}

TEST(test_relu2)
{
    Run r = run_make();
    size_t n = 45;
    const float *pre = run_in(&r, "pre", n), *dout = run_in(&r, "dout", n);
    Relu2 a = {n, run_wide(&r, pre, n)};
    Functional l = functional(&r, relu2, &a, dout, n);
    float *dpre = run_out(&r, n);
    double *err = run_zeros(&r, n);
    r.dev->relu2_backward(r.dev, XM(dpre), XC(dout), XC(pre), n);
    for (size_t i = 0; i < n; i++) err[i] = U * fabs(2.0 * dout[i] * pre[i]);
    check_input(&r, "relu2", &l, a.pre, dpre, err, n);
    run_end(&r);
}

// ---- swiglu
typedef struct {
    size_t N, F;
    double *gate_up;
} Swiglu;

static void swiglu(double *out, void *args)
{
    Swiglu *a = args;
    ref_swiglu(out, NULL, a->gate_up, a->N, a->F);
}

TEST(test_swiglu)
{
    Run r = run_make();
    size_t N = 5, F = 9;
    const float *gate_up = run_in(&r, "gate_up", N * 2 * F), *dout = run_in(&r, "dout", N * F);
    Swiglu a = {N, F, run_wide(&r, gate_up, N * 2 * F)};
    Functional l = functional(&r, swiglu, &a, dout, N * F);
    float *dx = run_out(&r, N * 2 * F);
    double *ref = run_zeros(&r, N * 2 * F), *err = run_zeros(&r, N * 2 * F);
    r.dev->swiglu_backward(r.dev, XM(dx), XC(dout), XC(gate_up), N, F);
    ref_swiglu_back(ref, err, run_wide(&r, dout, N * F), a.gate_up, N, F);
    check_input(&r, "swiglu", &l, a.gate_up, dx, err, N * 2 * F);
    run_end(&r);
}

// ---- embedding
typedef struct {
    size_t N, C;
    const int32_t *token, *pos;
    double *wte, *wpe;
} Embed;

static void embed(double *out, void *args)
{
    Embed *a = args;
    ref_embed(out, NULL, a->token, a->pos, a->wte, a->wpe, a->N, a->C);
}

TEST(test_embed)
{
    Run r = run_make();
    size_t N = 23, C = 5, V = 7, T = 6;
    const int32_t *token = run_ints(&r, "token", N, 0, (int)V), *pos = run_ints(&r, "pos", N, 0, (int)T);
    const float *dout = run_in(&r, "dout", N * C);
    Embed a = {N,
               C,
               token,
               pos,
               run_wide(&r, run_in(&r, "wte", V * C), V * C),
               run_wide(&r, run_in(&r, "wpe", T * C), T * C)};
    Functional l = functional(&r, embed, &a, dout, N * C);
    double *dy = run_wide(&r, dout, N * C), *t_ref = run_zeros(&r, V * C), *p_ref = run_zeros(&r, T * C);
    double *t_err = run_zeros(&r, V * C), *p_err = run_zeros(&r, T * C);
    float *dwte = run_narrow(&r, t_ref, V * C), *dwpe = run_narrow(&r, p_ref, T * C);
    r.dev->embed_backward(r.dev, dwte, dwpe, XC(dout), token, pos, N, C, V);
    ref_scatter(t_ref, t_err, dy, token, N, C, V);
    ref_scatter(p_ref, p_err, dy, pos, N, C, T);
    check_input(&r, "embed tokens", &l, a.wte, dwte, t_err, V * C);
    check_input(&r, "embed positions", &l, a.wpe, dwpe, p_err, T * C);
    run_end(&r);
}

// ---- value embeddings; the values' gradient is the output's
typedef struct {
    size_t N, W;
    const int32_t *token;
    double *v, *table, *scale;
} Values;

static void values(double *out, void *args)
{
    Values *a = args;
    memcpy(out, a->v, a->N * a->W * sizeof *out);
    ref_value_embed(out, NULL, a->token, a->table, *a->scale, a->N, a->W);
}

TEST(test_value_embed)
{
    Run r = run_make();
    size_t N = 23, heads = 3, D = 4, W = heads * D, V = 7;
    const int32_t *token = run_ints(&r, "token", N, 0, (int)V);
    const float *dout = run_in(&r, "dout", N * W), *table = run_in(&r, "table", V * W), *scale = run_in(&r, "scale", 1);
    Values a = {N, W, token, run_wide(&r, run_in(&r, "v", N * W), N * W), run_wide(&r, table, V * W),
                run_wide(&r, scale, 1)};
    Functional l = functional(&r, values, &a, dout, N * W);
    double *row_ref = run_zeros(&r, N * W), *row_err = run_zeros(&r, N * W), s_ref = 0, s_err;
    double *t_ref = run_zeros(&r, V * W), *t_err = run_zeros(&r, V * W);
    float *drow = run_out(&r, N * W), dscale = 0, *dtable = run_narrow(&r, t_ref, V * W);
    r.dev->value_embed_backward(r.dev, XM(drow), &dscale, XC(dout), token, XC(table), XC(scale), N, heads, D, W);
    r.dev->embed_backward(r.dev, dtable, NULL, XC(drow), token, NULL, N, W, V);
    ref_value_embed_back(row_ref, row_err, &s_ref, &s_err, run_wide(&r, dout, N * W), token, a.table, *a.scale, N, W);
    ref_scatter(t_ref, t_err, row_ref, token, N, W, V);
    check_input(&r, "value embedding", &l, a.table, dtable, t_err, V * W);
    check_input(&r, "value embedding's scale", &l, a.scale, &dscale, &s_err, 1);
    run_end(&r);
}

// ---- norms; a head norm is an RMSNorm over rows of D
typedef struct {
    size_t N, C;
    NormKind kind;
    double *inp, *weight, *bias;
} Norm;

static void norm(double *out, void *args)
{
    Norm *a = args;
    ref_norm(out, NULL, NULL, a->inp, a->weight, a->bias, a->N, a->C, a->kind, EPS);
}

static void norm_case(NormKind kind, bool heads)
{
    Run r = run_make();
    size_t N = 6, C = 13; // or 2 rows of 3 heads of 13
    const float *inp = run_in(&r, "inp", N * C), *weight = run_in(&r, "weight", C),
                *dout = run_in(&r, "dout", N * C);
    Norm a = {N, C, kind, run_wide(&r, inp, N * C), run_wide(&r, weight, C), NULL};
    if (kind == NORM_LAYERNORM) a.bias = run_wide(&r, run_in(&r, "bias", C), C);
    Functional l = functional(&r, norm, &a, dout, N * C);
    double *dy = run_wide(&r, dout, N * C), *ref = run_zeros(&r, N * C), *err = run_zeros(&r, N * C);
    double *w_ref = run_zeros(&r, C), *w_err = run_zeros(&r, C), *b_ref = run_zeros(&r, C),
           *b_err = run_zeros(&r, C);
    float *mean = run_out(&r, N), *rstd = run_out(&r, N), *dinp = run_out(&r, N * C);
    float *dweight = run_narrow(&r, w_ref, C), *dbias = a.bias ? run_narrow(&r, b_ref, C) : NULL;
    double *ones = run_zeros(&r, N);
    for (size_t n = 0; n < N; n++) {
        RefMoments m = ref_moments(a.inp + n * C, C, kind, EPS);
        mean[n] = (float)m.mean, rstd[n] = (float)m.rstd, ones[n] = 1;
    }
    ref_norm_back(ref, err, w_ref, w_err, dy, a.inp, a.weight, N, C, kind, EPS);
    ref_outer_sum(b_ref, b_err, dy, ones, N, C, 1);
    if (heads)
        r.dev->head_norm_backward(r.dev, XM(dinp), dweight, XC(dout), XC(inp), rstd, XC(weight), N / 3, 3, C,
                                  3 * C);
    else
        r.dev->norm_backward(r.dev, XM(dinp), dweight, dbias, XC(dout), NULL, XC(inp), mean, rstd, XC(weight),
                             N, C, kind);
    check_input(&r, "norm inp", &l, a.inp, dinp, err, N * C);
    check_input(&r, "norm weight", &l, a.weight, dweight, w_err, C);
    if (dbias) check_input(&r, "norm bias", &l, a.bias, dbias, b_err, C);
    run_end(&r);
}

TEST(test_layernorm)
{
    norm_case(NORM_LAYERNORM, false);
}

TEST(test_rmsnorm)
{
    norm_case(NORM_RMSNORM, false);
}

TEST(test_head_norm)
{
    norm_case(NORM_RMSNORM, true);
}

// ---- rope
typedef struct {
    size_t N, heads, D;
    const int32_t *pos;
    double *x;
} Turn;

static void rope(double *out, void *args)
{
    Turn *a = args;
    memcpy(out, a->x, a->N * a->heads * a->D * sizeof *out);
    ref_rope(out, NULL, a->pos, a->N, a->heads, a->D, ROTARY, 1);
}

TEST(test_rope)
{
    Run r = run_make();
    size_t N = 5, heads = 2, D = 6, n = N * heads * D;
    const int32_t *pos = run_ints(&r, "pos", N, 0, 50);
    const float *dout = run_in(&r, "dout", n);
    Turn a = {N, heads, D, pos, run_wide(&r, run_in(&r, "x", n), n)};
    Functional l = functional(&r, rope, &a, dout, n);
    float *dx = run_copy(&r, dout, n);
    double *turned = run_wide(&r, dout, n), *err = run_zeros(&r, n);
    r.dev->rope_backward(r.dev, XM(dx), pos, N, heads, D, heads * D, ROTARY);
    ref_rope(turned, err, pos, N, heads, D, ROTARY, -1);
    check_input(&r, "rope", &l, a.x, dx, err, n);
    run_end(&r);
}

// ---- attention
typedef struct {
    AttnShape s;
    double *q, *k, *v;
} Attention;

static void attention(double *out, void *args)
{
    Attention *a = args;
    ref_attention(out, NULL, NULL, NULL, a->q, a->k, a->v, a->s);
}

static void attention_case(bool documents, float p, size_t window)
{
    Run r = run_make();
    AttnShape s = {.B = 2, .Tq = 70, .Tk = 70, .H = 4, .G = 2, .D = 6, .ldq = 24, .ldkv = 12,
                   .window = window};
    if (documents) s.first = run_documents(&r, s.B, s.Tq, 0);
    s.drop = (Dropout){.p = p, .rng = rng_make(6, "dropped", 2), .first = 3};
    size_t n_rows = s.B * s.Tq, n_q = n_rows * s.ldq, n_kv = n_rows * s.ldkv;
    const float *q = run_in(&r, "q", n_q), *k = run_in(&r, "k", n_kv), *v = run_in(&r, "v", n_kv);
    const float *dout = run_in(&r, "dout", n_q);
    Attention a = {s, run_wide(&r, q, n_q), run_wide(&r, k, n_kv), run_wide(&r, v, n_kv)};
    Functional l = functional(&r, attention, &a, dout, n_q);
    double *ref[3] = {run_zeros(&r, n_q), run_zeros(&r, n_kv), run_zeros(&r, n_kv)};
    double *err[3] = {run_zeros(&r, n_q), run_zeros(&r, n_kv), run_zeros(&r, n_kv)};
    ref_attention_back(ref[0], ref[1], ref[2], err[0], err[1], err[2], run_wide(&r, dout, n_q), a.q, a.k, a.v,
                       s);
    float *dq = run_out(&r, n_q), *dk = run_out(&r, n_kv), *dv = run_out(&r, n_kv);
    double *exact = run_zeros(&r, n_q), *exact_lse = run_zeros(&r, n_rows * s.H);
    ref_attention(exact, NULL, exact_lse, NULL, a.q, a.k, a.v, s);
    const float *out = run_narrow(&r, exact, n_q), *lse = run_narrow(&r, exact_lse, n_rows * s.H);
    r.dev->attention_backward(r.dev, XM(dq), XM(dk), XM(dv), XC(dout), XC(out), lse, XC(q), XC(k), XC(v), s);
    check_input(&r, "attention q", &l, a.q, dq, err[0], n_q);
    check_input(&r, "attention k", &l, a.k, dk, err[1], n_kv);
    check_input(&r, "attention v", &l, a.v, dv, err[2], n_kv);
    run_end(&r);
}

TEST(test_attention)
{
    attention_case(false, 0, 0);
}

TEST(test_attention_documents)
{
    attention_case(true, 0, 0);
}

TEST(test_attention_dropout)
{
    attention_case(false, 0.25f, 0);
    attention_case(true, 0.1f, 0);
}

TEST(test_attention_window)
{
    attention_case(false, 0, 2);
    attention_case(false, 0, 65);
    attention_case(true, 0.1f, 7);
}

// ---- softmax + cross-entropy: the functional is scale * (sum of the losses)
typedef struct {
    size_t N, V;
    const int32_t *target;
    double *logits, cap;
} Xent;

static void xent(double *out, void *args)
{
    Xent *a = args;
    ref_xent(out, NULL, NULL, NULL, a->logits, a->target, a->N, a->V, 1, a->cap);
}

static void xent_case(double cap)
{
    Run r = run_make();
    size_t N = 7, V = 19;
    float scale = 0.37f, c[7], loss[7];
    const int32_t *target = run_ints(&r, "target", N, -1, (int)V);
    const float *logits = run_in(&r, "logits", N * V);
    for (size_t n = 0; n < N; n++) c[n] = scale;
    Xent a = {N, V, target, run_wide(&r, logits, N * V), cap};
    Functional l = functional(&r, xent, &a, c, N);
    float *dlogits = run_out(&r, N * V);
    double *ref = run_zeros(&r, N * V), *err = run_zeros(&r, N * V), *loss_ref = run_zeros(&r, N);
    r.dev->softmax_xent(r.dev, loss, XM(dlogits), XC(logits), target, N, V, scale, (float)cap);
    ref_xent(loss_ref, NULL, ref, err, a.logits, target, N, V, scale, cap);
    check_input(&r, "xent", &l, a.logits, dlogits, err, N * V);
    run_end(&r);
}

TEST(test_xent)
{
    xent_case(0);
    xent_case(1.5);
}

// The method itself must see a gradient that is off by one part in a hundred in one element, and a NaN.
TEST(test_differences_see_an_error)
{
    Run r = run_make();
    size_t N = 5, F = 9, n = N * 2 * F;
    const float *gate_up = run_in(&r, "gate_up", n), *dout = run_in(&r, "dout", N * F);
    Swiglu a = {N, F, run_wide(&r, gate_up, n)};
    Functional l = functional(&r, swiglu, &a, dout, N * F);
    double *dx = run_zeros(&r, n), *err = run_zeros(&r, n), *way = run_zeros(&r, n),
           *origin = run_wide(&r, gate_up, n), size;
    ref_swiglu_back(dx, err, run_wide(&r, dout, N * F), a.gate_up, N, F);
    double want = 0, bound = 0;
    for (size_t i = 0; i < n; i++) {
        way[i] = rng_normal(rng_make(2, "way", 0), i);
        want += dx[i] * way[i];
        bound += fabs(way[i]) * err[i];
    }
    double twice = slope(&l, a.gate_up, origin, way, n, 2 * STEP, &size);
    double once = slope(&l, a.gate_up, origin, way, n, STEP, &size);
    bound += fabs(once - twice) + 1e4 * 0x1p-53 * size / STEP;
    assert_true(within(want, once, bound));
    assert_false(within(want + 0.01 * dx[3] * way[3], once, bound));
    assert_false(within(NAN, once, bound));
    run_end(&r);
}

// Adding the same number to all logits of a row changes nothing. In eighths, and 512 more, both are exact, so that not
// even a bit may change; without the subtraction of the maximum, e^512 would be infinite.
TEST(test_xent_of_large_logits)
{
    Run r = run_make();
    enum { N = 3, V = 19 };
    float low[N * V], high[N * V], loss[2][N], dlogits[2][N * V];
    const int32_t target[N] = {0, 7, V - 1};
    for (int i = 0; i < N * V; i++) {
        low[i] = (float)(i * 37 % 101) / 8;
        high[i] = low[i] + 512;
    }
    r.dev->softmax_xent(r.dev, loss[0], XM(dlogits[0]), XC(low), target, N, V, 1, 0);
    r.dev->softmax_xent(r.dev, loss[1], XM(dlogits[1]), XC(high), target, N, V, 1, 0);
    for (int n = 0; n < N; n++) assert_true(loss[0][n] > 0 && loss[0][n] < 20);
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
    assert_memory_equal(dlogits[0], dlogits[1], sizeof dlogits[0]);
    run_end(&r);
}

// ---- mixture of experts: the choice stays as it is. The functional is sum of weights dgate, of even_scale even P, and
// of z lse^2
typedef struct {
    size_t N;
    DevRouter r;
    const int32_t *choice;
    double *logits;
} Route;

static void route(double *out, void *args)
{
    Route *a = args;
    size_t N = a->N, E = a->r.E, k = a->r.k;
    for (size_t n = 0; n < N; n++) {
        double s[64], chosen = 0, sum = 0, total = 0;
        ref_scores(s, a->logits + n * E, a->r);
        for (size_t j = 0; j < k; j++) chosen += s[a->choice[n * k + j]];
        for (size_t e = 0; e < E; e++) sum += s[e], total += exp(a->logits[n * E + e]);
        for (size_t j = 0; j < k; j++)
            out[n * k + j] = a->r.scale * s[a->choice[n * k + j]] / (a->r.renorm ? chosen : 1);
        for (size_t e = 0; e < E; e++) out[N * k + n * E + e] = s[e] / sum;
        out[N * (k + E) + n] = log(total) * log(total);
    }
}

static void route_case(bool sigmoid, bool renorm, float balance, float z)
{
    Run r = run_make();
    enum { N = 12, T = 4, E = 9, K = 3 };
    DevRouter router = {.E = E, .k = K, .sigmoid = sigmoid, .renorm = renorm, .scale = 1.7f};
    int32_t *choice = run_room(&r, N * K * sizeof *choice);
    ref_random_choice(choice, N, K, E);
    const float *logits = run_in(&r, "logits", N * E), *dgate = run_in(&r, "dgate", N * K);
    const float *even = run_in(&r, "even", N / T * E);
    Route a = {N, router, choice, run_wide(&r, logits, N * E)};
    float *c = run_out(&r, N * (K + E + 1)), *dx = run_out(&r, N * E);
    memcpy(c, dgate, N * K * sizeof *c);
    for (size_t i = 0; i < N * E; i++) c[N * K + i] = balance * even[i / (T * E) * E + i % E];
    for (size_t i = 0; i < N; i++) c[N * (K + E) + i] = z;
    Functional l = functional(&r, route, &a, c, N * (K + E + 1));
    double *ref = run_zeros(&r, N * E), *err = run_zeros(&r, N * E);
    r.dev->route_backward(r.dev, dx, dgate, logits, choice, balance != 0 ? even : NULL, balance, z, N, T, router);
    for (size_t n = 0; n < N; n++)
        dev_check_route_backward(ref + n * E, err + n * E, dgate + n * K, logits + n * E, choice + n * K,
                                 balance != 0 ? even + n / T * E : NULL, balance, z, router);
    for (size_t i = 0; i < N * E; i++) err[i] += 2 * U * fabs(balance); // of c, a rounded product
    check_input(&r, "route logits", &l, a.logits, dx, err, N * E);
    run_end(&r);
}

TEST(test_route)
{
    for (int i = 0; i < 4; i++) {
        route_case(i & 1, i & 2, 0, 0);
        route_case(i & 1, i & 2, 0.5f, 0);
        route_case(i & 1, i & 2, 0, 0.25f);
        route_case(i & 1, i & 2, 0.5f, 0.25f);
    }
}

typedef struct {
    size_t R, F;
    const int32_t *slot;
    double *gate_up, *gate;
} Weighted;

static void weighted(double *out, void *args)
{
    Weighted *a = args;
    ref_experts_swiglu(out, a->gate_up, a->gate, a->slot, a->R, a->F);
}

TEST(test_experts_swiglu)
{
    Run r = run_make();
    enum { R = 6, F = 9 };
    static const int32_t slot[R] = {3, 0, 5, 1, -1, -1};
    const float *gate_up = run_in(&r, "gate_up", R * 2 * F), *gate = run_in(&r, "gate", R);
    const float *dout = run_in(&r, "dout", R * F);
    Weighted a = {R, F, slot, run_wide(&r, gate_up, R * 2 * F), run_wide(&r, gate, R)};
    Functional l = functional(&r, weighted, &a, dout, R * F);
    float *dx = run_out(&r, R * 2 * F), *dgate = run_narrow(&r, run_zeros(&r, R), R);
    double *ref = run_zeros(&r, R * 2 * F), *err = run_zeros(&r, R * 2 * F), *dy = run_wide(&r, dout, R * F);
    double *g_err = run_zeros(&r, R);
    for (size_t i = 0; i < R * F; i++) {
        double x = a.gate_up[i / F * 2 * F + i % F], up = a.gate_up[i / F * 2 * F + F + i % F];
        if (slot[i / F] >= 0) g_err[slot[i / F]] += (gam(F) + (FN + 6) * U) * fabs(dy[i] * x * ref_sigmoid(x) * up);
        dy[i] *= slot[i / F] < 0 ? 0 : 2 * gate[slot[i / F]]; // twice the bound: one product more
    }
    ref_swiglu_back(ref, err, dy, a.gate_up, R, F);
    r.dev->experts_swiglu_backward(r.dev, XM(dx), dgate, XC(dout), XC(gate_up), gate, slot, R, F);
    check_input(&r, "experts swiglu", &l, a.gate_up, dx, err, R * 2 * F);
    check_input(&r, "experts swiglu gate", &l, a.gate, dgate, g_err, R);
    run_end(&r);
}

TEST(test_router)
{
    Run r = run_make();
    size_t N = 12, C = 11, E = 7;
    const float *inp = run_in(&r, "inp", N * C), *weight = run_in(&r, "weight", E * C), *dz = run_in(&r, "dz", N * E);
    Matmul a = {N, C, E, run_wide(&r, inp, N * C), run_wide(&r, weight, E * C), NULL, false};
    Functional l = functional(&r, matmul, &a, dz, N * E);
    double *ref = run_zeros(&r, N * C), *err = run_zeros(&r, N * C), *w_ref = run_zeros(&r, E * C);
    double *w_err = run_zeros(&r, E * C), *dy = run_wide(&r, dz, N * E);
    float *dinp = run_narrow(&r, ref, N * C), *dweight = run_narrow(&r, w_ref, E * C);
    ref_matmul_back_input(ref, err, dy, a.weight, N, C, E);
    ref_outer_sum(w_ref, w_err, dy, a.inp, N, E, C);
    r.dev->router_backward(r.dev, XM(dinp), dweight, dz, XC(inp), XC(weight), N, C, E);
    check_input(&r, "router inp", &l, a.inp, dinp, err, N * C);
    check_input(&r, "router weight", &l, a.weight, dweight, w_err, E * C);
    run_end(&r);
}

TESTS(NULL, NULL)
