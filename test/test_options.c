// test_options: a command line that is read by a table: each kind of value and its limits, what is neither option nor
// value, the options of some commands only, the help, and what is refused with which words.

#include "test/test.h"

#include "tools/options.h"
#include "expect_die.h"
#include "temp_dir.h"

#include <limits.h>

enum { FIRST = 1, SECOND = 2 }; // two commands

static struct {
    bool quiet;
    const char *out;
    OptionList list, words;
    int steps, any, one;
    size_t bytes;
    double rate, share;
} got;

static Option row[] = {
    OPTION(SWITCH, "--quiet", NULL, "prints less", &got.quiet),
    OPTION(TEXT, "--out", "PATH", "where to", &got.out),
    OPTION_HEAD("--input--"),
    OPTION(LIST, "--skip", "NAME", "leaves one out", &got.list),
    OPTION(WORDS, "--from", "FILE...", "reads them", &got.words),
    OPTION(INT, "--steps", "N", "how many", &got.steps, .least = 2, .most = 10, .where = FIRST),
    OPTION(INT, "--any", "N", NULL, &got.any, .where = FIRST | SECOND),
    OPTION(INT, "--one", "N", "at most", &got.one, .most = 1),
    OPTION(SIZE, "--bytes", "N", "a long name of its value", &got.bytes, .least = 3, .where = SECOND),
    OPTION(NUMBER, "--rate", "RATE", "of the rest", &got.rate, .least = 0.5),
    OPTION(NUMBER, "--share", "A_NUMBER_OF_MANY_WORDS", "that is too wide to align by", &got.share, .least = -0.5,
           .most = 0.75),
};
static OptionSet set;
static char *word[20]; // argv
static int n_words;

// Reads a line of words; the rest of them is in word[1] and up.
static size_t read_line(const char *line)
{
    static char copy[300];
    n_words = 0;
    word[n_words++] = "program";
    snprintf(copy, sizeof copy, "%s", line);
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " ")) word[n_words++] = w;
    return options_read(&set, n_words, word);
}

static int set_up(void **state)
{
    free(got.list.word), free(got.words.word);
    memset(&got, 0, sizeof got);
    set = (OptionSet){.program = "try", .usage = "usage: try\n", .row = row, .n = sizeof row / sizeof *row};
    for (size_t i = 0; i < set.n; i++) row[i].given = false;
    return temp_dir_make(state);
}

static int tear_down(void **state)
{
    free(got.list.word), free(got.words.word);
    memset(&got, 0, sizeof got);
    return temp_dir_remove(state);
}

static void expect_words(const OptionList *list, const char *want) // one after another
{
    char got_words[100] = "";
    for (size_t i = 0; i < list->n; i++) strcat(strcat(got_words, list->word[i]), " ");
    assert_string_equal(got_words, want);
}

// Reads the line; these words are left of it.
static void leaves(const char *line, const char *want)
{
    OptionList rest = {.n = read_line(line), .word = (const char **)(word + 1)};
    expect_words(&rest, want);
}

TEST_WITH(test_kinds, set_up, tear_down)
{
    leaves("a --out x --quiet b --skip=p --steps 7 - --skip q --rate 1e3 --share=-0.25", "a b - ");
    assert_true(got.quiet && got.steps == 7 && got.any == 0 && got.rate == 1000 && got.share == -0.25);
    expect_words(&got.list, "p q ");
    expect_words(&got.words, "");
    assert_true(options_given(&set, "--steps") && options_given(&set, "--quiet") && options_given(&set, "--out"));
    assert_false(options_given(&set, "--any") || options_given(&set, "--from") || options_given(&set, "--nope"));
    static const char *const out[][2] = {{"--out x", "x"}, {"--out --quiet", "--quiet"}, // whatever it looks like
                                         {"--out=a=b", "a=b"}, {"--out=", ""}};
    for (int i = 0; i < 4; i++) {
        leaves(out[i][0], "");
        assert_string_equal(got.out, out[i][1]);
    }
}

// Words after an option that takes several are its values, up to the next option.
TEST_WITH(test_words, set_up, tear_down)
{
    leaves("a --from b c - --quiet d --from=e f --skip g h", "a d h ");
    expect_words(&got.words, "b c - e f ");
    expect_words(&got.list, "g ");
}

static int read_it(void *line)
{
    read_line(line);
    return 0;
}

// The line ends with status 2 and "error: try: " and these words.
static void refused(const char *line, const char *words)
{
    char *copy = formatted("%s", line);
    if (!ends_with_error(read_it, copy, 2, formatted("error: try: %s", words), true)) fail_msg("%s", line);
}

TEST_WITH(test_limits, set_up, tear_down)
{
    read_line("--steps 9 --any 0 --bytes 3 --rate 0.5 --share -0.5");
    assert_true(got.steps == 9 && got.any == 0 && got.bytes == 3 && got.rate == 0.5 && got.share == -0.5);
    read_line("--steps 2 --steps=10 --any 2147483647 --one 1 --bytes 18446744073709551615 --rate 1e308 --share 0.75");
    assert_true(got.steps == 10 && got.any == INT_MAX && got.bytes == SIZE_MAX && got.rate == 1e308);
    assert_true(got.share == 0.75 && got.one == 1);
    static const struct {
        const char *option, *limits, *bad[10];
    } rows[] = {
        {"--steps", "a whole number from 2 to 10",
         {"1", "11", "-3", "+3", "3x", "x", "3.0", ":", "99999999999999999999999", "4294967299"}},
        {"--any", "a whole number from 0 to 2147483647", {"2147483648"}},
        {"--bytes", "a whole number of 3 or more", {"2", "18446744073709551616"}},
        {"--rate", "a number of 0.5 or more", {"0.25", "nan", "inf", "1e999", "1x", "x"}},
        {"--one", "a whole number from 0 to 1", {"2"}}, {"--share", "a number from -0.5 to 0.75", {"0.875", "nan"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 10 && rows[i].bad[k]; k++) {
            char *line = formatted("%s %s", rows[i].option, rows[i].bad[k]);
            refused(line, formatted("%s: %s: not %s (try --help)", rows[i].option, rows[i].bad[k], rows[i].limits));
        }
    refused("--steps=", "--steps: : not a whole number from 2 to 10 (try --help)");
}

TEST_WITH(test_refused, set_up, tear_down)
{
    static const char *const rows[][2] = {
        {"--nope", "--nope: no such option (did you mean --one? try --help)"},
        {"--step 3", "--step: no such option (did you mean --steps? try --help)"}, // no abbreviations
        {"--stepss 3", "--stepss: no such option (did you mean --steps? try --help)"},
        {"--input-- 3", "--input--: no such option (try --help)"}, // a heading of the help is none
        {"-x", "-x: no such option (try --help)"}, {"--quiet=1", "'--quiet=1': takes no value"},
        {"--out", "'--out': takes PATH (try --help)"}, {"a --out x --steps", "'--steps': takes N (try --help)"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) refused(rows[i][0], rows[i][1]);
    set.quote = "'", set.missing = "needs a value";
    refused("--nowhere=3", "'--nowhere=3': no such option (try --help)");
    refused("--out", "--out: needs a value (try --help)");
}

// A command takes the options that name it, and those that name none.
TEST_WITH(test_where, set_up, tear_down)
{
    set.where = FIRST;
    read_line("--steps 3 --any 4 --rate 5");
    assert_true(got.steps == 3 && got.any == 4 && got.rate == 5 && options_given(&set, "--steps"));
    refused("--bytes 6", "--bytes: no such option (try --help)");
    set.where = SECOND;
    read_line("--bytes 6 --any 7");
    assert_true(got.bytes == 6 && got.any == 7 && !options_given(&set, "--steps"));
    refused("--steps 3", "--steps: no such option (try --help)");
}

static int print_it(void *line)
{
    if (!freopen(in_dir("out"), "w", stdout)) return 98;
    if (!line) return options_print(&set), 0;
    read_line(line);
    return 97;
}

// What a call writes to stdout.
static void expect_printed(char *line, const char *want)
{
    char errors[2000];
    assert_int_equal(run_child(print_it, line, errors, sizeof errors), 0);
    char *text = take_file("out", NULL);
    assert_string_equal(text, want);
    free(text);
}

TEST_WITH(test_help, set_up, tear_down)
{
#define OF_ALL "  --quiet        prints less\n  --out PATH     where to\n--input--\n  --skip NAME    leaves one out\n" \
    "  --from FILE... reads them\n  --steps N      how many\n--any N\n  --one N        at most\n"
#define ALL OF_ALL "  --bytes N      a long name of its value\n  --rate RATE    of the rest\n" \
    "  --share A_NUMBER_OF_MANY_WORDS that is too wide to align by\n"
    expect_printed(NULL, ALL);
    expect_printed((char[]){"--nope --help"}, "usage: try\n" ALL); // whatever else is wrong
    expect_printed((char[]){"--steps 1 -h"}, "usage: try\n" ALL);
    set.where = FIRST;
    set.n = 9;
    expect_printed(NULL, OF_ALL);
}

typedef struct {
    const char *text;
    long long least, most;
} Count;

static int count_it(void *arg)
{
    const Count *c = arg;
    return (int)options_count("try", "n", c->text, c->least, c->most);
}

TEST_WITH(test_count, set_up, tear_down)
{
    assert_int_equal(options_count("try", "n", "-1", -1, 5), -1);
    assert_int_equal(options_count("try", "n", "5", -1, 5), 5);
    assert_true(options_count("try", "n", "9223372036854775807", -1, LLONG_MAX) == LLONG_MAX);
    const Count bad[] = {{"-2", -1, 5}, {"6", -1, 5}, {"", -1, 5}, {"x", -1, 5}, {"3x", -1, 5}, {"3 ", -1, 5},
                         {"9223372036854775808", 0, LLONG_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *words = formatted("try: --n: '%s' (a whole number from %lld to %lld)", bad[i].text, bad[i].least,
                                bad[i].most);
        expect_die(count_it, (void *)&bad[i], words);
    }
}

TESTS(NULL, NULL)
