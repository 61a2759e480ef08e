#define GRADE_HIDDEN
#include "../grade.h"

#include "flash.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

// tests.c
Flash flash_of(float *q, size_t R, size_t D, size_t first_query, float scale);
void flash_hand_over(Flash *f, const float *k, const float *v, size_t first, size_t n);
void flash_expected(double *out, double *lse, const Flash *f, const float *k, const float *v, size_t T);

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

// AddressSanitizer keeps freed memory for a while: little of it, or scratch that is freed would count as kept.
__attribute__((weak)) const char *__asan_default_options(void)
{
    return "quarantine_size_mb=1:thread_local_quarantine_size_kb=64";
}

static double megabytes(void) // of memory in use
{
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld %ld", &all, &resident) != 2) fail("the grader cannot read /proc/self/statm");
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
