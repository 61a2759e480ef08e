#define GRADE_HIDDEN
#include "tests.c" // its functions, not its tests

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
