// program: runs one of our programs from its test, in a directory of the test's own.
//
// Define PROGRAM ("diff") before including this, after cmocka.h, and of build/show or build/prepare the PART; pass program_set_up and temp_dir_remove to
// cmocka_run_group_tests.
#ifndef TEST_PROGRAM_H
#define TEST_PROGRAM_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "temp_dir.h"

#ifndef PART
#define PART ""
#endif
static char program[600], output[20000];
static const char *part = PART; // a test of several parts changes it

static int program_set_up(void **state)
{
    // The program is one directory above the test: build/test/test_NAME, build/NAME.
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return -1;
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(program, sizeof program, "%s/../" PROGRAM, self);
    return temp_dir_make(state) == 0 && access(program, X_OK) == 0 ? 0 : -1;
}

// Runs the program in `dir`; what it prints, errors too, is in `output`. Returns its exit status.
static int run(const char *arguments)
{
    char command[1500];
    snprintf(command, sizeof command, "cd '%s' && '%s' %s %s 2>&1", dir, program, part, arguments);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    output[fread(output, 1, sizeof output - 1, p)] = 0;
    while (fgetc(p) != EOF) {} // longer than the buffer: let it finish
    int status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void says(const char *words)
{
    if (!strstr(output, words)) fail_msg("no '%s' in:\n%s", words, output);
}

static inline void expect_run(const char *arguments, int status, const char *words)
{
    int got = run(arguments);
    if (got != status || !strstr(output, words))
        fail_msg(PROGRAM " %s %s: expected status %d and '%s', got %d and:\n%s", part, arguments, status, words, got, output);
}
#endif
