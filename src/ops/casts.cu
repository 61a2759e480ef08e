// casts: operands of 8-bit products on the GPU: their largest magnitude, their scale, the cast, and the transposition
// that tensor cores need. The twin of fp8.c (scales) and of the casts in narrow.c.
//
//   scale = max(format) / amax          x8 = saturate(round(x scale))          cuBLASLt multiplies sums by 1 / scale
//
// The host never waits for the GPU. The scale is computed on the GPU: the host copies down the largest amax of the
// history (delayed scaling), the kernels record the amax that they see, and once per step fp8_collect copies those
// back. With a known scale an operand needs one pass; otherwise a pass for its maximum comes first.
//
// The invariant: the same bits as on the CPU. A maximum has no order, so atomics may take it (magnitudes of floats
// compare as their patterns do, and NaN is above them all); x scale and the cast are one rounding each.
//
// Tensor cores take 8-bit operands with the inner dimension innermost in both, in multiples of 16. So an operand with
// the other layout is transposed during the cast, in tiles of 32 x 32, and its rows are padded with zeros to a multiple
// of 16.
// Rejected: weights cast once per step and kept (1 more byte per parameter, and another one for the transposed copy).
#include "ops/dev_cuda.h"

#include "base/check.h"

#include <cfloat>
#include <vector>

struct Fp8Gpu {
    Fp8 *scales;
    long changes;  // of scales, when the copy was made
    size_t n;      // tensors: (site, role)
    float *known;  // (n) what the scale follows from; 0: the tensor itself
    uint32_t *now; // (n) the largest magnitude since, as its pattern
    uint32_t *own; // (2) of the call's operands
    float *inverse; // (2, INVERSE) 1 / scale of these, the first of each row
};
enum { INVERSE = 4 }; // cuBLASLt refuses a scale that does not begin at a multiple of 16 bytes

enum { TILE = 32, TILE_ROWS = 8 };

__device__ inline uint32_t magnitude(float x)
{
    return __float_as_uint(x) & 0x7fffffffu;
}

// fp8_scale_for of fp8.c; top: the format's largest number.
__device__ inline float scale_for(float top, float amax)
{
    if (!(amax > 0 && amax <= FLT_MAX)) return 1;
    return amax > top * 0x1p-120f ? top / amax : 0x1p120f;
}

__device__ inline void note(uint32_t *largest, uint32_t seen)
{
    seen = __reduce_max_sync(0xffffffffu, seen);
    if (threadIdx.x % 32 == 0) atomicMax(largest, seen);
}

template <class E, int W> __global__ void fp8_amax_kernel(uint32_t *largest, const E *x, size_t n)
{
    uint32_t seen = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t p = (size_t)blockIdx.x * blockDim.x + threadIdx.x; p < n / W; p += step) {
        float v[W];
        load<W>(v, x + p * W);
        for (int k = 0; k < W; k++) seen = max(seen, magnitude(v[k]));
    }
    note(largest, seen);
}

// What a cast needs and leaves: the magnitude that the scale follows from, the largest one seen, 1 / scale.
struct Cast {
    const float *amax;
    uint32_t *now;
    float *inverse;
    float top;
};

template <class To, class E, int W> __global__ void fp8_cast_kernel(To *out, const E *x, size_t n, Cast c)
{
    float scale = scale_for(c.top, *c.amax);
    uint32_t seen = 0;
    size_t step = (size_t)gridDim.x * blockDim.x, first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (size_t p = first; p < n / W; p += step) {
        float v[W];
        load<W>(v, x + p * W);
        for (int k = 0; k < W; k++) seen = max(seen, magnitude(v[k])), v[k] *= scale;
        store<W>(out + p * W, v);
    }
    note(c.now, seen);
    if (first == 0) *c.inverse = 1 / scale;
}

// out (cols, ld) = the transpose of x (rows, cols); columns from `rows` to ld are zeros.
template <class To, class E>
__global__ void __launch_bounds__(TILE * TILE_ROWS)
    fp8_turn_kernel(To *out, const E *x, size_t rows, size_t cols, size_t ld, Cast c)
{
    SHARED(float, tile, [TILE][TILE + 1]);
    float scale = scale_for(c.top, *c.amax);
    uint32_t seen = 0;
    size_t r0 = (size_t)blockIdx.x * TILE, c0 = (size_t)blockIdx.y * TILE;
    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        size_t row = r0 + i, column = c0 + threadIdx.x;
        float v = row < rows && column < cols ? (float)x[row * cols + column] : 0;
        seen = max(seen, magnitude(v));
        tile[i][threadIdx.x] = v * scale;
    }
    __syncthreads();
    for (unsigned i = threadIdx.y; i < TILE; i += TILE_ROWS) {
        size_t row = r0 + threadIdx.x, column = c0 + i;
        if (column < cols && row < ld) out[column * ld + row] = To(tile[threadIdx.x][i]);
    }
    note(c.now, seen);
    if (r0 + c0 + threadIdx.x + threadIdx.y == 0) *c.inverse = 1 / scale;
}

// ---- the copy of the scales
static void fetch(Fp8 *scales, void *arg)
{
    Dev *dev = (Dev *)arg;
    Fp8Gpu *g = dev_cuda(dev)->fp8;
    if (g->changes != scales->changes) return; // out of date: the host has changed the scales
    std::vector<uint32_t> seen(g->n);
    dev->to_host(dev, seen.data(), g->now, g->n * 4);
    for (size_t i = 0; i < g->n; i++) {
        float amax;
        memcpy(&amax, &seen[i], sizeof amax);
        fp8_note(scales, (int)(i / FP8_ROLES), (Fp8Role)(i % FP8_ROLES), amax);
    }
}

static void renew(DevCuda *d)
{
    Fp8Gpu *g = d->fp8;
    size_t n = (size_t)g->scales->n_sites * FP8_ROLES;
    if (n != g->n) { // the table of parameters is known now
        check(g->n == 0);
        g->n = n;
        GPU_CHECK(cudaMalloc(&g->known, n * sizeof *g->known));
        GPU_CHECK(cudaMalloc(&g->now, n * sizeof *g->now));
    }
    std::vector<float> known(n);
    for (size_t i = 0; i < n; i++) known[i] = fp8_known(g->scales, (int)(i / FP8_ROLES), (Fp8Role)(i % FP8_ROLES));
    GPU_CHECK(cudaMemcpyAsync(g->known, known.data(), n * sizeof *g->known, cudaMemcpyHostToDevice, d->stream));
    GPU_CHECK(cudaMemsetAsync(g->now, 0, n * sizeof *g->now, d->stream));
    GPU_CHECK(cudaStreamSynchronize(d->stream)); // `known` ends here
    g->changes = g->scales->changes;
}

void fp8_cuda_open(DevCuda *d, Fp8Scaling scaling, int history)
{
    Fp8Gpu *g = new Fp8Gpu{};
    g->scales = d->dev.fp8 = fp8_create(scaling, history);
    g->scales->fetch = fetch, g->scales->fetch_arg = &d->dev;
    g->changes = -1;
    GPU_CHECK(cudaMalloc(&g->own, 2 * sizeof *g->own));
    GPU_CHECK(cudaMalloc(&g->inverse, 2 * INVERSE * sizeof *g->inverse));
    d->fp8 = g;
}

void fp8_cuda_close(DevCuda *d)
{
    Fp8Gpu *g = d->fp8;
    if (!g) return;
    GPU_CHECK(cudaFree(g->known));
    GPU_CHECK(cudaFree(g->now));
    GPU_CHECK(cudaFree(g->own));
    GPU_CHECK(cudaFree(g->inverse));
    fp8_free(g->scales);
    delete g;
}

bool fp8_cuda_runs(const DevCuda *d, int site)
{
    return d->fp8 && fp8_runs(d->fp8->scales, site);
}

// ---- operands
template <class To, class E>
static void cast(DevCuda *d, void *out, const E *x, size_t rows, size_t cols, bool turn, Cast c)
{
    size_t n = rows * cols;
    dim3 tiles((unsigned)((rows + TILE - 1) / TILE), (unsigned)((cols + TILE - 1) / TILE));
    if (turn)
        LAUNCH((fp8_turn_kernel<To, E>), tiles, dim3(TILE, TILE_ROWS), 0, d->stream, (To *)out, x, rows, cols,
               fp8_cuda_padded(rows), c);
    else if (aligned(x))
        LAUNCH((fp8_cast_kernel<To, E, 8>), blocks_for(d, n / 8, d->threads), (unsigned)d->threads, 0, d->stream,
               (To *)out, x, n, c);
    else
        LAUNCH((fp8_cast_kernel<To, E, 1>), blocks_for(d, n, d->threads), (unsigned)d->threads, 0, d->stream,
               (To *)out, x, n, c);
}

const float *fp8_cuda_operand(DevCuda *d, void *out, int number, int site, Fp8Role role, const __nv_bfloat16 *x,
                              size_t rows, size_t cols, bool turn)
{
    Fp8Gpu *g = d->fp8;
    if (g->changes != g->scales->changes) renew(d);
    size_t tensor = (size_t)site * FP8_ROLES + role, n = rows * cols;
    Cast c = {g->known + tensor, g->now + tensor, g->inverse + INVERSE * number, formats_max(fp8_format(role))};
    if (!(fp8_known(g->scales, site, role) > 0)) {
        uint32_t *own = g->own + number;
        GPU_CHECK(cudaMemsetAsync(own, 0, sizeof *own, d->stream));
        if (n % 8 == 0 && aligned(x))
            LAUNCH((fp8_amax_kernel<__nv_bfloat16, 8>), blocks_for(d, n / 8, d->threads), (unsigned)d->threads, 0,
                   d->stream, own, x, n);
        else
            LAUNCH((fp8_amax_kernel<__nv_bfloat16, 1>), blocks_for(d, n, d->threads), (unsigned)d->threads, 0,
                   d->stream, own, x, n);
        c.amax = (const float *)own;
    }
    if (fp8_format(role) == FORMAT_E4M3) cast<__nv_fp8_e4m3>(d, out, x, rows, cols, turn, c);
    else cast<__nv_fp8_e5m2>(d, out, x, rows, cols, turn, c);
    return c.inverse;
}
