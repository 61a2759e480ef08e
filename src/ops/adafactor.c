// adafactor: Adam's division by the root of the mean square, with that mean kept for rows and columns only,
// on the CPU.
//
//   s_ij = g_ij^2 + 1e-30;    b = 1 - t^-0.8
//   row_i = b row_i + (1 - b) mean_j s_ij;    col_j = b col_j + (1 - b) mean_i s_ij
//   u_ij = g_ij / sqrt(row_i col_j / mean(row));     u /= max(1, rms(u))
//   w -= a (u + decay w),    a = lr max(1e-3, rms(w))
//
// (Shazeer & Stern, arXiv 1804.04235; the constants and the order are those of Transformers' Adafactor.) A
// (R, C) matrix keeps R + C numbers: row_i col_j / mean(row) is the best rank-one guess, in the sense of the
// I-divergence, of the R C means that Adam would keep. A vector keeps one number an element. There is no first
// moment. What replaces its calm: updates whose rms is above 1 are shrunk to it, and steps are in proportion
// to the tensor's own size. b grows with t, so no bias correction is needed: at t = 1 it is 0.
//
// The invariant: a whole tensor at a time; every sum is taken in an order that the shape alone decides.
// grad holds u between the passes, so no scratch is needed.
//
// Rejected: the paper's optional first moment (4 bytes a parameter, for what the optimizer is there to save).
#include "ops/dev_cpu.h"

#include <math.h>

static const double EPS_SQUARE = 1e-30, EPS_SIZE = 1e-3;

// grad becomes the scaled gradient; row takes in the means of its squares along C.
static void update_rows(Dev *dev, float *row, float *grad, size_t R, size_t C, double keep, float grad_scale)
{
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R; i++) {
        double sum = 0;
        float *g = grad + i * C;
#pragma omp simd reduction(+ : sum)
        for (size_t j = 0; j < C; j++) {
            g[j] *= grad_scale;
            sum += (double)g[j] * g[j];
        }
        row[i] = (float)(keep * row[i] + (1 - keep) * (sum / (double)C + EPS_SQUARE));
    }
}

static void update_cols(Dev *dev, float *col, const float *grad, size_t R, size_t C, double keep)
{
    enum { WIDTH = 64 };
#pragma omp parallel for schedule(static) num_threads(dev->threads)
    for (size_t begin = 0; begin < C; begin += WIDTH) {
        double sum[WIDTH] = {0};
        size_t n = C - begin < WIDTH ? C - begin : WIDTH;
        for (size_t i = 0; i < R; i++) {
            const float *g = grad + i * C + begin;
            for (size_t j = 0; j < n; j++) sum[j] += (double)g[j] * g[j];
        }
        for (size_t j = 0; j < n; j++)
            col[begin + j] = (float)(keep * col[begin + j] + (1 - keep) * (sum[j] / (double)R + EPS_SQUARE));
    }
}

static void adafactor(Dev *dev, float *weight, float *row, float *col, float *grad, size_t R, size_t C, Update u)
{
    double keep = 1 - pow(u.step, -0.8), n = (double)(R * C), mean = 0;
    if (col) {
        update_rows(dev, row, grad, R, C, keep, u.grad_scale);
        update_cols(dev, col, grad, R, C, keep);
        for (size_t i = 0; i < R; i++) mean += row[i];
        mean /= (double)R;
#pragma omp parallel for schedule(static) num_threads(dev->threads)
        for (size_t i = 0; i < R; i++) {
            float of_row = (float)(row[i] / mean), *g = grad + i * C;
#pragma omp simd
            for (size_t j = 0; j < C; j++) g[j] /= sqrtf(of_row) * sqrtf(col[j]);
        }
    } else {
        float b = (float)keep, rest = (float)(1 - keep);
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
        for (size_t i = 0; i < R * C; i++) {
            float g = grad[i] * u.grad_scale;
            row[i] = b * row[i] + rest * (g * g + (float)EPS_SQUARE);
            grad[i] = g / sqrtf(row[i]);
        }
    }
    double rms_update = sqrt(dev->sum_squares(dev, grad, R * C) / n);
    double rms_weight = sqrt(dev->sum_squares(dev, weight, R * C) / n);
    double step = u.lr * (rms_weight > EPS_SIZE ? rms_weight : EPS_SIZE);
    float shrink = (float)(1 - step * u.weight_decay), scale = (float)(step / (rms_update > 1 ? rms_update : 1));
#pragma omp parallel for simd schedule(static) num_threads(dev->threads)
    for (size_t i = 0; i < R * C; i++) {
        weight[i] = weight[i] * shrink - scale * grad[i];
        grad[i] = 0;
    }
}

void adafactor_cpu_fill(Dev *dev)
{
    dev->adafactor = adafactor;
}
