// Tests of check: what die() prints, whatever the message holds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check.h"
#include "expect_die.h"

static int die_with(void *arg)
{
    die("x: %s: no good", (char *)arg);
}

static int die_usage_with(void *arg)
{
    die_usage("x: %s: no good", (char *)arg);
}

static void test_one_line(void **state)
{
    (void)state;
    char plain[] = "caf\xC3\xA9";
    assert_true(ends_with_error(die_with, plain, 1, "error: x: caf\xC3\xA9: no good [test_check.c:", true));
    assert_true(ends_with_error(die_usage_with, plain, 2, "error: x: caf\xC3\xA9: no good", true));
}

// Messages quote what files say. A file must not be able to write a line of its own, nor to command the terminal.
static void test_no_control(void **state)
{
    (void)state;
    char hostile[] = "a\nerror: b\r\x1B[2J\x7F\tc";
    assert_true(ends_with_error(die_with, hostile, 1, "x: a?error: b??[2J??c: no good", true));
    assert_true(ends_with_error(die_usage_with, hostile, 2, "x: a?error: b??[2J??c: no good", true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_line), cmocka_unit_test(test_no_control)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
