// Sums in double, a transposed shard made on the way, messages of one row each; b2 comes from rank 0 alone.
#include "tp.h"

#include <math.h>
#include <stdlib.h>

float gelu(float z) { return (float)(0.5 * z * erfc(-z / sqrt(2))); }
float gelu_slope(float z) { return (float)(0.5 * erfc(-z / sqrt(2)) + z * exp(-0.5 * z * z) / sqrt(8 * atan(1))); }

void tp_cut(int rank, int size, const float *w1, const float *b1, const float *w2, Shard *s)
{
    int f = s->F / size;
    for (int j = 0; j < f; j++) {
        s->b1[j] = b1[rank * f + j];
        for (int c = 0; c < s->C; c++)
            s->w1[c * f + j] = w1[c * s->F + rank * f + j], s->w2[j * s->C + c] = w2[(rank * f + j) * s->C + c];
    }
}

// sum over k of a[k * step_a] * b[k * step_b]
static double dot(int n, const float *a, int step_a, const float *b, int step_b)
{
    double sum = 0;
    for (int k = 0; k < n; k++) sum += (double)a[k * step_a] * b[k * step_b];
    return sum;
}

void tp_forward(Link *link, const Shard *s, const float *x, float *z, float *y)
{
    int f = s->F / link_size(link), C = s->C;
    float *h = malloc((size_t)f * sizeof *h);
    for (int t = 0; t < s->T; t++) {
        for (int j = 0; j < f; j++) {
            z[t * f + j] = (float)(s->b1[j] + dot(C, x + t * C, 1, s->w1 + j, f));
            h[j] = gelu(z[t * f + j]);
        }
        for (int c = 0; c < C; c++)
            y[t * C + c] = (float)dot(f, h, 1, s->w2 + c, C) + (link_rank(link) == 0 ? s->b2[c] : 0);
        all_reduce(link, y + t * C, (size_t)C);
    }
    free(h);
}

void tp_backward(Link *link, const Shard *s, const float *x, const float *z, const float *dy, float *dw1, float *db1,
                 float *dw2, float *db2, float *dx)
{
    int f = s->F / link_size(link), C = s->C, T = s->T;
    float *h = malloc((size_t)(T * f) * sizeof *h), *dz = malloc((size_t)(T * f) * sizeof *dz), one = 1;
    for (int i = 0; i < T * f; i++) {
        h[i] = gelu(z[i]);
        dz[i] = gelu_slope(z[i]) * (float)dot(C, dy + i / f * C, 1, s->w2 + i % f * C, 1);
    }
    for (int i = 0; i < T * C; i++) dx[i] = (float)dot(f, dz + i / C * f, 1, s->w1 + i % C * f, 1);
    all_reduce(link, dx, (size_t)(T * C));
    for (int j = 0; j < f; j++) db1[j] = (float)dot(T, dz + j, f, &one, 0);
    for (int c = 0; c < C; c++) db2[c] = (float)dot(T, dy + c, C, &one, 0);
    for (int i = 0; i < C * f; i++) {
        dw1[i] = (float)dot(T, x + i / f, C, dz + i % f, f);
        dw2[i] = (float)dot(T, h + i / C, f, dy + i % C, C);
    }
    free(h), free(dz);
}
