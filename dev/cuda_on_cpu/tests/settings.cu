// settings: what the EMU_ settings change, in the form of bugs.h: the same program under one setting and another.
#include "bugs.h"

// ---- EMU_STRICT
__global__ void two_barriers(float *x) // allowed by no manual, and harmless on most GPUs
{
    if (threadIdx.x < 32) __syncthreads();
    else __syncthreads(); // @two_barriers
    x[threadIdx.x] = 1;
}
__global__ void early_return(float *x)
{
    if (threadIdx.x == 3) return;
    __syncthreads(); // @early_return
    x[threadIdx.x] = 1;
}

// ---- EMU_RESIDENT, EMU_ORDER, EMU_SEED: who runs when
static int ticks, began = -1, order_of[64];
__global__ void tick_kernel()
{
    if (blockIdx.x == 1 && began < 0) began = ticks;
    __syncthreads();
    ticks++;
    __syncthreads();
}
static int begin_of_block_1() // how often block 0 has ticked by then
{
    LAUNCH(tick_kernel, 2, 32, 0, nullptr);
    GPU_CHECK(cudaDeviceSynchronize());
    return began;
}
__global__ void order_kernel()
{
    order_of[threadIdx.x] = ticks++;
}
static unsigned order_checksum()
{
    ticks = 0;
    LAUNCH(order_kernel, 1, 64, 0, nullptr);
    GPU_CHECK(cudaDeviceSynchronize());
    unsigned sum = 0;
    for (int v : order_of) sum = sum * 31 + (unsigned)v;
    return sum;
}

// ---- EMU_MMA64: 2^24 + 16 ones. In fp32 each is lost by itself, in double their sum is not.
__global__ void ones_kernel(float *x)
{
    uint32_t a[4], b[2];
    float d[4];
    for (uint32_t &v : a) v = 0x3f803f80u; // two ones
    for (uint32_t &v : b) v = 0x3f803f80u;
    for (float &v : d) v = 16777216.0f;
    mma_m16n8k16_bf16(d, a, b, d);
    x[threadIdx.x] = d[3];
}
static void print_ones()
{
    float *x = device_floats(32, false), host[32];
    RUN(ones_kernel, 1, 32, x);
    GPU_CHECK(cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost));
    printf("%.0f\n", (double)host[31]);
}

// ---- EMU_PROF, EMU_STACK, EMU_MEMORY, EMU_TIMEOUT
__global__ void wait_kernel(float *x)
{
    for (int i = 0; i < 3; i++) __syncthreads();
    x[threadIdx.x] = 1;
}
__global__ void deep_kernel(float *x)
{ // @deep_kernel
    volatile float room[10000];
    room[threadIdx.x] = x[0];
    x[0] = room[threadIdx.x];
}
static void allocate(size_t mib)
{
    void *p;
    GPU_CHECK(cudaMalloc(&p, mib << 20)); // @memory_small
}

static const Bug CASES[] = {
    {"strict_0_parted", "nothing", "plain", "EMU_STRICT=0", "", "",
     [] { RUN(two_barriers, 1, 64, device_floats(64, true)); }},
    {"strict_1_parted", "divergent-barrier", "plain", "EMU_STRICT=1", "two_barriers", "0/32",
     [] { RUN(two_barriers, 1, 64, device_floats(64, true)); }},
    {"strict_1_returned", "nothing", "plain", "", "", "",
     [] { RUN(early_return, 1, 64, device_floats(64, true)); }},
    {"strict_2_returned", "divergent-barrier", "plain", "EMU_STRICT=2", "early_return", "0/3",
     [] { RUN(early_return, 1, 64, device_floats(64, true)); }},
    {"resident_1", "nothing", "plain", "EMU_RESIDENT=1", "", "", [] { expect(begin_of_block_1() == 32); }},
    {"resident_2", "nothing", "plain", "EMU_RESIDENT=2", "", "", [] { expect(begin_of_block_1() < 32); }},
    {"inorder", "nothing", "plain", "", "", "",
     [] { order_checksum(), expect(order_of[0] == 0 && order_of[63] == 63); }},
    {"reverse", "nothing", "plain", "EMU_ORDER=reverse", "", "",
     [] { order_checksum(), expect(order_of[0] == 63 && order_of[63] == 0); }},
    {"seed_7", "prints ^343282126$", "plain", "EMU_ORDER=random EMU_SEED=7", "", "",
     [] { printf("%u\n", order_checksum()); }},
    {"mma_in_fp32", "prints ^16777216$", "plain", "", "", "", print_ones},
    {"mma_in_double", "prints ^16777232$", "plain", "EMU_MMA64=1", "", "", print_ones},
    {"prof", "prints ^wait_kernel +2 +128 +378", "plain", "EMU_PROF=1", "", "", [] {
         float *x = device_floats(64, true);
         for (int i = 0; i < 2; i++) RUN(wait_kernel, 1, 64, x);
     }},
    {"stack_default", "nothing", "plain", "", "", "", [] { RUN(deep_kernel, 1, 1, device_floats(1, true)); }},
    {"stack_small", "stack-overflow", "plain", "EMU_STACK=16384", "deep_kernel", "0/0",
     [] { RUN(deep_kernel, 1, 1, device_floats(1, true)); }},
    {"memory_enough", "nothing", "plain", "EMU_MEMORY=64", "", "", [] { allocate(60); }},
    {"memory_small", "cudaErrorMemoryAllocation", "plain", "EMU_MEMORY=32", "", "", [] { allocate(60); }},
    {"no_timeout", "nothing", "plain", "EMU_TIMEOUT=30", "", "",
     [] { RUN(wait_kernel, 1, 64, device_floats(64, true)); }},
    {"seed_not_a_number", "error: EMU_SEED=x: a number", "plain", "EMU_SEED=x", "", "",
     [] { RUN(wait_kernel, 1, 1, device_floats(1, true)); }},
    {"unknown_order", "error: EMU_ORDER=up: one of inorder reverse random", "plain", "EMU_ORDER=up", "", "",
     [] { RUN(wait_kernel, 1, 1, device_floats(1, true)); }},
};

BUGS_MAIN(CASES)
