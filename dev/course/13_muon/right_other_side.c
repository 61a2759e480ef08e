// In double, with X^T X on the right (the same polynomial), and one matrix B = b A + c A A as the trainer does it.
#include "muon.h"

#include <math.h>
#include <stdlib.h>

void orthogonalize(float *x, size_t R, size_t C)
{
    double *A = malloc(C * C * sizeof *A), *B = malloc(C * C * sizeof *B), *row = malloc(C * sizeof *row), norm = 0;
    double *X = malloc(R * C * sizeof *X);
    for (size_t i = 0; i < R * C; i++) norm = hypot(norm, x[i]);
    for (size_t i = 0; i < R * C; i++) X[i] = x[i] / (norm + 1e-7);
    for (int step = 5; step > 0; step--) {
        for (size_t i = 0; i < C; i++)
            for (size_t j = 0; j < C; j++) {
                A[i * C + j] = 0;
                for (size_t r = 0; r < R; r++) A[i * C + j] += X[r * C + i] * X[r * C + j];
            }
        for (size_t i = 0; i < C; i++)
            for (size_t j = 0; j < C; j++) {
                double sum = 0;
                for (size_t k = 0; k < C; k++) sum += A[i * C + k] * A[k * C + j];
                B[i * C + j] = -4.7750 * A[i * C + j] + 2.0315 * sum + (i == j ? 3.4445 : 0);
            }
        for (size_t r = 0; r < R; r++) {
            for (size_t j = 0; j < C; j++) {
                row[j] = 0;
                for (size_t k = 0; k < C; k++) row[j] += X[r * C + k] * B[k * C + j];
            }
            for (size_t j = 0; j < C; j++) X[r * C + j] = row[j];
        }
    }
    for (size_t i = 0; i < R * C; i++) x[i] = (float)X[i];
    free(A), free(B), free(row), free(X);
}

void muon_step(float *weight, float *m, const float *grad, size_t R, size_t C, float lr, float beta, float decay)
{
    float *ahead = malloc(R * C * sizeof *ahead);
    for (size_t i = 0; i < R * C; i++) weight[i] *= 1 - lr * decay, m[i] += (1 - beta) * (grad[i] - m[i]);
    for (size_t i = 0; i < R * C; i++) ahead[i] = grad[i] + beta * (m[i] - grad[i]);
    orthogonalize(ahead, R, C);
    for (size_t i = 0; i < R * C; i++) weight[i] -= lr * (0.2f * fmaxf(sqrtf((float)R), sqrtf((float)C)) * ahead[i]);
    free(ahead);
}
