#include "dev/course/grade_gpu.cuh"
#include "matmul.h"

#ifdef __CUDACC__
static unsigned long long matrix_loads; // nothing is counted there
#endif

// Compares with the product in double, and knows what common mistakes would give. max_loads 0: not judged.
static void check(int m, int n, int k, unsigned long long max_loads)
{
    size_t rows = (size_t)m, cols = (size_t)n, deep = (size_t)k;
    static double want[10000], last[10000], first[10000], cut[10000], b_across[10000];
    float *a = random_floats(rows * deep, 1), *b = random_floats(deep * cols, 2);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            size_t at = r * cols + c;
            want[at] = last[at] = first[at] = cut[at] = b_across[at] = 0;
            for (size_t i = 0; i < deep; i++) {
                double p = (double)a[r * deep + i] * b[i * cols + c];
                want[at] += p;
                if (i < 16) first[at] += p;
                if (i / 16 == (deep - 1) / 16) last[at] += p;
                if (i < deep / 16 * 16) cut[at] += p;
                b_across[at] += (double)a[r * deep + i] * b[c * deep + i]; // b as (n, k)
            }
        }
    float *gpu = gpu_untouched(rows * cols);
    matrix_loads = 0;
    matmul(gpu, Matrix(gpu_floats(a, rows * deep)), Matrix(gpu_floats(b, deep * cols)), m, n, k);
    float *got = gpu_fetch(gpu, rows * cols);
    char what[100];
    snprintf(what, sizeof what, "(%d, %d) times (%d, %d)", m, k, k, n);
    expect_all_written(what, got, rows * cols, "the number of tiles has to be rounded up, of rows and of columns");
    Mistake mistakes[] = {{last, "only the last tiles of k were multiplied: the sum was not kept from tile to tile"},
                          {first, "only the first tiles of k were multiplied"},
                          {cut, "the last, partly filled tile of k was left out"},
                          {b_across, "b was read as (n, k), which is its transpose; it is (k, n)"}};
    expect_array(what, got, want, rows, cols, 1e-6 * (k + 1), mistakes, 4);
    expect(!max_loads || matrix_loads <= max_loads,
           "%s: %llu elements of a and b were read, at most %llu were expected: one thread must not read whole rows "
           "and columns; what a block has read into shared memory serves all its threads",
           what, matrix_loads, max_loads);
}

GPU_TEST(one_tile, 1, "one tile: (16, 16) times (16, 16)") { check(16, 16, 16, 0); }
GPU_TEST(deep, 1, "several tiles of k: (16, 64) times (64, 16)") { check(16, 16, 64, 0); }
GPU_TEST(wide, 1, "several tiles of rows and columns: (32, 16) times (16, 96)") { check(32, 96, 16, 0); }
GPU_TEST(odd, 2, "sizes that no tile divides: (19, 21) times (21, 37)") { check(19, 37, 21, 0); }
GPU_TEST(loads, 2, "a and b are read through shared memory: (64, 64) times (64, 64)")
{
    check(64, 64, 64, 2 * 64 * 64 * 64 / 8);
}

#include "../hidden.h"

GPU_TEST(thin, 1, "vectors: m, n or k of 1")
{
    check(1, 1, 1, 0);
    check(1, 40, 70, 0);
    check(50, 1, 3, 0);
    check(33, 34, 1, 0);
}

GPU_TEST(other_sizes, 1, "other sizes: (65, 47) times (47, 33) and (15, 100) times (100, 17)")
{
    check(65, 33, 47, 0);
    check(15, 17, 100, 0);
}

GPU_TEST(other_loads, 1, "a and b are read through shared memory: (32, 48) times (48, 96)")
{
    check(32, 96, 48, 2 * 32 * 96 * 48 / 8);
}
