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
