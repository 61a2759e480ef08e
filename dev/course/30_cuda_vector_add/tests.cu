#include "dev/course/grade_gpu.cuh"
#include "vector_add.h"

static void launched(int n, int blocks, int threads)
{
    float *a = random_floats((size_t)n, 1), *b = random_floats((size_t)n, 2);
    double want[1000], product[1000];
    for (int i = 0; i < n; i++) want[i] = (double)a[i] + b[i], product[i] = (double)a[i] * b[i];
    float *gpu = gpu_untouched((size_t)n);
    LAUNCH(vector_add_kernel, blocks, threads, 0, nullptr, gpu, gpu_floats(a, (size_t)n), gpu_floats(b, (size_t)n), n);
    float *got = gpu_fetch(gpu, (size_t)n);
    char what[100];
    snprintf(what, sizeof what, "n = %d with %d blocks of %d threads", n, blocks, threads);
    expect_all_written(what, got, (size_t)n, n > blocks * threads
                       ? "more elements than threads: a thread must go on, by the number of threads of the grid"
                       : "each thread has to find its own element from blockIdx, blockDim and threadIdx");
    Mistake mistake = {product, "the product, not the sum"};
    expect_array(what, got, want, 1, (size_t)n, 1e-6, &mistake, 1);
}

GPU_TEST(one_block, 1, "as many elements as the threads of one block") { launched(64, 1, 64); }
GPU_TEST(blocks, 1, "as many elements as the threads of four blocks") { launched(128, 4, 32); }
GPU_TEST(last_block, 2, "the last block has fewer elements than threads") { launched(100, 2, 64); }
GPU_TEST(stride, 2, "more elements than threads") { launched(1000, 3, 32); }

GPU_TEST(from_host, 1, "the launch: 1000 numbers of the host's memory")
{
    float *a = random_floats(1000, 3), *b = random_floats(1000, 4), *got = equal_floats(1000, GPU_UNTOUCHED);
    double want[1000];
    for (int i = 0; i < 1000; i++) want[i] = (double)a[i] + b[i];
    vector_add(got, a, b, 1000);
    expect_all_written("1000 numbers", got, 1000,
                       "n floats are n * sizeof(float) bytes, and the last block may be partly empty");
    expect_array("1000 numbers", got, want, 1, 1000, 1e-6, nullptr, 0);
}

#include "../hidden.h"

GPU_TEST(odd_shapes, 2, "strange shapes: one thread, 37 threads a block, more threads than elements, n = 0")
{
    static const int shapes[][3] = {{5, 1, 1}, {1, 4, 64}, {333, 2, 37}, {37, 5, 1}, {0, 2, 32}};
    for (auto &s : shapes) {
        size_t n = (size_t)s[0];
        float *a = random_floats(n, n), *b = random_floats(n, n + 1), *gpu = gpu_untouched(n);
        double want[333];
        for (size_t i = 0; i < n; i++) want[i] = (double)a[i] + b[i];
        LAUNCH(vector_add_kernel, s[1], s[2], 0, nullptr, gpu, gpu_floats(a, n), gpu_floats(b, n), s[0]);
        char what[100];
        snprintf(what, sizeof what, "n = %d with %d blocks of %d threads", s[0], s[1], s[2]);
        expect_array(what, gpu_fetch(gpu, n), want, 1, n, 1e-6, nullptr, 0);
    }
}

GPU_TEST(clean, 1, "the launch: n of 1 and 0, and the memory is released")
{
    size_t before, after, all;
    float one = 1, two = 2, got = 0;
    vector_add(&got, &one, &two, 1);
    expect(got == 3, "n = 1: expected 3, got %g", (double)got);
    vector_add(nullptr, nullptr, nullptr, 0);
    float *a = random_floats(70000, 3), *b = random_floats(70000, 4);
    GPU_CHECK(cudaMemGetInfo(&before, &all));
    vector_add(a, a, b, 70000);
    GPU_CHECK(cudaMemGetInfo(&after, &all));
    expect(before == after, "the GPU has %zu bytes less after vector_add: is each cudaMalloc followed by a cudaFree?",
           before - after);
}
