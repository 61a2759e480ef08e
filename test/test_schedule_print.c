// test_schedule_print: the table has the values of the run at the steps that matter, the drawings have their
// corners where the curves have them, and unusual runs (one step, all warm-up) give a table and a picture too.
#include "test/test.h"

#include "expect_die.h"
#include "train/schedule.h"
#include "temp_dir.h"

static const Schedule wsd = {.kind = SCHEDULE_WSD, .shape = SCHEDULE_SHAPE_SQRT, .lr = 6e-4, .min_lr = 6e-5,
                             .warmup = 40, .decay_start = 800, .decay_steps = 1000};

static Ramp ramp(void)
{
    return schedule_ramp_make(4096, 32768, 4096, 4000000, 1024, true);
}

static char *print(const Schedule *s, const Ramp *r, long steps)
{
    char *text = PRINTED(out, schedule_print(s, r, steps, out));
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

// Every row of the table against the functions; returns how many there are. notes: what they say, a line each.
static int check_table(const char *text, const Schedule *s, const Ramp *r, char *notes, size_t n_notes)
{
    int rows = 0;
    long last = -1;
    const char *line = strstr(text, "tokens before");
    assert_non_null(line);
    for (line = strchr(line, '\n') + 1; *line != '\n' && *line; line = strchr(line, '\n') + 1) {
        long step;
        double tokens, batch, lr;
        int at = 0;
        assert_int_equal(sscanf(line, "%ld %lf %lf %lf %n", &step, &tokens, &batch, &lr, &at), 4);
        assert_true(step > last);
        last = step;
        assert_true(tokens == (double)(schedule_ramp_at(r, step).before * r->context));
        assert_true(batch == (double)(schedule_ramp_at(r, step).sequences * r->context));
        double want = schedule_lr_ramped(s, r, step);
        assert_true(fabs(lr - want) <= 5e-6 * want); // six digits are printed
        size_t n = strlen(notes);
        snprintf(notes + n, n_notes - n, "%ld %.*s\n", step, (int)strcspn(line + at, "\n"), line + at);
        rows++;
    }
    return rows;
}

TEST(test_momentum_is_drawn)
{
    Schedule warmed = wsd;
    warmed.momentum = 0.95, warmed.momentum_start = 0.85, warmed.momentum_warmup = 300;
    Ramp r = ramp();
    char notes[2000] = "";
    char *text = print(&warmed, &r, 1000), *plain = print(&wsd, &r, 1000);
    assert_int_equal(check_table(text, &warmed, &r, notes, sizeof notes), 9);
    assert_non_null(strstr(notes, "300 momentum full\n"));
    assert_non_null(strstr(text, "momentum: 0.85 to 0.95 over the first 300 steps\n"));
    assert_non_null(strstr(text, "\nmomentum\n        0.95 |"));
    assert_null(strstr(plain, "momentum"));
    free(text);
    free(plain);
}

TEST(test_table)
{
    Ramp r = ramp();
    char notes[2000] = "", want[400];
    char *text = print(&wsd, &r, 1000);
    assert_int_equal(check_table(text, &wsd, &r, notes, sizeof notes), 8);
    // rises at 1/7, ..., 7/7 of 4,000,000 tokens; 4 of 7 is the first size that is at least half way
    snprintf(want, sizeof want, "0 first step\n39 warm-up done\n%ld batch begins to grow\n%ld half of the ramp\n"
             "%ld batch full\n800 decay begins\n900 half of the decay\n999 last step\n", schedule_reaches(&r, 5),
             schedule_reaches(&r, 20), schedule_reaches(&r, 32));
    assert_string_equal(notes, want);
    assert_non_null(strstr(text, "learning rate: warm-up over 40 steps to 0.0006, 1-sqrt decay from step 800 to "
                                 "6e-05 at step 1000\n"));
    assert_non_null(strstr(text, "batch: 4096 to 32768 tokens over the first 4000000 tokens, in steps of 4096; "
                                 "learning rate times sqrt(batch / full)\n"));
    snprintf(want, sizeof want, "run: 1000 steps, %lld tokens\n", 
             (long long)(schedule_ramp_at(&r, 1000).before * 1024));
    assert_non_null(strstr(text, want));
    free(text);
}

// The row of the highest mark in each of the 50 columns of the drawing with this title; the rows are 9 to 0.
static void read_drawing(const char *text, const char *title, int high[50])
{
    const char *line = strstr(text, title);
    assert_non_null(line);
    line += 2; // behind the empty line
    for (int c = 0; c < 50; c++) high[c] = -1;
    for (int row = 9; row >= 0; row--) {
        line = strchr(line, '\n') + 1;
        const char *cell = strchr(line, '|') + 1;
        for (int c = 0; c < 50 && cell[c] != '\n'; c++)
            if (cell[c] == '*' && high[c] < 0) high[c] = row;
    }
}

// One column a step. A batch of 1 to 9: the row is its size. A rate that falls by 1/50: the nearest of 9 rows.
TEST(test_drawing)
{
    Schedule s = {.kind = SCHEDULE_LINEAR, .lr = 1, .decay_steps = 50};
    Ramp r = schedule_ramp_make(1, 9, 1, 100, 1, false);
    char *text = print(&s, &r, 50);
    int batch[50], lr[50];
    read_drawing(text, "\n\nbatch, tokens\n", batch);
    read_drawing(text, "\n\nlearning rate\n", lr);
    for (int c = 0; c < 50; c++) assert_int_equal(batch[c], schedule_ramp_at(&r, c).sequences);
    for (int c = 0; c < 50; c++) assert_int_equal(lr[c], lround(9 * (1 - c / 50.)));
    free(text);
}

TEST(test_odd_runs)
{
    const ScheduleKind kind[] = {SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_INVSQRT, SCHEDULE_CONSTANT, SCHEDULE_WSD};
    const long steps[] = {1, 2, 3, 30, 71, 72, 73, 5000000};
    Ramp grows = ramp(), none = schedule_ramp_make(0, 32768, 4096, 0, 1024, true);
    for (size_t k = 0; k < sizeof kind / sizeof *kind; k++)
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
            for (int warm = 0; warm < 2; warm++) {
                Schedule s = wsd;
                s.kind = kind[k];
                s.warmup = warm ? 50 : 0;
                s.decay_steps = steps[i];
                s.decay_start = steps[i] - steps[i] / 10;
                const Ramp *r = i % 2 ? &grows : &none;
                char notes[2000] = "", *text = print(&s, r, steps[i]);
                assert_in_range(check_table(text, &s, r, notes, sizeof notes), 1, 9);
                assert_non_null(strstr(notes, "first step"));
                assert_non_null(strstr(notes, "last step"));
                free(text);
            }
    Schedule s = {.kind = SCHEDULE_CONSTANT}; // a rate of 0: a flat line at the bottom
    free(print(&s, &none, 10));
}

static char *read_svg(const char *path)
{
    size_t n;
    char *text = whole_file(path, &n);
    assert_true(text && n > 500);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_string_equal(text + n - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    return text;
}

// The panels: x from 96 over 830; the rate from 328 up over 210, the batch from 490 up over 90.
TEST_IN_DIR(test_picture)
{
    Ramp r = ramp();
    schedule_print_svg(&wsd, &r, 1000, in_dir("schedule.svg"));
    char *svg = read_svg(in_dir("schedule.svg"));
    double total = (double)schedule_ramp_at(&r, 1000).before;
    const long step[] = {0, 39, schedule_reaches(&r, 5), schedule_reaches(&r, 32), 800, 900, 999};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        RampStep at = schedule_ramp_at(&r, step[i]);
        double x = 96 + 830 * (double)at.before / total;
        double y = 328 - 210 * schedule_lr_ramped(&wsd, &r, step[i]) / 6e-4;
        assert_non_null(strstr(svg, formatted("%.1f %.1f", x, y)));
        assert_non_null(strstr(svg, formatted("%.1f %.1f", x, 490 - 90 * (double)at.sequences / 32)));
    }
    assert_non_null(strstr(svg, "L926.0 400.0\"")); // to the end of the last step
    assert_null(strstr(svg, "M96.0 118.0"));
    free(svg);
    Schedule s = wsd;
    s.decay_steps = 1;
    s.decay_start = 0;
    schedule_print_svg(&s, &r, 1, in_dir("schedule.svg")); // one step, over the old picture
    free(read_svg(in_dir("schedule.svg")));
}

static int draw_nowhere(void *path)
{
    Ramp r = ramp();
    schedule_print_svg(&wsd, &r, 10, path);
    return 0;
}

TEST_IN_DIR(test_no_place_for_the_picture)
{
    expect_die(draw_nowhere, in_dir("none/schedule.svg"), "none/schedule.svg: No such file");
}

TESTS(NULL, NULL)
