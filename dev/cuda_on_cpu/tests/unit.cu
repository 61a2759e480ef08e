// unit: what kernels may rely on, small enough to read: each case launches a kernel and compares with the plain answer.
// Builds with nvcc unmodified; runs under every EMU_ setting with the same results.
#include "compare.h"

#include <cstring>

// ---- threads, blocks, arguments
__global__ void add_kernel(float *out, const float *a, const float *b, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = a[i] + b[i];
}
static void test_add()
{
    const int n = 1003;
    Array<float> a(n), b(n), out(n);
    for (int i = 0; i < n; i++) a.host[i] = (float)i, b.host[i] = 0.5f * (float)i;
    a.up(), b.up();
    LAUNCH(add_kernel, (n + 127) / 128, 128, 0, nullptr, out.device, a.device, b.device, n);
    out.down();
    int bad = 0;
    for (int i = 0; i < n; i++) bad += !(out.host[i] == 1.5f * (float)i);
    EXPECT(bad == 0);
}

__global__ void index_kernel(unsigned *out)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    atomicAdd(&out[block * blockDim.x * blockDim.y * blockDim.z + thread], 1 + block * 1000 + thread);
}
static void test_indices()
{
    const unsigned threads = 3 * 5 * 2, blocks = 2 * 3 * 2;
    Array<unsigned> out(threads * blocks);
    GPU_CHECK(cudaMemset(out.device, 0, out.host.size() * sizeof(unsigned)));
    LAUNCH(index_kernel, dim3(2, 3, 2), dim3(3, 5, 2), 0, nullptr, out.device);
    out.down();
    int bad = 0;
    for (unsigned i = 0; i < threads * blocks; i++) bad += out.host[i] != 1 + i / threads * 1000 + i % threads;
    EXPECT(bad == 0);
}

// ---- barriers and shared memory
template <int N> __global__ void reverse_kernel(float *x, int n)
{
    SHARED(float, tile, [N]);
    int t = (int)threadIdx.x;
    if (t < n) tile[t] = x[t];
    __syncthreads();
    if (t < n) x[t] = tile[n - 1 - t];
}
__global__ void sum_kernel(float *out, const float *x, int n)
{
    DYN_SHARED(float, part);
    SHARED(int, ready);
    int t = (int)threadIdx.x, size = (int)blockDim.x;
    if (t == 0) ready = 7;
    float sum = 0;
    for (int i = t; i < n; i += size) sum += x[i];
    part[t] = sum;
    for (int half = size / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 0) out[0] = part[0] + (float)ready;
}
__global__ void early_return_kernel(int *out, int n)
{
    if ((int)threadIdx.x >= n) return; // the others still meet
    int positive = __syncthreads_count(threadIdx.x % 2);
    int all = __syncthreads_and(1), any = __syncthreads_or((int)threadIdx.x == n - 1);
    out[threadIdx.x] = positive * 4 + all * 2 + any;
}
__global__ void named_kernel(int *out)
{
    SHARED(int, box, [128]);
    int t = (int)threadIdx.x, half = t / 64;
    box[t] = t;
    named_barrier(1 + half, 64);
    out[t] = box[half * 64 + 63 - t % 64];
}
static void test_barriers()
{
    const int n = 77;
    Array<float> x(n), out(1);
    for (int i = 0; i < n; i++) x.host[i] = (float)i;
    x.up();
    LAUNCH((reverse_kernel<96>), 1, 96, 0, nullptr, x.device, n);
    x.down();
    EXPECT(x.host[0] == 76 && x.host[76] == 0 && x.host[10] == 66);
    LAUNCH(sum_kernel, 1, 256, 256 * sizeof(float), nullptr, out.device, x.device, n);
    out.down();
    EXPECT(out.host[0] == 77 * 76 / 2 + 7);
    Array<int> flags(50);
    LAUNCH(early_return_kernel, 1, 64, 0, nullptr, flags.device, 50);
    flags.down();
    EXPECT(flags.host[0] == 25 * 4 + 3 && flags.host[49] == 25 * 4 + 3);
    Array<int> named(128);
    LAUNCH(named_kernel, 1, 128, 0, nullptr, named.device);
    named.down();
    EXPECT(named.host[0] == 63 && named.host[64] == 127 && named.host[127] == 64);
}

// ---- warps
__global__ void warp_kernel(int *out)
{
    int t = (int)threadIdx.x, *mine = out + t * 16;
    mine[0] = __shfl_sync(0xffffffffu, t, 5);
    mine[1] = __shfl_up_sync(0xffffffffu, t, 3);
    mine[2] = __shfl_down_sync(0xffffffffu, t, 3);
    mine[3] = __shfl_xor_sync(0xffffffffu, t, 9);
    mine[4] = __shfl_sync(0xffffffffu, t, 2, 8);
    mine[5] = __shfl_down_sync(0xffffffffu, t, 3, 8);
    mine[6] = __shfl_up_sync(0xffffffffu, t, 3, 8);
    mine[7] = (int)__ballot_sync(0xffffffffu, t % 3 == 0);
    mine[8] = __all_sync(0xffffffffu, t < 32) * 2 + __any_sync(0xffffffffu, t == 31);
    mine[9] = (int)__match_any_sync(0xffffffffu, t % 4);
    int all;
    mine[10] = (int)__match_all_sync(0xffffffffu, t / 32, &all) + all;
    mine[11] = __reduce_add_sync(0xffffffffu, t - 40);
    mine[12] = (int)__reduce_xor_sync(0xffffffffu, (unsigned)t * 3u);
    // the two halves part, and each half is a group of its own
    if (t % 32 < 16) mine[13] = __shfl_sync(0x0000ffffu, t, 3);
    else mine[13] = __reduce_max_sync(0xffff0000u, t);
    double wide = __shfl_xor_sync(0xffffffffu, (double)t * 0.5, 1);
    mine[14] = (int)(wide * 2);
    mine[15] = (int)__shfl_down_sync(0xffffffffu, (float)t, 1);
}
static void test_warps()
{
    Array<int> out(64 * 16);
    LAUNCH(warp_kernel, 1, 64, 0, nullptr, out.device);
    out.down();
    int bad = 0;
    for (int t = 0; t < 64; t++) {
        const int *m = &out.host[(size_t)t * 16];
        int l = t % 32, w = t - l;
        unsigned thirds = 0, quarters = 0, x = 0;
        int sum = 0;
        for (int i = 0; i < 32; i++) {
            thirds |= (unsigned)((w + i) % 3 == 0) << i;
            quarters |= (unsigned)(i % 4 == t % 4) << i;
            x ^= (unsigned)(w + i) * 3u;
            sum += w + i - 40;
        }
        int want[16] = {w + 5, l >= 3 ? t - 3 : t, l < 29 ? t + 3 : t, t ^ 9, w + l / 8 * 8 + 2, l % 8 < 5 ? t + 3 : t,
                        l % 8 >= 3 ? t - 3 : t, (int)thirds, (w == 0) * 2 + (w == 0), (int)quarters, 0, sum, (int)x,
                        l < 16 ? w + 3 : w + 31, t ^ 1, l < 31 ? t + 1 : t};
        for (int i = 0; i < 16; i++)
            if (m[i] != want[i]) {
                if (bad++ < 4) printf("  thread %d value %d: %d, not %d\n", t, i, m[i], want[i]);
            }
    }
    EXPECT(bad == 0);
}

// ---- tensor cores: a (16, 16), b (16, 8) through shared memory and ldmatrix, against sums in double
__device__ void tensor(float *d, const uint32_t *a, const uint32_t *b, const __nv_bfloat16 *)
{
    mma_m16n8k16_bf16(d, a, b, d);
}
__device__ void tensor(float *d, const uint32_t *a, const uint32_t *b, const __half *)
{
    mma_m16n8k16_fp16(d, a, b, d);
}
template <class T> __global__ void mma_kernel(float *d, const T *a, const T *b)
{
    SHARED16(T, as, [16][24]); // 48 bytes a row: aligned to 16
    SHARED16(T, bs, [16][24]);
    int t = (int)threadIdx.x;
    for (int i = t; i < 256; i += 32) as[i / 16][i % 16] = a[i];
    for (int i = t; i < 128; i += 32) bs[i / 8][i % 8] = b[i];
    for (int i = t; i < 128; i += 32) bs[i / 8][i % 8 + 8] = b[i];
    __syncwarp();
    uint32_t fa[4], fb[4];
    float acc[4] = {1, 1, 1, 1};
    ldmatrix_x4(fa, &as[t % 16][t / 16 * 8]);
    ldmatrix_x4_trans(fb, &bs[t % 16][t / 16 * 8]);
    tensor(acc, fa, fb, a);
    int g = t / 4, c = t % 4 * 2;
    d[g * 8 + c] = acc[0];
    d[g * 8 + c + 1] = acc[1];
    d[(g + 8) * 8 + c] = acc[2];
    d[(g + 8) * 8 + c + 1] = acc[3];
}
// The products of 16-bit numbers are exact in fp32; 16 additions err by at most 16 u sum |a b| (u = 2^-24), twice
// that for a tensor core, which may truncate.
template <class T> static void test_mma()
{
    Array<T> a(256), b(128);
    Array<float> d(128);
    uint32_t random = 1;
    for (T &v : a.host) v = T((float)((int)((random = random * 1664525u + 1013904223u) >> 20) - 2048) / 1024.0f);
    for (T &v : b.host) v = T((float)((int)((random = random * 1664525u + 1013904223u) >> 20) - 2048) / 1024.0f);
    a.up(), b.up();
    LAUNCH((mma_kernel<T>), 1, 32, 0, nullptr, d.device, a.device, b.device);
    d.down();
    int bad = 0;
    for (int r = 0; r < 16; r++)
        for (int c = 0; c < 8; c++) {
            double sum = 1, size = 1;
            for (int k = 0; k < 16; k++) {
                float x = (float)a.host[(size_t)(r * 16 + k)], y = (float)b.host[(size_t)(k * 8 + c)];
                double product = (double)x * (double)y;
                sum += product;
                size += fabs(product);
            }
            bad += !(fabs(d.host[(size_t)(r * 8 + c)] - sum) <= 32 * ldexp(1, -24) * size);
        }
    EXPECT(bad == 0);
}

// ---- asynchronous copies, double buffered
__global__ void copy_kernel(float *out, const float *x, int tiles)
{
    SHARED16(float, tile, [2][128]);
    int t = (int)threadIdx.x;
    cp_async16(&tile[0][t * 4], x + t * 4);
    cp_async_commit();
    float sum = 0;
    for (int i = 0; i < tiles; i++) {
        if (i + 1 < tiles) cp_async16(&tile[(i + 1) % 2][t * 4], x + (i + 1) * 128 + t * 4);
        cp_async_commit();
        cp_async_wait<1>();
        __syncthreads();
        for (int k = 0; k < 4; k++) sum += tile[i % 2][(t * 4 + k + 4) % 128]; // a neighbour's
        __syncthreads();
    }
    cp_async16(&tile[0][t * 4], x, 8); // 8 bytes, then zeros
    cp_async_commit();
    cp_async_wait<0>();
    out[t] = sum + 1000 * tile[0][t * 4] + 10000 * tile[0][t * 4 + 2];
}
static void test_copies()
{
    Array<float> x(3 * 128), out(32);
    for (size_t i = 0; i < x.host.size(); i++) x.host[i] = (float)(i % 50 + 1);
    x.up();
    LAUNCH(copy_kernel, 1, 32, 0, nullptr, out.device, x.device, 3);
    out.down();
    int bad = 0;
    for (size_t t = 0; t < 32; t++) {
        float want = 1000;
        for (size_t i = 0; i < 3; i++)
            for (size_t k = 0; k < 4; k++) want += x.host[i * 128 + (t * 4 + k + 4) % 128];
        bad += out.host[t] != want;
    }
    EXPECT(bad == 0);
}

// ---- vectors and numbers
__global__ void vector_kernel(float4 *out, const float4 *x, __nv_bfloat162 *pairs, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 v = __ldg(x + i);
    out[i] = make_float4(v.w, v.z, v.y, v.x);
    pairs[i] = __floats2bfloat162_rn(v.x, v.y);
}
static void test_vectors()
{
    const int n = 70;
    Array<float4> x(n), out(n);
    Array<__nv_bfloat162> pairs(n);
    for (int i = 0; i < n; i++) x.host[(size_t)i] = make_float4((float)i, 1.00390625f, -2.5f, 1e-3f);
    x.up();
    LAUNCH(vector_kernel, 3, 32, 0, nullptr, out.device, x.device, pairs.device, n);
    out.down(), pairs.down();
    int bad = 0;
    for (int i = 0; i < n; i++) {
        bad += out.host[(size_t)i].w != (float)i || out.host[(size_t)i].x != 1e-3f;
        __nv_bfloat162 pair = pairs.host[(size_t)i];
        bad += __bfloat162float(pair.y) != 1.0f || __bfloat162float(pair.x) != (float)i;
    }
    EXPECT(bad == 0);
    EXPECT(__half2float(__float2half(65520.0f)) == INFINITY && __half2float(__float2half(1.0f / 3)) == 0.333251953125f);
    EXPECT((float)__nv_fp8_e4m3(1000.0f) == 448.0f && (float)__nv_fp8_e5m2(0.3f) == 0.3125f);
}

// ---- atomics, and the last block of a grid
__global__ void histogram_kernel(unsigned *bins, float *total, unsigned *ticket, unsigned *last, int n)
{
    SHARED(unsigned, local, [16]);
    SHARED(bool, is_last);
    int t = (int)threadIdx.x, i = (int)blockIdx.x * (int)blockDim.x + t;
    if (t < 16) local[t] = 0;
    __syncthreads();
    if (i < n) atomicAdd(&local[i * 7 % 16], 1u);
    __syncthreads();
    if (t < 16) atomicAdd(&bins[t], local[t]);
    if (t == 0) total[blockIdx.x] = (float)blockIdx.x;
    __threadfence();
    __syncthreads();
    if (t == 0) is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    if (t == 0) {
        float sum = 0;
        for (unsigned b = 0; b < gridDim.x; b++) sum += total[b];
        *last = (unsigned)sum;
    }
}
__global__ void atomic_kernel(int *x, float *f, unsigned long long *wide)
{
    int t = (int)threadIdx.x;
    atomicMax(&x[0], t);
    atomicMin(&x[1], -t);
    atomicOr(&x[2], 1 << t % 8);
    atomicExch(&x[3], 9);
    for (int old = atomicAdd(&x[4], 0), seen; (seen = atomicCAS(&x[4], old, old + 2)) != old;) old = seen;
    atomicAdd(f, 0.5f);
    atomicAdd(wide, 1ull << 32);
}
static void test_atomics()
{
    const int n = 1000;
    Array<unsigned> bins(18);
    Array<float> total(8);
    bins.up();
    LAUNCH(histogram_kernel, 8, 128, 0, nullptr, bins.device, total.device, bins.device + 16, bins.device + 17, n);
    bins.down();
    unsigned all = 0;
    for (size_t i = 0; i < 16; i++) all += bins.host[i];
    EXPECT(all == n && bins.host[0] == 63 && bins.host[16] == 0 && bins.host[17] == 28);
    Array<int> x(5);
    Array<float> f(1);
    Array<unsigned long long> wide(1);
    x.up(), f.up(), wide.up();
    LAUNCH(atomic_kernel, 1, 48, 0, nullptr, x.device, f.device, wide.device);
    x.down(), f.down(), wide.down();
    EXPECT(x.host[0] == 47 && x.host[1] == -47 && x.host[2] == 255 && x.host[3] == 9 && x.host[4] == 96);
    EXPECT(f.host[0] == 24 && wide.host[0] == 48ull << 32);
}

// ---- reductions of a block, again and again
__global__ void reduce_kernel(float *out, int rounds)
{
    float total = 0;
    for (int i = 0; i < rounds; i++) total += block_sum((float)((int)threadIdx.x + i));
    for (int i = 0; i < rounds; i++) total += 1000 * block_max(-(float)((int)threadIdx.x + i));
    out[threadIdx.x] = total;
}
static void test_reductions()
{
    Array<float> out(96);
    LAUNCH(reduce_kernel, 1, 96, 0, nullptr, out.device, 3);
    out.down();
    int bad = 0;
    for (float v : out.host) bad += v != 3 * (95 * 96 / 2) + 3 * 96 - 3000;
    EXPECT(bad == 0);
}

// ---- a grid that meets
__global__ void grid_kernel(int *x, int *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), n = (int)(gridDim.x * blockDim.x);
    x[i] = i;
    GRID_SYNC();
    out[i] = x[(i + n / 2) % n] + x[n - 1 - i];
}
static void test_grid()
{
    Array<int> x(4 * 64), out(4 * 64);
    LAUNCH_COOP(grid_kernel, 4, 64, 0, nullptr, x.device, out.device);
    out.down();
    int bad = 0;
    for (int i = 0; i < 256; i++) bad += out.host[(size_t)i] != (i + 128) % 256 + 255 - i;
    EXPECT(bad == 0);
}

// ---- streams and events
__global__ void scale_kernel(float *x, float by, int n)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) x[i] = x[i] * by + 1;
}
static void test_streams()
{
    const int n = 100;
    float *pinned;
    GPU_CHECK(cudaMallocHost(&pinned, n * sizeof(float)));
    Array<float> x(n);
    cudaStream_t a, b;
    cudaEvent_t done;
    GPU_CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (int i = 0; i < n; i++) pinned[i] = (float)i;
    GPU_CHECK(cudaMemcpyAsync(x.device, pinned, n * sizeof(float), cudaMemcpyHostToDevice, a));
    LAUNCH(scale_kernel, 1, 128, 0, a, x.device, 2.0f, n);
    GPU_CHECK(cudaEventRecord(done, a));
    GPU_CHECK(cudaStreamWaitEvent(b, done, 0));
    LAUNCH(scale_kernel, 1, 128, 0, b, x.device, 3.0f, n);
    GPU_CHECK(cudaMemcpyAsync(pinned, x.device, n * sizeof(float), cudaMemcpyDeviceToHost, b));
    GPU_CHECK(cudaStreamSynchronize(b));
    EXPECT(pinned[0] == 4 && pinned[99] == 99 * 6 + 4);
    cudaStream_t blocking; // the default stream comes after it, and it after the default stream
    GPU_CHECK(cudaStreamCreate(&blocking));
    GPU_CHECK(cudaMemset(x.device, 0, n * sizeof(float)));
    LAUNCH(scale_kernel, 1, 128, 0, blocking, x.device, 5.0f, n);
    x.down();
    EXPECT(x.host[0] == 1 && x.host[99] == 1);
    float staged[2] = {8, 9}; // pageable: CUDA has taken it when the call returns
    GPU_CHECK(cudaMemcpyAsync(x.device, staged, sizeof staged, cudaMemcpyHostToDevice, a));
    staged[0] = staged[1] = 0;
    GPU_CHECK(cudaStreamSynchronize(a));
    x.down();
    EXPECT(x.host[0] == 8 && x.host[1] == 9);
    GPU_CHECK(cudaEventDestroy(done));
    GPU_CHECK(cudaStreamDestroy(a));
    GPU_CHECK(cudaStreamDestroy(b));
    GPU_CHECK(cudaStreamDestroy(blocking));
    GPU_CHECK(cudaFreeHost(pinned));
}

// ---- what CUDA refuses
static void test_refusals()
{
    Array<float> x(4);
    EXPECT(LAUNCH_TRY(scale_kernel, 1, 1025, 0, nullptr, x.device, 1.0f, 0) == cudaErrorInvalidValue);
    EXPECT(LAUNCH_TRY(scale_kernel, 0, 32, 0, nullptr, x.device, 1.0f, 0) == cudaErrorInvalidValue);
    dim3 tall(1, 70000);
    EXPECT(LAUNCH_TRY(scale_kernel, tall, 32, 0, nullptr, x.device, 1.0f, 0) == cudaErrorInvalidValue);
    EXPECT(LAUNCH_TRY(scale_kernel, 1, dim3(1, 1, 65), 0, nullptr, x.device, 1.0f, 0) == cudaErrorInvalidValue);
    EXPECT(LAUNCH_TRY(sum_kernel, 1, 32, 64 * 1024, nullptr, x.device, x.device, 0) == cudaErrorInvalidValue);
    GPU_CHECK(cudaFuncSetAttribute(sum_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024));
    EXPECT(LAUNCH_TRY(sum_kernel, 1, 32, 64 * 1024, nullptr, x.device, x.device, 0) == cudaSuccess);
    GPU_CHECK(cudaDeviceSynchronize());
    EXPECT(cudaGetLastError() == cudaSuccess);
}

int main()
{
    static const struct { const char *name; void (*run)(); } tests[] = {
        {"threads, blocks, arguments", test_add}, {"indices", test_indices}, {"barriers", test_barriers},
        {"warp operations", test_warps}, {"mma bf16", test_mma<__nv_bfloat16>}, {"mma fp16", test_mma<__half>},
        {"asynchronous copies", test_copies}, {"vectors and numbers", test_vectors}, {"atomics", test_atomics},
        {"reductions", test_reductions},
        {"grid barrier", test_grid}, {"streams", test_streams}, {"refusals", test_refusals},
    };
    for (auto &t : tests) {
        int before = failures;
        t.run();
        printf("%s %s\n", failures == before ? "ok" : "not ok", t.name);
    }
    return failures != 0;
}
