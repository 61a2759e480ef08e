// test_minhash: signatures against a naive twin, agreement against Jaccard, candidates against the S-curve, the choice
// of bands; and n-grams and exact Jaccard.
#include "test/test.h"

#include "data/prep/minhash.h"
#include "base/rng.h"
#include "dedup_case.h"
#include "data/prep/shingle.h"

#include <xxhash.h>

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

// ---- shingle: normalization, n-grams and exact Jaccard, against results by hand and a naive twin on strings.

static void normalizes_to(const char *text, size_t n, const char *expected, size_t n_words)
{
    Shingles s = {0};
    shingle_normalize(&s, text, n);
    assert_int_equal(s.n_text, strlen(expected));
    assert_memory_equal(s.n_text ? s.text : "", expected, s.n_text);
    assert_int_equal(s.n_words, n_words);
    for (size_t i = 0; i < n_words; i++) { // words are what stands between blanks
        assert_true(s.word[i] == 0 || s.text[s.word[i] - 1] == ' ');
        assert_true(s.word[i + 1] - 1 == s.n_text || s.text[s.word[i + 1] - 1] == ' ');
        assert_null(memchr(s.text + s.word[i], ' ', s.word[i + 1] - 1 - s.word[i]));
    }
    Shingles again = {0};
    if (s.n_text) { // once is enough
        shingle_normalize(&again, s.text, s.n_text);
        assert_int_equal(again.n_text, s.n_text);
        assert_memory_equal(again.text, s.text, s.n_text);
    }
    shingle_free(&again);
    shingle_free(&s);
}

TEST(test_normalize)
{
    normalizes_to("", 0, "", 0);
    normalizes_to(NULL, 0, "", 0);
    normalizes_to(" \t\n\v\f\r ", 7, "", 0);
    normalizes_to("A", 1, "a", 1);
    normalizes_to("  The CAT,\n\n sat\ton it.  ", 25, "the cat, sat on it.", 5);
    normalizes_to("@[`{AZaz", 8, "@[`{azaz", 1); // the neighbours of A to Z
    normalizes_to("\xc3\x89t\xc3\xa9 \xc2\xa0 x", 10, "\xc3\x89t\xc3\xa9 \xc2\xa0 x", 3); // beyond ASCII: as it is
    normalizes_to("\x1c\x1f \x08", 4, "\x1c\x1f \x08", 2); // other control characters are no white space
    normalizes_to("\xff\xfe", 2, "\xff\xfe", 1);
    // Han, Kana, Thai and a Han character of 4 bytes are words; Hangul has spaces; what is cut off is as it is.
    normalizes_to("a\xe4\xb8\xad\xe3\x81\x82", 7, "a \xe4\xb8\xad \xe3\x81\x82", 3);
    normalizes_to("\xe0\xb8\x81\xf0\xa0\x80\x80", 7, "\xe0\xb8\x81 \xf0\xa0\x80\x80", 2);
    normalizes_to("\xea\xb0\x80\xea\xb0\x81 \xe4\xb8", 9, "\xea\xb0\x80\xea\xb0\x81 \xe4\xb8", 2);
}

// Long texts of all bytes, among them words of one letter as dense as they come: what a twin that cuts at strings' ends
// makes of them.
TEST(test_long_texts)
{
    Rng rng = rng_make(1, "normalize", 0);
    enum { LONGEST = 3 * 4096 };
    char *text = malloc(LONGEST), *expected = malloc(LONGEST + 2);
    for (uint64_t k = 0; k < 300; k++) {
        size_t n = (size_t)(4096 * (1 + k % 3)) - k % 7, n_words = 0, at = 0;
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = rng_u64(rng, k * LONGEST + i);
            bool blank = k % 4 == 0   ? i % 2 == k % 8 / 4
                         : k % 4 == 1 ? bits % 3 == 0
                         : k % 4 == 2 ? bits % 40 == 0
                                      : i > n / 2;
            bits >>= 32;
            text[i] = blank ? " \t\n\v\f\r"[bits % 6] : (char)(33 + bits % 190); // none of the six; no Han
        }
        for (size_t i = 0, inside = 0; i < n; i++) {
            bool blank = strchr(" \t\n\v\f\r", text[i]) != NULL;
            if (!blank && !inside && n_words++) expected[at++] = ' ';
            if (!blank) expected[at++] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]);
            inside = !blank;
        }
        expected[at] = 0;
        normalizes_to(text, n, expected, n_words);
    }
    free(text), free(expected);
}

TEST(test_grams)
{
    Shingles s = {0};
    const char *text = "One two  THREE one two three one";
    shingle_normalize(&s, text, strlen(text));
    shingle_hash(&s, 3);
    const char *gram[] = {"one two three", "two three one", "three one two", "one two three", "two three one"};
    assert_int_equal(s.n_grams, 5);
    for (int i = 0; i < 5; i++) assert_true(s.gram[i] == XXH3_64bits(gram[i], strlen(gram[i])));
    shingle_set(&s);
    assert_int_equal(s.n_grams, 3);
    assert_true(s.gram[0] < s.gram[1] && s.gram[1] < s.gram[2]);
    shingle_hash(&s, 7); // as many words as there are: all of it
    assert_int_equal(s.n_grams, 1);
    uint64_t whole = s.gram[0];
    shingle_hash(&s, 8); // more: all of it too
    assert_int_equal(s.n_grams, 1);
    assert_true(s.gram[0] == whole && whole == XXH3_64bits(s.text, s.n_text));
    shingle_make(&s, "  ", 2, 1);
    assert_int_equal(s.n_grams, 0);
    shingle_free(&s);
}

// |A and B| / |A or B| with n-grams as strings, every one against every other.
typedef struct {
    char gram[200][120];
    size_t n;
} Strings;

static void strings_of(Strings *out, const char *text, size_t n)
{
    char copy[4000], *word[200];
    size_t n_words = 0;
    strcpy(copy, text);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) word[n_words++] = w;
    out->n = 0;
    size_t length = n_words < n ? n_words : n;
    for (size_t i = 0; n_words && i + length <= n_words; i++) {
        char gram[120] = "";
        for (size_t k = 0; k < length; k++) strcat(strcat(gram, k ? " " : ""), word[i + k]);
        bool known = false;
        for (size_t k = 0; k < out->n; k++) known |= !strcmp(out->gram[k], gram);
        if (!known) strcpy(out->gram[out->n++], gram);
    }
}

static double naive_jaccard(const char *a, const char *b, size_t n)
{
    static Strings x, y;
    size_t both = 0;
    strings_of(&x, a, n);
    strings_of(&y, b, n);
    for (size_t i = 0; i < x.n; i++)
        for (size_t k = 0; k < y.n; k++) both += !strcmp(x.gram[i], y.gram[k]);
    return x.n + y.n ? (double)both / (double)(x.n + y.n - both) : 1;
}

// Texts of 0 to 99 words out of 4, so that grams repeat and overlap. The counts are the same integers: ==.
TEST(test_jaccard)
{
    Shingles a = {0}, b = {0};
    double least = 1, most = 0;
    for (uint32_t round = 0; round < 300; round++) {
        char text[2][4000] = {"", ""};
        size_t n = 1 + round % 4;
        for (uint32_t side = 0; side < 2; side++) {
            Rng rng = rng_make(round, "jaccard", side);
            uint64_t n_words = rng_below(rng, 1000, 100);
            const char *word[] = {"a ", "bb ", "ccc ", "a' "};
            for (uint64_t i = 0; i < n_words; i++) strcat(text[side], word[rng_below(rng, i, 2 + round % 3)]);
        }
        shingle_make(&a, text[0], strlen(text[0]), n);
        shingle_make(&b, text[1], strlen(text[1]), n);
        double got = shingle_jaccard(a.gram, a.n_grams, b.gram, b.n_grams);
        assert_true(got == naive_jaccard(text[0], text[1], n));
        assert_true(got == shingle_jaccard(b.gram, b.n_grams, a.gram, a.n_grams));
        assert_true(shingle_jaccard(a.gram, a.n_grams, a.gram, a.n_grams) == 1);
        if (got < least) least = got;
        if (got > most && got < 1) most = got;
    }
    assert_true(least < 0.1 && most > 0.7); // the cases are no trivial ones
    shingle_free(&a);
    shingle_free(&b);
}

TESTS(NULL, NULL)
