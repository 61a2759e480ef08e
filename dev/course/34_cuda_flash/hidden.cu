#define GRADE_HIDDEN
#include "check.cuh"

GPU_TEST(sizes, 3, "T of 1, 2 and 33")
{
    for (int T : {1, 2, 33}) {
        size_t n = (size_t)(2 * T * 32);
        check("random numbers", random_floats(n, 9), random_floats(n, 10), 2, T, 32, 0);
    }
}

GPU_TEST(low, 2, "scores down to -300")
{
    check("scores down to -300", ones(33, 32), growing(33, 32, -7.5), 1, 33, 32, 0);
}

GPU_TEST(no_room, 2, "without room for a score of every pair: T of 48")
{
    setenv("EMU_MEMORY", "1", 1); // MiB
    check("random numbers", random_floats(48 * 32, 11), random_floats(48 * 32, 12), 1, 48, 32, 0, true);
}
