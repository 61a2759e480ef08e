// whole_case: weights that do not depend on how ranks cut the model, and the tensors of ranks that each hold a part of
// it, put together again for a test.
#ifndef WHOLE_CASE_H
#define WHOLE_CASE_H
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/params.h"
#include "base/rng.h"
#include "net/model.h"

// Larger than the initial weights, which are too small to tell terms apart; a function of the whole tensor's index.
static inline void make_lively(Model *m)
{
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        for (size_t j = 0; j < row->n_elems; j++)
            m->weights[row->offset + j] +=
                0.3f * (float)rng_normal(rng_make(3, row->name, 0), params_whole_index(row, j));
    }
    model_weights_changed(m);
}

// Copies every row of a rank's table to its places in the whole model's `out`. What another rank has copied there must
// have the same bits. Counts the ranks that own each element.
static inline void whole_add(const Params *whole, float *out, bool *seen, size_t *owners, const Params *part,
                             const float *from, int rank)
{
    for (int i = 0; i < part->n_rows; i++) {
        const Param *row = &part->row[i];
        int at = params_find(whole, row->name);
        assert_true(at >= 0 && row->whole[0] == whole->row[at].dim[0] && row->whole[1] == whole->row[at].dim[1]);
        assert_true(params_place(part, row) == params_place(whole, &whole->row[at]));
        for (size_t j = 0; j < row->n_elems; j++) {
            size_t k = whole->row[at].offset + params_whole_index(row, j);
            float x = from[row->offset + j];
            if (seen[k] && memcmp(&out[k], &x, sizeof x))
                fail_msg("rank %d: %s[%zu] is %.9g, and %.9g on another rank", rank, row->name, j, x, out[k]);
            out[k] = x;
            seen[k] = true;
            owners[k] += row->owned;
        }
    }
}

static inline double apart(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}
#endif
