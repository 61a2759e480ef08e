// sums: sums of squares and sums of columns on the GPU, each in one fixed order. The twin of sum_squares in adamw.c; the
// gradients of biases and norms end here.
//
//   sum_squares: range i of 256, i n / 256 .. (i + 1) n / 256 - 1, is a block's; a thread adds up to 32 squares in fp32
//   and these in double; then the block's threads, in a tree; then the ranges, in order.
//   columns: P ranges of rows, then the ranges in order, then the gradient.
//
// The invariant: the order follows from the sizes alone, never from who was first: two runs give the same bits.
// Rejected: atomics, which are one pass instead of two but end in another order each time.
#include "ops_gpu.h"

enum { TILE = 32, ROWS = 16, SPAN = 32 };

__global__ void sums_squares_kernel(double *partial, const float *x, size_t n)
{
    size_t end = (blockIdx.x + 1) * n / OPS_RANGES, i = blockIdx.x * n / OPS_RANGES + threadIdx.x;
    double sum = 0;
    while (i < end) {
        float part = 0;
        for (int k = 0; k < SPAN && i < end; k++, i += blockDim.x) part += x[i] * x[i];
        sum += part;
    }
    sum = block_sum_double(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

void sums_squares(DevCuda *d, double *partial, const float *x, size_t n)
{
    LAUNCH(sums_squares_kernel, (unsigned)OPS_RANGES, power_of_two(d->threads), 0, d->stream, partial, x, n);
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    DevCuda *d = ops_gpu(dev);
    double *partial = (double *)ops_gpu_scratch(d, OPS_RANGES * sizeof *partial), on_host[OPS_RANGES], sum = 0;
    sums_squares(d, partial, x, n);
    GPU_CHECK(cudaMemcpyAsync(on_host, partial, sizeof on_host, cudaMemcpyDeviceToHost, d->stream));
    GPU_CHECK(cudaStreamSynchronize(d->stream));
    for (int i = 0; i < OPS_RANGES; i++) sum += on_host[i];
    return sum;
}

// Block (x, y): columns 32 x .., range y of the rows. The sums go to row y of `out`, or are added to it.
template <class E>
__global__ void sums_columns_kernel(float *out, const E *x, size_t rows, size_t cols, size_t ld, bool add)
{
    SHARED(float, parts, [ROWS][TILE]);
    size_t c = (size_t)blockIdx.x * TILE + threadIdx.x, end = (blockIdx.y + 1) * rows / gridDim.y;
    float sum = 0;
    for (size_t r = blockIdx.y * rows / gridDim.y + threadIdx.y; c < cols && r < end; r += ROWS)
        sum += (float)x[r * ld + c];
    parts[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= cols) return;
    for (int i = 1; i < ROWS; i++) sum += parts[i][threadIdx.x];
    if (add) out[c] += sum;
    else out[blockIdx.y * cols + c] = sum;
}

static size_t ranges_for(size_t rows)
{
    size_t ranges = rows / (8 * ROWS);
    return ranges < 1 ? 1 : ranges < 64 ? ranges : 64;
}

size_t sums_columns_room(size_t rows, size_t cols)
{
    return ranges_for(rows) * cols;
}

template <class E>
void sums_columns(DevCuda *d, float *grad, const E *x, size_t rows, size_t cols, size_t ld, float *scratch)
{
    if (rows == 0 || cols == 0) return;
    unsigned tiles = (unsigned)((cols + TILE - 1) / TILE), ranges = (unsigned)ranges_for(rows);
    dim3 block(TILE, ROWS);
    if (ranges == 1) {
        LAUNCH((sums_columns_kernel<E>), tiles, block, 0, d->stream, grad, x, rows, cols, ld, true);
        return;
    }
    LAUNCH((sums_columns_kernel<E>), dim3(tiles, ranges), block, 0, d->stream, scratch, x, rows, cols, ld, false);
    LAUNCH((sums_columns_kernel<float>), tiles, block, 0, d->stream, grad, scratch, (size_t)ranges, cols, cols, true);
}
template void sums_columns<float>(DevCuda *, float *, const float *, size_t, size_t, size_t, float *);
template void sums_columns<__nv_bfloat16>(DevCuda *, float *, const __nv_bfloat16 *, size_t, size_t, size_t, float *);
template void sums_columns<__half>(DevCuda *, float *, const __half *, size_t, size_t, size_t, float *);

void sums_cuda_fill(Dev *dev)
{
    dev->sum_squares = sum_squares;
}
