#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
