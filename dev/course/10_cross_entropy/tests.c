#include "../grade.h"

#include "cross_entropy.h"

#include <math.h>

TEST(uniform, 1, "the loss of equal scores is log V")
{
    float *z = equal_floats(16, 3);
    double sum = 2 * log(8), bits = 3, minus = -log(8), zero = 0;
    expect_number("the loss of two rows of 8 equal scores", cross_entropy(z, (int32_t[]){2, 7}, 2, 8), log(8), 1e-5,
                  (Mistake[]){{&sum, "the sum over the rows, not their mean"},
                              {&bits, "a logarithm to base 2"},
                              {&minus, "the sign is wrong: the loss is -log p"},
                              {&zero, "the loss is not returned"}}, 4);
}

TEST(one_row, 2, "the gradient of one row")
{
    float *z = equal_floats(3, 0);
    z[1] = logf(2), z[2] = logf(5); // p = 1/8, 2/8, 5/8
    double loss = cross_entropy(z, (int32_t[]){1}, 1, 3), natural[3] = {0, log(2), log(5)};
    expect_array("the gradient for p = (1/8, 2/8, 5/8), target 1", z, (double[]){0.125, -0.75, 0.625}, 1, 3, 1e-6,
                 (Mistake[]){{(double[]){0.125, 0.25, 0.625}, "the softmax alone; 1 is missing at the target"},
                             {(double[]){-0.125, 0.75, -0.625}, "the sign is wrong"},
                             {(double[]){0, -0.75, 0}, "only the target's score has a gradient"},
                             {(double[]){1, 1, 5}, "exponentials that were not divided by their sum"},
                             {natural, "the logits are unchanged: the gradient must be written over them"}}, 5);
    double late = log(8) - 0.4, later = log(8) - 0.25;
    expect_number("the loss of that row", loss, log(4), 1e-5,
                  (Mistake[]){{&late, "the target's score was read after exp(z - top) had overwritten it"},
                              {&later, "the target's score was read after its probability had overwritten it"}}, 2);
}

TEST(not_counted, 2, "rows whose target is below 0 are not counted")
{
    float *z = equal_floats(8, 1);
    double by_all = log(2) / 2, loss = cross_entropy(z, (int32_t[]){0, -1, 1, -100}, 4, 2);
    expect_number("the loss of 4 rows of 2 equal scores, of which 2 are counted", loss, log(2), 1e-5,
                  (Mistake[]){{&by_all, "divided by all rows, not by those that are counted"}}, 1);
    double want[8] = {-.25, .25, 0, 0, .25, -.25, 0, 0};
    expect_array("the gradient of the targets 0, -1, 1, -100", z, want, 4, 2, 1e-6,
                 (Mistake[]){{(double[]){-.25, .25, 1, 1, .25, -.25, 1, 1},
                              "rows that are not counted keep their logits"},
                             {(double[]){-.25, .25, .25, .25, .25, -.25, .25, .25},
                              "rows that are not counted have a gradient"},
                             {(double[]){-.125, .125, 0, 0, .125, -.125, 0, 0},
                              "the gradient is divided by all rows, not by those that are counted"},
                             {(double[]){-.5, .5, 0, 0, .5, -.5, 0, 0},
                              "the gradient of the sum; it is not divided by the number of counted rows"}}, 4);
}

TEST(large, 2, "logits of 1000 and of -1000")
{
    float up[2] = {1000, 1000 + logf(3)}, down[2] = {-1000, -1000 + logf(3)};
    double loss = cross_entropy(up, (int32_t[]){0}, 1, 2);
    expect(isfinite(loss) && isfinite(up[0]),
           "(1000, 1001.1): the loss is %g: exp overflows; subtract the row's largest score", loss);
    expect_number("the loss of (1000, 1001.1), target 0", loss, log(4), 1e-3, NULL, 0);
    expect_array("its gradient", up, (double[]){-0.75, 0.75}, 1, 2, 1e-4, NULL, 0);
    loss = cross_entropy(down, (int32_t[]){0}, 1, 2);
    expect(isfinite(loss) && isfinite(down[0]),
           "(-1000, -998.9): the loss is %g: all exponentials are 0; is the largest score sought from 0 on?", loss);
    expect_number("the loss of (-1000, -998.9), target 0", loss, log(4), 1e-3, NULL, 0);
    expect_array("its gradient", down, (double[]){-0.75, 0.75}, 1, 2, 1e-4, NULL, 0);
}

#include "../hidden.h"

enum { N = 7, V = 53 };

// In double, the largest score subtracted nowhere: these scores are small.
static double loss_of(const double *z, const int32_t *target)
{
    double loss = 0, counted = 0;
    for (int n = 0; n < N; n++) {
        double sum = 0;
        if (target[n] < 0) continue;
        for (int v = 0; v < V; v++) sum += exp(z[n * V + v]);
        loss -= log(exp(z[n * V + target[n]]) / sum), counted++;
    }
    return loss / counted;
}

TEST(differences, 1, "a batch of random scores, by finite differences")
{
    int32_t target[N] = {0, V - 1, -1, 17, 17, -7, 30};
    float *z = random_floats(N * V, 10);
    double at[N * V], want[N * V], loss;
    for (int i = 0; i < N * V; i++) at[i] = z[i] = 4 * z[i];
    loss = loss_of(at, target);
    for (int i = 0; i < N * V; i++) {
        double here = at[i], h = 1e-4;
        at[i] = here + h, want[i] = loss_of(at, target);
        at[i] = here - h, want[i] = (want[i] - loss_of(at, target)) / (2 * h);
        at[i] = here;
    }
    expect_number("the loss", cross_entropy(z, target, N, V), loss, 1e-5, NULL, 0);
    expect_array("the gradient", z, want, N, V, 2e-7, NULL, 0);
}

TEST(improbable, 1, "the loss of a target whose probability is 0 in floating point")
{
    float z[3] = {0, -2000, -5};
    double loss = cross_entropy(z, (int32_t[]){1}, 1, 3);
    expect(isfinite(loss), "a target 2000 below the largest score: the loss is %g, expected 2000: the logarithm of a "
           "probability that has become 0", loss);
    expect_number("the loss of a target 2000 below the largest score", loss, 2000 + log(1 + exp(-5)), 1e-6, NULL, 0);
    expect_array("its gradient", z, (double[]){1 / (1 + exp(-5)), -1, 1 / (1 + exp(5))}, 1, 3, 1e-6, NULL, 0);
}

TEST(none_counted, 1, "a batch without a counted row")
{
    float *z = random_floats(6, 11);
    double loss = cross_entropy(z, (int32_t[]){-1, -1}, 2, 3);
    expect(!isnan(loss), "no row is counted: the loss is NaN, expected 0: divided by 0 rows");
    expect_number("the loss when no row is counted", loss, 0, 0, NULL, 0);
    expect_array("the gradient when no row is counted", z, (double[6]){0}, 2, 3, 0, NULL, 0);
}
