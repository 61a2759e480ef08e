// scaling: loss as a function of parameters and tokens, what to do with a budget, and the law of measured runs.
#ifndef SCALING_H
#define SCALING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// L(N, D) = E + A / N^alpha + B / D^beta, in nats a token; N parameters, D tokens.
typedef struct {
    const char *name, *source;
    double E, A, alpha, B, beta;
} ScalingLaw;

// Parameters, tokens, and the loss and budget that follow; C = 6 N D in FLOPs.
typedef struct {
    double N, D, C, loss; // loss NAN: the rule does not give it
} ScalingPoint;

enum { SCALING_LAWS_HOFFMANN, SCALING_LAWS_HOFFMANN_EXACT, SCALING_LAWS_BESIROGLU, SCALING_LAWS };

const ScalingLaw *scaling_laws_law(int i);
double scaling_laws_loss(const ScalingLaw *law, double N, double D);
// The N and D of least loss with 6 N D = C.
ScalingPoint scaling_laws_optimum(const ScalingLaw *law, double C);
// 20 tokens a parameter.
ScalingPoint scaling_laws_twenty(double C);
// Kaplan et al. (arXiv 2001.08361): the loss of N parameters (embeddings apart) and D tokens, and their rule for C.
double scaling_laws_kaplan_loss(double N, double D);
ScalingPoint scaling_laws_kaplan(double C);

// Tokens for which N parameters reach a loss; INFINITY: never.
double scaling_laws_tokens(const ScalingLaw *law, double N, double loss);
// The N and D that reach a loss with the least training and inference together, 6 N D + 2 N served; loss must be above
// E. C is the training's part.
ScalingPoint scaling_laws_served(const ScalingLaw *law, double loss, double served);

// ---- fits

// What is fitted: log E, log A, alpha, log B, beta.
enum { SCALING_FIT_E, SCALING_FIT_A, SCALING_FIT_ALPHA, SCALING_FIT_B, SCALING_FIT_BETA, SCALING_FIT_SIZE };

// The delta of the Huber loss on differences of logarithms; 1e-3 as in arXiv 2203.15556.
#define SCALING_FIT_DELTA 1e-3

// Sum over n runs of Huber(log L(N, D) - log loss); gradient (SCALING_FIT_SIZE) may be NULL. C of a point is not read.
double scaling_fit_objective(const ScalingPoint *run, size_t n, double delta, const double theta[SCALING_FIT_SIZE],
                             double *gradient);
// Which of n runs end at most `times` the least loss of them all: keep (n). Returns their number. Runs far above the
// best may follow another curve. The rule does not need the entropy.
size_t scaling_fit_below(const ScalingPoint *run, size_t n, double times, bool *keep);
// The law of least objective, from a grid of starts. Dies when there are fewer than 5 runs, fewer than 3 different N or
// D, or a number that is not positive.
ScalingLaw scaling_fit(const ScalingPoint *run, size_t n, double delta, double *objective);
// `resamples` fits, each of n runs drawn from the n with replacement; the seed determines them. Draws with fewer than 3
// different N or D are repeated.
void scaling_fit_bootstrap(ScalingLaw *law, size_t resamples, const ScalingPoint *run, size_t n, double delta,
                           uint64_t seed);
// The q-quantile of the values, interpolated; sorts them. NAN: no values.
double scaling_fit_quantile(double *value, size_t n, double q);

#ifdef __cplusplus
}
#endif
#endif
