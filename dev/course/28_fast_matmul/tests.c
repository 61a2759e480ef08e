#include "../grade.h"

#include "fast.h"

#include <stdio.h>
#include <stdlib.h>

// Compares with the product in double, and knows what common mistakes would give.
void judge_product(int m, int n, int k)
{
    size_t rows = (size_t)m, cols = (size_t)n, deep = (size_t)k;
    float *a = random_floats(rows * deep, 1), *b = random_floats(deep * cols, 2), *out = random_floats(rows * cols, 3);
    double *want = calloc(rows * cols, sizeof *want), *added = calloc(rows * cols, sizeof *added);
    double *turned = calloc(rows * cols, sizeof *turned);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            size_t at = r * cols + c;
            for (size_t i = 0; i < deep; i++) want[at] += (double)a[r * deep + i] * b[i * cols + c];
            for (size_t i = 0; i < deep; i++) turned[at] += (double)a[r * deep + i] * b[c * deep + i];
            added[at] = want[at] + out[at];
        }
    fast_matmul(out, a, b, m, n, k);
    char what[80];
    snprintf(what, sizeof what, "(%d, %d) times (%d, %d)", m, k, k, n);
    expect_array(what, out, want, rows, cols, 1e-6 * (k + 1),
                 (Mistake[]){{added, "what was in out before was added to"},
                             {turned, "b was read as (n, k), which is its transpose; it is (k, n)"}}, 2);
    free(a), free(b), free(out), free(want), free(added), free(turned);
}

TEST(small, 2, "(3, 4) times (4, 5)") { judge_product(3, 5, 4); }
TEST(square, 1, "(64, 64) times (64, 64)") { judge_product(64, 64, 64); }
TEST(odd, 2, "sizes that no tile divides: (19, 35) times (35, 37)") { judge_product(19, 37, 35); }
