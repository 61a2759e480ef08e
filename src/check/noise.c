// noise: the gradient noise scale, how noisy the gradient of a batch is. See noise.h.
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
// At a batch of B_simple a step makes half the progress that a step without noise would. The step is
// the big batch. The small one is a part of it that is run first, as a step of its own (observers.c).
//
// The invariant: both estimates are unbiased, whatever Sigma is and also when the small batch is part of the big one;
// their quotient is not. So the two are averaged over steps apart, and divided once, at the end.
//
// Rejected: the spread of the micro-batches' gradients over |g_big|^2. Its denominator is |G|^2 + tr(Sigma) / B_big, so
// it gives B_simple / (1 + B_simple / B_big): never more than the batch in use, although a larger B_simple is the case
// of interest. Rejected: a mean of quotients, which measurements with |G|^2 near zero would dominate.
#include "src/check/noise.h"

#include "base/check.h"

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
