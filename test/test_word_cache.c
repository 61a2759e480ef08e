// Tests of word_cache: a lookup gives what was stored, or nothing if it was evicted, and nothing for other words.

#include "test/test.h"

#include "tokenizer/word_cache.h"

enum { MOST_IDS = 30 };

// The ids of a word here: 1 to MOST_IDS of them, another list for every word.
static size_t ids_of(const char *word, size_t n, int32_t *id)
{
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < n; i++) sum = (sum ^ (uint8_t)word[i]) * 16777619u;
    size_t n_ids = 1 + sum % MOST_IDS;
    for (size_t i = 0; i < n_ids; i++) id[i] = (int32_t)((sum >> 4) + 3 * i + n);
    return n_ids;
}

// Asks as tokenizer.c does; puts the word there when it is missing. Returns whether it was known.
static bool ask(WordCache *cache, const char *word, size_t n, size_t n_readable)
{
    int32_t want[MOST_IDS];
    size_t n_want = ids_of(word, n, want);
    TokenIds out = {0};
    token_ids_push(&out, 77); // appended to what is there
    WordLook look;
    word_cache_look(cache, &look, word, n, n_readable);
    word_cache_look_again(cache, &look);
    bool known = word_cache_get(cache, &look, &out);
    assert_int_equal(out.id[0], 77);
    assert_int_equal(out.n, known ? 1 + n_want : 1);
    if (known) assert_memory_equal(out.id + 1, want, n_want * sizeof *want);
    else word_cache_put(cache, &look, want, n_want);
    token_ids_free(&out);
    return known;
}

// All lengths, read with and without text behind; words that differ only in zero bytes at the end, in the first byte,
// in the last one.
TEST(test_lengths)
{
    enum { N = 80, KEPT = 64 };
    WordCache cache = {0};
    char text[N + 64];
    for (int kind = 0; kind < 4; kind++)
        for (size_t n = 1; n <= N; n++) {
            memset(text, kind == 0 ? 0 : 'x', sizeof text);
            if (kind == 2) text[0] = 'y';
            if (kind == 3) text[n - 1] = 'y';
            bool seen = kind == 3 && n == 1; // "y", of kind 2
            assert_int_equal(ask(&cache, text, n, n), seen);
            memset(text + n, '!', sizeof text - n); // not a part of the word
            assert_int_equal(ask(&cache, text, n, sizeof text), n <= KEPT);
            char *alone = malloc(n); // nothing may be read behind it
            assert_non_null(alone);
            memcpy(alone, text, n);
            assert_int_equal(ask(&cache, alone, n, n), n <= KEPT);
            free(alone);
        }
    word_cache_free(&cache);
}

// More words than lines: a word that another one has pushed out of the front is known all the same. More than the table
// holds: it forgets, and is right about those that come back.
TEST(test_forgetting)
{
    enum { FEW = 200000, MANY = (1 << 20) + 5 };
    WordCache cache = {0};
    char word[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < FEW; i++) {
            size_t n = (size_t)snprintf(word, sizeof word, "%d", i * 7);
            assert_int_equal(ask(&cache, word, n, sizeof word), round);
        }
    int known = 0;
    for (int i = FEW; i < MANY; i++) {
        size_t n = (size_t)snprintf(word, sizeof word, "%d", i * 7);
        assert_false(ask(&cache, word, n, sizeof word));
    }
    for (int i = 0; i < FEW; i++) {
        size_t n = (size_t)snprintf(word, sizeof word, "%d", i * 7);
        known += ask(&cache, word, n, sizeof word);
    }
    assert_in_range(known, 0, FEW / 2);
    word_cache_free(&cache);
}

// Words looked at together, as tokenizer.c does: the same twice, and one that takes a line between look and get.
TEST(test_together)
{
    enum { WORDS = 150000, AHEAD = 16 };
    static char word[WORDS][8];
    WordCache cache = {0};
    TokenIds out = {0};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < WORDS; i += AHEAD) {
            WordLook look[AHEAD];
            int32_t want[MOST_IDS];
            int k_end = WORDS - i < AHEAD ? WORDS - i : AHEAD;
            for (int k = 0; k < k_end; k++) {
                size_t n = (size_t)snprintf(word[i + k], sizeof word[0], "%d", (i + k) * 13 % (k % 2 ? 40000 : 99991));
                word_cache_look(&cache, &look[k], word[i + k], n, 8);
            }
            for (int k = 0; k < k_end; k++) word_cache_look_again(&cache, &look[k]);
            for (int k = 0; k < k_end; k++) {
                out.n = 0;
                size_t n_want = ids_of(look[k].bytes, look[k].n, want);
                if (!word_cache_get(&cache, &look[k], &out)) word_cache_put(&cache, &look[k], want, n_want);
                else {
                    assert_int_equal(out.n, n_want);
                    assert_memory_equal(out.id, want, n_want * sizeof *want);
                }
            }
        }
    token_ids_free(&out);
    word_cache_free(&cache);
}

TESTS(NULL, NULL)
