// test_metrics: the schema line by line, numbers that are not finite, a locale with a decimal comma, resume after a
// kill, the reader; and how time is divided between phases.
#include "test/test.h"

#include "record/metrics.h"
#include "expect_die.h"
#include "temp_dir.h"
#include "base/clock.h"
#include "dev/check/comm_threads.h"
#include "train/phases.h"

#include <errno.h>
#include <jansson.h>
#include <locale.h>
#include <time.h>
#include <sys/wait.h>

static MetricsRow train_row(int64_t step)
{
    return (MetricsRow){.event = METRICS_TRAIN, .step = step, .tokens = step * 100, .loss = 3.25, .lr = 6e-4,
                        .grad_norm = 0.5, .dt_ms = 12.5, .tok_s = 8000, .mfu = 0.625, .ppl = 25.75, .samples_s = 125,
                        .data_ms = 0.5, .forward_ms = 4.25, .backward_ms = NAN, .optim_ms = 1.23456, .spikes = 2,
                        .skips = 3};
}

static MetricsRow val_row(MetricsEvent event, int64_t step)
{
    return (MetricsRow){.event = event, .step = step, .tokens = step * 100, .val_loss = 2.5, .val_bpb = 1.25,
                        .floor_loss = 2, .floor_bpb = 1, .seconds = 7.5, .val_ppl = 12.5};
}

static void write_all(int64_t resume_step, const MetricsRow *row, size_t n)
{
    Metrics *metrics = metrics_open(in_dir("metrics.jsonl"), resume_step, 10);
    for (size_t i = 0; i < n; i++) metrics_write(metrics, &row[i]);
    metrics_close(metrics);
}

static MetricsLog read_log(void) { return metrics_read(in_dir("metrics.jsonl")); }

static void expect_in_file(const char *const *words) // NULL ends them
{
    char *text = take_file("metrics.jsonl", NULL);
    for (; *words; words++)
        if (!strstr(text, *words)) fail_msg("no %s in %s", *words, text);
    free(text);
}
#define EXPECT_IN_FILE(...) expect_in_file((const char *const[]){__VA_ARGS__, NULL})

// The keys that other programs rely on, spelled out here a second time on purpose.
TEST_IN_DIR(test_schema)
{
    MetricsRow rows[] = {
        {.event = METRICS_START, .name = "r", .text = "GPT", .params = 7, .steps = 9, .batch_tokens = 100,
         .mem = {[MEM_PARAMS] = 28, [MEM_HOST] = 5}},
        train_row(1), val_row(METRICS_VAL, 1), val_row(METRICS_END, 1),
        {.event = METRICS_SAVE, .step = 1, .text = "checkpoints/step_00000001"},
    };
    const char *want[] = {
        "{\"event\":\"start\",\"step\":0,\"name\":\"r\",\"text\":\"GPT\",\"params\":7,"
        "\"steps\":9,\"batch_tokens\":100,\"mem_parameters\":28,\"mem_host\":5,",
        "{\"event\":\"train\",\"step\":1,\"tokens\":100,\"loss\":3.25,\"lr\":0.0006,\"grad_norm\":0.5,"
        "\"dt_ms\":12.5,\"tok_s\":8000.0,\"mfu\":0.625,\"ppl\":25.75,\"samples_s\":125.0,\"data_ms\":0.5,"
        "\"forward_ms\":4.25,\"comm_ms\":0.0,\"optim_ms\":1.235,\"save_ms\":0.0,\"eval_ms\":0.0,\"spikes\":2,"
        "\"skips\":3,",
        "{\"event\":\"val\",\"step\":1,\"tokens\":100,\"val_loss\":2.5,\"val_bpb\":1.25,\"floor_loss\":2.0,"
        "\"floor_bpb\":1.0,\"seconds\":7.5,\"val_ppl\":12.5,",
        "{\"event\":\"end\",\"step\":1,\"tokens\":100,\"val_loss\":2.5,\"val_bpb\":1.25,\"floor_loss\":2.0,"
        "\"floor_bpb\":1.0,\"seconds\":7.5,\"val_ppl\":12.5,",
        "{\"event\":\"save\",\"step\":1,\"text\":\"checkpoints/step_00000001\",",
    };
    write_all(0, rows, 5);
    char *text = take_file("metrics.jsonl", NULL), *line = text;
    for (int i = 0; i < 5; i++, line = strchr(line, '\n') + 1)
        if (strncmp(line, want[i], strlen(want[i])) || strncmp(line + strlen(want[i]), "\"t\":", 4) ||
            strchr(line, '\n') != line + strcspn(line, "}") + 1)
            fail_msg("%s\nand not\n%s", line, want[i]);
    assert_string_equal(line, "");
    free(text);
}

TEST_IN_DIR(test_not_finite)
{
    MetricsRow rows[] = {train_row(1), train_row(2), val_row(METRICS_VAL, 2)};
    rows[0].loss = NAN;
    rows[1].grad_norm = INFINITY;
    rows[2].val_loss = -INFINITY;
    rows[2].floor_loss = 0; // not known: not written
    write_all(0, rows, 3);
    EXPECT_IN_FILE("\"loss\":null,\"loss_nan\":true,\"lr\"",
                   "\"grad_norm\":null,\"grad_norm_nan\":true,\"grad_norm_inf\":1,",
                   "\"val_loss\":null,\"val_loss_nan\":true,\"val_loss_inf\":-1,\"val_bpb\":1.25,\"floor_bpb\"");
    MetricsLog log = read_log();
    assert_true(log.n_rows == 3 && log.n_bad == 0);
    assert_true(isnan(log.row[0].loss) && isnan(log.row[1].grad_norm) && isnan(log.row[2].val_loss));
    assert_true(log.row[1].loss == 3.25 && log.row[2].floor_loss == 0);
    metrics_log_free(&log);
}

// A sample from a byte-level tokenizer may hold anything: cut characters, overlong forms, surrogates,
// escapes.
TEST_IN_DIR(test_text_is_any_bytes)
{
    char big[20000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    MetricsRow rows[] = {
        {.event = METRICS_SAMPLE, .step = 1, .text = "caf\xc3\xa9 \"\\\n\x1b[31m \xe2\x82\xac \xf0\x9f\x90\xb1"},
        {.event = METRICS_SAMPLE, .step = 2, .text = "\xc3|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xff|\xe2\x82"},
        {.event = METRICS_SAMPLE, .step = 3, .text = big},
    };
    write_all(0, rows, 3);
    MetricsLog log = read_log();
    assert_int_equal(log.n_rows, 3);
    assert_string_equal(log.row[0].text, rows[0].text);
#define U "\xef\xbf\xbd"
    assert_string_equal(log.row[1].text, U "|" U U "|" U U U "|" U U U U "|" U "|" U);
    assert_string_equal(log.row[2].text, big);
    metrics_log_free(&log);
}

// 9 digits give back every float, and every line is there before the next call: nothing waits in a
// buffer.
TEST_IN_DIR(test_round_trip_and_flush)
{
    Metrics *metrics = metrics_open(in_dir("metrics.jsonl"), 0, 0);
    for (int i = 1; i <= 50; i++) {
        MetricsRow row = train_row(i);
        row.loss = (float)(1.0 / (3 * i));
        row.tokens = ((int64_t)1 << 52) + i;
        metrics_write(metrics, &row);
        MetricsLog log = read_log();
        assert_int_equal(log.n_rows, i);
        assert_true((float)log.row[i - 1].loss == (float)row.loss);
        assert_true(log.row[i - 1].tokens == row.tokens && log.row[i - 1].step == i);
        metrics_log_free(&log);
    }
    metrics_close(metrics);
}

// A locale whose decimal point is a comma, made here because a bare machine has none: a glibc
// LC_NUMERIC file of its six fields (decimal point, thousands separator, grouping, both as wide
// characters, code set).
static int make_comma_locale(void)
{
    mkdir(in_dir("xx_XX"), 0700);
    FILE *file = fopen(in_dir("xx_XX/LC_NUMERIC"), "w");
    assert_non_null(file);
    const uint32_t head[] = {0x20031115 ^ LC_NUMERIC, 6, 32, 34, 36, 40, 44, 48};
    fwrite(head, sizeof head, 1, file);
    fwrite(",\0.\0\x7f\0\0\0,\0\0\0.\0\0\0UTF-8\0\0\0", 24, 1, file);
    fclose(file);
    setenv("LOCPATH", dir, 1);
    return setlocale(LC_NUMERIC, "xx_XX") != NULL;
}

TEST_IN_DIR(test_comma_locale)
{
    char number[2][16];
    bool made = make_comma_locale();
    if (made) {
        snprintf(number[0], 16, "%.1f", 0.5);
        write_all(0, (const MetricsRow[]){train_row(1), val_row(METRICS_VAL, 1)}, 2);
        MetricsLog log = read_log();
        metrics_plot_loss(in_dir("metrics.jsonl"), in_dir("loss.svg"), NULL, 0);
        snprintf(number[1], 16, "%.1f", 0.5);
        setlocale(LC_NUMERIC, "C");
        assert_string_equal(number[0], "0,5"); // or the test tests nothing
        assert_string_equal(number[1], "0,5"); // drawing left the user's locale in place
        char *picture = take_file("loss.svg", NULL);
        for (const char *s = picture; (s = strchr(s, ',')); s++) assert_true(s[1] == ' '); // prose alone has commas
        assert_non_null(strstr(picture, "stroke-width=\"2.2\""));
        free(picture);
        EXPECT_IN_FILE("\"loss\":3.25,", "\"val_bpb\":1.25,");
        assert_true(log.n_rows == 2 && log.row[0].loss == 3.25);
        metrics_log_free(&log);
    }
    unsetenv("LOCPATH");
    if (!made) skip(); // a C library with another file format
}

// Killed at step 7 while writing, resumed from the checkpoint of step 4.
TEST_IN_DIR(test_resume_drops_what_is_done_again)
{
    const MetricsRow before[] = {
        {.event = METRICS_START, .steps = 3}, train_row(1), train_row(2), val_row(METRICS_VAL, 2), train_row(3),
        val_row(METRICS_END, 3), {.event = METRICS_RESUME, .step = 3, .steps = 10}, train_row(4), val_row(METRICS_VAL, 4), val_row(METRICS_END, 4), // this run had been stopped at 4 before
        train_row(5), train_row(6), val_row(METRICS_VAL, 6), train_row(7)};
    write_all(0, before, sizeof before / sizeof *before);
    FILE *file = fopen(in_dir("metrics.jsonl"), "a");
    fputs("{\"event\":\"eval\",\"step\":3,\"new\":1}\n{\"event\":\"train\",\"step\":8,\"lo", file);
    fclose(file);
    const MetricsRow after[] = {{.event = METRICS_RESUME, .step = 4, .steps = 10}, train_row(5), train_row(6),
                                train_row(7), train_row(8), train_row(9), train_row(10), val_row(METRICS_END, 10)};
    write_all(4, after, sizeof after / sizeof *after);
    EXPECT_IN_FILE("{\"event\":\"eval\",\"step\":3,\"new\":1}\n"); // lines of later versions are kept as they are
    MetricsLog log = read_log();
    int trains = 0, of[METRICS_EVENTS] = {0};
    for (size_t i = 0; i < log.n_rows; i++) {
        of[log.row[i].event]++;
        if (log.row[i].event == METRICS_TRAIN) assert_int_equal(log.row[i].step, ++trains); // each once, in order
    }
    assert_true(log.n_bad == 0 && trains == 10 && of[METRICS_RESUME] == 2 && of[METRICS_END] == 1);
    assert_int_equal(of[METRICS_VAL], 3); // 2, the end at 3, and 4 once; 6 would have been measured again
    assert_true(log.row[log.n_rows - 1].event == METRICS_END);
    metrics_log_free(&log);
}

TEST_IN_DIR(test_new_run_and_missing_file)
{
    MetricsRow row = train_row(1);
    write_all(5, &row, 1); // resumed, but someone deleted the file
    write_all(0, &row, 1); // a new run begins with an empty file
    MetricsLog log = read_log();
    assert_int_equal(log.n_rows, 1);
    metrics_log_free(&log);
}

TEST_IN_DIR(test_reader_tolerates_a_cut_line)
{
    put_text("metrics.jsonl", "{\"event\":\"train\",\"step\":1,\"loss\":2}\n\n[1]\n"
             "{\"event\":\"train\",\"step\":2,\"loss\":1.");
    MetricsLog log = read_log();
    assert_true(log.n_rows == 1 && log.n_bad == 3); // the empty line, the array, the cut line
    assert_true(log.row[0].loss == 2 && isnan(log.row[0].lr) && log.row[0].text == NULL);
    metrics_log_free(&log);
}

TEST_IN_DIR(test_errors)
{
    expect_dies("No such file", metrics_read(in_dir("metrics.jsonl")));
    expect_dies("metrics: cannot open /nonexistent/metrics.jsonl", metrics_open("/nonexistent/metrics.jsonl", 0, 0));
    if (!access("/dev/full", W_OK)) expect_dies("is the disk full?", {
        MetricsRow row = train_row(1);
        metrics_write(metrics_open("/dev/full", 0, 0), &row);
    });
}

// ---- phases: the time between two moments is divided between the phases, each moment once: by hand, through the
// model's hooks, and while a rank waits for another.

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static double sum(Phases *p)
{
    double ms = 0;
    for (int i = 0; i < PHASES; i++) ms += phases_take(p, (Phase)i);
    return ms;
}

typedef struct {
    int before, after;
} Calls;

static void count_before(void *self, int unit, UnitPass pass)
{
    (void)unit, (void)pass;
    ((Calls *)self)->before++;
}

static void count_after(void *self, int unit, UnitPass pass)
{
    (void)unit, (void)pass;
    ((Calls *)self)->after++;
}

TEST(test_by_hand)
{
    Dev dev = {0};
    Model model = {.dev = &dev};
    Phases p;
    phases_begin(&p, &model, NULL);
    sleep_ms(3);
    phases_step(&p); // forgets it
    double begin = p.since;
    phases_enter(&p, PHASES_DATA);
    sleep_ms(10);
    assert_int_equal(phases_enter(&p, PHASES_OPTIM), PHASES_DATA);
    sleep_ms(20);
    phases_enter(&p, PHASES_SAVE);
    sleep_ms(5);
    phases_enter(&p, PHASES_OTHER);
    double elapsed = 1e3 * (p.since - begin), data = p.seconds[PHASES_DATA], optim = p.seconds[PHASES_OPTIM];
    assert_true(data >= 0.010 && optim >= 0.020 && p.seconds[PHASES_SAVE] >= 0.005);
    assert_true(p.seconds[PHASES_COMM] == 0);
    assert_true(fabs(sum(&p) - elapsed) <= 1e-6); // 1e3 times sums of ten differences of doubles below 1e6: 1e-10 each
    assert_true(sum(&p) == 0);                             // taken
    phases_enter(&p, PHASES_SAVE);
    sleep_ms(2);
    phases_step(&p); // a new step keeps what lies between steps
    assert_true(phases_take(&p, PHASES_SAVE) >= 2);
}

TEST(test_hooks)
{
    Calls calls = {0};
    Dev dev = {0};
    Model model = {.dev = &dev, .hooks = {.self = &calls, .before = count_before, .after = count_after}};
    Phases p;
    phases_begin(&p, &model, NULL);
    UnitHooks *h = &model.hooks;
    phases_step(&p);
    phases_enter(&p, PHASES_FORWARD);
    static const struct {
        UnitPass pass;
        Phase phase;
    } order[] = {{PASS_FORWARD, PHASES_FORWARD}, {PASS_AGAIN, PHASES_BACKWARD}, {PASS_BACKWARD, PHASES_BACKWARD},
                 {PASS_FORWARD, PHASES_FORWARD}};
    for (int i = 0; i < 4; i++) {
        h->before(h->self, 0, order[i].pass);
        assert_int_equal(p.now, order[i].phase);
        h->after(h->self, 0, order[i].pass);
        assert_int_equal(p.now, order[i].phase);
    }
    phases_enter(&p, PHASES_EVAL); // the same units, in an evaluation
    h->before(h->self, 0, PASS_FORWARD);
    h->after(h->self, 0, PASS_FORWARD);
    assert_int_equal(p.now, PHASES_EVAL);
    assert_int_equal(calls.before, 5);
    assert_int_equal(calls.after, 5);
}

static void *some_memory(size_t n_bytes)
{
    (void)n_bytes;
    return NULL;
}

// A device computes while the host goes on: only what the host does itself is known.
TEST(test_device)
{
    Dev dev = {.raw_alloc = some_memory};
    Model model = {.dev = &dev};
    Phases p;
    phases_begin(&p, &model, NULL);
    assert_null(model.hooks.before);
    phases_step(&p);
    phases_enter(&p, PHASES_OTHER);
    for (int i = 0; i < PHASES; i++)
        assert_int_equal(isnan(phases_take(&p, (Phase)i)), i != PHASES_DATA && i != PHASES_SAVE && i != PHASES_EVAL);
}

// Rank 1 comes 30 ms late to a barrier, once in forward and once in a save.
static void late(Comm *comm, void *arg)
{
    double *failed = arg;
    Dev dev = {0};
    Model model = {.dev = &dev};
    Phases p;
    CommRequest q = comm_barrier(comm);
    comm_wait(comm, &q);
    phases_begin(&p, &model, comm);
    phases_step(&p);
    double begin = p.since;
    phases_enter(&p, PHASES_FORWARD);
    sleep_ms(comm->rank ? 40 : 10);
    q = comm_barrier(comm);
    comm_wait(comm, &q);
    phases_enter(&p, PHASES_SAVE);
    sleep_ms(comm->rank ? 30 : 0);
    q = comm_barrier(comm);
    comm_wait(comm, &q);
    phases_enter(&p, PHASES_OTHER);
    double elapsed = 1e3 * (p.since - begin), w = 1e3 * p.seconds[PHASES_COMM], save = 1e3 * p.seconds[PHASES_SAVE];
    double forward = 1e3 * p.seconds[PHASES_FORWARD];
    if (comm->rank) return;
    *failed = !(w >= 20 && save >= 20 && forward >= 10 && forward <= elapsed - w - save + 1e-6)
              || !(fabs(sum(&p) - elapsed) <= 1e-6);
    if (*failed) printf("waited %g, forward %g, save %g of %g ms\n", w, forward, save, elapsed);
}

TEST(test_waits)
{
    double failed = 1;
    comm_threads_run(2, late, &failed);
    assert_true(failed == 0);
}

TESTS(NULL, NULL)
