// cp_chunks: which tokens of a sequence a context-parallel rank has. See cp.h.
//
// T tokens are 2 N chunks, and rank r of N has two. With zig-zag these are r and 2 N - 1 - r (Brandon et al., arXiv
// 2311.09431, and Llama 3, arXiv 2407.21783, balance likewise), so every step of the ring has the same work on every
// rank. A rank's tokens are in ascending order, so within its own the causal mask is a plain triangle.
#include "parallel/cp.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BLOCKS = 16 };

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

// Two positions of chunks a > c are (a - c - 1) n + 1 apart at least. With `blocks` every part must arrive in the
// tree, an empty one too.
bool cp_has_work(CpSettings set, size_t T, int rank, int size, int owner, size_t window)
{
    if (!window || set.blocks) return cp_work(set.assign, T, rank, size, owner) > 0;
    size_t n = T / (2 * (size_t)size);
    bool any = false;
    for (int i = 0; i < 4; i++) {
        size_t a = cp_chunk(set.assign, rank, size, i % 2), c = cp_chunk(set.assign, owner, size, i / 2);
        any |= a == c || (a > c && (a - c - 1) * n + 1 < window);
    }
    return any;
}

// ---- where rows stand

int cp_blocks(size_t T)
{
    int n = 1;
    while (n < MAX_BLOCKS && T % (2 * (size_t)n) == 0) n *= 2;
    return n > 1 ? n : 0;
}

const int32_t *cp_rows(Cp *cp, size_t T)
{
    size_t rows = T / (size_t)cp->size;
    check(T <= cp->T && cp->B * T <= INT32_MAX);
    if (cp->row_T == T) return cp->row;
    int32_t *row = malloc(cp->B * rows * sizeof *row);
    if (!row) die("cp: no memory for the places of %zu rows", cp->B * rows);
    for (size_t b = 0; b < cp->B; b++)
        for (size_t i = 0; i < rows; i++)
            row[b * rows + i] = (int32_t)(b * T + cp_position(cp->set.assign, T, cp->rank, cp->size, i));
    cp->dev->to_device(cp->dev, cp->row, row, cp->B * rows * sizeof *row);
    free(row);
    cp->row_T = T;
    return cp->row;
}
