#define GRADE_HIDDEN
#include "check.cuh"

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
