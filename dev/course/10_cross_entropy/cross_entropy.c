#include "cross_entropy.h"

#include <math.h>

double cross_entropy(float *logits, const int32_t *target, size_t N, size_t V)
{
    //[
    //+ (void)logits, (void)target, (void)N, (void)V; // write this
    //+ return 0;
    size_t counted = 0;
    double loss = 0;
    for (size_t n = 0; n < N; n++) counted += target[n] >= 0;
    for (size_t n = 0; n < N; n++) {
        float *z = logits + n * V;
        if (target[n] < 0) {
            for (size_t v = 0; v < V; v++) z[v] = 0;
            continue;
        }
        float top = z[0];
        for (size_t v = 1; v < V; v++) top = z[v] > top ? z[v] : top;
        float z_target = z[target[n]];
        double sum = 0;
        for (size_t v = 0; v < V; v++) {
            z[v] = expf(z[v] - top);
            sum += z[v];
        }
        loss += log(sum) + top - z_target;
        for (size_t v = 0; v < V; v++) z[v] = (float)(z[v] / sum / (double)counted);
        z[target[n]] -= 1 / (float)counted;
    }
    return counted ? loss / (double)counted : 0;
    //]
}
