// optim: AdamW over the parameter table, with clipping by the global norm.
//
//   norm = sqrt(sum of all g^2);  g *= clip / norm where norm > clip;  then the update of adamw.c
//
// The invariant: every element is updated exactly once per step with the decay of its row. Neighbouring
// rows with the same decay form one run, so that a step is a few long passes and not a call per tensor.
#include "optim.h"

#include <math.h>

Optim optim_create(const Model *model, float beta1, float beta2, float eps, float weight_decay, float clip)
{
    size_t n_bytes = model->params.n_elems * sizeof(float);
    return (Optim){.beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay, .clip = clip,
                   .m = mem_alloc(model->mem, MEM_OPTIM, n_bytes, "first moment"),
                   .v = mem_alloc(model->mem, MEM_OPTIM, n_bytes, "second moment")};
}

double optim_step(Optim *o, Model *model, double lr)
{
    const Params *params = &model->params;
    Dev *dev = model->dev;
    double norm = sqrt(dev->sum_squares(dev, model->grads, params->n_elems));
    if (!isfinite(norm)) {
        dev->zero(dev, model->grads, params->n_elems * sizeof(float));
        return norm;
    }
    AdamW h = {.lr = (float)lr, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps, .step = ++o->step};
    h.grad_scale = o->clip > 0 && norm > o->clip ? (float)(o->clip / norm) : 1;
    for (int i = 0; i < params->n_rows;) {
        int j = i;
        size_t n = 0, at = params->row[i].offset;
        while (j < params->n_rows && params->row[j].decay == params->row[i].decay) n += params->row[j++].n_elems;
        h.weight_decay = params->row[i].decay ? o->weight_decay : 0;
        dev->adamw(dev, model->weights + at, o->m + at, o->v + at, model->grads + at, NULL, n, h);
        i = j;
    }
    return norm;
}
