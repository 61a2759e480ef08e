#include "../grade.h"

#include "clipping.h"

#include <math.h>

TEST(norm_of_one, 1, "the norm of one tensor")
{
    float a[2] = {3, 4}, *grads[1] = {a};
    size_t n[1] = {2};
    double got = clip_by_global_norm(grads, n, 1, 0), square = 25, sum = 7;
    expect_number("the norm of (3, 4)", got, 5, 1e-6,
                  (Mistake[]){{&square, "the square root is missing"}, {&sum, "the sum of the elements, not of their squares"}}, 2);
}

TEST(norm_of_all, 2, "the norm is of all tensors together")
{
    float a[1] = {2}, b[3] = {1, 4, 2}, *grads[2] = {a, b};
    size_t n[2] = {1, 3};
    double got = clip_by_global_norm(grads, n, 2, 0), sum = 2 + sqrt(21), last = sqrt(21);
    expect_number("the norm of (2) and (1, 4, 2) together", got, 5, 1e-6,
                  (Mistake[]){{&sum, "the norms of the tensors were added, not the squares"},
                              {&last, "only the last tensor was counted"}}, 2);
}

TEST(clipped, 2, "a long gradient is scaled to the length of clip")
{
    float a[2] = {3, 0}, b[1] = {4}, *grads[2] = {a, b};
    size_t n[2] = {2, 1};
    double each[2] = {1, 0}, other[2] = {3 / 5.0 / 5, 0}, inverse[2] = {15, 0}, same[2] = {3, 0};
    clip_by_global_norm(grads, n, 2, 1);
    expect_array("the first tensor, (3, 0) of (3, 0) and (4), with clip 1", a, (double[]){0.6, 0}, 1, 2, 1e-6,
                 (Mistake[]){{each, "each tensor was clipped by its own norm"},
                             {other, "divided by the norm twice"},
                             {inverse, "multiplied by norm / clip"},
                             {same, "nothing was scaled"}}, 4);
    expect_array("the second tensor", b, (double[]){0.8}, 1, 1, 1e-6, NULL, 0);
}

TEST(short_one, 2, "a short gradient is left alone")
{
    float a[2] = {0.3f, 0.4f}, *grads[1] = {a};
    size_t n[1] = {2};
    expect_number("the norm of (0.3, 0.4) with clip 1", clip_by_global_norm(grads, n, 1, 1), 0.5, 1e-6, NULL, 0);
    expect_array("(0.3, 0.4) with clip 1", a, (double[]){0.3, 0.4}, 1, 2, 1e-6,
                 (Mistake[]){{(double[]){0.6, 0.8}, "scaled up to the length of clip; clipping only ever shortens"}}, 1);
}

#include "../hidden.h"

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
