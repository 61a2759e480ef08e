#include "check.cuh"

GPU_TEST(one_tile, 1, "one tile: (16, 16) times (16, 16)") { check(16, 16, 16, 0); }
GPU_TEST(deep, 1, "several tiles of k: (16, 64) times (64, 16)") { check(16, 16, 64, 0); }
GPU_TEST(wide, 1, "several tiles of rows and columns: (32, 16) times (16, 96)") { check(32, 96, 16, 0); }
GPU_TEST(odd, 2, "sizes that no tile divides: (19, 21) times (21, 37)") { check(19, 37, 21, 0); }
GPU_TEST(loads, 2, "a and b are read through shared memory: (64, 64) times (64, 64)")
{
    check(64, 64, 64, 2 * 64 * 64 * 64 / 8);
}
