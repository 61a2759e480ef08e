#include "attention.h"

#include <math.h>
#include <string.h>

void attention_forward(float *out, float *prob, const float *q, const float *k, const float *v, size_t T, size_t H,
                       size_t D)
{
    //[
    //+ (void)out, (void)prob, (void)q, (void)k, (void)v, (void)T, (void)H, (void)D; // write this
    float scale = 1 / sqrtf((float)D);
    for (size_t h = 0; h < H; h++)
        for (size_t t = 0; t < T; t++) {
            const float *query = q + (t * H + h) * D;
            float *p = prob + (h * T + t) * T, *o = out + (t * H + h) * D, top = -INFINITY, sum = 0;
            for (size_t s = 0; s <= t; s++) {
                const float *key = k + (s * H + h) * D;
                float dot = 0;
                for (size_t d = 0; d < D; d++) dot += query[d] * key[d];
                p[s] = dot * scale;
                top = fmaxf(top, p[s]);
            }
            for (size_t s = 0; s <= t; s++) {
                p[s] = expf(p[s] - top);
                sum += p[s];
            }
            for (size_t s = 0; s < T; s++) p[s] = s <= t ? p[s] / sum : 0;
            memset(o, 0, D * sizeof *o);
            for (size_t s = 0; s <= t; s++)
                for (size_t d = 0; d < D; d++) o[d] += p[s] * v[(s * H + h) * D + d];
        }
    //]
}

void attention_backward(float *dq, float *dk, float *dv, const float *dout, const float *prob, const float *q,
                        const float *k, const float *v, size_t T, size_t H, size_t D)
{
    //[
    //+ (void)dq, (void)dk, (void)dv, (void)dout, (void)prob, (void)q, (void)k, (void)v, (void)T, (void)H, (void)D;
    float scale = 1 / sqrtf((float)D);
    memset(dq, 0, T * H * D * sizeof *dq);
    memset(dk, 0, T * H * D * sizeof *dk);
    memset(dv, 0, T * H * D * sizeof *dv);
    for (size_t h = 0; h < H; h++)
        for (size_t t = 0; t < T; t++) {
            size_t i = (t * H + h) * D; // of the query
            const float *p = prob + (h * T + t) * T;
            float dp[T], delta = 0;
            for (size_t s = 0; s <= t; s++) {
                size_t j = (s * H + h) * D; // of the key
                dp[s] = 0;
                for (size_t d = 0; d < D; d++) {
                    dp[s] += dout[i + d] * v[j + d];
                    dv[j + d] += p[s] * dout[i + d];
                }
                delta += p[s] * dp[s];
            }
            for (size_t s = 0; s <= t; s++) {
                size_t j = (s * H + h) * D;
                float dscore = scale * p[s] * (dp[s] - delta);
                for (size_t d = 0; d < D; d++) {
                    dq[i + d] += dscore * k[j + d];
                    dk[j + d] += dscore * q[i + d];
                }
            }
        }
    //]
}
