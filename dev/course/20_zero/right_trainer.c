// The trainer's even cut, of as many elements as fill every shard, and its direct reduce-scatter, carried out with these
// messages. The plan is not the trainer's: there the hooks around a unit gather the next one, and no list is made.
#include "zero.h"

#include "comm/collectives.h"

#include <stdlib.h>

static size_t clipped(size_t x, size_t low, size_t high)
{
    return x < low ? low : x > high ? high : x;
}

size_t shard_size(size_t n, int N)
{
    size_t counts[64];
    comm_even(counts, n, N); // the first ones get what does not divide
    return counts[0];
}

void shard_range(size_t n, int N, int rank, size_t *begin, size_t *end)
{
    size_t counts[64], at = 0;
    comm_even(counts, shard_size(n, N) * (size_t)N, N);
    for (int r = 0; r < rank; r++) at += counts[r];
    *begin = clipped(at, 0, n), *end = clipped(at + counts[rank], 0, n);
}

void reduce_bucket(Link *link, size_t n, size_t begin, const float *grads, size_t count, float *own)
{
    int N = link_size(link), me = link_rank(link);
    size_t counts[64], offsets[64], first, last;
    for (int r = 0; r < N; r++) {
        shard_range(n, N, r, &first, &last);
        offsets[r] = clipped(first, begin, begin + count) - begin;
        counts[r] = clipped(last, begin, begin + count) - begin - offsets[r];
    }
    float *sum = malloc(counts[me] * sizeof *sum + 1);
    CommCall call = {.kind = COMM_REDUCE_SCATTER, .type = COMM_FP32, .op = COMM_SUM, .out = sum, .in = grads, .n = count,
                     .counts = counts, .offsets = offsets};
    Collective c = {call, COMM_DIRECT, me, N, sizeof *sum, NULL};
    c.scratch = malloc(collectives_scratch(&call, c.algorithm, me, N) + 1);
    collectives_begin(&c);
    for (int k = 0; k < collectives_steps(&c); k++) {
        CollectiveStep step = collectives_step(&c, k);
        if (step.send_to >= 0) link_send(link, step.send_to, step.send, step.n_send * sizeof *sum);
        if (step.recv_from >= 0) link_recv(link, step.recv_from, step.recv, step.n_recv * sizeof *sum);
        collectives_act(&c, &step);
    }
    if (N == 1) for (size_t i = 0; i < counts[0]; i++) sum[i] = grads[i];
    shard_range(n, N, me, &first, &last);
    for (size_t i = 0; i < counts[me]; i++) own[begin + offsets[me] - first + i] += sum[i];
    free(c.scratch), free(sum);
}

int stage3_plan(int units, Step *out)
{
    int n = 0;
    out[n++] = (Step){'G', 0, 0};
    for (int at = 0; at < 2 * units; at++) { // forward, then backward; in the slot of one pass lies what both need
        int unit = at < units ? at : 2 * units - 1 - at, next = at + 1 < units ? at + 1 : 2 * units - 2 - at;
        bool there = at == units - 1 || at == units || at == 2 * units - 1;
        if (!there) out[n++] = (Step){'G', next, next % 2};
        out[n++] = (Step){at < units ? 'F' : 'B', unit, unit % 2};
    }
    return n;
}
