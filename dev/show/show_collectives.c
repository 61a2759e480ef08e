// show_collectives: the steps of a collective, what it costs by formula, and what it does over real ranks.
//
// `run` ends by timing two ways to wait: sleeping between tests (what comm does where ranks share cores) and spinning.
#include "dev/show/show.h"
#include "ops/dev_cpu.h"
#include "base/check.h"
#include "comm/collectives.h"
#include "comm/comm.h"
#include "tools/svg.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
    "usage: show collectives steps ALGORITHM RANKS                       what every rank sends and adds, step by step\n"
    "       show collectives draw ALGORITHM[,ALGORITHM] RANKS FILE.svg   who holds how much of each shard, step by step\n"
    "       show collectives cost RANKS ALPHA BETA                       seconds by formula, for a range of sizes\n"
    "       mpiexec -n N show collectives run BYTES                      bytes sent and milliseconds, a call\n"
    "ALGORITHM: ring, tree, halving, direct, hierarchical (nodes of 2). ALPHA: seconds a message; BETA: a byte\n";

static long number(const char *text, long low, long high)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < low || n > high) die_usage("collectives: '%s' (%ld to %ld)", text, low, high);
    return n;
}

enum { NODE = 2 };

// Those made of messages: not the backend's own.
static CommAlgorithm algorithm_of(const char *name, int N)
{
    for (int a = 0; a < COMM_ALGORITHMS; a++) {
        if (a == COMM_NATIVE || strcmp(name, comm_algorithm_name((CommAlgorithm)a))) continue;
        if (a == COMM_HIERARCHICAL && (N % NODE || N == NODE))
            die_usage("collectives: hierarchical: %d ranks are not several nodes of %d", N, NODE);
        return (CommAlgorithm)a;
    }
    die_usage("collectives: '%s' (ring, tree, halving, direct, hierarchical)", name);
}

// ---- steps: one element a shard

// Where a pointer points: a shard of out, a shard of in, or an element of scratch.
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
                         .counts = counts, .offsets = offsets, .node = NODE};
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

// ---- draw: an all_reduce of one element a shard, played by all ranks at once

enum { DRAWN = 8, LANES = 2 }; // at most; lane 0 carries the ranks' contributions, lane 1 the shards' numbers
typedef struct {
    int64_t in[DRAWN], out[DRAWN], scratch[DRAWN * DRAWN];
} Memory;

typedef struct {
    int n_ranks, n_steps;
    CommAlgorithm algorithm;
    unsigned seen[2 * DRAWN][DRAWN][DRAWN]; // [steps done][rank][shard]; bit r: rank r's part is in
    struct {
        int to;
        bool shard[DRAWN];
    } sent[2 * DRAWN][DRAWN]; // [step][sender]; to -1: nothing is sent
} Play;

// The contributions in a sum, four bits each; dies when one was added twice.
static unsigned parts_of(int64_t sum, int n_ranks)
{
    unsigned parts = 0;
    for (int r = 0; r < n_ranks; r++) {
        int64_t times = sum >> 4 * r & 15;
        check(times <= 1);
        if (times) parts |= 1u << r;
    }
    return parts;
}

// Notes what the n new values at `where` in rank r's memory hold. `seen` keeps the fullest sum that the rank has had.
static void note(Play *p, Memory memory[LANES][DRAWN], int k, int r, const void *where, size_t n)
{
    size_t at = (size_t)((const int64_t *)where - (const int64_t *)&memory[0][r]);
    for (size_t i = at; i < at + n; i++) {
        int64_t shard = ((const int64_t *)&memory[1][r])[i];
        unsigned parts = parts_of(((const int64_t *)&memory[0][r])[i], p->n_ranks), *seen = &p->seen[k + 1][r][shard];
        if (__builtin_popcount(parts) > __builtin_popcount(*seen)) *seen = parts;
    }
}

static Play play(CommAlgorithm algorithm, int N)
{
    static Memory memory[LANES][DRAWN];
    int64_t wire[LANES][DRAWN][DRAWN];
    size_t counts[DRAWN], offsets[DRAWN];
    Collective c[LANES][DRAWN];
    CollectiveStep step[LANES][DRAWN];
    Play p = {.n_ranks = N, .algorithm = algorithm};
    memset(memory, 0, sizeof memory);
    for (int r = 0; r < N; r++) counts[r] = 1, offsets[r] = (size_t)r;
    for (int lane = 0; lane < LANES; lane++)
        for (int r = 0; r < N; r++) {
            Memory *m = &memory[lane][r];
            for (int s = 0; s < N; s++) m->in[s] = lane ? s : (int64_t)1 << 4 * r;
            for (int s = 0; s < N; s++) p.seen[0][r][s] = 1u << r;
            CommCall call = {.kind = COMM_ALL_REDUCE, .type = COMM_INT64, .op = lane ? COMM_MAX : COMM_SUM,
                             .out = m->out, .in = m->in, .n = (size_t)N, .counts = counts, .offsets = offsets, .node = NODE};
            c[lane][r] = (Collective){.call = call, .algorithm = algorithm, .rank = r, .size = N, .bytes = 8,
                                      .scratch = (char *)m->scratch};
            collectives_begin(&c[lane][r]);
        }
    p.n_steps = collectives_steps(&c[0][0]);
    for (int k = 0; k < p.n_steps; k++) {
        memcpy(p.seen[k + 1], p.seen[k], sizeof *p.seen);
        for (int r = 0; r < N; r++)
            for (int lane = 0; lane < LANES; lane++) {
                CollectiveStep *s = &step[lane][r];
                *s = collectives_step(&c[lane][r], k);
                p.sent[k][r].to = s->send_to;
                if (s->send_to >= 0) memcpy(wire[lane][r], s->send, s->n_send * 8);
                for (size_t i = 0; lane && s->send_to >= 0 && i < s->n_send; i++)
                    p.sent[k][r].shard[wire[1][r][i]] = true;
            }
        for (int r = 0; r < N; r++)
            for (int lane = 0; lane < LANES; lane++) {
                CollectiveStep *s = &step[lane][r];
                if (s->recv_from < 0) continue;
                check(step[lane][s->recv_from].send_to == r && step[lane][s->recv_from].n_send == s->n_recv);
                memcpy(s->recv, wire[lane][s->recv_from], s->n_recv * 8);
            }
        for (int r = 0; r < N; r++) {
            for (int lane = 0; lane < LANES; lane++) collectives_act(&c[lane][r], &step[lane][r]);
            CollectiveStep *s = &step[0][r];
            if (s->action == COLLECTIVES_ADD) note(&p, memory, k, r, s->sum, s->n);
            else if (s->action == COLLECTIVES_FOLD) note(&p, memory, k, r, &memory[0][r].out[r], 1);
            else if (s->recv_from >= 0) note(&p, memory, k, r, s->recv, s->n_recv);
        }
    }
    for (int r = 0; r < N; r++) // in the end every rank has every rank's part of every shard, once
        for (int s = 0; s < N; s++)
            check(parts_of(memory[0][r].out[s], N) == (1u << N) - 1 && p.seen[p.n_steps][r][s] == (1u << N) - 1);
    return p;
}

enum { SHARD = 24, RANK_GAP = 26, STEP = 76, TOP = 74, SIDE = 76, FOOT = 44 };
typedef struct {
    Play play[4];
    int n;
} Drawing;

static double rank_x(const Play *p, double left, int rank)
{
    return left + SIDE + rank * (p->n_ranks * SHARD + RANK_GAP);
}

static int width_of(const Play *p)
{
    return (int)rank_x(p, 0, p->n_ranks) + 4;
}

static void shard_box(FILE *f, double x, double y, unsigned seen, int n_ranks, bool is_new)
{
    int n = __builtin_popcount(seen);
    double strong = n_ranks > 1 ? 0.12 + 0.7 * (n - 1) / (n_ranks - 1) : 1;
    unsigned color[3] = {0x25, 0x63, 0xa8};
    for (int i = 0; i < 3; i++) color[i] = (unsigned)lround(color[i] * strong + 255 * (1 - strong));
    if (n == n_ranks) color[0] = 0x2f, color[1] = 0x7d, color[2] = 0x4f;
    fprintf(f, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"#%02x%02x%02x\" "
            "stroke=\"%s\" stroke-width=\"%g\"/>\n", n == n_ranks ? "whole" : "part", x + 1, y + 1, SHARD - 2,
            SHARD - 2, color[0], color[1], color[2], is_new ? SVG_ORANGE : "#ffffff", is_new ? 2.0 : 0.0);
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    svg_text(f, x + SHARD / 2.0, y + SHARD / 2.0 + 4, "middle", 11, strong > 0.55 ? "#ffffff" : SVG_INK, false, text);
}

static void arrow(FILE *f, double x0, double y0, double x1, double y1)
{
    double length = hypot(x1 - x0, y1 - y0), dx = (x1 - x0) / length, dy = (y1 - y0) / length;
    svg_line(f, x0, y0, x1 - 6 * dx, y1 - 6 * dy, SVG_ORANGE, 1.3, NULL);
    fprintf(f, "<path class=\"arrow\" d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fz\" fill=\"" SVG_ORANGE "\"/>\n", x1, y1,
            x1 - 7 * dx - 3.5 * dy, y1 - 7 * dy + 3.5 * dx, x1 - 7 * dx + 3.5 * dy, y1 - 7 * dy - 3.5 * dx);
}

static void draw_play(FILE *f, const Play *p, double left)
{
    char text[64];
    int N = p->n_ranks;
    snprintf(text, sizeof text, "%s, %d ranks", comm_algorithm_name(p->algorithm), N);
    svg_text(f, left + 16, 28, "start", 15, SVG_INK, true, text);
    for (int r = 0; r < N; r++) {
        snprintf(text, sizeof text, "rank %d", r);
        svg_text(f, rank_x(p, left, r) + N * SHARD / 2.0, TOP - 14, "middle", 12.5, SVG_INK, true, text);
    }
    for (int k = 0; k <= p->n_steps; k++) {
        double y = TOP + STEP * k;
        snprintf(text, sizeof text, k ? "step %d" : "before", k - 1);
        svg_text(f, left + 16, y + 16, "start", 12, SVG_GREY, false, text);
        for (int r = 0; r < N; r++)
            for (int s = 0; s < N; s++)
                shard_box(f, rank_x(p, left, r) + s * SHARD, y, p->seen[k][r][s], N,
                          k && p->seen[k][r][s] != p->seen[k - 1][r][s]);
        for (int r = 0; k < p->n_steps && r < N; r++) {
            int to = p->sent[k][r].to, first = 0, last = N - 1;
            if (to < 0) continue;
            while (!p->sent[k][r].shard[first]) first++;
            while (!p->sent[k][r].shard[last]) last--;
            double from_x = rank_x(p, left, r), to_x = rank_x(p, left, to), middle = (first + last + 1) * SHARD / 2.0;
            double below = y + SHARD + 4, above = y + STEP - 3;
            svg_line(f, from_x + first * SHARD + 2, below, from_x + (last + 1) * SHARD - 2, below, SVG_ORANGE, 2, NULL);
            arrow(f, from_x + middle, below, to_x + middle, above);
        }
    }
}

static void draw_plays(FILE *f, void *arg)
{
    const Drawing *d = arg;
    double left = 0, bottom = TOP;
    for (int i = 0; i < d->n; i++) {
        draw_play(f, &d->play[i], left);
        left += width_of(&d->play[i]);
        bottom = fmax(bottom, TOP + STEP * d->play[i].n_steps + SHARD);
    }
    svg_text(f, 16, bottom + 28, "start", 12, SVG_GREY, false,
             "A box is a shard; its number: how many ranks' parts are added up in the fullest sum that this rank has "
             "had of it. Green: all.");
}

static void draw(char *names, int N, const char *path)
{
    Drawing d = {0};
    int width = 0, n_steps = 0;
    for (char *name = strtok(names, ","); name; name = strtok(NULL, ",")) {
        if (d.n == 4) die_usage("collectives: more than 4 algorithms in one picture");
        d.play[d.n] = play(algorithm_of(name, N), N);
        width += width_of(&d.play[d.n]);
        if (d.play[d.n].n_steps > n_steps) n_steps = d.play[d.n].n_steps;
        d.n++;
    }
    if (d.n == 0) die_usage("collectives: draw what? (ring, tree, halving, direct, hierarchical)");
    svg_write(path, width < 720 ? 720 : width, TOP + STEP * n_steps + SHARD + FOOT, "who holds what, step by step",
              draw_plays, &d);
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
        {COMM_ALL_REDUCE, COMM_HALVING}, {COMM_ALL_REDUCE, COMM_DIRECT}, {COMM_ALL_REDUCE, COMM_HIERARCHICAL},
        {COMM_ALL_GATHER, COMM_NATIVE},
        {COMM_ALL_GATHER, COMM_RING}, {COMM_REDUCE_SCATTER, COMM_NATIVE}, {COMM_REDUCE_SCATTER, COMM_RING},
        {COMM_REDUCE_SCATTER, COMM_DIRECT},
    };
    size_t N = (size_t)world->size, n = n_bytes / 4 / N * N, counts[N]; // the ranks' shards are equal
    float *in = calloc(n, 4), *out = calloc(n, 4);
    bool talks = world->rank == 0;
    if (!in || !out) die("collectives: no memory for %zu elements", n);
    for (size_t r = 0; r < N; r++) counts[r] = n / N;
    if (talks) printf("%zu ranks, %zu bytes each; rank 0 sends, a call:\n", N, 4 * n);
    if (talks) printf("%-16s %-12s %14s %14s %10s %12s\n", "call", "algorithm", "bytes", "of n", "ms", "ms of cores");
    bool nodes = world->size % NODE == 0 && world->size > NODE;
    if (nodes) comm_set_node(world, NODE);
    for (size_t i = 0; i < sizeof ROW / sizeof *ROW; i++) {
        if (ROW[i].algorithm == COMM_HIERARCHICAL && !nodes) continue;
        comm_set_algorithm(world, ROW[i].kind, ROW[i].algorithm);
        Timing t = time_calls(world, ROW[i].kind, out, in, counts, n, 5);
        if (talks)
            printf("%-16s %-12s %14zu %14.4f %10.3f %12.3f\n", comm_kind_name(ROW[i].kind),
                   comm_algorithm_name(ROW[i].algorithm), t.sent, (double)t.sent / (double)(4 * n), 1e3 * t.wall,
                   1e3 * t.cpu);
    }
    comm_set_algorithm(world, COMM_ALL_REDUCE, COMM_NATIVE);
    if (talks) printf("\n4000 bytes, waiting by\n");
    for (int spin = 0; spin < 2 && n >= 1000; spin++) {
        comm_set_spins(world, spin ? INT_MAX : 0);
        Timing t = time_calls(world, COMM_ALL_REDUCE, out, in, counts, 1000, 50);
        if (talks) printf("%-29s %40.3f %12.3f\n", spin ? "spinning" : "sleeping", 1e3 * t.wall, 1e3 * t.cpu);
    }
    free(in), free(out);
}

int show_collectives(int argc, char **argv)
{
    check_help(argc, argv, help);
    if (argc == 4 && !strcmp(argv[1], "steps")) {
        int ranks = (int)number(argv[3], 1, 64);
        print_steps(algorithm_of(argv[2], ranks), ranks);
    } else if (argc == 5 && !strcmp(argv[1], "draw")) {
        draw(argv[2], (int)number(argv[3], 2, DRAWN), argv[4]);
    } else if (argc == 5 && !strcmp(argv[1], "cost")) {
        print_costs((int)number(argv[2], 1, 1 << 20), atof(argv[3]), atof(argv[4]));
    } else if (argc == 3 && !strcmp(argv[1], "run")) {
        Comm *world = comm_mpi_start();
        print_run(world, (size_t)number(argv[2], 4 * world->size, INT_MAX));
        comm_mpi_stop(world);
    } else {
        die_usage("collectives: steps, draw, cost or run, with what they take (try --help)");
    }
    return 0;
}
