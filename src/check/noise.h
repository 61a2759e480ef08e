// noise: the gradient noise scale (run.noise_every): the batch above which a larger one gains little.
#ifndef NOISE_H
#define NOISE_H
#ifdef __cplusplus
extern "C" {
#endif

// Batch sizes are in tokens here, and gradients are means over a batch's tokens; any unit will do, as long as it is
// the same throughout: B_simple comes out in it.

// One measurement: unbiased estimates from two batches, any of which may be negative.
typedef struct {
    double signal; // of |G|^2, G the gradient of the expected loss
    double noise;  // of tr(Sigma), Sigma the covariance of the gradient of one token
} NoiseEstimate;

typedef struct {
    double keep;          // of the running means: 1 - 1 / (measurements that they look back on)
    double signal, noise; // running means, not yet divided by `weight`
    double weight;        // 1 - keep^n
    long n;               // measurements so far
} Noise;

// From |g|^2 of the mean gradients of a small and of a big batch; 0 < b_small < b_big. The small batch may be part
// of the big one. (McCandlish et al., arXiv 1812.06162, appendix A.1)
NoiseEstimate noise_estimate(double small_squares, double b_small, double big_squares, double b_big);

Noise noise_create(double keep);
// One more measurement enters the running means. One that is not finite is left out.
void noise_add(Noise *noise, double small_squares, double b_small, double big_squares, double b_big);
// The running means: tr(Sigma) and |G|^2, and B_simple = tr(Sigma) / |G|^2. NAN before the first measurement; B_simple
// is also NAN while the mean of |G|^2 is not positive (not enough measurements yet).
double noise_trace(const Noise *noise);
double noise_signal(const Noise *noise);
double noise_scale(const Noise *noise);

// What the usual short-cut (spread of the micro-batches' gradients over the squared norm of their mean) comes to on
// average for a model of this B_simple with batches of b_big: B_simple / (1 + B_simple / b_big), less than b_big.
double noise_naive_expected(double b_simple, double b_big);

#ifdef __cplusplus
}
#endif
#endif
