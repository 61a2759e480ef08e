// zero: who holds what of a sharded run, and how much of its communication hides behind its work.
//
//     build/zero holds presets/tiny.toml --ranks 4 [--svg FILE]     bytes by rank and stage, and a drawing
//     mpiexec -n 2 build/zero overlap                               with a slow network in front of every rank
//
// overlap: the time of a step's work is measured first, without ranks. Then the network is made so slow that
// one all_reduce of the gradients takes as long as half of it, and steps of every stage run with and without overlap.
// The link carries one message after the other (comm_set_slow). "hidden" is the part of the link's time that no rank
// stood still for.
#include "blas.h"
#include "check.h"
#include "clock.h"
#include "plan.h"
#include "rng.h"
#include "svg.h"
#include "zero.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8 };

static const OptimSettings adamw = {.name = OPTIM_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f};

// ---- holds

typedef struct {
    Params params;
    int ranks;
    ZeroCut cut[4][MAX_RANKS]; // by stage and rank
} Holds;

static const char *const what[] = {"weights", "gradients", "optimizer state"};
static const double bytes[] = {4, 4, 8}; // fp32 AdamW

// Elements of `what` that a rank holds.
static size_t held(const Holds *h, int stage, int rank, int k)
{
    bool shard = stage > 0 && stage >= 3 - k; // state from stage 1 on, gradients from 2, weights from 3
    return shard ? h->cut[stage][rank].at[h->params.n_units] : h->params.n_elems;
}

static void print_holds(const Holds *h)
{
    printf("| stage | rank |");
    for (int k = 0; k < 3; k++) printf(" %s, bytes |", what[k]);
    printf(" together | bytes per parameter |\n|---|---|---:|---:|---:|---:|---:|\n");
    for (int stage = 0; stage < 4; stage++)
        for (int r = 0; r < h->ranks; r++) {
            double sum = 0;
            printf("| %d | %d |", stage, r);
            for (int k = 0; k < 3; k++) {
                double n_bytes = bytes[k] * (double)held(h, stage, r, k);
                sum += n_bytes;
                printf(" %.0f |", n_bytes);
            }
            printf(" %.0f | %.3f |\n", sum, sum / (double)h->params.n_elems);
        }
}

static void box(FILE *f, double x, double y, double w, double h, const char *fill)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\"/>\n", x, y, w, h, fill);
}

// One bar: all parameters from top to bottom, unit by unit; coloured what the rank holds of each.
static void draw_bar(FILE *f, const Holds *h, int stage, int rank, int k, double x, double y, double height)
{
    static const char *const color[] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN};
    const Params *p = &h->params;
    const ZeroCut *cut = &h->cut[stage][rank];
    double width = 7 * bytes[k], each = height / (double)p->n_elems;
    bool shard = held(h, stage, rank, k) < p->n_elems;
    box(f, x, y, width, height, SVG_GRID);
    for (int u = 0; u < p->n_units; u++) {
        size_t begin, end;
        params_unit_range(p, u, &begin, &end);
        size_t from = shard ? cut->begin[u] : begin;
        size_t n = shard ? cut->count[(size_t)u * (size_t)cut->size + (size_t)rank] : end - begin;
        box(f, x, y + each * (double)from, width, each * (double)n, color[k]);
        if (u) svg_line(f, x, y + each * (double)begin, x + width, y + each * (double)begin, "#ffffff", 1, NULL);
    }
}

enum { LEFT = 150, TOP = 50, COLUMN = 150, ROW = 190, BAR = 150 };

static void draw_holds(FILE *f, void *arg)
{
    const Holds *h = arg;
    static const char *const name[] = {"stage 0 (DDP)", "stage 1", "stage 2", "stage 3 (FSDP)"};
    static const char *const sent[] = {"2 P", "2 P", "2 P", "3 P"};
    char text[80];
    for (int r = 0; r < h->ranks; r++) {
        snprintf(text, sizeof text, "rank %d", r);
        svg_text(f, LEFT + COLUMN * r + 60, TOP - 12, "middle", 13, SVG_INK, true, text);
    }
    for (int stage = 0; stage < 4; stage++) {
        double y = TOP + ROW * stage, sum = 0;
        for (int k = 0; k < 3; k++) sum += bytes[k] * (double)held(h, stage, 0, k) / (double)h->params.n_elems;
        svg_text(f, 12, y + 20, "start", 13, SVG_INK, true, name[stage]);
        snprintf(text, sizeof text, "%.1f bytes/parameter", sum);
        svg_text(f, 12, y + 42, "start", 11, SVG_GREY, false, text);
        snprintf(text, sizeof text, "sent: %s (N-1)/N", sent[stage]);
        svg_text(f, 12, y + 60, "start", 11, SVG_GREY, false, text);
        for (int r = 0; r < h->ranks; r++)
            for (int k = 0; k < 3; k++)
                draw_bar(f, h, stage, r, k, LEFT + COLUMN * r + 33 * k, y, BAR);
    }
    for (int k = 0; k < 3; k++) {
        static const char *const color[] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN};
        double x = LEFT + 140 * k, y = TOP + ROW * 4 - 20;
        box(f, x, y - 10, 12, 12, color[k]);
        svg_text(f, x + 18, y, "start", 12, SVG_INK, false, what[k]);
    }
}

static void holds(int argc, char **argv)
{
    static Config cfg;
    Holds h = {.ranks = 4};
    const char *svg = NULL;
    if (argc < 1) die_usage("usage: zero holds CONFIG [--ranks N] [--svg FILE]");
    config_defaults(&cfg);
    config_load_file(&cfg, argv[0]);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--ranks") && i + 1 < argc) h.ranks = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--svg") && i + 1 < argc) svg = argv[++i];
        else die_usage("zero: no option '%s' (--ranks N, --svg FILE)", argv[i]);
    }
    if (h.ranks < 1 || h.ranks > MAX_RANKS) die_usage("zero: --ranks %d (1 to %d)", h.ranks, MAX_RANKS);
    config_resolve(&cfg);
    plan_vocab(&cfg);
    config_resolve(&cfg);
    ModelShape shape = run_shape(&cfg);
    Unit *unit;
    model_describe(&shape, &h.params, &unit);
    for (int stage = 0; stage < 4; stage++)
        for (int r = 0; r < h.ranks; r++)
            h.cut[stage][r] = zero_cut(&h.params, optim_kind(OPTIM_ADAMW), false, false, stage, r, h.ranks);
    print_holds(&h);
    if (svg) svg_write(svg, LEFT + COLUMN * h.ranks, TOP + ROW * 4, "who holds what", draw_holds, &h);
    for (int stage = 0; stage < 4; stage++)
        for (int r = 0; r < h.ranks; r++) zero_cut_free(&h.cut[stage][r]);
    free(unit);
    params_free(&h.params);
}

// ---- overlap

enum { CONTEXT = 128, MICRO = 4, WARM = 1, STEPS = 4 };
static const ModelShape shape = {.layers = 6, .channels = 192, .heads = 6, .kv_heads = 6, .head_size = 32, .ffn = 768,
                                 .vocab = 1000, .context = CONTEXT, .norm = NORM_RMSNORM, .norm_eps = 1e-5f,
                                 .rope = true, .rope_theta = 1e4f, .tie = true};

typedef struct {
    double step, waited, link; // seconds a step: in all; this rank stood still; the link was busy
    size_t sent;               // bytes a step
} Measured;

static Measured measure(Comm *dp, Comm *control, int threads, ZeroSettings set, double beta)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(threads);
    Params params;
    Unit *unit;
    model_describe(&shape, &params, &unit);
    ZeroCut cut = zero_cut(&params, optim_kind(OPTIM_ADAMW), false, false, set.stage, dp->rank, dp->size);
    ModelShard shard = zero_shard(&cut, dev, set.stage, false);
    Model *m = model_allocate_with(&shape, dev, &mem, MICRO, CONTEXT, true, (ModelOptions){.shard = shard});
    Zero *zero = zero_create(m, set, cut, dp, control);
    Optim optim = zero_optim(zero, adamw);
    zero_init_weights(zero, &optim, 1);
    int32_t token[MICRO * CONTEXT], target[MICRO * CONTEXT];
    for (int i = 0; i < MICRO * CONTEXT; i++)
        token[i] = target[i] = (int32_t)rng_below(rng_make(1, "token", (uint32_t)dp->rank), (uint64_t)i, 1000);
    Measured r = {0};
    comm_set_slow(control, 0, beta);
    for (int k = 0; k < WARM + STEPS; k++) {
        CommRequest barrier = comm_barrier(control);
        comm_wait(control, &barrier);
        if (k == WARM) comm_reset_counts(control);
        double begin = clock_seconds();
        zero_micro(zero, true);
        model_set_batch(m, token, NULL, target, MICRO, CONTEXT);
        model_forward_backward(m, 1.0f / (MICRO * CONTEXT));
        model_step_finish(m);
        zero_reduce(zero);
        optim_step(&optim, m, 1e-4);
        zero_end(zero);
        if (k >= WARM) r.step += (clock_seconds() - begin) / STEPS;
    }
    comm_set_slow(control, 0, 0);
    for (int kind = 0; kind < COMM_KINDS; kind++) {
        const CommCount *count = &dp->count[kind];
        r.sent += count->sent / STEPS;
        r.waited += count->waited / STEPS;
    }
    r.link = beta * (double)r.sent;
    optim_free(&optim);
    zero_free(zero);
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    free(unit);
    params_free(&params);
    return r;
}

static double highest(Comm *control, double x)
{
    CommRequest request = comm_all_reduce(control, &x, &x, 1, COMM_FP64, COMM_MAX);
    comm_wait(control, &request);
    return x;
}

static void overlap(void)
{
    Comm *world = comm_mpi_start();
    Comm *dp = comm_split(world, 0, world->rank, "dp"), *control = comm_split(world, 0, world->rank, "control");
    int threads = comm_mpi_threads(world);
    if (world->size < 2) die("zero overlap: one rank sends nothing (try mpiexec -n 2 build/zero overlap)");
    for (int kind = 0; kind <= COMM_REDUCE_SCATTER; kind++) comm_set_algorithm(dp, (CommKind)kind, COMM_RING);
    ZeroSettings set = {.stage = 0, .overlap = true, .bucket_bytes = 1 << 20, .reshard = true};
    Measured work = measure(dp, control, threads, set, 0);
    double beta = 0.5 * highest(control, work.step) / (double)work.sent;
    if (world->rank == 0)
        printf("%d ranks; a step without the slow network: %.0f ms; the network: %.1f MB/s\n\n"
               "| stage | overlap | sent, MB | link busy, ms | waited, ms | hidden | step, ms |\n"
               "|---|---|---:|---:|---:|---:|---:|\n", world->size, 1e3 * work.step, 1e-6 / beta);
    for (int stage = 0; stage < 4; stage++)
        for (int on = 0; on < 2; on++) {
            set.stage = stage, set.overlap = on;
            Measured r = measure(dp, control, threads, set, beta);
            double waited = highest(control, r.waited), step = highest(control, r.step);
            if (world->rank == 0)
                printf("| %d | %s | %.2f | %.0f | %.0f | %.0f%% | %.0f |\n", stage, on ? "yes" : "no (naive twin)",
                       1e-6 * (double)r.sent, 1e3 * r.link, 1e3 * waited,
                       waited < r.link ? 100 * (1 - waited / r.link) : 0, 1e3 * step);
        }
    comm_mpi_stop(world);
}

int main(int argc, char **argv)
{
    blas_choose(argv);
    if (argc >= 2 && !strcmp(argv[1], "holds")) holds(argc - 2, argv + 2);
    else if (argc == 2 && !strcmp(argv[1], "overlap")) overlap();
    else die_usage("usage: zero holds CONFIG [--ranks N] [--svg FILE] | mpiexec -n N zero overlap");
    return 0;
}
