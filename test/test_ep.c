// test_ep: how many rows the experts of a rank may get, where ranks divide them, and what is refused. (Bits, with ranks
// that get no rows: test_layouts.)
#include "test/test.h"

#include "expect_die.h"
#include "net/experts.h"
#include "parallel/ep.h"

// Rows per token: those of all ranks, each of which may want every expert that one has; or as many as `room` says.
TEST(test_room)
{
    ModelExperts x = {.n = 8, .k = 2};
    assert_int_equal(experts_rows(&x), 2);
    x.ranks = 4;
    assert_int_equal(experts_rows(&x), 8); // 4 ranks, 2 experts here
    x.ranks = 8;
    assert_int_equal(experts_rows(&x), 8); // 8 ranks, 1 expert here
    x.room = 1.5;
    assert_int_equal(experts_rows(&x), 3);
    x.room = 100;
    assert_int_equal(experts_rows(&x), 8);
}

static int divided_badly(void *arg)
{
    (void)arg;
    ep_shape(&(ModelShape){.experts = {.n = 5, .k = 2, .ffn = 9, .every = 1}}, 0, 2);
    return 0;
}

TEST(test_refused)
{
    expect_die(divided_badly, NULL, "model.experts = 5");
}

TESTS(NULL, NULL)
