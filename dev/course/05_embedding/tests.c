#include "../grade.h"

#include "embedding.h"

#include <stdlib.h>
#include <string.h>

static int32_t *copied(const int32_t *x, size_t n) // exact room for AddressSanitizer
{
    int32_t *y = malloc(n * sizeof *y + 1);
    if (n) memcpy(y, x, n * sizeof *y);
    return y;
}

enum { RIGHT, LAST_ONLY, MEAN, WRITTEN, FIRST_ONLY, MISTAKES };
static const char *const because[] = {
    NULL, "written in place of added: only the last place of a row counts",
    "divided by the number of places; the gradient of a sum is not a mean",
    "what was there before is lost: add to it", "only the first sequence counts"};

// One element: the sum of dout over the places whose row it is, added to `before`.
static double element(const float *dout, const size_t *row, size_t n, size_t T, size_t C, size_t r, size_t c,
                             double before, int mistake)
{
    double sum = 0, count = 0;
    for (size_t i = 0; i < (mistake == FIRST_ONLY ? T : n); i++) {
        if (row[i] != r) continue;
        sum = mistake == LAST_ONLY ? dout[i * C + c] : sum + dout[i * C + c];
        count++;
    }
    if (mistake == MEAN && count) sum /= count;
    if (count == 0 || (mistake == LAST_ONLY && before == 0)) return count ? sum : before;
    return mistake == WRITTEN ? sum : before + sum;
}

static void expect_table(const char *what, const float *got, const float *dout, const size_t *row, size_t n,
                                size_t T, size_t C, size_t rows, double before, double tolerance)
{
    double *x[MISTAKES];
    Mistake known[MISTAKES - 1];
    for (int m = 0; m < MISTAKES; m++) {
        x[m] = malloc(rows * C * sizeof **x);
        for (size_t i = 0; i < rows * C; i++) x[m][i] = element(dout, row, n, T, C, i / C, i % C, before, m);
        if (m) known[m - 1] = (Mistake){x[m], because[m]};
    }
    expect_array(what, got, x[0], rows, C, tolerance, known, MISTAKES - 1);
}

// Both tables, from `before` in all elements. A sum of n numbers below 1 in float errs by at most n^2 / 2 2^-24.
static void expect_backward(const int32_t *token, size_t B, size_t T, size_t C, size_t V, float before,
                                   uint64_t seed)
{
    size_t n = B * T, *row = malloc(n * sizeof *row + 1), *place = malloc(n * sizeof *row + 1);
    for (size_t i = 0; i < n; i++) row[i] = (size_t)token[i], place[i] = i % T;
    float *dout = random_floats(n * C, seed), *d_token = equal_floats(V * C, before);
    float *d_position = equal_floats(T * C, before);
    embed_backward(d_token, d_position, dout, token, B, T, C);
    double tolerance = 1e-6 + (double)n * (double)n * 3e-8;
    expect_table("d_token", d_token, dout, row, n, T, C, V, before, tolerance > 1e-4 ? 1e-4 : tolerance);
    expect_table("d_position", d_position, dout, place, n, T, C, T, before, tolerance > 1e-4 ? 1e-4 : tolerance);
}

static void expect_forward(const int32_t *token, size_t B, size_t T, size_t C, size_t V, uint64_t seed)
{
    size_t n = B * T * C;
    float *tokens = random_floats(V * C, seed), *positions = random_floats(T * C, seed + 1), *out = equal_floats(n, 7);
    double *want = malloc(n * sizeof *want + 1), *no_position = malloc(n * sizeof *want + 1);
    double *place = malloc(n * sizeof *want + 1), *first = malloc(n * sizeof *want + 1);
    for (size_t i = 0; i < n; i++) {
        size_t c = i % C, t = i / C % T, r = (size_t)token[i / C];
        want[i] = tokens[r * C + c] + positions[t * C + c];
        no_position[i] = tokens[r * C + c];
        place[i] = tokens[t % V * C + c] + positions[t * C + c];
        first[i] = tokens[(size_t)token[i / C % T] * C + c] + positions[t * C + c];
    }
    embed_forward(out, token, tokens, positions, B, T, C);
    expect_array("out", out, want, B * T, C, 0,
                 (Mistake[]){{no_position, "the row of the place is missing"},
                             {place, "the token's row was taken by its place, not by its number"},
                             {first, "all sequences have the tokens of the first one"}}, 3);
}

TEST(forward, 2, "out is the row of the token plus the row of its place")
{
    expect_forward(copied((int32_t[]){4, 0, 2}, 3), 1, 3, 4, 5, 1);
}

TEST(batch, 1, "two sequences")
{
    expect_forward(copied((int32_t[]){4, 0, 2, 1, 1, 3}, 6), 2, 3, 2, 5, 2);
}

TEST(backward, 2, "the gradients of both tables, each token once")
{
    expect_backward(copied((int32_t[]){4, 0, 2}, 3), 1, 3, 4, 5, 0, 3);
}

TEST(repeated, 2, "a token that occurs again, in two sequences")
{
    expect_backward(copied((int32_t[]){1, 3, 1, 3, 1, 0}, 6), 2, 3, 2, 5, 0, 4);
}

#include "../hidden.h"

static int32_t *random_tokens(size_t n, size_t V, uint64_t seed)
{
    int32_t *x = malloc(n * sizeof *x + 1);
    for (size_t i = 0; i < n; i++) x[i] = (int32_t)random_below(&seed, V);
    return x;
}

TEST(accumulates, 1, "gradients are added to what is there, and other rows keep their bits")
{
    expect_backward(random_tokens(12, 5, 5), 3, 4, 3, 7, 2.5f, 5); // tokens 5 and 6 do not occur
}

TEST(many, 1, "300 tokens of a vocabulary of 11, and 400 of a single token")
{
    expect_forward(random_tokens(300, 11, 6), 20, 15, 9, 11, 6);
    expect_backward(random_tokens(300, 11, 6), 20, 15, 9, 11, 0, 7);
    expect_backward(random_tokens(400, 1, 8), 4, 100, 2, 1, 0, 8);
}

TEST(edges, 1, "one token, one channel, the last row of the table")
{
    expect_forward(copied((int32_t[]){99}, 1), 1, 1, 1, 100, 9);
    expect_backward(copied((int32_t[]){99}, 1), 1, 1, 1, 100, 1, 10);
}
