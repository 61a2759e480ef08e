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

GPU_TEST(tensor_sizes, 1, "bf16: T of 1, 7 and 33")
{
    for (int T : {1, 7, 33}) {
        size_t n = (size_t)(2 * T * 16);
        check_tensor("random numbers", random_floats(n, 17), random_floats(n, 18), 2, T);
    }
}

GPU_TEST(tensor_large, 1, "bf16: large scores")
{
    float *q = random_floats(48 * 16, 19), *k = random_floats(48 * 16, 20);
    for (int i = 0; i < 48 * 16; i++) q[i] *= 8, k[i] *= 8; // scores up to 16 * 8 * 8 / 4
    check_tensor("large scores (they stay fp32: only the weights are rounded)", q, k, 1, 48);
}
