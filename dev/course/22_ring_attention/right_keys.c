// Key by key in double, from the last one to the first, with a maximum that moves only when it must; on the ring keys
// and values are two messages, and go the other way round.
#include "ring_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void attend_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                  float *m, float *l, float *o)
{
    for (int j = Tk - 1; j >= 0; j--)
        for (int i = k_first + j > q_first ? k_first + j - q_first : 0; i < Tq; i++) {
            double s = 0;
            for (int d = 0; d < D; d++) s += (double)q[i * D + d] * k[j * D + d] / sqrt(D);
            if (s > m[i] + 20) {
                float old = isinf(m[i]) ? 0 : expf(m[i] - (float)s);
                l[i] *= old, m[i] = (float)s;
                for (int d = 0; d < D; d++) o[i * D + d] *= old;
            }
            float p = (float)exp(s - m[i]);
            l[i] += p;
            for (int d = 0; d < D; d++) o[i * D + d] += p * v[j * D + d];
        }
}

void ring_attention(Link *link, int T, int D, const float *q, const float *k, const float *v, float *out)
{
    int N = link_size(link), me = link_rank(link), rows = T / N;
    size_t size = (size_t)(rows * D) * sizeof(float);
    float *key = malloc(size), *value = malloc(size), *l = calloc((size_t)rows, sizeof *l);
    float *m = malloc((size_t)rows * sizeof *m);
    for (int i = 0; i < rows; i++) m[i] = -INFINITY;
    memcpy(key, k, size), memcpy(value, v, size), memset(out, 0, size);
    attend_block(rows, rows, D, q, key, value, me * rows, me * rows, m, l, out);
    for (int owner = (me + 1) % N; owner != me; owner = (owner + 1) % N) {
        link_send(link, (me + N - 1) % N, key, size), link_send(link, (me + N - 1) % N, value, size);
        link_recv(link, (me + 1) % N, key, size), link_recv(link, (me + 1) % N, value, size);
        if (owner < me) attend_block(rows, rows, D, q, key, value, me * rows, owner * rows, m, l, out);
    }
    for (int i = 0; i < rows * D; i++) out[i] /= l[i / D];
    free(key), free(value), free(l), free(m);
}
