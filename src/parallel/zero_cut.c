// zero_cut: which elements of each unit a rank owns. See zero.h.
//
// Each unit's elements, in flat order, are cut into N ranges, one a rank, as even as can be. Each border is moved to
// the nearest place where the optimizer allows one: anywhere for AdamW, between blocks of 8-bit states, between
// tensors for what looks at a whole matrix. So ranges may be uneven, or empty; the last one ends where the unit ends.
#include "parallel/zero.h"

#include "base/check.h"

#include <stdlib.h>

// The border between tensors of a unit nearest to element `at` of the unit's whole tensors; the lower of two as near.
static size_t between_tensors(const Params *params, size_t at, size_t begin, size_t end)
{
    size_t best = begin, nearest = at, whole = 0;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        if (row->offset < begin || row->offset >= end) continue;
        whole += row->whole[0] * row->whole[1];
        size_t distance = whole > at ? whole - at : at - whole;
        if (distance < nearest) nearest = distance, best = row->offset + row->n_elems;
    }
    return best;
}

// The same for blocks: the legal border nearest to element `at` of the flat range, of those in [begin, end].
static size_t between_blocks(const Params *params, size_t at, size_t begin, size_t end)
{
    size_t best = begin;
    for (int r = 0; r < params->n_rows; r++) {
        const Param *row = &params->row[r];
        size_t last = row->offset + row->n_elems;
        if (row->offset < begin || row->offset >= end) continue;
        size_t candidate[3] = {row->offset, last, last};
        if (at > row->offset && at < last) {
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

static size_t whole_of_unit(const Params *params, int unit)
{
    size_t n = 0;
    for (int r = 0; r < params->n_rows; r++)
        if (params->row[r].unit == unit) n += params->row[r].whole[0] * params->row[r].whole[1];
    return n;
}

OptimCut zero_where(const OptimKind *kind, bool agc, int tp)
{
    return agc || (tp > 1 && kind->cut != OPTIM_ELEMENT) ? OPTIM_TENSOR : kind->cut;
}

ZeroCut zero_cut(const Params *params, OptimCut where, int stage, int rank, int size)
{
    if (stage == 0) rank = 0, size = 1;
    size_t n = (size_t)params->n_units, N = (size_t)size;
    ZeroCut cut = {.rank = rank, .size = size, .n_units = params->n_units, .count = calloc(n * N, sizeof *cut.count),
                   .begin = calloc(n, sizeof *cut.begin), .at = calloc(n + 1, sizeof *cut.at)};
    if (!cut.count || !cut.begin || !cut.at) die("zero: no memory for the cut of %zu units over %d ranks", n, size);
    for (size_t u = 0; u < n; u++) {
        size_t begin, end, *count = cut.count + u * N;
        int divide = params_unit_expert(params, (int)u) && size > 1 ? params->ep : 1, ranks = size / divide;
        params_unit_range(params, (int)u, &begin, &end);
        comm_even(count, where == OPTIM_TENSOR ? whole_of_unit(params, (int)u) : end - begin, ranks);
        size_t even = 0, from = begin; // where rank r would end, within the unit; where it begins
        for (int r = 0; r < ranks; r++) {
            even += count[r];
            size_t to = begin + even;
            if (where == OPTIM_BLOCK) to = between_blocks(params, to, begin, end);
            if (where == OPTIM_TENSOR) to = between_tensors(params, even, begin, end);
            if (r == ranks - 1) to = end;
            if (to < from) to = from;
            count[r] = to - from;
            if (r == rank / divide) cut.begin[u] = from;
            from = to;
        }
        cut.at[u + 1] = cut.at[u] + count[rank / divide];
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
