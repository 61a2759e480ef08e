#define GRADE_HIDDEN
#include "../grade.h"

#include "muon.h"

#include <math.h>
#include <stdlib.h>

// tests.c
double muon_polynomial(double s, int n);
double *muon_directions(size_t k, size_t n, uint64_t seed);
void muon_judge(size_t R, size_t C, const double *s, double times, uint64_t seed);

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
