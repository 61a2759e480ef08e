// An owner's part goes from rank to rank, each adds its own, and it ends at the owner. The plan gathers every unit
// twice.
#include "zero.h"

#include <stdlib.h>

size_t shard_size(size_t n, int N) { return n / (size_t)N + (n % (size_t)N != 0); }

void shard_range(size_t n, int N, int rank, size_t *begin, size_t *end)
{
    *begin = *end = 0;
    for (size_t i = 0; i < n; i++) { // element by element
        *begin += i / shard_size(n, N) < (size_t)rank;
        *end += i / shard_size(n, N) <= (size_t)rank;
    }
}

void reduce_bucket(Link *link, size_t n, size_t begin, const float *grads, size_t count, float *own)
{
    int N = link_size(link), me = link_rank(link);
    float *sum = malloc(count * sizeof *sum);
    for (int owner = 0; owner < N; owner++) {
        size_t first, last, parts = 0, from = 0;
        shard_range(n, N, owner, &first, &last);
        for (size_t i = first; i < last; i++)
            if (i >= begin && i < begin + count && parts++ == 0) from = i;
        if (!parts) continue;
        for (size_t i = 0; i < parts; i++) sum[i] = 0;
        if (N > 1 && me != (owner + 1) % N) link_recv(link, (me + N - 1) % N, sum, parts * sizeof *sum);
        for (size_t i = 0; i < parts; i++) sum[i] += grads[from - begin + i];
        if (me != owner) link_send(link, (me + 1) % N, sum, parts * sizeof *sum);
        for (size_t i = 0; me == owner && i < parts; i++) own[from - first + i] += sum[i];
    }
    free(sum);
}

int stage3_plan(int units, Step *out)
{
    int n = 0, step = 0;
    for (int next = 0; step < 2 * units; step++) { // a gather is always one computation ahead
        for (; next <= step + 1 && next < 2 * units; next++)
            out[n++] = (Step){'G', next < units ? next : 2 * units - 1 - next, next % 2};
        out[n++] = (Step){step < units ? 'F' : 'B', step < units ? step : 2 * units - 1 - step, step % 2};
    }
    return n;
}
