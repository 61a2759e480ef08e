// updates_matrix: optimizers that update a matrix as a whole, Adafactor and Muon, on the GPU. The twin of
// updates_matrix.c, where the formulas are.
//
//   adafactor   rows:    a block a row: g = grad scale, row_i = keep row_i + (1 - keep) (mean_j g^2 + 1e-30)
//               columns: the same along columns, in ranges of rows, which are then added in order
//               divide:  a block a row: u = g / sqrt(row_i col_j / mean(row))
//               apply:   w = w shrink - scale u, where scale knows the rms of all of u and w (sums.cu)
//   muon        five times:  A = X X^T (tall: X^T X),  B = c1 + c3 A + c5 A A,  X = B X (tall: X B)
//               by matmul.cu, c5 A A + c3 A with cuBLASLt's C; only c1 on the diagonal is a kernel
//   normuon     then a block a row: row_i, and X / sqrt(row_i); then X's norm as it was
//
// The invariant: a whole tensor at a time, and nothing goes to the host. When a kernel needs a sum over all elements,
// the kernel before it leaves a few partial sums, which every block adds in the same order. Products are fp32,
// on a device that uses TF32 too. So the same call gives the same bits.
#include "ops/dev_cuda.h"

#include <cmath>

namespace {

// ---- Adafactor

enum { TILE = 32, ROWS = 8, RANGES = 64 };
constexpr double EPS_SQUARE = 1e-30, EPS_SIZE = 1e-3;

__global__ void adafactor_rows_kernel(float *row, float *grad, size_t C, double keep, float grad_scale)
{
    float *g = grad + blockIdx.x * C;
    double sum = 0;
    for (size_t j = threadIdx.x; j < C; j += blockDim.x) {
        g[j] *= grad_scale;
        sum += (double)g[j] * g[j];
    }
    sum = block_sum_double(sum);
    if (threadIdx.x == 0)
        row[blockIdx.x] = (float)(keep * row[blockIdx.x] + (1 - keep) * (sum / (double)C + EPS_SQUARE));
}

// partial (gridDim.y, C)
__global__ void adafactor_columns_kernel(double *partial, const float *grad, size_t R, size_t C)
{
    SHARED(double, parts, [ROWS][TILE]);
    size_t j = (size_t)blockIdx.x * TILE + threadIdx.x, end = (blockIdx.y + 1) * R / gridDim.y;
    double sum = 0;
    for (size_t i = blockIdx.y * R / gridDim.y + threadIdx.y; j < C && i < end; i += ROWS)
        sum += (double)grad[i * C + j] * grad[i * C + j];
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || j >= C) return;
    for (int i = 1; i < ROWS; i++) sum += parts[i][threadIdx.x];
    partial[blockIdx.y * C + j] = sum;
}

__global__ void adafactor_means_kernel(float *col, const double *partial, size_t R, size_t C, size_t ranges,
                                       double keep)
{
    size_t j = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= C) return;
    double sum = 0;
    for (size_t i = 0; i < ranges; i++) sum += partial[i * C + j];
    col[j] = (float)(keep * col[j] + (1 - keep) * (sum / (double)R + EPS_SQUARE));
}

// The mean of row (R), to *mean. One block.
__global__ void adafactor_mean_kernel(double *mean, const float *row, size_t R)
{
    double sum = 0;
    for (size_t i = threadIdx.x; i < R; i += blockDim.x) sum += row[i];
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) *mean = sum / (double)R;
}

__global__ void adafactor_divide_kernel(float *grad, const float *row, const float *col, const double *mean, size_t C)
{
    float *g = grad + blockIdx.x * C, of_row = sqrtf((float)(row[blockIdx.x] / *mean));
    for (size_t j = threadIdx.x; j < C; j += blockDim.x) g[j] /= of_row * sqrtf(col[j]);
}

// Without columns: row is that of each element.
struct Divide {
    float *row, *grad;
    float keep, rest, grad_scale;
    template <int W> __device__ void run(size_t i) const
    {
        float g[W], r[W];
        load<W>(g, grad + i), load<W>(r, row + i);
        for (int k = 0; k < W; k++) {
            g[k] *= grad_scale;
            r[k] = keep * r[k] + rest * (g[k] * g[k] + (float)EPS_SQUARE);
            g[k] /= sqrtf(r[k]);
        }
        store<W>(row + i, r), store<W>(grad + i, g);
    }
};

// of_update, of_weight: partial sums of squares
__global__ void adafactor_apply_kernel(float *weight, float *grad, const double *of_update, const double *of_weight,
                                       size_t n, float lr, float weight_decay)
{
    double rms_update = sqrt(sums_of_ranges(of_update) / (double)n);
    double rms_weight = sqrt(sums_of_ranges(of_weight) / (double)n);
    double step = lr * (rms_weight > EPS_SIZE ? rms_weight : EPS_SIZE);
    float shrink = (float)(1 - step * weight_decay), scale = (float)(step / (rms_update > 1 ? rms_update : 1));
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = at; i < n; i += stride) {
        weight[i] = weight[i] * shrink - scale * grad[i];
        grad[i] = 0;
    }
}

void adafactor(Dev *dev, float *weight, float *row, float *col, float *grad, size_t R, size_t C, Update u)
{
    DevCuda *d = dev_cuda(dev);
    size_t n = R * C, ranges = R < RANGES ? R : (size_t)RANGES;
    if (n == 0) return;
    unsigned threads = power_of_two(d->threads);
    double keep = 1 - pow(u.step, -0.8);
    size_t n_scratch = ranges * C > 1 ? ranges * C : 1;
    double *scratch = (double *)dev_cuda_scratch(d, (2 * SUMS_RANGES + 1 + n_scratch) * sizeof *scratch);
    double *of_update = scratch, *of_weight = scratch + SUMS_RANGES, *mean = of_weight + SUMS_RANGES;
    double *partial = mean + 1;
    if (col) {
        LAUNCH(adafactor_rows_kernel, (unsigned)R, threads, 0, d->stream, row, grad, C, keep, u.grad_scale);
        LAUNCH(adafactor_columns_kernel, dim3((unsigned)((C + TILE - 1) / TILE), (unsigned)ranges), dim3(TILE, ROWS), 0,
               d->stream, partial, grad, R, C);
        LAUNCH(adafactor_means_kernel, (unsigned)((C + threads - 1) / threads), threads, 0, d->stream, col, partial, R,
               C, ranges, keep);
        LAUNCH(adafactor_mean_kernel, 1, threads, 0, d->stream, mean, row, R);
        LAUNCH(adafactor_divide_kernel, (unsigned)R, threads, 0, d->stream, grad, row, col, mean, C);
    } else elements<4>(d, n, aligned(row, grad), Divide{row, grad, (float)keep, (float)(1 - keep), u.grad_scale});
    sums_squares(d, of_update, grad, n);
    sums_squares(d, of_weight, weight, n);
    LAUNCH(adafactor_apply_kernel, blocks_for(d, n, d->threads), (unsigned)d->threads, 0, d->stream, weight, grad,
           of_update, of_weight, n, u.lr, u.weight_decay);
}

// ---- Muon

enum { STEPS = 5 };
constexpr float COEF_1 = 3.4445f, COEF_3 = -4.7750f, COEF_5 = 2.0315f;

struct MuonMomentum { // grad becomes Nesterov's look-ahead
    float *m, *grad;
    float b, rest, grad_scale;
    template <int W> __device__ void run(size_t i) const
    {
        float mi[W], g[W];
        load<W>(mi, m + i), load<W>(g, grad + i);
        for (int k = 0; k < W; k++) {
            g[k] *= grad_scale;
            mi[k] = b * mi[k] + rest * g[k];
            g[k] = rest * g[k] + b * mi[k];
        }
        store<W>(m + i, mi), store<W>(grad + i, g);
    }
};

__global__ void muon_to_one_kernel(float *x, const double *squares, size_t n)
{
    float factor = (float)(1 / (sqrt(sums_of_ranges(squares)) + 1e-7));
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = at; i < n; i += stride) x[i] *= factor;
}

struct MuonDiagonal {
    float *b;
    size_t k;
    template <int W> __device__ void run(size_t i) const
    {
        for (int j = 0; j < W; j++) b[(i + (size_t)j) * (k + 1)] += COEF_1;
    }
};

// NorMuon, a block a row: row_i = b row_i + rest mean_j x^2, x /= sqrt(row_i) + eps
__global__ void normuon_rows_kernel(float *x, float *row, size_t C, float b, float rest, float eps)
{
    SHARED(float, factor, [1]);
    float *of = x + blockIdx.x * C;
    double sum = 0;
    for (size_t j = threadIdx.x; j < C; j += blockDim.x) sum += (double)of[j] * of[j];
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) {
        float mean = b * row[blockIdx.x] + rest * (float)(sum / (double)C);
        row[blockIdx.x] = mean;
        factor[0] = 1 / (sqrtf(mean) + eps);
    }
    __syncthreads();
    for (size_t j = threadIdx.x; j < C; j += blockDim.x) of[j] *= factor[0];
}

// x gets back the norm that it had; before, after: partial sums of its squares
__global__ void normuon_norm_kernel(float *x, const double *before, const double *after, size_t n)
{
    double now = sums_of_ranges(after);
    float factor = now > 0 ? (float)sqrt(sums_of_ranges(before) / now) : 0;
    size_t at = (size_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = at; i < n; i += stride) x[i] *= factor;
}

void normalize_rows(DevCuda *d, float *x, float *row, size_t R, size_t C, Update u)
{
    size_t n = R * C;
    double *before = (double *)dev_cuda_scratch(d, 2 * SUMS_RANGES * sizeof *before), *after = before + SUMS_RANGES;
    sums_squares(d, before, x, n);
    LAUNCH(normuon_rows_kernel, (unsigned)R, power_of_two(d->threads), 0, d->stream, x, row, C, (float)u.beta2,
           (float)(1 - u.beta2), u.eps);
    sums_squares(d, after, x, n);
    LAUNCH(normuon_norm_kernel, blocks_for(d, n, d->threads), (unsigned)d->threads, 0, d->stream, x, before, after, n);
}

struct MuonApply {
    float *weight, *grad;
    const float *x;
    float shrink, apart, scale; // apart: in place of shrink where weight and update have opposite signs
    template <int W> __device__ void run(size_t i) const
    {
        float w[W], v[W];
        load<W>(w, weight + i), load<W>(v, x + i);
        for (int k = 0; k < W; k++) w[k] = w[k] * (v[k] * w[k] < 0 ? apart : shrink) - scale * v[k], v[k] = 0;
        store<W>(weight + i, w), store<W>(grad + i, v);
    }
};

void muon(Dev *dev, float *weight, float *m, float *row, float *grad, float *scratch, size_t R, size_t C, Update u)
{
    DevCuda *d = dev_cuda(dev);
    size_t n = R * C, k = R < C ? R : C;
    bool tall = R > C;
    if (n == 0) return;
    elements<4>(d, n, aligned(m, grad), MuonMomentum{m, grad, (float)u.beta1, (float)(1 - u.beta1), u.grad_scale});
    double *squares = (double *)dev_cuda_scratch(d, SUMS_RANGES * sizeof *squares);
    sums_squares(d, squares, grad, n);
    LAUNCH(muon_to_one_kernel, blocks_for(d, n, d->threads), (unsigned)d->threads, 0, d->stream, grad, squares, n);
    float *from = grad, *to = scratch, *A = scratch + n, *B = A + k * k;
    for (int i = 0; i < STEPS; i++) {
        matmul_cuda_rows(d, tall, !tall, k, k, tall ? R : C, 1, from, from, 0, nullptr, A);
        matmul_cuda_rows(d, false, false, k, k, k, COEF_5, A, A, COEF_3, A, B);
        elements<1>(d, k, false, MuonDiagonal{B, k});
        if (tall) matmul_cuda_rows(d, false, false, R, C, k, 1, from, B, 0, nullptr, to);
        else matmul_cuda_rows(d, false, false, R, C, k, 1, B, from, 0, nullptr, to);
        float *old = from;
        from = to, to = old;
    }
    float shrink = 1 - u.lr * u.weight_decay, scale = u.lr * 0.2f * sqrtf((float)(R > C ? R : C));
    if (row) normalize_rows(d, from, row, R, C, u);
    elements<4>(d, n, aligned(weight, grad, from),
                MuonApply{weight, grad, from, shrink, u.cautious ? 1 : shrink, scale});
}

} // namespace

void updates_matrix_cuda_fill(Dev *dev)
{
    dev->adafactor = adafactor;
    dev->muon = muon;
}
