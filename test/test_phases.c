// phases: the time between two moments is divided between the phases, each moment once: by hand, through the model's
// hooks, and while a rank waits for another.
#include "test/test.h"

#include "base/clock.h"
#include "dev/check/comm_threads.h"
#include "train/phases.h"

#include <time.h>

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
