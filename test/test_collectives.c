// Tests of collectives: the steps of every rank of groups of 1 to 16, simulated with a clock, without messages. They
// fit together (no deadlock, lengths agree), move the bytes of the formulas, and take the seconds of the formulas.
#include "comm/collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "test/test.h"

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
