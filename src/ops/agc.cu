// agc: adaptive clipping of the rows of a matrix, on the GPU. The twin of agc.c, where the formula is.
//
// A row is cut into P pieces, from the shape alone: many for one long row, one where there are rows enough. Block (p,
// i) sums the squares of piece p of row i, of gradient and weight; then every block adds its row's pieces in order,
// and scales piece p. So nothing goes to the host.
// The invariant: sums within a thread are fp32 over at most 32 squares, and double from there on; their order follows
// from the shape. A row that keeps the limit is not written.
#include "ops/ops_gpu.h"

namespace {

enum { LEAST = 4096, SPAN = 32, MOST = 256 };

__device__ inline double thread_squares(const float *x, size_t begin, size_t end)
{
    double sum = 0;
    size_t i = begin + threadIdx.x;
    while (i < end) {
        float part = 0;
        for (int k = 0; k < SPAN && i < end; k++, i += blockDim.x) part += x[i] * x[i];
        sum += part;
    }
    return sum;
}

// partial (R, P, 2)
__global__ void agc_squares_kernel(double *partial, const float *grad, const float *weight, size_t C, unsigned P)
{
    size_t p = blockIdx.x % P, row = blockIdx.x / P, begin = p * C / P, end = (p + 1) * C / P;
    double of_grad = block_sum_double(thread_squares(grad + row * C, begin, end));
    double of_weight = block_sum_double(thread_squares(weight + row * C, begin, end));
    if (threadIdx.x > 0) return;
    partial[(size_t)blockIdx.x * 2] = of_grad;
    partial[(size_t)blockIdx.x * 2 + 1] = of_weight;
}

__global__ void agc_scale_kernel(float *grad, const double *partial, size_t C, unsigned P, float limit, float least)
{
    size_t p = blockIdx.x % P, row = blockIdx.x / P, end = (p + 1) * C / P;
    double squares[2] = {0, 0};
    for (unsigned i = 0; i < P; i++)
        for (int k = 0; k < 2; k++) squares[k] += partial[(row * P + i) * 2 + (size_t)k];
    double norm = sqrt(squares[0]), most = limit * fmax(sqrt(squares[1]), (double)least);
    float factor = norm > most ? (float)(most / norm) : 1;
    if (factor == 1) return;
    for (size_t i = p * C / P + threadIdx.x; i < end; i += blockDim.x) grad[row * C + i] *= factor;
}

void clip_units(Dev *dev, float *grad, const float *weight, size_t R, size_t C, float limit, float least)
{
    DevCuda *d = ops_gpu(dev);
    if (R == 0 || C == 0) return;
    size_t P = C / LEAST;
    unsigned threads = power_of_two(d->threads);
    P = P < 1 || R > MOST ? 1 : P < MOST ? P : (size_t)MOST;
    double *partial = (double *)ops_gpu_scratch(d, R * P * 2 * sizeof *partial);
    LAUNCH(agc_squares_kernel, (unsigned)(R * P), threads, 0, d->stream, partial, grad, weight, C,
           (unsigned)P);
    LAUNCH(agc_scale_kernel, (unsigned)(R * P), threads, 0, d->stream, grad, partial, C, (unsigned)P, limit,
           least);
}

} // namespace

void agc_cuda_fill(Dev *dev)
{
    dev->clip_units = clip_units;
}
