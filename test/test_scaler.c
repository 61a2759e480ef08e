// test_scaler: the loss scale at the edges of its state machine.
//
// Every expected number follows from the rule in grads.c; all are powers of two, so all comparisons are
// exact.

#include "test/test.h"

#include "expect_die.h"
#include "train/grads.h"

static void good(LossScaler *s, int steps)
{
    for (int i = 0; i < steps; i++) assert_true(grads_scaler_update(s, true));
}

TEST(test_overflow_at_step_0)
{
    LossScaler s = grads_scaler_create(65536, 3);
    assert_false(grads_scaler_update(&s, false));
    assert_true(s.scale == 32768 && s.good_steps == 0);
    good(&s, 2);
    assert_true(s.scale == 32768 && s.good_steps == 2);
    good(&s, 1); // the third finite step in a row
    assert_true(s.scale == 65536 && s.good_steps == 0);
}

TEST(test_grows_every_interval)
{
    LossScaler s = grads_scaler_create(1, 5);
    for (int k = 1; k <= 6; k++) {
        good(&s, 4);
        assert_true(s.scale == ldexpf(1, k - 1));
        good(&s, 1);
        assert_true(s.scale == ldexpf(1, k));
    }
    LossScaler each = grads_scaler_create(1, 1);
    good(&each, 3);
    assert_true(each.scale == 8);
}

// The step on which growth is due overflows: no growth, and the count starts again.
TEST(test_overflow_when_growth_is_due)
{
    LossScaler s = grads_scaler_create(1024, 4);
    good(&s, 3);
    assert_false(grads_scaler_update(&s, false));
    assert_true(s.scale == 512 && s.good_steps == 0);
    good(&s, 3);
    assert_true(s.scale == 512);
    good(&s, 1);
    assert_true(s.scale == 1024);
}

// scale and good_steps are all there is: a run that is stopped at any step and given them back goes on alike.
TEST(test_resume_mid_interval)
{
    enum { STEPS = 40 };
    const char *finite = "yyynyyyyyyynnyyyyyyyyyynyyyyyyyyyyyyynyy";
    for (int stop = 0; stop < STEPS; stop++) {
        LossScaler whole = grads_scaler_create(256, 4), first = grads_scaler_create(256, 4);
        for (int i = 0; i < STEPS; i++) {
            if (i == stop) {
                LossScaler resumed = grads_scaler_create(256, 4);
                resumed.scale = first.scale;
                resumed.good_steps = first.good_steps;
                first = resumed;
            }
            assert_int_equal(grads_scaler_update(&whole, finite[i] == 'y'),
                             grads_scaler_update(&first, finite[i] == 'y'));
            assert_true(whole.scale == first.scale && whole.good_steps == first.good_steps);
        }
    }
}

static int overflow_forever(void *arg)
{
    LossScaler *s = arg;
    for (int i = 0; i < 100; i++) grads_scaler_update(s, false);
    return 0;
}

TEST(test_repeated_overflow_reaches_the_minimum)
{
    LossScaler s = grads_scaler_create(65536, 2000);
    for (int k = 15; k >= 0; k--) { // 2^16 down to 2^0
        assert_false(grads_scaler_update(&s, false));
        assert_true(s.scale == ldexpf(1, k));
    }
    LossScaler at_the_end = s;
    expect_die(overflow_forever, &at_the_end, "overflow even at the smallest scale, 1 ");
    good(&s, 2000); // and it comes back
    assert_true(s.scale == 2);
}

TEST(test_stops_at_the_maximum)
{
    LossScaler s = grads_scaler_create(0x1p23f, 1);
    good(&s, 5);
    assert_true(s.scale == 0x1p24f && s.good_steps == 0);
    assert_false(grads_scaler_update(&s, false));
    assert_true(s.scale == 0x1p23f);
}

// interval 0: nothing moves; an overflow is skipped and no error however often.
TEST(test_fixed_scale)
{
    LossScaler s = grads_scaler_create(128, 0), none = grads_scaler_none();
    for (int i = 0; i < 100; i++) {
        assert_int_equal(grads_scaler_update(&s, i % 3 != 0), i % 3 != 0);
        assert_false(grads_scaler_update(&none, false));
    }
    assert_true(s.scale == 128 && s.good_steps == 0 && none.scale == 1);
}

static int create(void *arg)
{
    const float *settings = arg;
    grads_scaler_create(settings[0], (int)settings[1]);
    return 0;
}

TEST(test_bad_settings)
{
    float scales[] = {0, -2, 0.5f, 3, 1000, 0x1p25f, NAN, INFINITY};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        float settings[2] = {scales[i], 10};
        expect_die(create, settings, "is not a power of two");
    }
    float settings[2] = {2, -1};
    expect_die(create, settings, "interval -1 is negative");
}

TESTS(NULL, NULL)
