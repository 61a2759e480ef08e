// deeper: whether a test program is to run its deeper form, as test/run.sh --long asks. A program that has one says what
// it is in a line "// deeper: WHAT" of its head.
#ifndef TEST_DEEPER_H
#define TEST_DEEPER_H
#include <stdbool.h>
#include <stdlib.h>

static inline bool deeper(void)
{
    const char *set = getenv("TEST_LONG");
    return set && *set;
}
#endif
