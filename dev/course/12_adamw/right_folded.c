// In float, with both corrections folded into the learning rate and eps, as at the end of section 2 of the Adam paper.
#include "adamw.h"

#include <math.h>

void adamw_step(float *weight, float *m, float *v, const float *grad, size_t n, int step, AdamW a)
{
    double root = sqrt(1 - pow(a.beta2, step));
    float rate = (float)(a.lr * root / (1 - pow(a.beta1, step))), eps = (float)(a.eps * root);
    float keep = (float)(1 - a.lr * a.weight_decay), b1 = (float)(1 - a.beta1), b2 = (float)(1 - a.beta2);
    for (size_t i = n; i-- > 0;) {
        m[i] += b1 * (grad[i] - m[i]);
        v[i] += b2 * (grad[i] * grad[i] - v[i]);
        weight[i] = weight[i] * keep - rate * m[i] / (sqrtf(v[i]) + eps);
    }
}
