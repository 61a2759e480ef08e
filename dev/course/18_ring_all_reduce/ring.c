#include "ring.h"

#include <stdlib.h>

// Chunk c of N begins here; chunk N would begin at n. Chunks differ by at most one element.
static size_t begin_of(size_t n, int N, int c)
{
    return n * (size_t)c / (size_t)N;
}

void ring_all_reduce(Link *link, float *x, size_t n)
{
    //[
    //+ (void)link, (void)x, (void)n, (void)begin_of; // write this
    int N = link_size(link), me = link_rank(link), next = (me + 1) % N, before = (me + N - 1) % N;
    float *in = malloc((n / (size_t)N + 1) * sizeof *in);
    for (int step = 0; step < N - 1; step++) { // at the end rank r has the whole sum of chunk r + 1
        int out = (me - step + N) % N, add = (me - step - 1 + N) % N;
        size_t to = begin_of(n, N, add), count = begin_of(n, N, add + 1) - to;
        link_send(link, next, x + begin_of(n, N, out), (begin_of(n, N, out + 1) - begin_of(n, N, out)) * sizeof *x);
        link_recv(link, before, in, count * sizeof *x);
        for (size_t i = 0; i < count; i++) x[to + i] += in[i];
    }
    for (int step = 0; step < N - 1; step++) { // the whole sums go round
        int out = (me + 1 - step + N) % N, keep = (me - step + N) % N;
        size_t to = begin_of(n, N, keep), count = begin_of(n, N, keep + 1) - to;
        link_send(link, next, x + begin_of(n, N, out), (begin_of(n, N, out + 1) - begin_of(n, N, out)) * sizeof *x);
        link_recv(link, before, x + to, count * sizeof *x);
    }
    free(in);
    //]
}
