#include "zero.h"

#include <stdlib.h>

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t shard_size(size_t n, int N)
{
    //[
    //+ return 0 * n * (size_t)N; // write this
    return (n + (size_t)N - 1) / (size_t)N;
    //]
}

void shard_range(size_t n, int N, int rank, size_t *begin, size_t *end)
{
    //[
    //+ (void)n, (void)N, (void)rank, *begin = *end = 0;
    *begin = smaller(n, (size_t)rank * shard_size(n, N));
    *end = smaller(n, *begin + shard_size(n, N));
    //]
}

void reduce_bucket(Link *link, size_t n, size_t begin, const float *grads, size_t count, float *own)
{
    //[
    //+ (void)link, (void)n, (void)begin, (void)grads, (void)count, (void)own, (void)smaller, (void)larger;
    int N = link_size(link), me = link_rank(link);
    size_t first, last;
    for (int r = 0; r < N; r++) { // to every owner its part of the bucket
        shard_range(n, N, r, &first, &last);
        size_t from = larger(first, begin), to = smaller(last, begin + count);
        if (r != me && from < to) link_send(link, r, grads + (from - begin), (to - from) * sizeof *grads);
    }
    shard_range(n, N, me, &first, &last);
    size_t from = larger(first, begin), to = smaller(last, begin + count);
    if (from >= to) return;
    float *in = malloc((to - from) * sizeof *in);
    for (int r = 0; r < N; r++) {
        if (r != me) link_recv(link, r, in, (to - from) * sizeof *in);
        for (size_t i = from; i < to; i++) own[i - first] += r == me ? grads[i - begin] : in[i - from];
    }
    free(in);
    //]
}

int stage3_plan(int units, Step *out)
{
    //[
    //+ (void)units, (void)out;
    //+ return 0;
    int n = 0;
    out[n++] = (Step){'G', 0, 0};
    for (int k = 0; k < units; k++) {
        if (k + 1 < units) out[n++] = (Step){'G', k + 1, (k + 1) % 2}; // on its way while k computes
        out[n++] = (Step){'F', k, k % 2};
    }
    for (int k = units - 1; k >= 0; k--) { // the last two units are still there
        if (k > 0 && k < units - 1) out[n++] = (Step){'G', k - 1, (k - 1) % 2};
        out[n++] = (Step){'B', k, k % 2};
    }
    return n;
    //]
}
