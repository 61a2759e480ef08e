// test_schedule: every kind and shape against values worked out by hand and against PyTorch's schedulers, and
// what all of them promise: no jump, no rise after the warm-up, min_lr at the end.
#include "test/test.h"

#include "expect_die.h"
#include "fixture.h"
#include "train/run.h"

// lr takes a handful of roundings in double, and pi p one more: 16 u of the peak is plenty.
static void expect_lr(const Schedule *s, long step, double want)
{
    double got = schedule_lr(s, step);
    if (!(fabs(got - want) <= 16 * 0x1p-53 * s->lr)) fail_msg("step %ld: %.17g, not %.17g", step, got, want);
}

static const Schedule cosine = {.kind = SCHEDULE_COSINE, .lr = 8, .min_lr = 2, .warmup = 4, .decay_steps = 28};

// By hand: warm-up is (step + 1) / 4 of 8. cos is 1, 1/2, 0, -1/2, -1 at p = 0, 1/3, 1/2, 2/3, 1 of the 24 steps of
// decay; sqrt(4 / t) for t = 4, 16, 36, 64, 256 is 1, 1/2, 1/3, 1/4, 1/8. Far behind the end nothing changes any more.
TEST(test_known_values)
{
    const struct {
        ScheduleKind kind;
        double want[10][2];
    } row[] = {
        {SCHEDULE_COSINE, {{0, 2}, {1, 4}, {2, 6}, {3, 8}, {4, 8}, {12, 6.5}, {16, 5}, {20, 3.5}, {28, 2}, {1e6, 2}}},
        {SCHEDULE_LINEAR, {{3, 8}, {4, 8}, {5, 7.75}, {10, 6.5}, {16, 5}, {27, 2.25}, {28, 2}, {29, 2}, {1e6, 2}}},
        {SCHEDULE_INVSQRT, {{0, 2}, {2, 6}, {3, 8}, {15, 4}, {35, 8. / 3}, {63, 2}, {255, 1}, {1, 4}}},
        {SCHEDULE_CONSTANT, {{0, 2}, {1, 4}, {4, 8}, {28, 8}, {1e6, 8}, {3, 8}, {2, 6}, {5, 8}, {6, 8}, {7, 8}}},
    };
    for (int k = 0; k < 4; k++) {
        Schedule s = cosine;
        s.kind = row[k].kind;
        for (int i = 0; i < 10 && row[k].want[i][1] > 0; i++) expect_lr(&s, (long)row[k].want[i][0], row[k].want[i][1]);
    }
    Schedule s = {.kind = SCHEDULE_INVSQRT, .lr = 8}; // no warm-up
    expect_lr(&s, 0, 8), expect_lr(&s, 3, 4);
}

// In quarters, so that every value is exact; constant where there is no warm-up.
TEST(test_momentum_grows_to_its_value)
{
    const Schedule s = {.momentum = 0.75, .momentum_start = 0.25, .momentum_warmup = 4}, none = {.momentum = 0.75};
    const double want[] = {0.25, 0.375, 0.5, 0.625, 0.75, 0.75};
    for (long step = 0; step < 6; step++) assert_true(schedule_momentum(&s, step) == want[step]);
    assert_true(schedule_momentum(&s, 1000000) == 0.75 && schedule_momentum(&none, 0) == 0.75);
}

TEST(test_edges)
{
    Schedule s = cosine;
    s.warmup = 0; // no warm-up: the peak at once
    expect_lr(&s, 0, 8);
    expect_lr(&s, 14, 5);
    s.warmup = s.decay_steps; // nothing between warm-up and the end
    expect_lr(&s, 27, 8);
    expect_lr(&s, 28, 2);
    s.decay_steps = 10; // the decay would end within the warm-up: the warm-up goes first
    expect_lr(&s, 27, 8);
    expect_lr(&s, 28, 2);
    s = (Schedule){.kind = SCHEDULE_COSINE, .lr = 1, .min_lr = 0, .warmup = 0, .decay_steps = 1};
    expect_lr(&s, 0, 1);
    expect_lr(&s, 1, 0);
}

static const Schedule wsd = {.kind = SCHEDULE_WSD, .lr = 8, .min_lr = 2, .warmup = 4, .decay_start = 12,
                             .decay_steps = 28};

// Every shape is stable until its decay begins, at p = 0 too, and exactly min_lr from its end on; half way it is the
// mean, the geometric one, or 1 - sqrt(1/2) above the end.
TEST(test_wsd_shapes)
{
    const double half[] = {[SCHEDULE_SHAPE_LINEAR] = 5, [SCHEDULE_SHAPE_COSINE] = 5, [SCHEDULE_SHAPE_EXPONENTIAL] = 4,
                           [SCHEDULE_SHAPE_SQRT] = 8 - 6 * sqrt(0.5)};
    for (int shape = 0; shape < 4; shape++) {
        Schedule s = wsd;
        s.shape = (ScheduleShape)shape;
        for (long step = 3; step <= 12; step++) assert_true(schedule_lr(&s, step) == 8);
        expect_lr(&s, 20, half[shape]);
        assert_true(schedule_lr(&s, 28) == 2 && schedule_lr(&s, 29) == 2 && schedule_lr(&s, 1000000) == 2);
    }
}

TEST(test_wsd_edges)
{
    Schedule s = wsd;
    s.decay_start = 2; // within the warm-up: the warm-up goes first, then the decay at once
    expect_lr(&s, 3, 8);
    expect_lr(&s, 4, 8);
    expect_lr(&s, 16, 5);
    s.kind = SCHEDULE_LINEAR;
    Schedule same = s;
    same.kind = SCHEDULE_WSD;
    for (long step = 0; step < 40; step++) assert_true(schedule_lr(&s, step) == schedule_lr(&same, step));
    s = wsd;
    s.decay_start = s.decay_steps; // no decay: down at once
    expect_lr(&s, 27, 8);
    expect_lr(&s, 28, 2);
    // The stable part knows nothing of the end: a run may be prolonged from any of its steps.
    Schedule longer = wsd;
    longer.decay_start = 1012;
    longer.decay_steps = 1028;
    for (long step = 0; step <= 12; step++) assert_true(schedule_lr(&wsd, step) == schedule_lr(&longer, step));
    for (long step = 12; step <= 40; step++)
        assert_true(schedule_lr(&wsd, step) == schedule_lr(&longer, step + 1000));
}

// The steepest step of each curve: in the warm-up lr / W; then d / n times the largest slope of the shape over
// its n steps with d = lr - min_lr (1; pi / 2; for the exponential ln(lr / min_lr) lr / d), and d / sqrt(n) for
// 1 - sqrt, at its first step; 1 / sqrt has lr / (2 W).
TEST(test_no_jump_and_no_rise)
{
    enum { W = 50, D = 600, E = 1000 };
    const double lr = 3e-4, low = 3e-6, d = lr - low, pi = 3.14159265358979;
    const struct {
        ScheduleKind kind;
        ScheduleShape shape;
        double steepest;
    } row[] = {
        {SCHEDULE_COSINE, 0, pi / 2 * d / (E - W)}, {SCHEDULE_LINEAR, 0, d / (E - W)},
        {SCHEDULE_INVSQRT, 0, lr / (2 * W)}, {SCHEDULE_CONSTANT, 0, 0},
        {SCHEDULE_WSD, SCHEDULE_SHAPE_LINEAR, d / (E - D)},
        {SCHEDULE_WSD, SCHEDULE_SHAPE_COSINE, pi / 2 * d / (E - D)},
        {SCHEDULE_WSD, SCHEDULE_SHAPE_EXPONENTIAL, lr * log(lr / low) / (E - D)},
        {SCHEDULE_WSD, SCHEDULE_SHAPE_SQRT, d / sqrt(E - D)},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Schedule s = {.kind = row[i].kind, .shape = row[i].shape, .lr = lr, .min_lr = low, .warmup = W,
                      .decay_start = D, .decay_steps = E};
        const double u = 16 * 0x1p-53 * lr;
        for (long step = 0; step < 1100; step++) {
            double now = schedule_lr(&s, step), rise = schedule_lr(&s, step + 1) - now;
            assert_true(now > 0 && now <= lr + u);
            if (step + 1 < W) assert_true(fabs(rise - lr / W) <= 2 * u);
            else assert_true(rise <= 0 && rise >= -row[i].steepest - 2 * u);
        }
    }
}

// test/fixtures/schedules.safetensors: the rates that PyTorch's own scheduler objects give, stored as float32
// (2^-24). They go from step to step by a factor, at a few roundings each: 1000 u for the 70 steps.
TEST(test_against_pytorch)
{
    Fixture *fx = fixture_open("schedules");
    const struct {
        const char *name;
        ScheduleKind kind;
        ScheduleShape shape;
    } row[] = {
        {"cosine", SCHEDULE_COSINE, 0}, {"linear", SCHEDULE_LINEAR, 0}, {"invsqrt", SCHEDULE_INVSQRT, 0},
        {"constant", SCHEDULE_CONSTANT, 0}, {"wsd_linear", SCHEDULE_WSD, SCHEDULE_SHAPE_LINEAR},
        {"wsd_cosine", SCHEDULE_WSD, SCHEDULE_SHAPE_COSINE},
        {"wsd_exponential", SCHEDULE_WSD, SCHEDULE_SHAPE_EXPONENTIAL},
        {"wsd_sqrt", SCHEDULE_WSD, SCHEDULE_SHAPE_SQRT},
    };
    Schedule s = {.lr = fixture_number(fx, "lr"), .min_lr = fixture_number(fx, "min_lr"),
                  .warmup = (long)fixture_number(fx, "warmup"),
                  .decay_start = (long)fixture_number(fx, "decay_start"),
                  .decay_steps = (long)fixture_number(fx, "decay_steps")};
    assert_int_equal(s.decay_steps, 70);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const float *want = fixture_f32(fx, row[i].name, (size_t)s.decay_steps);
        s.kind = row[i].kind;
        s.shape = row[i].shape;
        for (long step = 0; step < s.decay_steps; step++) {
            double got = schedule_lr(&s, step);
            if (!(fabs(got - (double)want[step]) <= (0x1p-24 + 1000 * 0x1p-53) * s.lr))
                fail_msg("%s, step %ld: %.9g, not %.9g", row[i].name, step, got, (double)want[step]);
        }
    }
    fixture_close(fx);
}

TEST(test_ramped)
{
    Ramp ramp = schedule_ramp_make(16, 64, 16, 640, 4, true); // 4 to 16 sequences of 4 tokens, in three rises
    long full = schedule_reaches(&ramp, 16);
    for (long step = 0; step < 2 * full; step++)
        assert_true(schedule_lr_ramped(&wsd, &ramp, step) == schedule_lr(&wsd, step) * schedule_lr_factor(&ramp, step));
    assert_true(schedule_lr_ramped(&wsd, &ramp, 0) == 1); // a quarter of the batch, half of the rate
    assert_true(full > 4 && schedule_lr_ramped(&wsd, &ramp, full) == schedule_lr(&wsd, full));
    ramp.scale_lr = false;
    for (long step = 0; step < 40; step++)
        assert_true(schedule_lr_ramped(&wsd, &ramp, step) == schedule_lr(&wsd, step));
}

static int check_schedule(void *schedule)
{
    schedule_check(schedule);
    return 0;
}

TEST(test_settings_that_make_no_curve)
{
    const struct {
        double lr, min_lr;
        long warmup, decay_start;
        ScheduleKind kind;
        ScheduleShape shape;
        const char *words; // NULL: it is one
    } row[] = {
        {8, 2, 4, 12, SCHEDULE_WSD, 0, NULL}, {NAN, 2, 4, 12, SCHEDULE_WSD, 0, "optim.lr"},
        {8, 2, -1, 12, SCHEDULE_WSD, 0, "optim.warmup: -1"},
        {8, 9, 4, 12, SCHEDULE_WSD, 0, "optim.min_lr: 9 is not between 0 and optim.lr 8"},
        {8, 2, 4, 29, SCHEDULE_WSD, 0, "optim.wsd_decay: -1 steps"},
        {8, 2, 4, -1, SCHEDULE_WSD, 0, "optim.wsd_decay: 29 steps"},
        {8, 2, 4, 12, SCHEDULE_WSD, SCHEDULE_SHAPE_EXPONENTIAL, NULL},
        {8, 0, 4, 12, SCHEDULE_WSD, SCHEDULE_SHAPE_EXPONENTIAL, "optim.wsd_shape: exponential"},
        {8, 0, 4, 12, SCHEDULE_COSINE, SCHEDULE_SHAPE_EXPONENTIAL, NULL},    // the shape is not read
        {8, -1, 4, 12, SCHEDULE_CONSTANT, SCHEDULE_SHAPE_EXPONENTIAL, NULL}, // nor is min_lr
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Schedule s = {.lr = row[i].lr, .min_lr = row[i].min_lr, .warmup = row[i].warmup, .kind = row[i].kind,
                      .decay_start = (double)row[i].decay_start, .shape = row[i].shape, .decay_steps = 28};
        if (row[i].words) expect_die(check_schedule, &s, row[i].words);
        else schedule_check(&s);
    }
}

// ---- lengths in tokens and as parts of the run

static Run run;

static int make_schedule(void *pairs)
{
    const char *const (*pair)[2] = pairs;
    memset(&run, 0, sizeof run);
    config_defaults(&run.cfg);
    for (int i = 0; pair[i][0]; i++) config_set(&run.cfg, pair[i][0], pair[i][1], "test");
    config_resolve(&run.cfg);
    run_schedule(&run);
    return 0;
}

#define SIZES {"run.steps", "1000"}, {"model.context", "32"}, {"batch.tokens", "1024"}, {"batch.micro", "4"}

// The batch grows in a row: then the first step with so many tokens before it is looked for, one after another.
TEST(test_lengths)
{
    const struct { const char *pairs[8][2]; long warmup, decay_start, decay_steps; } rows[] = {
        {{SIZES}, 50, 0, 1000},
        {{SIZES, {"optim.warmup_part", "0.1"}}, 100, 0, 1000}, // not 101: 0.1 is a little more in binary
        {{SIZES, {"optim.warmup_part", "0.0101"}}, 11, 0, 1000},
        {{SIZES, {"optim.warmup_tokens", "10240"}}, 10, 0, 1000},
        {{SIZES, {"optim.warmup_tokens", "10241"}, {"optim.decay_tokens", "500000"}}, 11, 0, 489},
        {{SIZES, {"optim.schedule", "wsd"}, {"optim.wsd_part", "0.3"}}, 50, 700, 1000},
        {{SIZES, {"optim.schedule", "wsd"}, {"optim.decay_steps", "301"}}, 50, 270, 301},
        {{SIZES, {"optim.schedule", "wsd"}, {"optim.decay_tokens", "204800"}, {"optim.wsd_decay", "50"}}, 50, 150, 200},
        {{SIZES, {"optim.warmup_tokens", "12000"}, {"batch.ramp_from", "128"}, {"batch.ramp_tokens", "20000"}}, -1, 0, 1000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_schedule((void *)rows[i].pairs);
        long warmup = rows[i].warmup, start = rows[i].decay_start;
        if (warmup < 0)
            for (warmup = 0; schedule_ramp_at(&run.ramp, warmup).before * 32 < 12000; warmup++) {}
        assert_int_equal(run.schedule.warmup, warmup);
        if (run.schedule.kind == SCHEDULE_WSD) assert_int_equal(run.schedule.decay_start, start);
        assert_int_equal(run.schedule.decay_steps, rows[i].decay_steps);
        schedule_check(&run.schedule);
    }
    const char *early[][2] = {SIZES, {"optim.decay_tokens", "51200"}, {NULL, NULL}};
    expect_die(make_schedule, early, "optim.decay_tokens: 51200 tokens are 50 steps");
    const char *both[][2] = {SIZES, {"optim.warmup_tokens", "51200"}, {"optim.warmup_part", "0.1"}, {NULL, NULL}};
    expect_die(make_schedule, both, "optim.warmup_part has no effect");
}

// The end moves: the rate goes on from where it was, and the decay is done at the new end.
TEST(test_move_end)
{
    const Schedule kinds[] = {
        {.kind = SCHEDULE_COSINE, .lr = 8, .min_lr = 2, .warmup = 4, .decay_steps = 40},
        {.kind = SCHEDULE_LINEAR, .lr = 8, .min_lr = 2, .warmup = 4, .decay_steps = 3}, // within the warm-up
        wsd,
    };
    const long moves[][2] = {{2, 100}, {3, 50}, {10, 30}, {20, 200}, {60, 90}, {80, 82}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        Schedule s = kinds[k];
        for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
            long step = moves[i][0], end = moves[i][1];
            double before = schedule_lr(&s, step);
            schedule_move_end(&s, step, end, end / 4);
            assert_true(fabs(schedule_lr(&s, step) - before) < 1e-12);
            assert_true(schedule_lr(&s, end) == 2 && schedule_lr(&s, end - 1) > 2);
            for (long at = step + 1; at <= end && at > 4; at++)
                assert_true(schedule_lr(&s, at) <= schedule_lr(&s, at - 1));
        }
        schedule_move_end(&s, 81, 81, 20); // the end has passed: nothing is left to decay in
        assert_true(s.decay_steps == 82);
        schedule_move_end(&s, 82, 500, 100); // over
        assert_true(schedule_lr(&s, 90) == 2);
    }
    Schedule s = wsd; // the stable part: its decay has the length that is asked for
    schedule_move_end(&s, 6, 100, 20);
    assert_true(schedule_lr(&s, 80) == 8 && schedule_lr(&s, 81) < 8);
}

// A minute of updates, by a clock that the test moves: `slow` times as long from second 20 on, and evaluations of a
// second at each tenth. Returns the seconds after the last update.
static double minute(double update, double slow, long *steps)
{
    Pace p = {.end = 1, .steps = 7};
    long step = 0;
    pace_begin(&p, 1, 0);
    while (step < p.steps) {
        double seconds = pace_elapsed(&p) > 20 ? slow * update : update;
        p.begun -= seconds;
        p.steps = pace_steps(&p, ++step, seconds);
        if (pace_tenth(&p, step)) p.begun -= 1;
    }
    *steps = step;
    return pace_elapsed(&p);
}

TEST(test_minutes)
{
    const double slow[] = {1, 3, 0.25};
    for (int i = 0; i < 3; i++) {
        long steps;
        double seconds = minute(0.01, slow[i], &steps);
        assert_true(seconds > 57.6 && seconds < 60); // with the last evaluation 60, to 4%
        assert_true(fabs((double)steps * 0.01 - (18 + 33 / slow[i])) < 0.1 * (18 + 33 / slow[i]));
    }
    long steps;
    assert_true(minute(25, 1, &steps) < 76 && steps <= 3); // updates longer than a hundredth
}

// A run of a minute that is over, and is given another, twice stopped in it: its rate has decayed, and stays.
TEST(test_more_minutes)
{
    double saved[PACE_STATE] = {0};
    Pace p = {.steps = 100, .spent = 60};
    Schedule s = {.kind = SCHEDULE_COSINE, .lr = 10, .min_lr = 1, .decay_steps = 80};
    schedule_move_end(&s, 50, 100, 0);
    pace_begin(&p, 2, 100);
    assert_int_equal(p.steps, 200);
    for (int i = 0; i < 2; i++) {
        pace_save(&p, &s, saved);
        Pace again = {0};
        Schedule resumed = {.kind = SCHEDULE_COSINE, .lr = 10, .min_lr = 1, .decay_steps = 80};
        pace_load(&again, &resumed, saved);
        pace_begin(&again, 2, 110 + 10 * i);
        assert_true(again.steps == 200 && again.spent >= 60 && again.spent < 61);
        assert_true(schedule_lr(&resumed, 110) == 1);
        assert_true(schedule_lr(&resumed, 75) == schedule_lr(&s, 75));
        p = again, s = resumed;
    }
}

TESTS(NULL, NULL)
