// grade: runs the tests of one answer (grade.h).
//
// usage: PROGRAM [--program ANSWER] [--seconds N] [--json FILE [--leaderboard NAME asc|desc]] [--refused FILE]
//                [--prints yes]
//
// One line a test, "ok 2 of 2  title" or "not ok 0 of 2  title" with what was wrong below, and at last "points 7 of 10".
// --json writes the results as Gradescope wants them. The exit status is 0 when all passed.
//
// An answer is a stranger. So it runs in a program of its own, ANSWER, as a user without rights where that can be, with
// limits on time, memory, files and processes; after the second test that does not end no other is run. A test runs in
// a fork of the judge, which calls ANSWER over sockets (apart.c). Where apart.c is not linked (CUDA, found bugs), ANSWER
// has the tests too, and the fork waits for it. Either way the fork never runs a line of the answer, and its exit status
// alone says whether the test has passed. At the end of a test whatever it started is killed. Without --program the
// answers are texts. --refused: nothing can be run, for the reason in FILE; all tests are listed with 0 points.
// --prints: what ANSWER printed is shown too.
#define _GNU_SOURCE // fexecve
#include "grade.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Of apart.c, where the answer has a process of its own.
#pragma weak apart_end

static GradeTest *tests;

// Visible before hidden, in the order of the file.
void grade_add(GradeTest *test)
{
    GradeTest **at = &tests;
    while (*at && ((*at)->hidden < test->hidden || ((*at)->hidden == test->hidden && (*at)->line < test->line)))
        at = &(*at)->next;
    test->next = *at, *at = test;
}

// Of the process of one test: where it says what was wrong and what was measured.
static int verdict = 2;
// Of the judge: what the process of the last test printed.
static char said[1 << 16];

void fail(const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    dprintf(verdict, "wrong: %.*s\n", n, line);
    fflush(stdout);
    if (apart_end) apart_end();
    _exit(1);
}

void grade_measured(double value)
{
    dprintf(verdict, "measured %.17g\n", value);
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

double *doubles(size_t n, const float *x)
{
    double *d = calloc(n ? n : 1, sizeof *d);
    if (!d) fail("the grader has no memory for %zu doubles", n);
    for (size_t i = 0; x && i < n; i++) d[i] = x[i];
    return d;
}

// ---- a test's process

// Of the judge, which ends without freeing.
const char *__asan_default_options(void) { return "detect_leaks=0"; }

void grade_ended(int status)
{
    dprintf(verdict, "ended %d\n", status);
    _exit(1);
}

static void stop(const char *what)
{
    fprintf(stderr, "error: grade: %s: %s\n", what, strerror(errno));
    exit(2);
}

// Processes and threads: RLIMIT_NPROC counts those of the user.
static rlim_t tasks(void)
{
    rlim_t n = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *e; all && (e = readdir(all));) {
        char path[300];
        struct stat s;
        snprintf(path, sizeof path, "/proc/%s/task", e->d_name);
        if (isdigit((unsigned char)*e->d_name) && !stat(path, &s)) n += s.st_nlink - 2;
    }
    if (all) closedir(all);
    return n;
}

static void limit(int what, rlim_t most)
{
    struct rlimit now;
    if (getrlimit(what, &now)) _exit(2);
    if (now.rlim_max != RLIM_INFINITY && now.rlim_max < most) most = now.rlim_max;
    now.rlim_cur = now.rlim_max = most;
    if (setrlimit(what, &now)) _exit(2); // an answer never runs without its limits
}

static const char *program; // of the answer
static double seconds = 20;

// Gives up all rights: root becomes a user that owns no file and no other process.
static void shut_in(rlim_t most_tasks)
{
    limit(RLIMIT_CPU, (rlim_t)(4 * seconds) + 1); // threads
    limit(RLIMIT_FSIZE, 1 << 24);
    limit(RLIMIT_CORE, 0);
    if (geteuid() == 0) {
        uid_t nobody = 1000000 + (uid_t)getpid() % 1000000;
        if (setgroups(0, NULL) || setresgid(nobody, nobody, nobody) || setresuid(nobody, nobody, nobody)) {
            nobody = 65534; // in a container with few users
            if (setresgid(nobody, nobody, nobody) || setresuid(nobody, nobody, nobody)) _exit(2);
        }
    }
    limit(RLIMIT_NPROC, most_tasks);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

pid_t grade_start(int socket, int test)
{
    char number[16];
    snprintf(number, sizeof number, "%d", test);
    char *argv[] = {"answer", "--run", number, NULL};
    // AddressSanitizer keeps freed memory for a while: little of it, for a test may look how much an answer keeps.
    char *env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", "OMP_NUM_THREADS=2", "UBSAN_OPTIONS=print_stacktrace=0",
                   "ASAN_OPTIONS=hard_rss_limit_mb=4000:detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64", NULL};
    rlim_t most_tasks = tasks() + 64;
    pid_t child = fork();
    if (child < 0) fail("the grader could not start a process");
    if (child) return child;
    dup2(socket, 3);
    for (int i = 4; i < 1024; i++) close(i);
    int file = open(program, O_RDONLY | O_CLOEXEC);
    shut_in(most_tasks);
    fexecve(file, argv, env);
    _exit(2);
}

void grade_done(void)
{
    fflush(NULL);
    kill(getpid(), SIGUSR2);
    _exit(2);
}

bool grade_is_done(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2;
}

static void run_test(int index)
{
    setvbuf(stdout, NULL, _IOLBF, 0); // so that a crash loses no line
    GradeTest *test = tests;
    while (index-- > 0 && test) test = test->next;
    if (!test) _exit(2);
    test->run();
    fflush(NULL);
}

// In the fork of the judge. The answer is called by the test, or is in another program with it, or is a text.
static _Noreturn void judge_test(int index)
{
    int status;
    if (apart_end || !program) run_test(index);
    else if (waitpid(grade_start(verdict, index), &status, 0) < 0 || !grade_is_done(status)) grade_ended(status);
    if (apart_end) apart_end();
    _exit(0);
}

// Kills what a test left behind, however it hid: orphans become children of this process (PR_SET_CHILD_SUBREAPER). The
// dead are waited for only when no new ones come: until then they count for RLIMIT_NPROC, and no other takes their place.
static void kill_all_children(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    for (int tries = 0, before = -1; tries < 10000; tries++) {
        FILE *f = fopen(path, "r");
        int child, n = 0;
        while (f && fscanf(f, "%d", &child) == 1) kill(child, SIGKILL), n++;
        if (f) fclose(f);
        if (n == 0) break;
        while (n == before && waitpid(-1, NULL, WNOHANG) > 0) {}
        before = n;
        usleep(1000);
    }
}

// ---- judging

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// What a test said: the grader's own line, or the sanitizer's, or how it ended.
static void reason(const char *line, int status, char *out, size_t size)
{
    char *sanitizer = strstr(said, "ERROR: AddressSanitizer: "), *undefined = strstr(said, "runtime error: ");
    if (!strncmp(line, "wrong: ", 7)) snprintf(out, size, "%.*s", (int)strcspn(line + 7, "\n"), line + 7);
    else if (status < 0) snprintf(out, size, "did not end within %g seconds: does a loop never end, or a rank wait for ever?", seconds);
    else if (sanitizer)
        snprintf(out, size, "memory outside of an array, or already freed: %.*s", (int)strcspn(sanitizer + 25, " \n"),
                 sanitizer + 25);
    else if (undefined) snprintf(out, size, "undefined behaviour: %.*s", (int)strcspn(undefined + 15, "\n"), undefined + 15);
    else if (strstr(said, "hard rss limit exhausted")) snprintf(out, size, "more than 4 GB of memory were in use");
    else if (WIFSIGNALED(status)) snprintf(out, size, "the program crashed: %s", strsignal(WTERMSIG(status)));
    else snprintf(out, size, "the program ended with status %d before the test did", WEXITSTATUS(status));
    if (!strncmp(line, "wrong: ", 7) || status < 0) return;
    size_t used = strlen(out);
    if (sanitizer) { // the first line of the stack that is in a file of the answer, or else its first line
        char *stack = strstr(sanitizer, " in "), *file = strstr(sanitizer, "/answer/"), *end = strstr(sanitizer, "\n\n");
        if (file && (!end || file < end)) {
            char *in = file;
            while (in > sanitizer && strncmp(in, " in ", 4)) in--;
            snprintf(out + used, size - used, ", in %.*s %.*s", (int)strcspn(in + 4, " "), in + 4,
                     (int)strcspn(file + 8, "\n"), file + 8);
        } else if (stack) snprintf(out + used, size - used, ",%.*s", (int)strcspn(stack, "\n"), stack);
    } else if (undefined) { // "PATH/FILE:LINE:COLUMN: runtime error: "
        char *file = undefined;
        while (file > said && file[-1] != '/' && file[-1] != '\n') file--;
        if (undefined - file > 2) snprintf(out + used, size - used, ", in %.*s", (int)(undefined - file) - 2, file);
    }
}

// At most 20 lines, without the sanitizer's report, which `reason` has read.
static void show_prints(void)
{
    int n = 0;
    for (char *line = said; *line && strncmp(line, "====", 4); n++) {
        int length = (int)strcspn(line, "\n");
        char *error = strstr(line, "runtime error: ");
        if (error && error < line + length) break;
        if (n == 20) {
            printf("    | ... (20 lines are shown)\n");
            break;
        }
        printf("    | %.*s\n", length, line);
        line += length + (line[length] == '\n');
    }
}

// Reads into a text of `size` and keeps its beginning and its end; false at the end of the pipe.
static bool take(int from, char *text, size_t *used, size_t size)
{
    char block[4096];
    ssize_t got = read(from, block, sizeof block);
    if (got <= 0) return false;
    if (*used + (size_t)got >= size) *used = size / 2;
    memcpy(text + *used, block, (size_t)got);
    text[*used += (size_t)got] = '\0';
    return true;
}

// Runs a test. True when it passed; what was wrong: in `why`, what was measured: in *measured. *n_late counts those
// that did not end.
static bool run(int index, int *n_late, double *measured, char *why, size_t size)
{
    char line[1 << 14] = "";
    int out[2], back[2], status = 0;
    if (pipe2(out, O_CLOEXEC) || pipe2(back, O_CLOEXEC)) stop("pipe");
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) stop("fork");
    if (child == 0) {
        setpgid(0, 0);
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, 0), dup2(out[1], 1), dup2(out[1], 2), close(back[0]), verdict = back[1];
        judge_test(index);
    }
    close(out[1]), close(back[1]);
    size_t n_said = said[0] = 0, n_line = 0;
    bool late = false;
    struct pollfd p[2] = {{back[0], POLLIN, 0}, {out[0], POLLIN, 0}};
    for (double end = now() + seconds; p[0].fd >= 0 || p[1].fd >= 0;) {
        double left = end - now();
        if (left <= 0 || poll(p, 2, (int)(left * 1000) + 1) == 0) { late = true; break; }
        if (p[1].revents && !take(out[0], said, &n_said, sizeof said)) p[1].fd = -1;
        if (p[0].revents && !take(back[0], line, &n_line, sizeof line)) p[0].fd = -1;
    }
    close(out[0]), close(back[0]);
    kill(-child, SIGKILL);
    if (late) kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    kill_all_children();
    bool passed = !late && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    char *wrong = strstr(line, "wrong: "), *number = strstr(line, "measured "), *how = strstr(line, "ended ");
    *n_late += late;
    if (passed && number) *measured = strtod(number + 9, NULL);
    if (how && !wrong) status = atoi(how + 6);
    if (!passed) reason(wrong ? wrong : "", late ? -1 : status, why, size);
    return passed;
}

// ---- results

static void json_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        if (*s == '"' || *s == '\\') fprintf(f, "\\%c", *s);
        else if ((unsigned char)*s < 32) fprintf(f, "\\u%04x", *s);
        else fputc((unsigned char)*s < 127 ? *s : '?', f); // what an answer prints need not be UTF-8
    }
    fputc('"', f);
}

static char *read_text(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    if (!f) stop(path);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

int main(int argc, char **argv)
{
    double points = 0, all = 0, leader = NAN;
    bool prints = false;
    const char *refused = NULL, *board = NULL, *order = NULL, *sep = "";
    FILE *json = NULL;
    if (argc == 3 && !strcmp(argv[1], "--run")) verdict = 3, run_test(atoi(argv[2])), grade_done();
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--seconds")) seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--program")) program = argv[i + 1];
        else if (!strcmp(argv[i], "--prints")) prints = true;
        else if (!strcmp(argv[i], "--refused")) refused = read_text(argv[i + 1]);
        else if (!strcmp(argv[i], "--leaderboard") && i + 2 < argc) board = argv[i + 1], order = argv[i++ + 2];
        else if (!strcmp(argv[i], "--json") && !(json = fopen(argv[i + 1], "we"))) stop(argv[i + 1]);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (program) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); // no other process of this user reads or writes its memory
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (json) {
        fputs("{\"output\": ", json);
        json_string(json, refused ? refused : "");
        fputs(", \"stdout_visibility\": \"hidden\", \"tests\": [", json);
    }
    int index = 0, late = 0;
    for (GradeTest *t = tests; t; t = t->next, index++) {
        char why[1024] = "not run: see the error above";
        bool runs = !refused && late < 2, passed = runs && run(index, &late, &leader, why, sizeof why);
        if (late == 2 && !runs) snprintf(why, sizeof why, "not run: two tests before it did not end");
        if (passed) *why = '\0';
        printf("%s %g of %g  %s%s\n", passed ? "ok" : "not ok", passed ? t->points : 0.0, t->points, t->title,
               t->hidden ? " (hidden)" : "");
        if (!passed) printf("    %s\n", why);
        if (prints) show_prints();
        points += passed ? t->points : 0, all += t->points;
        if (!json) continue;
        fprintf(json, "%s\n {\"name\": ", sep), sep = ",";
        json_string(json, t->title);
        fprintf(json, ", \"score\": %g, \"max_score\": %g, \"status\": \"%s\", \"visibility\": \"%s\", \"output\": ",
                passed ? t->points : 0.0, t->points, passed ? "passed" : "failed", t->hidden ? "after_published" : "visible");
        json_string(json, why);
        fputc('}', json);
    }
    if (json) {
        fputs("\n]", json);
        if (board && isfinite(leader)) {
            fputs(", \"leaderboard\": [{\"name\": ", json);
            json_string(json, board);
            fprintf(json, ", \"value\": %.17g, \"order\": \"%s\"}]", leader, order);
        }
        fputs("}\n", json);
        if (fclose(json)) stop("the results");
    }
    printf("points %g of %g\n", points, all);
    return points != all;
}
