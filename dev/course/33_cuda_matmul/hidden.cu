#define GRADE_HIDDEN
#include "check.cuh"

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
