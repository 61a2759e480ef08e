// norms: norms of weights, gradients and updates, tensor by tensor, for the steps that are asked for.
#ifndef NORMS_H
#define NORMS_H
#include "net/model.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char path[800];
    FILE *file;
    float *old;    // weights before the update, params.n_elems
    double *norm;  // weight and gradient of each row of the table
} Norms;

Norms norms_create(const Model *model); // the buffers
// Opens `dir`/norms.csv for appending; a new file gets the line of column names.
void norms_open(Norms *norms, const char *dir);
// Bytes of scratch that norms_create takes through the memory door.
size_t norms_scratch_bytes(const Params *params);
// Before the optimizer's step: norms of the weights and of grad_scale * the gradients; keeps the weights.
void norms_before(Norms *norms, Model *model, double grad_scale);
// After it: the norm of what the weights changed by, and one line a tensor. The columns: step, tensor, weight, grad,
// update, update / weight. `weight` is before the update, `grad` before clipping.
void norms_after(Norms *norms, Model *model, long step);
void norms_close(Norms *norms);

#ifdef __cplusplus
}
#endif
#endif
