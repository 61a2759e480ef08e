// grade: runs the tests of one answer (grade.h).
//
// usage: PROGRAM [--json FILE] [--seconds N]
//
// One line a test, "ok 2 of 2  title" or "not ok 0 of 2  title" with what was wrong below, and at last "points 7 of 10".
// With --json also an array of tests for programs. The exit status is 0 when all passed.
#include "grade.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static GradeTest *tests;

// Visible before hidden, in the order of the file.
void grade_add(GradeTest *test)
{
    GradeTest **at = &tests;
    while (*at && ((*at)->hidden < test->hidden || ((*at)->hidden == test->hidden && (*at)->line < test->line)))
        at = &(*at)->next;
    test->next = *at, *at = test;
}

void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("wrong: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    _exit(1);
}

// ---- comparisons

static bool near(double got, double want, double tolerance)
{
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= tolerance * (fabs(want) > 1 ? fabs(want) : 1); // false for NaN
}

static const char *explain(const float *got, size_t n, double tolerance, const Mistake *mistakes, int count)
{
    for (int m = 0; m < count; m++) {
        size_t i = 0;
        while (i < n && near(got[i], mistakes[m].values[i], tolerance)) i++;
        if (i == n) return mistakes[m].because;
    }
    for (size_t i = 0; i < n; i++)
        if (isnan(got[i])) return "there is a NaN";
    return NULL;
}

void expect_array(const char *what, const float *got, const double *want, size_t rows, size_t cols, double tolerance,
                  const Mistake *mistakes, int n)
{
    size_t wrong = 0, first = 0;
    for (size_t i = rows * cols; i-- > 0;)
        if (!near(got[i], want[i], tolerance)) wrong++, first = i;
    if (!wrong) return;
    const char *because = explain(got, rows * cols, tolerance, mistakes, n);
    char where[64] = "", others[64] = "";
    if (rows > 1 && cols > 1) snprintf(where, sizeof where, ", row %zu, column %zu", first / cols, first % cols);
    else if (rows * cols > 1) snprintf(where, sizeof where, ", element %zu", first);
    if (wrong > 1) snprintf(others, sizeof others, " (and %zu more of %zu)", wrong - 1, rows * cols);
    fail("%s%s: expected %.6g, got %.6g%s%s%s", what, where, want[first], got[first], others, because ? ": " : "",
         because ? because : "");
}

void expect_number(const char *what, double got, double want, double tolerance, const Mistake *mistakes, int n)
{
    if (near(got, want, tolerance)) return;
    const char *because = NULL;
    for (int m = 0; m < n && !because; m++)
        if (near(got, mistakes[m].values[0], tolerance)) because = mistakes[m].because;
    fail("%s: expected %.9g, got %.9g%s%s", what, want, got, because ? ": " : "", because ? because : "");
}

// ---- data

static uint64_t next(uint64_t *state) // splitmix64 (Steele et al., OOPSLA 2014)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9, z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

uint64_t random_below(uint64_t *state, uint64_t n)
{
    return next(state) % n;
}

static float *floats(size_t n)
{
    float *x = malloc(n ? n * sizeof *x : 1);
    if (!x) fail("the grader has no memory for %zu floats", n);
    return x;
}

float *random_floats(size_t n, uint64_t seed)
{
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)(next(&seed) >> 40) / (1 << 23) - 1);
    return x;
}

float *equal_floats(size_t n, float value)
{
    float *x = floats(n);
    for (size_t i = 0; i < n; i++) x[i] = value;
    return x;
}

// ---- running

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// What a test said: the grader's own line, or the sanitizer's, or the last line.
static void reason(char *said, int status, bool late, double seconds, char *out, size_t size)
{
    char *line = strstr(said, "wrong: "), *sanitizer = strstr(said, "ERROR: AddressSanitizer: ");
    char *undefined = strstr(said, "runtime error: ");
    if (late) snprintf(out, size, "did not end within %g seconds: does a loop never end, or a rank wait for ever?", seconds);
    else if (line) snprintf(out, size, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
    else if (sanitizer)
        snprintf(out, size, "memory outside of an array, or already freed: %.*s", (int)strcspn(sanitizer + 25, " \n"),
                 sanitizer + 25);
    else if (undefined) snprintf(out, size, "undefined behaviour: %.*s", (int)strcspn(undefined + 15, "\n"), undefined + 15);
    else if (WIFSIGNALED(status)) snprintf(out, size, "the program crashed: %s", strsignal(WTERMSIG(status)));
    else snprintf(out, size, "the program ended with status %d before the test did", WEXITSTATUS(status));
    if (sanitizer) { // the first line of the stack that is in a file of the answer
        char *frame = strstr(sanitizer, " in "), *end = frame ? strchr(frame, '\n') : NULL;
        size_t used = strlen(out);
        if (end) snprintf(out + used, size - used, ",%.*s", (int)(end - frame), frame);
    }
}

// True when it passed. What was wrong: in `why`.
static bool run(const GradeTest *test, double seconds, char *why, size_t size)
{
    static char said[1 << 16];
    int pipes[2], status = 0;
    if (pipe(pipes)) { perror("grade: pipe"); exit(2); }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) { perror("grade: fork"); exit(2); }
    if (child == 0) {
        setpgid(0, 0);
        dup2(pipes[1], 1), dup2(pipes[1], 2), close(pipes[0]), close(pipes[1]);
        test->run();
        fflush(NULL);
        write(2, "\npassed\n", 8);
        _exit(0);
    }
    close(pipes[1]);
    size_t used = 0;
    bool late = false;
    for (double end = now() + seconds;;) {
        struct pollfd p = {pipes[0], POLLIN, 0};
        double left = end - now();
        if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) == 0) { late = true; break; }
        char block[4096];
        ssize_t got = read(pipes[0], block, sizeof block);
        if (got <= 0) break;
        if (used + (size_t)got >= sizeof said) used = sizeof said / 2; // keeps the beginning and the end
        memcpy(said + used, block, (size_t)got);
        used += (size_t)got;
    }
    said[used] = '\0';
    close(pipes[0]);
    kill(-child, SIGKILL); // and what it left behind
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    bool passed = !late && WIFEXITED(status) && WEXITSTATUS(status) == 0 && used >= 8 && !strcmp(said + used - 8, "\npassed\n");
    if (!passed) reason(said, status, late, seconds, why, size);
    return passed;
}

static void json_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 32) fprintf(f, "\\u%04x", *s);
        else fputc(*s, f);
    }
    fputc('"', f);
}

int main(int argc, char **argv)
{
    double seconds = 20, points = 0, all = 0;
    FILE *json = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seconds")) seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--json") && !(json = fopen(argv[i + 1], "w"))) { perror(argv[i + 1]); return 2; }
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (json) fputs("[", json);
    for (GradeTest *t = tests; t; t = t->next) {
        char why[1024] = "";
        bool passed = run(t, seconds, why, sizeof why);
        printf("%s %g of %g  %s%s\n", passed ? "ok" : "not ok", passed ? t->points : 0.0, t->points, t->title,
               t->hidden ? " (hidden)" : "");
        if (!passed) printf("    %s\n", why);
        points += passed ? t->points : 0, all += t->points;
        if (!json) continue;
        fprintf(json, "%s\n {\"name\": ", t == tests ? "" : ",");
        json_string(json, t->title);
        fprintf(json, ", \"score\": %g, \"max_score\": %g, \"hidden\": %s, \"output\": ", passed ? t->points : 0.0, t->points,
                t->hidden ? "true" : "false");
        json_string(json, why);
        fputc('}', json);
    }
    if (json) fputs("\n]\n", json), fclose(json);
    printf("points %g of %g\n", points, all);
    return points != all;
}
