#define GRADE_HIDDEN
#include "../grade.h"

#include "cross_entropy.h"

#include <math.h>

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
