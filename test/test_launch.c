// test_launch: which device a rank takes, and whether another has taken it too.
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "comm/launch.h"

// The ranks of a machine take the devices of the list in turn; all of the machine where there is none.
TEST(test_device)
{
    static const struct {
        const char *list;
        int n, host[4], want[4];
    } row[] = {{"", 1, {0}, {0, 0, 0, 0}}, {"", 3, {0}, {0, 1, 2, 0}}, {"0,2", 3, {0}, {0, 2, 0, 2}},
               {"1", 2, {0}, {1, 1, 1, 1}}, {"", 2, {0, 0, 1, 1}, {0, 1, 0, 1}}, {"", 2, {0, 1, 0, 1}, {0, 0, 1, 1}},
               {"3,1", 4, {0, 1, 0, 1}, {3, 3, 1, 1}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int r = 0; r < 4; r++)
            assert_int_equal(launch_device(row[i].host, r, row[i].list, row[i].n), row[i].want[r]);
}

static int take_device(void *list)
{
    return launch_device((int[]){0}, 0, list, 2);
}

TEST(test_wrong_device)
{
    char *list[] = {"2", "-1", "0,2", "0,,1", "x", "1 "};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        expect_die(take_device, list[i], "this machine has 2");
}

// What each rank has taken, and whether that is one for each.
typedef struct {
    const char *device[3];
    bool own, said[3];
} Taken;

static void ask(Comm *world, void *arg)
{
    Taken *t = arg;
    t->said[world->rank] = launch_own_device(world, t->device[world->rank]);
}

TEST(test_own_device)
{
    Taken row[] = {{.device = {"a0", "a1", "b0"}, .own = true}, {.device = {"b", "c", "a"}, .own = true},
                   {.device = {"a", "b", "a"}}, {.device = {"b", "a", "a"}}, {.device = {"d", "d", "d"}}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        comm_threads_run(3, ask, &row[i]);
        for (int r = 0; r < 3; r++) assert_int_equal(row[i].said[r], row[i].own);
    }
}

TESTS(NULL, NULL)
