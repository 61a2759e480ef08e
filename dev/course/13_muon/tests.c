#include "../grade.h"

#include "muon.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

// What n steps make of a singular value.
static double muon_polynomial(double s, int n)
{
    for (; n > 0; n--) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * pow(s, 5);
    return s;
}

// k orthonormal vectors of n elements, one after the other (Gram-Schmidt, twice).
static double *muon_directions(size_t k, size_t n, uint64_t seed)
{
    float *random = random_floats(k * n, seed);
    double *q = malloc(k * n * sizeof *q);
    for (size_t i = 0; i < k; i++) {
        double *v = q + i * n, squares = 0;
        for (size_t e = 0; e < n; e++) v[e] = random[i * n + e];
        for (size_t j = 0; j < 2 * i; j++) {
            double along = 0, *other = q + j % i * n;
            for (size_t e = 0; e < n; e++) along += v[e] * other[e];
            for (size_t e = 0; e < n; e++) v[e] -= along * other[e];
        }
        for (size_t e = 0; e < n; e++) squares += v[e] * v[e];
        for (size_t e = 0; e < n; e++) v[e] /= sqrt(squares);
    }
    return q;
}

// The answer's orthogonalize on times * sum of s[i] u_i v_i^T, i below k = min(R, C), judged by singular values.
static void muon_judge(size_t R, size_t C, const double *s, double times, uint64_t seed)
{
    size_t k = R < C ? R : C;
    double *u = muon_directions(k, R, seed), *v = muon_directions(k, C, seed + 1), norm = 0, largest = 0;
    float *x = equal_floats(R * C, 0), *on = equal_floats(k, 0);
    for (size_t i = 0; i < k; i++) norm += s[i] * s[i], largest = fmax(largest, s[i]);
    for (size_t e = 0; e < R * C; e++) {
        double sum = 0;
        for (size_t i = 0; i < k; i++) sum += s[i] * u[i * R + e / C] * v[i * C + e % C];
        x[e] = (float)(times * sum);
    }
    double want[64], four[64], six[64], by_largest[64], newton[64], same[64], none[64] = {0}, elements[64] = {0};
    for (size_t e = 0; e < R * C; e++)
        for (size_t i = 0; i < k; i++)
            elements[i] += u[i * R + e / C] * v[i * C + e % C] * muon_polynomial(x[e] / sqrt(norm) / times, 5);
    orthogonalize(x, R, C);
    double off = 0;
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++) {
            double sum = 0;
            for (size_t e = 0; e < R * C; e++) sum += u[i * R + e / C] * x[e] * v[j * C + e % C];
            if (i == j) on[i] = (float)sum;
            else off = fmax(off, fabs(sum));
        }
    for (size_t i = 0; i < k; i++) {
        double one = s[i] / sqrt(norm);
        want[i] = muon_polynomial(one, 5), four[i] = muon_polynomial(one, 4), six[i] = muon_polynomial(one, 6);
        by_largest[i] = muon_polynomial(s[i] / largest, 5), newton[i] = one, same[i] = times * s[i];
        for (int t = 0; t < 5; t++) newton[i] = 1.5 * newton[i] - 0.5 * pow(newton[i], 3);
    }
    char what[96];
    snprintf(what, sizeof what, "the singular values of the result, (%zu, %zu)", R, C);
    expect_array(what, on, want, 1, k, 2e-3,
                 (Mistake[]){{same, "nothing was changed"},
                             {four, "four steps, not five"},
                             {six, "six steps, not five"},
                             {by_largest, "divided by the largest singular value, not by the norm of all elements"},
                             {newton, "the coefficients 1.5 and -0.5"},
                             {elements, "powers of the elements; A X and A A X are products of matrices"},
                             {none, "zeros: is a product written over an array that it reads?"}}, 7);
    expect(off < 2e-3, "the result, (%zu, %zu), has other directions: U^T O V has %g beside the diagonal", R, C, off);
}

TEST(one_number, 2, "a matrix of one element")
{
    static const float at[3] = {2, -0.5f, 1000};
    for (int i = 0; i < 3; i++) {
        float x[1] = {at[i]};
        orthogonalize(x, 1, 1);
        double sign = at[i] < 0 ? -1 : 1, want = sign * muon_polynomial(1, 5), four = sign * muon_polynomial(1, 4);
        double six = sign * muon_polynomial(1, 6), none = at[i], as_is = muon_polynomial(at[i], 5), away = -want;
        double cubes = sign;
        for (int t = 0; t < 5; t++) cubes = 3.4445 * cubes + (2.0315 - 4.7750) * pow(cubes, 3);
        double squared = sign * muon_polynomial(1 / fabs((double)at[i]), 5), one = sign;
        char what[64];
        snprintf(what, sizeof what, "five steps from %g", (double)at[i]);
        expect_array(what, x, &want, 1, 1, 2e-4,
                     (Mistake[]){{&four, "four steps, not five"},
                                 {&six, "six steps, not five"},
                                 {&none, "nothing was changed"},
                                 {&as_is, "not divided by the norm"},
                                 {&squared, "divided by the sum of squares, not by its root"},
                                 {&one, "exactly 1: these coefficients do not converge to 1"},
                                 {&away, "the sign was lost"},
                                 {&cubes, "the last term is A X again; it must be A A X"}}, 8);
        expect(!isinf(x[0]), "five steps from %g: the result is infinite: not divided by the norm", (double)at[i]);
    }
}

TEST(square, 2, "a square matrix of known singular values")
{
    muon_judge(4, 4, (double[]){1, 0.5, 0.1, 0.02}, 3, 10);
}

TEST(shapes, 1, "wide and tall matrices")
{
    muon_judge(3, 7, (double[]){2, 1, 0.2}, 1, 20);
    muon_judge(8, 3, (double[]){2, 1, 0.2}, 1, 30);
}

TEST(momentum, 1, "the momentum after two updates")
{
    float w[1] = {0}, m[1] = {0};
    muon_step(w, m, (float[]){4}, 1, 1, 0.1f, 0.75f, 0);
    muon_step(w, m, (float[]){8}, 1, 1, 0.1f, 0.75f, 0);
    double sum = 11, ahead = 0.25 * 8 + 0.75 * 2.75, swapped = 0.25 * 3 + 6;
    expect_number("m after gradients 4 and 8, beta 0.75", m[0], 2.75, 1e-6,
                  (Mistake[]){{&sum, "g is not multiplied by 1 - beta"},
                              {&ahead, "the look-ahead was stored; m itself is kept"},
                              {&swapped, "beta and 1 - beta are exchanged"}}, 3);
}

TEST(first_update, 1, "the weight after one update")
{
    float w[4] = {1, 1, 1, 1}, m[4] = {0}, g[4] = {0, 0, 3, 0};
    muon_step(w, m, g, 2, 2, 0.5f, 0.9f, 0.1f);
    double o = 0.2 * sqrt(2) * muon_polynomial(1, 5), d = 0.95;
    double want[4] = {d, d, d - o / 2, d};
    expect_array("weights of 1 after the gradient (0, 0; 3, 0), lr 0.5, decay 0.1", w, want, 2, 2, 1e-4,
                 (Mistake[]){{(double[]){d, d, d + o / 2, d}, "the step goes uphill"},
                             {(double[]){1, 1, 1 - o / 2, 1}, "there is no decay"},
                             {(double[]){.9, .9, .9 - o / 2, .9}, "the decay is not multiplied by lr"},
                             {(double[]){d, d, d - o / 2 / 0.2 / sqrt(2), d},
                              "the factor 0.2 sqrt(max(R, C)) is missing"},
                             {(double[]){d, d, d - o / 2 / sqrt(2), d}, "the factor sqrt(max(R, C)) is missing"},
                             {(double[]){d, d - o / 2, d, d}, "the update was transposed"}}, 6);
}

#include "../hidden.h"

enum { R = 3, C = 5, N = R * C };
static const double SCALE = 0.2, BETA = 0.75;

// Updates whose gradients all have the directions u_i, v_i, so that each singular value is followed alone.
TEST(updates, 2, "the weights after three updates")
{
    static const double s[3][R] = {{1, 0.4, 0.2}, {-1, 1, 0.3}, {0.5, -2, 0.1}};
    double *u = muon_directions(R, R, 40), *v = muon_directions(R, C, 41), want[N], behind[N], small[N];
    float *w = random_floats(N, 42), *m = equal_floats(N, 0), g[N];
    double mean[R] = {0};
    for (int e = 0; e < N; e++) want[e] = behind[e] = small[e] = w[e];
    for (int t = 0; t < 3; t++) {
        double ahead[R], norm = 0, norm_of_mean = 0;
        for (int i = 0; i < R; i++) {
            mean[i] += (1 - BETA) * (s[t][i] - mean[i]), ahead[i] = (1 - BETA) * s[t][i] + BETA * mean[i];
            norm += ahead[i] * ahead[i], norm_of_mean += mean[i] * mean[i];
        }
        for (int e = 0; e < N; e++) {
            double sum = 0, o = 0, o_behind = 0;
            for (int i = 0; i < R; i++) {
                double uv = u[i * R + e / C] * v[i * C + e % C];
                sum += s[t][i] * uv, o += muon_polynomial(ahead[i] / sqrt(norm), 5) * uv;
                o_behind += muon_polynomial(mean[i] / sqrt(norm_of_mean), 5) * uv;
            }
            g[e] = (float)sum;
            want[e] -= 0.1 * (SCALE * sqrt(C) * o + 0.05 * want[e]);
            small[e] -= 0.1 * (SCALE * sqrt(R) * o + 0.05 * small[e]);
            behind[e] -= 0.1 * (SCALE * sqrt(C) * o_behind + 0.05 * behind[e]);
        }
        muon_step(w, m, g, R, C, 0.1f, (float)BETA, 0.05f);
    }
    expect_array("the weights after three updates", w, want, R, C, 3e-4,
                 (Mistake[]){{behind, "the update is m itself; it must be (1 - beta) g + beta m (look-ahead)"},
                             {small, "the factor is made of the smaller side, not of the larger one"}}, 2);
}

TEST(nothing, 1, "a gradient of zeros, and one of rank 1")
{
    float w[4] = {1, 2, 3, 4}, m[4] = {0}, g[4] = {0};
    muon_step(w, m, g, 2, 2, 0.1f, 0.9f, 0.5f);
    for (int i = 0; i < 4; i++) expect(!isnan(w[i]), "a gradient of zeros gives NaN: divided by a norm of 0; add 1e-7");
    double want[4] = {.95, 1.9, 2.85, 3.8};
    expect_array("weights 1 .. 4 after a gradient of zeros, lr 0.1, decay 0.5", w, want, 2, 2, 1e-6, NULL, 0);
    muon_judge(5, 4, (double[]){1, 0, 0, 0}, 0.01, 50);
}
