// test_comm: comm without a launcher: the group of one, all calls and algorithms over 1 to 8 ranks that are threads,
// memory, the slow link, the errors, the reports; which device a rank takes; and every algorithm's steps, bytes and
// seconds. (Real ranks: test_comm.sh.)
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "comm_case.h"
#include "base/clock.h"
#include "src/check/links.h"
#include "expect_die.h"
#include "comm/launch.h"
#include "comm/collectives.h"

#include <time.h>

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

// ---- launch: which device a rank takes, and whether another has taken it too.

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

// ---- collectives: the steps of every rank of groups of 1 to 16, simulated with a clock, without messages. They fit
// together (no deadlock, lengths agree), move the bytes of the formulas, and take the seconds of the formulas.

typedef struct {
    CommKind kind;
    CommAlgorithm algorithm;
    int node; // of hierarchical
} Way;
static const Way WAYS[] = {
    {COMM_ALL_REDUCE, COMM_RING, 0}, {COMM_ALL_REDUCE, COMM_TREE, 0}, {COMM_ALL_REDUCE, COMM_HALVING, 0},
    {COMM_ALL_REDUCE, COMM_DIRECT, 0}, {COMM_ALL_GATHER, COMM_RING, 0}, {COMM_REDUCE_SCATTER, COMM_RING, 0},
    {COMM_REDUCE_SCATTER, COMM_DIRECT, 0}, {COMM_BROADCAST, COMM_TREE, 0}, {COMM_ALL_TO_ALL, COMM_DIRECT, 0},
    {COMM_BARRIER, COMM_TREE, 0}, {COMM_ALL_REDUCE, COMM_HIERARCHICAL, 2}, {COMM_ALL_REDUCE, COMM_HIERARCHICAL, 3},
    {COMM_ALL_REDUCE, COMM_HIERARCHICAL, 4},
};
enum { N_WAYS = sizeof WAYS / sizeof *WAYS, RANKS = 16 };

// Nodes of so many ranks are all of a group, and more than one.
static bool fits(Way way, int N)
{
    return !way.node || (N > way.node && N % way.node == 0);
}

typedef struct {
    size_t sent[RANKS], received[RANKS];
    double seconds;
} Played;

// Which ranks can do their next step now: the partners of its messages stand at the step that has their other side, and
// can do it too.
static void find_ready(bool *ready, const Collective *c, const int *at, int N)
{
    CollectiveStep step[RANKS];
    for (int r = 0; r < N; r++) {
        ready[r] = at[r] < collectives_steps(&c[r]);
        step[r] = ready[r] ? collectives_step(&c[r], at[r]) : (CollectiveStep){.send_to = -1, .recv_from = -1};
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (int r = 0; r < N; r++) {
            if (!ready[r]) continue;
            int to = step[r].send_to, from = step[r].recv_from;
            bool sends = to < 0 || (ready[to] && step[to].recv_from == r);
            bool receives = from < 0 || (ready[from] && step[from].send_to == r);
            if (sends && to >= 0) assert_int_equal(step[to].n_recv, step[r].n_send);
            if (!sends || !receives) ready[r] = false, changed = true;
        }
    }
}

// Runs the steps on a clock: a message begins when both its ranks are ready and takes alpha + n beta; a rank's step
// ends when its send and its receive have. `bytes` on every rank.
static Played play(Way way, int N, size_t bytes, double alpha, double beta)
{
    static char memory[4 * 8192];
    Played p = {0};
    size_t counts[RANKS], offsets[RANKS] = {0};
    Collective c[RANKS];
    double clock[RANKS] = {0};
    int at[RANKS] = {0}, left = 0;
    comm_even(counts, bytes, N);
    for (int r = 1; r < N; r++) offsets[r] = offsets[r - 1] + counts[r - 1];
    for (int r = 0; r < N; r++) {
        CommCall call = {.kind = way.kind, .type = COMM_BYTE, .out = memory, .in = memory, .n = bytes, .counts = counts,
                         .offsets = offsets, .in_counts = counts, .in_offsets = offsets, .node = way.node};
        c[r] = (Collective){.call = call, .algorithm = way.algorithm, .rank = r, .size = N, .bytes = 1,
                            .scratch = memory};
        left += collectives_steps(&c[r]);
    }
    while (left) {
        int before = left;
        bool ready[RANKS];
        double begin[RANKS];
        memcpy(begin, clock, sizeof begin);
        find_ready(ready, c, at, N);
        for (int r = 0; r < N; r++) {
            if (!ready[r]) continue;
            CollectiveStep s = collectives_step(&c[r], at[r]);
            for (int side = 0; side < 2; side++) {
                int peer = side ? s.recv_from : s.send_to;
                if (peer < 0) continue;
                double from = begin[r] > begin[peer] ? begin[r] : begin[peer];
                double end = from + alpha + beta * (double)(side ? s.n_recv : s.n_send);
                clock[r] = end > clock[r] ? end : clock[r];
            }
            p.sent[r] += s.n_send, p.received[r] += s.n_recv;
            at[r]++, left--;
        }
        assert_true(left < before); // else the ranks wait for each other for ever
    }
    for (int r = 0; r < N; r++) p.seconds = clock[r] > p.seconds ? clock[r] : p.seconds;
    return p;
}

// alpha and beta are small powers of two, so the clock's sums are exact; the formula divides by N: N rounding errors.
TEST(test_costs)
{
    const double alpha = 0.5, beta = 0.0078125;
    for (int w = 0; w < N_WAYS; w++)
        for (int N = 1; N <= RANKS; N++) {
            size_t bytes = (size_t)N * 48; // 48: halves over 16 ranks too
            int node = WAYS[w].node;
            if (!fits(WAYS[w], N)) continue;
            Played p = play(WAYS[w], N, bytes, alpha, beta);
            double want = node ? collectives_hierarchical_seconds(node, N / node, bytes, alpha, beta)
                               : collectives_seconds(WAYS[w].kind, WAYS[w].algorithm, N, bytes, alpha, beta);
            double bound = want * (N + 4) * 0x1p-53;
            if (!(fabs(p.seconds - want) <= bound))
                printf("%s by %s, %d ranks: steps take %g, formula %g\n", comm_kind_name(WAYS[w].kind),
                       comm_algorithm_name(WAYS[w].algorithm), N, p.seconds, want);
            assert_true(fabs(p.seconds - want) <= bound);
        }
}

// The formulas of the guides as they write them, against the steps.
TEST(test_bytes)
{
    for (int w = 0; w < N_WAYS; w++)
        for (int N = 1; N <= RANKS; N++) {
            size_t n = (size_t)N * 48, counts[RANKS], sent = 0, received = 0, s, r, ranks = (size_t)N;
            if (!fits(WAYS[w], N)) continue;
            comm_even(counts, n, N);
            Played p = play(WAYS[w], N, n, 1, 0);
            CommCall call = {.kind = WAYS[w].kind, .type = COMM_BYTE, .n = n, .counts = counts, .in_counts = counts,
                             .node = WAYS[w].node};
            for (int k = 0; k < N; k++) {
                collectives_bytes(&call, WAYS[w].algorithm, k, N, &s, &r);
                assert_int_equal(p.sent[k], s);
                assert_int_equal(p.received[k], r);
                sent += s, received += r;
            }
            assert_int_equal(sent, received);
            bool power = (N & (N - 1)) == 0, reduce = WAYS[w].kind == COMM_ALL_REDUCE;
            CommAlgorithm a = WAYS[w].algorithm;
            if (reduce && (a == COMM_RING || a == COMM_DIRECT || a == COMM_HIERARCHICAL || (a == COMM_HALVING && power))) {
                assert_int_equal(p.sent[0] * ranks, 2 * (ranks - 1) * n);
                assert_int_equal(p.sent[N - 1] * ranks, 2 * (ranks - 1) * n);
            }
            if (reduce && a == COMM_TREE) assert_int_equal(sent, 2 * (ranks - 1) * n);
            if (WAYS[w].kind == COMM_ALL_GATHER || WAYS[w].kind == COMM_REDUCE_SCATTER)
                assert_int_equal(p.sent[0] * ranks, (ranks - 1) * n);
            if (WAYS[w].kind == COMM_BROADCAST) assert_int_equal(sent, (ranks - 1) * n);
        }
}

// What each of three ranks sends of 7 elements, worked out by hand: shards of 3, 2 and 2.
TEST(test_uneven_bytes)
{
    const size_t counts[] = {3, 2, 2}, ring[] = {7 - 3 + 7 - 2, 7 - 2 + 7 - 2, 7 - 2 + 7 - 3};
    size_t sent, received;
    CommCall call = {.kind = COMM_ALL_REDUCE, .type = COMM_FP32, .n = 7, .counts = counts};
    for (int r = 0; r < 3; r++) {
        collectives_bytes(&call, COMM_RING, r, 3, &sent, &received);
        assert_int_equal(sent, 4 * ring[r]);
    }
}

TESTS(NULL, NULL)
