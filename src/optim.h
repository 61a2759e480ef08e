// optim: the optimizer over the parameter table: its state, its groups, clipping. Layer 5.
#ifndef OPTIM_H
#define OPTIM_H
#include "mem.h"
#include "model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    float beta1, beta2, eps, weight_decay;
    float clip; // largest global gradient norm; 0: do not clip
    float *m, *v; // first and second moment, params.n_elems each, in table order
    int step;     // updates made
} Optim;

// AdamW with zero state.
Optim optim_create(const Model *model, float beta1, float beta2, float eps, float weight_decay, float clip);
// One update from model->grads, which it leaves zeroed. Matrices decay, vectors do not (the table says
// which). Returns the global gradient norm before clipping (Pascanu et al., arXiv 1211.5063); when it is
// not finite, nothing is updated, the gradients are zeroed and the norm is returned as it is.
double optim_step(Optim *optim, Model *model, double lr);

#ifdef __cplusplus
}
#endif
#endif
