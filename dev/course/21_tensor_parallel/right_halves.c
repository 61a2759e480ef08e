// Two sums of half the tokens each in forward, one for each half; backward token by token, in reverse.
#include "tp.h"

#include <math.h>
#include <string.h>

float gelu(float z) { return z * 0.5f * erfcf(-z * 0.70710678f); }
float gelu_slope(float z) { return 0.5f * erfcf(-z * 0.70710678f) + z * 0.39894228f * expf(-0.5f * z * z); }

void tp_cut(int rank, int size, const float *w1, const float *b1, const float *w2, Shard *s)
{
    int f = s->F / size, first = rank * f;
    for (int i = 0; i < s->C * f; i++) s->w1[i] = w1[i / f * s->F + first + i % f], s->w2[i] = w2[first * s->C + i];
    for (int j = 0; j < f; j++) s->b1[j] = b1[first + j];
}

void tp_forward(Link *link, const Shard *s, const float *x, float *z, float *y)
{
    int f = s->F / link_size(link), C = s->C;
    for (int half = 0; half < 2; half++) {
        int from = half * (s->T / 2), to = half ? s->T : s->T / 2;
        for (int t = from; t < to; t++)
            for (int c = 0; c < C; c++) y[t * C + c] = s->b2[c] / (float)link_size(link);
        for (int j = 0; j < f; j++)
            for (int t = from; t < to; t++) {
                float sum = s->b1[j];
                for (int c = 0; c < C; c++) sum += x[t * C + c] * s->w1[c * f + j];
                z[t * f + j] = sum;
                for (int c = 0; c < C; c++) y[t * C + c] += gelu(sum) * s->w2[j * C + c];
            }
        all_reduce(link, y + from * C, (size_t)((to - from) * C));
    }
}

void tp_backward(Link *link, const Shard *s, const float *x, const float *z, const float *dy, float *dw1, float *db1,
                 float *dw2, float *db2, float *dx)
{
    int f = s->F / link_size(link), C = s->C;
    for (int c = 0; c < C; c++) db2[c] = 0;
    for (int i = 0; i < C * f; i++) dw1[i] = dw2[i] = 0;
    for (int j = 0; j < f; j++) db1[j] = 0;
    for (int t = s->T - 1; t >= 0; t--) {
        memset(dx + t * C, 0, (size_t)C * sizeof *dx);
        for (int c = 0; c < C; c++) db2[c] += dy[t * C + c];
        for (int j = f - 1; j >= 0; j--) {
            float d = 0;
            for (int c = 0; c < C; c++) d += dy[t * C + c] * s->w2[j * C + c];
            d *= gelu_slope(z[t * f + j]);
            db1[j] += d;
            for (int c = 0; c < C; c++) {
                dw2[j * C + c] += gelu(z[t * f + j]) * dy[t * C + c];
                dw1[c * f + j] += x[t * C + c] * d;
                dx[t * C + c] += d * s->w1[c * f + j];
            }
        }
        all_reduce(link, dx + t * C, (size_t)C);
    }
}
