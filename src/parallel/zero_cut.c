// zero_cut: which elements each rank of a sharded run owns.
//
// Each unit's elements, in flat order, are cut into N ranges, one a rank, so a unit is gathered by one all_gather of
// what everybody has, and reduced by one reduce_scatter. A rank's shard is its ranges one behind the other.
//
// The cut would be even, P_u / N and one more for the first P_u % N ranks, if every optimizer were content with any
// range. Some are not: 8-bit Adam shares a scale in blocks of 2,048 elements, Muon and Adafactor look at whole
// matrices, adaptive clipping too. So each border is moved to the nearest legal one. Ranges may then be uneven, and
// empty.
//
// The invariant: the ranges of all ranks cover every element of a unit exactly once, in order, whatever the sizes:
// the last range ends where the unit ends, however the rest fell out. (DeepSpeed and llm.c each lost a remainder.)
//
// Rejected: padding every unit to a multiple of N, as FlatParameter of PyTorch's FSDP does. It makes all messages
// equal, and every reader of the memory table has to know the padding; here the bytes add up to P.
#include "parallel/zero.h"

#include "base/check.h"

#include <stdlib.h>

// The legal border nearest to element `at` of the flat range, of those in [begin, end]; the lower of two as near.
static size_t legal(const Params *params, OptimCut cut, size_t at, size_t begin, size_t end)
{
    if (cut == OPTIM_ELEMENT) return at;
    size_t best = begin;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        size_t last = row->offset + row->n_elems;
        if (row->offset < begin || row->offset >= end) continue;
        size_t candidate[3] = {row->offset, last, last};
        if (cut == OPTIM_BLOCK && at > row->offset && at < last) {
            candidate[0] = row->offset + (at - row->offset) / UPDATE_BLOCK * UPDATE_BLOCK;
            candidate[1] = candidate[0] + UPDATE_BLOCK < last ? candidate[0] + UPDATE_BLOCK : last;
        }
        for (int i = 0; i < 3; i++) {
            size_t distance = candidate[i] > at ? candidate[i] - at : at - candidate[i];
            if (distance < (best > at ? best - at : at - best)) best = candidate[i];
        }
    }
    return best;
}

ZeroCut zero_cut(const Params *params, const OptimKind *kind, bool agc, int stage, int rank, int size)
{
    OptimCut where = kind->cut;
    if (agc) where = OPTIM_TENSOR;
    if (stage == 0) rank = 0, size = 1;
    size_t n = (size_t)params->n_units, N = (size_t)size;
    ZeroCut cut = {.rank = rank, .size = size, .n_units = params->n_units, .count = calloc(n * N, sizeof *cut.count),
                   .begin = calloc(n, sizeof *cut.begin), .at = calloc(n + 1, sizeof *cut.at)};
    if (!cut.count || !cut.begin || !cut.at) die("zero: no memory for the cut of %zu units over %d ranks", n, size);
    for (size_t u = 0; u < n; u++) {
        size_t begin, end, *count = cut.count + u * N;
        params_unit_range(params, (int)u, &begin, &end);
        comm_even(count, end - begin, size);
        size_t even = begin, from = begin; // of rank r: where it would begin, where it does
        for (int r = 0; r < size; r++) {
            even += count[r];
            size_t to = r == size - 1 ? end : legal(params, where, even, begin, end);
            if (to < from) to = from;
            count[r] = to - from;
            if (r == rank) cut.begin[u] = from;
            from = to;
        }
        cut.at[u + 1] = cut.at[u] + count[rank];
    }
    return cut;
}

void zero_cut_free(ZeroCut *cut)
{
    free(cut->count);
    free(cut->begin);
    free(cut->at);
    *cut = (ZeroCut){0};
}

ModelShard zero_shard(const ZeroCut *cut, const Dev *dev, int stage, bool store)
{
    if (cut->size == 1) stage = 0;
    bool narrow = dev->x_type != X_FP32;
    return (ModelShard){.weights = stage >= (narrow ? 1 : 3), .x_weights = stage >= 3,
                        .grads = stage >= 2 && !dev->deterministic, .n = cut->at[cut->n_units],
                        .stored = store && (narrow || stage >= 3), .x_stored = store && stage >= 3};
}
