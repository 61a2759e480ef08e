// test_minhash: signatures against a naive twin, agreement against Jaccard, candidates against the S-curve, the choice
// of bands.
#include "test/test.h"

#include "data/prep/minhash.h"
#include "base/rng.h"
#include "dedup_case.h"

enum { PERMUTATIONS = 128, GRAMS = 100, PAIRS = 10000 };

TEST(test_signature)
{
    uint64_t gram[300];
    uint32_t signature[MINHASH_MAX + 1];
    for (uint64_t i = 0; i < 300; i++) gram[i] = rng_u64(rng_make(1, "gram", 0), i);
    const size_t sizes[] = {1, 15, 16, 31, 64, 65, 117, 128, 1000, MINHASH_MAX};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        MinHash m = minhash_make(sizes[k], 9), more = minhash_make(MINHASH_MAX, 9);
        for (size_t n_grams = 0; n_grams <= 300; n_grams += 1 + 23 * n_grams) {
            signature[sizes[k]] = 12345;
            minhash_signature(&m, gram, n_grams, signature);
            assert_int_equal(signature[sizes[k]], 12345); // not a number further
            for (size_t p = 0; p < sizes[k]; p++) {
                uint32_t least = UINT32_MAX;
                for (size_t i = 0; i < n_grams; i++) {
                    uint32_t image = (uint32_t)((uint64_t)m.a[p] * (gram[i] & 0xffffffff) + m.b[p]);
                    if (image < least) least = image;
                }
                assert_int_equal(signature[p], least);
                assert_int_equal(m.a[p] & 1, 1); // a bijection
                assert_true(m.a[p] == more.a[p] && m.b[p] == more.b[p]);
            }
        }
    }
}

// Two sets of GRAMS numbers each, `changed` of them different: J = (GRAMS - changed) / (GRAMS + changed).
static void two_sets(uint64_t *a, uint64_t *b, uint32_t pair, size_t changed)
{
    Rng rng = rng_make(pair, "sets", (uint32_t)changed);
    for (uint64_t i = 0; i < GRAMS; i++) {
        a[i] = rng_u64(rng, i);
        b[i] = i < changed ? rng_u64(rng, i + GRAMS) : a[i];
    }
}

static double jaccard(size_t changed)
{
    return (double)(GRAMS - changed) / (double)(GRAMS + changed);
}

TEST(test_curve_is_followed)
{
    MinHash m = minhash_make(PERMUTATIONS, 3);
    const MinHashBands bands[] = {{9, 13}, {25, 5}, {1, 2}};
    const size_t changed[] = {0, 3, 8, 11, 14, 22, 33, 60};
    for (size_t c = 0; c < sizeof changed / sizeof *changed; c++) {
        double s = jaccard(changed[c]), agree = 0, found[3] = {0};
        for (uint32_t pair = 0; pair < PAIRS; pair++) {
            uint64_t a[GRAMS], b[GRAMS], key[2][PERMUTATIONS];
            uint32_t x[PERMUTATIONS], y[PERMUTATIONS];
            two_sets(a, b, pair, changed[c]);
            minhash_signature(&m, a, GRAMS, x);
            minhash_signature(&m, b, GRAMS, y);
            for (int k = 0; k < PERMUTATIONS; k++) agree += (double)(x[k] == y[k]) / PERMUTATIONS / PAIRS;
            for (int i = 0; i < 3; i++) {
                int same = 0;
                minhash_keys(bands[i], x, key[0]);
                minhash_keys(bands[i], y, key[1]);
                for (size_t k = 0; k < bands[i].bands; k++) same |= key[0][k] == key[1][k];
                found[i] += (double)same / PAIRS;
            }
        }
        assert_true(fabs(agree - s) <= bound(s, PAIRS)); // without supposing that permutations are independent
        for (int i = 0; i < 3; i++) {
            double p = minhash_curve(bands[i], s), off = fabs(found[i] - p);
            if (!(off <= bound(p, PAIRS)))
                fail_msg("%zu bands of %zu at %.3f: %.4f, the curve is at %.4f", bands[i].bands, bands[i].rows, s,
                         found[i], p);
            assert_true(bound(p, PAIRS) <= 0.0206);
        }
    }
}

// Bands are told apart: the same numbers in two bands give two keys.
TEST(test_keys)
{
    uint32_t signature[6] = {1, 2, 1, 2, 2, 1};
    uint64_t key[3], other[3];
    minhash_keys((MinHashBands){3, 2}, signature, key);
    assert_true(key[0] != key[1] && key[1] != key[2] && key[0] != key[2]);
    signature[5] = 7;
    minhash_keys((MinHashBands){3, 2}, signature, other);
    assert_true(key[0] == other[0] && key[1] == other[1] && key[2] != other[2]);
}

// What datasketch 2.0's _optimal_param chooses with weights of a half (dev/reference/check_dedup.py compares more).
TEST(test_bands)
{
    const struct { size_t n_perm; double threshold; size_t bands, rows; } known[] = {
        {128, 0.5, 25, 5}, {128, 0.7, 14, 9}, {128, 0.8, 9, 13}, {128, 0.9, 5, 25}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        MinHashBands b = minhash_bands(known[i].n_perm, known[i].threshold);
        assert_int_equal(b.bands, known[i].bands);
        assert_int_equal(b.rows, known[i].rows);
    }
    MinHashBands one = minhash_bands(1, 0.8);
    assert_true(one.bands == 1 && one.rows == 1);
    // One row: 1 - (1 - s)^b has the integral s + (1 - s)^(b + 1) / (b + 1). Simpson's rule with 512 parts is off by
    // max |f''''| h^4 / 180, and f'''' = b (b - 1) (b - 2) (b - 3) (1 - s)^(b - 4) is at most b^4.
    for (size_t b = 1; b <= 16; b++) {
        double t = 0.6, below = t - (1 - pow(1 - t, (double)b + 1)) / ((double)b + 1);
        double above = pow(1 - t, (double)b + 1) / ((double)b + 1), h = 1.0 / 512;
        double tolerance = pow((double)b * h, 4) / 180 + 1e-12;
        assert_true(fabs(minhash_false_positive_area((MinHashBands){b, 1}, t) - below) <= tolerance);
        assert_true(fabs(minhash_false_negative_area((MinHashBands){b, 1}, t) - above) <= tolerance);
    }
    assert_true(minhash_curve((MinHashBands){9, 13}, 0) == 0 && minhash_curve((MinHashBands){9, 13}, 1) == 1);
}

TESTS(NULL, NULL)
