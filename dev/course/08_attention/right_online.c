// Online softmax in the forward pass, from the last token to the first; the backward pass computes the sum over the row
// first, and its outer loop is over keys.
#include "attention.h"

#include <math.h>
#include <stdlib.h>

static double dot(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = n; i-- > 0;) sum += (double)a[i] * b[i];
    return sum;
}

void attention_forward(float *out, float *prob, const float *q, const float *k, const float *v, size_t T, size_t H,
                       size_t D)
{
    for (size_t t = T; t-- > 0;)
        for (size_t h = 0; h < H; h++) {
            float *o = out + (t * H + h) * D, *p = prob + (h * T + t) * T;
            double sum = 0, top = -INFINITY;
            for (size_t d = 0; d < D; d++) o[d] = 0;
            for (size_t s = 0; s < T; s++) {
                p[s] = 0;
                if (s > t) continue;
                double score = dot(q + (t * H + h) * D, k + (s * H + h) * D, D) / sqrt((double)D);
                double higher = fmax(score, top), shrink = exp(top - higher), e = exp(score - higher);
                for (size_t r = 0; r < s; r++) p[r] *= (float)shrink;
                p[s] = (float)e;
                for (size_t d = 0; d < D; d++) o[d] = (float)(o[d] * shrink + e * v[(s * H + h) * D + d]);
                sum = sum * shrink + e, top = higher;
            }
            for (size_t d = 0; d < D; d++) o[d] /= (float)sum;
            for (size_t s = 0; s <= t; s++) p[s] /= (float)sum;
        }
}

void attention_backward(float *dq, float *dk, float *dv, const float *dout, const float *prob, const float *q,
                        const float *k, const float *v, size_t T, size_t H, size_t D)
{
    double *delta = calloc(T * H, sizeof *delta);
    for (size_t i = 0; i < T * H; i++)
        for (size_t s = 0; s <= i / H; s++)
            delta[i] += prob[(i % H * T + i / H) * T + s] * dot(dout + i * D, v + (s * H + i % H) * D, D);
    for (size_t i = 0; i < T * H * D; i++) dq[i] = 0;
    for (size_t j = 0; j < T * H; j++) {
        for (size_t d = 0; d < D; d++) dk[j * D + d] = dv[j * D + d] = 0;
        for (size_t i = j; i < T * H; i += H) { // the same head of this and later tokens
            double p = prob[(j % H * T + i / H) * T + j / H];
            double score = p * (dot(dout + i * D, v + j * D, D) - delta[i]) / sqrt((double)D);
            for (size_t d = 0; d < D; d++) {
                dv[j * D + d] += (float)(p * dout[i * D + d]);
                dk[j * D + d] += (float)(score * q[i * D + d]);
                dq[i * D + d] += (float)(score * k[j * D + d]);
            }
        }
    }
    free(delta);
}
