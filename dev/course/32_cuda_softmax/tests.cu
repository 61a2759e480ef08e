#include "dev/course/grade_gpu.cuh"
#include "softmax.h"

// in_place: out is x. Compares with sums in double; knows what common mistakes would give.
static void check(const char *what, const float *x, int rows, int cols, int blocks, int threads, bool with_lse,
                         bool in_place = false)
{
    size_t n = (size_t)rows * (size_t)cols, count = (size_t)rows;
    static double want[4096], whole[4096], not_divided[4096], first_warp[4096], own_top[4096], lse[64], no_top[64];
    double all = 0;
    for (size_t i = 0; i < n; i++) all += exp((double)x[i]);
    for (int r = 0; r < rows; r++) {
        double top = -INFINITY, sum = 0, part = 0;
        for (int c = 0; c < cols; c++) top = fmax(top, x[r * cols + c]);
        for (int c = 0; c < cols; c++) sum += exp(x[r * cols + c] - top);
        for (int c = 0; c < cols; c++)
            if (c % threads < 32) part += exp(x[r * cols + c] - top);
        for (int i = r * cols; i < (r + 1) * cols; i++) {
            want[i] = exp(x[i] - top) / sum;
            not_divided[i] = exp(x[i] - top), first_warp[i] = exp(x[i] - top) / part;
            whole[i] = exp((double)x[i]) / all;
        }
        double own_sum = 0; // with the largest of a thread's own elements in place of the row's
        for (int c = 0; c < cols; c++) {
            double own = -INFINITY;
            for (int i = c % threads; i < cols; i += threads) own = fmax(own, x[r * cols + i]);
            own_sum += own_top[r * cols + c] = exp(x[r * cols + c] - own);
        }
        for (int i = r * cols; i < (r + 1) * cols; i++) own_top[i] /= own_sum;
        lse[r] = top + log(sum), no_top[r] = log(sum);
    }
    float *gpu_x = gpu_floats(x, n), *gpu = in_place ? gpu_x : gpu_untouched(n), *gpu_lse = gpu_untouched(count);
    LAUNCH(softmax_kernel, blocks, threads, 0, nullptr, gpu, with_lse ? gpu_lse : nullptr, gpu_x, rows, cols);
    float *got = gpu_fetch(gpu, n), *got_lse = gpu_fetch(gpu_lse, count);
    char name[120];
    snprintf(name, sizeof name, "%s: (%d, %d), %d blocks of %d threads", what, rows, cols, blocks, threads);
    expect_all_written(name, got, n, "a row may be longer than a block, and a block does row after row");
    for (size_t i = 0; i < n; i++)
        expect(!std::isnan(got[i]),
               "%s: element %zu is NaN: exp(89) is too large for a float; 0 / 0 and inf - inf are NaN: subtract the "
               "row's own largest element first, whatever it is",
               name, i);
    Mistake mistakes[] = {{not_divided, "not divided by the sum of the row"},
                          {first_warp, "divided by the sum of the first warp's elements alone"},
                          {own_top, "each thread subtracted the largest of its own elements, not the row's"},
                          {whole, "divided by the sum of all rows, not of its own row"}};
    expect_array(name, got, want, count, (size_t)cols, 1e-6 + 1e-7 * cols, mistakes, 4);
    if (!with_lse) return;
    expect_all_written("lse", got_lse, count, "one number a row");
    Mistake without = {no_top, "the largest element, which was subtracted, has to be added again"};
    expect_array("lse", got_lse, lse, 1, count, 1e-5, &without, 1);
}

GPU_TEST(one_warp, 1, "a row of 32 elements, one warp")
{
    check("one row", random_floats(32, 1), 1, 32, 1, 32, false);
}

GPU_TEST(long_rows, 2, "rows longer than the block, several warps")
{
    check("rows longer than the block", random_floats(3 * 300, 2), 3, 300, 3, 64, false);
}

GPU_TEST(short_rows, 1, "rows shorter than a warp, and more rows than blocks")
{
    check("rows of 5", random_floats(7 * 5, 3), 7, 5, 2, 96, false);
}

GPU_TEST(large, 2, "logits near 1000")
{
    float *x = random_floats(2 * 100, 4);
    for (int i = 0; i < 200; i++) x[i] += 1000;
    check("logits near 1000", x, 2, 100, 2, 64, false);
}

GPU_TEST(log_sum, 1, "lse, the logarithm of the sum")
{
    check("rows of 40 with lse", random_floats(4 * 40, 5), 4, 40, 2, 64, true);
}

#include "../hidden.h"

GPU_TEST(very_low, 1, "logits near -1000, and rows of very different size")
{
    float *x = random_floats(3 * 70, 6);
    for (int i = 0; i < 70; i++) x[i] -= 1000, x[140 + i] *= 80;
    check("rows near -1000, 0 and up to 80", x, 3, 70, 1, 32, true);
}

GPU_TEST(masked, 1, "elements of -INFINITY, at the beginning and at the end of a row")
{
    float *x = random_floats(2 * 200, 7);
    for (int i = 0; i < 130; i++) x[i] = x[399 - i] = -INFINITY;
    check("130 of 200 elements are -INFINITY", x, 2, 200, 2, 64, true);
}

GPU_TEST(in_place, 1, "out is x, one block does all rows, the block has more threads than the row elements")
{
    check("in place", random_floats(9 * 333, 8), 9, 333, 1, 512, true, true);
}
