// bugs: one small kernel or program per mistake that CUDA programmers make. `bugs list` prints, for each, the report it
// must give, the build and the settings that show it; `bugs NAME` makes the mistake.
//
// Not a single one is for a GPU: most would be silent there. "wrong-result" is a program that notices for itself.
#include "gpu.h"

#include <cmath>
#include <cstring>
#include <vector>

static float *device_floats(size_t n, bool filled)
{
    float *x;
    GPU_CHECK(cudaMalloc(&x, n * sizeof(float)));
    std::vector<float> host(n, 1.0f);
    if (filled) GPU_CHECK(cudaMemcpy(x, host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    return x;
}
static void expect(bool good)
{
    if (good) return;
    fprintf(stderr, "wrong-result\n");
    exit(3);
}
#define RUN(kernel, grid, block, ...)                                                                    \
    do {                                                                                                 \
        LAUNCH(kernel, grid, block, 0, nullptr, __VA_ARGS__);                                            \
        GPU_CHECK(cudaDeviceSynchronize());                                                              \
    } while (0)

// ---- races
__global__ void missing_barrier(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    x[t] = s[63 - t];
}
__global__ void missing_barrier_behind(float *x) // in this order of threads the result is right
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    x[t] = s[t / 2];
}
__global__ void missing_second_barrier(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 2; i++) {
        s[t] = x[t] + (float)i;
        __syncthreads();
        sum += s[63 - t]; // the next round writes s while others still read
    }
    x[t] = sum;
}
__global__ void missing_syncwarp(float *x)
{
    SHARED(float, s, [32]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    x[t] = s[t / 2];
}
__global__ void partial_syncwarp(float *x)
{
    SHARED(float, s, [32]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    if (t < 16) __syncwarp(0x0000ffffu);
    else __syncwarp(0xffff0000u);
    x[t] = s[t % 16]; // half of them read what the other half wrote
}
__global__ void named_barrier_too_small(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    named_barrier(1 + t / 32, 32);
    x[t] = s[t % 32];
}
__global__ void missing_fence(float *part, unsigned *ticket, float *out)
{
    SHARED(bool, last);
    if (threadIdx.x == 0) {
        part[blockIdx.x] = 1;
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0)
        for (unsigned b = 0; b < gridDim.x; b++) *out += part[b];
}
__global__ void fence_after_ticket(float *part, unsigned *ticket, float *out)
{
    if (threadIdx.x) return;
    part[blockIdx.x] = 1;
    bool last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __threadfence();
    if (last)
        for (unsigned b = 0; b < gridDim.x; b++) *out += part[b];
}
static void run_tickets(void (*kernel)(float *, unsigned *, float *))
{
    float *part = device_floats(5, false);
    GPU_CHECK(cudaMemset(part + 4, 0, 4));
    unsigned *ticket;
    GPU_CHECK(cudaMalloc(&ticket, 4));
    GPU_CHECK(cudaMemset(ticket, 0, 4));
    LAUNCH(kernel, 4, 32, 0, nullptr, part, ticket, part + 4);
    GPU_CHECK(cudaDeviceSynchronize());
}
__global__ void two_blocks_one_cell(float *x)
{
    if (threadIdx.x == 0) x[0] = (float)blockIdx.x;
}
__global__ void plain_increment(float *x)
{
    x[0] += 1;
}
__global__ void plain_read_of_atomic(float *x)
{
    atomicAdd(&x[0], 1.0f);
    if (threadIdx.x == 5) x[1] = x[0];
}
__global__ void barrier_as_grid_barrier(float *x)
{
    x[blockIdx.x] = 1;
    __syncthreads();
    x[2 + blockIdx.x] = x[1 - blockIdx.x];
}

// ---- memory
__global__ void shared_not_written(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    if (t < 63) s[t] = x[t];
    __syncthreads();
    x[t] = s[63 - t];
}
__global__ void read_all(float *out, const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i];
    out[threadIdx.x] = sum;
}
__global__ void write_at(float *x, int i) { x[i] = 2; }
__global__ void read_at(float *x, int i) { x[0] = x[i]; }
__global__ void shared_write_at(float *x, int i)
{
    SHARED(float, s, [16]);
    s[threadIdx.x] = x[threadIdx.x];
    s[i] = 3;
    x[threadIdx.x] = s[threadIdx.x];
}
__global__ void copy_struct(float *x, int i, size_t n)
{
    memcpy(x, x + i, n);
}
__global__ void vector_load(float *x, int i)
{
    float4 *to = (float4 *)x;
    to[2] = *(const float4 *)(x + i);
}
__global__ void big_shared(float *x)
{
    SHARED(float, s, [64 * 256]);
    s[threadIdx.x] = x[0];
}
__global__ void deep(float *x, int n)
{
    volatile float room[1024];
    room[n % 1024] = x[0];
    if (n > 0) deep(x, n - 1);
    x[0] = room[n % 1024];
}

// ---- barriers and warps
__global__ void two_barriers(float *x)
{
    if (threadIdx.x < 32) {
        x[threadIdx.x] = 0;
        __syncthreads();
    } else {
        x[threadIdx.x] = 1;
        __syncthreads();
    }
}
__global__ void return_before_barrier(float *x)
{
    if (threadIdx.x == 3) return;
    __syncthreads();
    x[threadIdx.x] = 1;
}
__global__ void barrier_against_shuffle(float *x)
{
    if (threadIdx.x < 16) __syncthreads();
    else x[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
}
__global__ void shuffle_in_branch(float *x)
{
    if (threadIdx.x < 20) x[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
    else x[threadIdx.x] = __shfl_down_sync(0xffffffffu, 2.0f, 1);
}
__global__ void mask_without_me(float *x) { x[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0); }
__global__ void mask_too_wide(float *x)
{
    if (threadIdx.x < 16) x[threadIdx.x] = (float)__ballot_sync(0xffffffffu, 1);
    else __syncthreads();
}
__global__ void shuffle_from_outside(float *x)
{
    if (threadIdx.x < 8) x[threadIdx.x] = __shfl_down_sync(0x000000ffu, 1.0f, 4);
}
__global__ void shuffle_in_partial_warp(float *x)
{
    float v = 1;
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    x[threadIdx.x] = v;
}
__global__ void named_barrier_33(float *x)
{
    named_barrier(1, 33);
    x[0] = 1;
}
__global__ void named_barrier_two_counts(float *x)
{
    named_barrier(1, threadIdx.x < 32 ? 64 : 32);
    x[0] = 1;
}
__global__ void mma_in_half_a_warp(float *x)
{
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    mma_m16n8k16_bf16(d, a, b, d);
    x[threadIdx.x] = d[0];
}
__global__ void grid_sync_alone(float *x)
{
    x[blockIdx.x] = 1;
    GRID_SYNC();
}

// ---- asynchronous copies
__global__ void copy_unwaited(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    cp_async_commit();
    x[threadIdx.x] = 1;
}
__global__ void copy_read_early(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    cp_async_commit();
    float v = s[threadIdx.x * 4];
    cp_async_wait<0>();
    x[threadIdx.x * 4] = v;
}
__global__ void copy_uncommitted(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    cp_async_wait<0>();
    x[threadIdx.x * 4] = s[threadIdx.x * 4];
}
__global__ void copy_without_barrier(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    x[threadIdx.x * 4] = s[threadIdx.x ? threadIdx.x * 4 - 4 : 0];
}
__global__ void copy_from(float *x, const float *from)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], from + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    x[threadIdx.x * 4] = s[threadIdx.x * 4];
}
__global__ void ldmatrix_at(float *x, int off)
{
    SHARED16(uint16_t, s, [16 * 32]);
    for (int i = (int)threadIdx.x; i < 512; i += 32) s[i] = (uint16_t)i;
    __syncwarp();
    uint32_t f[4];
    ldmatrix_x4(f, &s[threadIdx.x % 16 * 24 + threadIdx.x / 16 * 8 + (unsigned)off]);
    x[threadIdx.x] = (float)f[0];
}

// ---- the host
__global__ void set_all(float *x, float to, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) x[i] = to;
}
__global__ void gather(float *out, const float *x, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) out[i] = x[n - 1 - i];
}
static void no_event(bool event)
{
    float *x = device_floats(64, true), *out = device_floats(64, true), host[64];
    cudaStream_t a, b;
    cudaEvent_t done;
    GPU_CHECK(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    GPU_CHECK(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    GPU_CHECK(cudaEventCreate(&done));
    LAUNCH(set_all, 1, 32, 0, a, x, 5.0f, 64);
    if (event) {
        GPU_CHECK(cudaEventRecord(done, a));
        GPU_CHECK(cudaStreamWaitEvent(b, done, 0));
    }
    LAUNCH(gather, 1, 32, 0, b, out, x, 64);
    GPU_CHECK(cudaMemcpyAsync(host, out, sizeof host, cudaMemcpyDeviceToHost, b));
    GPU_CHECK(cudaStreamSynchronize(b));
    GPU_CHECK(cudaDeviceSynchronize());
    expect(host[0] == 5);
}
static void pinned_read_early()
{
    float *x = device_floats(4, true), *pinned;
    GPU_CHECK(cudaMallocHost(&pinned, 16));
    memset(pinned, 0, 16);
    cudaStream_t a;
    GPU_CHECK(cudaStreamCreate(&a));
    GPU_CHECK(cudaMemcpyAsync(pinned, x, 16, cudaMemcpyDeviceToHost, a));
    float seen = pinned[0];
    GPU_CHECK(cudaStreamSynchronize(a));
    expect(seen == 1);
}
static void pinned_changed_early()
{
    float *x = device_floats(4, true), *pinned, host[4];
    GPU_CHECK(cudaMallocHost(&pinned, 16));
    for (int i = 0; i < 4; i++) pinned[i] = 7;
    cudaStream_t a;
    GPU_CHECK(cudaStreamCreate(&a));
    GPU_CHECK(cudaMemcpyAsync(x, pinned, 16, cudaMemcpyHostToDevice, a));
    pinned[0] = 8;
    GPU_CHECK(cudaStreamSynchronize(a));
    GPU_CHECK(cudaMemcpy(host, x, 16, cudaMemcpyDeviceToHost));
    expect(host[0] == 7);
}
static void never_waited()
{
    float *x = device_floats(64, true);
    cudaStream_t a;
    GPU_CHECK(cudaStreamCreate(&a));
    LAUNCH(set_all, 1, 32, 0, a, x, 5.0f, 64);
}
static int order_seen;
__global__ void order_matters(float *x)
{
    if (order_seen++ == 0) x[0] = (float)threadIdx.x; // whoever comes first
}
static void order_dependent()
{
    float *x = device_floats(1, false), host;
    RUN(order_matters, 1, 64, x);
    GPU_CHECK(cudaMemcpy(&host, x, 4, cudaMemcpyDeviceToHost));
    expect(host == 0);
}
__global__ void nested(float *x) { LAUNCH(set_all, 1, 32, 0, nullptr, x, 1.0f, 1); }
__global__ void asserts(float *x) { assert(x[0] == 2); }

static float host_memory[4] = {1, 2, 3, 4};
struct Bug {
    const char *name, *kind, *build, *settings;
    void (*run)();
};
static const Bug BUGS[] = {
    {"missing_barrier", "uninitialised", "checker", "", [] { RUN(missing_barrier, 1, 64, device_floats(64, true)); }},
    {"missing_barrier_behind", "race", "checker", "", [] { RUN(missing_barrier_behind, 1, 64, device_floats(64, true)); }},
    {"missing_barrier_inorder", "wrong-result", "plain", "", [] {
         float *x = device_floats(64, true), host[64];
         RUN(missing_barrier, 1, 64, x);
         GPU_CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
         for (float v : host) expect(v == 1);
     }},
    {"missing_second_barrier", "race", "checker", "", [] { RUN(missing_second_barrier, 1, 64, device_floats(64, true)); }},
    {"missing_syncwarp", "race", "checker", "", [] { RUN(missing_syncwarp, 1, 32, device_floats(32, true)); }},
    {"partial_syncwarp", "race", "checker", "", [] { RUN(partial_syncwarp, 1, 32, device_floats(32, true)); }},
    {"named_barrier_too_small", "race", "checker", "", [] { RUN(named_barrier_too_small, 1, 64, device_floats(64, true)); }},
    {"missing_fence", "race", "checker", "", [] { run_tickets(missing_fence); }},
    {"fence_after_ticket", "race", "checker", "", [] { run_tickets(fence_after_ticket); }},
    {"two_blocks_one_cell", "race", "checker", "", [] { RUN(two_blocks_one_cell, 2, 32, device_floats(1, true)); }},
    {"plain_increment", "race", "checker", "", [] { RUN(plain_increment, 1, 2, device_floats(1, true)); }},
    {"plain_read_of_atomic", "race", "checker", "", [] { RUN(plain_read_of_atomic, 1, 32, device_floats(2, true)); }},
    {"barrier_as_grid_barrier", "race", "checker", "", [] { RUN(barrier_as_grid_barrier, 2, 1, device_floats(4, true)); }},
    {"shared_not_written", "uninitialised", "checker", "", [] { RUN(shared_not_written, 1, 64, device_floats(64, true)); }},
    {"device_not_written", "uninitialised", "checker", "",
     [] { RUN(read_all, 1, 1, device_floats(1, true), device_floats(8, false), 8); }},
    {"device_read_behind", "out-of-bounds", "checker", "",
     [] { RUN(read_all, 1, 1, device_floats(1, true), device_floats(8, true), 9); }},
    {"device_read_behind_asan", "AddressSanitizer", "asan", "",
     [] { RUN(read_all, 1, 1, device_floats(1, true), device_floats(8, true), 9); }},
    {"device_write_before", "out-of-bounds", "checker", "", [] { RUN(write_at, 1, 1, device_floats(8, true), -1); }},
    {"device_write_behind", "red-zone", "plain", "", [] { RUN(write_at, 1, 1, device_floats(8, true), 8); }},
    {"freed_memory", "out-of-bounds", "checker", "", [] {
         float *x = device_floats(8, true);
         GPU_CHECK(cudaFree(x));
         RUN(write_at, 1, 1, x, 0);
     }},
    {"freed_memory_asan", "AddressSanitizer", "asan", "", [] {
         float *x = device_floats(8, true);
         GPU_CHECK(cudaFree(x));
         RUN(write_at, 1, 1, x, 0);
     }},
    {"shared_write_behind", "red-zone", "plain", "", [] { RUN(shared_write_at, 1, 16, device_floats(16, true), 17); }},
    {"shared_write_behind_ubsan", "index 17 out of bounds", "asan", "", [] { RUN(shared_write_at, 1, 16, device_floats(16, true), 17); }},
    {"shared_write_behind_checker", "out-of-bounds", "checker", "", [] { RUN(shared_write_at, 1, 1, device_floats(16, true), 16); }},
    {"memcpy_behind", "out-of-bounds", "checker", "", [] { RUN(copy_struct, 1, 1, device_floats(12, true), 8, (size_t)20); }},
    {"vector_load_misaligned", "misaligned", "checker", "", [] { RUN(vector_load, 1, 1, device_floats(12, true), 1); }},
    {"vector_load_misaligned_ubsan", "misaligned address", "asan", "", [] { RUN(vector_load, 1, 1, device_floats(12, true), 1); }},
    {"host_pointer", "foreign-pointer", "checker", "", [] {
         std::vector<float> host(8, 1.0f);
         RUN(read_all, 1, 1, device_floats(1, true), host.data(), 8);
     }},
    {"device_pointer_in_host", "host-access", "plain", "EMU_GUARD=1", [] { expect(device_floats(1, true)[0] == 2); }},
    {"device_pointer_in_host_checker", "host-access", "checker", "", [] { expect(device_floats(1, true)[0] == 2); }},
    {"big_shared", "shared-size", "plain", "", [] { RUN(big_shared, 1, 32, device_floats(1, true)); }},
    {"deep_recursion", "stack-overflow", "plain", "", [] { RUN(deep, 1, 1, device_floats(1, true), 1000); }},
    {"two_barriers", "divergent-barrier", "plain", "", [] { RUN(two_barriers, 1, 64, device_floats(64, true)); }},
    {"return_before_barrier", "divergent-barrier", "plain", "EMU_STRICT=2",
     [] { RUN(return_before_barrier, 1, 32, device_floats(32, true)); }},
    {"barrier_against_shuffle", "deadlock", "plain", "", [] { RUN(barrier_against_shuffle, 1, 32, device_floats(32, true)); }},
    {"shuffle_in_branch", "mixed-collectives", "plain", "", [] { RUN(shuffle_in_branch, 1, 32, device_floats(32, true)); }},
    {"mask_without_me", "wrong-mask", "plain", "", [] { RUN(mask_without_me, 1, 32, device_floats(32, true)); }},
    {"mask_too_wide", "deadlock", "plain", "", [] { RUN(mask_too_wide, 1, 32, device_floats(32, true)); }},
    {"shuffle_from_outside", "shuffle-source", "plain", "EMU_STRICT=2", [] { RUN(shuffle_from_outside, 1, 32, device_floats(32, true)); }},
    {"shuffle_in_partial_warp", "wrong-mask", "plain", "EMU_STRICT=2", [] { RUN(shuffle_in_partial_warp, 1, 48, device_floats(48, true)); }},
    {"named_barrier_33", "barrier-count", "plain", "", [] { RUN(named_barrier_33, 1, 64, device_floats(1, true)); }},
    {"named_barrier_two_counts", "barrier-count", "plain", "", [] { RUN(named_barrier_two_counts, 1, 64, device_floats(1, true)); }},
    {"mma_in_half_a_warp", "wrong-mask", "plain", "", [] { RUN(mma_in_half_a_warp, 1, 16, device_floats(16, true)); }},
    {"grid_sync_alone", "grid-sync", "plain", "", [] { RUN(grid_sync_alone, 2, 32, device_floats(2, true)); }},
    {"copy_unwaited", "unwaited-copy", "plain", "", [] { RUN(copy_unwaited, 1, 32, device_floats(128, true)); }},
    {"copy_uncommitted", "unwaited-copy", "plain", "", [] { RUN(copy_uncommitted, 1, 32, device_floats(128, true)); }},
    {"copy_read_early", "wrong-result", "plain", "", [] {
         float *x = device_floats(128, true), host[128];
         RUN(copy_read_early, 1, 32, x);
         GPU_CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
         for (float v : host) expect(v == 1);
     }},
    {"copy_read_early_checker", "uninitialised", "checker", "", [] { RUN(copy_read_early, 1, 32, device_floats(128, true)); }},
    {"copy_without_barrier", "race", "checker", "", [] { RUN(copy_without_barrier, 1, 32, device_floats(128, true)); }},
    {"copy_misaligned", "misaligned", "plain", "", [] {
         float *x = device_floats(132, true);
         RUN(copy_from, 1, 32, x, x + 1);
     }},
    {"copy_behind", "out-of-bounds", "plain", "", [] {
         float *x = device_floats(128, true);
         RUN(copy_from, 1, 32, x, x + 4);
     }},
    {"copy_from_host", "foreign-pointer", "plain", "", [] { RUN(copy_from, 1, 1, device_floats(4, true), (float *)((uintptr_t)host_memory & ~(uintptr_t)15)); }},
    {"ldmatrix_misaligned", "misaligned", "plain", "", [] { RUN(ldmatrix_at, 1, 32, device_floats(32, true), 1); }},
    {"ldmatrix_behind", "out-of-bounds", "plain", "", [] { RUN(ldmatrix_at, 1, 32, device_floats(32, true), 144); }},
    {"missing_event", "wrong-result", "plain", "EMU_STREAMS=late", [] { no_event(false); }},
    {"with_event", "nothing", "plain", "EMU_STREAMS=late", [] { no_event(true); }},
    {"pinned_read_early", "wrong-result", "plain", "EMU_STREAMS=late", pinned_read_early},
    {"pinned_changed_early", "wrong-result", "plain", "EMU_STREAMS=late", pinned_changed_early},
    {"never_waited", "nobody waited for", "plain", "EMU_STREAMS=late", never_waited},
    {"order_dependent", "wrong-result", "plain", "EMU_ORDER=reverse", order_dependent},
    {"nested_launch", "nested-launch", "plain", "", [] { RUN(nested, 1, 1, device_floats(1, true)); }},
    {"assert", "assert", "plain", "", [] { RUN(asserts, 1, 1, device_floats(1, true)); }},
    {"double_free", "bad-free", "plain", "", [] {
         float *x = device_floats(8, true);
         GPU_CHECK(cudaFree(x));
         GPU_CHECK(cudaFree(x));
     }},
    {"free_inside", "bad-free", "plain", "", [] { GPU_CHECK(cudaFree(device_floats(8, true) + 1)); }},
    {"copy_past_the_end", "out-of-bounds", "plain", "", [] {
         float host[16] = {};
         GPU_CHECK(cudaMemcpy(device_floats(8, true), host, sizeof host, cudaMemcpyHostToDevice));
     }},
    {"copy_wrong_way", "copy-direction", "plain", "", [] {
         float host[8] = {};
         GPU_CHECK(cudaMemcpy(device_floats(8, true), host, sizeof host, cudaMemcpyDeviceToHost));
     }},
    {"dead_stream", "bad-handle", "plain", "", [] {
         cudaStream_t a;
         GPU_CHECK(cudaStreamCreate(&a));
         GPU_CHECK(cudaStreamDestroy(a));
         LAUNCH(set_all, 1, 32, 0, a, device_floats(1, true), 5.0f, 1);
     }},
    {"too_many_threads", "cudaErrorInvalidConfiguration", "plain", "", [] { RUN(set_all, 1, 2048, device_floats(1, true), 5.0f, 1); }},
};

int main(int argc, char **argv)
{
    for (const Bug &b : BUGS) {
        if (argc == 2 && !strcmp(argv[1], "list")) printf("%s|%s|%s|%s\n", b.name, b.kind, b.build, b.settings);
        else if (argc == 2 && !strcmp(argv[1], b.name)) return b.run(), 0;
    }
    return argc == 2 && !strcmp(argv[1], "list") ? 0 : 2;
}
