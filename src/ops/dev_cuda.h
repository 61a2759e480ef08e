// dev_cuda: the op table on one NVIDIA GPU.
//
// All arrays of the table's entries are device memory, except where dev.h says host. Ops go into one stream in the
// order of the calls; to_host, from_x and sum_squares wait for it. With dev/cuda_on_cpu the same sources run on the
// CPU.
//
// Below, for the .cu files alone: the device's state, packs of elements, a kernel for whatever works element by
// element, sums, what the attention kernels know of positions, and the kernels that may be launched one by one. Each
// file has a template NAME_cuda_fill<E> which puts its entries into the table; E is the element of an X array: float,
// __nv_bfloat16 or __half. Arithmetic is fp32 whatever E is.
#ifndef DEV_CUDA_H
#define DEV_CUDA_H
#include "ops/dev.h"
#include "formats/fp8.h"
#ifdef __cplusplus
#include "base/gpu.h"
extern "C" {
#endif

typedef struct {
    int device;      // which GPU, from 0
    XType x_type;    // how activations and weights are stored
    bool tf32;       // X_FP32: becomes dev->tf32, with cuBLASLt's products on tensor cores
    bool plain;      // attention by the plain kernels alone, not by tensor cores
    int threads;     // per block, where the op does not decide; 0: 256. A multiple of 32
    int cpu_threads; // becomes dev->threads, for code that runs on the CPU beside the device; 0: one
    bool fp8;        // X_BF16, with the products that dev->fp8 names in 8 bits (fp8.h)
    Fp8Scaling scaling; // of fp8
    int history;        // steps of amax, for FP8_DELAYED
} DevCudaOptions;

// GPUs of this machine; dies with a line when there is none.
int dev_cuda_count(void);
// What no other GPU is called, anywhere (its uuid in hexadecimal digits).
typedef struct {
    char text[33];
} DevCudaId;
DevCudaId dev_cuda_id(int device);
// Stops with a line when there is no such GPU, or one before compute capability 8.0 (fp8: 8.9).
Dev *dev_cuda_create(DevCudaOptions options);
void dev_cuda_free(Dev *dev);

// Waits until all ops so far are done.
void dev_cuda_wait(Dev *dev);
// Sets a function that is called repeatedly while the host waits for the GPU: it drives messages, and reports errors of
// calls that the GPU waits for. NULL: none.
void dev_cuda_set_watch(Dev *dev, void (*watch)(void *arg), void *arg);
// The stream (a cudaStream_t) that all ops go into.
void *dev_cuda_stream(Dev *dev);

#ifdef __cplusplus
}

// ---- the device's state
struct MatmulCuda; // matmul.cu
struct Fp8Gpu;     // casts.cu
struct Upload {    // pinned memory of the host on its way to the GPU
    char *pinned;
    cudaEvent_t over;
};
enum { UPLOADS = 4, UPLOAD_BYTES = 1 << 18 }; // for a copy of at most UPLOAD_BYTES the host does not wait
struct DevCuda {
    Dev dev; // first: a Dev * is a DevCuda *
    DevCudaOptions options;
    cudaStream_t stream;
    int threads, processors; // of a block; multiprocessors
    void *scratch;           // of one op at a time; the next op runs later in the same stream
    size_t scratch_bytes;
    float *books; // adamw8bit, updates.cu
    Upload upload[UPLOADS]; // taken in turn; `uploads` of them so far
    size_t uploads;
    void (*watch)(void *arg); // called while the host waits; NULL: none
    void *watch_arg;
    MatmulCuda *matmul;
    Fp8Gpu *fp8; // NULL: no product runs in fp8
};
inline DevCuda *dev_cuda(Dev *dev)
{
    return (DevCuda *)dev;
}
// Device memory of at least n_bytes, valid until the next op asks for scratch; its contents are undefined.
void *dev_cuda_scratch(DevCuda *d, size_t n_bytes);

// ---- filling the table
template <class E> void elements_cuda_fill(Dev *dev);
template <class E> void matmul_cuda_fill(Dev *dev);
template <class E> void embed_cuda_fill(Dev *dev);
template <class E> void norm_cuda_fill(Dev *dev);
template <class E> void attention_cuda_fill(Dev *dev);
template <class E> void loss_cuda_fill(Dev *dev);
template <class E> void experts_cuda_fill(Dev *dev);
void sums_cuda_fill(Dev *dev);
void updates_cuda_fill(Dev *dev);
void updates_matrix_cuda_fill(Dev *dev);
#define DEV_CUDA_FILL(name)                                                                                  \
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
// it computes elements i .. i + W - 1. Any split of the range gives the same bits.
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
// The thread's share of the squares of x[begin .. end - 1]: up to 32 of them in fp32, and these sums in double.
__device__ inline double thread_squares(const float *x, size_t begin, size_t end)
{
    double sum = 0;
    size_t i = begin + threadIdx.x;
    while (i < end) {
        float part = 0;
        size_t first = i;
        for (int k = 0; k < 32 && i < end; k++, i += blockDim.x) part += x[i] * x[i];
        if (part > 1e-30f) sum += part;
        else for (size_t j = first; j < i; j += blockDim.x) sum += (double)x[j] * x[j]; // too small for a float
    }
    return sum;
}
inline unsigned power_of_two(int threads) // the largest up to `threads`
{
    unsigned n = 32;
    while (2 * n <= (unsigned)threads) n *= 2;
    return n;
}
inline unsigned threads_for(size_t work, int most) // of a block: whole warps, and no warp that would have nothing to do
{
    size_t n = (work + 31) / 32 * 32;
    return n < 32 ? 32 : n < (size_t)most ? (unsigned)n : (unsigned)most;
}

// ---- sums.cu
enum { SUMS_RANGES = 256 };
// partial (SUMS_RANGES): sums of squares over fixed ranges of x.
void sums_squares(DevCuda *d, double *partial, const float *x, size_t n);
// The sum of the partials, in one order, for every thread of the block. Needs 32 lanes or more.
__device__ inline double sums_of_ranges(const double *partial)
{
    double sum = 0;
    for (int i = 0; i < SUMS_RANGES; i++) sum += partial[i];
    return sum;
}
// grad[c] += sum over rows of x (rows, cols), ld apart; x may be the start of `scratch`'s first part, and `scratch`
// takes sums_columns_room floats.
size_t sums_columns_room(size_t rows, size_t cols);
template <class E>
void sums_columns(DevCuda *d, float *grad, const E *x, size_t rows, size_t cols, size_t ld, float *scratch);

// ---- random words: rng_words of rng.h on the GPU, the same bits

// Philox4x32-10. The four words of counter `index`.
__device__ inline void rng_words_cuda(const Rng &rng, uint64_t index, uint32_t &c0, uint32_t &c1, uint32_t &c2,
                                      uint32_t &c3)
{
    c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = rng.step, c3 = rng.name;
    uint32_t k0 = (uint32_t)rng.seed, k1 = (uint32_t)(rng.seed >> 32);
    GPU_NO_UNROLL // the callers' loops are unrolled
    for (int round = 0; round < 10; round++) {
        uint32_t n0 = __umulhi(0xCD9E8D57u, c2) ^ c1 ^ k0, n2 = __umulhi(0xD2511F53u, c0) ^ c3 ^ k1;
        c1 = 0xCD9E8D57u * c2, c3 = 0xD2511F53u * c0;
        c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

// Dropout keeps an element whose word is at least this (dev.h).
inline __host__ __device__ uint32_t dropout_limit_cuda(float p)
{
    return (uint32_t)((double)p * 4294967296.0);
}

// ---- matmul.cu
// z (M, N) = alpha op(x) op(y) + beta c, fp32, in rows; tx: x lies as (K, M), ty: y as (N, K).
void matmul_cuda_rows(DevCuda *dev, bool tx, bool ty, size_t M, size_t N, size_t K, float alpha, const float *x,
                      const float *y, float beta, const float *c, float *z);
void matmul_cuda_open(Dev *dev);
void matmul_cuda_close(Dev *dev);

// ---- casts.cu: operands of 8-bit products for matmul.cu; scales and their history are fp8.h's

// Gives the device its scales, dev->fp8; and frees them.
void fp8_cuda_open(DevCuda *d, Fp8Scaling scaling, int history);
void fp8_cuda_close(DevCuda *d);
bool fp8_cuda_runs(const DevCuda *d, int site);
// Rows are filled up to this many.
inline size_t fp8_cuda_padded(size_t n)
{
    return (n + 15) / 16 * 16;
}
// out = x (rows, cols) in 8 bits, cols a multiple of 16; with `turn` transposed: (cols, fp8_cuda_padded(rows)), padded
// with zeros. `number`: 0 or 1, the operand of the product. Returns 1 / scale, in device memory, valid until the next
// product.
const float *fp8_cuda_operand(DevCuda *d, void *out, int number, int site, Fp8Role role, const __nv_bfloat16 *x,
                              size_t rows, size_t cols, bool turn);

// ---- attention.cu and flash.cu: where a row lies, which keys a query sees, dropout's mask, which is a function of the
// element's index (dev.h), so that both devices drop the same elements

// Row (b, t) of head h in q, in out, in k and v; and in the statistics lse and delta (B, H, Tq).
__device__ inline size_t attention_q(const AttnShape &s, size_t b, size_t h, size_t t)
{
    return (b * s.Tq + t) * s.ldq + h * s.D;
}
__device__ inline size_t attention_out(const AttnShape &s, size_t b, size_t h, size_t t)
{
    return ((b * s.Tq + t) * s.H + h) * s.D;
}
__device__ inline size_t attention_kv(const AttnShape &s, size_t b, size_t h, size_t j)
{
    return (b * s.Tk + j) * s.ldkv + h / (s.H / s.G) * s.D;
}
__device__ inline size_t attention_stat(const AttnShape &s, size_t b, size_t h, size_t t)
{
    return (b * s.H + h) * s.Tq + t;
}

// How many of n rows have positions before pos. Row i has position start + i, from `cut` on start + i + jump.
__device__ inline size_t attention_before(size_t pos, size_t start, size_t cut, size_t jump, size_t n)
{
    size_t i = pos > start ? pos - start : 0;
    if (jump && i > cut) i = i > cut + jump ? i - jump : cut;
    return i < n ? i : n;
}

// The positions of query t and of key j. PART: they are in a piece of a sequence.
template <bool PART = false> __device__ inline size_t attention_position(const AttnShape &s, size_t t)
{
    return s.q_start + t + (PART && t >= s.q_cut ? s.q_jump : 0);
}
__device__ inline size_t attention_key_position(const AttnShape &s, size_t j)
{
    return s.k_start + j + (j >= s.k_cut ? s.k_jump : 0);
}

// The first key in the window of query t, whatever its document.
template <bool PART = false> __device__ inline int attention_window(const AttnShape &s, size_t t)
{
    size_t end = attention_position<PART>(s, t) + 1, pos = end > s.window ? end - s.window : 0;
    return (int)(PART ? attention_before(pos, s.k_start, s.k_cut, s.k_jump, s.Tk) : pos);
}
// Query t sees keys first .. end - 1.
template <bool PART = false> __device__ inline int attention_first(const AttnShape &s, size_t b, size_t t)
{
    int pos = s.first ? s.first[b * s.Tq + t] : 0;
    if (PART) pos = (int)attention_before((size_t)pos, s.k_start, s.k_cut, s.k_jump, s.Tk);
    return max(pos, attention_window<PART>(s, t));
}
template <bool PART = false> __device__ inline int attention_end(const AttnShape &s, size_t t)
{
    size_t pos = attention_position<PART>(s, t) + 1;
    return (int)(PART ? attention_before(pos, s.k_start, s.k_cut, s.k_jump, s.Tk) : pos);
}
// Queries first .. end - 1 may see key j.
template <bool PART> __device__ inline size_t attention_first_query(const AttnShape &s, size_t j)
{
    if (!PART) return j;
    return attention_before(attention_key_position(s, j), s.q_start, s.q_cut, s.q_jump, s.Tq);
}
template <bool PART> __device__ inline size_t attention_end_query(const AttnShape &s, size_t j)
{
    return attention_before(attention_key_position(s, j) + s.window, s.q_start, s.q_cut, s.q_jump, s.Tq);
}

// Whether query t sees key j. One comparison for the window and for keys after t: as unsigned their distance is large.
template <bool PART> __device__ inline bool attention_sees(const AttnShape &s, size_t b, int t, int j)
{
    if (PART) return j >= attention_first<PART>(s, b, (size_t)t) && j < attention_end<PART>(s, (size_t)t);
    return (unsigned)((int)s.q_start + t - j) < (unsigned)s.window && !(s.first && j < s.first[b * s.Tq + (size_t)t]);
}

// What dropout multiplies the probability of query t and key j by: 0 or 1 / (1 - p).
template <bool PART = false>
__device__ inline float attention_keep(const AttnShape &s, size_t b, size_t h, size_t t, size_t j)
{
    size_t Tq = PART ? s.T : s.Tq, Tk = PART ? s.T : s.Tk;
    if (PART) t = attention_position<true>(s, t), j = attention_key_position(s, j);
    uint64_t at = (((s.drop.first + b) * s.H + h) * Tq + t) * Tk + j;
    uint32_t c0, c1, c2, c3;
    rng_words_cuda(s.drop.rng, at / 4, c0, c1, c2, c3);
    uint32_t word = at % 4 == 0 ? c0 : at % 4 == 1 ? c1 : at % 4 == 2 ? c2 : c3;
    return word >= dropout_limit_cuda(s.drop.p) ? 1 / (1 - s.drop.p) : 0;
}

// The shape with its scale filled in, and a window that reaches everywhere where it has none. Dies on a shape that dev.h does not allow. `part`: of a piece.
AttnShape attention_shape(AttnShape s, bool part = false);

// ---- kernels one by one, for tests and dev/attention. Pointers are device memory, `stream` orders the work, and
// nothing waits. X is float, __nv_bfloat16 or __half. Shapes and meanings are those of the entries of dev.h. Block sizes
// are arguments, so that tests can shrink them: `threads` is a multiple of 32 up to 1024.

// attention_forward. `rows` (1 to 32) queries a block, a warp each; D up to 128. shape.first is device memory too.
template <class X>
void attention_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                            cudaStream_t stream);
// attention_backward. delta: (B, H, Tq) of scratch, which becomes the row sums of dout * out.
template <class X>
void attention_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse,
                             const X *q, const X *k, const X *v, AttnShape shape, int rows, cudaStream_t stream);
template <class X>
void attention_delta_cuda(float *delta, const X *dout, const X *out, AttnShape shape, int rows, cudaStream_t stream);
// attention_part_forward and _backward. delta as above.
template <class X>
void attention_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                 cudaStream_t stream);
template <class X>
void attention_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                                  const float *lse, const X *q, const X *k, const X *v, AttnShape shape, int rows,
                                  cudaStream_t stream);
// The same on tensor cores (flash.cu), for 16-bit X. flash_takes: head sizes up to 128 in multiples of 8, rows that start
// at multiples of 16 bytes. With other shapes these functions die: take the plain kernels.
bool flash_takes(const void *q, const void *k, const void *v, AttnShape shape);
template <class X>
void flash_forward_cuda(X *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape, cudaStream_t stream);
// dout as q.
template <class X>
void flash_backward_cuda(X *dq, X *dk, X *dv, float *delta, const X *dout, const X *out, const float *lse, const X *q,
                         const X *k, const X *v, AttnShape shape, cudaStream_t stream);
// Of pieces: out, dq, dk and dv at multiples of 8 bytes.
template <class X>
void flash_part_forward_cuda(float *out, float *lse, const X *q, const X *k, const X *v, AttnShape shape,
                             cudaStream_t stream);
template <class X>
void flash_part_backward_cuda(float *dq, float *dk, float *dv, float *delta, const X *dout, const X *out,
                              const float *lse, const X *q, const X *k, const X *v, AttnShape shape,
                              cudaStream_t stream);
#endif
#endif
