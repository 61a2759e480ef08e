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

static Case make_case(size_t T, size_t H, size_t D, float size, uint64_t seed)
{
    Case c = {T, H, D, random_floats(T * H * D, seed), random_floats(T * H * D, seed + 1),
              random_floats(T * H * D, seed + 2)};
    for (size_t i = 0; i < T * H * D; i++) c.q[i] *= size;
    return c;
}

// out and prob in double, of inputs in double.
static void forward(const Case *c, const double *q, const double *k, const double *v, double *out, double *prob,
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
static void expect_forward(const Case *c, const float *out, const float *prob, double tolerance)
{
    const char *why[] = {NULL, "the scores are not divided by sqrt(D)", "the scores are divided by D, not by sqrt(D)",
                         "no mask: a query sees later keys", "a query does not see its own key; s <= t, not s < t",
                         "a query sees the next token's key; s <= t, not s <= t + 1",
                         "the layout is taken for (H, T, D); it is (T, H, D)", "not divided by the sum of the weights"};
    size_t n = c->T * c->H * c->D, m = c->H * c->T * c->T;
    double *q = doubles(n, c->q), *k = doubles(n, c->k), *v = doubles(n, c->v), *o[8], *p[8];
    Mistake of_out[7], of_prob[7];
    for (int i = 0; i < 8; i++) {
        forward(c, q, k, v, o[i] = doubles(n, NULL), p[i] = doubles(m, NULL), i);
        if (i) of_out[i - 1] = (Mistake){o[i], why[i]}, of_prob[i - 1] = (Mistake){p[i], why[i]};
    }
    if (out) expect_array("out", out, o[0], c->T, c->H * c->D, tolerance, of_out, 7);
    if (prob) expect_array("prob", prob, p[0], c->H * c->T, c->T, tolerance, of_prob, 7);
}

// The derivative of sum(dout out) with respect to q (0), k (1) or v (2).
static double *difference(const Case *c, const float *dout, int which)
{
    size_t n = c->T * c->H * c->D;
    double *x[3] = {doubles(n, c->q), doubles(n, c->k), doubles(n, c->v)}, *want = doubles(n, NULL), h = 1e-5;
    double *out = doubles(n, NULL), *prob = doubles(c->H * c->T * c->T, NULL);
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
static float *gradient(const Case *c, const float *dout, int which)
{
    size_t n = c->T * c->H * c->D, m = c->H * c->T * c->T;
    double *out = doubles(n, NULL), *p = doubles(m, NULL);
    forward(c, doubles(n, c->q), doubles(n, c->k), doubles(n, c->v), out, p, RIGHT);
    float *prob = equal_floats(m, 0), *d[3] = {equal_floats(n, 7), equal_floats(n, 7), equal_floats(n, 7)};
    for (size_t i = 0; i < m; i++) prob[i] = (float)p[i];
    attention_backward(d[0], d[1], d[2], dout, prob, c->q, c->k, c->v, c->T, c->H, c->D);
    return d[which];
}

// Sums of at most T D terms below 1, each with a few roundings of 2^-24.
static void expect_gradient(const Case *c, const float *dout, int which)
{
    const char *name[] = {"dq", "dk", "dv"};
    size_t n = c->T * c->H * c->D;
    double *want = difference(c, dout, which), *scaled = doubles(n, NULL), *added = doubles(n, NULL);
    double *simple = doubles(n, NULL), *out = doubles(n, NULL), *p = doubles(c->H * c->T * c->T, NULL);
    forward(c, doubles(n, c->q), doubles(n, c->k), doubles(n, c->v), out, p, RIGHT);
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

#include "../hidden.h"

TEST(large_scores, 2, "scores of a thousand, and all below minus a hundred")
{
    for (int i = 0; i < 2; i++) {
        Case c = make_case(4, 2, 4, i ? 1 : 1000, 60);
        for (size_t j = 0; i && j < 32; j++) c.q[j] = -200, c.k[j] = 1;
        float *out = equal_floats(32, 7), *prob = equal_floats(32, 7);
        attention_forward(out, prob, c.q, c.k, c.v, 4, 2, 4);
        for (size_t j = 0; j < 32; j++)
            expect(isfinite(out[j]), "out, element %zu, is %g where scores are %s: subtract the row's largest score "
                   "before exp", j, out[j], i ? "-400" : "about 1000");
        expect_forward(&c, out, prob, 1e-3); // a score of 1000 is rounded by 3e-5
    }
}

TEST(no_future, 2, "a change of later tokens changes nothing earlier, nor does their gradient go back")
{
    size_t T = 6, row = 2 * 3;
    Case c = make_case(T, 2, 3, 2, 70);
    float *a = equal_floats(T * row, 7), *b = equal_floats(T * row, 7), *prob = equal_floats(2 * T * T, 7);
    attention_forward(a, prob, c.q, c.k, c.v, T, 2, 3);
    for (size_t i = 3 * row; i < T * row; i++) c.q[i] += 1, c.k[i] -= 2, c.v[i] *= -3;
    attention_forward(b, prob, c.q, c.k, c.v, T, 2, 3);
    for (size_t i = 0; i < 3 * row; i++)
        expect(a[i] == b[i], "out of token %zu changed when tokens 3 to 5 did: a query sees a later token", i / row);
    float *dout = equal_floats(T * row, 0);
    for (size_t i = 2 * row; i < 3 * row; i++) dout[i] = 1; // of token 2 alone
    for (int which = 0; which < 3; which++) {
        float *d = gradient(&c, dout, which);
        for (size_t i = 3 * row; i < T * row; i++)
            expect(d[i] == 0, "%s of token %zu: expected 0, as only token 2 has a gradient, got %g",
                   which == 0 ? "dq" : which == 1 ? "dk" : "dv", i / row, d[i]);
        expect_gradient(&c, dout, which);
    }
}

TEST(shapes, 2, "one token, heads of one element, odd sizes")
{
    size_t shape[3][3] = {{1, 2, 5}, {7, 3, 1}, {17, 1, 9}};
    for (int i = 0; i < 3; i++) {
        size_t T = shape[i][0], H = shape[i][1], D = shape[i][2];
        Case c = make_case(T, H, D, 3, 80 + 10 * (uint64_t)i);
        float *out = equal_floats(T * H * D, 7), *prob = equal_floats(H * T * T, 7);
        attention_forward(out, prob, c.q, c.k, c.v, T, H, D);
        expect_forward(&c, out, prob, 1e-5);
        for (int which = 0; which < 3; which++) expect_gradient(&c, random_floats(T * H * D, 90), which);
    }
}
