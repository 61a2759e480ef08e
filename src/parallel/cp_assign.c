// cp_assign: which tokens of a sequence a rank has, and how much work that is.
//
// T tokens are 2 N chunks of T / 2N. Causal attention of chunk a (queries) on chunk c (keys), n tokens each, is n^2
// query-key pairs where c < a, n (n + 1) / 2 where c = a, none where c > a. So chunk a costs a n^2 + n (n + 1) / 2, and
//
//   contiguous   chunks 2r, 2r + 1       (4r + 1) n^2 + n (n + 1)    from n (2n + 1) to nearly 4N n^2
//   zig-zag      chunks r, 2N - 1 - r    (2N - 1) n^2 + n (n + 1)    the same on every rank
//
// With zig-zag every step of the ring is even too: of another rank's block each rank computes 2 n^2 pairs, where ranks
// that wait for each other would otherwise all take as long as the slowest.
//
// The invariant: a rank's tokens are in ascending order, so within its own tokens the causal mask is a plain triangle.
//
// Rejected: tokens dealt out one by one (stripes). As even, but no two neighbours are on one rank: every tile of
// attention would have a mask, and documents would be cut everywhere.
#include "parallel/cp.h"

#include "base/check.h"

#include <string.h>

void cp_check(CpSettings set, size_t T, int size)
{
    size_t N = (size_t)size, rest = T % (2 * N);
    if (T == 0 || rest)
        die("cp: %zu tokens in 2 x %d equal chunks, two for each rank (%zu tokens would do)", T, size,
            T - rest ? T - rest : 2 * N);
    if (set.blocks && (set.blocks < 0 || set.blocks % (2 * size) || set.blocks & (set.blocks - 1)))
        die("cp: the same bits as one rank over %d ranks: %d blocks of the sequence (a power of two of ranks, half as "
            "many as blocks at most)", size, set.blocks);
    if (set.blocks && T < (size_t)set.blocks)
        die("cp: the same bits as one rank: %zu tokens in %d blocks (as many tokens as blocks at least)", T,
            set.blocks);
    if (set.blocks && set.assign != CP_ZIGZAG && size > 1)
        die("cp: the same bits as one rank with contiguous chunks over %d ranks (zig-zag, or no fixed order of sums)",
            size);
}

size_t cp_chunk(CpAssign assign, int rank, int size, int half)
{
    if (assign == CP_CONTIGUOUS) return 2 * (size_t)rank + (size_t)half;
    return (size_t)(half ? 2 * size - 1 - rank : rank);
}

size_t cp_position(CpAssign assign, size_t T, int rank, int size, size_t i)
{
    size_t length = T / (2 * (size_t)size);
    return cp_chunk(assign, rank, size, i >= length) * length + i % length;
}

int cp_rank(CpAssign assign, size_t T, int size, size_t position, size_t *i)
{
    size_t length = T / (2 * (size_t)size), chunk = position / length, N = (size_t)size;
    bool second = assign == CP_CONTIGUOUS ? chunk % 2 : chunk >= N;
    *i = second * length + position % length;
    return (int)(assign == CP_CONTIGUOUS ? chunk / 2 : second ? 2 * N - 1 - chunk : chunk);
}

void cp_cut(void *out, const void *in, size_t n_bytes, size_t B, CpAssign assign, size_t T, int rank, int size)
{
    size_t length = T / (2 * (size_t)size) * n_bytes;
    for (size_t b = 0; b < B; b++)
        for (int half = 0; half < 2; half++)
            memcpy((char *)out + (2 * b + (size_t)half) * length,
                   (const char *)in + b * T * n_bytes + cp_chunk(assign, rank, size, half) * length, length);
}

uint64_t cp_work(CpAssign assign, size_t T, int rank, int size, int owner)
{
    uint64_t n = T / (2 * (size_t)size), pairs = 0;
    for (int half = 0; half < 2; half++)
        for (int other = 0; other < 2; other++) {
            size_t queries = cp_chunk(assign, rank, size, half), keys = cp_chunk(assign, owner, size, other);
            pairs += keys < queries ? n * n : keys == queries ? n * (n + 1) / 2 : 0;
        }
    return pairs;
}
