// expect_die: for tests of errors. The call runs in a child; it must end with exit status 1 and one line on
// stderr that starts with "error: " and contains `words`.
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

// Runs call(arg) in a child that ends with the status it returns; gives the exit status and what it wrote to
// stderr.
static inline int run_child(int (*call)(void *), void *arg, char *text, size_t n_text)
{
    int ends[2], status = 0;
    fflush(NULL);
    if (pipe(ends) != 0) return -1;
    pid_t pid = fork();
    if (pid < 0) return -1;
    if (pid == 0) {
        close(ends[0]);
        if (dup2(ends[1], STDERR_FILENO) < 0 || !freopen("/dev/null", "w", stdout)) _exit(99);
        on_exit(leave_at_once, NULL);
        exit(call(arg));
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t k; (k = read(ends[0], text + n, n_text - 1 - n)) > 0;) n += (size_t)k;
    text[n] = 0;
    close(ends[0]);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// True when the call ends with `expected` and the last line of stderr is an error that contains `words`; says
// why not.
static inline bool ends_with_error(int (*call)(void *), void *arg, int expected, const char *words,
                                   bool only_line)
{
    char text[8192];
    int status = run_child(call, arg, text, sizeof text);
    size_t n = strlen(text);
    char *last = text;
    if (n && text[n - 1] == '\n') text[n - 1] = 0;
    else n = 0; // an unfinished line is wrong
    if (strrchr(text, '\n')) last = strrchr(text, '\n') + 1;
    bool ok = n && status == expected && strncmp(last, "error: ", 7) == 0 && strstr(last, words) &&
              (!only_line || last == text);
    if (!ok)
        printf("expected status %d and an error with '%s'; got status %d and: %s\n", expected, words, status,
               text);
    return ok;
}

#define expect_die(call, arg, words) assert_true(ends_with_error(call, arg, 1, words, true))
#endif
