// The trainer's attention of a piece of the keys, and its merge of two pieces.
#include "ring_attention.h"

#include "ops/dev.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // ranks are threads here, and share the device
static Dev *dev;

// Adds a block of keys to out (Tq, D), lse (Tq).
static void add_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                      float *lse, float *out)
{
    size_t n = (size_t)Tq, d = (size_t)D, at = (size_t)q_first, from = (size_t)k_first, T = at + n + from + (size_t)Tk;
    AttnShape s = {.B = 1, .Tq = n, .Tk = (size_t)Tk, .H = 1, .G = 1, .D = d, .ldq = d, .ldkv = d, .T = T,
                   .q_start = at, .k_start = from};
    float *part = malloc(n * d * sizeof *part), *part_lse = malloc(n * sizeof *part_lse);
    pthread_mutex_lock(&lock);
    if (!dev) dev = dev_cpu_create(1);
    dev->attention_part_forward(dev, part, part_lse, (const X *)q, (const X *)k, (const X *)v, s);
    dev->attention_merge(dev, out, lse, part, part_lse, 1, n, 1, d);
    pthread_mutex_unlock(&lock);
    free(part), free(part_lse);
}

void attend_block(int Tq, int Tk, int D, const float *q, const float *k, const float *v, int q_first, int k_first,
                  float *m, float *l, float *o)
{
    for (int i = 0; i < Tq * D; i++) o[i] /= l[i / D] > 0 ? l[i / D] : 1;
    for (int i = 0; i < Tq; i++) m[i] += l[i] > 0 ? logf(l[i]) : 0;
    add_block(Tq, Tk, D, q, k, v, q_first, k_first, m, o);
    for (int i = 0; i < Tq; i++) l[i] = m[i] > -INFINITY;
}

void ring_attention(Link *link, int T, int D, const float *q, const float *k, const float *v, float *out)
{
    int N = link_size(link), me = link_rank(link), n = T / N;
    size_t size = (size_t)(n * D) * sizeof(float);
    float *kv = malloc(2 * size + 1), *lse = malloc((size_t)n * sizeof *lse);
    for (int i = 0; i < n; i++) lse[i] = -INFINITY;
    memcpy(kv, k, size), memcpy(kv + n * D, v, size), memset(out, 0, size);
    for (int step = 0; step < N; step++) {
        add_block(n, n, D, q, kv, kv + n * D, me * n, (me - step + N) % N * n, lse, out);
        if (step == N - 1) break;
        link_send(link, (me + 1) % N, kv, 2 * size);
        link_recv(link, (me + N - 1) % N, kv, 2 * size);
    }
    free(kv), free(lse);
}
