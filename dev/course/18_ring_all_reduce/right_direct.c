// No ring: each rank adds up one chunk, which all others send it directly, and sends the sum to all. The last chunk is
// the shortest.
#include "ring.h"

#include <stdlib.h>

void ring_all_reduce(Link *link, float *x, size_t n)
{
    size_t N = (size_t)link_size(link), me = (size_t)link_rank(link), chunk = (n + N - 1) / N;
    float *in = malloc(chunk * sizeof *in + 1);
#define BEGIN(c) ((c) * chunk < n ? (c) * chunk : n)
#define BYTES(c) ((BEGIN((c) + 1) - BEGIN(c)) * sizeof *x)
    for (size_t r = 0; r < N; r++)
        if (r != me) link_send(link, (int)r, x + BEGIN(r), BYTES(r));
    for (size_t r = N; r-- > 0;) {
        if (r == me) continue;
        link_recv(link, (int)r, in, BYTES(me));
        for (size_t i = 0; i < BYTES(me) / sizeof *x; i++) x[BEGIN(me) + i] += in[i];
    }
    for (size_t r = 0; r < N; r++)
        if (r != me) link_send(link, (int)r, x + BEGIN(me), BYTES(me));
    for (size_t r = 0; r < N; r++)
        if (r != me) link_recv(link, (int)r, x + BEGIN(r), BYTES(r));
    free(in);
}
