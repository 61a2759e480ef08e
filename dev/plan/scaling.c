// scaling: published fits of loss against parameters and tokens, and fits of your own runs. See scaling.h, and
// doc/scaling_laws.md and doc/scaling_fit.md for where the laws differ and why.
//
// Chinchilla's form (Hoffmann et al., arXiv 2203.15556, approach 3), minimised under 6 N D = C by setting the
// derivative of E + A N^-a + B (6 N / C)^b to zero:
//
//     N = G (C / 6)^(b / (a + b))       G = (a A / (b B))^(1 / (a + b))       D = C / (6 N)
//
// Kaplan et al. (arXiv 2001.08361) have another form. Their
//
//     L(N, D) = ((Nc / N)^(aN / aD) + Dc / D)^aD = (A / N^alpha + B / D^beta)^power
//         A = Nc^alpha, alpha = aN / aD, B = Dc, beta = 1, power = aD
//
// is Chinchilla's sum with E = 0 under a power, so both are one struct and one fit. L(N) = (Nc / N)^aN has the term of
// N alone, L(D) = (Dc / D)^aD that of D.
//
// The fit is the paper's third approach again: with e = log E, a = log A, b = log B,
//
//     minimise over (e, a, alpha, b, beta)   sum_i Huber_delta(p lse(e, a - alpha log N_i, b - beta log D_i) - log L_i)
//     lse(x, y, z) = log(exp x + exp y + exp z)
//     Huber_delta(r) = r^2 / 2 for |r| <= delta, else delta (|r| - delta / 2)
//
// with the power p = 1; another form frees other constants (`free_of`). A term that a form lacks has the logarithm
// ABSENT, of which exp is exactly 0, and so are its share of the sum and its gradient. In the gradient each term is
// weighted by its share of the sum: d/de = exp(e - lse), and so on.
//
// The search is L-BFGS with a line search for the weak Wolfe conditions by bisection, which also works near the kinks
// of a small delta. a and alpha are strongly coupled, as all log N are far from 0, so the search moves in a' = a -
// alpha m with m the mean of log N, and b' likewise. The objective is divided by n delta, so that its numbers are near
// 1. There are many local minima, so a search starts from each point of a grid over E and both exponents.
//
// The invariant: the terms are summed relative to the largest of them (lse), so no exponential overflows.
//
// Rejected: least squares on log(L - E) for each E (needs L > E for all runs, and weighs the best ones most); fixing
// alpha = beta (they differ); a start at the published constants alone (Besiroglu et al., arXiv 2404.10102, show a fit
// that stopped early).

#include "dev/plan/scaling.h"

#include "base/check.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// ---- published laws

static const ScalingLaw laws[SCALING_LAWS] = {
    [SCALING_LAWS_HOFFMANN] = {"chinchilla", "arXiv 2203.15556, equation 10", 1.69, 406.4, 0.34, 410.7, 0.28, 1},
    [SCALING_LAWS_HOFFMANN_EXACT] = {"chinchilla, all digits", "the TeX source of arXiv 2203.15556, in 2404.10102",
                                     1.6934, 406.4, 0.3392, 410.7, 0.2849, 1},
    [SCALING_LAWS_BESIROGLU] = {"besiroglu", "arXiv 2404.10102, table 1", 1.8172, 482.01, 0.3478, 2085.43, 0.3658, 1},
    // aN 0.076, aD 0.103, Nc 6.4e13, Dc 1.8e13: A = Nc^(aN / aD)
    [SCALING_LAWS_KAPLAN] = {"kaplan", "arXiv 2001.08361, equation 1.5 and table 2", 0, 15384530695.455639,
                             0.076 / 0.103, 1.8e13, 1, 0.103}};

const ScalingLaw *scaling_laws_law(int i)
{
    check(i >= 0 && i < SCALING_LAWS);
    return &laws[i];
}

double scaling_laws_loss(const ScalingLaw *law, double N, double D)
{
    return pow(law->E + law->A * pow(N, -law->alpha) + law->B * pow(D, -law->beta), law->power);
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

ScalingPoint scaling_laws_power(double C)
{
    double N = 0.1174 * pow(C, 0.4999), D = 1.6972 * pow(C, 0.5001);
    return (ScalingPoint){.N = N, .D = D, .C = 6 * N * D, .loss = NAN};
}

// ---- Kaplan

double scaling_laws_kaplan_size(double N)
{
    return pow(8.8e13 / N, 0.076);
}

double scaling_laws_kaplan_data(double D)
{
    return pow(5.4e13 / D, 0.095);
}

ScalingPoint scaling_laws_kaplan(double C)
{
    double days = C / (1e15 * 86400), N = 1.3e9 * pow(days, 0.73); // table 6: PF-days
    return point(N, C, pow(3.1e8 / days, 0.050));
}

// ---- for a loss

double scaling_laws_tokens(const ScalingLaw *law, double N, double loss)
{
    double left = pow(loss, 1 / law->power) - law->E - law->A * pow(N, -law->alpha);
    return left > 0 ? pow(law->B / left, 1 / law->beta) : INFINITY;
}

ScalingPoint scaling_laws_served(const ScalingLaw *law, double loss, double served)
{
    check(law->power == 1 && loss > law->E);
    // Ternary search over log N, from the smallest N that could reach the loss on endless data.
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

// ---- fits

enum { P = SCALING_FIT_SIZE, HISTORY = 6, STEPS = 600, HALVINGS = 60 };
#define ABSENT (-1e4)

// Which constants a form frees, in the order of theta.
static const bool free_of[SCALING_FORMS][P] = {[SCALING_FORM_CHINCHILLA] = {true, true, true, true, true, false},
                                               [SCALING_FORM_KAPLAN] = {false, true, true, true, false, true},
                                               [SCALING_FORM_SIZE] = {false, true, true, false, false, false},
                                               [SCALING_FORM_DATA] = {false, false, false, true, true, false}};

double scaling_fit_objective(const ScalingPoint *run, size_t n, double delta, const double theta[P], double *gradient)
{
    double sum = 0;
    if (gradient) memset(gradient, 0, P * sizeof *gradient);
    for (size_t i = 0; i < n; i++) {
        double logN = log(run[i].N), logD = log(run[i].D), e = theta[SCALING_FIT_E], power = theta[SCALING_FIT_POWER];
        double x = theta[SCALING_FIT_A] - theta[SCALING_FIT_ALPHA] * logN;
        double y = theta[SCALING_FIT_B] - theta[SCALING_FIT_BETA] * logD;
        double top = fmax(e, fmax(x, y)), lse = top + log(exp(e - top) + exp(x - top) + exp(y - top));
        double r = power * lse - log(run[i].loss), size = fabs(r);
        sum += size <= delta ? r * r / 2 : delta * (size - delta / 2);
        if (!gradient) continue;
        double pull = fmax(-delta, fmin(r, delta)), in = pull * power;
        double in_x = in * exp(x - lse), in_y = in * exp(y - lse);
        gradient[SCALING_FIT_POWER] += pull * lse;
        gradient[SCALING_FIT_E] += in * exp(e - lse);
        gradient[SCALING_FIT_A] += in_x, gradient[SCALING_FIT_ALPHA] -= in_x * logN;
        gradient[SCALING_FIT_B] += in_y, gradient[SCALING_FIT_BETA] -= in_y * logD;
    }
    return sum;
}

// ---- L-BFGS in centred coordinates

typedef struct {
    const ScalingPoint *run;
    size_t n;
    double delta, mid_N, mid_D; // means of log N and log D
    ScalingForm form;
} Problem;

static void from_centre(const Problem *p, double theta[P], const double x[P])
{
    memcpy(theta, x, P * sizeof *theta);
    theta[SCALING_FIT_A] += x[SCALING_FIT_ALPHA] * p->mid_N;
    theta[SCALING_FIT_B] += x[SCALING_FIT_BETA] * p->mid_D;
}

static double value_at(const Problem *p, const double x[P], double g[P])
{
    double theta[P], scale = 1 / ((double)p->n * p->delta);
    from_centre(p, theta, x);
    double f = scaling_fit_objective(p->run, p->n, p->delta, theta, g);
    g[SCALING_FIT_ALPHA] += g[SCALING_FIT_A] * p->mid_N;
    g[SCALING_FIT_BETA] += g[SCALING_FIT_B] * p->mid_D;
    for (int i = 0; i < P; i++) g[i] = free_of[p->form][i] ? g[i] * scale : 0;
    return f * scale;
}

static double dot(const double a[P], const double b[P])
{
    double sum = 0;
    for (int i = 0; i < P; i++) sum += a[i] * b[i];
    return sum;
}

typedef struct {
    double s[HISTORY][P], y[HISTORY][P]; // steps, and changes of the gradient
    int n;                               // how many there were
} History;

// d = - H g by the two loops of Nocedal (1980).
static void direction(const History *h, double d[P], const double g[P])
{
    double along[HISTORY];
    int first = h->n > HISTORY ? h->n - HISTORY : 0;
    for (int i = 0; i < P; i++) d[i] = -g[i];
    for (int k = h->n - 1; k >= first; k--) {
        const double *s = h->s[k % HISTORY], *y = h->y[k % HISTORY];
        along[k % HISTORY] = dot(s, d) / dot(s, y);
        for (int i = 0; i < P; i++) d[i] -= along[k % HISTORY] * y[i];
    }
    if (h->n) {
        const double *s = h->s[(h->n - 1) % HISTORY], *y = h->y[(h->n - 1) % HISTORY];
        for (int i = 0; i < P; i++) d[i] *= dot(s, y) / dot(y, y);
    }
    for (int k = first; k < h->n; k++) {
        const double *s = h->s[k % HISTORY], *y = h->y[k % HISTORY];
        double back = dot(y, d) / dot(s, y);
        for (int i = 0; i < P; i++) d[i] += (along[k % HISTORY] - back) * s[i];
    }
}

// Moves x, f and g along d to a point that meets the weak Wolfe conditions; false: none can be found in floating point.
static bool line_search(const Problem *p, double x[P], double *f, double g[P], const double d[P])
{
    double slope = dot(g, d), low = 0, high = INFINITY, t = 1;
    for (int k = 0; k < HALVINGS; k++) {
        double x1[P], g1[P];
        for (int i = 0; i < P; i++) x1[i] = x[i] + t * d[i];
        double f1 = value_at(p, x1, g1);
        if (!(f1 <= *f + 1e-4 * t * slope)) high = t;
        else if (dot(g1, d) < 0.9 * slope) low = t;
        else {
            memcpy(x, x1, sizeof x1), memcpy(g, g1, sizeof g1);
            *f = f1;
            return true;
        }
        t = isinf(high) ? 2 * low : (low + high) / 2;
    }
    return false;
}

static double minimise(const Problem *p, double x[P])
{
    double g[P], d[P], f = value_at(p, x, g);
    History h = {.n = 0};
    for (int step = 0; step < STEPS && dot(g, g) > 1e-20; step++) {
        double x0[P], g0[P];
        memcpy(x0, x, sizeof x0), memcpy(g0, g, sizeof g0);
        direction(&h, d, g);
        if (!(dot(d, g) < 0)) h.n = 0, direction(&h, d, g);
        if (!line_search(p, x, &f, g, d)) {
            if (!h.n) break;
            h.n = 0; // restart from steepest descent
            continue;
        }
        double *s = h.s[h.n % HISTORY], *y = h.y[h.n % HISTORY];
        for (int i = 0; i < P; i++) s[i] = x[i] - x0[i], y[i] = g[i] - g0[i];
        if (dot(s, y) > 1e-12 * sqrt(dot(s, s) * dot(y, y))) h.n++;
    }
    return f;
}

// ---- the fit

static Problem problem_of(const ScalingPoint *run, size_t n, ScalingForm form, double delta)
{
    Problem p = {.run = run, .n = n, .form = form, .delta = delta};
    for (size_t i = 0; i < n; i++) p.mid_N += log(run[i].N) / (double)n, p.mid_D += log(run[i].D) / (double)n;
    return p;
}

enum { PARTS = 3, SLOPES = 5, STARTS = PARTS * SLOPES * SLOPES };

// Start k of the grid: E a part of the least loss, and what it leaves of the mean loss in equal shares for the others.
static void at_start(const Problem *p, double x[P], double least, double mean, int k)
{
    static const double part[PARTS] = {0.1, 0.5, 0.9}, slope[SLOPES] = {0.1, 0.3, 0.6, 1, 1.6};
    const bool *is_free = free_of[p->form];
    double E = is_free[SCALING_FIT_E] ? part[k % PARTS] * least : 0, b = slope[k / (PARTS * SLOPES)];
    double power = is_free[SCALING_FIT_POWER] ? b : 1, terms = is_free[SCALING_FIT_A] + is_free[SCALING_FIT_B];
    double rest = log(mean - E) / power - log(terms); // positive: part is below 1
    x[SCALING_FIT_E] = E > 0 ? log(E) : ABSENT, x[SCALING_FIT_POWER] = power;
    x[SCALING_FIT_A] = is_free[SCALING_FIT_A] ? rest : ABSENT;
    x[SCALING_FIT_B] = is_free[SCALING_FIT_B] ? rest : ABSENT;
    x[SCALING_FIT_ALPHA] = is_free[SCALING_FIT_A] ? slope[k / PARTS % SLOPES] / power : 0;
    x[SCALING_FIT_BETA] = is_free[SCALING_FIT_BETA] ? b : is_free[SCALING_FIT_B];
}

static double fit(const Problem *p, double best[P], const double *other, int stride)
{
    double least = INFINITY, mean = 0, best_f = INFINITY, x[P];
    for (size_t i = 0; i < p->n; i++) {
        least = fmin(least, p->run[i].loss);
        mean += p->run[i].loss / (double)p->n;
    }
    for (int k = other ? -1 : 0; k < STARTS; k += k < 0 ? 1 : stride) {
        if (k < 0) memcpy(x, other, sizeof x);
        else at_start(p, x, least, mean, k);
        double f = minimise(p, x);
        if (!(f < best_f)) continue;
        best_f = f;
        memcpy(best, x, sizeof x);
    }
    return best_f * (double)p->n * p->delta;
}

static ScalingLaw law_of(const Problem *p, const double x[P])
{
    double theta[P];
    from_centre(p, theta, x);
    return (ScalingLaw){"fit", "fitted runs", exp(theta[SCALING_FIT_E]), exp(theta[SCALING_FIT_A]),
                        theta[SCALING_FIT_ALPHA], exp(theta[SCALING_FIT_B]), theta[SCALING_FIT_BETA],
                        theta[SCALING_FIT_POWER]};
}

// The number of different values of N or of D, whichever is smaller, of those that the form has.
static size_t different(const ScalingPoint *run, size_t n, ScalingForm form)
{
    size_t n_N = 0, n_D = 0;
    for (size_t i = 0; i < n; i++) {
        bool new_N = true, new_D = true;
        for (size_t k = 0; k < i; k++) {
            if (run[k].N == run[i].N) new_N = false;
            if (run[k].D == run[i].D) new_D = false;
        }
        n_N += new_N, n_D += new_D;
    }
    if (!free_of[form][SCALING_FIT_A]) return n_D;
    return !free_of[form][SCALING_FIT_B] || n_N < n_D ? n_N : n_D;
}

size_t scaling_fit_below(const ScalingPoint *run, size_t n, double times, bool *keep)
{
    double least = INFINITY;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) least = fmin(least, run[i].loss);
    for (size_t i = 0; i < n; i++) {
        keep[i] = run[i].loss <= times * least;
        kept += keep[i];
    }
    return kept;
}

size_t scaling_fit_best(const ScalingPoint *run, size_t n, ScalingForm form, bool *keep)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        keep[i] = true;
        for (size_t k = 0; k < n; k++) {
            bool same = form == SCALING_FORM_SIZE ? run[k].N == run[i].N : run[k].D == run[i].D;
            if (same && (run[k].loss < run[i].loss || (run[k].loss == run[i].loss && k < i))) keep[i] = false;
        }
        kept += keep[i];
    }
    return kept;
}

static double fit_centred(const ScalingPoint *run, size_t n, ScalingForm form, double delta, Problem *p, double x[P])
{
    check(delta > 0);
    size_t constants = 0;
    for (int i = 0; i < P; i++) constants += free_of[form][i];
    if (n < constants)
        die("scaling: %zu runs, and %zu constants to fit (train more sizes and numbers of tokens)", n, constants);
    for (size_t i = 0; i < n; i++)
        if (!(run[i].N > 0 && run[i].D > 0 && run[i].loss > 0 && isfinite(run[i].N + run[i].D + run[i].loss)))
            die("scaling: run %zu: N %g, D %g, loss %g must be positive", i + 1, run[i].N, run[i].D, run[i].loss);
    if (different(run, n, form) < 3)
        die("scaling: fewer than 3 different sizes or numbers of tokens (train more of them)");
    *p = problem_of(run, n, form, delta);
    double f = fit(p, x, NULL, 1);
    if (!isfinite(f)) die("scaling: no fit of these %zu runs", n);
    return f;
}

ScalingLaw scaling_fit(const ScalingPoint *run, size_t n, ScalingForm form, double delta, double *objective)
{
    Problem p;
    double x[P], f = fit_centred(run, n, form, delta, &p, x);
    if (objective) *objective = f;
    return law_of(&p, x);
}

void scaling_fit_bootstrap(ScalingLaw *law, size_t resamples, const ScalingPoint *run, size_t n, double delta,
                           uint64_t seed)
{
    enum { TRIES = 100 };
    Problem whole;
    double x0[P], x[P];
    fit_centred(run, n, SCALING_FORM_CHINCHILLA, delta, &whole, x0);
    ScalingPoint *drawn = malloc(n * sizeof *drawn);
    if (!drawn) die("scaling: no memory for %zu runs", n);
    for (size_t r = 0; r < resamples; r++) {
        Rng rng = rng_make(seed, "bootstrap", r);
        int tries = 0;
        do {
            for (size_t i = 0; i < n; i++) drawn[i] = run[rng_below(rng, (uint64_t)tries * n + i, n)];
        } while (different(drawn, n, whole.form) < 3 && ++tries < TRIES);
        Problem p = problem_of(drawn, n, whole.form, delta);
        p.mid_N = whole.mid_N, p.mid_D = whole.mid_D; // so that x0 means the same
        fit(&p, x, x0, 8);
        law[r] = law_of(&p, x);
    }
    free(drawn);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double scaling_fit_quantile(double *value, size_t n, double q)
{
    if (!n) return NAN;
    qsort(value, n, sizeof *value, ascending);
    double at = q * (double)(n - 1);
    size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
    return value[low] + (at - (double)low) * (value[high] - value[low]);
}
