// ops_ref: every op of src/ops/dev.h again, in double and in plain loops, each with the error that fp32 may
// make. Tests only.
//
// `err` bounds |fp32 result - true result| element by element, computed from the data, for any order of
// summation:
//
//   u = 2^-24                        one rounding: fl(x) = x (1 + d), |d| <= u
//   gam(n) = n u / (1 - n u)         a sum of n products errs by at most gam(n) sum |a_i b_i|
//                                    (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1)
//   FN u                             exp, log, sqrt, tanh, sin, cos: at most 4 ULP, that is 8 u, off
//
// Errors of intermediates are carried to the output by the derivative of what follows; products of two
// errors (u^2) are dropped, and the small constants are rounded up to cover them. Inputs are exact: they
// are float32 numbers.
#ifndef OPS_REF_H
#define OPS_REF_H
#include "ops/dev.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24
enum { FN = 8 };

static inline double gam(size_t n)
{
    return (double)n * U / (1 - (double)n * U);
}

// ---- matmul: err may be NULL everywhere
static inline void ref_matmul(double *out, double *err, const double *inp, const double *weight,
                              const double *bias, size_t N, size_t C, size_t OC)
{
    for (size_t n = 0; n < N; n++)
        for (size_t o = 0; o < OC; o++) {
            double sum = bias ? bias[o] : 0, size = fabs(sum);
            for (size_t c = 0; c < C; c++) {
                double term = inp[n * C + c] * weight[o * C + c];
                sum += term;
                size += fabs(term);
            }
            out[n * OC + o] = sum;
            if (err) err[n * OC + o] = gam(C + 1) * size;
        }
}

static inline void ref_matmul_back_input(double *dinp, double *err, const double *dout, const double *weight,
                                         size_t N, size_t C, size_t OC)
{
    for (size_t n = 0; n < N; n++)
        for (size_t c = 0; c < C; c++) {
            double sum = 0, size = 0;
            for (size_t o = 0; o < OC; o++) {
                double term = dout[n * OC + o] * weight[o * C + c];
                sum += term;
                size += fabs(term);
            }
            dinp[n * C + c] = sum;
            err[n * C + c] = gam(OC) * size;
        }
}

// grad (I, J) += a^T b, where a is (N, I) and b is (N, J). The start counts as one more term.
static inline void ref_outer_sum(double *grad, double *err, const double *a, const double *b, size_t N,
                                 size_t I, size_t J)
{
    for (size_t i = 0; i < I; i++)
        for (size_t j = 0; j < J; j++) {
            double sum = grad[i * J + j], size = fabs(sum);
            for (size_t n = 0; n < N; n++) {
                sum += a[n * I + i] * b[n * J + j];
                size += fabs(a[n * I + i] * b[n * J + j]);
            }
            grad[i * J + j] = sum;
            err[i * J + j] = gam(N + 1) * size;
        }
}

// ---- gelu(x) = x s, s = (1 + tanh z) / 2 = 1 / (1 + e^-2z), z = A (x + B x^3)
#define GELU_A 0.79788456080286535588 // sqrt(2 / pi)
#define GELU_B 0.044715

static inline double ref_gelu(double x)
{
    return 0.5 * x * (1 + tanh(GELU_A * (x + GELU_B * x * x * x)));
}

// z carries 6 roundings of terms of one sign, so |dz| <= 6 u |z|, which moves s by |z| s (1 - s) 12 u <=
// 1.4 u; the function itself adds FN u s (1 - s) <= 2 u, its addition and division 2 u s. All told |ds| <=
// 5.4 u <= 6.5 u, and x s rounds twice.
static inline double ref_gelu_err(double x)
{
    return 9 * U * fabs(x);
}

// gelu'(x) = s + 2 x s (1 - s) z'. |ds| <= 6.5 u; 2 s (1 - s) = (1 - t^2) / 2 moves by |t| |dt| <= 13 u,
// and six roundings.
static inline double ref_gelu_grad(double x, double *err)
{
    double t = tanh(GELU_A * (x + GELU_B * x * x * x)), slope = GELU_A * (1 + 3 * GELU_B * x * x);
    *err = U * (8 + 17 * fabs(x) * slope);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
}

// ---- swiglu
static inline double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// s = sigmoid(gate) errs by (FN + 2) u relative; two products follow.
static inline void ref_swiglu(double *out, double *err, const double *gate_up, size_t N, size_t F)
{
    for (size_t n = 0; n < N; n++)
        for (size_t f = 0; f < F; f++) {
            double gate = gate_up[n * 2 * F + f], up = gate_up[n * 2 * F + F + f];
            double y = gate * ref_sigmoid(gate) * up;
            out[n * F + f] = y;
            if (err) err[n * F + f] = (FN + 5) * U * fabs(y);
        }
}

// dgate = dout up s (1 + gate (1 - s)): 1 - s errs by (FN + 3) u absolutely, hence the term in |gate|.
static inline void ref_swiglu_back(double *dgate_up, double *err, const double *dout, const double *gate_up,
                                   size_t N, size_t F)
{
    for (size_t n = 0; n < N; n++)
        for (size_t f = 0; f < F; f++) {
            size_t g = n * 2 * F + f, u = g + F;
            double gate = gate_up[g], s = ref_sigmoid(gate), d = dout[n * F + f];
            dgate_up[g] = d * gate_up[u] * s * (1 + gate * (1 - s));
            dgate_up[u] = d * gate * s;
            err[g] = (2 * FN + 10) * U * fabs(d * gate_up[u]) * s * (1 + fabs(gate));
            err[u] = (FN + 5) * U * fabs(dgate_up[u]);
        }
}

// ---- embedding: one addition; backward sums at most N rows onto the start
static inline void ref_embed(double *out, double *err, const int32_t *token, const int32_t *pos,
                             const double *wte, const double *wpe, size_t N, size_t C)
{
    for (size_t n = 0; n < N; n++)
        for (size_t c = 0; c < C; c++) {
            double sum = wte[(size_t)token[n] * C + c] + (wpe ? wpe[(size_t)pos[n] * C + c] : 0);
            out[n * C + c] = sum;
            if (err) err[n * C + c] = wpe ? U * fabs(sum) : 0;
        }
}

static inline void ref_scatter(double *grad, double *err, const double *dout, const int32_t *index,
                               size_t N, size_t C, size_t rows)
{
    for (size_t i = 0; i < rows * C; i++) err[i] = fabs(grad[i]);
    for (size_t n = 0; n < N; n++)
        for (size_t c = 0; c < C; c++) {
            grad[(size_t)index[n] * C + c] += dout[n * C + c];
            err[(size_t)index[n] * C + c] += fabs(dout[n * C + c]);
        }
    for (size_t i = 0; i < rows * C; i++) err[i] *= gam(N + 1);
}

// ---- norms of rows of C. The mean errs by dm = gam(C + 1) mean|x|. With c = x - mean, the variance
// mean(c^2) errs by gam(C + 5) var + dm^2, because sum c = 0 cancels dm to first order (this asks for the
// two-pass variance: E x^2 - mean^2 would lose digits when |mean| is large). rstd then errs by half that,
// relative to var + eps, and 4 u of its own.
typedef struct {
    double mean, mean_err, rstd, rstd_rel;
} RefMoments;

static inline RefMoments ref_moments(const double *x, size_t C, NormKind kind, double eps)
{
    RefMoments r = {0};
    double size = 0, var = 0;
    for (size_t c = 0; kind == NORM_LAYERNORM && c < C; c++) {
        r.mean += x[c] / (double)C;
        size += fabs(x[c]) / (double)C;
    }
    r.mean_err = gam(C + 1) * size;
    for (size_t c = 0; c < C; c++) var += (x[c] - r.mean) * (x[c] - r.mean) / (double)C;
    r.rstd = 1 / sqrt(var + eps);
    r.rstd_rel = 0.5 * (gam(C + 5) * var + r.mean_err * r.mean_err) / (var + eps) + 4 * U;
    return r;
}

static inline void ref_norm(double *out, double *err, RefMoments *moments, const double *inp,
                            const double *weight, const double *bias, size_t N, size_t C, NormKind kind,
                            double eps)
{
    for (size_t n = 0; n < N; n++) {
        RefMoments r = ref_moments(inp + n * C, C, kind, eps);
        if (moments) moments[n] = r;
        for (size_t c = 0; c < C; c++) {
            double x = inp[n * C + c] - r.mean, y = weight[c] * x * r.rstd, b = bias ? bias[c] : 0;
            out[n * C + c] = y + b;
            if (err) err[n * C + c] = fabs(weight[c]) * r.rstd * r.mean_err + fabs(y) * (r.rstd_rel + 4 * U)
                                      + U * fabs(y + b);
        }
    }
}

// dinp = rstd (g - mean(g) - xhat mean(g xhat)), g = dout weight; RMSNorm has no mean(g). mean and rstd
// come in rounded to float32, so xhat errs by e = rstd u (|mean| + |x - mean|) + 3 u |xhat|. dweight +=
// dout xhat.
static inline void ref_norm_back(double *dinp, double *dinp_err, double *dweight, double *dweight_err,
                                 const double *dout, const double *inp, const double *weight, size_t N,
                                 size_t C, NormKind kind, double eps)
{
    for (size_t c = 0; c < C; c++) dweight_err[c] = gam(N + 3) * fabs(dweight[c]);
    for (size_t n = 0; n < N; n++) {
        RefMoments r = ref_moments(inp + n * C, C, kind, eps);
        const double *x = inp + n * C, *dy = dout + n * C;
        double g_mean = 0, g_size = 0, gn_mean = 0, gn_err = 0;
        for (size_t c = 0; c < C; c++) {
            double xc = x[c] - r.mean, xhat = xc * r.rstd, g = dy[c] * weight[c];
            double e = r.rstd * U * (fabs(r.mean) + fabs(xc)) + 3 * U * fabs(xhat);
            if (kind == NORM_LAYERNORM) g_mean += g / (double)C, g_size += fabs(g) / (double)C;
            gn_mean += g * xhat / (double)C;
            gn_err += (gam(C + 3) * fabs(g * xhat) + fabs(g) * e) / (double)C;
            dweight[c] += dy[c] * xhat;
            dweight_err[c] += gam(N + 3) * fabs(dy[c] * xhat) + fabs(dy[c]) * e;
        }
        for (size_t c = 0; c < C; c++) {
            double xc = x[c] - r.mean, xhat = xc * r.rstd, g = dy[c] * weight[c];
            double e = r.rstd * U * (fabs(r.mean) + fabs(xc)) + 3 * U * fabs(xhat);
            dinp[n * C + c] = r.rstd * (g - g_mean - xhat * gn_mean);
            dinp_err[n * C + c] = r.rstd * (6 * U * (fabs(g) + fabs(g_mean) + fabs(xhat * gn_mean))
                                            + gam(C + 3) * g_size + fabs(xhat) * gn_err + e * fabs(gn_mean));
        }
    }
}

// ---- rope, in place on x (N, heads, D) without gaps. sign +1 forward, -1 backward. cos and sin of an
// angle taken in double are rounded once (u); two products and an addition follow: 4 u (|a| + |b|) is
// enough for each output, times the amplitude.
static inline void ref_rope(double *x, double *err, const int32_t *pos, size_t N, size_t heads, size_t D,
                            Rope rope, double sign)
{
    for (size_t i = 0; i < N * heads; i++)
        for (size_t d = 0; d < D / 2; d++) {
            double angle = sign * pos[i / heads] * rope_frequency(&rope, d, D), amplitude = rope_amplitude(&rope);
            double *lo = x + i * D + d, *hi = lo + D / 2, a = amplitude * *lo, b = amplitude * *hi;
            *lo = a * cos(angle) - b * sin(angle);
            *hi = b * cos(angle) + a * sin(angle);
            if (err) err[lo - x] = err[hi - x] = 4 * U * (fabs(a) + fabs(b));
        }
}

// ---- attention. Score s_j = q k_j / sqrt(D) errs by es_j = gam(D + 2) sum |q k_j| / sqrt(D). exp(s_j - m)
// then errs, relatively, by e_j = es_j + 2 u (|s_j| + |m|) + FN u; an error of m cancels in the quotient;
// each tile of at least 16 keys rescales sum and output once (2 u a tile). out = sum p v / sum p. Dropout
// multiplies p by 0 or 1 / (1 - p), which rounds three times. Keys are counted from `first`, the first that
// the query sees.
typedef struct {
    double *p, *e, *keep; // (Tk) probability, its relative error, and what dropout multiplies it by
    double lse, lse_err;
    size_t first, n;      // visible keys: first .. first + n - 1
    double drop_err;      // relative, of p * keep
} RefRow;

static inline double ref_keep(Dropout drop, uint64_t element)
{
    if (!(drop.p > 0)) return 1;
    uint32_t word[4];
    rng_words(drop.rng, element / 4, word);
    return word[element % 4] >= 4294967296.0 * drop.p ? 1 / (1 - (double)drop.p) : 0;
}

// The keys of query t of head h of sequence b.
static inline void ref_row_keys(RefRow *r, AttnShape s, size_t b, size_t h, size_t t)
{
    r->first = s.first ? (size_t)s.first[b * s.Tq + t] : 0;
    if (s.window && r->first + s.window < s.q_start + t + 1) r->first = s.q_start + t + 1 - s.window;
    r->n = s.q_start + t + 1 - r->first;
    r->drop_err = s.drop.p > 0 ? 3 * U : 0;
    uint64_t row = ((s.drop.first + b) * s.H + h) * s.Tq + t;
    for (size_t j = 0; j < r->n; j++) r->keep[j] = ref_keep(s.drop, row * s.Tk + r->first + j);
}

static inline void ref_attention_row(RefRow *r, const double *q, const double *k, AttnShape s)
{
    double top = -INFINITY, sum = 0, root = sqrt((double)s.D);
    for (size_t j = 0; j < r->n; j++) {
        double dot = 0, size = 0;
        for (size_t d = 0; d < s.D; d++) {
            dot += q[d] * k[j * s.ldkv + d];
            size += fabs(q[d] * k[j * s.ldkv + d]);
        }
        r->p[j] = dot / root;
        r->e[j] = gam(s.D + 2) * size / root;
        if (r->p[j] > top) top = r->p[j];
    }
    for (size_t j = 0; j < r->n; j++) {
        r->e[j] += 2 * U * (fabs(r->p[j]) + fabs(top)) + FN * U + 2 * U * (double)((r->n + 15) / 16);
        r->p[j] = exp(r->p[j] - top);
        sum += r->p[j];
    }
    r->lse = top + log(sum);
    r->lse_err = gam(r->n + 2) + FN * U * fabs(log(sum)) + 2 * U * (fabs(top) + fabs(r->lse));
    for (size_t j = 0; j < r->n; j++) {
        r->p[j] /= sum;
        r->lse_err += r->p[j] * r->e[j];
    }
}

static inline RefRow ref_row_make(AttnShape s)
{
    RefRow r = {.p = (double *)malloc(s.Tk * sizeof(double)), .e = (double *)malloc(s.Tk * sizeof(double)),
                .keep = (double *)malloc(s.Tk * sizeof(double))};
    if (!r.p || !r.e || !r.keep) abort();
    return r;
}

static inline void ref_row_free(RefRow *r)
{
    free(r->p), free(r->e), free(r->keep);
}

// err, lse and lse_err may be NULL.
static inline void ref_attention(double *out, double *err, double *lse, double *lse_err, const double *q,
                                 const double *k, const double *v, AttnShape s)
{
    RefRow r = ref_row_make(s);
    for (size_t i = 0; i < s.B * s.Tq * s.H; i++) {
        size_t h = i % s.H, t = i / s.H % s.Tq, b = i / s.H / s.Tq;
        ref_row_keys(&r, s, b, h, t);
        size_t kv = (b * s.Tk + r.first) * s.ldkv + h / (s.H / s.G) * s.D, stat = (b * s.H + h) * s.Tq + t;
        ref_attention_row(&r, q + (b * s.Tq + t) * s.ldq + h * s.D, k + kv, s);
        double common = gam(r.n + 2) + 2 * U;
        for (size_t j = 0; j < r.n; j++) common += r.p[j] * r.e[j];
        for (size_t d = 0; d < s.D; d++) {
            double sum = 0, e = 0;
            for (size_t j = 0; j < r.n; j++) {
                double term = r.p[j] * r.keep[j] * v[kv + j * s.ldkv + d];
                sum += term;
                e += fabs(term) * (r.e[j] + gam(r.n + 2) + r.drop_err);
            }
            out[i * s.D + d] = sum;
            if (err) err[i * s.D + d] = e + fabs(sum) * common;
        }
        if (lse) lse[stat] = r.lse;
        if (lse_err) lse_err[stat] = r.lse_err;
    }
    ref_row_free(&r);
}

// dS = P (dP - delta) / sqrt(D), dP = K dout v, delta = sum dout out; dq = dS k, dk = dS q, dv = P K dout (K:
// dropout), the last two summed over the queries of all heads of a group. delta is taken from its definition,
// sum P dP. lse and out come in rounded to float32. dq, dk, dv and their errors must start at zero.
static inline void ref_attention_back(double *dq, double *dk, double *dv, double *eq, double *ek, double *ev,
                                      const double *dout, const double *q, const double *k, const double *v,
                                      AttnShape s)
{
    RefRow r = ref_row_make(s);
    double root = sqrt((double)s.D), sum_q = gam(s.Tk + 4), sum_kv = gam(s.Tq * (s.H / s.G) + 4);
    for (size_t i = 0; i < s.B * s.Tq * s.H; i++) {
        size_t h = i % s.H, t = i / s.H % s.Tq, b = i / s.H / s.Tq;
        ref_row_keys(&r, s, b, h, t);
        size_t kv = (b * s.Tk + r.first) * s.ldkv + h / (s.H / s.G) * s.D, at = (b * s.Tq + t) * s.ldq + h * s.D;
        const double *dy = dout + i * s.D;
        ref_attention_row(&r, q + at, k + kv, s);
        double delta = 0, delta_err = 0;
        for (size_t d = 0; d < s.D; d++) {
            double o = 0;
            for (size_t j = 0; j < r.n; j++) {
                double term = r.p[j] * r.keep[j] * v[kv + j * s.ldkv + d];
                o += term;
                delta += dy[d] * term; // of sum_j P_j dP_j
            }
            delta_err += (gam(s.D) + U) * fabs(dy[d] * o);
        }
        for (size_t j = 0; j < r.n; j++) {
            size_t row = kv + j * s.ldkv;
            double dp = 0, dp_err = 0, rel = r.e[j] + 2 * U * fabs(r.lse) + 2 * U;
            for (size_t d = 0; d < s.D; d++) {
                dp += r.keep[j] * dy[d] * v[row + d];
                dp_err += r.keep[j] * (gam(s.D) + r.drop_err) * fabs(dy[d] * v[row + d]);
            }
            double ds = r.p[j] * (dp - delta) / root;
            double ds_err = r.p[j] * (dp_err + delta_err + 2 * U * (fabs(dp) + fabs(delta))) / root +
                            fabs(ds) * (rel + 4 * U);
            for (size_t d = 0; d < s.D; d++) {
                dq[at + d] += ds * k[row + d];
                eq[at + d] += (ds_err + sum_q * fabs(ds)) * fabs(k[row + d]);
                dk[row + d] += ds * q[at + d];
                ek[row + d] += (ds_err + sum_kv * fabs(ds)) * fabs(q[at + d]);
                dv[row + d] += r.p[j] * r.keep[j] * dy[d];
                ev[row + d] += r.p[j] * r.keep[j] * fabs(dy[d]) * (rel + sum_kv + r.drop_err);
            }
        }
    }
    ref_row_free(&r);
}

// ---- softmax + cross-entropy: as a row of attention with exact scores. dlogits and the errors may be NULL. With a cap,
// the scores are c = cap tanh(z / cap), off by (FN + 2) u |c|, and the slope dc / dz = 1 - (c / cap)^2 by (2 FN + 10) u.
static inline void ref_xent(double *loss, double *loss_err, double *dlogits, double *dlogits_err,
                            const double *logits, const int32_t *target, size_t N, size_t V, double scale, double cap)
{
#define CAPPED(x) (cap > 0 ? cap * tanh((x) / cap) : (x))
    double of_cap = cap > 0 ? (FN + 2) * U : 0;
    for (size_t n = 0; n < N; n++) {
        const double *row = logits + n * V;
        double top = -INFINITY, sum = 0, e_sum = gam(V + 2);
        for (size_t v = 0; v < V; v++) top = fmax(top, CAPPED(row[v]));
        for (size_t v = 0; v < V; v++) sum += exp(CAPPED(row[v]) - top);
        for (size_t v = 0; v < V; v++) {
            double z = CAPPED(row[v]);
            e_sum += exp(z - top) / sum * ((2 * U + of_cap) * (fabs(z) + fabs(top)) + FN * U);
        }
        bool counted = target[n] >= 0;
        double z_target = counted ? CAPPED(row[target[n]]) : 0;
        loss[n] = counted ? top + log(sum) - z_target : 0;
        if (loss_err)
            loss_err[n] = counted ? e_sum + FN * U * fabs(log(sum)) + (3 * U + of_cap) * (fabs(top) + fabs(z_target)) +
                                        U * loss[n]
                                  : 0;
        for (size_t v = 0; dlogits && v < V; v++) {
            double z = CAPPED(row[v]), slope = cap > 0 ? 1 - z / cap * (z / cap) : 1, p = exp(z - top) / sum;
            double e = (2 * U + of_cap) * (fabs(z) + fabs(top)) + FN * U + e_sum + 3 * U;
            double d = counted ? scale * (p - (target[n] == (int32_t)v)) : 0;
            dlogits[n * V + v] = d * slope;
            dlogits_err[n * V + v] = counted ? (fabs(scale) * p * e + U * fabs(d)) * slope : 0;
            if (cap > 0) dlogits_err[n * V + v] += fabs(d) * (2 * FN + 10) * U;
        }
    }
#undef CAPPED
}

// ---- AdamW, one element. w, m, v hold the state before and after; err holds their three errors. The
// update d = mhat / (sqrt(vhat) + eps): errors of m, v and of the two corrections (2 u each) carried
// through. With l2 the decay is part of g, whose terms may cancel: g_err.
static inline void ref_adamw(double *w, double *m, double *v, double err[3], double grad, Update h, bool l2)
{
    double pull = l2 ? h.weight_decay * *w : 0, g_err = l2 ? 3 * U * (fabs(grad * h.grad_scale) + fabs(pull)) : 0;
    double g = grad * h.grad_scale + pull, c1 = 1 / (1 - pow(h.beta1, h.step)), c2 = 1 / (1 - pow(h.beta2, h.step));
    double m_size = fabs(h.beta1 * *m) + fabs((1 - h.beta1) * g);
    *m = h.beta1 * *m + (1 - (double)h.beta1) * g;
    *v = h.beta2 * *v + (1 - (double)h.beta2) * g * g;
    err[1] = 4 * U * m_size + (1 - h.beta1) * g_err;
    err[2] = 6 * U * *v + (1 - h.beta2) * 2 * fabs(g) * g_err; // all terms are positive
    double root = sqrt(*v * c2), d = *m * c1 / (root + h.eps);
    double d_err = (err[1] + 3 * U * fabs(*m)) * c1 / (root + h.eps) + fabs(d) * (0.5 * 3 * U + (FN + 4) * U);
    d_err += *v > 0 ? fabs(d) * 0.5 * err[2] / *v : 0;
    err[0] = h.lr * (d_err + 2 * U * fabs(d)) + 4 * U * fabs(*w);
    if (h.cautious && fabs(*m) <= err[1]) err[0] += h.lr * h.weight_decay * fabs(*w); // the sign may be either
    bool decays = !l2 && !(h.cautious && *m * *w < 0);
    *w = *w * (decays ? 1 - (double)h.lr * h.weight_decay : 1) - h.lr * d;
    err[0] += U * fabs(*w);
}

#endif
