// A message for every element; a slot is any that is not needed next.
#include "zero.h"

size_t shard_size(size_t n, int N)
{
    size_t size = 0;
    while (size * (size_t)N < n) size++;
    return size;
}

void shard_range(size_t n, int N, int rank, size_t *begin, size_t *end)
{
    size_t size = shard_size(n, N);
    for (*begin = 0; rank > 0 && *begin < n; rank--) *begin = n - *begin < size ? n : *begin + size;
    *end = n - *begin < size ? n : *begin + size;
}

void reduce_bucket(Link *link, size_t n, size_t begin, const float *grads, size_t count, float *own)
{
    int me = link_rank(link), N = link_size(link);
    size_t size = shard_size(n, N);
    for (size_t i = begin; i < begin + count; i++)
        if (i / size != (size_t)me) link_send(link, (int)(i / size), &grads[i - begin], sizeof *grads);
    for (size_t i = begin + count; i-- > begin;) {
        if (i / size != (size_t)me) continue;
        own[i % size] += grads[i - begin];
    }
    for (int r = 0; r < N; r++)
        for (size_t i = begin; r != me && i < begin + count; i++) {
            float g = 0;
            if (i / size == (size_t)me) link_recv(link, r, &g, sizeof g), own[i % size] += g;
        }
}

int stage3_plan(int units, Step *out)
{
    int n = 0, slot = 0;
    out[n++] = (Step){'G', 0, slot};
    for (int k = 0; k < units - 1; k++, slot = !slot) {
        out[n++] = (Step){'G', k + 1, !slot};
        out[n++] = (Step){'F', k, slot};
    }
    out[n++] = (Step){'F', units - 1, slot};
    out[n++] = (Step){'B', units - 1, slot};
    for (int k = units - 2; k >= 0; k--) {
        slot = !slot;
        if (k > 0) out[n++] = (Step){'G', k - 1, !slot};
        out[n++] = (Step){'B', k, slot};
    }
    return n;
}
