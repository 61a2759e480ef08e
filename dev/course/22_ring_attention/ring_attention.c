#include "ring_attention.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

void attend_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                  float *m, float *l, float *o)
{
    //[
    //+ (void)Tq, (void)Tk, (void)D, (void)q, (void)k, (void)v, (void)q_first, (void)k_first, (void)m, (void)l, (void)o;
    //+ (void)dot;
    float *score = malloc((size_t)Tk * sizeof *score), scale = 1 / sqrtf((float)D);
    for (int i = 0; i < Tq; i++) {
        int seen = q_first + i - k_first + 1;
        if (seen > Tk) seen = Tk;
        if (seen <= 0) continue;
        float top = m[i];
        for (int j = 0; j < seen; j++) score[j] = dot(q + i * D, k + j * D, D) * scale, top = fmaxf(top, score[j]);
        float old = expf(m[i] - top); // what was summed with the old maximum; 0 at first
        l[i] *= old;
        for (int d = 0; d < D; d++) o[i * D + d] *= old;
        for (int j = 0; j < seen; j++) {
            float p = expf(score[j] - top);
            l[i] += p;
            for (int d = 0; d < D; d++) o[i * D + d] += p * v[j * D + d];
        }
        m[i] = top;
    }
    free(score);
    //]
}

void ring_attention(Link *link, int T, int D, const float *q, const float *k, const float *v, float *out)
{
    //[
    //+ (void)link, (void)T, (void)D, (void)q, (void)k, (void)v, (void)out;
    int N = link_size(link), me = link_rank(link), block = T / N;
    size_t n = (size_t)(block * D);
    float *kv = malloc(2 * n * sizeof *kv), *m = malloc((size_t)block * sizeof *m);
    float *l = calloc((size_t)block, sizeof *l);
    for (int i = 0; i < block; i++) m[i] = -INFINITY;
    memcpy(kv, k, n * sizeof *kv), memcpy(kv + n, v, n * sizeof *kv), memset(out, 0, n * sizeof *out);
    for (int step = 0; step < N; step++) { // the block here is that of rank me - step
        int from = (me - step + N) % N;
        if (step < N - 1) link_send(link, (me + 1) % N, kv, 2 * n * sizeof *kv);
        attend_block(block, block, D, q, kv, kv + n, me * block, from * block, m, l, out);
        if (step < N - 1) link_recv(link, (me + N - 1) % N, kv, 2 * n * sizeof *kv);
    }
    for (int i = 0; i < block; i++)
        for (int d = 0; d < D; d++) out[i * D + d] /= l[i];
    free(kv), free(m), free(l);
    //]
}
