#include "../grade.h"

#include "flash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// R queries q at first_query, first_query + 1, ... The state's arrays have exactly the size that the header says.
Flash flash_of(float *q, size_t R, size_t D, size_t first_query, float scale)
{
    return (Flash){R, D, first_query, scale, q, equal_floats(R, NAN), equal_floats(R, NAN), equal_floats(R * D, NAN)};
}

// Hands over keys first .. first + n - 1 of k and v as a tile of its own, which is freed.
void flash_hand_over(Flash *f, const float *k, const float *v, size_t first, size_t n)
{
    size_t bytes = n * f->D * sizeof *k;
    float *k_tile = malloc(bytes), *v_tile = malloc(bytes);
    memcpy(k_tile, k + first * f->D, bytes), memcpy(v_tile, v + first * f->D, bytes);
    flash_tile(f, k_tile, v_tile, first, n);
    for (size_t i = 0; i < n * f->D; i++) k_tile[i] = v_tile[i] = NAN;
    free(k_tile), free(v_tile);
}

// All scores at once, in double.
void flash_expected(double *out, double *lse, const Flash *f, const float *k, const float *v, size_t T)
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
