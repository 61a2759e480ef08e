// Token by token from the last to the first, in double, with ops of its own; what forward kept is not read but computed
// again.
#include "block.h"

enum { MOST = 4096 };

static void back(double *dinp, float *dw, const double *dout, const double *inp, const float *w, size_t I, size_t O)
{
    for (size_t i = 0; i < I; i++)
        for (size_t o = 0; o < O; o++) {
            dinp[i] += dout[o] * w[o * I + i];
            dw[o * I + i] += (float)(dout[o] * inp[i]);
        }
}

static void times(double *out, const double *inp, const float *w, size_t I, size_t O)
{
    for (size_t o = 0; o < O; o++) {
        out[o] = 0;
        for (size_t i = 0; i < I; i++) out[o] += inp[i] * w[o * I + i];
    }
}

static double norm(double *out, const double *x, const float *w, size_t C)
{
    double sum = 0;
    for (size_t c = 0; c < C; c++) sum += x[c] * x[c] / (double)C;
    for (size_t c = 0; c < C; c++) out[c] = x[c] * w[c] / sqrt(sum + 1e-5);
    return 1 / sqrt(sum + 1e-5);
}

static void norm_back(double *dx, float *dw, const double *dout, const double *x, double rstd, const float *w, size_t C)
{
    double along = 0;
    for (size_t c = 0; c < C; c++) along += dout[c] * w[c] * x[c];
    for (size_t c = 0; c < C; c++) {
        dx[c] += rstd * dout[c] * w[c] - x[c] * pow(rstd, 3) * along / (double)C;
        dw[c] += (float)(dout[c] * x[c] * rstd);
    }
}

static double gelu(double u)
{
    return u / (1 + exp(-2 * 0.7978845608028654 * (u + 0.044715 * u * u * u)));
}

void block_backward(float *dx, float *const *grad, const float *dy, const float *x, float *const *w,
                    const BlockSaved *s, BlockShape b)
{
    static double n1[MOST], q[MOST], k[MOST], v[MOST], dn[MOST], dk[MOST], dv[MOST], in[MOST], dr[MOST], rstd1[MOST];
    size_t T = b.T, C = b.C, F = b.F;
    (void)s;
    memset(dk, 0, sizeof dk), memset(dv, 0, sizeof dv);
    for (size_t i = 0; i < T * C; i++) in[i] = x[i], dr[i] = dy[i];
    for (size_t t = 0; t < T; t++) {
        double *n = n1 + t * C;
        rstd1[t] = norm(n, in + t * C, w[NORM1], C);
        times(q + t * C, n, w[WQ], C, C), times(k + t * C, n, w[WK], C, C), times(v + t * C, n, w[WV], C, C);
    }
    for (size_t t = T; t-- > 0;) {
        double p[MOST], a[MOST] = {0}, r[MOST], n2[MOST], u[MOST], h[MOST], dh[MOST] = {0}, dn2[MOST] = {0}, sum = 0;
        double da[MOST] = {0}, dq[MOST] = {0}, mean = 0, *own = dr + t * C, scale = 1 / sqrt((double)C);
        for (size_t j = 0; j <= t; j++) {
            p[j] = 0;
            for (size_t c = 0; c < C; c++) p[j] += scale * q[t * C + c] * k[j * C + c];
            sum += p[j] = exp(p[j]);
        }
        for (size_t j = 0; j <= t; j++)
            for (size_t c = 0; c < C; c++) a[c] += p[j] / sum * v[j * C + c];
        times(r, a, w[WO], C, C);
        for (size_t c = 0; c < C; c++) r[c] += in[t * C + c];
        double rstd = norm(n2, r, w[NORM2], C);
        times(u, n2, w[W1], C, F);
        for (size_t f = 0; f < F; f++) h[f] = gelu(u[f]);
        back(dh, grad[W2], own, h, w[W2], F, C);
        for (size_t f = 0; f < F; f++) dh[f] *= (gelu(u[f] + 1e-5) - gelu(u[f] - 1e-5)) / 2e-5;
        back(dn2, grad[W1], dh, n2, w[W1], C, F);
        norm_back(own, grad[NORM2], dn2, r, rstd, w[NORM2], C);
        back(da, grad[WO], own, a, w[WO], C, C);
        for (size_t c = 0; c < C; c++) mean += da[c] * a[c];
        for (size_t j = 0; j <= t; j++) {
            double ds = -mean;
            for (size_t c = 0; c < C; c++) ds += da[c] * v[j * C + c];
            for (size_t c = 0; c < C; c++) {
                dv[j * C + c] += p[j] / sum * da[c];
                dk[j * C + c] += p[j] / sum * ds * scale * q[t * C + c];
                dq[c] += p[j] / sum * ds * scale * k[j * C + c];
            }
        }
        memset(dn, 0, C * sizeof *dn); // no later query is left that reads this token's key and value
        back(dn, grad[WV], dv + t * C, n1 + t * C, w[WV], C, C);
        back(dn, grad[WK], dk + t * C, n1 + t * C, w[WK], C, C);
        back(dn, grad[WQ], dq, n1 + t * C, w[WQ], C, C);
        norm_back(own, grad[NORM1], dn, in + t * C, rstd1[t], w[NORM1], C);
        for (size_t c = 0; c < C; c++) dx[t * C + c] = (float)own[c];
    }
}
