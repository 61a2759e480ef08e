// test_curve: windows, gains, spikes and plateaus of known loss curves; exact where sums are exact in binary.

#include "test/test.h"

#include "dev/draw/curve.h"

enum { STEPS = 40, WINDOW = 8 };

// Loss 4, 2, 2, 2, 2 in windows of 8, with +-1/4 around it: standard deviation sqrt(8 / 7) / 4.
static MetricsLog made_log(MetricsRow *row)
{
    for (int i = 0; i < STEPS; i++)
        row[i] = (MetricsRow){.event = METRICS_TRAIN, .step = i + 1,
                          .loss = (i < WINDOW ? 4 : 2) + (i % 2 ? 0.25 : -0.25),
                              .grad_norm = i % 2 ? 1 : 2};
    return (MetricsLog){.row = row, .n_rows = STEPS};
}

TEST(test_windows)
{
    MetricsRow row[STEPS];
    MetricsLog log = made_log(row);
    Curve c = curve_read(&log, (CurveSettings){.window = WINDOW, .spike_window = WINDOW,
                                   .spike_z = 3, .plateau = 0.01});
    assert_true(c.n_steps == STEPS && c.n_windows == 5 && c.n_spikes == 0);
    for (size_t w = 0; w < 5; w++) {
        const CurveWindow *x = &c.window[w];
        assert_true(x->first == (int64_t)w * WINDOW + 1 && x->last == (int64_t)(w + 1) * WINDOW);
        assert_true(x->mean == (w ? 2 : 4) && x->norm == 1.5 && x->bad == 0);
        assert_true(fabs(x->std - sqrt(8.0 / 7) / 4) <= 1e-15); // a root and a quotient
        assert_true(w == 0 ? isnan(x->gain) : x->gain == (w == 1 ? 0.5 : 0));
        assert_true(x->still == (w >= 2));
    }
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    curve_print(&c, "made", out);
    fclose(out);
    assert_non_null(strstr(text, "made: 40 steps, in windows of 8\n"));
    assert_non_null(strstr(text, "stands still from step 17 to 40: 3 windows, each within 1% of the one before\n"));
    assert_non_null(strstr(text, "50.00%"));
    free(text);
    curve_free(&c);
    for (int i = 3 * WINDOW; i < STEPS; i++) row[i].loss += i < 4 * WINDOW ? 0.06 : 0.132; // of 2: 3%, then 3.5% more
    c = curve_read(&log, (CurveSettings){.window = WINDOW, .spike_window = WINDOW, .spike_z = 3, .plateau = 0.01});
    for (size_t w = 1; w < 5; w++) assert_true(c.window[w].worse == (w > 2) && c.window[w].still == (w == 2));
    out = open_memstream(&text, &n);
    curve_print(&c, "made", out);
    fclose(out);
    assert_non_null(strstr(text, "rises from step 25 to 40: the mean loss is 6.60% above that of the window before\n"));
    assert_non_null(strstr(text, "stands still nowhere"));
    free(text);
    curve_free(&c);
}

// A spike of the loss, one of the norm, a NaN: each counted where it is; the mean is that of the rest.
TEST(test_spikes)
{
    MetricsRow row[STEPS];
    MetricsLog log = made_log(row);
    row[20].loss = 9, row[30].grad_norm = 400, row[35].loss = NAN;
    Curve c = curve_read(&log, (CurveSettings){.window = WINDOW, .spike_window = WINDOW,
                                   .spike_z = 3, .plateau = 0.01});
    assert_int_equal(c.n_spikes, 2);
    assert_true(c.spike_step[0] == 21 && c.spike[0].signal == MONITOR_LOSS && c.spike[0].value == 9);
    assert_true(c.spike_step[1] == 31 && c.spike[1].signal == MONITOR_GRAD_NORM && c.spike[1].value == 400);
    assert_true(c.window[2].spikes == 1 && c.window[3].spikes == 1 &&
                c.window[4].spikes == 0 && c.window[1].spikes == 0);
    assert_true(c.window[4].bad == 1 && fabs(c.window[4].mean - (16 - 2.25) / 7) <= 1e-15);
    curve_free(&c);
}

// What is left over joins the last window or is one; a file without a step; windows chosen by the run's length.
TEST(test_lengths)
{
    MetricsRow row[STEPS];
    MetricsLog log = made_log(row);
    const struct { size_t steps, window, windows, last; } rows[] = {
        {0, 8, 0, 0}, {1, 8, 1, 1}, {8, 8, 1, 8}, {12, 8, 1, 12}, {13, 8, 2, 5}, {16, 8, 2, 8}, {40, 0, 4, 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        log.n_rows = rows[i].steps;
        Curve c = curve_read(&log, (CurveSettings){.window = rows[i].window, .spike_z = 3, .plateau = 0.01});
        assert_int_equal(c.n_windows, rows[i].windows);
        const CurveWindow *last = &c.window[c.n_windows ? c.n_windows - 1 : 0];
        if (c.n_windows) assert_int_equal(last->last - last->first + 1, rows[i].last);
        FILE *out = fopen("/dev/null", "w");
        curve_print(&c, "", out);
        fclose(out);
        curve_free(&c);
    }
}

TESTS(NULL, NULL)
