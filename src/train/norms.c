// norms: three norms a tensor. See norms.h.
//
//   weight |w|,   grad |g|,   update |w_after - w_before|,   and update / weight
//
// The last one says how fast a tensor turns over: with AdamW it is near lr / rms(w) at the start. A tensor whose
// ratio is orders of magnitude from its neighbours' has a wrong initialisation, a wrong learning rate or no gradient.
//
// The invariant: `update` is what really happened to the weights, decay and clipping and all, because it is taken
// from the weights and not from the optimizer's formula. It needs a copy of all weights (4 bytes a parameter), whose
// room is taken at creation or not at all: a run that does not ask for norms pays nothing.
//
// Rejected: norms inside the optimizers' loops, eight times the same code; and a line in metrics.jsonl, where a
// hundred numbers a step would bury the few that everyone reads.
#include "train/norms.h"

#include "base/check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t norms_scratch_bytes(const Params *params)
{
    return params->n_elems * sizeof(float);
}

Norms norms_create(const Model *model)
{
    Norms n = {0};
    n.old = mem_alloc(model->mem, MEM_SCRATCH, norms_scratch_bytes(&model->params), "old weights");
    n.norm = calloc((size_t)model->params.n_rows, 2 * sizeof *n.norm);
    if (!n.norm) die("norms: no memory for %d tensors", model->params.n_rows);
    return n;
}

void norms_open(Norms *n, const char *dir)
{
    int length = snprintf(n->path, sizeof n->path, "%s/norms.csv", dir);
    if (length < 0 || length >= (int)sizeof n->path) die("norms: %s: longer than %zu characters", dir, sizeof n->path);
    n->file = fopen(n->path, "a");
    if (!n->file || fseek(n->file, 0, SEEK_END)) die("norms: cannot open %s: %s", n->path, strerror(errno));
    if (ftell(n->file) == 0 && fputs("step,tensor,weight,grad,update,update/weight\n", n->file) < 0)
        die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
}

static double norm_of(Dev *dev, const float *x, const Param *row)
{
    return sqrt(dev->sum_squares(dev, x + row->offset, row->n_elems));
}

void norms_before(Norms *n, Model *model, double grad_scale)
{
    const Params *params = &model->params;
    for (int r = 0; r < params->n_rows; r++) {
        n->norm[2 * r] = norm_of(model->dev, model->weights, &params->row[r]);
        n->norm[2 * r + 1] = grad_scale * norm_of(model->dev, model->grads, &params->row[r]);
    }
    model->dev->subtract(model->dev, n->old, model->weights, NULL, params->n_elems);
}

void norms_after(Norms *n, Model *model, long step)
{
    const Params *params = &model->params;
    model->dev->subtract(model->dev, n->old, model->weights, n->old, params->n_elems);
    for (int r = 0; r < params->n_rows; r++) {
        double update = norm_of(model->dev, n->old, &params->row[r]), weight = n->norm[2 * r];
        if (fprintf(n->file, "%ld,%s,%.6g,%.6g,%.6g,%.6g\n", step, params->row[r].name, weight, n->norm[2 * r + 1],
                    update, weight > 0 ? update / weight : NAN) < 0)
            die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
    }
    if (fflush(n->file)) die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
}

void norms_close(Norms *n)
{
    if (n->file && fclose(n->file)) die("norms: cannot write %s: %s (is the disk full?)", n->path, strerror(errno));
    free(n->norm);
    *n = (Norms){0}; // `old` is the memory door's
}
