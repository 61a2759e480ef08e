#include "adamw.h"

#include <math.h>

void adamw_step(float *weight, float *m, float *v, const float *grad, size_t n, int step, AdamW a)
{
    //[
    //+ (void)weight, (void)m, (void)v, (void)grad, (void)n, (void)step, (void)a; // write this
    double correct1 = 1 - pow(a.beta1, step), correct2 = 1 - pow(a.beta2, step);
    for (size_t i = 0; i < n; i++) {
        double g = grad[i];
        m[i] = (float)(a.beta1 * m[i] + (1 - a.beta1) * g);
        v[i] = (float)(a.beta2 * v[i] + (1 - a.beta2) * g * g);
        double m_hat = m[i] / correct1, v_hat = v[i] / correct2;
        double update = m_hat / (sqrt(v_hat) + a.eps);
        weight[i] = (float)(weight[i] - a.lr * (update + a.weight_decay * weight[i]));
    }
    //]
}
