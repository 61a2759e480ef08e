// block: one pre-norm transformer block with one head, its forward pass and the ops that both passes are made of.
//
//   n1 = rmsnorm(x);  q, k, v = n1 wq^T, n1 wk^T, n1 wv^T;  a = attention(q, k, v);  r = x + a wo^T
//   n2 = rmsnorm(r);  u = n2 w1^T;  h = gelu(u);                                     y = r + h w2^T
//
// All backward functions ADD to every gradient that they are given (+=). T tokens, C channels, F the inner width.
#ifndef BLOCK_H
#define BLOCK_H
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// norm1, norm2 (C); wq, wk, wv, wo (C, C); w1 (F, C); w2 (C, F)
enum { NORM1, WQ, WK, WV, WO, NORM2, W1, W2, PARAMS };
typedef struct {
    size_t T, C, F;
} BlockShape;
// What forward keeps for backward: rstd1, rstd2 (T); p (T, T) the probabilities; u, h (T, F); the others (T, C).
typedef struct {
    float *n1, *rstd1, *q, *k, *v, *p, *a, *r, *n2, *rstd2, *u, *h;
} BlockSaved;

// The function to write. dy (T, C) is the gradient of y. Writes dx (T, C), whose contents are undefined before. Adds
// the gradients of the parameters to grad[NORM1], ... grad[W2], which have the parameters' shapes: those of earlier
// micro-batches are in there. x and weight are what forward read, s what it kept. Nothing else may be written.
void block_backward(float *dx, float *const *grad, const float *dy, const float *x, float *const *weight,
                    const BlockSaved *s, BlockShape b);

// n zeros, for gradients of activations. To be freed with free().
static inline float *zeros(size_t n)
{
    return (float *)calloc(n ? n : 1, sizeof(float));
}

// out (T, O) = inp (T, I) w^T, w (O, I)
static inline void matmul_forward(float *out, const float *inp, const float *w, size_t T, size_t I, size_t O)
{
    memset(out, 0, T * O * sizeof *out);
    for (size_t t = 0; t < T; t++)
        for (size_t o = 0; o < O; o++)
            for (size_t i = 0; i < I; i++) out[t * O + o] += inp[t * I + i] * w[o * I + i];
}
// dinp (T, I) += dout w, dw (O, I) += dout^T inp
static inline void matmul_backward(float *dinp, float *dw, const float *dout, const float *inp, const float *w,
                                   size_t T, size_t I, size_t O)
{
    for (size_t t = 0; t < T; t++)
        for (size_t o = 0; o < O; o++)
            for (size_t i = 0; i < I; i++) {
                dinp[t * I + i] += dout[t * O + o] * w[o * I + i];
                dw[o * I + i] += dout[t * O + o] * inp[t * I + i];
            }
}

// out = inp rstd w, rstd (T) = 1 / sqrt(mean of inp^2 + 1e-5)
static inline void rmsnorm_forward(float *out, float *rstd, const float *inp, const float *w, size_t T, size_t C)
{
    for (size_t t = 0; t < T; t++, inp += C, out += C) {
        float sum = 0;
        for (size_t c = 0; c < C; c++) sum += inp[c] * inp[c];
        rstd[t] = 1 / sqrtf(sum / (float)C + 1e-5f);
        for (size_t c = 0; c < C; c++) out[c] = inp[c] * rstd[t] * w[c];
    }
}
// dinp (T, C) +=, dw (C) +=; inp is what was normalised
static inline void rmsnorm_backward(float *dinp, float *dw, const float *dout, const float *inp, const float *rstd,
                                    const float *w, size_t T, size_t C)
{
    for (size_t t = 0; t < T; t++, inp += C, dinp += C, dout += C) {
        float mean = 0;
        for (size_t c = 0; c < C; c++) mean += dout[c] * w[c] * inp[c] * rstd[t] / (float)C;
        for (size_t c = 0; c < C; c++) {
            float normed = inp[c] * rstd[t];
            dw[c] += dout[c] * normed;
            dinp[c] += rstd[t] * (dout[c] * w[c] - normed * mean);
        }
    }
}

static inline void gelu_forward(float *out, const float *inp, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = inp[i];
        out[i] = 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
}
// dinp (n) += dout gelu'(inp)
static inline void gelu_backward(float *dinp, const float *dout, const float *inp, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float x = inp[i], t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
        dinp[i] += dout[i] * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 0.134145f * x * x));
    }
}

// a (T, C) = p v, where row t of p (T, T) is the softmax of q_t . k_j / sqrt(C) over j = 0 .. t, and 0 after that
static inline void attention_forward(float *a, float *p, const float *q, const float *k, const float *v, size_t T,
                                     size_t C)
{
    memset(a, 0, T * C * sizeof *a), memset(p, 0, T * T * sizeof *p);
    for (size_t t = 0; t < T; t++, p += T, a += C) {
        float top = -INFINITY, sum = 0;
        for (size_t j = 0; j <= t; j++) {
            for (size_t c = 0; c < C; c++) p[j] += q[t * C + c] * k[j * C + c] / sqrtf((float)C);
            top = fmaxf(top, p[j]);
        }
        for (size_t j = 0; j <= t; j++) sum += p[j] = expf(p[j] - top);
        for (size_t j = 0; j <= t; j++) {
            p[j] /= sum;
            for (size_t c = 0; c < C; c++) a[c] += p[j] * v[j * C + c];
        }
    }
}
// dq, dk, dv (T, C) += the gradients of q, k, v, given da (T, C), that of a
static inline void attention_backward(float *dq, float *dk, float *dv, const float *da, const float *p, const float *q,
                                      const float *k, const float *v, size_t T, size_t C)
{
    for (size_t t = 0; t < T; t++, p += T) {
        float mean = 0, root = sqrtf((float)C);
        for (size_t j = 0; j <= t; j++)
            for (size_t c = 0; c < C; c++) mean += p[j] * da[t * C + c] * v[j * C + c];
        for (size_t j = 0; j <= t; j++) {
            float dp = 0;
            for (size_t c = 0; c < C; c++) dp += da[t * C + c] * v[j * C + c];
            for (size_t c = 0; c < C; c++) {
                dv[j * C + c] += p[j] * da[t * C + c];
                dq[t * C + c] += p[j] * (dp - mean) * k[j * C + c] / root;
                dk[j * C + c] += p[j] * (dp - mean) * q[t * C + c] / root;
            }
        }
    }
}

// y (T, C) from x (T, C)
static inline void block_forward(float *y, BlockSaved *s, const float *x, float *const *weight, BlockShape b)
{
    size_t T = b.T, C = b.C;
    rmsnorm_forward(s->n1, s->rstd1, x, weight[NORM1], T, C);
    matmul_forward(s->q, s->n1, weight[WQ], T, C, C);
    matmul_forward(s->k, s->n1, weight[WK], T, C, C);
    matmul_forward(s->v, s->n1, weight[WV], T, C, C);
    attention_forward(s->a, s->p, s->q, s->k, s->v, T, C);
    matmul_forward(s->r, s->a, weight[WO], T, C, C);
    for (size_t i = 0; i < T * C; i++) s->r[i] += x[i];
    rmsnorm_forward(s->n2, s->rstd2, s->r, weight[NORM2], T, C);
    matmul_forward(s->u, s->n2, weight[W1], T, C, b.F);
    gelu_forward(s->h, s->u, T * b.F);
    matmul_forward(y, s->h, weight[W2], T, b.F, C);
    for (size_t i = 0; i < T * C; i++) y[i] += s->r[i];
}
#endif
