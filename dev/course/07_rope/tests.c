#include "../grade.h"

#include "rotary.h"

#include <math.h>
#include <stdlib.h>

enum { RIGHT, SAME, BACKWARDS, NEIGHBOURS, SLOW, FAST, NO_OFFSET, FROM_ONE, OVERWRITTEN, ADDED, MISTAKES };
static const char *const because[] = {
    NULL, "nothing was rotated", "rotated the other way: the sign of the sine",
    "the pairs are (2i, 2i + 1); they are (i, i + D/2)",
    "the exponent is -i/D, it is -2i/D", "all pairs turn alike: is 2i/D a division of integers?",
    "`first` is ignored: token t stands at position first + t", "the positions begin with first + 1, not first",
    "the second element of a pair was computed from the new first one, not from the old one",
    "the sign of the other sine: this is no rotation"};

static double *rotated(const float *x, size_t T, size_t H, size_t D, size_t first, double theta, double sign,
                              int mistake)
{
    double *out = malloc(T * H * D * sizeof *out);
    for (size_t n = 0; n < T * H * D / 2; n++) { // pair n
        size_t row = n / (D / 2), i = n % (D / 2), near = mistake == NEIGHBOURS;
        size_t a = row * D + (near ? 2 * i : i), b = near ? a + 1 : a + D / 2;
        double position = (double)(row / H) + (mistake == NO_OFFSET ? 0 : (double)first) + (mistake == FROM_ONE);
        double exponent = mistake == FAST ? 0 : (mistake == SLOW ? 1.0 : 2.0) * (double)i / (double)D;
        double angle = (mistake == BACKWARDS ? -sign : sign) * position / pow(theta, exponent);
        if (mistake == SAME) angle = 0;
        out[a] = x[a] * cos(angle) - x[b] * sin(angle) * (mistake == ADDED ? -1 : 1);
        out[b] = x[b] * cos(angle) + (mistake == OVERWRITTEN ? out[a] : x[a]) * sin(angle);
    }
    return out;
}

// Two products and a sum of numbers below 1 in float, with cosines in float: below 4 times 2^-24.
static void expect_rotated(const char *what, const float *got, const float *x, size_t T, size_t H, size_t D,
                                  size_t first, float theta, double sign)
{
    Mistake known[MISTAKES - 1];
    for (int m = 1; m < MISTAKES; m++)
        known[m - 1] = (Mistake){rotated(x, T, H, D, first, theta, sign, m), because[m]};
    expect_array(what, got, rotated(x, T, H, D, first, theta, sign, RIGHT), T, H * D, 1e-5, known, MISTAKES - 1);
}

TEST(one_pair, 2, "(1, 0) at position 1 becomes (cos 1, sin 1)")
{
    float x[2] = {1, 0}, *got = random_floats(2, 0);
    got[0] = 1, got[1] = 0;
    rotary_forward(got, 1, 1, 2, 1, 10000);
    expect_rotated("(1, 0) at position 1", got, x, 1, 1, 2, 1, 10000, 1);
}

TEST(pairs, 3, "six tokens, two heads of eight elements")
{
    float *x = random_floats(96, 1), *got = random_floats(96, 1);
    rotary_forward(got, 6, 2, 8, 0, 100);
    expect_rotated("x of six tokens from position 0", got, x, 6, 2, 8, 0, 100, 1);
}

TEST(offset, 1, "token t stands at position first + t")
{
    float *x = random_floats(24, 2), *got = random_floats(24, 2);
    rotary_forward(got, 3, 2, 4, 5, 50);
    expect_rotated("x of three tokens from position 5", got, x, 3, 2, 4, 5, 50, 1);
}

TEST(backward, 2, "the gradient")
{
    float *dy = random_floats(60, 3), *got = random_floats(60, 3);
    rotary_backward(got, 5, 2, 6, 3, 50);
    expect_rotated("dx", got, dy, 5, 2, 6, 3, 50, -1);
}

#include "../hidden.h"

#include <string.h>

TEST(far, 1, "position 100,000")
{
    float *x = random_floats(128, 4), *got = random_floats(128, 4);
    rotary_forward(got, 4, 1, 32, 99997, 500000);
    expect_rotated("x at positions 99,997 to 100,000 (is the angle a float?)", got, x, 4, 1, 32, 99997, 500000, 1);
}

TEST(distance, 1, "the product of a query and a key depends on their distance alone, and backward undoes forward")
{
    double product[3];
    for (size_t i = 0; i < 3; i++) { // the query at 7, 40, 300, the key 5 before it
        float *q = random_floats(16, 5), *k = random_floats(16, 6), at[] = {7, 40, 300};
        rotary_forward(q, 1, 1, 16, (size_t)at[i], 10000);
        rotary_forward(k, 1, 1, 16, (size_t)at[i] - 5, 10000);
        product[i] = 0;
        for (size_t d = 0; d < 16; d++) product[i] += (double)q[d] * k[d];
        expect_number("query at 7, 40 or 300 times the key 5 before it", product[i], product[0], 1e-5, NULL, 0);
    }
    float *q = random_floats(16, 5), *k = random_floats(16, 6);
    double unturned = 0;
    for (size_t d = 0; d < 16; d++) unturned += (double)q[d] * k[d];
    expect(fabs(unturned - product[0]) > 1e-3, "queries and keys are not rotated at all");
    rotary_forward(q, 1, 1, 16, 9, 10000);
    rotary_backward(q, 1, 1, 16, 9, 10000);
    float *same = random_floats(16, 5);
    for (size_t d = 0; d < 16; d++) expect_number("backward after forward", q[d], same[d], 1e-6, NULL, 0);
}
