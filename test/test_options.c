// test_options: a command line that is read by a table: each kind of value and its limits, what is neither option nor
// value, the options of some commands only, the help, and what is refused with which words.

#include "test/test.h"

#include "base/options.h"
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

static void expect_words(const OptionList *list, size_t n, const char *const *want)
{
    assert_int_equal(list->n, n);
    for (size_t i = 0; i < n; i++) assert_string_equal(list->word[i], want[i]);
}

TEST_WITH(test_kinds, set_up, tear_down)
{
    assert_int_equal(read_line("a --out x --quiet b --skip=p --steps 7 - --skip q --rate 1e3 --share=-0.25"), 3);
    const char *rest[] = {"a", "b", "-"};
    for (int i = 0; i < 3; i++) assert_string_equal(word[1 + i], rest[i]);
    assert_true(got.quiet && got.steps == 7 && got.any == 0 && got.rate == 1000 && got.share == -0.25);
    assert_string_equal(got.out, "x");
    expect_words(&got.list, 2, (const char *[]){"p", "q"});
    expect_words(&got.words, 0, NULL);
    assert_true(options_given(&set, "--steps") && options_given(&set, "--quiet") && options_given(&set, "--out"));
    assert_false(options_given(&set, "--any") || options_given(&set, "--from") || options_given(&set, "--nope"));
    assert_int_equal(read_line(""), 0);
    assert_int_equal(read_line("--out --quiet"), 0); // what follows is its value, whatever it looks like
    assert_string_equal(got.out, "--quiet");
    assert_int_equal(read_line("--out=a=b"), 0);
    assert_string_equal(got.out, "a=b");
    assert_int_equal(read_line("--out="), 0);
    assert_string_equal(got.out, "");
}

// Words after an option that takes several are its values, up to the next option.
TEST_WITH(test_words, set_up, tear_down)
{
    assert_int_equal(read_line("a --from b c - --quiet d --from=e f --skip g h"), 3);
    const char *rest[] = {"a", "d", "h"};
    for (int i = 0; i < 3; i++) assert_string_equal(word[1 + i], rest[i]);
    expect_words(&got.words, 5, (const char *[]){"b", "c", "-", "e", "f"});
    expect_words(&got.list, 1, (const char *[]){"g"});
}

static int read_it(void *line)
{
    read_line(line);
    return 0;
}

static void refused(const char *line, const char *words)
{
    char copy[300];
    snprintf(copy, sizeof copy, "%s", line);
    if (!ends_with_error(read_it, copy, 2, words, true)) fail_msg("%s", line);
}

TEST_WITH(test_limits, set_up, tear_down)
{
    read_line("--steps 9 --any 0 --bytes 3 --rate 0.5 --share -0.5");
    assert_true(got.steps == 9 && got.any == 0 && got.bytes == 3 && got.rate == 0.5 && got.share == -0.5);
    read_line("--steps 2 --steps=10 --any 2147483647 --one 1 --bytes 18446744073709551615 --rate 1e308 --share 0.75");
    assert_true(got.steps == 10 && got.any == INT_MAX && got.bytes == SIZE_MAX && got.rate == 1e308);
    assert_true(got.share == 0.75 && got.one == 1);
    const char *bad[] = {"1", "11", "-3", "+3", "3x", "x", "3.0", ":", "99999999999999999999999", "4294967299"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[100], words[200];
        snprintf(line, sizeof line, "--steps %s", bad[i]);
        snprintf(words, sizeof words, "error: try: --steps: %s: not a whole number from 2 to 10 (try --help)", bad[i]);
        refused(line, words);
    }
    refused("--steps=", "error: try: --steps: : not a whole number from 2 to 10 (try --help)");
    refused("--any 2147483648", "error: try: --any: 2147483648: not a whole number from 0 to 2147483647 (try --help)");
    refused("--bytes 2", "error: try: --bytes: 2: not a whole number of 3 or more (try --help)");
    refused("--bytes 18446744073709551616", "error: try: --bytes: 18446744073709551616: not a whole number of 3 or");
    const char *none[] = {"0.25", "nan", "inf", "1e999", "1x", "x"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        char line[100], words[200];
        snprintf(line, sizeof line, "--rate %s", none[i]);
        snprintf(words, sizeof words, "error: try: --rate: %s: not a number of 0.5 or more (try --help)", none[i]);
        refused(line, words);
    }
    refused("--one 2", "error: try: --one: 2: not a whole number from 0 to 1 (try --help)");
    refused("--share 0.875", "error: try: --share: 0.875: not a number from -0.5 to 0.75 (try --help)");
    refused("--share nan", "error: try: --share: nan: not a number from -0.5 to 0.75 (try --help)");
}

TEST_WITH(test_refused, set_up, tear_down)
{
    refused("--nope", "error: try: --nope: no such option (try --help)");
    refused("--step 3", "error: try: --step: no such option (try --help)"); // no abbreviations
    refused("--stepss 3", "error: try: --stepss: no such option (try --help)");
    refused("--input-- 3", "error: try: --input--: no such option (try --help)"); // a heading of the help is none
    refused("-x", "error: try: -x: no such option (try --help)");
    refused("--quiet=1", "error: try: '--quiet=1': takes no value");
    refused("--out", "error: try: '--out': takes PATH (try --help)");
    refused("a --out x --steps", "error: try: '--steps': takes N (try --help)");
    set.quote = "'", set.missing = "needs a value";
    refused("--nope=3", "error: try: '--nope=3': no such option (try --help)");
    refused("--out", "error: try: --out: needs a value (try --help)");
}

// A command takes the options that name it, and those that name none.
TEST_WITH(test_where, set_up, tear_down)
{
    set.where = FIRST;
    read_line("--steps 3 --any 4 --rate 5");
    assert_true(got.steps == 3 && got.any == 4 && got.rate == 5 && options_given(&set, "--steps"));
    refused("--bytes 6", "error: try: --bytes: no such option (try --help)");
    set.where = SECOND;
    read_line("--bytes 6 --any 7");
    assert_true(got.bytes == 6 && got.any == 7 && !options_given(&set, "--steps"));
    refused("--steps 3", "error: try: --steps: no such option (try --help)");
}

// What a call writes to stdout.
static void expect_printed(int (*call)(void *), void *arg, const char *want)
{
    char text[2000], errors[2000];
    assert_int_equal(run_child(call, arg, errors, sizeof errors), 0);
    FILE *f = fopen(in_dir("out"), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    assert_string_equal(text, want);
}

static int print_it(void *line)
{
    if (!freopen(in_dir("out"), "w", stdout)) return 98;
    if (!line) return options_print(&set), 0;
    read_line(line);
    return 97;
}

TEST_WITH(test_help, set_up, tear_down)
{
    const char *all = "  --quiet        prints less\n"
                      "  --out PATH     where to\n"
                      "--input--\n"
                      "  --skip NAME    leaves one out\n"
                      "  --from FILE... reads them\n"
                      "  --steps N      how many\n"
                      "--any N\n"
                      "  --one N        at most\n"
                      "  --bytes N      a long name of its value\n"
                      "  --rate RATE    of the rest\n"
                      "  --share A_NUMBER_OF_MANY_WORDS that is too wide to align by\n";
    char with_usage[1000], help[] = "--nope --help", short_help[] = "--steps 1 -h";
    snprintf(with_usage, sizeof with_usage, "usage: try\n%s", all);
    expect_printed(print_it, NULL, all);
    expect_printed(print_it, help, with_usage); // whatever else is wrong
    expect_printed(print_it, short_help, with_usage);
    set.where = FIRST;
    set.n = 9;
    expect_printed(print_it, NULL, "  --quiet        prints less\n  --out PATH     where to\n--input--\n"
                                   "  --skip NAME    leaves one out\n  --from FILE... reads them\n"
                                   "  --steps N      how many\n--any N\n"
                                   "  --one N        at most\n");
}

static int count_it(void *text)
{
    return (int)options_count("try", "n", text, -1, 5);
}

TEST_WITH(test_count, set_up, tear_down)
{
    assert_int_equal(options_count("try", "n", "-1", -1, 5), -1);
    assert_int_equal(options_count("try", "n", "5", -1, 5), 5);
    assert_true(options_count("try", "n", "9223372036854775807", -1, LLONG_MAX) == LLONG_MAX);
    char bad[][30] = {"-2", "6", "", "x", "3x", "3 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char words[300];
        snprintf(words, sizeof words, "try: --n: '%s' (a whole number from -1 to 5)", bad[i]);
        expect_die(count_it, bad[i], words);
    }
}

static int count_too_large(void *arg)
{
    (void)arg;
    return (int)options_count("try", "n", "9223372036854775808", 0, LLONG_MAX);
}

TEST_WITH(test_count_overflow, set_up, tear_down)
{
    expect_die(count_too_large, NULL, "try: --n: '9223372036854775808' (a whole number from 0 to 9223372036854775807)");
}

TESTS(NULL, NULL)
