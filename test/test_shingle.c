// test_shingle: normalization, n-grams and exact Jaccard, against results by hand and a naive twin on strings.
#include "test/test.h"

#include "base/rng.h"
#include "data/prep/shingle.h"

#include <xxhash.h>

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
