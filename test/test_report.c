// test_report: text, formulas and JSON of the same results; numbers that JSON cannot have; a full disk.
#include "test/test.h"

#include "expect_die.h"
#include "dev/plan/plan_show.h"

#include <jansson.h>

static char *text_of(bool json, bool explain)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, &(size_t){0});
    Report *r = report_begin(out, json, explain);
    report_section(r, "first");
    report_value(r, "tokens", 1234567890123, "", NULL);
    report_value(r, "share", 0.125, "%", "%d / %d", 1, 8);
    report_value(r, "none", NAN, "s", NULL);
    report_text(r, "words", "a \"%s\"", "quote");
    report_table(r, "rows", "name|bytes");
    report_row(r, "%s|%.0f", "x", 0x1p53 - 1);
    report_row(r, "%s|%.0f", "y", NAN);
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
    char *got = json_dumps(root, JSON_COMPACT);
    assert_string_equal(got, "{\"first\":{\"tokens\":1234567890123,\"share\":0.125,\"share: formula\":\"1 / 8\","
                             "\"none\":null,\"words\":\"a \\\"quote\\\"\",\"rows\":[{\"name\":\"x\",\"bytes\":"
                             "9007199254740991},{\"name\":\"y\",\"bytes\":null}]}}");
    json_decref(root);
    free(got), free(text);
}

static int full_disk(__attribute__((unused)) void *arg)
{
    Report *r = report_begin(fopen("/dev/full", "w"), true, false);
    report_value(r, "a", 1, "", NULL);
    report_end(r);
    return 0;
}

TEST(test_full_disk)
{
    expect_die(full_disk, NULL, "cannot write");
}

TESTS(NULL, NULL)
