// The grammar engine, on grammars so small that every text and its probability can be written down.
#include "data/stories/grammar.h"

#include "test/test.h"

#include "expect_die.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct {
    const char *text;
    double p;
    int derivations;
} Row;

// Scores every text of the table, whose probabilities must add up to 1; then draws N texts: only these
// come, as often as they should, and the mean of what the writer reports is the entropy of its derivations.
static void check_language(const GrammarRule *rules, size_t n_rules, const Row *rows, size_t n_rows,
                           double entropy)
{
    enum { N = 20000 };
    Grammar *g = grammar_load(rules, n_rules);
    double total = 0, sum = 0, squares = 0;
    size_t *seen = zeroed(n_rows * sizeof *seen);
    for (size_t i = 0; i < n_rows; i++) {
        GrammarScore score = grammar_score(g, rows[i].text, strlen(rows[i].text));
        assert_int_equal(score.derivations, rows[i].derivations);
        // Fewer than 10 choices and merges, each rounded to half an ulp of a number below 8.
        assert_true(fabs(score.nats + log(rows[i].p)) <= 20 * 8 * 1.2e-16);
        total += exp(-score.nats);
    }
    assert_true(fabs(total - 1) <= 1e-13);
    GrammarText text = {0};
    for (uint64_t i = 0; i < N; i++) {
        grammar_write(g, 42, i, &text);
        size_t r = 0;
        while (r < n_rows && (strlen(rows[r].text) != text.n_bytes ||
                              memcmp(rows[r].text, text.bytes, text.n_bytes)))
            r++;
        if (r == n_rows) fail_msg("not a text of the table: %.*s", (int)text.n_bytes, text.bytes);
        seen[r]++;
        sum += text.nats;
        squares += text.nats * text.nats;
    }
    for (size_t i = 0; i < n_rows; i++) // five standard deviations of a binomial count
        assert_true(fabs((double)seen[i] - N * rows[i].p) <= 5 * sqrt(N * rows[i].p * (1 - rows[i].p)));
    double mean = sum / N, error = sqrt(fmax(squares / N - mean * mean, 0) / N);
    assert_true(fabs(mean - entropy) <= 5 * error + 1e-12);
    free(text.bytes);
    free(seen);
    grammar_free(g);
}

TEST(test_weights_and_ambiguity)
{
    const GrammarRule rules[] = {{"s", "[part][part]."}, {"part", "a | 3* aa"}};
    const Row rows[] = {{"aa.", 1. / 16, 1}, {"aaa.", 6. / 16, 2}, {"aaaa.", 9. / 16, 1}};
    double h = -2 * (0.25 * log(0.25) + 0.75 * log(0.75)); // of the derivations: more than that of the texts
    check_language(rules, COUNT(rules), rows, COUNT(rows), h);
}

TEST(test_memory_and_forms)
{
    const GrammarRule rules[] = {
        {"s", "[hero=name] saw [friend=hero.other]. “Hi,” said [friend.he] to [hero.him]."},
        {"name", "[girl]|[boy]"}, {"girl", "Ann|Eve"},     {"boy", "Bob"},         {"other.girl", "[boy]"},
        {"other.boy", "[girl]"},  {"he.girl", "she"},      {"he.boy", "he"},       {"him", "them"},
        {"him.girl", "her"},
    };
    const Row rows[] = {
        {"Ann saw Bob. \"Hi,\" said he to her.", 1. / 3, 1},    // three names, equally likely
        {"Eve saw Bob. \"Hi,\" said he to her.", 1. / 3, 1},
        {"Bob saw Ann. \"Hi,\" said she to them.", 1. / 6, 1},
        {"Bob saw Eve. \"Hi,\" said she to them.", 1. / 6, 1},
    };
    check_language(rules, COUNT(rules), rows, COUNT(rows), log(3) + log(2) / 3);
    Grammar *g = grammar_load(rules, COUNT(rules));
    assert_int_equal(grammar_score(g, "Ann saw Bob. \"Hi,\" said she to her.", 36).derivations, 0);
    assert_int_equal(grammar_score(g, "", 0).derivations, 0);
    grammar_free(g);
}

// Two names never hold one word; articles and capitals fit.
TEST(test_no_word_twice)
{
    const GrammarRule rules[] = {
        {"s", "[A] [x=pet] and [a] [y=pet]. [X]!_[more]"},
        {"pet", "owl|cat|unicorn"},
        {"more", "|Yes."}, // nothing, or a word
    };
    const Row rows[] = {
        {"An owl and a cat. Owl! ", 1. / 12, 1},
        {"An owl and a cat. Owl! Yes.", 1. / 12, 1},
        {"An owl and a unicorn. Owl! ", 1. / 12, 1},
        {"An owl and a unicorn. Owl! Yes.", 1. / 12, 1},
        {"A cat and an owl. Cat! ", 1. / 12, 1},
        {"A cat and an owl. Cat! Yes.", 1. / 12, 1},
        {"A cat and a unicorn. Cat! ", 1. / 12, 1},
        {"A cat and a unicorn. Cat! Yes.", 1. / 12, 1},
        {"A unicorn and a cat. Unicorn! ", 1. / 12, 1},
        {"A unicorn and a cat. Unicorn! Yes.", 1. / 12, 1},
        {"A unicorn and an owl. Unicorn! ", 1. / 12, 1},
        {"A unicorn and an owl. Unicorn! Yes.", 1. / 12, 1},
    };
    check_language(rules, COUNT(rules), rows, COUNT(rows), log(12));
    Grammar *g = grammar_load(rules, COUNT(rules));
    assert_int_equal(grammar_score(g, "An owl and an owl. Owl! ", 24).derivations, 0);
    assert_int_equal(grammar_score(g, "A owl and a cat. Owl! ", 22).derivations, 0);
    grammar_free(g);
}

typedef struct {
    GrammarRule rules[4];
    size_t n;
    const char *words;
} Bad;

static int load_and_write(void *arg)
{
    const Bad *bad = arg;
    Grammar *g = grammar_load(bad->rules, bad->n);
    GrammarText text = {0};
    grammar_write(g, 1, 1, &text);
    free(text.bytes);
    grammar_free(g);
    return 0;
}

TEST(test_errors)
{
    Bad bad[] = {
        {{{"s", "[x]"}}, 1, "rule s: [x]: no rule x"},
        {{{"s", "[s2]"}, {"s2", "b[s]"}}, 2, "contains itself"},
        {{{"s", "[w]"}, {"w", "a"}, {"w", "b"}}, 3, "rule w: given twice"},
        {{{"s", "[w]."}, {"w", "a|b|a"}}, 2, "rule w: a: given twice"},
        {{{"s", "[w]."}, {"w", "[v]|b"}, {"v", "a|b"}}, 3, "rule w: b: given twice"},
        {{{"s", "[w"}, {"w", "a"}}, 2, "no ]"},
        {{{"s", "[]"}}, 1, "a name of 1 to"},
        {{{"s", "[x=w]"}, {"w", "a [v]"}, {"v", "b"}}, 3, "x= needs a word list"},
        {{{"s", "[x=w] [y=x]"}, {"w", "a"}}, 2, "y= needs a word list"},
        {{{"s", "[x=w] [y=x.f]"}, {"w", "a"}, {"f.w", "b [w]"}}, 3, "y= needs a word list"},
        {{{"s", "[w=w]"}, {"w", "a"}}, 2, "both a rule and a remembered word"},
        {{{"s", "[x.f]"}, {"f", "a"}}, 2, "nothing is remembered as x"},
        {{{"s", "[x=w]"}, {"w", "a"}, {"f.v", "b"}, {"t", "[x.f]"}}, 4, "rule f.v: no rule v"},
        {{{"s", "a|b"}}, 1, "the first rule needs one alternative"},
        {{{"s", "[x] [x=w]"}, {"w", "a"}}, 2, "[x] comes before it is chosen"},
        {{{"s", "[x=w] [x.f]"}, {"w", "a"}}, 2, "no rule f.w"},
        {{{"s", "[x=w] [y=w]"}, {"w", "a"}}, 2, "every word is in use"},
    };
    for (size_t i = 0; i < COUNT(bad); i++) expect_die(load_and_write, &bad[i], bad[i].words);
}

TESTS(NULL, NULL)
