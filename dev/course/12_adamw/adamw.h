// adamw: Adam with decoupled weight decay.
#ifndef ADAMW_H
#define ADAMW_H
#include <stddef.h>

typedef struct {
    double lr, beta1, beta2, eps;
    double weight_decay; // per step and unit of lr: a weight without gradient becomes (1 - lr weight_decay) of itself
} AdamW;

// One update of n weights from their gradient. m and v (n each) are the optimizer's state: zero before the first
// update, kept by the caller from one update to the next. step: 1 for the first update, 2 for the second, ... The
// function keeps nothing itself: a model has many tensors, each with an m and a v, all updated with the same step.
void adamw_step(float *weight, float *m, float *v, const float *grad, size_t n, int step, AdamW a);
#endif
