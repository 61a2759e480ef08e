// params: the parameter table. See params.h.
//
// The invariant: rows are in unit order and back to back, so offset[i + 1] = offset[i] + n_elems[i], and the
// sum of n_elems is the size of every flat buffer (weights, gradients, m, v) of the run.
#include "base/params.h"

#include "base/check.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int params_add(Params *params, int unit, const char *name, int ndim, size_t dim0, size_t dim1,
               float init_mean, float init_std, bool decay, int cut)
{
    check(ndim == 1 || ndim == 2);
    check(strlen(name) < PARAM_NAME);
    check(!params->n_rows || unit >= params->row[params->n_rows - 1].unit);
    for (int i = params->n_rows; i-- && params->row[i].unit == unit;) check(strcmp(params->row[i].name, name));
    size_t n = (size_t)params->n_rows;
    if ((n & (n - 1)) == 0) params->row = realloc(params->row, (n ? 2 * n : 1) * sizeof *params->row); // 1, 2, 4, ...
    if (!params->row) die("parameter table: no memory for row %zu", n);
    Param *row = &params->row[params->n_rows];
    *row = (Param){.ndim = ndim, .dim = {dim0, ndim == 2 ? dim1 : 1}, .offset = params->n_elems,
                   .init_mean = init_mean, .init_std = init_std, .lr_scale = 1,
                   .decay = decay, .unit = unit, .cut = cut, .whole = {dim0, ndim == 2 ? dim1 : 1}, .owned = true};
    snprintf(row->name, sizeof row->name, "%s", name);
    row->n_elems = dim0 * row->dim[1];
    params->n_elems += row->n_elems;
    params->n_units = unit + 1;
    return params->n_rows++;
}

ParamPlace params_place(const Params *params, const Param *row)
{
    if (row->unit == 0 && !params->no_embedding) return PARAM_OF_EMBEDDING;
    return row->unit == params->n_units - 1 && !params->no_head ? PARAM_OF_HEAD : PARAM_OF_BLOCK;
}

int params_find(const Params *params, const char *name)
{
    for (int i = 0; i < params->n_rows; i++)
        if (!strcmp(params->row[i].name, name)) return i;
    return -1;
}

// The first row of a unit.
static int first_row(const Params *params, int unit)
{
    int first = 0, after = params->n_rows; // bisection: the rows are in unit order
    while (first < after) {
        int middle = first + (after - first) / 2;
        if (params->row[middle].unit < unit) first = middle + 1;
        else after = middle;
    }
    check(first < params->n_rows && params->row[first].unit == unit);
    return first;
}

void params_unit_range(const Params *params, int unit, size_t *begin, size_t *end)
{
    int after = first_row(params, unit);
    *begin = params->row[after].offset;
    for (; after < params->n_rows && params->row[after].unit == unit; after++)
        *end = params->row[after].offset + params->row[after].n_elems;
}

bool params_unit_expert(const Params *params, int unit)
{
    return params->row[first_row(params, unit)].expert;
}

size_t params_whole_index(const Param *row, size_t j)
{
    if (row->cut < 0) return j;
    if (row->cut == 0) return row->first * row->dim[1] + j;
    return j / row->dim[1] * row->whole[1] + row->first + j % row->dim[1];
}

void params_init(const Params *params, uint64_t seed, float *flat)
{
    params_init_range(params, seed, 0, params->n_elems, flat);
}

void params_init_range(const Params *params, uint64_t seed, size_t begin, size_t end, float *out)
{
    for (int i = 0; i < params->n_rows; i++) {
        const Param *row = &params->row[i];
        size_t from = row->offset > begin ? row->offset : begin;
        size_t to = row->offset + row->n_elems < end ? row->offset + row->n_elems : end;
        if (from >= to) continue;
        Rng rng = rng_make(seed, row->name, 0);
        float *w = out + (from - begin);
        size_t first = from - row->offset; // in the tensor
        if (row->init_std == 0) {
            for (size_t j = 0; j < to - from; j++) w[j] = row->init_mean;
            continue;
        }
#pragma omp parallel for
        for (size_t j = 0; j < to - from; j++)
            w[j] = (float)(row->init_mean + row->init_std * rng_normal(rng, params_whole_index(row, first + j)));
    }
}

void params_free(Params *params)
{
    free(params->row);
    *params = (Params){0};
}
