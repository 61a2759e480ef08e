// noise: how noisy is the gradient of a batch? See noise.h.
//
// The gradient of a batch of B tokens is G plus noise of covariance Sigma / B, so on average
//
//   |g_B|^2 = |G|^2 + tr(Sigma) / B                                       (McCandlish et al., arXiv 1812.06162, A.1)
//
// Two batch sizes are two equations for two unknowns:
//
//   |G|^2     = (B_big |g_big|^2 - B_small |g_small|^2) / (B_big - B_small)
//   tr(Sigma) = (|g_small|^2 - |g_big|^2) / (1 / B_small - 1 / B_big)
//   B_simple  = tr(Sigma) / |G|^2
//
// At a batch of B_simple a step makes half the progress that a step without noise would. Beside a training step it
// costs one norm: the first micro-batch is the small batch, all of them together are the big one.
//
// The invariant: both estimates are unbiased, whatever Sigma is and also when the small batch is part of the big one;
// their quotient is not. So the two are averaged over steps apart, and divided once, at the end.
//
// Rejected: the spread of the micro-batches' gradients over |g_big|^2. Its denominator is |G|^2 + tr(Sigma) / B_big, so
// it says B_simple / (1 + B_simple / B_big): never more than the batch that one has, which is the case one wants to
// know about. Rejected: a mean of quotients, which the measurements with |G|^2 near zero would decide.
#include "train/noise.h"

#include "base/check.h"
#include "base/rng.h"

#include <math.h>

NoiseEstimate noise_estimate(double small_squares, double b_small, double big_squares, double b_big)
{
    check(b_small > 0 && b_small < b_big);
    return (NoiseEstimate){.signal = (b_big * big_squares - b_small * small_squares) / (b_big - b_small),
                           .noise = (small_squares - big_squares) / (1 / b_small - 1 / b_big)};
}

Noise noise_create(double keep)
{
    check(keep >= 0 && keep < 1);
    return (Noise){.keep = keep};
}

void noise_add(Noise *n, double small_squares, double b_small, double big_squares, double b_big)
{
    NoiseEstimate e = noise_estimate(small_squares, b_small, big_squares, b_big);
    if (!isfinite(e.signal) || !isfinite(e.noise)) return;
    n->signal = n->keep * n->signal + (1 - n->keep) * e.signal;
    n->noise = n->keep * n->noise + (1 - n->keep) * e.noise;
    n->weight = n->keep * n->weight + (1 - n->keep);
    n->n++;
}

double noise_trace(const Noise *n)
{
    return n->n ? n->noise / n->weight : NAN;
}

double noise_signal(const Noise *n)
{
    return n->n ? n->signal / n->weight : NAN;
}

double noise_scale(const Noise *n)
{
    return n->n && n->signal > 0 ? n->noise / n->signal : NAN;
}

double noise_naive_expected(double b_simple, double b_big)
{
    return b_simple / (1 + b_simple / b_big);
}

// ---- both estimators at work: |G|^2 = 1, so B_simple = tr(Sigma)

enum { DIMS = 500, TRIALS = 50, MICRO = 256, TRACE = 4096 };

typedef struct {
    double first, all, spread; // |g|^2 of the first micro-batch, of the mean; variance over the micro-batches, summed
} Made;

// Gradients of b_big / MICRO micro-batches.
static Made make_gradients(Rng rng, size_t n_micro)
{
    Made m = {0};
    double size = sqrt((double)TRACE / DIMS / MICRO);
    for (size_t d = 0; d < DIMS; d++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n_micro; i++) {
            double noise = size * rng_normal(rng, d * n_micro + i), g = (d == 0) + noise; // G is the first axis
            if (i == 0) m.first += g * g;
            sum += g;
            squares += noise * noise; // about G, so that little cancels
        }
        double mean = sum / (double)n_micro, about = mean - (d == 0);
        m.all += mean * mean;
        m.spread += (squares - (double)n_micro * about * about) / (double)(n_micro - 1);
    }
    return m;
}

void noise_print(FILE *out, uint64_t seed)
{
    fprintf(out, "| batch | two batches | spread of micro-batches / \\|g\\|^2 | its formula |\n"
                 "|---:|---:|---:|---:|\n");
    for (size_t n_micro = 2; n_micro <= 128; n_micro *= 4) {
        double b_big = (double)(n_micro * MICRO), spread = 0, all = 0;
        Noise noise = noise_create(1 - 1e-6); // as good as the plain mean
        for (uint32_t i = 0; i < TRIALS; i++) {
            Made m = make_gradients(rng_make(seed, "noise", i), n_micro);
            noise_add(&noise, m.first, MICRO, m.all, b_big);
            spread += m.spread * MICRO;
            all += m.all;
        }
        fprintf(out, "| %.0f | %.0f | %.0f | %.0f |\n", b_big, noise_scale(&noise), spread / all,
                noise_naive_expected(TRACE, b_big));
    }
}
