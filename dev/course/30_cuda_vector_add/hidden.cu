#define GRADE_HIDDEN
#include "dev/course/grade_gpu.cuh"
#include "vector_add.h"

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
