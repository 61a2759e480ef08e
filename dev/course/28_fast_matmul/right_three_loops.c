// By definition, with the sum in double: slow, and right.
#include "fast.h"

void fast_matmul(float *out, const float *a, const float *b, int m, int n, int k)
{
    for (int at = 0; at < m * n; at++) {
        double sum = 0;
        for (int i = 0; i < k; i++) sum += (double)a[at / n * k + i] * b[i * n + at % n];
        out[at] = (float)sum;
    }
}
