// embed: tokens and their positions on the GPU: the table lookup, learned positions, rotary positions. The twin of
// embed.c, which has the formulas.
//
// The lookup's backward, without an atomic addition of floats, sorts the rows by their index first, and stably: so the
// rows of one token are neighbours, in ascending order, and one block adds them up, a thread for each of its channels.
// Sorting, with M buckets, M a power of two of at least N and bucket = index % M:
//
//   count     how many rows fall into each bucket                        (atomics on integers: any order, one result)
//   start     where each bucket begins: a prefix sum over M, one block
//   place     rows into their buckets, in any order                      (atomics again)
//   sort      a row's place in its bucket is how many rows there come before it by (index, row)
//   add       the first row of each index adds all of them
//
// Rotary positions: a thread has pair i of row n in all heads, so the cosine and sine of an angle, in double as on the
// CPU, are computed once. W > 1: W neighbouring pairs, 16 bytes at a time.
//
// The invariant: `sort` makes the order a function of the indices alone, whatever order the atomics ran in: same bits.
// Rejected: atomicAdd of floats (bits differ from run to run); a block for each row of the table that searches all
// tokens (V N reads); a table of cosines in memory (as many bytes as a head, read by every layer).
#include "ops/dev_cuda.h"

namespace {

// ---- the lookup

template <class E, class T> struct Lookup { // T: of the tables
    E *out;
    const int32_t *token, *pos;
    const T *wte, *wpe;
    size_t C;
    template <int W> __device__ void run(size_t i) const
    {
        size_t n = i / C, c = i % C;
        float t[W] = {}, p[W];
        if (token[n] >= 0) {
            load<W>(t, wte + (size_t)token[n] * C + c);
            if (wpe) {
                load<W>(p, wpe + (size_t)pos[n] * C + c);
                for (int k = 0; k < W; k++) t[k] += p[k];
            }
        }
        store<W>(out + i, t);
    }
};

// Rows without an index (below 0) are left out.
__device__ inline uint32_t bucket_of(int32_t index, uint32_t M)
{
    return (uint32_t)index & (M - 1);
}

__global__ void embed_count_kernel(uint32_t *count, const int32_t *index, uint32_t N, uint32_t M)
{
    uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < N && index[n] >= 0) atomicAdd(count + bucket_of(index[n], M), 1u);
}

// start[i] = count[0] + ... + count[i - 1]; count becomes the same, for `place` to count on. One block; M is a multiple
// of its threads, or less.
__global__ void embed_start_kernel(uint32_t *start, uint32_t *count, uint32_t M)
{
    SHARED(uint32_t, sums, [1024]);
    uint32_t t = threadIdx.x, each = (M + blockDim.x - 1) / blockDim.x, from = t * each, sum = 0;
    uint32_t end = from + each < M ? from + each : M;
    for (uint32_t i = from; i < end; i++) sum += count[i];
    sums[t] = sum;
    __syncthreads();
    for (uint32_t by = 1; by < blockDim.x; by *= 2) {
        uint32_t before = t >= by ? sums[t - by] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    uint32_t at = sums[t] - sum;
    for (uint32_t i = from; i < end; i++) {
        uint32_t n = count[i];
        start[i] = count[i] = at;
        at += n;
    }
    if (t == blockDim.x - 1) start[M] = at;
}

__global__ void embed_place_kernel(uint32_t *placed, uint32_t *next, const int32_t *index, uint32_t N, uint32_t M)
{
    uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n < N && index[n] >= 0) placed[atomicAdd(next + bucket_of(index[n], M), 1u)] = n;
}

__global__ void embed_sort_kernel(uint32_t *sorted, const uint32_t *placed, const uint32_t *start,
                                  const int32_t *index, uint32_t N, uint32_t M)
{
    uint32_t n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= N || index[n] < 0) return;
    uint32_t from = start[bucket_of(index[n], M)], end = start[bucket_of(index[n], M) + 1], rank = from;
    for (uint32_t i = from; i < end; i++) {
        uint32_t other = placed[i];
        rank += index[other] < index[n] || (index[other] == index[n] && other < n);
    }
    sorted[rank] = n;
}

// One block for each position of `sorted`; a block whose row is not the first of its index returns at once.
template <class E, int W>
__global__ void embed_add_kernel(float *grad, const E *dout, const uint32_t *sorted, const uint32_t *n_sorted,
                                 const int32_t *index, size_t C)
{
    uint32_t at = blockIdx.x, n = *n_sorted;
    if (at >= n) return;
    int32_t own = index[sorted[at]];
    if (at > 0 && index[sorted[at - 1]] == own) return;
    float *row = grad + (size_t)own * C;
    for (size_t c = (size_t)threadIdx.x * W; c < C; c += (size_t)blockDim.x * W) {
        float sum[W], x[W];
        load<W>(sum, row + c);
        for (uint32_t i = at; i < n && index[sorted[i]] == own; i++) {
            load<W>(x, dout + (size_t)sorted[i] * C + c);
            for (int k = 0; k < W; k++) sum[k] += x[k];
        }
        store<W>(row + c, sum);
    }
}

template <class E> void scatter(DevCuda *d, float *grad, const X *dout, const int32_t *index, size_t N, size_t C)
{
    uint32_t M = 1024, threads = power_of_two(d->threads), n = (uint32_t)N;
    while (M < n) M *= 2;
    uint32_t *count = (uint32_t *)dev_cuda_scratch(d, (2 * (size_t)M + 1 + 2 * N) * sizeof *count);
    uint32_t *start = count + M, *placed = start + M + 1, *sorted = placed + N;
    unsigned blocks = (n + threads - 1) / threads;
    GPU_CHECK(cudaMemsetAsync(count, 0, M * sizeof *count, d->stream));
    LAUNCH(embed_count_kernel, blocks, threads, 0, d->stream, count, index, n, M);
    LAUNCH(embed_start_kernel, 1, threads, 0, d->stream, start, count, M);
    LAUNCH(embed_place_kernel, blocks, threads, 0, d->stream, placed, count, index, n, M);
    LAUNCH(embed_sort_kernel, blocks, threads, 0, d->stream, sorted, placed, start, index, n, M);
    if (C % WIDE<E> == 0 && aligned(grad, dout))
        LAUNCH((embed_add_kernel<E, WIDE<E>>), n, threads, 0, d->stream, grad, ops_as<E>(dout), sorted, start + M,
               index, C);
    else
        LAUNCH((embed_add_kernel<E, 1>), n, threads, 0, d->stream, grad, ops_as<E>(dout), sorted, start + M, index, C);
}

template <class E, class T>
void look_up(Dev *dev, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe, size_t N, size_t C)
{
    elements<WIDE<E>>(dev_cuda(dev), N * C, C % WIDE<E> == 0 && aligned(out, wte, wpe),
                      Lookup<E, T>{ops_as<E>(out), token, pos, ops_as<T>(wte), ops_as<T>(wpe), C});
}

template <class E>
void embed_forward(Dev *dev, X *out, const int32_t *token, const int32_t *pos, const X *wte, const X *wpe, size_t N,
                   size_t C)
{
    (dev->embed_fp32 ? look_up<E, float> : look_up<E, E>)(dev, out, token, pos, wte, wpe, N, C);
}

template <class E>
void embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout, const int32_t *token, const int32_t *pos,
                    size_t N, size_t C, size_t)
{
    if (N == 0 || C == 0) return;
    scatter<E>(dev_cuda(dev), dwte, dout, token, N, C);
    if (dwpe) scatter<E>(dev_cuda(dev), dwpe, dout, pos, N, C);
}

// ---- rotary positions

template <class E> struct Turn {
    E *x;
    const int32_t *pos;
    size_t heads, D, ld;
    Rope rope;
    double sign;
    template <int W> __device__ void run(size_t i) const
    {
        size_t half = D / 2, n = i / half, first = i % half;
        float c[W], s[W], a[W], b[W];
        double amplitude = rope_amplitude(&rope);
        for (int k = 0; k < W; k++) {
            double angle = pos[n] * rope_frequency(&rope, first + (size_t)k, D);
            c[k] = (float)(amplitude * cos(angle)), s[k] = (float)(sign * amplitude * sin(angle));
        }
        for (size_t h = 0; h < heads; h++) {
            E *lo = x + n * ld + h * D + first, *hi = lo + half;
            load<W>(a, lo), load<W>(b, hi);
            for (int k = 0; k < W; k++) {
                float turned = a[k] * c[k] - b[k] * s[k];
                b[k] = b[k] * c[k] + a[k] * s[k];
                a[k] = turned;
            }
            store<W>(lo, a), store<W>(hi, b);
        }
    }
};

template <class E>
void rotate(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope, double sign)
{
    bool wide = D / 2 % WIDE<E> == 0 && ld % WIDE<E> == 0 && aligned(x);
    elements<WIDE<E>>(dev_cuda(dev), N * (D / 2), wide, Turn<E>{ops_as<E>(x), pos, heads, D, ld, rope, sign});
}

template <class E>
void rope_forward(Dev *dev, X *x, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate<E>(dev, x, pos, N, heads, D, ld, rope, 1);
}

template <class E>
void rope_backward(Dev *dev, X *dx, const int32_t *pos, size_t N, size_t heads, size_t D, size_t ld, Rope rope)
{
    rotate<E>(dev, dx, pos, N, heads, D, ld, rope, -1);
}

} // namespace

template <class E> void embed_cuda_fill(Dev *dev)
{
    dev->embed_forward = embed_forward<E>;
    dev->embed_backward = embed_backward<E>;
    dev->rope_forward = rope_forward<E>;
    dev->rope_backward = rope_backward<E>;
}
DEV_CUDA_FILL(embed)
