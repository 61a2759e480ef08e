// sums: sums of squares and sums of columns on the GPU, each in one fixed order. The twin of sum_squares in updates.c;
// the gradients of biases and norms end here.
//
//   sum_squares: up to 256 ranges of at least 1024 elements, a block for each; a thread adds up to 32 squares in fp32
//   and these in double; then the block's threads, in a tree; then the ranges, in order.
//   exactly: integers of 704 bits (formats.c), whose additions need no order.
//   columns: P ranges of rows, then the ranges in order, then the gradient.
//
// The invariant: the order follows from the sizes alone, never from timing: two runs give the same bits.
// Rejected: atomics, which need one pass instead of two but add in another order each time.
#include "ops/dev_cuda.h"

enum { TILE = 32, ROWS = 16 };

__global__ void sums_squares_kernel(double *partial, const float *x, size_t n, size_t range)
{
    size_t begin = blockIdx.x * range, end = begin + range < n ? begin + range : n;
    double sum = block_sum_double(thread_squares(x, begin, end));
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    unsigned unused = gridDim.x + threadIdx.x;
    for (; blockIdx.x == 0 && unused < SUMS_RANGES; unused += blockDim.x) partial[unused] = 0;
}

void sums_squares(DevCuda *d, double *partial, const float *x, size_t n)
{
    size_t range = n > SUMS_RANGES * 1024 ? (n + SUMS_RANGES - 1) / SUMS_RANGES : 1024;
    unsigned blocks = n > range ? (unsigned)((n + range - 1) / range) : 1;
    LAUNCH(sums_squares_kernel, blocks, power_of_two(d->threads), 0, d->stream, partial, x, n, range);
}

static double sum_squares(Dev *dev, const float *x, size_t n)
{
    DevCuda *d = dev_cuda(dev);
    double *partial = (double *)dev_cuda_scratch(d, SUMS_RANGES * sizeof *partial), on_host[SUMS_RANGES], sum = 0;
    sums_squares(d, partial, x, n);
    dev->to_host(dev, on_host, partial, sizeof on_host);
    for (int i = 0; i < SUMS_RANGES; i++) sum += on_host[i];
    return sum;
}

// ---- exactly: words as in formats.c. A thread has an accumulator of its own in shared memory, word i of thread t at
// i EXACT_THREADS + t, so no two threads touch one bank in one access, and additions of integers need no order.
enum { EXACT_THREADS = 128 };

__device__ inline void exact_add(int64_t *word, float x)
{
    double square = (double)x * (double)x;
    uint64_t bits = (uint64_t)__double_as_longlong(square);
    int exponent = (int)(bits >> 52 & 0x7ff), at = exponent - 1075 + 352, shift = at & 31;
    if (exponent == 0) return;
    if (exponent == 0x7ff) {
        word[EXACT_LIMBS * EXACT_THREADS] = 1;
        return;
    }
    uint64_t m = (bits & 0xfffffffffffffu) | 0x10000000000000u, low = m << shift; // square = m 2^(exponent - 1075)
    word += (at >> 5) * EXACT_THREADS;
    word[0] += (int64_t)(low & 0xffffffffu);
    word[EXACT_THREADS] += (int64_t)(low >> 32);
    word[2 * EXACT_THREADS] += (int64_t)(shift ? m >> (64 - shift) : 0);
}

// Adds the block's words to sum. Each thread adds fewer than 2^23 squares, so a word stays below 2^55, the sum of 128
// threads below 2^62, and after the carries below 2^32 again.
__global__ void __launch_bounds__(EXACT_THREADS) sums_exact_kernel(unsigned long long *sum, const float *x, size_t n)
{
    SHARED(int64_t, words, [EXACT_WORDS * EXACT_THREADS]);
    SHARED(int64_t, total, [EXACT_WORDS]);
    int t = (int)threadIdx.x;
    for (int i = 0; i < EXACT_WORDS; i++) words[i * EXACT_THREADS + t] = 0;
    for (size_t i = (size_t)blockIdx.x * EXACT_THREADS + threadIdx.x; i < n; i += (size_t)gridDim.x * EXACT_THREADS)
        exact_add(words + t, x[i]);
    __syncthreads();
    if (t < EXACT_WORDS) {
        int64_t all = 0;
        for (int i = 0; i < EXACT_THREADS; i++) all += words[t * EXACT_THREADS + i];
        total[t] = all;
    }
    __syncthreads();
    if (t > 0) return;
    for (int i = 0; i + 1 < EXACT_LIMBS; i++) {
        total[i + 1] += total[i] >> 32;
        total[i] &= 0xffffffff;
    }
    for (int i = 0; i < EXACT_WORDS; i++)
        if (total[i]) atomicAdd(sum + i, (unsigned long long)total[i]);
}

static void sum_squares_exact(Dev *dev, ExactSum *sum, const float *x, size_t n)
{
    DevCuda *d = dev_cuda(dev);
    ExactSum part;
    if (n == 0) return;
    unsigned long long *words = (unsigned long long *)dev_cuda_scratch(d, sizeof part);
    GPU_CHECK(cudaMemsetAsync(words, 0, sizeof part, d->stream));
    LAUNCH(sums_exact_kernel, blocks_for(d, n, EXACT_THREADS), (unsigned)EXACT_THREADS, 0, d->stream, words, x, n);
    dev->to_host(dev, &part, words, sizeof part);
    formats_sum_add(sum, &part);
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
    dev->sum_squares_exact = sum_squares_exact;
}
