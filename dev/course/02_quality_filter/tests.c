// Texts that are made of counted words come first; hidden.c uses them too.
#include "../grade.h"

#include "quality.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *s;
    size_t n;
} Text;

static inline void add(Text *t, const char *s, size_t times)
{
    size_t n = strlen(s);
    t->s = realloc(t->s, t->n + n * times + 1);
    if (!t->s) fail("the grader has no memory");
    for (; times-- > 0; t->n += n) memcpy(t->s + t->n, s, n);
}

// n words of five letters, ten in a line; every line is another one. They have no stop word.
static inline void add_words(Text *t, size_t n, const char *before_line, const char *after_line)
{
    for (size_t i = 0; i < n; i++) {
        char first[] = {(char)('a' + i / 10 % 26), (char)('a' + i / 260 % 26), 'q', 'q', 'u', 0};
        if (i % 10 == 0) add(t, before_line, 1);
        add(t, i % 10 ? "words" : first, 1);
        if (i % 10 == 9 || i + 1 == n) add(t, after_line, 1);
        add(t, i % 10 == 9 || i + 1 == n ? "\n" : " ", 1);
    }
}

// n words, "the" and "of" among them.
static inline Text good(size_t n)
{
    Text t = {0};
    add_words(&t, n - 2, "", "");
    add(&t, "the of\n", 1);
    return t;
}

static inline void expect_rule(Text t, Rule want, const char *what)
{
    static const char *const name[] = {"KEPT", "WORDS", "WORD_LENGTH", "HASHES", "ELLIPSES", "BULLETS",
                                       "ELLIPSIS_LINES", "LETTER_WORDS", "STOP_WORDS", "REPEATED_LINES"};
    char *exact = calloc(t.n ? t.n : 1, 1); // exact room for AddressSanitizer
    if (t.n) memcpy(exact, t.s, t.n);
    Rule got = broken_rule(exact, t.n);
    expect((unsigned)got <= REPEATED_LINES, "%s: expected %s, got %d, which is no rule", what, name[want], (int)got);
    expect(got == want, "%s: expected %s, got %s", what, name[want], name[got]);
}

#ifndef GRADE_HIDDEN
TEST(words, 2, "the number of words, and their mean length")
{
    expect_rule(good(60), KEPT, "60 words that break no rule");
    expect_rule(good(50), KEPT, "50 words, just enough");
    expect_rule(good(49), WORDS, "49 words, one too few");
    Text t = good(50);
    add(&t, "abc ", 200), add(&t, "\n", 1), add(&t, "xx ", 92); // 5 * 48 + 3 + 2 = 245, 845 + 184 = 1029 of 342
    expect_rule(t, KEPT, "342 words of 3.009 characters");
    add(&t, "x ", 2);
    expect_rule(t, WORD_LENGTH, "344 words of 2.997 characters");
    t = (Text){0};
    add(&t, "elevenchars ", 60);
    expect_rule(t, WORD_LENGTH, "60 words of 11 characters");
}

TEST(symbols, 2, "'#' and ellipses a word")
{
    Text t = good(60);
    add(&t, "some#other#words#are#tied ", 1), add(&t, "no#tags#are ", 1);
    expect_rule(t, KEPT, "62 words with 6 '#', 0.097 a word");
    add(&t, "one#more ", 1);
    expect_rule(t, HASHES, "63 words with 7 '#', 0.111 a word");
    t = good(44);
    add(&t, "wait... wait...... wait...... wait...... wait...... wait... ", 1);
    expect_rule(t, ELLIPSES, "50 words with 6 ellipses");
    t = good(45);
    add(&t, "wait...... wait...... wait...... wait...... wait...... ", 1);
    expect_rule(t, KEPT, "50 words with 5 ellipses of six dots (dots in a row count once)");
}

TEST(lines, 1, "lines that begin with a bullet or end with an ellipsis")
{
    Text t = {0};
    add_words(&t, 90, "- ", ""), add(&t, "the of\n", 1);
    expect_rule(t, KEPT, "9 of 10 lines begin with '-', just few enough");
    t = (Text){0};
    add_words(&t, 100, "  * ", ""), add(&t, "* the of\n", 1);
    expect_rule(t, BULLETS, "all 11 lines begin with '*' after blanks");
    t = (Text){0};
    add_words(&t, 30, "", "..."), add_words(&t, 70, "a", ""), add(&t, "the of\n", 1);
    expect_rule(t, KEPT, "3 of 11 lines end with an ellipsis");
    t = (Text){0};
    add_words(&t, 40, "", "...  "), add_words(&t, 60, "a", ""), add(&t, "the of\n", 1);
    expect_rule(t, ELLIPSIS_LINES, "4 of 11 lines end with an ellipsis and blanks");
}

TEST(letters, 1, "words with a letter")
{
    Text t = good(80);
    add(&t, "12345 ", 19), add(&t, "(9+9)", 1);
    expect_rule(t, KEPT, "80 of 100 words have a letter, just enough");
    add(&t, " 1,000", 1);
    expect_rule(t, LETTER_WORDS, "80 of 101 words have a letter");
}
#endif
