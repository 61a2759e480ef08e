#define GRADE_HIDDEN
#include "../grade.h"

#include "fast.h"

#include <math.h>
#include <time.h>

void judge_product(int m, int n, int k); // of tests.c

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
