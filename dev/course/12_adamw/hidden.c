#define GRADE_HIDDEN
#include "../grade.h"

#include "adamw.h"

#include <math.h>

enum { N = 37, STEPS = 200 };

// One weight through all steps, in double.
static double follow(double w, const float *grad, AdamW a, int steps)
{
    double m = 0, v = 0, b1 = 1, b2 = 1;
    for (int t = 0; t < steps; t++, grad += N) {
        b1 *= a.beta1, b2 *= a.beta2;
        m += (1 - a.beta1) * (*grad - m), v += (1 - a.beta2) * (*grad * *grad - v);
        w = w * (1 - a.lr * a.weight_decay) - a.lr * m / (1 - b1) / (sqrt(v / (1 - b2)) + a.eps);
    }
    return w;
}

TEST(many_steps, 2, "200 steps with decay, against the same in double")
{
    AdamW a = {0.02, 0.9, 0.95, 1e-8, 0.1};
    float *w = random_floats(N, 1), *g = random_floats((size_t)N * STEPS, 2);
    float *m = equal_floats(N, 0), *v = equal_floats(N, 0);
    double want[N];
    for (int i = 0; i < N; i++) want[i] = follow(w[i], g + i, a, STEPS);
    for (int t = 0; t < STEPS; t++) adamw_step(w, m, v, g + (size_t)t * N, N, t + 1, a);
    // 200 steps add errors of a few 2^-24 of the weight (about 1) and of lr each.
    expect_array("the weights after 200 steps", w, want, 1, N, 4e-5, NULL, 0);
}

TEST(small, 1, "a gradient as small as eps")
{
    float w[1] = {0}, m[1] = {0}, v[1] = {0}, g[1] = {1e-8f};
    adamw_step(w, m, v, g, 1, 1, (AdamW){1, 0.9, 0.999, 1e-8, 0});
    double inside = -1e-4, none = -1, early = -1 / (1 + 1 / sqrt(0.001));
    expect_number("the weight 0 after a gradient of eps = 1e-8, lr 1", w[0], -0.5, 1e-3,
                  (Mistake[]){{&inside, "eps stands inside of the root"},
                              {&none, "eps is missing"},
                              {&early, "eps was added to sqrt(v) before the bias correction"}}, 3);
}

TEST(decay_of_the_old, 1, "gradient and decay together use the old weight; tensors are updated in turn")
{
    float w[2] = {1, 3}, m[2] = {0}, v[2] = {0}, g[1] = {1};
    AdamW a = {0.1, 0.9, 0.999, 1e-8, 0.5};
    for (int t = 1; t <= 2; t++)
        for (int i = 0; i < 2; i++) adamw_step(w + i, m + i, v + i, g, 1, t, a);
    // With a gradient of 1 at every step mhat and vhat are 1.
    double want[2] = {(1 * 0.95 - 0.1) * 0.95 - 0.1, (3 * 0.95 - 0.1) * 0.95 - 0.1};
    double late[2] = {((1 - 0.1) * 0.95 - 0.1) * 0.95, ((3 - 0.1) * 0.95 - 0.1) * 0.95};
    expect_array("two tensors of one weight, 1 and 3, after 2 steps", w, want, 1, 2, 1e-5,
                 (Mistake[]){{late, "the decay was taken of the new weight"}}, 1);
}
