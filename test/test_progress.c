// progress: the live line at every width, plain output, a real (pseudo) terminal, resume, the summary.
#define _GNU_SOURCE // posix_openpt
#include "test/test.h"

#include "base/clock.h"
#include "record/metrics.h"
#include "record/progress.h"
#include "temp_dir.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>

// Columns of a terminal: UTF-8 characters, escape sequences left out.
static int columns_of(const char *s)
{
    int n = 0;
    while (*s) {
        if (*s == '\x1b') {
            s = strchr(s, 'm') + 1;
            continue;
        }
        n += ((unsigned char)*s & 0xc0) != 0x80;
        s++;
    }
    return n;
}

static const ProgressView typical = {.step = 840, .steps = 2000, .loss = 2.3131, .floor = 2.104, .grad_norm = 0.52,
                                     .lr = 3e-4, .tok_s = 8930, .mfu = 0.61, .eta = 102};

// The bar is as full as the run is done; of a run of one step too.
TEST_IN_DIR(test_bar)
{
    char line[2048];
    for (int64_t steps = 1; steps <= 2; steps++)
        for (int64_t step = 0; step <= steps; step++) {
            ProgressView view = typical;
            view.step = step, view.steps = steps;
            progress_line(line, sizeof line, &view, 120, false, false);
            size_t full = strspn(line, "#"), width = full + strspn(line + full, "-");
            assert_true(width >= 12);
            assert_int_equal(full, width * (size_t)step / (size_t)steps);
        }
}

TEST_IN_DIR(test_line_fits_every_width)
{
    ProgressView views[] = {
        typical,
        {.step = 1, .loss = NAN, .grad_norm = INFINITY, .mfu = NAN, .eta = NAN},
        {.step = 600000, .steps = 600000, .loss = 1e30, .floor = 11.25, .grad_norm = 1e12, .lr = 1e-12, .tok_s = 3e13,
         .mfu = 9.99, .eta = 9e8},
        {.step = 7, .steps = 5, .loss = -1, .floor = 1, .lr = 1, .tok_s = 1},
    };
    char line[2048];
    for (int v = 0; v < 4; v++)
        for (int columns = 1; columns <= 250; columns++)
            for (int mode = 0; mode < 4; mode++) {
                int used = progress_line(line, sizeof line, &views[v], columns, mode & 1, mode & 2);
                assert_int_equal(columns_of(line), used);
                assert_true(used < columns);
                assert_null(strchr(line, '\n'));
                if (!(mode & 2)) assert_null(strchr(line, '\x1b'));
                if (!(mode & 1)) assert_null(strchr(line, '\xe2'));
            }
}

TEST_IN_DIR(test_line_says_it_all)
{
    char line[2048];
    progress_line(line, sizeof line, &typical, 121, false, false);
    assert_string_equal(line, "##########--------------  step 840/2000  loss 2.3131  floor 2.1040  |g| 0.52  lr 3.0e-4"
                              "  8.93k tok/s  mfu 61%  ETA 1m42s");
    // the usual terminal: shorter, but every field
    progress_line(line, sizeof line, &typical, 80, false, false);
    assert_string_equal(line, "##--- 840/2000 loss 2.313 floor 2.10 g 0.52 lr 3.0e-4 8.93k/s mfu 61% ETA 1m42s");
}

TEST_IN_DIR(test_numbers)
{
    struct { double seconds; const char *want; } times[] = {
        {0.0314, "31 ms"}, {0.9994, "999 ms"}, {0.9996, "1s"}, {59.4, "59s"}, {59.6, "1m00s"}, {65, "1m05s"},
        {3599.6, "1h00m"}, {7380, "2h03m"}, {360000, "4d04h"}, {NAN, "?"}, {-1, "?"}, {INFINITY, "?"},
    };
    struct { double count; const char *want; } counts[] = {
        {0, "0"}, {980, "980"}, {999.4, "999"}, {999.6, "1.00k"}, {8930, "8.93k"}, {54130, "54.1k"}, {9999, "10.0k"},
        {123456, "123k"}, {999600, "1.00M"}, {12345678, "12.3M"}, {124e6, "124M"}, {1.5e9, "1.50B"}, {3e12, "3.00T"},
    };
    char text[32];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        progress_time(text, times[i].seconds);
        assert_string_equal(text, times[i].want);
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        progress_count(text, counts[i].count);
        assert_string_equal(text, counts[i].want);
    }
}

TEST_IN_DIR(test_interval)
{
    for (int64_t steps = 1; steps < 2000000; steps += 1 + steps / 7)
        for (int64_t every = 0; every <= 100; every = every * 3 + 1) {
            int64_t n = progress_interval(steps, every), unit = every ? every : 1;
            assert_true(n >= unit && n % unit == 0 && steps / n <= 50);
            if (n > unit) assert_true(steps / n >= 50 / 5 - 1); // and not much fewer than could be
        }
}

// A run of `steps` updates with two evaluations, a sample and a save; steps from first+1 on.
static void play(int first, int last, int steps, double floor)
{
    Progress *p = progress_begin(&(ProgressPlan){
        .dir = dir, .name = "demo", .model = "GPT, 2 layers", .params = 1000, .batch_tokens = 64, .steps = steps,
        .first_step = first, .floor_loss = floor, .floor_bpb = floor / 2, .floor_is_bound = floor < 0.5});
    progress_note(p, "a note before");
    for (int i = first + 1; i <= last; i++) {
        progress_step(p, &(MetricsRow){.step = i, .tokens = i * 64, .loss = i == 3 ? NAN : 4.0 - i * 0.01, .lr = 1e-3,
                                       .grad_norm = 0.5, .dt_ms = 10, .tok_s = 6400, .mfu = 0.5});
        if (i == 40 || i == 80)
            progress_val(p, &(MetricsRow){.step = i, .tokens = i * 64, .val_loss = 3, .val_bpb = 1.5, .seconds = 1});
        if (i != 80) continue;
        progress_event(p, METRICS_SAMPLE, i, "%s", "Once upon\na \x1b[31mtime");
        progress_event(p, METRICS_SAVE, i, "%s/checkpoints/step_%08d", dir, i);
    }
    progress_end(p, &(MetricsRow){.step = last, .tokens = last * 64, .val_loss = 2.5, .val_bpb = 1.25, .seconds = 90});
}

// In a child whose standard output is fd; the parent reads what it must.
static pid_t play_to(int fd, int first, int last, int steps, double floor)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (dup2(fd, STDOUT_FILENO) < 0) _exit(9);
        play(first, last, steps, floor);
        fflush(stdout);
        _exit(0);
    }
    return child;
}

static void wait_ok(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// True in a child whose output is lost, false when it has ended well.
static bool aside(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0 && !freopen("/dev/null", "w", stdout)) _exit(9);
    if (child) wait_ok(child);
    return child == 0;
}

typedef struct {
    const char *text;
    int times;
} Said;

// The file has each of these texts so often.
static void expect_said(const char *name, const Said *said)
{
    char *text = take_file(name, NULL);
    for (; said->text; said++)
        if (count_of(text, said->text) != said->times)
            fail_msg("'%s' is not %d times in:\n%s", said->text, said->times, text);
    free(text);
}
#define EXPECT_SAID(name, ...) expect_said(name, (const Said[]){__VA_ARGS__, {NULL, 0}})

static void run_to_file(int first, int last, int steps, double floor)
{
    int fd = open(in_dir("stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    fflush(stdout);
    wait_ok(play_to(fd, first, last, steps, floor));
    close(fd);
}

TEST_IN_DIR(test_plain_output)
{
    run_to_file(0, 100, 100, 2.0);
    char *out = take_file("stdout", NULL), *log = take_file("log.txt", NULL);
    assert_string_equal(out, log);
    assert_null(strpbrk(out, "\x1b\r"));
    free(out), free(log);
    EXPECT_SAID("stdout", {"\nstep ", 51}, {"\nstep   4/100 ", 1}, {"\nstep   5/100 ", 0}, // every 2nd, and the first
        {"\nstep   1/100   1%  loss 3.9900  floor 2.0000  |g| 0.500  lr 1.00e-03  6.40k tok/s", 1},
        {"val      step 40: 3.0000 nats/token = 1.5000 bits/byte, perplexity 20.09, 50.0% above the floor\n", 1},
        {"Once upon\na ?[31mtime\n", 1},
        {"trained     100 steps, 6.40k tokens in 1m30s of training (71 tokens/s)\n", 1},
        // the mean of 4 - i/100 for i = 51 .. 100 is 4 - 0.755
        {"train loss  3.2450 nats/token (mean of the last 50 steps)\n", 1},
        {"validation  2.5000 nats/token = 1.2500 bits/byte, perplexity 12.18, 25.0% above the floor\n", 1},
        {"floor       2.0000 nats/token = 1.0000 bits/byte: the corpus' entropy", 1}, {"checkpoint  ", 1},
        {"/checkpoints/step_00000080\n", 2}, {"/loss.svg\n", 1}, {"report      ", 1}, {"/report.html\n", 1},
        {"samples ", 0}); // there is no such file
    MetricsLog metrics = metrics_read(in_dir("metrics.jsonl"));
    assert_int_equal(metrics.n_rows, 1 + 100 + 2 + 2 + 1);
    const MetricsRow *last = &metrics.row[metrics.n_rows - 1];
    assert_true(metrics.row[0].event == METRICS_START && last->event == METRICS_END && last->floor_loss == 2.0);
    metrics_log_free(&metrics);
    EXPECT_SAID("loss.svg", {"</svg>", 1});
    EXPECT_SAID("report.html", {"\n{\"event\":\"end\"", 1}, {"\"running\":false", 1}); // the last one, after the end line
}

TEST_IN_DIR(test_stop_and_resume)
{
    run_to_file(0, 50, 100, 0.25);
    EXPECT_SAID("stdout", {"trained     50 of 100 steps", 1}, {"above the upper bound of the floor\n", 2},
                {": an upper bound of the corpus' entropy\n", 1});
    run_to_file(40, 100, 100, 0);
    EXPECT_SAID("stdout", {"floor", 0});          // not known: not a word of it
    EXPECT_SAID("log.txt", {"a note before", 2}); // both runs
    MetricsLog metrics = metrics_read(in_dir("metrics.jsonl"));
    int64_t step = 0, ends = 0;
    for (size_t i = 0; i < metrics.n_rows; i++) {
        if (metrics.row[i].event == METRICS_TRAIN) assert_int_equal(metrics.row[i].step, ++step);
        ends += metrics.row[i].event == METRICS_END;
    }
    assert_true(step == 100 && ends == 1);
    metrics_log_free(&metrics);
}

// A run goes on when its page cannot be written, and says so once.
TEST_IN_DIR(test_no_page)
{
    assert_int_equal(mkdir(in_dir("report.html"), 0700), 0);
    run_to_file(0, 100, 100, 0);
    EXPECT_SAID("stdout", {"report.html NOT written: Is a directory; the run goes on\n", 1},
                {"trained     100 steps", 1});
}

// What the lines of the file say in all: counts, and the time between two of them.
static void count_run(int first, int last)
{
    Progress *p = progress_begin(&(ProgressPlan){.dir = dir, .name = "c", .model = "m", .steps = 12, .log_every = 3,
                                                 .first_step = first});
    for (int i = first + 1; i <= last; i++) {
        if (i == 2 || i == 8) progress_event(p, METRICS_SKIP, i, "bad");
        progress_step(p, &(MetricsRow){.step = i, .loss = 1, .dt_ms = 1, .spikes = i % 2, .save_ms = i, .eval_ms = 2});
    }
    progress_end(p, &(MetricsRow){.step = last, .val_loss = 2});
}

TEST_IN_DIR(test_counts)
{
    if (aside()) {
        count_run(0, 7);
        count_run(6, 12); // step 7 is made again
        _exit(0);
    }
    MetricsLog log = metrics_read(in_dir("metrics.jsonl"));
    int lines = 0;
    for (size_t i = 0; i < log.n_rows; i++) {
        const MetricsRow *row = &log.row[i];
        if (row->event == METRICS_END) assert_true(fabs(row->val_ppl - exp(2)) <= 1e-8 * exp(2)); // 9 digits
        if (row->event != METRICS_TRAIN) continue;
        lines++;
        assert_int_equal(row->spikes, (row->step + 1) / 2); // odd steps
        assert_int_equal(row->skips, (row->step >= 2) + (row->step >= 8));
        assert_true(row->save_ms == (double)(3 * row->step - 3) && row->eval_ms == 6); // of three steps
        assert_true(fabs(row->ppl - exp(1)) <= 1e-8 * exp(1));
    }
    assert_int_equal(lines, 4);
    metrics_log_free(&log);
}

// Plays a run on a pseudo terminal and returns what it would have shown.
static char *run_on_terminal(int columns)
{
    int main_fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (main_fd < 0) skip(); // no pseudo terminals here
    assert_int_equal(grantpt(main_fd), 0);
    assert_int_equal(unlockpt(main_fd), 0);
    int fd = open(ptsname(main_fd), O_RDWR | O_NOCTTY);
    assert_true(fd >= 0);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
    fflush(stdout);
    pid_t child = play_to(fd, 0, 100, 100, 2.0);
    close(fd);
    char *text = calloc(1, 1 << 18);
    size_t used = 0;
    ssize_t n;
    // EIO when the child is gone
    while ((n = read(main_fd, text + used, (1 << 18) - 1 - used)) > 0) used += (size_t)n;
    close(main_fd);
    wait_ok(child);
    return text;
}

TEST_IN_DIR(test_terminal)
{
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("NO_COLOR");
    char *text = run_on_terminal(90);
    const char *const shown[] = {"\r", "\x1b[K", "\x1b[1m", "100/100", "a note before"};
    for (int i = 0; i < 5; i++) assert_non_null(strstr(text, shown[i]));
    assert_null(strstr(text, "%  loss"));        // no plain lines
    assert_null(strstr(text, "a \x1b[31mtime")); // what a model writes does not reach the terminal as an escape
    free(text);
    EXPECT_SAID("log.txt", {"\x1b", 0}, {"\r", 0}, {"\nstep ", 51}, {"validation  2.5000", 1});
    setenv("NO_COLOR", "1", 1);
    text = run_on_terminal(40);
    unsetenv("NO_COLOR");
    assert_int_equal(count_of(text, "\x1b["), count_of(text, "\x1b[K")); // erasing is no colour
    for (char *part = strtok(text, "\r\n"); part; part = strtok(NULL, "\r\n")) {
        if (part[0] != '#' && part[0] != '-') continue; // live lines begin with the bar
        if (!strncmp(part, "----", 4) && !strstr(part, "loss")) continue; // around samples
        part[strcspn(part, "\x1b")] = '\0';
        assert_true(columns_of(part) < 40);
    }
    free(text);
}

// metrics.jsonl at a coarser grain: every log_every-th step, the last one, and any that is not a number.
TEST_IN_DIR(test_log_every)
{
    if (aside()) {
        Progress *p = progress_begin(&(ProgressPlan){.dir = dir, .name = "r", .steps = 100, .log_every = 30});
        for (int i = 1; i <= 100; i++)
            progress_step(p, &(MetricsRow){.step = i, .tokens = i, .loss = i == 7 ? NAN : 1, .dt_ms = 1});
        progress_end(p, &(MetricsRow){.step = 100, .tokens = 100, .val_loss = 1, .val_bpb = 1, .seconds = 1});
        _exit(0);
    }
    MetricsLog log = metrics_read(in_dir("metrics.jsonl"));
    const int want[] = {0, 7, 30, 60, 90, 100, 100}; // start, train x 5, end
    assert_int_equal(log.n_rows, 7);
    assert_int_equal(log.row[0].steps, 100);
    for (int i = 0; i < 7; i++) assert_int_equal(log.row[i].step, want[i]);
    metrics_log_free(&log);
}

// What has been going on for long is said on a terminal, and goes when it is over.
TEST(test_doing)
{
    char text[4096] = "";
    int here = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(here >= 0 && !grantpt(here) && !unlockpt(here));
    pid_t child = fork();
    if (child == 0) {
        int there = open(ptsname(here), O_RDWR | O_NOCTTY);
        setenv("TERM", "xterm", 1);
        dup2(there, STDERR_FILENO);
        doing("counting");
        sleep(4);
        doing(NULL);
        fputs("done", stderr);
        tcdrain(STDERR_FILENO);
        sleep(1);
        _exit(0);
    }
    assert_true(child > 0);
    for (size_t n = 0; !strstr(text, "\r\x1b[Kdone"); text[n] = 0) {
        ssize_t got = read(here, text + n, sizeof text - n - 1);
        assert_true(got > 0);
        n += (size_t)got;
    }
    assert_non_null(strstr(text, "\r\x1b[K... counting, "));
    assert_null(strstr(text, ", 1 s"));
    close(here);
    waitpid(child, NULL, 0);
}

TESTS(NULL, NULL)
