// test_contamination: documents and examples that share n-grams, against a naive search of strings; short examples,
// repeated n-grams, any number of threads.
#include "test/test.h"

#include "data/prep/contamination.h"
#include "base/rng.h"
#include "dedup_case.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DOCS = 700, EXAMPLES = 60, NGRAM = 3, MAX_WORDS = 40 };

// Texts of words out of 25, as numbers; word w is printed as wW.
typedef struct {
    uint32_t word[DOCS][MAX_WORDS];
    size_t n_words[DOCS], n;
} Words;

static bool read_words(void *arg, size_t i, DedupText *text)
{
    const Words *t = arg;
    dedup_text_room(text, MAX_WORDS * 8);
    text->n_bytes = 0;
    for (size_t k = 0; k < t->n_words[i]; k++)
        text->n_bytes += (size_t)sprintf(text->bytes + text->n_bytes, "W%u%s", t->word[i][k], k % 5 ? " " : " \n");
    return true;
}

static DedupSource source_of(Words *t)
{
    return (DedupSource){t->n, read_words, fail_never, t};
}

static void draw(Words *t, size_t n, uint64_t seed)
{
    Rng rng = rng_make(seed, "words", 0);
    t->n = n;
    for (size_t i = 0; i < n; i++) {
        t->n_words[i] = rng_below(rng, i * 100 + 99, MAX_WORDS);
        if (rng_below(rng, i * 100 + 98, 8) == 0) t->n_words[i] = rng_below(rng, i * 100 + 97, NGRAM);
        for (size_t k = 0; k < t->n_words[i]; k++) t->word[i][k] = (uint32_t)rng_below(rng, i * 100 + k, 25);
    }
}

static bool same_gram(const Words *a, size_t i, size_t x, const Words *b, size_t j, size_t y)
{
    return !memcmp(&a->word[i][x], &b->word[j][y], NGRAM * sizeof(uint32_t));
}

static size_t n_grams(const Words *t, size_t i)
{
    return t->n_words[i] < NGRAM ? 0 : t->n_words[i] - NGRAM + 1;
}

// The first example that has gram x of document i; EXAMPLES: none.
static size_t first_example(const Words *corpus, size_t i, size_t x, const Words *evaluation)
{
    for (size_t e = 0; e < evaluation->n; e++)
        for (size_t y = 0; y < n_grams(evaluation, e); y++)
            if (same_gram(corpus, i, x, evaluation, e, y)) return e;
    return EXAMPLES;
}

TEST(test_against_naive)
{
    static Words corpus, evaluation;
    draw(&corpus, DOCS, 1);
    draw(&evaluation, EXAMPLES, 2);
    DedupSource documents = source_of(&corpus), examples = source_of(&evaluation);
    for (int threads = 1; threads <= 4; threads += 3)
        for (size_t least = 1; least <= 3; least++) {
            ENDED(contamination_free) Contamination c = contamination_find(&documents, &examples,
                                                 (ContaminationOptions){NGRAM, least, threads, NULL});
            size_t next = 0, n_short = 0;
            for (size_t i = 0; i < DOCS; i++) {
                ContaminationHit hit = {.doc = i, .n_grams = n_grams(&corpus, i)};
                for (size_t x = 0; x < hit.n_grams; x++) {
                    size_t e = first_example(&corpus, i, x, &evaluation);
                    if (e < EXAMPLES && !hit.n_found++) hit.example = e, hit.word = x;
                }
                if (hit.n_found < least) continue;
                assert_true(next < c.n_hits);
                assert_memory_equal(&c.hit[next++], &hit, sizeof hit);
            }
            assert_int_equal(next, c.n_hits);
            assert_true(next > DOCS / 20 && next < DOCS * 9 / 10);
            for (size_t e = 0; e < EXAMPLES; e++) {
                size_t different = 0, found = 0;
                n_short += evaluation.n_words[e] < NGRAM;
                for (size_t y = 0; y < n_grams(&evaluation, e); y++) {
                    bool again = false, seen = false;
                    for (size_t z = 0; z < y; z++) again |= same_gram(&evaluation, e, y, &evaluation, e, z);
                    for (size_t i = 0; i < DOCS && !again; i++)
                        for (size_t x = 0; x < n_grams(&corpus, i); x++)
                            seen |= same_gram(&evaluation, e, y, &corpus, i, x);
                    different += !again;
                    found += seen;
                }
                assert_int_equal(c.example_grams[e], different);
                assert_int_equal(c.example_found[e], found);
            }
            assert_int_equal(c.n_short, n_short);
            assert_true(n_short > 0);
        }
}

TEST(test_nothing)
{
    static Words corpus, none;
    draw(&corpus, 20, 1);
    DedupSource documents = source_of(&corpus), empty = source_of(&none);
    ENDED(contamination_free) Contamination c = contamination_find(&documents, &empty, contamination_defaults());
    assert_true(c.n_hits == 0 && c.n_examples == 0 && c.n_docs == 20);
    ENDED(contamination_free) Contamination d = contamination_find(&empty, &documents, contamination_defaults());
    assert_true(d.n_hits == 0 && d.n_examples == 20 && d.n_docs == 0);
    // Short documents and short examples: equal or not, there is no gram of 50 words.
    const ContaminationOptions fifty = {50, 1, 1, NULL};
    ENDED(contamination_free) Contamination e = contamination_find(&documents, &documents, fifty);
    assert_true(e.n_hits == 0 && e.n_short == 20);
}

TESTS(NULL, NULL)
