#include "muon.h"

#include <math.h>
#include <stdlib.h>

// out (R, C) = a (R, K) b, where b is (K, C), or with `transposed` (C, K). For the student's use.
static inline void multiply(float *out, const float *a, const float *b, int transposed, size_t R, size_t K, size_t C)
{
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < C; c++) {
            float sum = 0;
            for (size_t k = 0; k < K; k++) sum += a[r * K + k] * (transposed ? b[c * K + k] : b[k * C + c]);
            out[r * C + c] = sum;
        }
}

void orthogonalize(float *x, size_t R, size_t C)
{
    //[
    //+ (void)multiply, (void)x, (void)R, (void)C; // write this
    double squares = 0;
    for (size_t i = 0; i < R * C; i++) squares += (double)x[i] * x[i];
    float factor = (float)(1 / (sqrt(squares) + 1e-7));
    for (size_t i = 0; i < R * C; i++) x[i] *= factor;

    float *A = malloc(R * R * sizeof *A), *AX = malloc(R * C * sizeof *AX), *AAX = malloc(R * C * sizeof *AAX);
    for (int step = 0; step < 5; step++) {
        multiply(A, x, x, 1, R, C, R);
        multiply(AX, A, x, 0, R, R, C);
        multiply(AAX, A, AX, 0, R, R, C);
        for (size_t i = 0; i < R * C; i++) x[i] = 3.4445f * x[i] - 4.7750f * AX[i] + 2.0315f * AAX[i];
    }
    free(A), free(AX), free(AAX);
    //]
}

void muon_step(float *weight, float *m, const float *grad, size_t R, size_t C, float lr, float beta, float decay)
{
    //[
    //+ (void)weight, (void)m, (void)grad, (void)R, (void)C, (void)lr, (void)beta, (void)decay; // write this
    float *update = malloc(R * C * sizeof *update);
    for (size_t i = 0; i < R * C; i++) {
        m[i] = beta * m[i] + (1 - beta) * grad[i];
        update[i] = (1 - beta) * grad[i] + beta * m[i];
    }
    orthogonalize(update, R, C);
    float scale = 0.2f * sqrtf((float)(R > C ? R : C));
    for (size_t i = 0; i < R * C; i++) weight[i] -= lr * (scale * update[i] + decay * weight[i]);
    free(update);
    //]
}
