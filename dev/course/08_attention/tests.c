// The forward pass in double, its finite differences and known mistakes come first; hidden.c uses them too.
#include "../grade.h"

#include "attention.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    size_t T, H, D;
    float *q, *k, *v;
} Case;

// Mistakes that the grader can make itself.
enum { RIGHT, NO_SCALE, SCALE_D, NO_MASK, NOT_ITSELF, NEXT_TOO, HEADS_FIRST, NOT_NORMALISED };

static inline Case make_case(size_t T, size_t H, size_t D, float size, uint64_t seed)
{
    Case c = {T, H, D, random_floats(T * H * D, seed), random_floats(T * H * D, seed + 1),
              random_floats(T * H * D, seed + 2)};
    for (size_t i = 0; i < T * H * D; i++) c.q[i] *= size;
    return c;
}

static inline double *numbers(size_t n)
{
    double *x = calloc(n, sizeof *x);
    if (!x) fail("the grader has no memory");
    return x;
}

static inline double *copied(const float *x, size_t n)
{
    double *y = numbers(n);
    for (size_t i = 0; i < n; i++) y[i] = x[i];
    return y;
}

// out and prob in double, of inputs in double.
static inline void forward(const Case *c, const double *q, const double *k, const double *v, double *out, double *prob,
                           int mistake)
{
    size_t T = c->T, D = c->D, token = mistake == HEADS_FIRST ? D : c->H * D, head = mistake == HEADS_FIRST ? T * D : D;
    double divide = mistake == NO_SCALE ? 1 : mistake == SCALE_D ? (double)D : sqrt((double)D);
    for (size_t h = 0; h < c->H; h++)
        for (size_t t = 0; t < T; t++) {
            size_t next = t + 1 < T ? t + 2 : T;
            size_t end = mistake == NO_MASK ? T : mistake == NOT_ITSELF ? t : mistake == NEXT_TOO ? next : t + 1;
            double *p = prob + (h * T + t) * T, top = -INFINITY, sum = 0;
            for (size_t s = 0; s < T; s++) {
                p[s] = 0;
                for (size_t d = 0; d < D; d++)
                    p[s] += q[t * token + h * head + d] * k[s * token + h * head + d] / divide;
                if (s < end && p[s] > top) top = p[s];
            }
            for (size_t s = 0; s < T; s++) sum += p[s] = s < end ? exp(p[s] - top) : 0;
            for (size_t s = 0; s < T && mistake != NOT_NORMALISED; s++) p[s] /= sum;
            for (size_t d = 0; d < D; d++) {
                double *o = out + t * token + h * head + d;
                *o = 0;
                for (size_t s = 0; s < end; s++) *o += p[s] * v[s * token + h * head + d];
            }
        }
}

// A row is a weighted mean of T values below 1; exp of scores up to 10 in float adds 1e-6 to a weight's relative error.
static inline void expect_forward(const Case *c, const float *out, const float *prob, double tolerance)
{
    const char *why[] = {NULL, "the scores are not divided by sqrt(D)", "the scores are divided by D, not by sqrt(D)",
                         "no mask: a query sees later keys", "a query does not see its own key; s <= t, not s < t",
                         "a query sees the next token's key; s <= t, not s <= t + 1",
                         "the layout is taken for (H, T, D); it is (T, H, D)", "not divided by the sum of the weights"};
    size_t n = c->T * c->H * c->D, m = c->H * c->T * c->T;
    double *q = copied(c->q, n), *k = copied(c->k, n), *v = copied(c->v, n), *o[8], *p[8];
    Mistake of_out[7], of_prob[7];
    for (int i = 0; i < 8; i++) {
        forward(c, q, k, v, o[i] = numbers(n), p[i] = numbers(m), i);
        if (i) of_out[i - 1] = (Mistake){o[i], why[i]}, of_prob[i - 1] = (Mistake){p[i], why[i]};
    }
    if (out) expect_array("out", out, o[0], c->T, c->H * c->D, tolerance, of_out, 7);
    if (prob) expect_array("prob", prob, p[0], c->H * c->T, c->T, tolerance, of_prob, 7);
}

// The derivative of sum(dout out) with respect to q (0), k (1) or v (2).
static inline double *difference(const Case *c, const float *dout, int which)
{
    size_t n = c->T * c->H * c->D;
    double *x[3] = {copied(c->q, n), copied(c->k, n), copied(c->v, n)}, *out = numbers(n), *want = numbers(n);
    double *prob = numbers(c->H * c->T * c->T), h = 1e-5;
    for (size_t i = 0; i < n; i++) {
        double was = x[which][i];
        for (int up = 1; up >= -1; up -= 2) {
            x[which][i] = was + up * h;
            forward(c, x[0], x[1], x[2], out, prob, RIGHT);
            for (size_t j = 0; j < n; j++) want[i] += up * out[j] * dout[j] / (2 * h);
        }
        x[which][i] = was;
    }
    return want;
}

// The answer's dq (0), dk (1) or dv (2), from weights in double.
static inline float *gradient(const Case *c, const float *dout, int which)
{
    size_t n = c->T * c->H * c->D, m = c->H * c->T * c->T;
    double *out = numbers(n), *p = numbers(m);
    forward(c, copied(c->q, n), copied(c->k, n), copied(c->v, n), out, p, RIGHT);
    float *prob = equal_floats(m, 0), *d[3] = {equal_floats(n, 7), equal_floats(n, 7), equal_floats(n, 7)};
    for (size_t i = 0; i < m; i++) prob[i] = (float)p[i];
    attention_backward(d[0], d[1], d[2], dout, prob, c->q, c->k, c->v, c->T, c->H, c->D);
    return d[which];
}

// Sums of at most T D terms below 1, each with a few roundings of 2^-24.
static inline void expect_gradient(const Case *c, const float *dout, int which)
{
    const char *name[] = {"dq", "dk", "dv"};
    size_t n = c->T * c->H * c->D;
    double *want = difference(c, dout, which), *scaled = numbers(n), *added = numbers(n), *simple = numbers(n);
    double *out = numbers(n), *p = numbers(c->H * c->T * c->T);
    forward(c, copied(c->q, n), copied(c->k, n), copied(c->v, n), out, p, RIGHT);
    for (size_t h = 0; h < c->H && which < 2; h++) // without the sum over s' in dscore
        for (size_t t = 0; t < c->T; t++)
            for (size_t s = 0; s <= t; s++) {
                size_t i = (t * c->H + h) * c->D, j = (s * c->H + h) * c->D;
                double dp = 0;
                for (size_t d = 0; d < c->D; d++) dp += (double)dout[i + d] * c->v[j + d];
                for (size_t d = 0; d < c->D; d++)
                    simple[(which ? j : i) + d] +=
                        p[(h * c->T + t) * c->T + s] * dp * (which ? c->q[i + d] : c->k[j + d]) / sqrt((double)c->D);
            }
    for (size_t i = 0; i < n; i++) scaled[i] = want[i] * sqrt((double)c->D), added[i] = want[i] + 7;
    Mistake known[] = {{added, "added to what was there in place of written"},
                       {scaled, "not divided by sqrt(D)"},
                       {simple, "in dscore the sum of P dP over the row is missing"}};
    expect_array(name[which], gradient(c, dout, which), want, c->T, c->H * c->D, 1e-4, known, which < 2 ? 3 : 1);
}

#ifndef GRADE_HIDDEN
TEST(by_hand, 2, "two tokens, one head: keys of zeros, so all weights are equal")
{
    float q[2] = {3, 5}, *k = equal_floats(2, 0), v[2] = {1, 4};
    float *out = equal_floats(2, 7), *prob = equal_floats(4, 7);
    attention_forward(out, prob, q, k, v, 2, 1, 1);
    expect_array("out of values (1, 4)", out, (double[]){1, 2.5}, 1, 2, 1e-6,
                 (Mistake[]){{(double[]){2.5, 2.5}, "no mask: token 0 sees token 1"},
                             {(double[]){1, 5}, "not divided by the sum of the weights"}}, 2);
}

TEST(heads, 3, "out of five tokens and three heads")
{
    Case c = make_case(5, 3, 4, 3, 10);
    float *out = equal_floats(60, 7), *prob = equal_floats(75, 7);
    attention_forward(out, prob, c.q, c.k, c.v, 5, 3, 4);
    expect_forward(&c, out, NULL, 1e-5);
}

TEST(weights, 2, "prob: the weights of each query, and 0 for later keys")
{
    Case c = make_case(6, 2, 3, 3, 20);
    float *out = equal_floats(36, 7), *prob = equal_floats(72, 7);
    attention_forward(out, prob, c.q, c.k, c.v, 6, 2, 3);
    for (size_t i = 0; i < 72; i++)
        expect(i % 6 <= i / 6 % 6 || prob[i] == 0,
               "prob of head %zu, query %zu, key %zu: expected 0, as the key is later, got %g", i / 36, i / 6 % 6, i % 6,
               prob[i]);
    expect_forward(&c, NULL, prob, 1e-5);
}

TEST(dv_test, 3, "dv against finite differences")
{
    Case c = make_case(5, 2, 4, 2, 30);
    expect_gradient(&c, random_floats(40, 33), 2);
}

TEST(dq_test, 2, "dq against finite differences")
{
    Case c = make_case(5, 2, 4, 2, 40);
    expect_gradient(&c, random_floats(40, 43), 0);
}

TEST(dk_test, 2, "dk against finite differences")
{
    Case c = make_case(5, 2, 4, 2, 50);
    expect_gradient(&c, random_floats(40, 53), 1);
}
#endif
