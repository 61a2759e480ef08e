// expect_die: for tests of errors. The call runs in a child; it must end with exit status 1 and one line on stderr that
// starts with "error: " and contains `words`.
#ifndef EXPECT_DIE_H
#define EXPECT_DIE_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Runs first at exit() and skips the rest: die() leaves without freeing, which a leak checker would report.
static inline void leave_at_once(int status, void *arg)
{
    (void)arg;
    fflush(NULL);
    _exit(status);
}

typedef struct {
    pid_t pid;
    int end; // of a pipe, from its stderr
} Child;

// A child like this process, which the caller tells from itself by its pid: 0.
static inline Child child_begin(void)
{
    int ends[2];
    fflush(NULL);
    if (pipe(ends) != 0) abort();
    Child c = {fork(), ends[0]};
    if (c.pid < 0) abort();
    if (c.pid == 0) {
        close(ends[0]);
        if (dup2(ends[1], STDERR_FILENO) < 0 || !freopen("/dev/null", "w", stdout)) _exit(99);
        on_exit(leave_at_once, NULL);
    }
    close(ends[1]);
    return c;
}

// Its exit status, and what it wrote to stderr.
static inline int child_end(Child c, char *text, size_t n_text)
{
    int status = 0;
    size_t n = 0;
    for (ssize_t k; (k = read(c.end, text + n, n_text - 1 - n)) > 0;) n += (size_t)k;
    text[n] = 0;
    close(c.end);
    waitpid(c.pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs call(arg) in a child that ends with the status it returns.
static inline int run_child(int (*call)(void *), void *arg, char *text, size_t n_text)
{
    Child c = child_begin();
    if (c.pid == 0) exit(call(arg));
    return child_end(c, text, n_text);
}

// True when the child ends with `expected` and the last line of stderr is an error that contains `words`; says why not.
static inline bool child_ends_with_error(Child c, int expected, const char *words, bool only_line)
{
    char text[8192];
    int status = child_end(c, text, sizeof text);
    size_t n = strlen(text);
    char *last = text;
    if (n && text[n - 1] == '\n') text[n - 1] = 0;
    else n = 0; // an unfinished line is wrong
    if (strrchr(text, '\n')) last = strrchr(text, '\n') + 1;
    bool ok = n && status == expected && strncmp(last, "error: ", 7) == 0 && strstr(last, words) &&
              (!only_line || last == text);
    if (!ok)
        printf("expected status %d and an error with '%s'; got status %d and: %s\n", expected, words, status, text);
    return ok;
}

static inline bool ends_with_error(int (*call)(void *), void *arg, int expected, const char *words, bool only_line)
{
    Child c = child_begin();
    if (c.pid == 0) exit(call(arg));
    return child_ends_with_error(c, expected, words, only_line);
}

#define expect_die(call, arg, words) assert_true(ends_with_error(call, arg, 1, words, true))

// The same of statements: expect_dies("x: no such file", dataset_open("x", 9)).
#define expect_dies(words, ...)                                              \
    do {                                                                     \
        Child child_ = child_begin();                                        \
        if (child_.pid == 0) {                                               \
            __VA_ARGS__;                                                     \
            exit(0);                                                         \
        }                                                                    \
        assert_true(child_ends_with_error(child_, 1, words, true));          \
    } while (0)
#endif
