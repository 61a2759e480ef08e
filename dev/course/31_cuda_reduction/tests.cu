#include "dev/course/grade_gpu.cuh"
#include "reduction.h"

static void launched(int n, int chunk, int blocks, int threads)
{
    int chunks = (n + chunk - 1) / chunk;
    size_t count = (size_t)chunks;
    float *x = random_floats((size_t)n, (uint64_t)n), *gpu = gpu_untouched(count);
    double want[100] = {}, first_warp[100] = {}, first_element[100] = {}, per_thread[100] = {};
    for (int i = 0; i < n; i++) {
        int c = i / chunk, at = i % chunk;
        want[c] += x[i];
        if (at % threads < 32) first_warp[c] += x[i];
        if (at < threads) per_thread[c] += x[i];
        if (at % threads == 0) first_element[c] += x[i];
    }
    LAUNCH(chunk_sums_kernel, blocks, threads, 0, nullptr, gpu, gpu_floats(x, (size_t)n), n, chunk);
    float *got = gpu_fetch(gpu, count);
    char what[120];
    snprintf(what, sizeof what, "n = %d in chunks of %d, %d blocks of %d threads", n, chunk, blocks, threads);
    expect_all_written(what, got, count, "a block adds chunk after chunk, gridDim.x apart, until there are no more");
    Mistake mistakes[] = {{first_element, "the sum of thread 0 alone: the threads' sums were not added together"},
                          {first_warp, "the sum of the first warp alone"},
                          {per_thread, "each thread took one element; a chunk can be longer than a block"}};
    expect_array(what, got, want, 1, count, chunk * 1e-7 + 1e-6, mistakes, 3);
}

GPU_TEST(one_warp, 1, "one warp, 32 elements") { launched(32, 32, 1, 32); }
GPU_TEST(warps, 1, "several warps add one chunk: 8 of them, and 32")
{
    launched(256, 256, 1, 256);
    launched(1024, 1024, 1, 1024);
}
GPU_TEST(long_chunk, 1, "a chunk is longer than the block") { launched(1000, 1000, 1, 96); }
GPU_TEST(chunks, 2, "a block adds several chunks, one after another; the last one is shorter")
{
    launched(950, 100, 3, 64);
}

GPU_TEST(whole, 1, "sum_on_gpu of 10000 numbers")
{
    float *x = random_floats(10000, 5);
    double want = 0;
    for (int i = 0; i < 10000; i++) want += x[i];
    expect_number("the sum of 10000 numbers", sum_on_gpu(gpu_floats(x, 10000), 10000), want, 1e-4, nullptr, 0);
}
