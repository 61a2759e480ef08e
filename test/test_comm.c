// Tests of comm without a launcher: the group of one, all calls and algorithms over 1 to 8 ranks that are threads,
// memory, the slow link, the errors, the reports. (test_collectives.c has the formulas, test_comm.sh real ranks.)
#include "dev/check/comm_threads.h"
#include "comm_case.h"
#include "base/clock.h"
#include "src/check/links.h"

#include <stdlib.h>
#include <time.h>

#include "test/test.h"

#include "expect_die.h"

static void pause_s(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

// ---- all calls

TEST(test_self)
{
    CommCase cc = {0};
    Comm *comm = comm_self();
    case_everything(&cc, comm);
    for (int k = 0; k < COMM_KINDS; k++)
        assert_true(comm->count[k].sent == 0 && comm->count[k].received == 0);
    assert_true(comm->count[COMM_ALL_REDUCE].calls > 0);
    assert_int_equal(comm_mem(comm)->bytes, 0);
    comm_free(comm);
    comm_free(NULL);
    assert_int_equal(cc.failed, 0);
}

static void everything(Comm *comm, void *arg)
{
    case_everything(arg, comm);
    comm_set_checked(comm, true); // the same calls agree
    case_in_flight(arg, comm);
    comm_set_checked(comm, false);
}

TEST(test_threads)
{
    for (int n = 1; n <= 8; n++) {
        CommCase cc = {0};
        comm_threads_run(n, everything, &cc);
        if (cc.failed) printf("%d ranks: %d failures\n", n, cc.failed);
        assert_int_equal(cc.failed, 0);
    }
}

// Nobody leaves before the last has come: the ranks arrive one after the other.
static void late(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    pause_s(0.004 * comm->rank);
    atomic_fetch_add(&cc->entered, 1);
    CommRequest q = comm_barrier(comm);
    comm_wait(comm, &q);
    expect(cc, comm, cc->entered == comm->size);
}

TEST(test_barrier)
{
    for (int n = 2; n <= 7; n++) {
        CommCase cc = {0};
        comm_threads_run(n, late, &cc);
        assert_int_equal(cc.failed, 0);
    }
}

// ---- hosts

// Of six ranks, those of the machines 4, 0, 4, 0, 0, 7: the world's numbers, and a group's own.
static void on_machines(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    const int machine[] = {4, 0, 4, 0, 0, 7}, world[] = {0, 1, 0, 1, 1, 2}, odd[] = {0, 0, 1};
    int host[6];
    comm->machine = machine[comm->rank];
    comm_hosts(comm, host);
    expect(cc, comm, !memcmp(host, world, sizeof world));
    Comm *half = comm_split(comm, comm->rank % 2, comm->rank, "half");
    comm_hosts(half, host);
    if (comm->rank % 2) expect(cc, comm, !memcmp(host, odd, sizeof odd)); // ranks 1, 3, 5
}

TEST(test_hosts)
{
    CommCase cc = {0};
    comm_threads_run(6, on_machines, &cc);
    assert_int_equal(cc.failed, 0);
    const struct {
        int n, host[6], each;
    } rows[] = {
        {1, {0}, 1}, {4, {0, 0, 0, 0}, 4}, {4, {0, 0, 1, 1}, 2}, {6, {0, 0, 1, 1, 2, 2}, 2}, {3, {0, 1, 2}, 1},
        {3, {0, 0, 1}, 0}, {4, {0, 1, 0, 1}, 0}, {6, {0, 0, 1, 1, 1, 1}, 0}, {6, {0, 0, 1, 1, 0, 0}, 0},
        {5, {0, 0, 1, 1, 2}, 0}, {6, {0, 0, 0, 0, 1, 1}, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (comm_host_ranks(rows[i].host, rows[i].n) != rows[i].each) fail_msg("row %zu", i);
}

// A link of each kind, where there are two such ranks; every rank has the same numbers.
static void on_links(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    const int machine[] = {0, 1, 0};
    Link link[LINKS_KINDS], first[LINKS_KINDS];
    comm->machine = machine[comm->rank];
    links_measure(comm, link);
    for (int kind = 0; kind < LINKS_KINDS; kind++) {
        bool any = comm->size > (kind == LINKS_INSIDE ? 2 : 1);
        expect(cc, comm, (link[kind].alpha > 0) == any && (link[kind].bandwidth > 0) == any);
    }
    memcpy(first, link, sizeof link);
    CommRequest q = comm_broadcast(comm, first, sizeof first, COMM_BYTE, 0);
    comm_wait(comm, &q);
    expect(cc, comm, !memcmp(first, link, sizeof link));
}

TEST(test_links)
{
    for (int n = 1; n <= 3; n++) {
        CommCase cc = {0};
        comm_threads_run(n, on_links, &cc);
        assert_int_equal(cc.failed, 0);
    }
}

// ---- memory

static void sealed(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    Mem *mem = comm_mem(comm);
    float x[40];
    size_t counts[] = {10, 10, 10, 10};
    comm_set_algorithm(comm, COMM_ALL_REDUCE, COMM_RING);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 40; i++) x[i] = 1;
        CommRequest a = comm_all_reduce(comm, x, x, 40, COMM_FP32, COMM_SUM);
        comm_wait(comm, &a);
        CommRequest b = comm_reduce_scatter(comm, x, x + 0, counts, COMM_FP32, COMM_SUM);
        comm_wait(comm, &b);
        // one slot, whose scratch is two shards of the ring (direct's three shards when ordered)
        expect(cc, comm, mem->tag_bytes[MEM_COMM] == 2 * 10 * sizeof(float) && mem->n_blocks == 1);
        if (step == 0) mem_seal(mem); // later steps allocate nothing, or die
    }
}

TEST(test_memory)
{
    CommCase cc = {0};
    comm_threads_run(4, sealed, &cc);
    assert_int_equal(cc.failed, 0);
}

// ---- the slow link: 3 ranks; ring all_gather of 3 x 1000 bytes = 2 alpha + 2000 beta = 40 ms

static void slow(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    char out[3000], in[1000] = {0}, two[3000];
    const size_t counts[] = {1000, 1000, 1000};
    const double alpha = 5e-3, beta = 1.5e-5, cost = 2 * alpha + 2000 * beta;
    comm_set_slow(comm, alpha, beta);
    double begin = clock_seconds();
    CommRequest q = comm_all_gather(comm, out, in, counts, COMM_BYTE);
    expect(cc, comm, !comm_progress(comm));
    comm_wait(comm, &q);
    expect(cc, comm, clock_seconds() - begin >= cost);
    expect(cc, comm, comm->count[COMM_ALL_GATHER].waited >= 0.5 * cost);
    expect(cc, comm, comm->count[COMM_ALL_GATHER].seconds >= cost);
    // Two calls share the link: 2 cost after the start, not before, and their order does not matter.
    begin = clock_seconds();
    CommRequest a = comm_all_gather(comm, out, in, counts, COMM_BYTE);
    CommRequest b = comm_all_gather(comm, two, in, counts, COMM_BYTE);
    comm_wait(comm, &b);
    expect(cc, comm, clock_seconds() - begin >= 2 * cost);
    double waited = comm->count[COMM_ALL_GATHER].waited;
    comm_wait(comm, &a); // hidden behind b
    expect(cc, comm, comm->count[COMM_ALL_GATHER].waited - waited < cost);
    // Work hides the call: the link is free again long before the wait.
    CommRequest all = comm_barrier(comm);
    comm_wait(comm, &all);
    waited = comm->count[COMM_ALL_GATHER].waited;
    a = comm_all_gather(comm, out, in, counts, COMM_BYTE);
    begin = clock_seconds();
    while (!comm_progress(comm)) pause_s(1e-3);
    expect(cc, comm, clock_seconds() - begin >= 0.9 * cost);
    comm_wait(comm, &a);
    expect(cc, comm, comm->count[COMM_ALL_GATHER].waited - waited < 0.5 * cost);
    comm_set_slow(comm, 0, 0);
}

typedef struct {
    int n;
    CommKind kind[4];
    double begin[4], end[4];
} Traced;

static void remember(void *arg, const Comm *comm, CommKind kind, double begin, double end)
{
    Traced *t = arg;
    if (t->n < 4 && comm->size == 3) t->kind[t->n] = kind, t->begin[t->n] = begin, t->end[t->n] = end;
    t->n++;
}

// The trace sees each call on the link: two started together stand one behind the other, and a wait ends no earlier.
static void traced(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    Traced t = {0};
    char out[3000], in[1000] = {0}, two[1000] = {0};
    const size_t counts[] = {1000, 1000, 1000};
    const double alpha = 1e-3, beta = 1e-5, gather = 2 * alpha + 2000 * beta, spread = 2 * (alpha + 1000 * beta);
    comm_set_algorithm(comm, COMM_BROADCAST, COMM_TREE);
    comm_set_trace(comm, remember, &t);
    CommRequest before = comm_barrier(comm); // no slow link yet: not traced
    comm_wait(comm, &before);
    comm_set_slow(comm, alpha, beta);
    double begin = clock_seconds();
    CommRequest a = comm_all_gather(comm, out, in, counts, COMM_BYTE);
    CommRequest b = comm_broadcast(comm, two, 1000, COMM_BYTE, 0);
    comm_wait(comm, &a);
    expect(cc, comm, clock_seconds() >= t.end[0]);
    comm_wait(comm, &b);
    expect(cc, comm, clock_seconds() >= t.end[1]);
    comm_set_slow(comm, 0, 0), comm_set_trace(comm, NULL, NULL);
    expect(cc, comm, t.n == 2 && t.kind[0] == COMM_ALL_GATHER && t.kind[1] == COMM_BROADCAST);
    expect(cc, comm, t.begin[0] >= begin && t.begin[1] == t.end[0]);
    // a clock of seconds since the start of the machine: below 1e9, in steps of 1.2e-7 at most
    expect(cc, comm, t.end[0] - t.begin[0] >= gather - 2.4e-7 && t.end[0] - t.begin[0] <= gather + 2.4e-7);
    expect(cc, comm, t.end[1] - t.begin[1] >= spread - 2.4e-7 && t.end[1] - t.begin[1] <= spread + 2.4e-7);
}

TEST(test_slow)
{
    CommCase cc = {0};
    comm_threads_run(3, slow, &cc);
    comm_threads_run(3, traced, &cc);
    assert_int_equal(cc.failed, 0);
}

// ---- errors

static int run_body(void *arg)
{
    void (*body)(Comm *, void *) = *(void (**)(Comm *, void *))arg;
    comm_threads_run(3, body, NULL);
    return 0;
}

static void other_count(Comm *comm, void *arg)
{
    (void)arg;
    float x[100] = {0};
    comm_set_checked(comm, true);
    CommRequest q = comm_all_reduce(comm, x, x, comm->rank == 2 ? 99 : 100, COMM_FP32, COMM_SUM);
    comm_wait(comm, &q);
}

static void other_call(Comm *comm, void *arg)
{
    (void)arg;
    float x[100] = {0};
    comm_set_checked(comm, true);
    CommRequest q = comm->rank == 1 ? comm_barrier(comm) : comm_broadcast(comm, x, 100, COMM_FP32, 0);
    comm_wait(comm, &q);
}

static void other_shards(Comm *comm, void *arg)
{
    (void)arg;
    float x[6] = {0}, y[2];
    const size_t counts[2][3] = {{2, 2, 2}, {3, 1, 2}}; // the same sum
    comm_set_checked(comm, true);
    CommRequest q = comm_reduce_scatter(comm, y, x, counts[comm->rank == 2], COMM_FP32, COMM_SUM);
    comm_wait(comm, &q);
}

static void short_message(Comm *comm, void *arg)
{
    (void)arg;
    int x[4] = {0};
    CommRequest q = {0};
    if (comm->rank == 0) q = comm_send(comm, x, 3, COMM_INT32, 1, 0);
    if (comm->rank == 1) q = comm_recv(comm, x, 4, COMM_INT32, 0, 0);
    comm_wait(comm, &q);
}

static void to_itself(Comm *comm, void *arg)
{
    (void)arg;
    int x = 0;
    if (comm->rank == 1) comm_send(comm, &x, 1, COMM_INT32, 1, 0);
}

static void bytes_added(Comm *comm, void *arg)
{
    (void)arg;
    char x = 0;
    comm_all_reduce(comm, &x, &x, 1, COMM_BYTE, COMM_SUM);
}

static void waited_twice(Comm *comm, void *arg)
{
    (void)arg;
    CommRequest q = comm_barrier(comm), copy = q;
    comm_wait(comm, &q);
    comm_wait(comm, &q); // cleared: nothing
    if (comm->rank == 0) comm_wait(comm, &copy);
}

static void wrong_algorithm(Comm *comm, void *arg)
{
    (void)arg;
    comm_set_algorithm(comm, COMM_ALL_GATHER, COMM_TREE);
}

TEST(test_errors)
{
    const struct {
        void (*body)(Comm *, void *);
        const char *words;
    } rows[] = {
        {other_count, "group world: all_reduce of 99 fp32 on rank 2, all_reduce of 100 fp32 on rank 0"},
        {other_call, "group world: barrier of 0 bytes on rank 1, broadcast of 100 fp32 on rank 0"},
        {other_shards, "group world: reduce_scatter of 6 fp32 in shards on rank 2"},
        {short_message, "group world: rank 1 expected 16 bytes from rank 0 and was sent 12"},
        {to_itself, "group world: send: rank 1 with rank 1 of 3"},
        {waited_twice, "waited for twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void (*body)(Comm *, void *) = rows[i].body;
        expect_die(run_body, &body, rows[i].words);
    }
    // one of several ranks may be the first to say these: any number of lines
    char text[8192];
    void (*body)(Comm *, void *) = bytes_added;
    assert_int_equal(run_child(run_body, &body, text, sizeof text), 1);
    assert_non_null(strstr(text, "all_reduce of bytes"));
    body = wrong_algorithm;
    assert_int_equal(run_child(run_body, &body, text, sizeof text), 1);
    assert_non_null(strstr(text, "all_gather has no algorithm 'tree'"));
}

// ---- counts

TEST(test_counts)
{
    Comm *comm = comm_self();
    Comm *dp = comm_split(comm, 0, 0, "dp");
    float x[3] = {1, 2, 3}, y[3];
    CommRequest q = comm_all_reduce(dp, y, x, 3, COMM_FP32, COMM_SUM);
    comm_wait(dp, &q);
    const CommCount *count = &dp->count[COMM_ALL_REDUCE];
    assert_true(count->calls == 1 && count->payload == 12 && count->sent == 0 && count->received == 0);
    assert_int_equal(comm->count[COMM_ALL_REDUCE].calls, 0);
    comm_reset_counts(comm);
    assert_int_equal(dp->count[COMM_ALL_REDUCE].calls, 0);
    comm_free(comm);
}

// A backend without collectives of its own runs the algorithm that is asked for, or, for "native", a fitting one.
static void algorithms(Comm *comm, void *arg)
{
    CommCase *cc = arg;
    const CommAlgorithm asked[] = {COMM_RING, COMM_TREE, COMM_HALVING, COMM_DIRECT};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        comm_set_algorithm(comm, COMM_ALL_REDUCE, asked[i]);
        expect(cc, comm, comm_algorithm(comm, COMM_ALL_REDUCE, COMM_FP32, COMM_SUM) == asked[i]);
    }
    comm_set_algorithm(comm, COMM_ALL_REDUCE, COMM_NATIVE);
    expect(cc, comm, comm_algorithm(comm, COMM_ALL_REDUCE, COMM_FP32, COMM_SUM) == COMM_RING);
    expect(cc, comm, comm_algorithm(comm, COMM_BROADCAST, COMM_FP32, COMM_SUM) == COMM_TREE);
    expect(cc, comm, comm_algorithm(comm, COMM_ALL_TO_ALL, COMM_BYTE, COMM_SUM) == COMM_DIRECT);
    expect(cc, comm, comm_algorithm(comm, COMM_SEND, COMM_BYTE, COMM_SUM) == COMM_NATIVE);
}

TEST(test_algorithms)
{
    CommCase cc = {0};
    comm_threads_run(4, algorithms, &cc);
    assert_int_equal(cc.failed, 0);
}

TEST(test_types)
{
    assert_int_equal(comm_type_of(X_FP32), COMM_FP32);
    assert_int_equal(comm_type_of(X_BF16), COMM_BF16);
    assert_int_equal(comm_type_of(X_FP16), COMM_FP16);
}

TEST(test_even)
{
    size_t counts[4];
    comm_even(counts, 10, 4);
    assert_true(counts[0] == 3 && counts[1] == 3 && counts[2] == 2 && counts[3] == 2);
}

TESTS(NULL, NULL)
