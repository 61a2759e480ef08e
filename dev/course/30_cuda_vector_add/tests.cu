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
