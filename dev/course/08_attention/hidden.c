#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
