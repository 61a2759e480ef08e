#define GRADE_HIDDEN
#include "../grade.h"

#include "clipping.h"

TEST(clip_zero, 1, "clip 0 changes nothing and returns the norm")
{
    float a[2] = {3, 4}, *grads[1] = {a};
    size_t n[1] = {2};
    expect_number("the norm", clip_by_global_norm(grads, n, 1, 0), 5, 1e-6, NULL, 0);
    expect_array("(3, 4) with clip 0", a, (double[]){3, 4}, 1, 2, 0,
                 (Mistake[]){{(double[]){0, 0}, "clip 0 means no clipping, not a gradient of zeros"}}, 1);
}

TEST(many, 2, "the norm of 40 million equal elements")
{
    size_t n[1] = {40000000};
    float *grads[1] = {equal_floats(n[0], 0.5f)};
    expect_number("the norm of 40 million elements of 0.5", clip_by_global_norm(grads, n, 1, 0), 3162.277660168, 1e-6,
                  (Mistake[]){{(double[]){2048}, "the squares were added in float, which stops at 2^24 times one of them"}}, 1);
}
