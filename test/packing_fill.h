// packing_fill: one row of a packing as the model wants it, made from the pieces alone: what tests compare rows with.
#ifndef PACKING_FILL_H
#define PACKING_FILL_H
#include "base/check.h"
#include "text/packing.h"

// T each: tokens, positions, document starts, targets (padding: end-of-text tokens, each a document of its own, with
// target -1). Document i is stream[start[i]] and the tokens after it.
static inline void packing_fill(const Packing *p, size_t row, const int32_t *stream, const size_t *start,
                                const size_t *length, int32_t eot, int32_t *token, int32_t *pos, int32_t *first,
                                int32_t *target)
{
    check(row < p->n_rows);
    size_t t = 0;
    for (size_t i = p->row_begin[row]; i < p->row_begin[row + 1]; i++) {
        const PackedPiece *piece = &p->piece[i];
        const int32_t *from = stream + start[piece->document];
        for (size_t j = 0; j < piece->length; j++, t++) {
            size_t at = piece->begin + j;
            token[t] = from[at];
            target[t] = at + 1 < length[piece->document] ? from[at + 1] : eot;
            pos[t] = (int32_t)j;
            first[t] = (int32_t)piece->column;
        }
    }
    for (; t < p->T; t++) token[t] = eot, target[t] = -1, pos[t] = 0, first[t] = (int32_t)t;
}

#endif
