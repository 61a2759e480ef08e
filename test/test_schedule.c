// test_schedule: learning rates and the batch ramp: values worked out by hand and PyTorch's, what all kinds promise,
// and the table and drawings of build/show schedule.
#include "test/test.h"

#include "expect_die.h"
#include "fixture.h"
#include "train/run.h"
#include "train/schedule.h"
#include "temp_dir.h"

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
        if (row[i].words) expect_dies(row[i].words, schedule_check(&s));
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

// ---- ramp: the batch ramp against a plain state machine, step by step, on many small ramps and on the size of
// GPT-3's; its edges; and the values of a run that begins in the middle.

// The definition as a program with state: tokens seen so far decide on the size of the next batch.
typedef struct {
    const Ramp *ramp;
    int64_t tokens, sequences;
} Machine;

static int64_t machine_size(const Machine *m)
{
    const Ramp *r = m->ramp;
    if (r->tokens == 0 || m->tokens >= r->tokens) return r->to;
    int64_t rises = (r->to - r->from) / r->by;
    return r->from + r->by * (int64_t)((__int128)rises * m->tokens / r->tokens);
}

static void machine_step(Machine *m)
{
    int64_t size = machine_size(m);
    m->sequences += size;
    m->tokens += size * m->ramp->context;
}

// Every step up to some behind the ramp's end: size, place, grain, growth, and where each size is reached.
static void compare(const Ramp *r)
{
    Machine m = {.ramp = r};
    int64_t before = 0, last = 0;
    long reached = 0, behind = 0;
    for (long step = 0; behind < 5; step++) {
        assert_true(step < 100000);
        RampStep at = schedule_ramp_at(r, step);
        if (at.sequences != machine_size(&m) || at.before != m.sequences)
            fail_msg("%ld to %ld by %ld over %ld tokens, step %ld: %ld sequences behind %ld, not %ld behind %ld",
                     (long)r->from, (long)r->to, (long)r->by, (long)r->tokens, step, (long)at.sequences,
                     (long)at.before, (long)machine_size(&m), (long)m.sequences);
        assert_true(at.before == before); // no sample lost, none twice
        before += at.sequences;
        assert_true(at.sequences % r->by == 0 && at.sequences >= last && at.sequences <= r->to);
        for (int64_t size = last + 1; size <= at.sequences; size++) assert_int_equal(schedule_reaches(r, size), step);
        if (at.sequences == r->to && behind++ == 0) reached = step;
        last = at.sequences;
        assert_int_equal(schedule_step_of(r, m.tokens), step); // so many steps take the tokens, and one more takes more
        assert_int_equal(schedule_step_of(r, m.tokens + 1), step + 1);
        machine_step(&m);
    }
    assert_true(schedule_ramp_at(r, 0).sequences == (r->tokens ? r->from : r->to));
    assert_true(schedule_ramp_at(r, reached).before * r->context >= r->tokens || r->from == r->to);
    if (reached) assert_true(schedule_ramp_at(r, reached - 1).before * r->context < r->tokens);
}

TEST(test_every_step_of_small_ramps)
{
    const int64_t length[] = {0, 1, 2, 3, 7, 20, 24, 60, 97, 120, 500, 1001};
    int n = 0;
    for (int64_t by = 1; by <= 3; by++)
        for (int64_t from = 1; from <= 4; from++)
            for (int64_t to = from; to <= 9; to++)
                for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
                    Ramp r = {.from = from * by, .to = to * by, .by = by,
                              .context = 2 + (int64_t)i % 3, .tokens = length[i]};
                    compare(&r);
                    n++;
                }
    assert_int_equal(n, 3 * (9 + 8 + 7 + 6) * 12);
}

// 2 to 8 sequences of 10 tokens in three rises of 2, over R tokens: at t = R/3, 2R/3 and R.
TEST(test_by_hand)
{
    Ramp r = schedule_ramp_make(20, 80, 20, 240, 10, false); // t = 0, 20, 40, 60 | 80, 120 | 160, 220 | 280
    const int64_t want[] = {2, 2, 2, 2, 4, 4, 6, 6, 8, 8}, at[] = {0, 2, 4, 6, 8, 12, 16, 22, 28, 36};
    for (long step = 0; step < 10; step++) {
        assert_int_equal(schedule_ramp_at(&r, step).sequences, want[step]);
        assert_int_equal(schedule_ramp_at(&r, step).before, at[step]);
    }
    r.tokens = 280; // step 8 begins exactly at the end of the ramp: full there, not one step later
    assert_int_equal(schedule_reaches(&r, 8), 9); // rises at 94, 187, 280: 0 .. 80 | 100, 140, 180 | 220 | 280
    assert_int_equal(schedule_ramp_at(&r, 9).before, 28);
    assert_int_equal(schedule_ramp_at(&r, 8).sequences, 6);
    assert_int_equal(schedule_ramp_at(&r, 9).sequences, 8);
    r.tokens = 281; // one token more, and that step is still a small one
    assert_int_equal(schedule_ramp_at(&r, 9).before, 28);
    assert_int_equal(schedule_ramp_at(&r, 9).sequences, 6);
    r.tokens = 30; // short against the batches: sizes are skipped
    assert_int_equal(schedule_ramp_at(&r, 1).sequences, 6); // t = 20 of 30: two thirds
    assert_int_equal(schedule_ramp_at(&r, 2).sequences, 8);
    assert_int_equal(schedule_reaches(&r, 3), 1);
    r.tokens = 1;
    assert_int_equal(schedule_ramp_at(&r, 0).sequences, 2);
    assert_int_equal(schedule_ramp_at(&r, 1).sequences, 8);
}

TEST(test_no_ramp)
{
    Ramp none[] = {schedule_ramp_make(0, 80, 20, 240, 10, true), schedule_ramp_make(20, 80, 20, 0, 10, true),
                   schedule_ramp_make(80, 80, 20, 240, 10, true), schedule_ramp_make(80, 80, 20, 0, 10, true)};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(schedule_reaches(&none[i], 8), 0);
        for (long step = 0; step < 20; step++) {
            assert_int_equal(schedule_ramp_at(&none[i], step).sequences, 8);
            assert_int_equal(schedule_ramp_at(&none[i], step).before, 8 * step);
            assert_true(schedule_lr_factor(&none[i], step) == 1);
        }
        assert_int_equal(schedule_ramp_at(&none[i], 1000000000).before, 8000000000);
    }
}

// 32 thousand to 3.2 million tokens over the first 4 billion, 2048 tokens a sequence; a million steps.
TEST(test_size_of_gpt3)
{
    Ramp r = schedule_ramp_make(16 * 2048, 1600 * 2048, 2048, 4000000000, 2048, true);
    Machine m = {.ramp = &r};
    long full = schedule_reaches(&r, 1600);
    for (long step = 0; step < 1000000; step++) {
        if (step % 997 == 0 || labs(step - full) < 3 || step < 10) {
            assert_true(schedule_ramp_at(&r, step).sequences == machine_size(&m));
            assert_true(schedule_ramp_at(&r, step).before == m.sequences);
        }
        if (step == full - 1) assert_true(m.tokens < r.tokens);
        if (step == full) assert_true(m.tokens >= r.tokens);
        machine_step(&m);
    }
}

// J R = 10^6 2 10^13 is beyond 64 bits. Places must fit together, and sizes must be those of the formula.
TEST(test_beyond_64_bits)
{
    Ramp r = schedule_ramp_make(4096, 4096ll * 1000001, 4096, 20000000000000, 4096, true);
    const long step[] = {0, 1, 1000, 9999, 20000, 50000, 70000};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        RampStep now = schedule_ramp_at(&r, step[i]), next = schedule_ramp_at(&r, step[i] + 1);
        assert_true(next.before == now.before + now.sequences);
        __int128 t = (__int128)now.before * 4096, want = 1 + t * 1000000 / r.tokens;
        assert_true(now.sequences == (want < 1000001 ? (int64_t)want : 1000001));
    }
    assert_true(schedule_ramp_at(&r, 70000).sequences > 500 && schedule_ramp_at(&r, 70000).sequences < 1000001);
    long full = schedule_reaches(&r, 1000001);
    assert_true(schedule_ramp_at(&r, full).sequences == 1000001 && schedule_ramp_at(&r, full - 1).sequences < 1000001);
    assert_true(schedule_ramp_at(&r, full + 1000000).before == schedule_ramp_at(&r, full).before + 1000000ll * 1000001);
}

// A run that stops in the middle of the ramp leaves its step and its samples. One that begins with them, and
// asks for nothing before, goes through the same steps.
TEST(test_resume_in_the_middle)
{
    enum { STEPS = 60 };
    Ramp first = schedule_ramp_make(16, 160, 8, 2000, 4, true);
    RampStep whole[STEPS];
    double factor[STEPS];
    for (long step = 0; step < STEPS; step++) {
        whole[step] = schedule_ramp_at(&first, step);
        factor[step] = schedule_lr_factor(&first, step);
    }
    assert_true(whole[1].sequences < 40 && whole[STEPS - 1].sequences == 40);
    for (long stop = 0; stop < STEPS; stop++) {
        Ramp again = schedule_ramp_make(16, 160, 8, 2000, 4, true);
        Machine m = {.ramp = &again, .sequences = whole[stop].before, .tokens = whole[stop].before * 4};
        for (long step = stop; step < STEPS; step++) {
            RampStep at = schedule_ramp_at(&again, step);
            assert_true(at.sequences == whole[step].sequences && at.before == whole[step].before);
            assert_true(at.sequences == machine_size(&m) && at.before == m.sequences);
            assert_true(schedule_lr_factor(&again, step) == factor[step]);
            machine_step(&m);
        }
    }
}

TEST(test_learning_rate)
{
    Ramp r = schedule_ramp_make(16 * 8, 64 * 8, 32, 4000, 8, true);
    assert_true(schedule_lr_factor(&r, 0) == 0.5); // sqrt(16 / 64)
    assert_true(schedule_lr_factor(&r, schedule_reaches(&r, 36)) == 0.75);
    long full = schedule_reaches(&r, 64);
    assert_true(schedule_lr_factor(&r, full) == 1 && schedule_lr_factor(&r, full - 1) < 1);
    assert_true(schedule_lr_factor(&r, 100000) == 1);
    for (long step = 0; step < full; step++) { // a root: within two roundings
        double f = schedule_lr_factor(&r, step);
        assert_true(fabs(f * f - (double)schedule_ramp_at(&r, step).sequences / 64) <= 4 * 0x1p-53);
    }
    r.scale_lr = false;
    for (long step = 0; step < 100; step++) assert_true(schedule_lr_factor(&r, step) == 1);
}

static void make(int64_t from, int64_t ramp_tokens)
{
    schedule_ramp_make(from, 400, 40, ramp_tokens, 10, false);
}

TEST(test_settings_that_do_not_fit)
{
    make(40, 100);
    expect_dies("batch.ramp_from: -40 is not between 0 and batch.tokens 400", make(-40, 100));
    expect_dies("batch.ramp_from: 440 is not between", make(440, 100));
    expect_dies("batch.ramp_from: 39 is not a multiple of model.context 10 (try 30)", make(39, 100));
    expect_dies("batch.ramp_by: 40 tokens at a time, sequences of 10, do not lead from batch.ramp_from 90 to "
                "batch.tokens 400 (try 10)", make(90, 100));
    expect_dies("batch.ramp_tokens: -1", make(40, -1));
}

// ---- schedule print: the table has the values of the run at the steps that matter, the drawings have their corners
// where the curves have them, and unusual runs (one step, all warm-up) give a table and a picture too.

static const Schedule print_wsd = {.kind = SCHEDULE_WSD, .shape = SCHEDULE_SHAPE_SQRT, .lr = 6e-4, .min_lr = 6e-5,
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
    Schedule warmed = print_wsd;
    warmed.momentum = 0.95, warmed.momentum_start = 0.85, warmed.momentum_warmup = 300;
    Ramp r = ramp();
    char notes[2000] = "";
    char *text = print(&warmed, &r, 1000), *plain = print(&print_wsd, &r, 1000);
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
    char *text = print(&print_wsd, &r, 1000);
    assert_int_equal(check_table(text, &print_wsd, &r, notes, sizeof notes), 8);
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
                Schedule s = print_wsd;
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
    schedule_print_svg(&print_wsd, &r, 1000, in_dir("schedule.svg"));
    char *svg = read_svg(in_dir("schedule.svg"));
    double total = (double)schedule_ramp_at(&r, 1000).before;
    const long step[] = {0, 39, schedule_reaches(&r, 5), schedule_reaches(&r, 32), 800, 900, 999};
    for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
        RampStep at = schedule_ramp_at(&r, step[i]);
        double x = 96 + 830 * (double)at.before / total;
        double y = 328 - 210 * schedule_lr_ramped(&print_wsd, &r, step[i]) / 6e-4;
        assert_non_null(strstr(svg, formatted("%.1f %.1f", x, y)));
        assert_non_null(strstr(svg, formatted("%.1f %.1f", x, 490 - 90 * (double)at.sequences / 32)));
    }
    assert_non_null(strstr(svg, "L926.0 400.0\"")); // to the end of the last step
    assert_null(strstr(svg, "M96.0 118.0"));
    free(svg);
    Schedule s = print_wsd;
    s.decay_steps = 1;
    s.decay_start = 0;
    schedule_print_svg(&s, &r, 1, in_dir("schedule.svg")); // one step, over the old picture
    free(read_svg(in_dir("schedule.svg")));
}

TEST_IN_DIR(test_no_place_for_the_picture)
{
    expect_dies("none/schedule.svg: No such file", {
        Ramp r = ramp();
        schedule_print_svg(&print_wsd, &r, 10, in_dir("none/schedule.svg"));
    });
}

TESTS(NULL, NULL)
