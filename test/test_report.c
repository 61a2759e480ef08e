// test_report: text, formulas and JSON of the same results; numbers that JSON cannot have; a repeated key.
#include "test/test.h"

#include "expect_die.h"
#include "dev/plan/report.h"

#include <jansson.h>
#include <math.h>

static char *text_of(bool json, bool explain)
{
    static const char *const columns[] = {"name", "bytes", NULL};
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    Report *r = report_begin(out, json, explain);
    report_section(r, "first");
    report_value(r, "tokens", 1234567890123, "", NULL);
    report_value(r, "share", 0.125, "%", "%d / %d", 1, 8);
    report_value(r, "none", NAN, "s", NULL);
    report_text(r, "words", "a \"%s\"", "quote");
    report_table(r, "rows", columns);
    report_word(r, "x");
    report_cell(r, 0x1p53 - 1, "%.0f");
    report_word(r, "y");
    report_cell(r, NAN, "%.0f");
    report_end(r);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void has(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("'%s' is not in:\n%s", words, text);
}

TEST(test_text)
{
    char *plain = text_of(false, false), *explained = text_of(false, true);
    const char *const words[] = {"first\n", "1234567890123", "0.125 %", "a \"quote\"", "| name | bytes |\n|---|---|\n",
                                 "| x | 9007199254740991 |\n", "| y | - |\n"};
    for (int i = 0; i < 7; i++) has(plain, words[i]), has(explained, words[i]);
    has(explained, "      = 1 / 8\n");
    assert_null(strstr(plain, "1 / 8"));
    free(plain), free(explained);
}

TEST(test_json)
{
    char *text = text_of(true, true);
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (!root) fail_msg("%s in %s", error.text, text);
    json_t *first = json_object_get(root, "first");
    assert_int_equal(json_integer_value(json_object_get(first, "tokens")), 1234567890123);
    assert_true(json_real_value(json_object_get(first, "share")) == 0.125);
    assert_string_equal(json_string_value(json_object_get(first, "share: formula")), "1 / 8");
    assert_true(json_is_null(json_object_get(first, "none")));
    assert_string_equal(json_string_value(json_object_get(first, "words")), "a \"quote\"");
    json_t *rows = json_object_get(first, "rows");
    assert_int_equal(json_array_size(rows), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "bytes")), 9007199254740991);
    assert_true(json_is_null(json_object_get(json_array_get(rows, 1), "bytes")));
    json_decref(root);
    free(text);
}

static int twice(void *arg)
{
    (void)arg;
    Report *r = report_begin(stdout, true, false);
    report_value(r, "a", 1, "", NULL);
    report_value(r, "a", 2, "", NULL);
    return 0;
}

static int half_a_row(void *arg)
{
    static const char *const columns[] = {"a", "b", NULL};
    (void)arg;
    Report *r = report_begin(stdout, false, false);
    report_table(r, "t", columns);
    report_word(r, "x");
    report_end(r);
    return 0;
}

static int full_disk(void *arg)
{
    (void)arg;
    Report *r = report_begin(fopen("/dev/full", "w"), true, false);
    report_value(r, "a", 1, "", NULL);
    report_end(r);
    return 0;
}

TEST(test_wrong_use)
{
    expect_die(twice, NULL, "json_object_get");
    expect_die(half_a_row, NULL, "cell");
    expect_die(full_disk, NULL, "cannot write");
}

TESTS(NULL, NULL)
