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

#include "../hidden.h"

GPU_TEST(odd_shapes, 1, "chunks of 1 element, more blocks than chunks, n = 0")
{
    static const int shapes[][4] = {{5, 1, 2, 64}, {70, 40, 5, 32}, {33, 100, 1, 160}, {0, 10, 2, 32}};
    for (auto &s : shapes) {
        int n = s[0], chunk = s[1];
        size_t count = (size_t)((n + chunk - 1) / chunk);
        float *x = random_floats((size_t)n, 9), *gpu = gpu_untouched(count);
        double want[10] = {};
        for (int i = 0; i < n; i++) want[i / chunk] += x[i];
        LAUNCH(chunk_sums_kernel, s[2], s[3], 0, nullptr, gpu, gpu_floats(x, (size_t)n), n, chunk);
        char what[100];
        snprintf(what, sizeof what, "n = %d in chunks of %d, %d blocks of %d threads", n, chunk, s[2], s[3]);
        expect_array(what, gpu_fetch(gpu, count), want, 1, count, 1e-5, nullptr, 0);
    }
}

GPU_TEST(same_bits, 2, "the sums are the same to the bit, whatever the number of blocks")
{
    const int n = 3000, chunk = 750, blocks[] = {1, 4, 3, 2, 1};
    float *x = random_floats(n, 11), *gpu_x = gpu_floats(x, n), *first = nullptr;
    for (int b : blocks) {
        float *gpu = gpu_untouched(4);
        LAUNCH(chunk_sums_kernel, b, 256, 0, nullptr, gpu, gpu_x, n, chunk);
        float *got = gpu_fetch(gpu, 4);
        expect_all_written("the sums of 4 chunks", got, 4, "see the visible tests");
        if (!first) first = got;
        for (int c = 0; c < 4; c++)
            expect(!memcmp(&got[c], &first[c], 4),
                   "chunk %d: %.9g with one number of blocks, %.9g with another: the order of the additions must be "
                   "fixed; atomicAdd of floats adds in the order in which threads arrive",
                   c, (double)first[c], (double)got[c]);
    }
}

GPU_TEST(host, 1, "sum_on_gpu: n of 0 and 1, a million numbers, and the memory is released")
{
    size_t before, after, all;
    float one = 1.5f;
    expect_number("the sum of no numbers", sum_on_gpu(nullptr, 0), 0, 0, nullptr, 0);
    expect_number("the sum of one number", sum_on_gpu(gpu_floats(&one, 1), 1), 1.5, 0, nullptr, 0);
    float *x = gpu_floats(equal_floats(1000000, 0.1f), 1000000);
    GPU_CHECK(cudaMemGetInfo(&before, &all));
    double got = sum_on_gpu(x, 1000000), in_one_go = 100958.34375;
    Mistake mistake = {&in_one_go, "one running sum in float: it loses the small numbers. Add in parts"};
    expect_number("the sum of a million times 0.1f", got, 1e6 * (double)0.1f, 1e-5, &mistake, 1);
    GPU_CHECK(cudaMemGetInfo(&after, &all));
    expect(before == after, "the GPU has %zu bytes less afterwards: is each cudaMalloc followed by a cudaFree?",
           before - after);
}
