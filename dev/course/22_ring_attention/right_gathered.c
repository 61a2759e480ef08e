// Only later ranks get a rank's keys and values, each by a message of its own; then two passes over all keys.
#include "ring_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void attend_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                  float *m, float *l, float *o)
{
    for (int i = 0; i < Tq; i++) {
        float top = -INFINITY, sum = 0, now, *block = calloc((size_t)D, sizeof *block);
        for (int pass = 0; pass < 2; pass++)
            for (int j = 0; j < Tk && k_first + j <= q_first + i; j++) {
                float s = 0;
                for (int d = 0; d < D; d++) s += q[i * D + d] * k[j * D + d];
                s *= powf((float)D, -0.5f);
                if (pass == 0) top = fmaxf(top, s);
                else sum += expf(s - top);
                for (int d = 0; pass == 1 && d < D; d++) block[d] += expf(s - top) * v[j * D + d];
            }
        if (sum > 0) { // merges two states
            now = fmaxf(top, m[i]);
            float a = expf(m[i] - now), b = expf(top - now);
            for (int d = 0; d < D; d++) o[i * D + d] = a * o[i * D + d] + b * block[d];
            l[i] = a * l[i] + b * sum, m[i] = now;
        }
        free(block);
    }
}

void ring_attention(Link *link, int T, int D, const float *q, const float *k, const float *v, float *out)
{
    int me = link_rank(link), N = link_size(link), rows = T / N, n = rows * D;
    size_t size = (size_t)n * sizeof(float);
    float *keys = malloc((size_t)(me + 1) * size), *values = malloc((size_t)(me + 1) * size);
    float *m = malloc((size_t)rows * sizeof *m), *l = calloc((size_t)rows, sizeof *l);
    for (int r = me + 1; r < N; r++) link_send(link, r, k, size), link_send(link, r, v, size);
    for (int r = 0; r < me; r++) link_recv(link, r, keys + r * n, size), link_recv(link, r, values + r * n, size);
    memcpy(keys + me * n, k, size), memcpy(values + me * n, v, size), memset(out, 0, size);
    for (int i = 0; i < rows; i++) m[i] = -INFINITY;
    attend_block(rows, (me + 1) * rows, D, q, keys, values, me * rows, 0, m, l, out);
    for (int i = 0; i < n; i++) out[i] /= l[i / D];
    free(keys), free(values), free(m), free(l);
}
