// ops_gpu: what the files that fill the CUDA device's op table share: the device's state, packs of elements, a kernel
// for whatever works element by element, sums over rows.
//
// E is the element of an X array: float, __nv_bfloat16 or __half. Each file has one template, NAME_cuda_fill<E>, which
// puts its entries into the table. Arithmetic is fp32 whatever E is.
#ifndef OPS_GPU_H
#define OPS_GPU_H
#ifdef __cplusplus
#include "ops/dev.h"
#include "ops/dev_cuda.h"
#include "base/gpu.h"

struct MatmulCuda; // matmul.cu
struct Fp8Gpu;     // fp8.cu
struct Upload {    // pinned memory of the host on its way to the GPU
    char *pinned;
    cudaEvent_t over;
};
enum { OPS_UPLOADS = 4, OPS_UPLOAD_BYTES = 1 << 18 };
struct DevCuda {
    Dev dev; // first: a Dev * is a DevCuda *
    DevCudaOptions options;
    cudaStream_t stream;
    int threads, processors; // of a block; multiprocessors
    void *scratch;           // of one op at a time; the stream keeps the next one from it
    size_t scratch_bytes;
    float *books; // adamw8bit.cu
    Upload upload[OPS_UPLOADS]; // taken in turn; `uploads` of them so far
    size_t uploads;
    void (*watch)(void *arg); // called while the host waits; NULL: nobody is
    void *watch_arg;
    MatmulCuda *matmul;
    Fp8Gpu *fp8; // NULL: no product runs in fp8
};
inline DevCuda *ops_gpu(Dev *dev)
{
    return (DevCuda *)dev;
}
// Returns when all that is in the stream is done.
void ops_gpu_wait(DevCuda *d);
// A copy from the host, whose memory may be written again when the call returns, or from the GPU; the stream's next op
// finds it. Up to OPS_UPLOAD_BYTES the host does not wait.
void ops_gpu_to_device(DevCuda *d, void *dst, const void *src, size_t n_bytes);
// A copy to the host; it is there when the call returns.
void ops_gpu_to_host(DevCuda *d, void *dst, const void *src, size_t n_bytes);
// Device memory of at least n elements until the next op asks; it holds what nobody knows.
void *ops_gpu_scratch(DevCuda *d, size_t n_bytes);

template <class E> void elements_cuda_fill(Dev *dev);
template <class E> void matmul_cuda_fill(Dev *dev);
template <class E> void ffn_cuda_fill(Dev *dev);
template <class E> void embed_cuda_fill(Dev *dev);
template <class E> void norm_cuda_fill(Dev *dev);
template <class E> void rope_cuda_fill(Dev *dev);
template <class E> void heads_cuda_fill(Dev *dev);
template <class E> void loss_cuda_fill(Dev *dev);
template <class E> void compress_cuda_fill(Dev *dev);
void sums_cuda_fill(Dev *dev);
void adamw_cuda_fill(Dev *dev);
void sgd_cuda_fill(Dev *dev);
void lion_cuda_fill(Dev *dev);
void adafactor_cuda_fill(Dev *dev);
void muon_cuda_fill(Dev *dev);
void adamw8bit_cuda_fill(Dev *dev);
void agc_cuda_fill(Dev *dev);
// z (M, N) = alpha op(x) op(y) + beta c, fp32, in rows; tx: x lies as (K, M), ty: y as (N, K).
void matmul_cuda_rows(DevCuda *dev, bool tx, bool ty, size_t M, size_t N, size_t K, float alpha, const float *x,
                      const float *y, float beta, const float *c, float *z);
void matmul_cuda_open(Dev *dev);
void matmul_cuda_close(Dev *dev);
#define OPS_GPU_FILL(name)                                                                                   \
    template void name##_cuda_fill<float>(Dev *);                                                            \
    template void name##_cuda_fill<__nv_bfloat16>(Dev *);                                                    \
    template void name##_cuda_fill<__half>(Dev *);

template <class E> inline E *ops_as(X *p)
{
    return (E *)p;
}
template <class E> inline const E *ops_as(const X *p)
{
    return (const E *)p;
}

// ---- W neighbours at a time: one access of 16 bytes (or two) where W > 1, and then p is a multiple of 16.
template <class T, int W> struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Pack {
    T x[W];
};
template <int W, class T> __device__ inline void load(float *v, const T *p)
{
    Pack<T, W> pack = *(const Pack<T, W> *)p;
    for (int k = 0; k < W; k++) v[k] = (float)pack.x[k];
}
template <int W, class T> __device__ inline void store(T *p, const float *v)
{
    Pack<T, W> pack;
    for (int k = 0; k < W; k++) pack.x[k] = T(v[k]);
    *(Pack<T, W> *)p = pack;
}
template <class E> constexpr int WIDE = (int)(16 / sizeof(E));
// May packs be used? All pointers are multiples of 16; null ones do not count.
template <class... P> inline bool aligned(const P *...p)
{
    return (((uintptr_t)p | ...) & 15) == 0;
}

inline unsigned blocks_for(const DevCuda *d, size_t n_threads, int threads)
{
    size_t blocks = (n_threads + (size_t)threads - 1) / (size_t)threads, most = (size_t)d->processors * 32;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

// ---- element by element. F is a struct of pointers with  template <int W> __device__ void run(size_t i) const;
// it does elements i .. i + W - 1. Any cut gives the same bits.
template <int W, class F> __global__ void elements_kernel(size_t n, F f)
{
    size_t step = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t packs = n / W;
    for (size_t p = first; p < packs; p += step) f.template run<W>(p * W);
    for (size_t i = packs * W + first; i < n; i += step) f.template run<1>(i);
}
template <int W, class F> inline void elements(DevCuda *d, size_t n, bool wide, F f)
{
    if (n == 0) return;
    unsigned threads = (unsigned)d->threads;
    if (wide)
        LAUNCH((elements_kernel<W, F>), blocks_for(d, n / W + 1, d->threads), threads, 0, d->stream, n, f);
    else
        LAUNCH((elements_kernel<1, F>), blocks_for(d, n, d->threads), threads, 0, d->stream, n, f);
}

// The sum of v over a block, whose threads are a power of two, in a tree; for every thread. Ends with a barrier.
__device__ inline double block_sum_double(double v GPU_SITE)
{
    SHARED(double, parts, [1024]);
    int t = (int)threadIdx.x;
    parts[t] = v;
    __syncthreads(GPU_FIRST);
    for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
        if (t < half) parts[t] += parts[t + half];
        __syncthreads(GPU_FIRST);
    }
    v = parts[0];
    __syncthreads(GPU_FIRST);
    return v;
}
inline unsigned power_of_two(int threads) // the largest up to `threads`
{
    unsigned n = 32;
    while (2 * n <= (unsigned)threads) n *= 2;
    return n;
}

// ---- sums.cu
enum { OPS_RANGES = 256 };
// partial (OPS_RANGES): sums of squares over fixed ranges of x.
void sums_squares(DevCuda *d, double *partial, const float *x, size_t n);
// The sum of the partials, in one order, for every thread of the block. Needs 32 lanes or more.
__device__ inline double sums_of_ranges(const double *partial)
{
    double sum = 0;
    for (int i = 0; i < OPS_RANGES; i++) sum += partial[i];
    return sum;
}
// grad[c] += sum over rows of x (rows, cols), ld apart; x may be the start of `scratch`'s first part, and `scratch`
// takes sums_columns_room floats.
size_t sums_columns_room(size_t rows, size_t cols);
template <class E>
void sums_columns(DevCuda *d, float *grad, const E *x, size_t rows, size_t cols, size_t ld, float *scratch);
#endif
#endif
