// collectives: the steps of a collective, what it costs by formula, and what it does over real ranks.
//
//     build/collectives steps ring 4              what every rank sends and adds, step by step, of 4 elements
//     build/collectives cost 8 5e-6 1e-10         seconds by formula over sizes: 8 ranks, alpha, beta
//     mpiexec -n 4 build/collectives run 4000000  bytes counted against the formula, and milliseconds a call
//
// `run` ends with two ways to wait: sleeping between tests (what comm does where ranks share cores) and spinning.
#include "blas.h"
#include "check.h"
#include "collectives.h"
#include "comm.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char USAGE[] = "usage: collectives steps ALGORITHM RANKS | cost RANKS ALPHA BETA | run BYTES";

static long number(const char *text, long low, long high)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < low || n > high) die_usage("collectives: '%s' (%ld to %ld)", text, low, high);
    return n;
}

// ---- steps: one element a shard

// Where a pointer points: shard of out (o), of in (i), or scratch (s).
static void place(char *text, size_t size, const Collective *c, const void *p)
{
    const char *at = p, *out = c->call.out, *in = c->call.in;
    size_t n = c->call.n;
    if (at >= out && at < out + n) snprintf(text, size, "out[%d]", (int)(at - out));
    else if (at >= in && at < in + n) snprintf(text, size, "in[%d]", (int)(at - in));
    else snprintf(text, size, "scratch[%d]", (int)(at - c->scratch));
}

static void print_steps(CommAlgorithm algorithm, int N)
{
    char out[64], in[64], scratch[4096], a[24], b[24], d[24];
    size_t counts[64], offsets[64];
    comm_even(counts, (size_t)N, N);
    for (int r = 0; r < N; r++) offsets[r] = (size_t)r;
    for (int r = 0; r < N; r++) {
        CommCall call = {.kind = COMM_ALL_REDUCE, .type = COMM_BYTE, .out = out, .in = in, .n = (size_t)N,
                         .counts = counts, .offsets = offsets};
        Collective c = {.call = call, .algorithm = algorithm, .rank = r, .size = N, .bytes = 1, .scratch = scratch};
        printf("rank %d\n", r);
        for (int k = 0; k < collectives_steps(&c); k++) {
            CollectiveStep s = collectives_step(&c, k);
            printf("  %2d", k);
            if (s.send_to >= 0)
                place(a, sizeof a, &c, s.send), printf("  send %zu from %s to %d", s.n_send, a, s.send_to);
            if (s.recv_from >= 0)
                place(a, sizeof a, &c, s.recv), printf("  receive %zu into %s from %d", s.n_recv, a, s.recv_from);
            if (s.action == COLLECTIVES_ADD) {
                place(d, sizeof d, &c, s.sum), place(a, sizeof a, &c, s.left), place(b, sizeof b, &c, s.right);
                printf("  %s = %s + %s", d, a, b);
            }
            if (s.action == COLLECTIVES_FOLD) printf("  out[%d] = tree over all ranks", r);
            printf("%s\n", s.send_to < 0 && s.recv_from < 0 ? "  -" : "");
        }
    }
}

static void print_costs(int N, double alpha, double beta)
{
    static const CommAlgorithm ALL[] = {COMM_RING, COMM_TREE, COMM_HALVING};
    printf("all_reduce over %d ranks, alpha %g s a message, beta %g s a byte: microseconds\n", N, alpha, beta);
    printf("%12s %12s %12s %12s   best\n", "bytes", "ring", "tree", "halving");
    for (size_t n = 64; n <= (1u << 30); n *= 16) {
        int best = 0;
        double t[3];
        printf("%12zu", n);
        for (int a = 0; a < 3; a++) {
            t[a] = collectives_seconds(COMM_ALL_REDUCE, ALL[a], N, n, alpha, beta);
            if (t[a] < t[best]) best = a;
            printf(" %12.1f", 1e6 * t[a]);
        }
        printf("   %s\n", comm_algorithm_name(ALL[best]));
    }
}

// ---- run

static double now_s(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    double wall, cpu; // seconds a call: of the slowest rank; of all ranks together
    size_t sent;      // bytes a call, of this rank
} Timing;

static Timing time_calls(Comm *world, CommKind kind, float *out, const float *in, const size_t *counts, size_t n,
                         int calls)
{
    size_t sent = world->count[kind].sent;
    CommRequest q = comm_barrier(world);
    comm_wait(world, &q);
    double wall = now_s(CLOCK_MONOTONIC), cpu = now_s(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < calls; i++) {
        if (kind == COMM_ALL_REDUCE) q = comm_all_reduce(world, out, in, n, COMM_FP32, COMM_SUM);
        if (kind == COMM_ALL_GATHER) q = comm_all_gather(world, out, in, counts, COMM_FP32);
        if (kind == COMM_REDUCE_SCATTER) q = comm_reduce_scatter(world, out, in, counts, COMM_FP32, COMM_SUM);
        comm_wait(world, &q);
    }
    sent = world->count[kind].sent - sent;
    double mine[2] = {now_s(CLOCK_MONOTONIC) - wall, now_s(CLOCK_PROCESS_CPUTIME_ID) - cpu}, all[2];
    q = comm_all_reduce(world, &all[0], &mine[0], 1, COMM_FP64, COMM_MAX), comm_wait(world, &q);
    q = comm_all_reduce(world, &all[1], &mine[1], 1, COMM_FP64, COMM_SUM), comm_wait(world, &q);
    return (Timing){all[0] / calls, all[1] / calls, sent / (size_t)calls};
}

static void print_run(Comm *world, size_t n_bytes)
{
    static const struct {
        CommKind kind;
        CommAlgorithm algorithm;
    } ROW[] = {
        {COMM_ALL_REDUCE, COMM_NATIVE}, {COMM_ALL_REDUCE, COMM_RING}, {COMM_ALL_REDUCE, COMM_TREE},
        {COMM_ALL_REDUCE, COMM_HALVING}, {COMM_ALL_REDUCE, COMM_DIRECT}, {COMM_ALL_GATHER, COMM_NATIVE},
        {COMM_ALL_GATHER, COMM_RING}, {COMM_REDUCE_SCATTER, COMM_NATIVE}, {COMM_REDUCE_SCATTER, COMM_RING},
        {COMM_REDUCE_SCATTER, COMM_DIRECT},
    };
    size_t N = (size_t)world->size, n = n_bytes / 4 / N * N, counts[N]; // the ranks' shards are equal
    float *in = calloc(n, 4), *out = calloc(n, 4);
    bool talks = world->rank == 0;
    if (!in || !out) die("collectives: no memory for %zu elements", n);
    for (size_t r = 0; r < N; r++) counts[r] = n / N;
    if (talks) printf("%zu ranks, %zu bytes each; rank 0 sends, a call:\n", N, 4 * n);
    if (talks) printf("%-16s %-10s %14s %14s %10s %12s\n", "call", "algorithm", "bytes", "of n", "ms", "ms of cores");
    for (size_t i = 0; i < sizeof ROW / sizeof *ROW; i++) {
        comm_set_algorithm(world, ROW[i].kind, ROW[i].algorithm);
        Timing t = time_calls(world, ROW[i].kind, out, in, counts, n, 5);
        if (talks)
            printf("%-16s %-10s %14zu %14.4f %10.3f %12.3f\n", comm_kind_name(ROW[i].kind),
                   comm_algorithm_name(ROW[i].algorithm), t.sent, (double)t.sent / (double)(4 * n), 1e3 * t.wall,
                   1e3 * t.cpu);
    }
    comm_set_algorithm(world, COMM_ALL_REDUCE, COMM_NATIVE);
    if (talks) printf("\n4000 bytes, waiting by\n");
    for (int spin = 0; spin < 2 && n >= 1000; spin++) {
        comm_set_spins(world, spin ? INT_MAX : 0);
        Timing t = time_calls(world, COMM_ALL_REDUCE, out, in, counts, 1000, 50);
        if (talks) printf("%-27s %40.3f %12.3f\n", spin ? "spinning" : "sleeping", 1e3 * t.wall, 1e3 * t.cpu);
    }
    free(in), free(out);
}

int main(int argc, char **argv)
{
    blas_choose(argv);
    if (argc == 4 && !strcmp(argv[1], "steps")) {
        CommAlgorithm a = comm_algorithm_find(argv[2]);
        if (a == COMM_NATIVE || a == COMM_ALGORITHMS)
            die_usage("collectives: '%s' (ring, tree, halving, direct)", argv[2]);
        print_steps(a, (int)number(argv[3], 1, 64));
    } else if (argc == 5 && !strcmp(argv[1], "cost")) {
        print_costs((int)number(argv[2], 1, 1 << 20), atof(argv[3]), atof(argv[4]));
    } else if (argc == 3 && !strcmp(argv[1], "run")) {
        Comm *world = comm_mpi_start();
        print_run(world, (size_t)number(argv[2], 4 * world->size, INT_MAX));
        comm_mpi_stop(world);
    } else {
        die_usage("%s", USAGE);
    }
    return 0;
}
