// test_noise: the two-batch estimator on gradients of known noise: exact where the numbers are, unbiased where they are
// random; and the usual short-cut, whose error is that of its formula.
#include "test/test.h"

#include "src/check/noise.h"
#include "base/rng.h"

// |G|^2 = 3, tr(Sigma) = 8: |g|^2 is 7 at a batch of 2 and 4 at a batch of 8.
TEST(test_two_equations)
{
    NoiseEstimate e = noise_estimate(7, 2, 4, 8);
    assert_true(e.signal == 3 && e.noise == 8);
    e = noise_estimate(4, 2, 7, 8); // by chance the small one's gradient is shorter: the estimate is negative
    assert_true(e.signal == 8 && e.noise == -8);
}

TEST(test_running_means)
{
    Noise n = noise_create(0.5);
    assert_true(isnan(noise_scale(&n)) && isnan(noise_trace(&n)) && isnan(noise_signal(&n)));
    noise_add(&n, 7, 2, 4, 8); // 3, 8
    assert_true(noise_signal(&n) == 3 && noise_trace(&n) == 8);
    assert_true(noise_scale(&n) == 8.0 / 3);
    noise_add(&n, 4, 2, 7, 8); // 8, -8: the means have weights 1/3 and 2/3
    assert_true(fabs(noise_signal(&n) - 19.0 / 3) <= 8 * 0x1p-52);
    assert_true(fabs(noise_trace(&n) + 8.0 / 3) <= 8 * 0x1p-52);
    Noise before = n;
    noise_add(&n, NAN, 2, 7, 8);
    noise_add(&n, 4, 2, INFINITY, 8);
    assert_memory_equal(&n, &before, sizeof n);
    Noise negative = noise_create(0.5);
    noise_add(&negative, 7, 2, 1, 8); // |G|^2 = -1
    assert_true(noise_signal(&negative) == -1 && noise_trace(&negative) == 16);
    assert_true(isnan(noise_scale(&negative)));
}

// ---- made gradients: G, and noise with another spread in each of the dimensions

enum { DIMS = 200, MICROS = 8, MICRO = 16, BIG = MICROS * MICRO, TRIALS = 400 };

typedef struct {
    double mean[DIMS], sigma[DIMS];
    double signal, trace, mean_cov, cov_squares; // |G|^2, tr(Sigma), G^T Sigma G, tr(Sigma^2)
} Truth;

static Truth make_truth(void)
{
    Truth t = {.signal = 0};
    for (int d = 0; d < DIMS; d++) {
        t.mean[d] = 0.1 * rng_normal(rng_make(3, "mean", 0), (uint64_t)d);
        t.sigma[d] = 1.0 + d % 4 * 0.5;
        double variance = t.sigma[d] * t.sigma[d];
        t.signal += t.mean[d] * t.mean[d];
        t.trace += variance;
        t.mean_cov += t.mean[d] * t.mean[d] * variance;
        t.cov_squares += variance * variance;
    }
    return t;
}

typedef struct {
    double first, all, spread; // |g|^2 of the first micro-batch and of the mean; variance over micro-batches * MICRO
} Sample;

static Sample draw(const Truth *t, uint32_t trial)
{
    Rng rng = rng_make(4, "noise", trial);
    Sample s = {0, 0, 0};
    for (int d = 0; d < DIMS; d++) {
        double g[MICROS], mean = 0;
        for (int i = 0; i < MICROS; i++) {
            g[i] = t->mean[d] + t->sigma[d] / sqrt(MICRO) * rng_normal(rng, (uint64_t)(d * MICROS + i));
            mean += g[i] / MICROS;
        }
        s.first += g[0] * g[0];
        s.all += mean * mean;
        for (int i = 0; i < MICROS; i++) s.spread += (g[i] - mean) * (g[i] - mean) / (MICROS - 1) * MICRO;
    }
    return s;
}

// Standard deviation of |g|^2 for a batch of b: a normal vector's squared length has the variance
// 4 G^T Sigma G / b + 2 tr(Sigma^2) / b^2.
static double deviation(const Truth *t, double b)
{
    return sqrt(4 * t->mean_cov / b + 2 * t->cov_squares / (b * b));
}

// Means over TRIALS lie within 5 standard errors of the truth (each missed once in 2 million draws, and the draw is
// fixed). The small batch is part of the big one; the standard deviation of a sum is at most the sum of the standard
// deviations, whatever depends on what.
TEST(test_unbiased_and_short_cut_biased)
{
    Truth t = make_truth();
    double signal = 0, noise = 0, all = 0, spread = 0, root = sqrt(TRIALS);
    for (uint32_t i = 0; i < TRIALS; i++) {
        Sample s = draw(&t, i);
        NoiseEstimate e = noise_estimate(s.first, MICRO, s.all, BIG);
        signal += e.signal / TRIALS;
        noise += e.noise / TRIALS;
        all += s.all / TRIALS;
        spread += s.spread / TRIALS;
    }
    double small = deviation(&t, MICRO), big = deviation(&t, BIG);
    double signal_bound = 5 * (BIG * big + MICRO * small) / (BIG - MICRO) / root;
    double noise_bound = 5 * (small + big) / (1.0 / MICRO - 1.0 / BIG) / root;
    assert_true(fabs(signal - t.signal) <= signal_bound);
    assert_true(fabs(noise - t.trace) <= noise_bound);
    assert_true(signal_bound < t.signal / 5 && noise_bound < t.trace / 10); // sharp enough to mean something

    // The short-cut. Its numerator is right; its denominator is |G|^2 + tr(Sigma) / BIG.
    double all_bound = 5 * big / root, spread_bound = 5 * sqrt(2 * t.cov_squares / (MICROS - 1)) / root;
    assert_true(fabs(spread - t.trace) <= spread_bound);
    assert_true(fabs(all - (t.signal + t.trace / BIG)) <= all_bound);
    double b_simple = t.trace / t.signal, naive = spread / all, want = noise_naive_expected(b_simple, BIG);
    double bound = (spread_bound + want * all_bound) / (t.signal + t.trace / BIG - all_bound);
    assert_true(fabs(want - t.trace / (t.signal + t.trace / BIG)) <= 1e-12 * want);
    assert_true(fabs(naive - want) <= bound);
    assert_true(b_simple - naive > 10 * bound && naive < BIG && b_simple > BIG); // hides what one wants to know
}

TEST(test_formula_of_the_short_cut)
{
    assert_true(noise_naive_expected(4096, 4096) == 2048);
    assert_true(noise_naive_expected(4096, 1024) < 1024);
    assert_true(fabs(noise_naive_expected(100, 1e9) - 100) < 1e-4);
}

TESTS(NULL, NULL)
