// test_screen: the two shares on parts whose counts are known, thresholds from both sides, and what is masked.
#include "test/test.h"

#include "base/rng.h"
#include "text/screen.h"

enum { EOT = 256, T = 64 }; // the tokenizer's bytes are tokens 0 to 255

// The bytes alone, and end-of-text: a text without a pair.
static Tokenizer *bytes_alone(void)
{
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, "a", 1);
    Tokenizer *t = tokenizer_trainer_finish(trainer, 257);
    assert_int_equal(tokenizer_eot(t), EOT);
    return t;
}

static int32_t byte_token(const Tokenizer *t, unsigned char byte)
{
    for (int32_t i = 0; i < 256; i++) {
        size_t n;
        if ((unsigned char)*tokenizer_decode(t, i, &n) == byte) return i;
    }
    fail_msg("no token for byte %d", byte);
    return -1;
}

// Every pair of equal 4-grams, by comparing all.
static double repeat_naive(const int32_t *token, size_t n)
{
    size_t repeated = 0;
    if (n < 4) return 0;
    for (size_t i = 0; i + 4 <= n; i++) {
        size_t j = 0;
        while (j < i && memcmp(token + j, token + i, 4 * sizeof *token) != 0) j++;
        repeated += j < i;
    }
    return (double)repeated / (double)(n - 3);
}

TEST(test_repeat)
{
    Screen *s = screen_new(0.5, 1, T, NULL);
    const int32_t once[] = {1, 2, 3, 4, 5, 6, 7, 8}, twice[] = {1, 2, 3, 4, 1, 2, 3, 4}, same[T] = {0};
    assert_true(screen_repeat(s, once, 8) == 0);
    assert_true(screen_repeat(s, once, 3) == 0);
    assert_true(screen_repeat(s, twice, 8) == 1.0 / 5); // 1234 2341 3412 4123 1234
    assert_true(screen_repeat(s, same, T) == (T - 4.0) / (T - 3.0));
    int32_t token[T];
    for (uint32_t i = 0; i < 300; i++) { // few different tokens, so 4-grams repeat, and slots collide
        Rng rng = rng_make(7, "screen", i);
        size_t n = 1 + rng_below(rng, 0, T);
        for (size_t k = 0; k < n; k++) token[k] = (int32_t)rng_below(rng, 1 + k, 3);
        assert_true(screen_repeat(s, token, n) == repeat_naive(token, n));
    }
    screen_free(s);
}

TEST(test_broken)
{
    Tokenizer *t = bytes_alone();
    Screen *s = screen_new(1, 0.5, T, t);
    int32_t a = byte_token(t, 'a'), ef = byte_token(t, 0xEF), bf = byte_token(t, 0xBF), bd = byte_token(t, 0xBD);
    const int32_t good[] = {EOT, a, a, a}, one[] = {EOT, a, ef, bf, bd, a}, again[] = {ef, ef, bf, bd, ef, bf, a, bd};
    assert_true(screen_broken(s, good, 4) == 0);
    assert_true(screen_broken(s, good, 1) == 0); // no text
    assert_true(screen_broken(s, one, 6) == 3.0 / 5);
    assert_true(screen_broken(s, again, 8) == 3.0 / 8); // the second begins anew; the last is cut
    screen_free(s);
    tokenizer_free(t);
}

// Three parts: the end of a document, one of whose three 4-grams one repeats, and one that does not repeat.
TEST(test_masks_parts)
{
    Tokenizer *t = bytes_alone();
    const int32_t token[] = {9, 8, 7, EOT, 1, 1, 1, 1, 1, EOT, 1, 2, 3, 4};
    enum { N = sizeof token / sizeof *token };
    for (int above = 0; above < 2; above++) {
        double share = 1.0 / 3; // E111 1111 1111
        Screen *s = screen_new(above ? share : share - 1e-9, 1, T, t);
        assert_true(screen_repeat(s, token + 3, 6) == share);
        int32_t target[N];
        for (int i = 0; i < N; i++) target[i] = 100 + i;
        target[5] = -1; // not counted twice
        assert_int_equal(screen_sequence(s, token, N, target), above ? 0 : 5);
        for (int i = 0; i < N; i++) {
            bool masked = i == 5 || (!above && i >= 3 && i < 9);
            assert_int_equal(target[i], masked ? -1 : 100 + i);
        }
        screen_free(s);
    }
    // Without a tokenizer there is one part: 11 4-grams, of which 1111 repeats.
    Screen *s = screen_new(0.05, 1, T, NULL);
    int32_t target[N] = {0};
    assert_true(screen_repeat(s, token, N) == 1.0 / 11);
    assert_int_equal(screen_sequence(s, token, N, target), N);
    screen_free(s);
    tokenizer_free(t);
}

TESTS(NULL, NULL)
