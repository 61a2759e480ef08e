// show_zero: who holds what of a sharded run, and how much of its communication hides behind its work.
//
// overlap: a step of stage 0 is timed first on the network as it is. Then the network is made so slow that an
// all_reduce of the gradients takes half that time, and steps of every stage run with and without overlap. The link
// carries one message after the other (comm_set_slow). "hidden" is the share of the link's time during which no rank
// waited. timeline: the last of the steps of one stage, as rank 0 saw it: the naive twin above, the overlapped step
// below.
#include "dev/show/show.h"
#include "ops/dev_cpu.h"
#include "base/check.h"
#include "base/clock.h"
#include "dev/plan/plan.h"
#include "base/rng.h"
#include "tools/svg.h"
#include "parallel/zero.h"

#include <math.h>
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

// Elements of kind k (0: weights, 1: gradients, 2: optimizer state) that a rank holds.
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

// One bar: all parameters from top to bottom, unit by unit; the part that the rank holds is coloured.
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
    if (argc < 1) die_usage("zero: holds: name a CONFIG (try --help)");
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
            h.cut[stage][r] = zero_cut(&h.params, OPTIM_ELEMENT, stage, r, h.ranks);
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
                                 .rope = true, .rotary.theta = 1e4f, .tie = true};

// A step over time: when which unit ran, and when the link was busy.
enum { MARKS = 256 };
typedef enum { FORWARD, BACKWARD, UPDATE, REDUCED, GATHERED, MARK_KINDS } MarkKind;

typedef struct {
    MarkKind kind;
    int unit; // -1: none
    double begin, end;
} Mark;

typedef struct {
    Mark mark[MARKS];
    int n;
    bool on;
    double start, end;
    Comm *dp;
    UnitHooks inner; // the model's own hooks, which the timeline's call
    double unit_begin;
} Timeline;

static void add_mark(Timeline *t, MarkKind kind, int unit, double begin, double end)
{
    if (!t->on) return;
    check(t->n < MARKS && end >= begin);
    t->mark[t->n++] = (Mark){kind, unit, begin, end};
}

static void unit_begins(void *self, int unit, UnitPass pass)
{
    Timeline *t = self;
    if (t->inner.before) t->inner.before(t->inner.self, unit, pass);
    t->unit_begin = clock_seconds();
}

static void unit_ends(void *self, int unit, UnitPass pass)
{
    Timeline *t = self;
    add_mark(t, pass == PASS_BACKWARD ? BACKWARD : FORWARD, unit, t->unit_begin, clock_seconds());
    if (t->inner.after) t->inner.after(t->inner.self, unit, pass);
}

static void link_busy(void *self, const Comm *comm, CommKind kind, double begin, double end)
{
    Timeline *t = self;
    if (comm == t->dp) add_mark(t, kind == COMM_ALL_GATHER ? GATHERED : REDUCED, -1, begin, end);
}

typedef struct {
    double step, waited, link; // seconds a step: in all; this rank stood still; the link was busy
    size_t sent;               // bytes a step
} Measured;

static Measured measure(Comm *dp, Comm *control, int threads, ZeroSettings set, double beta, Timeline *line)
{
    Mem mem = {0};
    dev_cpu_blas_room(threads, false);
    Dev *dev = dev_cpu_create(threads);
    Params params;
    Unit *unit;
    model_describe(&shape, &params, &unit);
    ZeroCut cut = zero_cut(&params, OPTIM_ELEMENT, set.stage, dp->rank, dp->size);
    ModelShard shard = zero_shard(&cut, dev, set.stage, false);
    Model *m = model_allocate_with(&shape, dev, &mem, MICRO, CONTEXT, true, (ModelOptions){.shard = shard});
    Zero *zero = zero_create(m, set, cut, (ZeroGroups){.dp = dp, .control = control});
    Optim optim = zero_optim(zero, adamw);
    zero_init_weights(zero, &optim, 1);
    int32_t token[MICRO * CONTEXT], target[MICRO * CONTEXT];
    for (int i = 0; i < MICRO * CONTEXT; i++)
        token[i] = target[i] = (int32_t)rng_below(rng_make(1, "token", (uint32_t)dp->rank), (uint64_t)i, 1000);
    Measured r = {0};
    if (line) {
        *line = (Timeline){.dp = dp, .inner = m->hooks};
        m->hooks = (UnitHooks){.self = line, .before = unit_begins, .after = unit_ends};
        comm_set_trace(control, link_busy, line);
    }
    comm_set_slow(control, 0, beta);
    int steps = line ? 1 : STEPS; // the one that is drawn
    for (int k = 0; k < WARM + steps; k++) {
        CommRequest barrier = comm_barrier(control);
        comm_wait(control, &barrier);
        if (k == WARM) comm_reset_counts(control);
        double begin = clock_seconds();
        if (line && k == WARM + steps - 1) line->on = true, line->start = begin;
        zero_micro(zero, true);
        model_set_batch(m, token, NULL, target, MICRO, CONTEXT);
        model_forward_backward(m, 1.0f / (MICRO * CONTEXT));
        model_step_finish(m);
        zero_reduce(zero);
        double update = clock_seconds();
        optim_step(&optim, m, 1e-4);
        if (line) add_mark(line, UPDATE, -1, update, clock_seconds());
        zero_end(zero);
        if (k >= WARM) r.step += (clock_seconds() - begin) / steps;
    }
    if (line) line->end = clock_seconds(), line->on = false;
    comm_set_trace(control, NULL, NULL);
    comm_set_slow(control, 0, 0);
    for (int kind = 0; kind < COMM_KINDS; kind++) {
        const CommCount *count = &dp->count[kind];
        r.sent += count->sent / (size_t)steps;
        r.waited += count->waited / steps;
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

// The job's ranks, and the slowness of the network.
typedef struct {
    Comm *world, *dp, *control;
    int threads;
    ZeroSettings set;
    Measured work; // a step of stage 0 without the slow network
    double beta;
} Bench;

static Bench bench(void)
{
    Bench b = {.world = comm_mpi_start(),
               .set = {.stage = 0, .overlap = true, .bucket_bytes = 1 << 20, .reshard = true, .prefetch = 1}};
    b.dp = comm_split(b.world, 0, b.world->rank, "dp"), b.control = comm_split(b.world, 0, b.world->rank, "control");
    b.threads = comm_mpi_threads(b.world);
    if (b.world->size < 2) die("zero: one rank sends nothing (try mpiexec -n 2 build/show zero ...)");
    for (int kind = 0; kind <= COMM_REDUCE_SCATTER; kind++) comm_set_algorithm(b.dp, (CommKind)kind, COMM_RING);
    b.work = measure(b.dp, b.control, b.threads, b.set, 0, NULL);
    b.beta = 0.5 * highest(b.control, b.work.step) / (double)b.work.sent;
    return b;
}

static void overlap(void)
{
    Bench b = bench();
    Comm *world = b.world, *control = b.control;
    ZeroSettings set = b.set;
    Measured work = b.work;
    double beta = b.beta;
    if (world->rank == 0)
        printf("%d ranks; a step without the slow network: %.0f ms; the network: %.1f MB/s\n\n"
               "| stage | overlap | sent, MB | link busy, ms | waited, ms | hidden | step, ms |\n"
               "|---|---|---:|---:|---:|---:|---:|\n", world->size, 1e3 * work.step, 1e-6 / beta);
    static const struct {
        int stage;
        bool on;
        int prefetch;
        size_t keep;
        const char *text;
    } row[] = {{0, false, 1, 0, "no (naive twin)"}, {0, true, 1, 0, "yes"}, {1, false, 1, 0, "no (naive twin)"},
               {1, true, 1, 0, "yes"}, {2, false, 1, 0, "no (naive twin)"}, {2, true, 1, 0, "yes"},
               {3, false, 1, 0, "no (naive twin)"}, {3, true, 0, 0, "yes, `prefetch=0`"}, {3, true, 1, 0, "yes"},
               {3, true, 2, 0, "yes, `prefetch=2`"}, {3, true, 4, 0, "yes, `prefetch=4`"},
               {3, true, 1, 1000, "yes, `keep=1000`"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        set.stage = row[i].stage, set.overlap = row[i].on, set.prefetch = row[i].prefetch, set.keep = row[i].keep;
        Measured r = measure(b.dp, control, b.threads, set, beta, NULL);
        double waited = highest(control, r.waited), step = highest(control, r.step);
        if (world->rank == 0)
            printf("| %d | %s | %.2f | %.0f | %.0f | %.0f%% | %.0f |\n", row[i].stage, row[i].text,
                   1e-6 * (double)r.sent, 1e3 * r.link, 1e3 * waited,
                   waited < r.link ? 100 * (1 - waited / r.link) : 0, 1e3 * step);
    }
    comm_mpi_stop(world);
}

// ---- timeline

enum { WIDE = 960, AXIS = 84, MARGIN = 20, FIRST = 76, HEAD = 26, LANE = 30, BETWEEN = 18, BELOW = 46 };

typedef struct {
    int stage;
    Timeline line[2]; // naive, overlapped
} Timelines;

static const char *const mark_name[] = {"forward", "backward", "update", "link: gradients", "link: weights"};
static const char *const mark_color[] = {SVG_BLUE, SVG_GREEN, SVG_GREY, SVG_ORANGE, "#7c52a8"};

// Checks that the link carries one call after the other, each for as long as its bytes take (to within uneven shards
// and the clock's resolution), and that naive DDP sends its gradients only when all are there.
static void check_timeline(const Timeline *t, bool naive_ddp, double link)
{
    double free_at = 0, busy = 0, done = 0;
    for (int i = 0; i < t->n; i++) {
        const Mark *m = &t->mark[i];
        if (m->kind == BACKWARD) done = m->end;
        if (m->kind < REDUCED) continue;
        check(m->begin >= free_at && m->begin >= t->start);
        if (naive_ddp) check(m->begin >= done);
        free_at = m->end, busy += m->end - m->begin;
    }
    check(busy >= link * (1 - 1e-4) && busy <= link * (1 + 1e-4));
}

static void draw_timeline(FILE *f, const Timeline *t, double y, double scale, const char *title)
{
    static const char *const lane[] = {"units", "network"};
    char text[64];
    snprintf(text, sizeof text, "%s: %.0f ms", title, 1e3 * (t->end - t->start));
    svg_text(f, AXIS, y + 16, "start", 13, SVG_INK, true, text);
    for (int i = 0; i < 2; i++) {
        double top = y + HEAD + LANE * i;
        svg_text(f, AXIS - 8, top + LANE / 2.0 + 3, "end", 12, SVG_GREY, false, lane[i]);
        svg_line(f, AXIS, top + LANE - 2, WIDE - MARGIN, top + LANE - 2, SVG_GRID, 1, NULL);
    }
    for (int i = 0; i < t->n; i++) {
        const Mark *m = &t->mark[i];
        double x = AXIS + (m->begin - t->start) * scale, w = (m->end - m->begin) * scale;
        double top = y + HEAD + (m->kind >= REDUCED ? LANE : 0);
        box(f, x, top + 2, w > 2 ? w - 0.8 : w, LANE - 6, mark_color[m->kind]);
        snprintf(text, sizeof text, "%d", m->unit);
        if (m->unit >= 0 && w > 14) svg_text(f, x + w / 2, top + LANE / 2.0 + 3, "middle", 11, "#ffffff", false, text);
    }
    double end = AXIS + (t->end - t->start) * scale;
    svg_line(f, end, y + HEAD - 4, end, y + HEAD + 2 * LANE, SVG_INK, 1.2, "3 2");
}

static void draw_timelines(FILE *f, void *arg)
{
    const Timelines *t = arg;
    static const char *const title[] = {"naive twin, waits where it starts", "overlapped"};
    double longest = 0, x = AXIS, y = FIRST;
    char text[80];
    for (int i = 0; i < 2; i++) longest = fmax(longest, t->line[i].end - t->line[i].start);
    double scale = (WIDE - AXIS - MARGIN) / longest, tick = pow(10, floor(log10(longest)));
    for (int i = 0; longest / tick < 6; i++) tick /= i % 3 == 1 ? 2.5 : 2; // 10, 5, 2, 1
    snprintf(text, sizeof text, "one step of stage %d%s on a slow network", t->stage,
             t->stage == 0 ? " (DDP)" : t->stage == 3 ? " (FSDP)" : "");
    svg_text(f, 20, 28, "start", 15, SVG_INK, true, text);
    for (int k = 0; k < MARK_KINDS; k++) {
        if (k == GATHERED && t->stage == 0) continue;
        box(f, x, 43, 12, 12, mark_color[k]);
        svg_text(f, x + 18, 53, "start", 12, SVG_INK, false, mark_name[k]);
        x += 36 + 7 * (double)strlen(mark_name[k]);
    }
    svg_text(f, x, 53, "start", 12, SVG_GREY, false, "number: the unit (0: embedding)");
    for (int i = 0; i < 2; i++, y += HEAD + 2 * LANE + BETWEEN) draw_timeline(f, &t->line[i], y, scale, title[i]);
    svg_line(f, AXIS, y, WIDE - MARGIN, y, SVG_AXIS, 1, NULL);
    for (int i = 0; i * tick <= longest; i++) {
        double at = AXIS + i * tick * scale;
        svg_line(f, at, y, at, y + 4, SVG_AXIS, 1, NULL);
        snprintf(text, sizeof text, "%g", 1e3 * i * tick);
        svg_text(f, at, y + 17, "middle", 11, SVG_GREY, false, text);
    }
    svg_text(f, WIDE - MARGIN, y + 34, "end", 12, SVG_GREY, false, "milliseconds");
}

static void timeline(const char *stage, const char *path)
{
    static Timelines t;
    if (strlen(stage) != 1 || *stage < '0' || *stage > '3') die_usage("zero: stage '%s' (0 to 3)", stage);
    t.stage = *stage - '0';
    Bench b = bench();
    for (int on = 0; on < 2; on++) {
        b.set.stage = t.stage, b.set.overlap = on;
        Measured r = measure(b.dp, b.control, b.threads, b.set, b.beta, &t.line[on]);
        check_timeline(&t.line[on], !on && t.stage == 0, r.link);
    }
    if (b.world->rank == 0)
        svg_write(path, WIDE, FIRST + 2 * (HEAD + 2 * LANE + BETWEEN) + BELOW, "a step over time", draw_timelines, &t);
    comm_mpi_stop(b.world);
}

static const char help[] =
    "usage: show zero holds CONFIG [--ranks N] [--svg FILE]   bytes by rank and stage, and a drawing (4 ranks)\n"
    "       mpiexec -n N show zero overlap                    with a slow network in front of every rank\n"
    "       mpiexec -n N show zero timeline STAGE FILE.svg    a step of that stage: units and network, over time\n";

int show_zero(int argc, char **argv)
{
    check_help(argc, argv, help);
    if (argc >= 2 && !strcmp(argv[1], "holds")) holds(argc - 2, argv + 2);
    else if (argc == 2 && !strcmp(argv[1], "overlap")) overlap();
    else if (argc == 4 && !strcmp(argv[1], "timeline")) timeline(argv[2], argv[3]);
    else die_usage("zero: holds, overlap or timeline, with what they take (try --help)");
    return 0;
}
