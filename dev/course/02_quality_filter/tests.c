#include "../grade.h"

#include "quality.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *s;
    size_t n;
} Text;

static void add(Text *t, const char *s, size_t times)
{
    size_t n = strlen(s);
    t->s = realloc(t->s, t->n + n * times + 1);
    if (!t->s) fail("the grader has no memory");
    for (; times-- > 0; t->n += n) memcpy(t->s + t->n, s, n);
}

// n words of five letters, ten in a line; every line is another one. They have no stop word.
static void add_words(Text *t, size_t n, const char *before_line, const char *after_line)
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
static Text good(size_t n)
{
    Text t = {0};
    add_words(&t, n - 2, "", "");
    add(&t, "the of\n", 1);
    return t;
}

static void expect_rule(Text t, Rule want, const char *what)
{
    static const char *const name[] = {"KEPT", "WORDS", "WORD_LENGTH", "HASHES", "ELLIPSES", "BULLETS",
                                       "ELLIPSIS_LINES", "LETTER_WORDS", "STOP_WORDS", "REPEATED_LINES"};
    char *exact = calloc(t.n ? t.n : 1, 1); // exact room for AddressSanitizer
    if (t.n) memcpy(exact, t.s, t.n);
    Rule got = broken_rule(exact, t.n);
    expect((unsigned)got <= REPEATED_LINES, "%s: expected %s, got %d, which is no rule", what, name[want], (int)got);
    expect(got == want, "%s: expected %s, got %s", what, name[want], name[got]);
}

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

#include "../hidden.h"

static Text with(const char *words)
{
    Text t = {0};
    add_words(&t, 60, "", ""), add(&t, words, 1);
    return t;
}

TEST(stop_words, 1, "two different stop words, in any case, with signs around them")
{
    expect_rule(with("(The end), he said, \"OF!\""), KEPT, "60 words and: (The end), he said, \"OF!\"");
    expect_rule(with("the the the"), STOP_WORDS, "60 words and: the the the (one stop word, three times)");
    expect_rule(with("then ofter the beto"), STOP_WORDS, "60 words and: then ofter the beto (only \"the\" is one)");
    expect_rule(with("have that"), KEPT, "60 words and: have that");
    expect_rule(with("and\twith"), KEPT, "60 words and, with a tab between them: and with");
    expect_rule(with("Be To"), KEPT, "60 words and: Be To");
    expect_rule(with("... the"), STOP_WORDS, "60 words and: ... the");
}

TEST(repeated, 1, "lines that are equal to an earlier one; blank lines are none")
{
    Text t = {0};
    add_words(&t, 60, "", ""), add(&t, "the of\n", 1), add(&t, "\n \n", 9), add(&t, "again words\n", 4);
    expect_rule(t, KEPT, "11 lines, 3 of them repeated, and 18 blank ones");
    add(&t, "  again words \n", 1), add(&t, "\n", 40);
    expect_rule(t, REPEATED_LINES, "12 lines, 4 of them repeated (one with blanks around it), and 58 blank ones");
}

TEST(order, 1, "of several broken rules the first one is the answer")
{
    Text t = {0};
    add(&t, "#... ", 49);
    expect_rule(t, WORDS, "49 times \"#...\", which breaks six rules");
    add(&t, "#... ", 1);
    expect_rule(t, HASHES, "50 times \"#...\" (no letters, no stop words)");
    t = (Text){0};
    add(&t, "- 1234...\n", 60);
    expect_rule(t, ELLIPSES, "60 equal lines with a bullet and an ellipsis");
    t = (Text){0};
    add(&t, "- 123\n", 60);
    expect_rule(t, WORD_LENGTH, "60 lines \"- 123\": mean length 2");
    t = (Text){0};
    add(&t, "- 12345\n", 60);
    expect_rule(t, BULLETS, "60 lines \"- 12345\", which breaks BULLETS and all that follow but one");
}

TEST(sizes, 1, "no text, only blanks, 100,000 words and one more")
{
    expect_rule((Text){0}, WORDS, "no text");
    Text t = {0};
    add(&t, " \n\t", 5);
    expect_rule(t, WORDS, "only white space");
    t = (Text){0};
    add(&t, "the of ", 20000), add(&t, "words ", 60000);
    expect_rule(t, KEPT, "100,000 words in one line");
    add(&t, "more", 1);
    expect_rule(t, WORDS, "100,001 words");
}
