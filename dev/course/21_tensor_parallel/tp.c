#include "tp.h"

#include <math.h>
#include <string.h>

float gelu(float z) { return 0.5f * z * (1 + erff(z * 0.70710678f)); }
float gelu_slope(float z) { return 0.5f * (1 + erff(z * 0.70710678f)) + z * 0.39894228f * expf(-0.5f * z * z); }

void tp_cut(int rank, int size, const float *w1, const float *b1, const float *w2, Shard *shard)
{
    //[
    //+ (void)rank, (void)size, (void)w1, (void)b1, (void)w2, (void)shard; // write this
    size_t C = (size_t)shard->C, F = (size_t)shard->F, f = F / (size_t)size, from = f * (size_t)rank;
    for (size_t c = 0; c < C; c++) memcpy(shard->w1 + c * f, w1 + c * F + from, f * sizeof *w1);
    memcpy(shard->b1, b1 + from, f * sizeof *b1);
    memcpy(shard->w2, w2 + from * C, f * C * sizeof *w2);
    //]
}

void tp_forward(Link *link, const Shard *s, const float *x, float *z, float *y)
{
    //[
    //+ (void)link, (void)s, (void)x, (void)z, (void)y; // write this
    int T = s->T, C = s->C, f = s->F / link_size(link);
    for (int t = 0; t < T; t++) {
        float *zt = z + t * f, *yt = y + t * C;
        memcpy(zt, s->b1, (size_t)f * sizeof *zt);
        for (int c = 0; c < C; c++)
            for (int j = 0; j < f; j++) zt[j] += x[t * C + c] * s->w1[c * f + j];
        memset(yt, 0, (size_t)C * sizeof *yt);
        for (int j = 0; j < f; j++)
            for (int c = 0; c < C; c++) yt[c] += gelu(zt[j]) * s->w2[j * C + c];
    }
    all_reduce(link, y, (size_t)T * (size_t)C);
    for (int i = 0; i < T * C; i++) y[i] += s->b2[i % C]; // after the sum: once, not N times
    //]
}

void tp_backward(Link *link, const Shard *s, const float *x, const float *z, const float *dy, float *dw1, float *db1,
                 float *dw2, float *db2, float *dx)
{
    //[
    //+ (void)link, (void)s, (void)x, (void)z, (void)dy, (void)dw1, (void)db1, (void)dw2, (void)db2, (void)dx;
    int T = s->T, C = s->C, f = s->F / link_size(link);
    memset(dw1, 0, (size_t)(C * f) * sizeof *dw1), memset(db1, 0, (size_t)f * sizeof *db1);
    memset(dw2, 0, (size_t)(f * C) * sizeof *dw2), memset(db2, 0, (size_t)C * sizeof *db2);
    memset(dx, 0, (size_t)(T * C) * sizeof *dx);
    for (int t = 0; t < T; t++) {
        for (int c = 0; c < C; c++) db2[c] += dy[t * C + c]; // every rank has the whole of it already
        for (int j = 0; j < f; j++) {
            float h = gelu(z[t * f + j]), dz = 0;
            for (int c = 0; c < C; c++) {
                dw2[j * C + c] += h * dy[t * C + c];
                dz += dy[t * C + c] * s->w2[j * C + c];
            }
            dz *= gelu_slope(z[t * f + j]);
            db1[j] += dz;
            for (int c = 0; c < C; c++) {
                dw1[c * f + j] += x[t * C + c] * dz;
                dx[t * C + c] += dz * s->w1[c * f + j];
            }
        }
    }
    all_reduce(link, dx, (size_t)T * (size_t)C);
    //]
}
