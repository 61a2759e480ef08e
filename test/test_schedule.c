// test_schedule: the learning rate of every kind of step against values worked out by hand.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "schedule.h"

#include <math.h>

// lr takes a handful of roundings in double, and pi p one more: 16 u of the peak is plenty.
static void expect_lr(const Schedule *s, long step, double want)
{
    double got = schedule_lr(s, step);
    if (!(fabs(got - want) <= 16 * 0x1p-53 * s->lr)) fail_msg("step %ld: %.17g, not %.17g", step, got, want);
}

static const Schedule cosine = {.kind = SCHEDULE_COSINE, .lr = 8, .min_lr = 2, .warmup = 4, .decay_steps = 28};

static void test_warmup_is_linear_and_never_zero(void **state)
{
    (void)state;
    const double want[] = {2, 4, 6, 8}; // (step + 1) / 4 of 8
    for (long step = 0; step < 4; step++) expect_lr(&cosine, step, want[step]);
    expect_lr(&cosine, 4, 8); // the first step behind it is the peak again: p = 0
}

// cos is 1, 1/2, 0, -1/2, -1 at p = 0, 1/3, 1/2, 2/3, 1 of the 24 steps of decay
static void test_cosine_at_known_angles(void **state)
{
    (void)state;
    expect_lr(&cosine, 4 + 8, 2 + 6 * 0.75);
    expect_lr(&cosine, 4 + 12, 5);
    expect_lr(&cosine, 4 + 16, 2 + 6 * 0.25);
    expect_lr(&cosine, 28, 2);
    expect_lr(&cosine, 29, 2);
    expect_lr(&cosine, 1000000, 2);
    for (long step = 4; step < 28; step++) assert_true(schedule_lr(&cosine, step + 1) < schedule_lr(&cosine, step));
}

static void test_constant_stays_at_the_peak(void **state)
{
    (void)state;
    Schedule s = cosine;
    s.kind = SCHEDULE_CONSTANT;
    expect_lr(&s, 1, 4);
    expect_lr(&s, 4, 8);
    expect_lr(&s, 28, 8);
    expect_lr(&s, 1000000, 8);
}

static void test_edges(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warmup_is_linear_and_never_zero),
        cmocka_unit_test(test_cosine_at_known_angles),
        cmocka_unit_test(test_constant_stays_at_the_peak),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
