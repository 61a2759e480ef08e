// bench: nanoseconds of one wait, the price of everything here: `EMU_PROF=1` shows how many a kernel has.
#include "base/gpu.h"

#include <chrono>

__global__ void waits(int n)
{
    for (int i = 0; i < n; i++) __syncthreads();
}
__global__ void shuffles(int *x, int n)
{
    int v = (int)threadIdx.x;
    for (int i = 0; i < n; i++) v = __shfl_xor_sync(0xffffffffu, v, 1);
    x[0] = v;
}
__global__ void calls(int *x)
{
    x[0] = (int)threadIdx.x;
}

template <class F> static double best_of_5(F f)
{
    double best = 1e30;
    for (int i = 0; i < 5; i++) {
        auto begin = std::chrono::steady_clock::now();
        f();
        double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (s < best) best = s;
    }
    return best;
}

int main()
{
    const int n = 500, blocks = 200;
    int *x;
    GPU_CHECK(cudaMalloc(&x, 4));
    double waiting = best_of_5([&] { LAUNCH(waits, 1, 256, 0, nullptr, n); });
    double shuffling = best_of_5([&] { LAUNCH(shuffles, 1, 256, 0, nullptr, x, n); });
    double calling = best_of_5([&] { LAUNCH(calls, blocks, 256, 0, nullptr, x); });
    double unit = 1e9 / 256;
    printf("%.1f ns per wait at a barrier, %.1f ns at a shuffle (the aim: at most 50)\n", waiting * unit / n,
           shuffling * unit / n);
    printf("%.1f ns per thread that never waits\n", calling * unit / blocks);
    GPU_CHECK(cudaFree(x));
    return 0;
}
