#include "../grade.h"

#include "fast.h"

#include <stdio.h>
#include <stdlib.h>

// Compares with the product in double, and knows what common mistakes would give.
static void judge_product(int m, int n, int k)
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

#include "../hidden.h"

#include <math.h>
#include <time.h>

TEST(thin, 2, "vectors: m, n or k of 1")
{
    judge_product(1, 1, 1);
    judge_product(1, 40, 70);
    judge_product(50, 1, 3);
    judge_product(33, 34, 1);
}

TEST(other_sizes, 1, "other sizes: (65, 47) times (47, 33) and (15, 130) times (130, 17)")
{
    judge_product(65, 33, 47);
    judge_product(15, 17, 130);
}

// What the answer is compared with: the element by its definition. Compiled as the answer is.
static void three_loops(float *out, const float *a, const float *b, int m, int n, int k)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            float sum = 0;
            for (int i = 0; i < k; i++) sum += a[r * k + i] * b[i * n + c];
            out[r * n + c] = sum;
        }
}

static double seconds(void (*matmul)(float *, const float *, const float *, int, int, int), float *out, const float *a,
                      const float *b, int n)
{
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    matmul(out, a, b, n, n, n);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

// For the leaderboard. The two take turns, and the shortest time of each counts, so a busy machine changes the ratio
// little. No points are for it.
TEST(large, 2, "(192, 192) times (192, 192), against three loops")
{
    enum { N = 192, TURNS = 5 };
    float *a = random_floats(N * N, 4), *b = random_floats(N * N, 5), *own = random_floats(N * N, 6);
    float *out = random_floats(N * N, 7);
    double best = INFINITY, plain = INFINITY;
    judge_product(N, N, N);
    for (int i = 0; i < TURNS; i++) {
        plain = fmin(plain, seconds(three_loops, own, a, b, N));
        best = fmin(best, seconds(fast_matmul, out, a, b, N));
    }
    for (int i = 0; i < N * N; i++)
        expect(fabsf(out[i] - own[i]) <= 1e-6f * (N + 1), "element %d of a timed product is %g, not %g", i, out[i], own[i]);
    grade_measured(plain / fmax(best, 1e-9));
}
