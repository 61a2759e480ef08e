// Finds the largest score and the sum in one reading (online softmax), in double, from the last class to the first.
#include "cross_entropy.h"

#include <math.h>

double cross_entropy(float *logits, const int32_t *target, size_t N, size_t V)
{
    double loss = 0, rows = 0;
    for (size_t n = 0; n < N; n++) rows += target[n] >= 0;
    for (size_t n = N; n-- > 0;) {
        float *z = logits + n * V;
        double top = -INFINITY, sum = 0;
        for (size_t v = V; v-- > 0;) {
            double higher = fmax(top, z[v]);
            sum = sum * exp(top - higher) + exp(z[v] - higher);
            top = higher;
        }
        double log_sum = log(sum) + top;
        if (target[n] >= 0) loss += (log_sum - z[target[n]]) / rows;
        for (size_t v = V; v-- > 0;)
            z[v] = target[n] < 0 ? 0 : (float)((exp(z[v] - log_sum) - (target[n] == (int32_t)v)) / rows);
    }
    return loss;
}
