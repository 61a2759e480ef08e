// scaling: loss as a function of parameters and tokens, what to do with a budget, and the law of measured runs.
#ifndef SCALING_H
#define SCALING_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// L(N, D) = (E + A / N^alpha + B / D^beta)^power, in nats a token; N parameters, D tokens. Chinchilla's power is 1;
// Kaplan's law has E = 0 and beta = 1.
typedef struct {
    const char *name, *source;
    double E, A, alpha, B, beta, power;
} ScalingLaw;

// Parameters, tokens, and the loss and budget that follow; C = 6 N D in FLOPs.
typedef struct {
    double N, D, C, loss; // loss NAN: the rule does not give it
} ScalingPoint;

enum { SCALING_LAWS_HOFFMANN, SCALING_LAWS_HOFFMANN_EXACT, SCALING_LAWS_BESIROGLU, SCALING_LAWS_KAPLAN, SCALING_LAWS };

const ScalingLaw *scaling_laws_law(int i);
double scaling_laws_loss(const ScalingLaw *law, double N, double D);
// The N and D of least loss with 6 N D = C.
ScalingPoint scaling_laws_optimum(const ScalingLaw *law, double C);
// 20 tokens a parameter.
ScalingPoint scaling_laws_twenty(double C);
// N = 0.1174 C^0.4999 and D = 1.6972 C^0.5001, the power law that guides print for Chinchilla; the exponents are those
// of arXiv 2203.15556, table 2, approach 1 (0.50), the factors are not in the paper. The point's C is 6 N D, which is
// 1.2 times the argument.
ScalingPoint scaling_laws_power(double C);
// Kaplan et al. (arXiv 2001.08361): the loss of N parameters (embeddings apart) on endless data (equation 1.1), that of
// endless parameters on D tokens (1.2), and their rule for C. Their L(N, D) is SCALING_LAWS_KAPLAN.
double scaling_laws_kaplan_size(double N);
double scaling_laws_kaplan_data(double D);
ScalingPoint scaling_laws_kaplan(double C);

// Tokens for which N parameters reach a loss; INFINITY: never.
double scaling_laws_tokens(const ScalingLaw *law, double N, double loss);
// The N and D that reach a loss with the least training and inference together, 6 N D + 2 N served; loss must be above
// E, and the law's power 1. C is the training's part.
ScalingPoint scaling_laws_served(const ScalingLaw *law, double loss, double served);

// ---- fits

// theta: log E, log A, alpha, log B, beta, power.
enum {
    SCALING_FIT_E, SCALING_FIT_A, SCALING_FIT_ALPHA, SCALING_FIT_B, SCALING_FIT_BETA, SCALING_FIT_POWER,
    SCALING_FIT_SIZE
};

// What of theta is fitted. chinchilla: all but the power, which is 1; kaplan: all but E = 0 and beta = 1; size and
// data: the term of N or of D alone, L(N) = A / N^alpha and L(D) = B / D^beta.
typedef enum {
    SCALING_FORM_CHINCHILLA, SCALING_FORM_KAPLAN, SCALING_FORM_SIZE, SCALING_FORM_DATA, SCALING_FORMS
} ScalingForm;

// The delta of the Huber loss on differences of logarithms; 1e-3 as in arXiv 2203.15556.
#define SCALING_FIT_DELTA 1e-3

// Sum over n runs of Huber(log L(N, D) - log loss); gradient (SCALING_FIT_SIZE) may be NULL. C of a point is not read.
double scaling_fit_objective(const ScalingPoint *run, size_t n, double delta, const double theta[SCALING_FIT_SIZE],
                             double *gradient);
// Which of n runs end at most `times` the least loss of them all: keep (n). Returns their number. Runs far above the
// best may follow another curve. The rule does not need the entropy.
size_t scaling_fit_below(const ScalingPoint *run, size_t n, double times, bool *keep);
// For the forms of one term: the run of least loss for each N (size) or D (data), the one least held back by the other.
// keep (n); returns their number.
size_t scaling_fit_best(const ScalingPoint *run, size_t n, ScalingForm form, bool *keep);
// The law of least objective, from a grid of starts. Dies when there are fewer runs than constants (5 of chinchilla),
// fewer than 3 different N or D of a term that the form has, or a number that is not positive.
ScalingLaw scaling_fit(const ScalingPoint *run, size_t n, ScalingForm form, double delta, double *objective);
// `resamples` fits, each of n runs drawn from the n with replacement; the seed determines them. Draws with fewer than 3
// different N or D are repeated.
void scaling_fit_bootstrap(ScalingLaw *law, size_t resamples, const ScalingPoint *run, size_t n, double delta,
                           uint64_t seed);
// The q-quantile of the values, interpolated; sorts them. NAN: no values.
double scaling_fit_quantile(double *value, size_t n, double q);
#endif
