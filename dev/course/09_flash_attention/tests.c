#include "../grade.h"

#include "flash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// R queries q at first_query, first_query + 1, ... The state's arrays have exactly the size that the header says.
static Flash flash_of(float *q, size_t R, size_t D, size_t first_query, float scale)
{
    return (Flash){R, D, first_query, scale, q, equal_floats(R, NAN), equal_floats(R, NAN), equal_floats(R * D, NAN)};
}

// Hands over keys first .. first + n - 1 of k and v as a tile of its own, which is freed.
static void flash_hand_over(Flash *f, const float *k, const float *v, size_t first, size_t n)
{
    size_t bytes = n * f->D * sizeof *k;
    float *k_tile = malloc(bytes), *v_tile = malloc(bytes);
    memcpy(k_tile, k + first * f->D, bytes), memcpy(v_tile, v + first * f->D, bytes);
    flash_tile(f, k_tile, v_tile, first, n);
    for (size_t i = 0; i < n * f->D; i++) k_tile[i] = v_tile[i] = NAN;
    free(k_tile), free(v_tile);
}

// All scores at once, in double.
static void flash_expected(double *out, double *lse, const Flash *f, const float *k, const float *v, size_t T)
{
    for (size_t r = 0; r < f->R; r++) {
        double total = 0, top = -INFINITY, *p = malloc(T * sizeof *p);
        for (size_t j = 0; j < T && j <= f->first_query + r; j++) {
            p[j] = 0;
            for (size_t i = 0; i < f->D; i++) p[j] += (double)f->q[r * f->D + i] * k[j * f->D + i] * f->scale;
            top = fmax(top, p[j]);
        }
        for (size_t i = 0; i < f->D; i++) out[r * f->D + i] = 0;
        for (size_t j = 0; j < T && j <= f->first_query + r; j++) total += exp(p[j] - top);
        for (size_t j = 0; j < T && j <= f->first_query + r; j++)
            for (size_t i = 0; i < f->D; i++) out[r * f->D + i] += exp(p[j] - top) / total * v[j * f->D + i];
        lse[r] = top + log(total);
        free(p);
    }
}

// Two keys with probabilities 1/4 and 3/4, and values (4, 8) and (0, 4): out = (1, 5).
static float q2[2] = {2, 0}, k2[4] = {0, 5, 0, 5}, v2[4] = {4, 8, 0, 4}, two_lse[1];

static Flash two_keys(size_t n)
{
    k2[2] = logf(3);
    Flash f = flash_of(q2, 1, 2, 1, 0.5f);
    flash_start(&f);
    for (size_t j = 0; j < 2; j += n) flash_hand_over(&f, k2, v2, j, n);
    flash_finish(&f, two_lse);
    return f;
}

TEST(one_tile, 4, "two keys in one tile")
{
    Flash f = two_keys(2);
    expect_array("out of probabilities (1/4, 3/4) and values (4, 8), (0, 4)", f.out, (double[]){1, 5}, 1, 2, 1e-5,
                 (Mistake[]){{(double[]){4. / 3, 20. / 3}, "not divided by the sum of the exponentials"},
                             {(double[]){4, 20}, "not divided by the sum of the exponentials"},
                             {(double[]){.4, 4.4}, "the scores are not multiplied by scale"},
                             {(double[]){2, 6}, "the plain mean: all probabilities are equal"}}, 4);
    double no_max = log(4. / 3), no_log = log(3) + 4. / 3;
    expect_number("lse", two_lse[0], log(4), 1e-5,
                  (Mistake[]){{&no_max, "log of the sum alone; the maximum is missing"},
                              {&no_log, "the logarithm is missing"}}, 2);
}

TEST(two_tiles, 4, "the same two keys, each in a tile of its own")
{
    Flash f = two_keys(1);
    expect_array("out of probabilities (1/4, 3/4) and values (4, 8), (0, 4)", f.out, (double[]){1, 5}, 1, 2, 1e-5,
                 (Mistake[]){{(double[]){3, 9}, "out was not rescaled when the maximum rose"},
                             {(double[]){2, 6}, "nothing was rescaled when the maximum rose"},
                             {(double[]){2. / 3, 10. / 3}, "the sum was not rescaled when the maximum rose"},
                             {(double[]){3, 7}, "rescaled by exp(new - old) in place of exp(old - new)"},
                             {(double[]){0, 4}, "only the last tile counts"}}, 5);
    expect_number("lse", two_lse[0], log(4), 1e-5, NULL, 0);
}

TEST(causal, 4, "a query sees the keys up to its own position")
{
    float q[3] = {0}, k[3] = {0}, v[3] = {1, 3, 8}, lse[3];
    Flash f = flash_of(q, 3, 1, 0, 1), late = flash_of(q, 2, 1, 1, 1);
    flash_start(&f);
    flash_hand_over(&f, k, v, 0, 2), flash_hand_over(&f, k, v, 2, 1);
    flash_finish(&f, lse);
    expect_array("equal scores, values 1, 3, 8, queries at positions 0, 1, 2", f.out, (double[]){1, 2, 4}, 3, 1, 1e-5,
                 (Mistake[]){{(double[]){4, 4, 4}, "there is no mask"},
                             {(double[]){2, 4, 4}, "a query sees the key after it"},
                             {(double[]){NAN, 1, 2}, "a query does not see the key at its own position"},
                             {(double[]){4.5, 4, 4},
                              "first_key was left out: key j of a tile is not key j of the text"}}, 4);
    flash_start(&late);
    flash_hand_over(&late, k, v, 0, 2), flash_hand_over(&late, k, v, 2, 1);
    flash_finish(&late, lse);
    expect_array("the same with queries at positions 1, 2", late.out, (double[]){2, 4}, 2, 1, 1e-5,
                 (Mistake[]){{(double[]){1, 2}, "first_query was left out"}}, 1);
}

TEST(random_tiles, 2, "random queries and keys in tiles of 1, 16 and 20")
{
    enum { T = 37, R = 5, D = 8 };
    float *q = random_floats(R * D, 1), *k = random_floats(T * D, 2), *v = random_floats(T * D, 3), lse[R];
    double out[R * D], want[R];
    Flash f = flash_of(q, R, D, T - R, 2);
    flash_start(&f);
    flash_hand_over(&f, k, v, 0, 1), flash_hand_over(&f, k, v, 1, 16), flash_hand_over(&f, k, v, 17, 20);
    flash_finish(&f, lse);
    flash_expected(out, want, &f, k, v, T);
    expect_array("out", f.out, out, R, D, 1e-5, NULL, 0);
    expect_array("lse", lse, want, R, 1, 1e-5, NULL, 0);
}

#include "../hidden.h"

#include <stdio.h>
#include <unistd.h>

TEST(any_order, 2, "tiles from the last to the first: a query sees no key of the first tiles")
{
    enum { T = 24, TILE = 4, D = 3 };
    float *q = random_floats(T * D, 1), *k = random_floats(T * D, 2), *v = random_floats(T * D, 3), lse[T];
    double out[T * D], want[T];
    Flash f = flash_of(q, T, D, 0, 1);
    flash_start(&f);
    for (size_t first = T; first > 0; first -= TILE) flash_hand_over(&f, k, v, first - TILE, TILE);
    flash_finish(&f, lse);
    flash_expected(out, want, &f, k, v, T);
    for (size_t i = 0; i < T * D; i++)
        expect(!isnan(f.out[i]), "out is NaN: the first tile holds no key that this query sees, and -infinity minus "
               "-infinity is NaN");
    expect_array("out", f.out, out, T, D, 1e-5, NULL, 0);
    expect_array("lse", lse, want, T, 1, 1e-5, NULL, 0);
}

TEST(large, 2, "scores of several hundred, rising and falling")
{
    enum { T = 5 };
    float q[1] = {1}, k[T] = {-400, -399, 500, 501, -400}, v[T] = {1, 2, 3, 4, 5}, lse[1];
    double p = exp(-1) / (1 + exp(-1));
    for (size_t tile = 1; tile <= T; tile += 4) {
        Flash f = flash_of(q, 1, 1, T - 1, 1);
        flash_start(&f);
        for (size_t j = 0; j < T; j += tile) flash_hand_over(&f, k, v, j, tile);
        flash_finish(&f, lse);
        expect(isfinite(f.out[0]), "scores -400, -399, 500, 501, -400: out is %g: an exponent is above 0, or all are "
               "far below: subtract the largest score of all tiles so far", (double)f.out[0]);
        expect_number("out of scores -400, -399, 500, 501, -400 and values 1 .. 5", f.out[0], 3 * p + 4 * (1 - p), 1e-5,
                      NULL, 0);
        expect_number("lse of these", lse[0], 501 - log(1 - p), 1e-6, NULL, 0);
    }
    float low[1] = {-400};
    Flash f = flash_of(q, 1, 1, 0, 1);
    flash_start(&f), flash_hand_over(&f, low, v, 0, 1), flash_finish(&f, lse);
    expect(isfinite(f.out[0]), "one key with score -400: out is %g: the largest score is not 0, it is -400",
           (double)f.out[0]);
    expect_number("out of one key with score -400 and value 1", f.out[0], 1, 1e-5, NULL, 0);
}

static double megabytes(void) // of memory in use by the answer's process
{
    long all = 0, resident = 0;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/statm", grade_answer());
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2) fail("the grader cannot read %s", path);
    fclose(f);
    return (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6;
}

TEST(memory, 2, "two million keys: the memory does not grow with them")
{
    enum { TILE = 512, TILES = 4096, FIRST = 256 }; // from FIRST on nothing may grow
    float q[1] = {1}, lse[1], *k = equal_floats(TILE, 0), *v = equal_floats(TILE, 1);
    Flash f = flash_of(q, 1, 1, (size_t)TILE * TILES, 1);
    double before = 0;
    flash_start(&f);
    for (size_t t = 0; t < TILES; t++) {
        for (int i = 0; i < TILE; i++) v[i] = i % 2 ? 3 : 1;
        flash_tile(&f, k, v, t * TILE, TILE);
        for (int i = 0; i < TILE; i++) v[i] = NAN;
        if (t == FIRST) before = megabytes();
    }
    double more = megabytes() - before;
    expect(more < 4, "the memory grew by %.1f MB over 2 million keys: scores or tiles are stored", more);
    flash_finish(&f, lse);
    expect_number("out of 2 million equal scores and values 1, 3, 1, 3, ...", f.out[0], 2, 1e-4, NULL, 0);
    expect_number("lse", lse[0], log(TILE * TILES), 1e-5, NULL, 0);
}
