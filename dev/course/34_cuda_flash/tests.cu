#include "check.cuh"

GPU_TEST(small, 3, "one head, 16 queries, D of 32")
{
    check("random numbers", random_floats(16 * 32, 1), random_floats(16 * 32, 2), 1, 16, 32, 0);
}

GPU_TEST(tiles, 3, "many keys: scores that grow, that fall, and at random")
{
    check("scores that grow from key to key (with each larger maximum, what was summed must shrink by exp(old - new): "
          "the sum of weights and the sum of values)", ones(40, 32), growing(40, 32, 0.25), 1, 40, 32, 0);
    check("scores that fall from key to key", ones(40, 32), growing(40, 32, -0.25), 1, 40, 32, 0);
    check("random numbers", random_floats(40 * 32, 3), random_floats(40 * 32, 4), 1, 40, 32, 0);
}

GPU_TEST(heads, 2, "two heads, D of 64, T of 35")
{
    check("random numbers", random_floats(2 * 35 * 64, 5), random_floats(2 * 35 * 64, 6), 2, 35, 64, 0);
}

GPU_TEST(large, 2, "scores up to 300")
{
    check("scores up to 300", ones(40, 64), growing(40, 64, 7.5), 1, 40, 64, 0);
}

GPU_TEST(loads, 3, "keys and values are read through shared memory: T of 48, D of 32")
{
    const int n = 48 * 32;
    check("random numbers", random_floats(n, 7), random_floats(n, 8), 1, 48, 32, 48 * n / 4 + n);
}

GPU_TEST(tensor_tile, 2, "bf16: one head, 16 queries, 16 keys")
{
    check_tensor("random numbers", random_floats(256, 13), random_floats(256, 14), 1, 16);
}

GPU_TEST(tensor_tiles, 1, "bf16: many keys, scores that grow and fall")
{
    check_tensor("scores that grow from key to key (with each larger maximum, both sums must shrink by exp(old - new))",
                 ones(48, 16), growing(48, 16, 0.25), 1, 48);
    check_tensor("scores that fall from key to key", ones(48, 16), growing(48, 16, -0.25), 1, 48);
    check_tensor("random numbers", random_floats(2 * 48 * 16, 15), random_floats(2 * 48 * 16, 16), 2, 48);
}
