// Tests of rng: Philox's published vectors, the map from (seed, name, step, index) to key and counter, the
// distributions against bounds derived from their own variances, and rng_permute as a bijection.
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/test.h"

// Known answers of philox4x32 with 10 rounds, from the Random123 distribution (tests/kat_vectors). The
// counter's words are c0, c1 = index; c2 = step; c3 = name; the key's are k0, k1 = seed, low word first.
TEST(test_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
        double normal; // sqrt(-2 ln u) cos(2 pi v) of these words, computed apart in Python
    } row[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}, -0.39766753844418223},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}, -1.4784526040750408},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}, 0.6586447690473304},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Rng rng = {.seed = (uint64_t)row[i].key[1] << 32 | row[i].key[0], .step = row[i].counter[2],
                   .name = row[i].counter[3]};
        uint32_t out[4];
        rng_words(rng, (uint64_t)row[i].counter[1] << 32 | row[i].counter[0], out);
        assert_memory_equal(out, row[i].out, sizeof out);
        // The first two words are rng_u64, low word first; its top 53 bits are rng_uniform.
        uint64_t index = (uint64_t)row[i].counter[1] << 32 | row[i].counter[0];
        uint64_t bits = (uint64_t)row[i].out[1] << 32 | row[i].out[0];
        assert_true(rng_u64(rng, index) == bits);
        assert_true(rng_uniform(rng, index) == ldexp((double)(bits >> 11), -53));
        // log, sqrt, cos and the angle err by about an ulp each; the angle's (< 2 pi) counts absolutely: 16 u
        // is ample.
        assert_true(fabs(rng_normal(rng, index) - row[i].normal) <= 16 * 0x1p-53 * 2);
    }
}

// Many counters at once are the same words: any number of them, also where the counter's upper half changes.
TEST(test_many)
{
    Rng rng = rng_make(0x123456789abcdef0u, "many", 3);
    static const uint64_t from[] = {0, 5, 0xfffffff9u, UINT64_MAX - 200};
    for (size_t f = 0; f < 4; f++)
        for (size_t n = 0; n < 70; n++) {
            uint32_t out[4 * 70 + 1] = {0}, one[4];
            rng_words_many(rng, from[f], n, out);
            for (size_t i = 0; i < n; i++) {
                rng_words(rng, from[f] + i, one);
                assert_memory_equal(out + 4 * i, one, sizeof one);
            }
            assert_int_equal(out[4 * n], 0); // and nothing behind them
        }
}

// The hash of the name is FNV-1a, 32 bits (its published values for "", "a" and "foobar"): checkpoints'
// random streams depend on it, so it may never change.
TEST(test_make)
{
    assert_true(rng_make(1, "", 0).name == 0x811c9dc5u);
    assert_true(rng_make(1, "a", 0).name == 0xe40c292cu);
    assert_true(rng_make(1, "foobar", 0).name == 0xbf9cf968u);
    Rng rng = rng_make(0x123456789abcdef0u, "a", 77);
    assert_true(rng.seed == 0x123456789abcdef0u && rng.step == 77);
}

// Each of the four arguments changes the number.
TEST(test_arguments_matter)
{
    uint64_t base = rng_u64(rng_make(1, "data", 0), 0);
    assert_true(base == rng_u64(rng_make(1, "data", 0), 0));
    assert_true(base != rng_u64(rng_make(2, "data", 0), 0));
    assert_true(base != rng_u64(rng_make(1ull << 32 | 1, "data", 0), 0));
    assert_true(base != rng_u64(rng_make(1, "datb", 0), 0));
    assert_true(base != rng_u64(rng_make(1, "data", 1), 0));
    assert_true(base != rng_u64(rng_make(1, "data", 0), 1));
    assert_true(base != rng_u64(rng_make(1, "data", 0), 1ull << 32));
}

// The mean of n independent draws of variance s^2 is within 6 s / sqrt(n) of the truth but for 2e-9 of all
// seeds.
static void assert_mean(double sum, double n, double mean, double variance)
{
    double diff = fabs(sum / n - mean), bound = 6 * sqrt(variance / n);
    assert_true(diff <= bound);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Kolmogorov-Smirnov: P(sqrt(n) sup|F_n - F| > t) <= 2 exp(-2 t^2) (Massart); t = 3.2 gives 2.6e-9. x holds
// F(draw).
static void assert_uniform(double *x, size_t n)
{
    qsort(x, n, sizeof *x, compare_doubles);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        double above = (double)(i + 1) / (double)n - x[i], below = x[i] - (double)i / (double)n;
        worst = fmax(worst, fmax(above, below));
    }
    assert_true(worst * sqrt((double)n) <= 3.2);
}

enum { DRAWS = 100000 };

TEST(test_uniform)
{
    Rng rng = rng_make(1, "uniform", 0);
    double *x = malloc(DRAWS * sizeof *x), sum = 0, product = 0;
    assert_non_null(x);
    for (size_t i = 0; i < DRAWS; i++) {
        x[i] = rng_uniform(rng, i);
        assert_true(x[i] >= 0 && x[i] < 1);
        sum += x[i];
        // Neighbours are uncorrelated: their product has mean 0 and variance 1/144.
        if (i) product += (x[i] - 0.5) * (x[i - 1] - 0.5);
    }
    assert_mean(sum, DRAWS, 0.5, 1.0 / 12);
    assert_mean(product, DRAWS - 1, 0, 1.0 / 144);
    assert_uniform(x, DRAWS);
    free(x);
}

// Every bit of the 64 is set half of the time.
TEST(test_bits)
{
    Rng rng = rng_make(2, "bits", 0);
    double ones[64] = {0};
    for (size_t i = 0; i < DRAWS; i++) {
        uint64_t bits = rng_u64(rng, i);
        for (int b = 0; b < 64; b++) ones[b] += bits >> b & 1;
    }
    for (int b = 0; b < 64; b++) assert_mean(ones[b], DRAWS, 0.5, 0.25);
}

// Moments of the standard normal: E x = 0, E x^2 = 1 (variance 2), E x^3 = 0 (15), E x^4 = 3 (96); then its
// whole shape.
TEST(test_normal)
{
    Rng rng = rng_make(3, "normal", 9);
    double *x = malloc(DRAWS * sizeof *x), moment[4] = {0};
    assert_non_null(x);
    for (size_t i = 0; i < DRAWS; i++) {
        double z = rng_normal(rng, i);
        assert_true(isfinite(z));
        moment[0] += z, moment[1] += z * z, moment[2] += z * z * z, moment[3] += z * z * z * z;
        x[i] = 0.5 * erfc(-z / sqrt(2));
    }
    assert_mean(moment[0], DRAWS, 0, 1);
    assert_mean(moment[1], DRAWS, 1, 2);
    assert_mean(moment[2], DRAWS, 0, 15);
    assert_mean(moment[3], DRAWS, 3, 96);
    assert_uniform(x, DRAWS);
    free(x);
}

TEST(test_below)
{
    Rng rng = rng_make(4, "below", 0);
    enum { SIDES = 7 };
    double seen[SIDES] = {0};
    for (size_t i = 0; i < DRAWS; i++) {
        uint64_t side = rng_below(rng, i, SIDES);
        assert_true(side < SIDES);
        seen[side]++;
    }
    for (int s = 0; s < SIDES; s++) assert_mean(seen[s], DRAWS, 1.0 / SIDES, 1.0 / SIDES * (1 - 1.0 / SIDES));
    for (size_t i = 0; i < 100; i++) assert_true(rng_below(rng, i, 1) == 0);
    uint64_t most = 0; // the whole range is reached: 64 draws all in the lower half have chance 2^-64
    for (size_t i = 0; i < 64; i++) {
        uint64_t drawn = rng_below(rng, i, UINT64_MAX);
        if (drawn > most) most = drawn;
    }
    assert_true(most > UINT64_MAX / 2);
}

// Every value of [0, n) is hit exactly once.
TEST(test_permute_is_a_bijection)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        uint64_t n = sizes[s];
        for (uint32_t step = 0; step < 3; step++) {
            Rng rng = rng_make(5, "epoch", step);
            unsigned char *hit = zeroed(n * 1);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t image = rng_permute(rng, i, n);
                assert_true(image < n);
                assert_int_equal(hit[image], 0);
                hit[image] = 1;
            }
            free(hit);
        }
    }
}

// Sizes too large to list: images stay in range and a sample of them has no repetition (it would break the
// bijection).
TEST(test_permute_large)
{
    static const uint64_t sizes[] = {65537, 1000000007, (1ull << 32) + 1, 1ull << 62, (1ull << 62) + 1,
                                     UINT64_MAX};
    enum { SAMPLE = 2000 };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        double *image = malloc(SAMPLE * sizeof *image), sum = 0;
        uint64_t *exact = malloc(SAMPLE * sizeof *exact);
        assert_non_null(image);
        assert_non_null(exact);
        for (size_t i = 0; i < SAMPLE; i++) {
            exact[i] = rng_permute(rng_make(6, "epoch", 0), i, sizes[s]);
            assert_true(exact[i] < sizes[s]);
            image[i] = (double)exact[i] / (double)sizes[s];
            sum += image[i];
            for (size_t j = 0; j < i; j++) assert_true(exact[j] != exact[i]);
        }
        assert_mean(sum, SAMPLE, 0.5, 1.0 / 12); // the first indices spread over the whole range
        assert_uniform(image, SAMPLE);
        free(image);
        free(exact);
    }
}

// An epoch's order is neither the identity nor the last epoch's: of n values, the number left in place by a
// random permutation has mean 1 and variance 1, so 10 has a chance below 1e-6.
TEST(test_permute_differs_by_epoch)
{
    enum { N = 1000 };
    int same_as_index = 0, same_as_other = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t a = rng_permute(rng_make(7, "epoch", 0), i, N);
        uint64_t b = rng_permute(rng_make(7, "epoch", 1), i, N);
        same_as_index += a == i;
        same_as_other += a == b;
    }
    assert_true(same_as_index < 10);
    assert_true(same_as_other < 10);
}

// Images computed apart, by a Python version of Philox and the network: the order of a run's data may never
// change.
TEST(test_permute_known_answers)
{
    static const uint64_t small[] = {450, 284, 296, 41}, large[] = {410876919372, 374121262799, 47148423955};
    Rng first = rng_make(7, "epoch", 0), second = rng_make(7, "epoch", 1);
    for (uint64_t i = 0; i < 4; i++) assert_true(rng_permute(first, i, 1000) == small[i]);
    for (uint64_t i = 0; i < 3; i++) assert_true(rng_permute(second, i, 1000000000000) == large[i]);
}

TESTS(NULL, NULL)
