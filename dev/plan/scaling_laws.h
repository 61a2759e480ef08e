// scaling_laws: loss as a function of parameters and tokens, and what to do with a budget.
#ifndef SCALING_LAWS_H
#define SCALING_LAWS_H
#ifdef __cplusplus
extern "C" {
#endif

// L(N, D) = E + A / N^alpha + B / D^beta, in nats a token; N parameters, D tokens.
typedef struct {
    const char *name, *source;
    double E, A, alpha, B, beta;
} ScalingLaw;

// Parameters, tokens, and what comes of them; C = 6 N D in FLOPs.
typedef struct {
    double N, D, C, loss; // loss NAN: the rule says nothing of it
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

#ifdef __cplusplus
}
#endif
#endif
