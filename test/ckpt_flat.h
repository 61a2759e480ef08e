// A checkpoint of one process that has everything in memory, made with the calls of a run: one piece for each tensor,
// which is the whole tensor. weights is a flat buffer laid out by params; array: what the optimizer keeps (none: no
// optimizer file).
#ifndef CKPT_FLAT_H
#define CKPT_FLAT_H
#include "base/check.h"
#include "ckpt/ckpt.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    CkptPart part;
    float *weights;
    const CkptArray *array;
} Flat;

static inline void flat_move(void *self, const CkptPiece *piece, void *buf, bool out)
{
    const Flat *f = self;
    char *there = (piece->array < 0 ? (char *)f->weights : f->array[piece->array].data) + piece->at;
    memcpy(out ? buf : there, out ? there : buf, ckpt_piece_bytes(&f->part, piece));
}

static inline CkptPart *flat_part(Flat *f, const Params *params, const float *weights, const CkptArray *array,
                                  int n_arrays)
{
    CkptPart *part = &f->part;
    *f = (Flat){.weights = (float *)(uintptr_t)weights, .array = array};
    *part = (CkptPart){.whole = params, .array = array, .n_arrays = n_arrays, .move = flat_move, .self = f,
                       .piece = calloc((size_t)(n_arrays + 1) * (size_t)params->n_rows + 1, sizeof *part->piece)};
    check(part->piece);
    for (int a = -1; a < n_arrays; a++) {
        size_t at = 0;
        for (int r = 0; r < params->n_rows; r++) {
            const Param *row = &params->row[r];
            size_t dim[PARAM_DIMS] = {row->dim[0], row->dim[1]}, shape[PARAM_DIMS] = {1, 1};
            int ndim = a < 0 ? row->ndim : array[a].shape(params, row, dim);
            if (!ndim) continue;
            for (int d = 0; d < ndim; d++) shape[d] = dim[d];
            CkptPiece *piece = &part->piece[part->n++];
            *piece = (CkptPiece){.array = a, .row = r, .slice = ckpt_slice_whole(shape), .at = at};
            at += ckpt_piece_bytes(part, piece);
        }
    }
    part->piece = realloc(part->piece, (size_t)part->n * sizeof *part->piece); // none to spare: reads past it are seen
    check(part->piece || !part->n);
    return part;
}

static inline bool flat_save(const char *run_dir, const CkptState *state, const Params *params, const float *weights,
                             const CkptArray *array, int n_arrays, int keep, char *error, size_t n_error)
{
    Flat f;
    CkptPart *part = flat_part(&f, params, weights, array, n_arrays);
    for (int a = 0; a < n_arrays; a++) {
        size_t sum = 0;
        for (int i = 0; i < part->n; i++)
            if (part->piece[i].array == a) sum += ckpt_piece_bytes(part, &part->piece[i]);
        check(sum == array[a].n_bytes);
    }
    bool ok = ckpt_save_part(&(CkptRun){.run_dir = run_dir, .keep = keep}, state, part, error, n_error);
    free(part->piece);
    return ok;
}

static inline bool flat_load(const char *run_dir, const Params *params, float *weights, const CkptArray *array,
                             int n_arrays, CkptState *state)
{
    Flat f;
    CkptPart *part = flat_part(&f, params, weights, array, n_arrays);
    bool found = ckpt_load_part(&(CkptRun){.run_dir = run_dir, .keep = 1}, part, state);
    free(part->piece);
    return found;
}

#endif
