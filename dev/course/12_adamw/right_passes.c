// A pass over memory for each line of the formulas; the decay first.
#include "adamw.h"

#include <math.h>

void adamw_step(float *weight, float *m, float *v, const float *grad, size_t n, int step, AdamW a)
{
    double b1 = 1, b2 = 1;
    for (int t = 0; t < step; t++) b1 *= a.beta1, b2 *= a.beta2;
    for (size_t i = 0; i < n; i++) weight[i] -= (float)(a.lr * a.weight_decay * weight[i]);
    for (size_t i = 0; i < n; i++) m[i] = (float)(a.beta1 * m[i] + (1 - a.beta1) * grad[i]);
    for (size_t i = 0; i < n; i++) v[i] = (float)(a.beta2 * v[i] + (1 - a.beta2) * grad[i] * grad[i]);
    for (size_t i = 0; i < n; i++) weight[i] -= (float)(a.lr * (m[i] / (1 - b1)) / (sqrt(v[i] / (1 - b2)) + a.eps));
}
