#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
