// conformance: what a GPU does, as a text file: the same program runs on a GPU (gpu.sh) and in the emulation, and the
// two files must be equal. So an operation that emulator and kernels both misunderstand shows.
//
// Only what CUDA defines to the bit is here: tensor cores multiply small integers, whose sums are exact in any order.
// Rounding of sums, approximate functions (rsqrtf, __expf) and what the manual calls undefined are left out.
#include "base/gpu.h"

#include <cstring>
#include <vector>

template <class T> struct Array { // device memory, set to zeros, and its host copy
    std::vector<T> host;
    T *device;
    explicit Array(size_t n) : host(n), device(nullptr)
    {
        GPU_CHECK(cudaMalloc(&device, n * sizeof(T)));
        GPU_CHECK(cudaMemset(device, 0, n * sizeof(T)));
    }
    Array(const Array &) = delete;
    ~Array() { GPU_CHECK(cudaFree(device)); }
    void up() { GPU_CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice)); }
    void down() { GPU_CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost)); }
};
static void print(const char *what, const unsigned *v, size_t n, const char *form)
{
    printf("%s:", what);
    for (size_t i = 0; i < n; i++) printf(form, v[i]);
    printf("\n");
}
static uint64_t mix(uint64_t sum, uint32_t v)
{
    return (sum ^ v) * 0x100000001b3u;
}

// ---- shuffles
__global__ void shuffle_kernel(unsigned *out, int by, int width)
{
    unsigned t = threadIdx.x;
    out[t] = __shfl_sync(~0u, t, by, width);
    out[32 + t] = __shfl_up_sync(~0u, t, (unsigned)by, width);
    out[64 + t] = __shfl_down_sync(~0u, t, (unsigned)by, width);
    out[96 + t] = __shfl_xor_sync(~0u, t, by, width);
}
__global__ void part_kernel(unsigned *out) // the halves of a warp part, and each names its own lanes
{
    unsigned t = threadIdx.x;
    if (t < 16) out[t] = __shfl_down_sync(0x0000ffffu, t, 3, 16);
    else out[t] = __shfl_up_sync(0xffff0000u, t, 3, 16);
    unsigned long long wide = __shfl_xor_sync(~0u, (unsigned long long)t << 33 | t, 7);
    out[32 + t] = (unsigned)(wide >> 33) == (unsigned)wide ? (unsigned)wide : 999;
}
static void shuffles()
{
    static const char *const names[] = {"shfl", "shfl_up", "shfl_down", "shfl_xor"};
    Array<unsigned> out(128);
    for (int width = 1; width <= 32; width *= 2)
        for (int by : {0, 1, 3, 12, 31}) {
            LAUNCH(shuffle_kernel, 1, 32, 0, nullptr, out.device, by, width);
            out.down();
            for (size_t k = 0; k < 4; k++) {
                char what[64];
                snprintf(what, sizeof what, "%s width %d by %d", names[k], width, by);
                print(what, &out.host[k * 32], 32, " %u");
            }
        }
    LAUNCH(part_kernel, 1, 32, 0, nullptr, out.device);
    out.down();
    print("shuffles of two halves", &out.host[0], 32, " %u");
    print("shuffle of 8 bytes", &out.host[32], 32, " %u");
}

// ---- votes, matches, reductions; lane 5 has returned in the second half of the values
__device__ static void warp_values(unsigned *out, unsigned mask)
{
    unsigned t = threadIdx.x;
    int all, halves;
    out[0] = __ballot_sync(mask, t % 3 == 0);
    out[1] = (unsigned)__all_sync(mask, t < 31) + 2 * (unsigned)__any_sync(mask, t == 31);
    out[2] = __match_any_sync(mask, t / 5);
    out[3] = __match_any_sync(mask, (unsigned long long)(t % 2) << 40);
    out[4] = __match_all_sync(mask, t / 32, &all);
    out[5] = __match_all_sync(mask, t / 16, &halves);
    out[5] += (all ? 10u : 0) + (halves ? 1u : 0);
    out[6] = (unsigned)__reduce_add_sync(mask, (int)t - 40);
    out[7] = (unsigned)__reduce_min_sync(mask, (int)t - 40) + 1000 * (unsigned)__reduce_max_sync(mask, (int)t - 9);
    out[8] = __reduce_min_sync(mask, t * 2654435761u);
    out[9] = __reduce_max_sync(mask, t * 2654435761u);
    out[10] = __reduce_add_sync(mask, t * 2654435761u);
    out[11] = __reduce_and_sync(mask, t | 0x70u);
    out[12] = __reduce_or_sync(mask, 1u << t);
    out[13] = __reduce_xor_sync(mask, t * 2654435761u);
}
__global__ void vote_kernel(unsigned *out)
{
    warp_values(out + threadIdx.x * 28, ~0u);
    if (threadIdx.x == 5) return;
    warp_values(out + threadIdx.x * 28 + 14, ~(1u << 5));
}
static void votes()
{
    static const char *const names[] = {
        "ballot", "all any", "match_any", "match_any 8 bytes", "match_all", "match_all?", "redux add int",
        "redux min max", "redux min", "redux max", "redux add", "redux and", "redux or", "redux xor"};
    Array<unsigned> out(32 * 28);
    LAUNCH(vote_kernel, 1, 32, 0, nullptr, out.device);
    out.down();
    for (size_t k = 0; k < 28; k++) {
        std::vector<unsigned> row(32);
        for (size_t t = 0; t < 32; t++) row[t] = out.host[t * 28 + k];
        char what[64];
        snprintf(what, sizeof what, "%s%s", names[k % 14], k < 14 ? "" : " without lane 5");
        print(what, row.data(), 32, " %x");
    }
}

// ---- barriers that count
__global__ void barrier_kernel(unsigned *out)
{
    unsigned t = threadIdx.x;
    named_barrier(3, 96);
    if (t >= 70) return; // the others still meet
    unsigned odd = (unsigned)__syncthreads_count(t % 2 ? 7 : 0);
    unsigned all = (unsigned)__syncthreads_and(t < 69), any = (unsigned)__syncthreads_or(t == 69);
    out[t] = odd * 100 + (all != 0) * 10 + (any != 0);
}
static void barriers()
{
    Array<unsigned> out(70);
    LAUNCH(barrier_kernel, 1, 96, 0, nullptr, out.device);
    out.down();
    print("barriers that count", out.host.data(), 70, " %u");
}

// ---- tensor cores and ldmatrix
__device__ static uint32_t pair(const __nv_bfloat16 *, float left, float right)
{
    unsigned low = __bfloat16_as_ushort(__float2bfloat16(left)), high = __bfloat16_as_ushort(__float2bfloat16(right));
    return low | high << 16;
}
__device__ static uint32_t pair(const __half *, float left, float right)
{
    unsigned low = __half_as_ushort(__float2half(left)), high = __half_as_ushort(__float2half(right));
    return low | high << 16;
}
__device__ static void tensor(float *d, const uint32_t *a, const uint32_t *b, const float *c, const __nv_bfloat16 *)
{
    mma_m16n8k16_bf16(d, a, b, c);
}
__device__ static void tensor(float *d, const uint32_t *a, const uint32_t *b, const float *c, const __half *)
{
    mma_m16n8k16_fp16(d, a, b, c);
}
template <class T> __global__ void mma_kernel(float *out)
{
    const T *type = nullptr;
    int t = (int)threadIdx.x;
    uint32_t a[4], b[2];
    float c[4], d[4];
    for (int i = 0; i < 4; i++)
        a[i] = pair(type, (float)((t * 7 + i * 5) % 23 - 11), (float)((t * 3 + i * 11) % 19 - 9));
    for (int i = 0; i < 2; i++)
        b[i] = pair(type, (float)((t * 5 + i * 3) % 17 - 8), (float)((t * 11 + i * 7) % 13 - 6));
    for (int i = 0; i < 4; i++) c[i] = (float)(t * 4 + i) * 0.25f;
    tensor(d, a, b, c, type);
    for (int i = 0; i < 4; i++) out[t * 4 + i] = d[i];
}
template <class T> static void mma(const char *what)
{
    Array<float> out(128);
    LAUNCH((mma_kernel<T>), 1, 32, 0, nullptr, out.device);
    out.down();
    printf("%s:", what);
    for (float v : out.host) printf(" %g", v);
    printf("\n");
}
__global__ void ldmatrix_kernel(uint32_t *out)
{
    SHARED16(uint16_t, s, [32][24]); // rows of 48 bytes
    unsigned t = threadIdx.x;
    for (unsigned i = 0; i < 24; i++) s[t][i] = (uint16_t)(t * 256 + i);
    __syncwarp();
    ldmatrix_x4(out + t * 4, &s[t * 5 % 32][t % 3 * 8]);
    ldmatrix_x4_trans(out + 128 + t * 4, &s[31 - t][t % 2 * 16]);
}
static void tensor_cores()
{
    mma<__nv_bfloat16>("mma m16n8k16 bf16");
    mma<__half>("mma m16n8k16 fp16");
    Array<uint32_t> out(256);
    LAUNCH(ldmatrix_kernel, 1, 32, 0, nullptr, out.device);
    out.down();
    print("ldmatrix", &out.host[0], 128, " %x");
    print("ldmatrix trans", &out.host[128], 128, " %x");
}

// ---- asynchronous copies of 16 bytes, of which 0, 4, .. 16 come from the source
__global__ void copy_kernel(unsigned *out, const unsigned *from)
{
    SHARED16(unsigned, s, [32][4]);
    unsigned t = threadIdx.x;
    for (unsigned i = 0; i < 4; i++) s[t][i] = 77;
    cp_async16(s[t], from + t * 4, t % 5 * 4);
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    for (unsigned i = 0; i < 4; i++) out[t * 4 + i] = s[(t + 1) % 32][i];
}
static void copies()
{
    Array<unsigned> from(128), out(128);
    for (unsigned i = 0; i < 128; i++) from.host[i] = 1000 + i;
    from.up();
    LAUNCH(copy_kernel, 1, 32, 0, nullptr, out.device, from.device);
    out.down();
    print("cp.async zero fill", out.host.data(), 128, " %u");
}

// ---- conversions on the device, as a checksum per format: narrowing of many floats, widening of all patterns
template <class T, class U> __device__ static U pattern(T v)
{
    U u;
    static_assert(sizeof u == sizeof v, "the pattern has the number's size");
    memcpy(&u, &v, sizeof u);
    return u;
}
template <class T, class U> __global__ void narrow_kernel(U *out, uint32_t n, uint32_t step)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = pattern<T, U>(T(__uint_as_float(i * step)));
}
template <class T, class U> __global__ void widen_kernel(float *out, uint32_t n)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        U u = (U)i;
        T v;
        memcpy((void *)&v, &u, sizeof v);
        out[i] = (float)v;
    }
}
template <class T, class U> static void conversion(const char *name)
{
    const uint32_t step = 16369, n = 0xffffffffu / step + 1, codes = 1u << 8 * sizeof(U);
    Array<U> narrow(n);
    Array<float> wide(codes);
    LAUNCH((narrow_kernel<T, U>), 8, 128, 0, nullptr, narrow.device, n, step);
    LAUNCH((widen_kernel<T, U>), 8, 128, 0, nullptr, wide.device, codes);
    narrow.down(), wide.down();
    uint64_t sums[2] = {0xcbf29ce484222325u, 0xcbf29ce484222325u};
    for (U u : narrow.host) sums[0] = mix(sums[0], u);
    for (float v : wide.host) {
        uint32_t u;
        memcpy(&u, &v, sizeof u);
        sums[1] = mix(sums[1], v == v ? u : 0x7fc00000u); // a NaN's own bits do not count
    }
    printf("%s: narrowing %016llx, widening %016llx\n", name, (unsigned long long)sums[0], (unsigned long long)sums[1]);
}

// ---- arithmetic that is rounded once
template <class T> __global__ void narrow_arithmetic_kernel(float *out)
{
    int t = (int)threadIdx.x;
    T a = T((float)(t * 7 - 100) * 0.37f), b = T((float)(t * t - 300) * 0.11f), c = T(1.0f / (float)(t + 3));
    float *mine = out + t * 9;
    mine[0] = (float)(a + b), mine[1] = (float)(a - b), mine[2] = (float)(a * b);
    mine[3] = (float)__hfma(a, b, c), mine[4] = (float)__hmax(a, b), mine[5] = (float)__hmin(a, b);
    mine[6] = (float)__hfma(T(7.0f), T(0.14453125f), T(-0x1p-40f));   // in bf16 a tie but for the last term
    mine[7] = (float)__hfma(T(3.0f), T(0.33349609375f), T(-0x1p-24f)); // in fp16
    mine[8] = (float)(a < b) + 2 * (float)(a == a);
}
__global__ void arithmetic_kernel(unsigned *out)
{
    unsigned t = threadIdx.x, u = (t + 1) * 2654435761u, *mine = out + t * 8;
    float x = (float)u * 1.7e-9f, y = (float)(t + 1) * 0.3f;
    mine[0] = __float_as_uint(__fmaf_rn(x, y, -x)), mine[1] = __float_as_uint(__frcp_rn(x));
    mine[2] = __float_as_uint(__fsqrt_rn(x)), mine[3] = __float_as_uint(x / y);
    mine[4] = __brev(u), mine[5] = __umulhi(u, 12345678u);
    mine[6] = (unsigned)(__clz((int)(u >> t)) + 100 * __ffs((int)u) + 10000 * __popc(u));
    mine[7] = (unsigned)(min(-3, (int)t - 5) + max(2, (int)t));
}
static void arithmetic()
{
    Array<float> narrow(32 * 9);
    Array<unsigned> out(256);
    LAUNCH(narrow_arithmetic_kernel<__nv_bfloat16>, 1, 32, 0, nullptr, narrow.device);
    narrow.down();
    printf("bf16 arithmetic:");
    for (float v : narrow.host) printf(" %.9g", v);
    LAUNCH(narrow_arithmetic_kernel<__half>, 1, 32, 0, nullptr, narrow.device);
    narrow.down();
    printf("\nfp16 arithmetic:");
    for (float v : narrow.host) printf(" %.9g", v);
    printf("\n");
    LAUNCH(arithmetic_kernel, 1, 32, 0, nullptr, out.device);
    out.down();
    print("arithmetic", out.host.data(), 256, " %x");
}

// ---- atomics
__global__ void atomic_kernel(unsigned *x, int *y, float *f, unsigned long long *wide)
{
    unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&x[0], t);
    atomicSub(&x[1], t);
    atomicMin(&x[2], t ^ 21u);
    atomicMax(&x[3], t ^ 21u);
    atomicAnd(&x[4], ~(1u << t % 7));
    atomicOr(&x[5], 1u << t % 7);
    atomicXor(&x[6], t * 2654435761u);
    atomicInc(&x[7], 9u);
    atomicDec(&x[8], 9u);
    for (unsigned old = atomicAdd(&x[9], 0u), seen; (seen = atomicCAS(&x[9], old, old * 3 + 1)) != old;) old = seen;
    atomicMin(&y[0], -(int)t);
    atomicMax(&y[1], (int)t - 1000);
    atomicAdd(f, 0.25f); // exact
    atomicAdd(wide, 1ull << 33);
    if (t == 7) x[10] = atomicExch(&x[11], 5u) + 1;
}
static void atomics()
{
    Array<unsigned> x(12);
    Array<int> y(2);
    Array<float> f(1);
    Array<unsigned long long> wide(1);
    x.host[2] = x.host[4] = ~0u, x.host[9] = 1, x.host[11] = 41, y.host[1] = -2000;
    x.up(), y.up();
    LAUNCH(atomic_kernel, 3, 50, 0, nullptr, x.device, y.device, f.device, wide.device);
    x.down(), y.down(), f.down(), wide.down();
    print("atomics", x.host.data(), 12, " %u");
    printf("atomics, other types: %d %d %g %llu\n", y.host[0], y.host[1], f.host[0], wide.host[0]);
}

// ---- what is refused, and sizes
__global__ void empty_kernel(int *x, int n)
{
    DYN_SHARED(int, s);
    if (n) s[0] = x[0];
}
static void refusals()
{
    const struct { const char *what; dim3 grid, block; size_t shared_bytes; } cases[] = {
        {"1025 threads", 1, 1025, 0}, {"no thread", 1, dim3(0, 1, 1), 0}, {"block z 65", 1, dim3(1, 1, 65), 0},
        {"no block", dim3(0, 1, 1), 32, 0}, {"grid y 65536", dim3(1, 65536), 32, 0},
        {"grid z 65536", dim3(1, 1, 65536), 32, 0},
        {"48 KiB", 1, 32, 48 * 1024}, {"48 KiB and one", 1, 32, 48 * 1024 + 1}, {"1024 threads", 1, dim3(32, 4, 8), 0},
    };
    for (auto &c : cases)
        printf("launch with %s: %s\n", c.what,
               cudaGetErrorName(LAUNCH_TRY(empty_kernel, c.grid, c.block, c.shared_bytes, nullptr, nullptr, 0)));
    GPU_CHECK(cudaDeviceSynchronize());
    auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    printf("attribute of 1 MiB: %s\n", cudaGetErrorName(cudaFuncSetAttribute(empty_kernel, most, 1 << 20)));
    printf("the last error: %s", cudaGetErrorName(cudaGetLastError()));
    printf(", and then %s\n", cudaGetErrorName(cudaGetLastError()));
    printf("attribute of 100 KiB: %s\n", cudaGetErrorName(cudaFuncSetAttribute(empty_kernel, most, 100 * 1024)));
    cudaError_t large = LAUNCH_TRY(empty_kernel, 1, 32, 100 * 1024, nullptr, nullptr, 0);
    printf("launch with 100 KiB: %s\n", cudaGetErrorName(large));
    GPU_CHECK(cudaDeviceSynchronize());
    cudaStream_t stream;
    cudaEvent_t event;
    float ms;
    GPU_CHECK(cudaStreamCreate(&stream));
    GPU_CHECK(cudaEventCreate(&event));
    printf("an event that was never recorded: query %s", cudaGetErrorName(cudaEventQuery(event)));
    printf(", time %s\n", cudaGetErrorName(cudaEventElapsedTime(&ms, event, event)));
    GPU_CHECK(cudaStreamWaitEvent(stream, event, 0));
    printf("an empty stream: %s\n", cudaGetErrorName(cudaStreamQuery(stream)));
    GPU_CHECK(cudaEventDestroy(event));
    GPU_CHECK(cudaStreamDestroy(stream));
    (void)cudaGetLastError();
    printf("device 1000: %s\n", cudaGetErrorName(cudaSetDevice(1000)));
    (void)cudaGetLastError();
}
#define SIZE(type) printf(" " #type " %d/%d", (int)sizeof(type), (int)alignof(type))
static void sizes()
{
    printf("size/alignment:");
    SIZE(char2), SIZE(char3), SIZE(char4), SIZE(ushort2), SIZE(ushort4), SIZE(int2), SIZE(int3), SIZE(uint4);
    SIZE(float2), SIZE(float3), SIZE(float4), SIZE(double2), SIZE(longlong2), SIZE(dim3);
    SIZE(__nv_bfloat16), SIZE(__nv_bfloat162), SIZE(__half), SIZE(__half2), SIZE(__nv_fp8_e4m3), SIZE(__nv_fp8_e5m2);
    printf("\n");
}

int main()
{
    shuffles();
    votes();
    barriers();
    tensor_cores();
    copies();
    conversion<__nv_bfloat16, uint16_t>("bf16");
    conversion<__half, uint16_t>("fp16");
    conversion<__nv_fp8_e4m3, uint8_t>("fp8 e4m3");
    conversion<__nv_fp8_e5m2, uint8_t>("fp8 e5m2");
    arithmetic();
    atomics();
    refusals();
    sizes();
    return 0;
}
