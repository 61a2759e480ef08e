// test_exact_sum: formats.h's sums of squares, which do not depend on the order.
#include <math.h>
#include "test/test.h"
#include <float.h>

#include "formats/formats.h"
#include "base/rng.h"

enum { N = 100000 };

// Numbers of all sizes: any finite bits, every fourth one near 1.
static float *numbers(void)
{
    float *x = malloc(N * sizeof *x);
    Rng rng = rng_make(7, "numbers", 0);
    assert_non_null(x);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t word[4];
        rng_words(rng, i, word);
        if (i % 4 == 0) word[0] = (word[0] & 0x007fffff) | 0x3f800000;
        memcpy(&x[i], &word[0], sizeof x[i]);
        if (!isfinite(x[i])) x[i] = 1;
    }
    return x;
}

static void assert_same(const ExactSum *a, const ExactSum *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

TEST(test_no_order_matters)
{
    float *x = numbers();
    ExactSum whole = {{0}}, back = {{0}}, parts = {{0}};
    formats_sum_squares(&whole, x, N);
    for (size_t i = 0; i < N; i++) formats_sum_squares(&back, &x[N - 1 - i], 1);
    assert_same(&whole, &back);
    for (size_t i = 0, n = 1; i < N; i += n, n = n * 3 + 1) {
        ExactSum part = {{0}};
        formats_sum_squares(&part, x + i, N - i < n ? N - i : n);
        formats_sum_add(&parts, &part);
    }
    assert_same(&whole, &parts);
    ExactSum words = {{0}};
    for (size_t i = 0; i < N; i += N / 4) { // as an all_reduce adds them
        ExactSum part = {{0}};
        formats_sum_squares(&part, x + i, N / 4);
        for (int w = 0; w < EXACT_WORDS; w++) words.word[w] += part.word[w];
    }
    assert_true(formats_sum_value(&words) == formats_sum_value(&whole));
    free(x);
}

// Small integers: every sum below 2^53 is exact in a double too.
TEST(test_is_the_sum)
{
    ExactSum sum = {{0}};
    assert_true(formats_sum_value(&sum) == 0);
    double expected = 0;
    for (int i = 1; i <= 3000; i++) {
        float x = (float)(i % 2 ? i : -i);
        formats_sum_squares(&sum, &x, 1);
        expected += (double)x * (double)x;
        assert_true(formats_sum_value(&sum) == expected);
    }
}

TEST(test_ends_of_the_range)
{
    float tiny = nextafterf(0, 1), huge = FLT_MAX;
    ExactSum small = {{0}}, large = {{0}}, both = {{0}};
    formats_sum_squares(&small, &tiny, 1);
    assert_true(formats_sum_value(&small) == ldexp(1, -298));
    formats_sum_squares(&large, &huge, 1);
    assert_true(formats_sum_value(&large) == (double)huge * (double)huge);
    float odd = 5 * tiny, square; // all bits of a square's double are there, and none is written below the first limb
    struct { int64_t before; ExactSum sum; } guarded = {.before = 7};
    for (int k = 0; k < 24; k++, odd = 2 * odd + tiny) {
        formats_sum_squares(&guarded.sum, &odd, 1);
        assert_int_equal(guarded.before, 7);
    }
    square = (float)formats_sum_value(&guarded.sum);
    assert_true(square == 0); // too small for fp32
    for (int i = 0; i < 1000; i++) formats_sum_squares(&both, &huge, 1);
    formats_sum_squares(&both, &tiny, 1); // 2^554 smaller, and not lost
    assert_true(memcmp(&both, &large, sizeof both) != 0);
    assert_true(both.word[0] == small.word[0]);
    assert_true(formats_sum_value(&both) == 1000 * ((double)huge * (double)huge));
}

// Against sums in long double: each of n additions rounds by at most 2^-64 of the sum, the result is cut by 2^-52.
TEST(test_near_a_rounded_sum)
{
    Rng rng = rng_make(3, "near", 0);
    float x[1000];
    long double expected = 0;
    ExactSum sum = {{0}};
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t word[4];
        rng_words(rng, i, word);
        x[i] = (float)word[0] / 4294967296.0f - 0.5f;
        expected += (long double)x[i] * (long double)x[i];
    }
    formats_sum_squares(&sum, x, 1000);
    long double error = fabsl((long double)formats_sum_value(&sum) - expected);
    assert_true(error <= expected * (1000 * 0x1p-64L + 0x1p-52L));
}

TEST(test_not_finite)
{
    float bad[] = {1, NAN, 2}, worse[] = {1, INFINITY}, signed_nan[] = {1, copysignf(NAN, -1)}; // 0 * inf on x86
    ExactSum sum = {{0}}, more = {{0}}, fine = {{0}}, third = {{0}};
    formats_sum_squares(&sum, bad, 3);
    assert_true(isnan(formats_sum_value(&sum)));
    formats_sum_squares(&more, worse, 2);
    assert_true(isnan(formats_sum_value(&more)));
    formats_sum_squares(&third, signed_nan, 2);
    assert_true(isnan(formats_sum_value(&third)));
    formats_sum_squares(&fine, bad, 1);
    formats_sum_add(&fine, &sum);
    assert_true(isnan(formats_sum_value(&fine)));
}

TESTS(NULL, NULL)
