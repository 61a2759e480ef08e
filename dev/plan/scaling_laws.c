// scaling_laws: published fits of loss against parameters and tokens. See scaling_laws.h.
//
// Chinchilla's form (Hoffmann et al., arXiv 2203.15556, approach 3), minimised under 6 N D = C by setting the
// derivative of E + A N^-a + B (6 N / C)^b to zero:
//
//     N = G (C / 6)^(b / (a + b))       G = (a A / (b B))^(1 / (a + b))       D = C / (6 N)
//
// Three rows of constants. The paper's text rounds its exponents to 0.34 and 0.28, and two digits there move the
// optimum of a large budget by a third; its TeX source has them in full. Besiroglu et al. (arXiv 2404.10102) read
// the data off the paper's plot, fitted again, and found that the optimiser had stopped early: with their constants
// the optimum is near 20 tokens a parameter, which is what the paper's other two approaches, and Chinchilla itself,
// say.
//
// Kaplan et al. (arXiv 2001.08361) have another form, and N ~ C^0.73: they counted parameters without embeddings,
// at small sizes where embeddings matter, and kept one learning-rate schedule for all lengths of training.
//
// Inference (Sardana et al., arXiv 2401.00448): a model that serves S tokens costs 6 N D + 2 N S. For the same loss a
// smaller N on more tokens pays once S is large; D(N) follows from the law, and the sum has one minimum.
//
// The invariant: every point has 6 N D = C.
//
// Rejected: averaging the laws. They disagree, and the difference is what a reader should see.
#include "dev/plan/scaling_laws.h"

#include "base/check.h"

#include <math.h>

static const ScalingLaw laws[SCALING_LAWS] = {
    [SCALING_LAWS_HOFFMANN] = {"chinchilla", "arXiv 2203.15556, equation 10", 1.69, 406.4, 0.34, 410.7, 0.28},
    [SCALING_LAWS_HOFFMANN_EXACT] = {"chinchilla, all digits", "the TeX source of arXiv 2203.15556, in 2404.10102",
                                     1.6934, 406.4, 0.3392, 410.7, 0.2849},
    [SCALING_LAWS_BESIROGLU] = {"besiroglu", "arXiv 2404.10102, table 1", 1.8172, 482.01, 0.3478, 2085.43, 0.3658}};

const ScalingLaw *scaling_laws_law(int i)
{
    check(i >= 0 && i < SCALING_LAWS);
    return &laws[i];
}

double scaling_laws_loss(const ScalingLaw *law, double N, double D)
{
    return law->E + law->A * pow(N, -law->alpha) + law->B * pow(D, -law->beta);
}

static ScalingPoint point(double N, double C, double loss)
{
    return (ScalingPoint){.N = N, .D = C / (6 * N), .C = C, .loss = loss};
}

ScalingPoint scaling_laws_optimum(const ScalingLaw *law, double C)
{
    double a = law->alpha, b = law->beta, G = pow(a * law->A / (b * law->B), 1 / (a + b));
    double N = G * pow(C / 6, b / (a + b));
    return point(N, C, scaling_laws_loss(law, N, C / (6 * N)));
}

ScalingPoint scaling_laws_twenty(double C)
{
    return point(sqrt(C / 120), C, NAN);
}

// ---- Kaplan

double scaling_laws_kaplan_loss(double N, double D)
{
    // Equation 1.5 with the constants of its joint fit (table 2).
    const double aN = 0.076, aD = 0.103, Nc = 6.4e13, Dc = 1.8e13;
    return pow(pow(Nc / N, aN / aD) + Dc / D, aD);
}

ScalingPoint scaling_laws_kaplan(double C)
{
    double days = C / (1e15 * 86400), N = 1.3e9 * pow(days, 0.73); // table 6: PF-days
    return point(N, C, pow(3.1e8 / days, 0.050));
}

// ---- for a loss

double scaling_laws_tokens(const ScalingLaw *law, double N, double loss)
{
    double left = loss - law->E - law->A * pow(N, -law->alpha);
    return left > 0 ? pow(law->B / left, 1 / law->beta) : INFINITY;
}

ScalingPoint scaling_laws_served(const ScalingLaw *law, double loss, double served)
{
    check(loss > law->E);
    // From the smallest N that could reach the loss on endless data, by thirds of the logarithm.
    double least = pow(law->A / (loss - law->E), 1 / law->alpha), low = log(least * 1.0001), high = log(least * 1e4);
    for (int i = 0; i < 200; i++) {
        double third = (high - low) / 3, cost[2];
        for (int k = 0; k < 2; k++) {
            double N = exp(low + (k + 1) * third);
            cost[k] = 6 * N * scaling_laws_tokens(law, N, loss) + 2 * N * served;
        }
        if (cost[0] < cost[1]) high -= third;
        else low += third;
    }
    double N = exp((low + high) / 2);
    return point(N, 6 * N * scaling_laws_tokens(law, N, loss), loss);
}
