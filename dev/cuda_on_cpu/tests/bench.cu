// bench: nanoseconds of one wait, the price of everything here: `EMU_PROF=1` shows how many a kernel has.
#include "gpu.h"

#include <chrono>

__global__ void waits(int n)
{
    for (int i = 0; i < n; i++) __syncthreads();
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
    double calling = best_of_5([&] { LAUNCH(calls, blocks, 256, 0, nullptr, x); });
    printf("%.1f ns per wait, %.1f ns per thread that never waits\n", waiting * 1e9 / (n * 256), calling * 1e9 / (blocks * 256));
    GPU_CHECK(cudaFree(x));
    return 0;
}
