// bugs: one small kernel per mistake that CUDA programmers make. How to use the program: bugs.h.
//
// Not a single one is for a GPU: most would be silent there. "wrong-result" is a program that notices for itself.
#include "bugs.h"

// ---- races
__global__ void missing_barrier(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    x[t] = s[63 - t]; // @missing_barrier
}
__global__ void missing_barrier_behind(float *x) // in this order of threads the result is right
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    x[t] = s[t / 2]; // @missing_barrier_behind
}
__global__ void missing_second_barrier(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 2; i++) {
        s[t] = x[t] + (float)i;
        __syncthreads();
        sum += s[63 - t]; // the next round writes s while others still read // @missing_second_barrier
    }
    x[t] = sum;
}
__global__ void missing_syncwarp(float *x)
{
    SHARED(float, s, [32]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    x[t] = s[t / 2]; // @missing_syncwarp
}
__global__ void partial_syncwarp(float *x)
{
    SHARED(float, s, [32]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    if (t < 16) __syncwarp(0x0000ffffu);
    else __syncwarp(0xffff0000u);
    x[t] = s[t % 16]; // half of them read what the other half wrote // @partial_syncwarp
}
__global__ void named_barrier_too_small(float *x)
{
    SHARED(float, s, [64]);
    int t = (int)threadIdx.x;
    s[t] = x[t];
    named_barrier(1 + t / 32, 32);
    x[t] = s[t % 32]; // @named_barrier_too_small
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
        for (unsigned b = 0; b < gridDim.x; b++) *out += part[b]; // @missing_fence
}
__global__ void fence_after_ticket(float *part, unsigned *ticket, float *out)
{
    if (threadIdx.x) return;
    part[blockIdx.x] = 1;
    bool last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __threadfence();
    if (last)
        for (unsigned b = 0; b < gridDim.x; b++) *out += part[b]; // @fence_after_ticket
}
static float *tickets() // of 4 blocks: 4 parts, their sum, and the ticket
{
    float *part = device_floats(6, false);
    GPU_CHECK(cudaMemset(part + 4, 0, 8));
    return part;
}
#define RUN_TICKETS(kernel)                                                                              \
    do {                                                                                                 \
        float *part = tickets();                                                                         \
        RUN(kernel, 4, 32, part, (unsigned *)(part + 5), part + 4);                                      \
    } while (0)
__global__ void two_blocks_one_cell(float *x)
{
    if (threadIdx.x == 0) x[0] = (float)blockIdx.x; // @two_blocks_one_cell
}
__global__ void plain_increment(float *x)
{
    x[0] += 1; // @plain_increment
}
__global__ void plain_read_of_atomic(float *x)
{
    atomicAdd(&x[0], 1.0f); // @plain_read_of_atomic
    if (threadIdx.x == 5) x[1] = x[0];
}
__global__ void barrier_as_grid_barrier(float *x)
{
    x[blockIdx.x] = 1; // @barrier_as_grid_barrier
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
    x[t] = s[63 - t]; // @shared_not_written
}
__global__ void read_all(float *out, const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) sum += x[i]; // @read_all
    out[threadIdx.x] = sum;
}
__global__ void write_at(float *x, int i) { x[i] = 2; } // @write_at
__global__ void read_at(float *x, int i) { x[0] = x[i]; }
__global__ void shared_write_at(float *x, int i)
{
    SHARED(float, s, [16]);
    s[threadIdx.x] = x[threadIdx.x];
    s[i] = 3; // @shared_write_at
    x[threadIdx.x] = s[threadIdx.x];
}
__global__ void copy_struct(float *x, int i, size_t n)
{
    memcpy(x, x + i, n); // @copy_struct
}
__global__ void vector_load(float *x, int i)
{
    float4 *to = (float4 *)x;
    to[2] = *(const float4 *)(x + i); // @vector_load
}
__global__ void big_shared(float *x)
{
    SHARED(float, s, [64 * 256]); // @big_shared
    s[threadIdx.x] = x[0];
}
__global__ void deep(float *x, int n)
{ // @deep
    volatile float room[1024];
    room[n % 1024] = x[0];
    if (n > 0) deep(x, n - 1); // @deep
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
        __syncthreads(); // @two_barriers
    }
}
__global__ void return_before_barrier(float *x)
{
    if (threadIdx.x == 3) return;
    __syncthreads(); // @return_before_barrier
    x[threadIdx.x] = 1;
}
__global__ void barrier_against_shuffle(float *x)
{
    if (threadIdx.x < 16) __syncthreads();
    else x[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0); // @barrier_against_shuffle
}
__global__ void shuffle_in_branch(float *x)
{
    if (threadIdx.x < 20) x[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
    else x[threadIdx.x] = __shfl_down_sync(0xffffffffu, 2.0f, 1); // @shuffle_in_branch
}
__global__ void mask_without_me(float *x) { x[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0); } // @mask_without_me
__global__ void mask_too_wide(float *x)
{
    if (threadIdx.x < 16) x[threadIdx.x] = (float)__ballot_sync(0xffffffffu, 1);
    else __syncthreads(); // @mask_too_wide
}
__global__ void shuffle_from_outside(float *x)
{
    if (threadIdx.x < 8) x[threadIdx.x] = __shfl_down_sync(0x000000ffu, 1.0f, 4); // @shuffle_from_outside
}
__global__ void shuffle_in_partial_warp(float *x)
{
    float v = 1;
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by); // @shuffle_in_partial_warp
    x[threadIdx.x] = v;
}
__global__ void named_barrier_33(float *x)
{
    named_barrier(1, 33); // @named_barrier_33
    x[0] = 1;
}
__global__ void named_barrier_two_counts(float *x)
{
    named_barrier(1, threadIdx.x < 32 ? 64 : 32); // @named_barrier_two_counts
    x[0] = 1;
}
__global__ void mma_in_half_a_warp(float *x)
{
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    mma_m16n8k16_bf16(d, a, b, d); // @mma_in_half_a_warp
    x[threadIdx.x] = d[0];
}
__global__ void spin_with_atomics(float *x) // block 0 waits for block 1, which starts when block 0 has ended
{
    if (blockIdx.x == 1) atomicExch(x, 2.0f);
    else while (atomicAdd(x, 0.0f) != 2); // @spin_with_atomics
}
__global__ void spin_alone(float *x)
{
    while (*(volatile float *)x == 1); // @spin_alone
}
__global__ void wait_for_ever(float *x)
{
    for (int i = 0; i >= 0; i = (i + 1) % 7) __syncthreads(); // @wait_for_ever
    x[0] = 1;
}
__global__ void divide(int *x, int by) { x[threadIdx.x] = 100 / (by - (int)threadIdx.x); } // @divide
__global__ void grid_sync_alone(float *x)
{
    x[blockIdx.x] = 1;
    GRID_SYNC(); // @grid_sync_alone
}

// ---- asynchronous copies
__global__ void copy_unwaited(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4); // @copy_unwaited
    cp_async_commit();
    x[threadIdx.x] = 1;
}
__global__ void copy_read_early(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    cp_async_commit();
    float v = s[threadIdx.x * 4]; // @copy_read_early
    cp_async_wait<0>();
    x[threadIdx.x * 4] = v;
}
__global__ void copy_uncommitted(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4); // @copy_uncommitted
    cp_async_wait<0>();
    x[threadIdx.x * 4] = s[threadIdx.x * 4];
}
__global__ void copy_without_barrier(float *x)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], x + threadIdx.x * 4);
    cp_async_commit();
    cp_async_wait<0>();
    x[threadIdx.x * 4] = s[threadIdx.x ? threadIdx.x * 4 - 4 : 0]; // @copy_without_barrier
}
__global__ void copy_from(float *x, const float *from)
{
    SHARED16(float, s, [128]);
    cp_async16(&s[threadIdx.x * 4], from + threadIdx.x * 4); // @copy_from
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
    ldmatrix_x4(f, &s[threadIdx.x % 16 * 24 + threadIdx.x / 16 * 8 + (unsigned)off]); // @ldmatrix_at
    x[threadIdx.x] = (float)f[0];
}

alignas(16) static float host_memory[4] = {1, 2, 3, 4};
static const Bug BUGS[] = {
    {"missing_barrier", "uninitialised", "checker", "", "missing_barrier", "0/0",
     [] { RUN(missing_barrier, 1, 64, device_floats(64, true)); }},
    {"missing_barrier_behind", "race", "checker", "", "missing_barrier_behind", "0/1",
     [] { RUN(missing_barrier_behind, 1, 64, device_floats(64, true)); }},
    {"missing_barrier_inorder", "wrong-result", "plain", "", "", "", [] {
         float *x = device_floats(64, true), host[64];
         RUN(missing_barrier, 1, 64, x);
         GPU_CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
         for (float v : host) expect(v == 1);
     }},
    {"missing_second_barrier", "race", "checker", "", "missing_second_barrier", "0/0",
     [] { RUN(missing_second_barrier, 1, 64, device_floats(64, true)); }},
    {"missing_syncwarp", "race", "checker", "", "missing_syncwarp", "0/1",
     [] { RUN(missing_syncwarp, 1, 32, device_floats(32, true)); }},
    {"partial_syncwarp", "race", "checker", "", "partial_syncwarp", "0/31",
     [] { RUN(partial_syncwarp, 1, 32, device_floats(32, true)); }},
    {"named_barrier_too_small", "race", "checker", "", "named_barrier_too_small", "0/63",
     [] { RUN(named_barrier_too_small, 1, 64, device_floats(64, true)); }},
    {"missing_fence", "race", "checker", "", "missing_fence", "3/0", [] { RUN_TICKETS(missing_fence); }},
    {"fence_after_ticket", "race", "checker", "", "fence_after_ticket", "3/0",
     [] { RUN_TICKETS(fence_after_ticket); }},
    {"two_blocks_one_cell", "race", "checker", "", "two_blocks_one_cell", "1/0",
     [] { RUN(two_blocks_one_cell, 2, 32, device_floats(1, true)); }},
    {"plain_increment", "race", "checker", "", "plain_increment", "0/1",
     [] { RUN(plain_increment, 1, 2, device_floats(1, true)); }},
    {"plain_read_of_atomic", "race", "checker", "", "plain_read_of_atomic", "0/6",
     [] { RUN(plain_read_of_atomic, 1, 32, device_floats(2, true)); }},
    {"barrier_as_grid_barrier", "race", "checker", "", "barrier_as_grid_barrier", "1/0",
     [] { RUN(barrier_as_grid_barrier, 2, 1, device_floats(4, true)); }},
    {"shared_not_written", "uninitialised", "checker", "", "shared_not_written", "0/0",
     [] { RUN(shared_not_written, 1, 64, device_floats(64, true)); }},
    {"device_not_written", "uninitialised", "checker", "", "read_all", "0/0",
     [] { RUN(read_all, 1, 1, device_floats(1, true), device_floats(8, false), 8); }},
    {"device_read_behind", "out-of-bounds", "checker", "", "read_all", "0/0",
     [] { RUN(read_all, 1, 1, device_floats(1, true), device_floats(8, true), 9); }},
    {"device_read_behind_asan", "AddressSanitizer", "asan", "", "read_all", "0/0",
     [] { RUN(read_all, 1, 1, device_floats(1, true), device_floats(8, true), 9); }},
    {"device_write_before", "out-of-bounds", "checker", "", "write_at", "0/0",
     [] { RUN(write_at, 1, 1, device_floats(8, true), -1); }},
    {"device_write_behind", "red-zone", "plain", "", "write_at", "",
     [] { RUN(write_at, 1, 1, device_floats(8, true), 8); }}, // @device_write_behind
    {"shared_write_behind", "red-zone", "plain", "", "shared_write_at", "0/15",
     [] { RUN(shared_write_at, 1, 16, device_floats(16, true), 17); }}, // @shared_write_behind
    {"shared_write_behind_ubsan", "index 17 out of bounds", "asan", "", "shared_write_at", "0/0",
     [] { RUN(shared_write_at, 1, 16, device_floats(16, true), 17); }},
    {"shared_write_behind_checker", "out-of-bounds", "checker", "", "shared_write_at", "0/0",
     [] { RUN(shared_write_at, 1, 1, device_floats(16, true), 16); }},
    {"memcpy_behind", "out-of-bounds", "checker", "", "copy_struct", "0/0",
     [] { RUN(copy_struct, 1, 1, device_floats(12, true), 8, (size_t)20); }},
    {"vector_load_misaligned", "misaligned", "checker", "", "vector_load", "0/0",
     [] { RUN(vector_load, 1, 1, device_floats(12, true), 1); }},
    {"vector_load_misaligned_ubsan", "misaligned address", "asan", "", "vector_load", "0/0",
     [] { RUN(vector_load, 1, 1, device_floats(12, true), 1); }},
    {"host_pointer", "foreign-pointer", "checker", "", "read_all", "0/0", [] {
         std::vector<float> host(8, 1.0f);
         RUN(read_all, 1, 1, device_floats(1, true), host.data(), 8);
     }},
    {"big_shared", "shared-size", "plain", "", "big_shared", "0/0",
     [] { RUN(big_shared, 1, 32, device_floats(1, true)); }},
    {"deep_recursion", "stack-overflow", "plain", "", "deep", "0/0",
     [] { RUN(deep, 1, 1, device_floats(1, true), 1000); }},
    {"two_barriers", "divergent-barrier", "plain", "", "two_barriers", "0/32",
     [] { RUN(two_barriers, 1, 64, device_floats(64, true)); }},
    {"return_before_barrier", "divergent-barrier", "plain", "EMU_STRICT=2", "return_before_barrier", "0/3",
     [] { RUN(return_before_barrier, 1, 32, device_floats(32, true)); }},
    {"barrier_against_shuffle", "deadlock", "plain", "", "barrier_against_shuffle", "0/0",
     [] { RUN(barrier_against_shuffle, 1, 32, device_floats(32, true)); }},
    {"shuffle_in_branch", "mixed-collectives", "plain", "", "shuffle_in_branch", "0/20",
     [] { RUN(shuffle_in_branch, 1, 32, device_floats(32, true)); }},
    {"mask_without_me", "wrong-mask", "plain", "", "mask_without_me", "0/16",
     [] { RUN(mask_without_me, 1, 32, device_floats(32, true)); }},
    {"mask_too_wide", "deadlock", "plain", "", "mask_too_wide", "0/0",
     [] { RUN(mask_too_wide, 1, 32, device_floats(32, true)); }},
    {"shuffle_from_outside", "shuffle-source", "plain", "EMU_STRICT=2", "shuffle_from_outside", "0/7",
     [] { RUN(shuffle_from_outside, 1, 32, device_floats(32, true)); }},
    {"shuffle_in_partial_warp", "wrong-mask", "plain", "EMU_STRICT=2", "shuffle_in_partial_warp", "0/32",
     [] { RUN(shuffle_in_partial_warp, 1, 48, device_floats(48, true)); }},
    {"named_barrier_33", "barrier-count", "plain", "", "named_barrier_33", "0/0",
     [] { RUN(named_barrier_33, 1, 64, device_floats(1, true)); }},
    {"named_barrier_two_counts", "barrier-count", "plain", "", "named_barrier_two_counts", "0/32",
     [] { RUN(named_barrier_two_counts, 1, 64, device_floats(1, true)); }},
    {"mma_in_half_a_warp", "wrong-mask", "plain", "", "mma_in_half_a_warp", "0/15",
     [] { RUN(mma_in_half_a_warp, 1, 16, device_floats(16, true)); }},
    {"grid_sync_alone", "grid-sync", "plain", "", "grid_sync_alone", "0/0",
     [] { RUN(grid_sync_alone, 2, 32, device_floats(2, true)); }},
    {"copy_unwaited", "unwaited-copy", "plain", "", "copy_unwaited", "0/0",
     [] { RUN(copy_unwaited, 1, 32, device_floats(128, true)); }},
    {"copy_uncommitted", "unwaited-copy", "plain", "", "copy_uncommitted", "0/0",
     [] { RUN(copy_uncommitted, 1, 32, device_floats(128, true)); }},
    {"copy_read_early", "wrong-result", "plain", "", "", "", [] {
         float *x = device_floats(128, true), host[128];
         RUN(copy_read_early, 1, 32, x);
         GPU_CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
         for (float v : host) expect(v == 1);
     }},
    {"copy_read_early_checker", "uninitialised", "checker", "", "copy_read_early", "0/0",
     [] { RUN(copy_read_early, 1, 32, device_floats(128, true)); }},
    {"copy_without_barrier", "race", "checker", "", "copy_without_barrier", "0/1",
     [] { RUN(copy_without_barrier, 1, 32, device_floats(128, true)); }},
    {"copy_misaligned", "misaligned", "plain", "", "copy_from", "0/0", [] {
         float *x = device_floats(132, true);
         RUN(copy_from, 1, 32, x, x + 1);
     }},
    {"copy_behind", "out-of-bounds", "plain", "", "copy_from", "0/31", [] {
         float *x = device_floats(128, true);
         RUN(copy_from, 1, 32, x, x + 4);
     }},
    {"copy_from_host", "foreign-pointer", "plain", "", "copy_from", "0/0",
     [] { RUN(copy_from, 1, 1, device_floats(4, true), host_memory); }},
    {"ldmatrix_misaligned", "misaligned", "plain", "", "ldmatrix_at", "0/31",
     [] { RUN(ldmatrix_at, 1, 32, device_floats(32, true), 1); }},
    {"ldmatrix_behind", "out-of-bounds", "plain", "", "ldmatrix_at", "0/31",
     [] { RUN(ldmatrix_at, 1, 32, device_floats(32, true), 144); }},
    {"spin_on_a_later_block", "timeout", "plain", "EMU_TIMEOUT=1", "spin_with_atomics", "0/0",
     [] { RUN(spin_with_atomics, 2, 1, device_floats(1, true)); }},
    {"spin_without_a_wait", "timeout", "plain", "EMU_TIMEOUT=1", "spin_alone", "0/0",
     [] { RUN(spin_alone, 1, 1, device_floats(1, true)); }},
    {"barriers_without_end", "timeout", "plain", "EMU_TIMEOUT=1", "wait_for_ever", "0/",
     [] { RUN(wait_for_ever, 1, 32, device_floats(1, true)); }},
    {"null_pointer", "signal", "plain", "", "write_at", "0/0",
     [] { RUN(write_at, 1, 1, (float *)nullptr, 0); }},
    {"null_pointer_checker", "foreign-pointer", "checker", "", "write_at", "0/0",
     [] { RUN(write_at, 1, 1, (float *)nullptr, 0); }},
    {"division_by_zero", "signal", "plain", "", "divide", "0/5",
     [] { RUN(divide, 1, 8, (int *)device_floats(8, true), 5); }},
    {"shuffle_by_the_host", "host", "plain", "", "", "",
     [] { __shfl_sync(~0u, 1, 0); }}, // @shuffle_by_the_host
};

BUGS_MAIN(BUGS)
