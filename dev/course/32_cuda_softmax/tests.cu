#include "check.cuh"

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
