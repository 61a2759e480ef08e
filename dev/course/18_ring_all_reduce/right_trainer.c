// The trainer's own list of steps, carried out with these messages.
#include "ring.h"

#include "comm/collectives.h"

#include <stdlib.h>

void ring_all_reduce(Link *link, float *x, size_t n)
{
    int N = link_size(link);
    size_t counts[64], offsets[64];
    comm_even(counts, n, N);
    for (int r = 0; r < N; r++) offsets[r] = r ? offsets[r - 1] + counts[r - 1] : 0;
    CommCall call = {.kind = COMM_ALL_REDUCE, .type = COMM_FP32, .op = COMM_SUM, .out = x, .in = x, .n = n,
                     .counts = counts, .offsets = offsets};
    Collective c = {call, COMM_RING, link_rank(link), N, sizeof *x, NULL};
    c.scratch = malloc(collectives_scratch(&call, c.algorithm, c.rank, c.size) + 1);
    collectives_begin(&c);
    for (int k = 0; k < collectives_steps(&c); k++) {
        CollectiveStep step = collectives_step(&c, k);
        if (step.send_to >= 0) link_send(link, step.send_to, step.send, step.n_send * sizeof *x);
        if (step.recv_from >= 0) link_recv(link, step.recv_from, step.recv, step.n_recv * sizeof *x);
        collectives_act(&c, &step);
    }
    free(c.scratch);
}
