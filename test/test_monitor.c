// test_monitor: what watches a run: the spike detector at the edges of its state machine, the noise scale on gradients
// of known noise, and the search for a bad number.
//
// Where numbers are exact in binary (1 1 2 3 3 has mean 2 and std 1, n - 1) comparisons are exact too. Otherwise z is
// held to 1e-12: sums over n <= 128 values, mean, std and logarithms round to within about n 2^-53 = 1.4e-14 of the
// largest value, which is always within 50 std of the mean.
#include "test/test.h"

#include "train/monitor.h"
#include "base/rng.h"
#include "expect_die.h"
#include "src/check/noise.h"
#include "dev/check/comm_threads.h"
#include "step_run.h"
#include "formats/formats.h"
#include "src/check/observers.h"

#include <float.h>

static const double EXACT[5] = {1, 1, 2, 3, 3}; // mean 2, std 1

static MonitorVerdict judge(Monitor *m, double loss, double norm, MonitorAction action, MonitorReason reason)
{
    MonitorVerdict v = monitor_judge(m, loss, norm);
    assert_int_equal(v.action, action);
    assert_int_equal(v.reason, reason);
    return v;
}

// A monitor whose window holds EXACT as losses and, as norms, 1 five times.
static Monitor filled(double skip_z, long max_skips)
{
    Monitor m = monitor_create(5, skip_z, max_skips);
    for (int i = 0; i < 5; i++) judge(&m, EXACT[i], 1, MONITOR_ACCEPT, MONITOR_FILLING);
    return m;
}

static void skips(Monitor *m, double loss, double norm) { judge(m, loss, norm, MONITOR_SKIP, MONITOR_SPIKE); }
static void usual(Monitor *m, double loss, double norm) { judge(m, loss, norm, MONITOR_ACCEPT, MONITOR_USUAL); }

static double *copy_state(Monitor *m, size_t *n)
{
    double *state = monitor_state(m, n), *copy = zeroed(*n * sizeof *copy);
    return memcpy(copy, state, *n * sizeof *copy);
}

static void assert_same_state(Monitor *a, Monitor *b)
{
    size_t n_a, n_b;
    const double *x = monitor_state(a, &n_a), *y = monitor_state(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(x, y, n_a * sizeof *x);
}

// ---- the window

// Nothing is a spike until the window is full, and the very next value is judged.
TEST(test_filling)
{
    for (size_t window = 2; window <= 40; window += 19) {
        Monitor m = monitor_create(window, 6, 10);
        for (size_t i = 0; i < window; i++) {
            MonitorVerdict v = judge(&m, i % 2 ? 3 : 1000, 1, MONITOR_ACCEPT, MONITOR_FILLING);
            assert_true(v.z == 0 && v.mean == 0 && v.std == 0);
        }
        skips(&m, 1e7, 1);
        monitor_reset(&m);
        Monitor fresh = monitor_create(window, 6, 10);
        assert_same_state(&m, &fresh);
        judge(&m, 1e7, 1, MONITOR_ACCEPT, MONITOR_FILLING);
        monitor_free(&m);
        monitor_free(&fresh);
    }
}

// Old values leave: a window that has moved on judges by what is in it.
TEST(test_window_moves)
{
    Monitor m = monitor_create(5, 6, 10);
    for (int i = 0; i < 23; i++) judge(&m, 100 + i, 1, MONITOR_ACCEPT, i < 5 ? MONITOR_FILLING : MONITOR_USUAL);
    for (int i = 0; i < 5; i++) judge(&m, EXACT[i], 1, MONITOR_ACCEPT, MONITOR_USUAL); // a fall is no spike
    MonitorVerdict v = judge(&m, 10, 1, MONITOR_SKIP, MONITOR_SPIKE);
    assert_true(v.mean == 2 && v.std == 1 && v.z == 8 && v.value == 10 && v.signal == MONITOR_LOSS);
    judge(&m, 0, 1, MONITOR_ACCEPT, MONITOR_USUAL); // the oldest, 1, leaves: 1 2 3 3 0
    v = judge(&m, 50, 1, MONITOR_SKIP, MONITOR_SPIKE);
    assert_true(fabs(v.mean - 1.8) <= 1e-12 && fabs(v.std - sqrt(1.7)) <= 1e-12); // squares 6.8 / 4
    monitor_free(&m);
}

// ---- the threshold

TEST(test_exactly_at_the_threshold)
{
    const struct { double skip_z, at; } row[] = {{6, 8}, {3, 5}, {0.5, 2.5}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Monitor m = filled(row[i].skip_z, 10), above = filled(row[i].skip_z, 10);
        MonitorVerdict v = judge(&m, row[i].at, 1, MONITOR_ACCEPT, MONITOR_USUAL);
        assert_true(v.z == row[i].skip_z);
        skips(&above, nextafter(row[i].at, INFINITY), 1);
        monitor_free(&m);
        monitor_free(&above);
    }
}

// 1e8 + EXACT: a sum of squares less the square of the mean would have no digit left; the two passes are exact. Squares
// that overflow hide spikes until the value has left, and no longer. z of 0: it judges nothing.
TEST(test_large_values)
{
    Monitor m = monitor_create(5, 6, 10), off = monitor_create(5, 0, 3);
    judge(&m, DBL_MAX, DBL_MAX, MONITOR_ACCEPT, MONITOR_FILLING);
    judge(&m, -DBL_MAX, DBL_MIN, MONITOR_ACCEPT, MONITOR_FILLING);
    for (int i = 0; i < 5; i++) assert_true(monitor_judge(&m, 1e8 + EXACT[i], 1).action == MONITOR_ACCEPT);
    MonitorVerdict v = judge(&m, 1e8 + 9, 1, MONITOR_SKIP, MONITOR_SPIKE);
    assert_true(v.z == 7 && v.mean == 1e8 + 2 && v.std == 1);
    usual(&m, 1e8 + 8, 1);
    for (int i = 0; i < 50; i++) judge(&off, i % 10 ? 3 : 1e6, i % 7 ? 1 : 1e6, MONITOR_ACCEPT, MONITOR_FILLING);
    monitor_free(&m);
    monitor_free(&off);
}

// The next value on a straight line has z = sqrt(3 (n + 1) / n), however steep: mean of n values is (n + 1) / 2
// slopes below it, their std sqrt(n (n + 1) / 12) slopes.
TEST(test_a_steady_rise_is_no_spike)
{
    for (size_t n = 4; n <= 128; n *= 2) {
        double z = sqrt(3 * (double)(n + 1) / (double)n);
        for (double slope = 1.0 / 64; slope < 100; slope *= 8) {
            Monitor m = monitor_create(n, 2, 10), norm = monitor_create(n, 2, 10);
            for (size_t i = 0; i < n + 50; i++) {
                MonitorVerdict v = monitor_judge(&m, slope * (double)i, 1);
                assert_true(v.action == MONITOR_ACCEPT);
                if (i >= n) assert_true(v.signal == MONITOR_LOSS && fabs(v.z - z) <= 1e-12 * (double)(n + 50));
                assert_true(monitor_judge(&norm, 1, exp(fmin(slope, 3) * (double)i)).action == MONITOR_ACCEPT);
            }
            monitor_free(&m);
            monitor_free(&norm);
        }
    }
}

// std 0: the floor decides, 1e-4 nats of loss or of log norm.
TEST(test_constant)
{
    for (double level = 0; level < 20; level += 6.5) {
        Monitor m = monitor_create(16, 6, 100);
        for (int i = 0; i < 40; i++) judge(&m, level, 0.25, MONITOR_ACCEPT, i < 16 ? MONITOR_FILLING : MONITOR_USUAL);
        MonitorVerdict v = judge(&m, level, 0.25, MONITOR_ACCEPT, MONITOR_USUAL);
        assert_true(v.z == 0 && v.std == MONITOR_STD_FLOOR);
        skips(&m, level + 6.01e-4, 0.25);
        v = judge(&m, level, 0.25 * exp(6.01e-4), MONITOR_SKIP, MONITOR_SPIKE);
        assert_int_equal(v.signal, MONITOR_GRAD_NORM);
        judge(&m, level, 0.25 * exp(5.99e-4), MONITOR_ACCEPT, MONITOR_USUAL);
        judge(&m, level + 5.99e-4, 0.25, MONITOR_ACCEPT, MONITOR_USUAL);
        monitor_free(&m);
    }
}

// Norms e^1 e^1 e^2 e^3 e^3: mean 2 and std 1 of the logarithms, to rounding. Of the two signals the larger z is named.
TEST(test_the_norm_is_judged_by_its_logarithm)
{
    Monitor m = monitor_create(5, 6, 10), both = monitor_create(5, 6, 10);
    for (int i = 0; i < 5; i++) {
        judge(&m, 3, exp(EXACT[i]), MONITOR_ACCEPT, MONITOR_FILLING);
        judge(&both, EXACT[i], exp(EXACT[i]), MONITOR_ACCEPT, MONITOR_FILLING);
    }
    MonitorVerdict v = judge(&m, 3, exp(9), MONITOR_SKIP, MONITOR_SPIKE);
    assert_int_equal(v.signal, MONITOR_GRAD_NORM);
    assert_true(v.value == exp(9) && fabs(v.z - 7) <= 1e-12 && fabs(v.mean - 2) <= 1e-12 && fabs(v.std - 1) <= 1e-12);
    skips(&m, 3, exp(8.01));
    usual(&m, 3, exp(7.99));
    usual(&m, 3, exp(-50)); // small is no spike
    assert_true(judge(&m, -100, exp(-500), MONITOR_ACCEPT, MONITOR_USUAL).z < -6);
    assert_int_equal(judge(&both, 12, exp(11), MONITOR_SKIP, MONITOR_SPIKE).signal, MONITOR_LOSS);
    assert_int_equal(judge(&both, 11, exp(12), MONITOR_SKIP, MONITOR_SPIKE).signal, MONITOR_GRAD_NORM);
    monitor_free(&m);
    monitor_free(&both);
}

// ---- what may enter

// Every second step is a spike of one height, 400 times. All are skipped, and the window is that of a run without
// them. (Were they let in: after k of them the next has z <= sqrt((128 - k) 127 / (128 k)), below 6 from k = 4 on.)
TEST(test_skipped_values_do_not_enter)
{
    for (int signal = 0; signal < MONITOR_SIGNALS; signal++) {
        Monitor m = monitor_create(128, 6, 10), clean = monitor_create(128, 6, 10);
        Rng r = rng_make(7, "monitor", 0);
        for (uint64_t i = 0; i < 528; i++) {
            double loss = 3 + 0.1 * rng_uniform(r, 2 * i), norm = 1 + 0.1 * rng_uniform(r, 2 * i + 1);
            if (i >= 128) {
                bool at_loss = signal == MONITOR_LOSS;
                MonitorVerdict v = monitor_judge(&m, at_loss ? 30 : loss, at_loss ? norm : 30);
                assert_true(v.action == MONITOR_SKIP && v.reason == MONITOR_SPIKE && (int)v.signal == signal);
            }
            assert_true(monitor_judge(&m, loss, norm).action == MONITOR_ACCEPT);
            assert_true(monitor_judge(&clean, loss, norm).action == MONITOR_ACCEPT);
            assert_same_state(&m, &clean);
        }
        monitor_free(&m);
        monitor_free(&clean);
    }
}

// Not finite: skipped at any time, on or off, and nothing changes by it.
TEST(test_not_finite)
{
    const double bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int phase = 0; phase < 4; phase++) {
        Monitor m = monitor_create(5, phase == 3 ? 0 : 6, 3);
        for (int i = 0; i < 5 && phase != 1; i++) monitor_judge(&m, EXACT[i], 1);
        for (int i = 0; i < 3 && phase == 2; i++) skips(&m, 100, 1);
        size_t n;
        double *before = copy_state(&m, &n);
        for (int i = 0; i < 40; i++) {
            double x = bad[i % 4];
            MonitorVerdict v = judge(&m, x, 1, MONITOR_SKIP, MONITOR_NOT_FINITE);
            assert_int_equal(v.signal, MONITOR_LOSS);
            v = judge(&m, 2, x, MONITOR_SKIP, MONITOR_NOT_FINITE);
            assert_int_equal(v.signal, MONITOR_GRAD_NORM);
            judge(&m, x, x, MONITOR_SKIP, MONITOR_NOT_FINITE);
        }
        assert_memory_equal(before, monitor_state(&m, &n), n * sizeof *before);
        if (phase == 2) judge(&m, 100, 1, MONITOR_ACCEPT, MONITOR_NEW_LEVEL);
        free(before);
        monitor_free(&m);
    }
}

// A norm of 0 is accepted and stays out of the norms' window; so does nothing else of the step.
TEST(test_zero_norm)
{
    Monitor m = filled(6, 10);
    for (int i = 0; i < 20; i++) judge(&m, EXACT[i % 5], i % 2 ? 0.0 : -0.0, MONITOR_ACCEPT, MONITOR_USUAL);
    MonitorVerdict v = judge(&m, 2, 1.001, MONITOR_SKIP, MONITOR_SPIKE); // still five norms of 1
    assert_true(v.signal == MONITOR_GRAD_NORM && v.mean == 0 && v.std == MONITOR_STD_FLOOR);
    v = judge(&m, 9, 0, MONITOR_SKIP, MONITOR_SPIKE);
    assert_true(v.signal == MONITOR_LOSS && v.z == 7);
    Monitor zeros = monitor_create(4, 6, 10);
    for (int i = 0; i < 9; i++) assert_true(monitor_judge(&zeros, 1, 0).action == MONITOR_ACCEPT);
    monitor_free(&m);
    monitor_free(&zeros);
}

// ---- a row of spikes

// The level goes from 2 to 100 and stays: max_skips are skipped, the next is accepted, the windows begin with it. Only
// spikes in a row count.
TEST(test_a_new_level)
{
    for (long max_skips = 1; max_skips <= 10; max_skips += 3) {
        Monitor m = filled(6, max_skips);
        for (int i = 0; i < 20; i++) {
            for (long k = 0; k < max_skips; k++) skips(&m, 1000, 1);
            usual(&m, EXACT[i % 5], 1);
        }
        for (long i = 0; i < max_skips; i++) skips(&m, 100, 1);
        MonitorVerdict v = judge(&m, 100, 1, MONITOR_ACCEPT, MONITOR_NEW_LEVEL);
        assert_true(v.z == 98 && v.mean == 2 && v.std == 1);
        for (int i = 0; i < 4; i++) judge(&m, 100 + i % 2, 1, MONITOR_ACCEPT, MONITOR_FILLING);
        v = judge(&m, 200, 1, MONITOR_SKIP, MONITOR_SPIKE); // 100 100 101 100 101
        assert_true(fabs(v.mean - 100.4) <= 1e-12 * 100);
        for (long i = 1; i < max_skips; i++) skips(&m, 200, 1);
        judge(&m, 200, 1, MONITOR_ACCEPT, MONITOR_NEW_LEVEL); // counted from 0 again
        monitor_free(&m);
    }
}

// ---- a checkpoint

// Whatever a damaged checkpoint holds, the monitor gets over it: a window full of good values later it is as new.
TEST(test_any_state_recovers)
{
    const double bad[] = {NAN, INFINITY, -INFINITY, -1e308, 1e308, -5};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        Monitor m = filled(6, 3), good = filled(6, 3);
        size_t n;
        double *at = monitor_state(&m, &n);
        for (size_t i = 0; i < n; i++) at[i] = bad[b];
        for (int i = 0; i < 20; i++) monitor_judge(&m, EXACT[i % 5], 1);
        for (int i = 0; i < 20; i++) judge(&good, EXACT[i % 5], 1, MONITOR_ACCEPT, MONITOR_USUAL);
        assert_same_state(&m, &good);
        monitor_free(&m);
        monitor_free(&good);
    }
    Monitor m = filled(6, 3); // and a count that is no number cannot make it skip for ever
    size_t n;
    monitor_state(&m, &n)[0] = NAN;
    judge(&m, 100, 1, MONITOR_ACCEPT, MONITOR_NEW_LEVEL);
    monitor_free(&m);
}

// ---- words

static void explains(const Monitor *m, MonitorVerdict v, const char *want)
{
    char text[200];
    monitor_explain(m, v, text, sizeof text);
    assert_string_equal(text, want);
}

TEST(test_explain)
{
#define ABOVE "loss 12.5 is 10.5 standard deviations above the mean of the last 5 steps, 2 (1 each)"
    Monitor m = monitor_create(5, 6, 1);
    for (int i = 0; i < 5; i++) monitor_judge(&m, EXACT[i], exp(EXACT[i]));
    explains(&m, judge(&m, 12.5, 1, MONITOR_SKIP, MONITOR_SPIKE), ABOVE);
    explains(&m, judge(&m, 12.5, 1, MONITOR_ACCEPT, MONITOR_NEW_LEVEL), ABOVE ", as were those before it");
    explains(&m, judge(&m, 2, -NAN, MONITOR_SKIP, MONITOR_NOT_FINITE), "gradient norm nan");
    monitor_reset(&m);
    for (int i = 0; i < 5; i++) monitor_judge(&m, 2, exp(EXACT[i]));
    MonitorVerdict v = judge(&m, 2, exp(12), MONITOR_SKIP, MONITOR_SPIKE);
    explains(&m, v, "gradient norm 1.628e+05 is 10 standard deviations above the mean of the last 5 steps, 7.389 (a "
                    "factor of 2.72 each)");
    char small[10];
    monitor_explain(&m, v, small, sizeof small);
    assert_string_equal(small, "gradient ");
    monitor_free(&m);
}

// ---- rules and actions

// A monitor whose windows hold losses of 2 and norms of 1, with the guides' ratios and an action for each.
static Monitor ruled(MonitorAction low, MonitorAction mid, MonitorAction high, MonitorAction norm)
{
    Monitor m = monitor_create(8, 0, 3);
    monitor_set_rules(&m, (MonitorRules){.on_spike = MONITOR_SKIP, .on_not_finite = MONITOR_ROLLBACK, .n = 4,
                                         .rule = {{MONITOR_OF_LOSS, 1.5, low}, {MONITOR_OF_LOSS, 2, mid},
                                                  {MONITOR_OF_LOSS, 3, high}, {MONITOR_OF_NORM, 3, norm}}});
    for (int i = 0; i < 8; i++) judge(&m, 2, 1, MONITOR_ACCEPT, MONITOR_FILLING);
    return m;
}

// Each rule exactly at its ratio, and just above; the heaviest action of those that apply.
TEST(test_ratios)
{
    const MonitorAction NO = MONITOR_ACCEPT, WARN = MONITOR_WARN, COOL = MONITOR_COOL, SKIP = MONITOR_SKIP;
    const MonitorAction BACK = MONITOR_ROLLBACK;
    const struct {
        double loss, norm;
        MonitorAction action[4], want;
        MonitorSignal signal;
    } rows[] = {
        {3, 1, {WARN, SKIP, BACK, COOL}, NO, MONITOR_LOSS},   {3.001, 1, {WARN, SKIP, BACK, COOL}, WARN, MONITOR_LOSS},
        {4, 1, {WARN, SKIP, BACK, COOL}, WARN, MONITOR_LOSS}, {4.001, 1, {WARN, SKIP, BACK, COOL}, SKIP, MONITOR_LOSS},
        {6, 1, {WARN, SKIP, BACK, COOL}, SKIP, MONITOR_LOSS}, {6.001, 1, {WARN, SKIP, BACK, COOL}, BACK, MONITOR_LOSS},
        {9, 1, {COOL, WARN, NO, COOL}, COOL, MONITOR_LOSS},   {9, 1, {NO, NO, NO, SKIP}, NO, MONITOR_LOSS},
        {2, 3, {NO, NO, NO, SKIP}, NO, MONITOR_GRAD_NORM},    {2, 3.001, {NO, NO, NO, SKIP}, SKIP, MONITOR_GRAD_NORM},
        {9, 9, {WARN, COOL, COOL, SKIP}, SKIP, MONITOR_GRAD_NORM}, {9, 9, {WARN, COOL, SKIP, SKIP}, SKIP, MONITOR_LOSS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const MonitorAction *a = rows[i].action;
        Monitor m = ruled(a[0], a[1], a[2], a[3]);
        MonitorVerdict v = judge(&m, rows[i].loss, rows[i].norm, rows[i].want,
                                 rows[i].want ? MONITOR_RATIO : MONITOR_FILLING);
        if (rows[i].want) assert_int_equal(v.signal, rows[i].signal);
        // what was skipped or undone does not enter; the rest does
        bool entered = m.past[MONITOR_LOSS][7] == rows[i].loss && m.past[MONITOR_GRAD_NORM][7] == log(rows[i].norm);
        assert_true(entered == (rows[i].want < MONITOR_SKIP) || (rows[i].loss == 2 && rows[i].norm == 1));
        monitor_free(&m);
    }
}

// Skips by ratio end in a row too; z and ratio together: the heavier, and z where they weigh the same.
TEST(test_ratios_and_z)
{
    Monitor m = ruled(MONITOR_SKIP, MONITOR_SKIP, MONITOR_SKIP, MONITOR_ACCEPT);
    for (int i = 0; i < 3; i++) judge(&m, 5, 1, MONITOR_SKIP, MONITOR_RATIO);
    judge(&m, 5, 1, MONITOR_ACCEPT, MONITOR_NEW_LEVEL);
    monitor_free(&m);
    for (int heavier = 0; heavier < 2; heavier++) {
        m = ruled(MONITOR_WARN, MONITOR_WARN, heavier ? MONITOR_ROLLBACK : MONITOR_SKIP, MONITOR_ACCEPT);
        m.skip_z = 6;
        judge(&m, 7, 1, heavier ? MONITOR_ROLLBACK : MONITOR_SKIP, heavier ? MONITOR_RATIO : MONITOR_SPIKE);
        assert_true(monitor_active(&m));
        judge(&m, INFINITY, 1, MONITOR_ROLLBACK, MONITOR_NOT_FINITE);
        monitor_free(&m);
    }
    m = monitor_create(8, 0, 3);
    assert_false(monitor_active(&m));
    monitor_free(&m);
}

// Blocks of 4 with means of 16, 8, 7.9375, 7.9375, 9, exact in binary; a skipped step is in none. At the same places
// when the state is saved and loaded anywhere.
TEST(test_plateau)
{
    const double mean[] = {16, 8, 7.9375, 7.9375, 9};
    const bool still[] = {false, false, true, true, true};
    for (int stop = 0; stop < 20; stop += 3) {
        Monitor m = monitor_create(8, 6, 3);
        MonitorRules rules = {.on_spike = MONITOR_SKIP, .on_not_finite = MONITOR_SKIP,
                              .plateau_steps = 4, .n = 1, .rule = {{MONITOR_OF_PLATEAU, 0.01, MONITOR_COOL}}};
        monitor_set_rules(&m, rules);
        for (int i = 0; i < 20; i++) {
            if (i % 5 == 2) judge(&m, NAN, 1, MONITOR_SKIP, MONITOR_NOT_FINITE);
            if (i == stop) { // saved and loaded
                double progress[MONITOR_PROGRESS];
                size_t n;
                double *saved = copy_state(&m, &n);
                memcpy(progress, monitor_progress(&m), sizeof progress);
                monitor_free(&m);
                m = monitor_create(8, 6, 3);
                monitor_set_rules(&m, rules);
                memcpy(monitor_state(&m, &n), saved, n * sizeof *saved);
                memcpy(monitor_progress(&m), progress, sizeof progress);
                free(saved);
            }
            m.skip_z = 0;
            MonitorVerdict v = monitor_judge(&m, mean[i / 4] + (i % 2 ? 0.5 : -0.5), 1);
            assert_true((v.reason == MONITOR_PLATEAU) == (i % 4 == 3 && still[i / 4]));
            assert_int_equal(v.action, v.reason == MONITOR_PLATEAU ? MONITOR_COOL : MONITOR_ACCEPT);
            if (v.reason == MONITOR_PLATEAU) assert_true(v.value == (mean[i / 4 - 1] - mean[i / 4]) / mean[i / 4 - 1]);
        }
        monitor_free(&m);
    }
}

TEST(test_rules_as_text)
{
    MonitorRules r = {.n = 5};
    monitor_parse_rules("", &r);
    assert_int_equal(r.n, 0);
    monitor_parse_rules("loss:1.5:warn,norm:3:skip, clip:2.5:rollback,plateau:0.01:cool,loss:3:none", &r);
    const MonitorRule want[] = {{MONITOR_OF_LOSS, 1.5, MONITOR_WARN}, {MONITOR_OF_NORM, 3, MONITOR_SKIP},
                                {MONITOR_OF_CLIP, 2.5, MONITOR_ROLLBACK}, {MONITOR_OF_PLATEAU, 0.01, MONITOR_COOL}};
    assert_int_equal(r.n, 4); // none: off
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r.rule[i].kind, want[i].kind);
        assert_int_equal(r.rule[i].action, want[i].action);
        assert_true(r.rule[i].limit == want[i].limit);
    }
    const char *const wrong[] = {"loss", "loss:1.5", "los:1.5:warn", "loss:1.5:wrn", "loss:x:warn", "loss:1:warn",
                                 "loss:nan:warn", "plateau:1:warn", "plateau:0.1:skip", "loss:2:warn x", ",",
                                 "loss:2:warn;norm:3:skip", "loss:2:warn,,norm:3:warn", "loss:-2:warn", "loss 2 warn"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_dies("loss:1.5:warn,norm:3:skip", monitor_parse_rules(wrong[i], &r));
    expect_dies("more than 8", monitor_parse_rules("norm:2:warn,norm:3:warn,norm:4:warn,norm:5:warn,norm:6:warn,"
                                                   "norm:7:warn,norm:8:warn,norm:9:warn,norm:10:warn", &r));
}

TEST(test_words_of_rules)
{
    Monitor m = ruled(MONITOR_WARN, 0, 0, MONITOR_SKIP);
    m.rules.clip = 0.5, m.rules.rule[m.rules.n++] = (MonitorRule){MONITOR_OF_CLIP, 8, MONITOR_COOL};
    m.rules.plateau_steps = 50;
    MonitorVerdict v = judge(&m, 5, 1, MONITOR_WARN, MONITOR_RATIO);
    explains(&m, v, "loss 5 is 2.5 times the mean of the last 8 steps, 2");
    assert_non_null(strstr(monitor_advice(v), "lower the peak learning rate"));
    explains(&m, judge(&m, 2, 4, MONITOR_SKIP, MONITOR_RATIO),
             "gradient norm 4 is 4 times the mean of the last 8 steps, 1");
    m.rules.rule[4].limit = 3;
    judge(&m, 2, 1.5, MONITOR_ACCEPT, MONITOR_FILLING); // exactly at the limit
    v = judge(&m, 2, 1.75, MONITOR_COOL, MONITOR_CLIP);
    explains(&m, v, "gradient norm 1.75 is 3.5 times optim.clip, 0.5");
    assert_non_null(strstr(monitor_advice(v), "optim.clip"));
    judge(&m, 2, 8, MONITOR_SKIP, MONITOR_RATIO); // the more severe action
    explains(&m, (MonitorVerdict){.reason = MONITOR_PLATEAU, .value = 0.0025, .mean = 3.25},
             "the mean loss of 50 steps, 3.25, is 0.25% below that of as many before");
    monitor_free(&m);
}

// ---- noise: the two-batch estimator on gradients of known noise: exact where the numbers are, unbiased where they are
// random; and the usual short-cut, whose error is that of its formula.

// |G|^2 = 3, tr(Sigma) = 8: |g|^2 is 7 at a batch of 2 and 4 at a batch of 8.
TEST(test_two_equations)
{
    NoiseEstimate e = noise_estimate(7, 2, 4, 8);
    assert_true(e.signal == 3 && e.noise == 8);
    e = noise_estimate(4, 2, 7, 8); // by chance the small one's gradient is shorter: the estimate is negative
    assert_true(e.signal == 8 && e.noise == -8);
}

TEST(test_running_means)
{
    Noise n = noise_create(0.5);
    assert_true(isnan(noise_scale(&n)) && isnan(noise_trace(&n)) && isnan(noise_signal(&n)));
    noise_add(&n, 7, 2, 4, 8); // 3, 8
    assert_true(noise_signal(&n) == 3 && noise_trace(&n) == 8);
    assert_true(noise_scale(&n) == 8.0 / 3);
    noise_add(&n, 4, 2, 7, 8); // 8, -8: the means have weights 1/3 and 2/3
    assert_true(fabs(noise_signal(&n) - 19.0 / 3) <= 8 * 0x1p-52);
    assert_true(fabs(noise_trace(&n) + 8.0 / 3) <= 8 * 0x1p-52);
    Noise before = n;
    noise_add(&n, NAN, 2, 7, 8);
    noise_add(&n, 4, 2, INFINITY, 8);
    assert_memory_equal(&n, &before, sizeof n);
    Noise negative = noise_create(0.5);
    noise_add(&negative, 7, 2, 1, 8); // |G|^2 = -1
    assert_true(noise_signal(&negative) == -1 && noise_trace(&negative) == 16);
    assert_true(isnan(noise_scale(&negative)));
}

// ---- made gradients: G, and noise with another spread in each of the dimensions

enum { DIMS = 200, MICROS = 8, MICRO = 16, BIG = MICROS * MICRO, TRIALS = 400 };

typedef struct {
    double mean[DIMS], sigma[DIMS];
    double signal, trace, mean_cov, cov_squares; // |G|^2, tr(Sigma), G^T Sigma G, tr(Sigma^2)
} Truth;

static Truth make_truth(void)
{
    Truth t = {.signal = 0};
    for (int d = 0; d < DIMS; d++) {
        t.mean[d] = 0.1 * rng_normal(rng_make(3, "mean", 0), (uint64_t)d);
        t.sigma[d] = 1.0 + d % 4 * 0.5;
        double variance = t.sigma[d] * t.sigma[d];
        t.signal += t.mean[d] * t.mean[d];
        t.trace += variance;
        t.mean_cov += t.mean[d] * t.mean[d] * variance;
        t.cov_squares += variance * variance;
    }
    return t;
}

typedef struct {
    double first, all, spread; // |g|^2 of the first micro-batch and of the mean; variance over micro-batches * MICRO
} Sample;

static Sample draw(const Truth *t, uint32_t trial)
{
    Rng rng = rng_make(4, "noise", trial);
    Sample s = {0, 0, 0};
    for (int d = 0; d < DIMS; d++) {
        double g[MICROS], mean = 0;
        for (int i = 0; i < MICROS; i++) {
            g[i] = t->mean[d] + t->sigma[d] / sqrt(MICRO) * rng_normal(rng, (uint64_t)(d * MICROS + i));
            mean += g[i] / MICROS;
        }
        s.first += g[0] * g[0];
        s.all += mean * mean;
        for (int i = 0; i < MICROS; i++) s.spread += (g[i] - mean) * (g[i] - mean) / (MICROS - 1) * MICRO;
    }
    return s;
}

// Standard deviation of |g|^2 for a batch of b: a normal vector's squared length has the variance
// 4 G^T Sigma G / b + 2 tr(Sigma^2) / b^2.
static double deviation(const Truth *t, double b)
{
    return sqrt(4 * t->mean_cov / b + 2 * t->cov_squares / (b * b));
}

// Means over TRIALS lie within 5 standard errors of the truth (each missed once in 2 million draws, and the draw is
// fixed). The small batch is part of the big one; the standard deviation of a sum is at most the sum of the standard
// deviations, whatever depends on what.
TEST(test_unbiased_and_short_cut_biased)
{
    Truth t = make_truth();
    double signal = 0, noise = 0, all = 0, spread = 0, root = sqrt(TRIALS);
    for (uint32_t i = 0; i < TRIALS; i++) {
        Sample s = draw(&t, i);
        NoiseEstimate e = noise_estimate(s.first, MICRO, s.all, BIG);
        signal += e.signal / TRIALS;
        noise += e.noise / TRIALS;
        all += s.all / TRIALS;
        spread += s.spread / TRIALS;
    }
    double small = deviation(&t, MICRO), big = deviation(&t, BIG);
    double signal_bound = 5 * (BIG * big + MICRO * small) / (BIG - MICRO) / root;
    double noise_bound = 5 * (small + big) / (1.0 / MICRO - 1.0 / BIG) / root;
    assert_true(fabs(signal - t.signal) <= signal_bound);
    assert_true(fabs(noise - t.trace) <= noise_bound);
    assert_true(signal_bound < t.signal / 5 && noise_bound < t.trace / 10); // sharp enough to mean something

    // The short-cut. Its numerator is right; its denominator is |G|^2 + tr(Sigma) / BIG.
    double all_bound = 5 * big / root, spread_bound = 5 * sqrt(2 * t.cov_squares / (MICROS - 1)) / root;
    assert_true(fabs(spread - t.trace) <= spread_bound);
    assert_true(fabs(all - (t.signal + t.trace / BIG)) <= all_bound);
    double b_simple = t.trace / t.signal, naive = spread / all, want = noise_naive_expected(b_simple, BIG);
    double bound = (spread_bound + want * all_bound) / (t.signal + t.trace / BIG - all_bound);
    assert_true(fabs(want - t.trace / (t.signal + t.trace / BIG)) <= 1e-12 * want);
    assert_true(fabs(naive - want) <= bound);
    assert_true(b_simple - naive > 10 * bound && naive < BIG && b_simple > BIG); // hides what one wants to know
}

TEST(test_formula_of_the_short_cut)
{
    assert_true(noise_naive_expected(4096, 4096) == 2048);
    assert_true(noise_naive_expected(4096, 1024) < 1024);
    assert_true(fabs(noise_naive_expected(100, 1e9) - 100) < 1e-4);
}

// ---- locate: a NaN or an infinity put into a weight or a gradient of a small model is found where it is, on the rank
// where it is.

TEST(test_finite)
{
    Dev fp32 = {.x_type = X_FP32}, bf16 = {.x_type = X_BF16}, fp16 = {.x_type = X_FP16};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY}, good[] = {0, -0.0f, 3.4e38f, -3.4e38f, 1e-45f};
    for (size_t n = 1; n < 40; n++)
        for (size_t at = 0; at < n; at++) {
            float x[40] = {0};
            for (size_t i = 0; i < 4; i++) {
                x[at] = bad[i];
                assert_true(!formats_finite(x, n) && !locate_finite_x(&fp32, (const X *)x, n));
                assert_true(formats_finite(x, at)); // and not behind the end
            }
            for (size_t i = 0; i < 5; i++) x[at] = good[i], assert_true(formats_finite(x, n));
        }
    const struct { uint16_t bits; bool bf16, fp16; } half[] = {
        {0x7f80, false, false}, {0xff81, false, false}, {0x7f7f, true, false},
        {0x7c00, true, false}, {0xfc01, true, false}, {0x7bff, true, true}, {0, true, true}, {0x8001, true, true},
    };
    for (size_t i = 0; i < sizeof half / sizeof *half; i++) {
        uint16_t x[5] = {0, 0, half[i].bits, 0, 0};
        assert_true(locate_finite_x(&bf16, (const X *)x, 5) == half[i].bf16);
        assert_true(locate_finite_x(&fp16, (const X *)x, 5) == half[i].fp16);
    }
}

// What goes wrong on which rank, and what must be said of it; rank -1: nowhere.
typedef struct {
    int rank;
    const char *tensor;
    bool gradient;
    int other;             // another rank with the same; -1
    bool deterministic;
    int ranks;
    const char *said;      // NULL: nothing
} Case;

static void put(Model *m, const Case *c)
{
    const Param *row = &m->params.row[params_find(&m->params, c->tensor)];
    float *at = (c->gradient ? m->grads : m->weights) + row->offset;
    at[row->n_elems / 2] = c->gradient ? INFINITY : NAN;
    if (!c->gradient) model_weights_changed(m);
}

static void body(Comm *world, void *arg)
{
    const Case *c = arg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = c->deterministic;
    Model *m = model_allocate_with(&gpt, dev, &mem, B, T, true, (ModelOptions){.documents = true, .sequences = 2 * B});
    params_init(&m->params, 1, m->weights);
    model_weights_changed(m);
    Locate locate;
    Step step = {0};
    char text[LOCATE_TEXT] = "";
    Comm *ranks = world->size > 1 ? world : NULL;
    locate_begin(&locate, m);
    for (int turn = 0; turn < 2; turn++) { // the second step is clean again
        locate_step(&locate);
        memset(m->grads, 0, m->params.n_elems * sizeof *m->grads);
        if (!turn && (world->rank == c->rank || world->rank == c->other)) put(m, c);
        for (size_t i = 0; i < 2; i++) run_batch(m, &step, i * B, B, T);
        model_step_finish(m);
        bool found = locate_first(&locate, ranks, text);
        bool want = c->said && (!turn || !c->gradient);
        if (found != want || (want && strcmp(text, c->said)))
            fail_msg("%s on rank %d, step %d: %s", c->tensor, c->rank, turn, found ? text : "not found");
        if (c->gradient) continue;
        params_init(&m->params, 1, m->weights);
        model_weights_changed(m);
        break;
    }
    end_model(m, &mem, dev);
}

TEST(test_first)
{
    const Case cases[] = {
        {0, "layers.2.ffn.up.weight", false, -1, false, 1, "weight layers.2.ffn.up.weight"},
        {0, "layers.2.ffn.up.weight", true, -1, false, 1, "the gradient of layers.2.ffn.up.weight"},
        {0, "embed.tokens.weight", true, -1, false, 1, "the gradient of embed.tokens.weight"},
        {-1, "embed.tokens.weight", false, -1, false, 1, NULL},
        {1, "layers.4.attn.q.weight", false, -1, false, 3, "rank 1: weight layers.4.attn.q.weight"},
        {2, "layers.4.attn.q.weight", true, -1, false, 3, "rank 2: the gradient of layers.4.attn.q.weight"},
        {2, "layers.0.attn.q.bias", true, 1, false, 3, "rank 1: the gradient of layers.0.attn.q.bias"},
        {-1, "embed.tokens.weight", true, -1, false, 3, NULL},
        {1, "final_norm.bias", false, -1, true, 2, "rank 1: weight final_norm.bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) comm_threads_run(cases[i].ranks, body, (void *)&cases[i]);
}

static void fill_row(Model *m, const char *name, float value)
{
    const Param *row = &m->params.row[params_find(&m->params, name)];
    for (size_t i = 0; i < row->n_elems; i++) m->weights[row->offset + i] = value;
    model_weights_changed(m);
}

// A step of the model, and what is said of it.
static void expect_located(Model *m, Locate *locate, const char *want)
{
    Step step = {0};
    char text[LOCATE_TEXT] = "";
    run_batch(m, &step, 0, B, T);
    assert_true(locate_first(locate, NULL, text));
    assert_string_equal(text, want);
}

// Numbers that are born not finite: weights so large that a norm's squares overflow. The output in which it shows first
// is named, not the losses behind it, nor the gradients. Of several, the first in time is named: of outputs that of the
// embedding, of gradients those of the last unit.
TEST(test_born_and_first_of_several)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_create(&gpt, dev, &mem, B, T, 1, true);
    const Param *row = m->params.row;
    Locate locate;
    locate_begin(&locate, m);
    locate_step(&locate);
    memset(m->grads, 0, m->params.n_elems * sizeof *m->grads);
    m->grads[row[params_find(&m->params, "layers.1.attn.q.weight")].offset] = INFINITY;
    m->grads[row[params_find(&m->params, "layers.3.attn.q.weight")].offset] = NAN;
    expect_located(m, &locate, "the gradient of layers.3.attn.q.weight");
    fill_row(m, "layers.3.ffn.up.weight", 3e38f);
    locate_step(&locate);
    expect_located(m, &locate, "the output of block 3");
    fill_row(m, "embed.tokens.weight", 3e38f);
    fill_row(m, "embed.positions.weight", 3e38f);
    locate_step(&locate);
    expect_located(m, &locate, "the output of the embedding");
    end_model(m, &mem, dev);
}

TESTS(NULL, NULL)
