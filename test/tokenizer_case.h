// tokenizer_case: what the tests of tokenizers share. Include it after cmocka and temp_dir.h.
#ifndef TEST_TOKENIZER_CASE_H
#define TEST_TOKENIZER_CASE_H
#include "tokenizer/tokenizer.h"

OWNER(Tokenizer, tokenizer_free)

static inline Tokenizer *train(const char *text, size_t n, int vocab, const char *pattern)
{
    TokenizerTrainer *trainer = tokenizer_trainer_new(pattern);
    tokenizer_trainer_add(trainer, text, n);
    return tokenizer_trainer_finish(trainer, vocab);
}

static inline void expect_ids(Tokenizer *t, const char *text, size_t n_text, const int32_t *want, size_t n)
{
    for (int round = 0; round < 2; round++) { // the second comes from the cache
        ENDED(token_ids_free) TokenIds ids = {0};
        tokenizer_encode(t, text, n_text, &ids);
        if (ids.n != n || (n && memcmp(ids.id, want, n * sizeof *want) != 0)) {
            for (size_t i = 0; i < ids.n; i++) print_message("%d ", ids.id[i]);
            fail_msg("'%.*s' gives the ids above, %zu expected", (int)n_text, text, n);
        }
    }
}

#define IDS(t, text, ...)                                                                \
    do {                                                                                 \
        const int32_t want[] = {0, __VA_ARGS__};                                         \
        expect_ids(t, text, sizeof text - 1, want + 1, sizeof want / sizeof *want - 1);  \
    } while (0)

// Encodes, decodes, compares.
static inline void expect_round_trip(Tokenizer *t, const char *text, size_t n)
{
    ENDED(token_ids_free) TokenIds ids = {0};
    tokenizer_encode_texts(t, &(TokenizerText){text, n}, 1, 2, &ids, NULL);
    size_t at = 0;
    for (size_t i = 0; i < ids.n; i++) {
        size_t k;
        const char *bytes = tokenizer_decode(t, ids.id[i], &k);
        assert_true(at + k <= n);
        assert_memory_equal(text + at, bytes, k);
        at += k;
        assert_int_equal(tokenizer_text_bytes(t, ids.id[i]), k);
        assert_int_not_equal(ids.id[i], tokenizer_eot(t));
    }
    assert_int_equal(at, n);
}

// Both give a text the same ids.
static inline void expect_same(Tokenizer *a, Tokenizer *b, const char *text, size_t n)
{
    ENDED(token_ids_free) TokenIds ids = {0};
    assert_int_equal(tokenizer_vocab_size(a), tokenizer_vocab_size(b));
    assert_int_equal(tokenizer_eot(a), tokenizer_eot(b));
    assert_string_equal(tokenizer_pattern(a), tokenizer_pattern(b));
    tokenizer_encode(a, text, n, &ids);
    expect_ids(b, text, n, ids.id, ids.n);
}

// Saves and loads.
static inline Tokenizer *again(Tokenizer *t)
{
    tokenizer_save(t, dir);
    tokenizer_free(t);
    return tokenizer_load(dir);
}

// The block for a tokenizer, and for the one that its files give.
#define TWICE(t, made) \
    for (Tokenizer *t = (made), *last = NULL; t; t = last ? (tokenizer_free(t), NULL) : (last = again(t)))
#endif
