// test_ramp: the batch ramp against a plain state machine, step by step, on many small ramps and on the size of
// GPT-3's; its edges; and the values of a run that begins in the middle.
#include "test/test.h"

#include "expect_die.h"
#include "train/schedule.h"

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

static int make(void *tokens)
{
    const int64_t *t = tokens;
    schedule_ramp_make(t[0], t[1], 40, t[2], 10, false);
    return 0;
}

TEST(test_settings_that_do_not_fit)
{
    int64_t fits[] = {40, 400, 100}, negative[] = {-40, 400, 100}, above[] = {440, 400, 100};
    int64_t below_grain[] = {39, 400, 100}, odd[] = {90, 400, 100}, length[] = {40, 400, -1};
    make(fits);
    expect_die(make, negative, "batch.ramp_from: -40 is not between 0 and batch.tokens 400");
    expect_die(make, above, "batch.ramp_from: 440 is not between");
    expect_die(make, below_grain, "batch.ramp_from: 39 is not a multiple of model.context 10 (try 30)");
    expect_die(make, odd, "batch.ramp_by: 40 tokens at a time, sequences of 10, do not lead from batch.ramp_from 90 to "
                          "batch.tokens 400 (try 10)");
    expect_die(make, length, "batch.ramp_tokens: -1");
}

TESTS(NULL, NULL)
