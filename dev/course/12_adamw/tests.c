#include "../grade.h"

#include "adamw.h"

#include <math.h>

TEST(first_step, 1, "the first step moves each weight by lr")
{
    float w[3] = {1, 1, 0}, m[3] = {0}, v[3] = {0}, g[3] = {2, -0.5f, 100};
    adamw_step(w, m, v, g, 3, 1, (AdamW){0.1, 0.9, 0.999, 1e-8, 0});
    double k = 0.1 / sqrt(0.001), c = 0.1 * sqrt(0.001), b = sqrt(0.001);
    expect(isfinite(w[0]), "the first weight is %g after step 1: was 1 - beta^step taken with step 0?", (double)w[0]);
    double want[3] = {0.9, 1.1, -0.1};
    expect_array("the weights (1, 1, 0) after gradients (2, -0.5, 100), lr 0.1", w, want, 1, 3, 1e-5,
                 (Mistake[]){{(double[]){1.1, 0.9, 0.1}, "the step goes uphill"},
                             {(double[]){1 - 0.1 * k, 1 + 0.1 * k, -0.1 * k}, "the bias correction is missing"},
                             {(double[]){1 - 0.01, 1 + 0.01, -0.01}, "m is not corrected, v is"},
                             {(double[]){1 - 0.1 / b, 1 + 0.1 / b, -0.1 / b}, "v is not corrected, m is"},
                             {(double[]){0.95, 1.2, -0.001}, "divided by vhat, not by its root"},
                             {(double[]){0.8, 1.05, -10}, "plain gradient descent: not divided by the gradient's size"},
                             {(double[]){1 - c, 1 + c, -c}, "g^2 is not multiplied by 1 - beta2"},
                             {(double[]){1 - 0.002 / (0.002 + 1e-8), 1 + 5e-4 / (5e-4 + 1e-8), -1},
                              "the corrections are multiplied, not divided"}}, 8);
}

TEST(moments, 2, "m and v after two steps")
{
    float w[1] = {0}, m[1] = {0}, v[1] = {0};
    AdamW a = {0.1, 0.5, 0.75, 1e-8, 0};
    adamw_step(w, m, v, (float[]){1}, 1, 1, a);
    adamw_step(w, m, v, (float[]){3}, 1, 2, a);
    double swap = 0.9375, stored = (0.5 * 1 + 1.5) / 0.75, sum = 3.5;
    expect_number("m after gradients 1 and 3, beta1 0.5", m[0], 1.75, 1e-6,
                  (Mistake[]){{&swap, "the betas of m and v are exchanged"},
                              {&stored, "the corrected mean was stored; m itself is kept"},
                              {&sum, "g is not multiplied by 1 - beta1"}}, 3);
    double of_g = 0.1875 + 0.75, swapped = 0.25 + 4.5, kept = (0.75 + 2.25) / 0.4375, whole = 0.75 + 9;
    expect_number("v after gradients 1 and 3, beta2 0.75", v[0], 2.4375, 1e-6,
                  (Mistake[]){{&of_g, "the mean of g, not of its square"},
                              {&swapped, "the betas of m and v are exchanged"},
                              {&kept, "the corrected mean was stored; v itself is kept"},
                              {&whole, "g^2 is not multiplied by 1 - beta2"}}, 4);
}

TEST(second_step, 1, "the weight after two steps")
{
    float w[1] = {0}, m[1] = {0}, v[1] = {0};
    AdamW a = {0.1, 0.5, 0.75, 1e-8, 0};
    adamw_step(w, m, v, (float[]){1}, 1, 1, a);
    adamw_step(w, m, v, (float[]){3}, 1, 2, a);
    double want = -0.1 - 0.1 * (1.75 / 0.75) / sqrt(2.4375 / 0.4375);
    double always = -0.1 - 0.1 * (1.75 / 0.5) / sqrt(2.4375 / 0.25), none = -0.1 - 0.1 * 1.75 / sqrt(2.4375);
    double times = -0.1 - 0.1 * 1.75 / sqrt(2.4375 / 0.5);
    expect_number("the weight after gradients 1 and 3", w[0], want, 1e-6,
                  (Mistake[]){{&always, "the correction of step 1 at step 2: it must use beta^step"},
                              {&none, "no bias correction at step 2"},
                              {&times, "1 - beta step in place of 1 - beta^step"}}, 3);
}

TEST(decay, 2, "the decay acts on the weight alone")
{
    float w[2] = {2, -4}, m[2] = {0}, v[2] = {0}, g[2] = {0};
    adamw_step(w, m, v, g, 2, 1, (AdamW){0.1, 0.9, 0.999, 1e-8, 0.5});
    expect(isfinite(w[0]), "the weight 2 is %g after a gradient of 0: 0 / 0, without eps in the denominator",
           (double)w[0]);
    expect_array("the weights (2, -4) after a gradient of 0, lr 0.1, decay 0.5", w, (double[]){1.9, -3.8}, 1, 2, 1e-6,
                 (Mistake[]){{(double[]){1.9, -3.9}, "L2: the decay was added to the gradient, and Adam divided it"},
                             {(double[]){1, -2}, "the decay is not multiplied by lr"},
                             {(double[]){2.1, -4.2}, "the decay makes weights larger"},
                             {(double[]){2, -4}, "there is no decay"}}, 4);
    expect_array("m after a gradient of 0", m, (double[]){0, 0}, 1, 2, 0,
                 (Mistake[]){{(double[]){0.1, -0.2}, "the decay was added to the gradient"}}, 1);
}

#include "../hidden.h"

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
