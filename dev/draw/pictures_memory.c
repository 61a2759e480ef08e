// pictures_memory: what a parameter costs and what recomputation keeps, from the allocator's own list of buffers.
//
// Nothing is allocated: the allocator hands out addresses that nobody reads. For the state of a parameter they are all
// the same (plan_open), as only sizes count; for recomputation each is another, so that buffers which blocks share are
// seen by their equal addresses.
#include "dev/draw/pictures.h"

#include "base/check.h"
#include "tools/svg.h"
#include "dev/plan/plan.h"
#include "train/run.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// ---- bytes of a parameter

typedef struct {
    char name[40];
    double bytes; // of a parameter
    MemTag tag;
} Segment;

enum { SEGMENTS = 12, BARS = 8 };
typedef struct {
    const char *dtype, *optimizer;
    Segment segment[SEGMENTS];
    int n;
} Bar;

typedef struct {
    Bar bar[BARS];
    const char *model;
    double params;
} State;

static void count_bar(Bar *bar, Config *cfg, State *all)
{
    Run *run = malloc(sizeof *run);
    if (!run) die("draw: no memory for a run's description");
    config_set(cfg, "numerics.dtype", bar->dtype, "draw");
    config_set(cfg, "optim.name", bar->optimizer, "draw");
    config_resolve(cfg);
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    plan_open(run, cfg, dev, 0);
    all->params = (double)run->model->params.n_elems;
    for (size_t i = 0; i < run->mem.n_blocks; i++) {
        const MemBlock *block = &run->mem.block[i];
        if (block->tag != MEM_PARAMS && block->tag != MEM_GRADS && block->tag != MEM_OPTIM) continue;
        check(bar->n < SEGMENTS);
        Segment *to = &bar->segment[bar->n++];
        *to = (Segment){.bytes = (double)block->n_bytes / all->params, .tag = block->tag};
        snprintf(to->name, sizeof to->name, "%s", block->what);
    }
    plan_close(run);
    run_device_free(dev, cpu);
    free(run);
}

enum { BAR_LEFT = 150, BYTE = 34, BAR_ROW = 42, BAR_TOP = 70 };

static void draw_bar(FILE *f, const Bar *bar, double y)
{
    static const char *const color[MEM_TAGS] = {[MEM_PARAMS] = SVG_BLUE, [MEM_GRADS] = SVG_ORANGE,
                                                [MEM_OPTIM] = SVG_GREEN};
    double x = BAR_LEFT, sum = 0;
    svg_text(f, BAR_LEFT - 10, y + 13, "end", 12.5, SVG_INK, true, bar->optimizer);
    svg_text(f, BAR_LEFT - 10, y + 27, "end", 11, SVG_GREY, false, bar->dtype);
    for (int i = 0; i < bar->n; i++) {
        const Segment *s = &bar->segment[i];
        double w = s->bytes * BYTE;
        sum += s->bytes;
        if (w < 0.5) continue; // scales of blocks: too thin to be seen
        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"30\" fill=\"%s\" opacity=\"%s\" "
                "stroke=\"#ffffff\"/>\n", x, y, w, color[s->tag],
                s->tag == MEM_OPTIM && strcmp(s->name, "master weights") ? "0.72" : "1");
        if (w > 6.2 * (double)strlen(s->name) + 6)
            svg_text(f, x + w / 2, y + 13, "middle", 11, "#ffffff", true, s->name);
        if (w > 20)
            pictures_label(f, x + w / 2, y + (w > 6.2 * (double)strlen(s->name) + 6 ? 26 : 19), "middle", 11, "#ffffff",
                           "%.2g", s->bytes);
        x += w;
    }
    pictures_label(f, x + 8, y + 20, "start", 12.5, SVG_INK, "%.4g bytes", sum);
}

static void draw_state(FILE *f, void *arg)
{
    const State *s = arg;
    static const char *const what[] = {"weights that are read", "gradients", "optimizer: master weights and state"};
    static const char *const color[] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN};
    char count[32];
    svg_count(count, s->params);
    pictures_label(f, 14, 26, "start", 13, SVG_INK, "Bytes of a parameter: %s, %s parameters, one process", s->model,
                   count);
    for (int i = 0; i < 3; i++) {
        pictures_box(f, BAR_LEFT + 180 * i, 40, 12, 12, color[i], NULL);
        svg_text(f, BAR_LEFT + 180 * i + 18, 51, "start", 12, SVG_INK, false, what[i]);
    }
    for (int i = 0; i < BARS; i++) draw_bar(f, &s->bar[i], BAR_TOP + BAR_ROW * i);
}

void pictures_state(const Config *cfg, const char *path)
{
    State s = {.model = cfg->run.name, .bar = {{"fp32", "adamw"}, {"bf16", "adamw"}, {"fp8", "adamw"},
                                               {"bf16", "adamw8bit"}, {"bf16", "lion"}, {"bf16", "muon"},
                                               {"bf16", "adafactor"}, {"bf16", "sgd"}}};
    Config *copy = malloc(sizeof *copy);
    if (!copy) die("draw: no memory for the settings");
    *copy = *cfg;
    for (int i = 0; i < BARS; i++) count_bar(&s.bar[i], copy, &s);
    free(copy);
    svg_write(path, BAR_LEFT + BYTE * 18 + 120, BAR_TOP + BAR_ROW * BARS + 6, "bytes of a parameter", draw_state, &s);
}

// ---- recomputation

enum { MODES = 6, MOST_LAYERS = 24, BLOCK = 40, HIGH = 56, MODE_ROW = 80, MODE_LEFT = 120, MODE_TOP = 66 };
static const RecomputePolicy modes[MODES] = {{.mode = RECOMPUTE_NONE}, {.mode = RECOMPUTE_SELECTIVE},
                                             {.mode = RECOMPUTE_ATTENTION}, {.mode = RECOMPUTE_EVERY, .every = 2},
                                             {.mode = RECOMPUTE_SQRT}, {.mode = RECOMPUTE_FULL}};

typedef struct {
    ModelShape shape;
    Dev *dev;
    size_t B, T;
} Kept;

static uintptr_t last_address;

static void *another_address(size_t n_bytes)
{
    last_address += (n_bytes + 63) / 64 * 64 + 64;
    return (void *)last_address;
}

static void free_nothing(void *ptr)
{
    (void)ptr;
}

// How many blocks have this buffer.
static int sharers_of(const Model *m, const void *buffer, int i)
{
    int n = 0;
    for (int u = 0; u < m->n_units; u++)
        if (unit_is_block(m->unit[u].kind))
            n += i < 0 ? m->acts.stream[u] == buffer : m->acts.saved[u][i] == buffer;
    return n;
}

static const char *buffer_color(BufferKind kind)
{
    return kind == BUFFER_CHEAP ? SVG_ORANGE : kind == BUFFER_ATTENTION ? SVG_GREEN : SVG_BLUE;
}

// A block: its input, then its saved buffers in order, as high as they are large. What it has to itself is filled; what
// other blocks have too, an outline.
static void draw_block(FILE *f, const Model *m, int u, double x, double y)
{
    const BufferList *row = &m->acts.row[u];
    size_t all = m->acts.stream_row;
    for (int i = 0; i < row->n; i++) all += row->n_bytes[i];
    for (int i = -1; i < row->n; i++) {
        size_t n_bytes = i < 0 ? m->acts.stream_row : row->n_bytes[i];
        double h = HIGH * (double)n_bytes / (double)all;
        const char *color = i < 0 ? SVG_INK : buffer_color(row->kind[i]);
        bool own = sharers_of(m, i < 0 ? (void *)m->acts.stream[u] : m->acts.saved[u][i], i) == 1;
        if (h < 0.3) continue; // statistics
        pictures_box(f, x, y, BLOCK - 10, h, own ? color : "#ffffff", own ? "#ffffff" : SVG_AXIS);
        y += h;
    }
}

static void draw_mode(FILE *f, const Kept *k, RecomputePolicy policy, double y, double *none)
{
    Mem mem = {.raw_alloc = another_address, .raw_free = free_nothing};
    Model *m = model_allocate_with(&k->shape, k->dev, &mem, k->B, k->T, true, (ModelOptions){.recompute = policy});
    double bytes = (double)mem.tag_bytes[MEM_ACTS];
    double extra = recompute_extra_flops(&k->shape, policy, k->T) / model_flops_per_token(&k->shape, k->T);
    if (policy.mode == RECOMPUTE_NONE) *none = bytes;
    size_t segment = recompute_segment(policy, k->shape.layers);
    svg_text(f, 14, y + 20, "start", 13, SVG_INK, true, recompute_name(policy.mode));
    if (segment)
        pictures_label(f, 14, y + 38, "start", 11, SVG_GREY, segment > 1 ? "%zu sets of buffers" : "%zu set of buffers",
                       m->pool.sets);
    for (int u = 0, n = 0; u < m->n_units; u++)
        if (unit_is_block(m->unit[u].kind)) draw_block(f, m, u, MODE_LEFT + BLOCK * n++, y);
    double x = MODE_LEFT + BLOCK * (double)k->shape.layers + 6;
    pictures_label(f, x, y + 18, "start", 12.5, SVG_INK, "%.0f MB, %.0f%%", 1e-6 * bytes, 100 * bytes / *none);
    pictures_label(f, x, y + 36, "start", 12, SVG_GREY, "+%.1f%% operations", 100 * extra);
    model_free(m);
    mem_free_all(&mem);
}

static void draw_recompute(FILE *f, void *arg)
{
    const Kept *k = arg;
    static const char *const what[] = {"input", "products", "q, k, v, attention", "norms, activation",
                                       "shared by blocks"};
    static const char *const fill[] = {SVG_INK, SVG_BLUE, SVG_GREEN, SVG_ORANGE, "#ffffff"};
    double none = 1;
    for (int i = 0; i < 5; i++) {
        static const int x[] = {0, 70, 160, 304, 460};
        pictures_box(f, MODE_LEFT + x[i], 34, 12, 12, fill[i], i == 4 ? SVG_AXIS : NULL);
        svg_text(f, MODE_LEFT + x[i] + 18, 45, "start", 12, SVG_INK, false, what[i]);
    }
    svg_text(f, 14, 22, "start", 13, SVG_INK, true, "Kept from forward to backward, block by block");
    for (int i = 0; i < MODES; i++) draw_mode(f, k, modes[i], MODE_TOP + MODE_ROW * i, &none);
}

void pictures_recompute(const Config *cfg, const char *path)
{
    Dev *cpu = dev_cpu_create(1);
    Kept k = {.shape = run_shape(cfg), .dev = run_device(cfg, cpu), .B = (size_t)cfg->batch.micro,
              .T = (size_t)cfg->model.context};
    if (k.shape.layers > MOST_LAYERS) die("draw: a picture of %zu layers (at most %d)", k.shape.layers, MOST_LAYERS);
    int width = MODE_LEFT + BLOCK * (int)k.shape.layers + 160;
    svg_write(path, width < 780 ? 780 : width, MODE_TOP + MODE_ROW * MODES, "what recomputation keeps", draw_recompute,
              &k);
    run_device_free(k.dev, cpu);
}
