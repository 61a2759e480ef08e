// show_offload: what an offload store moves, how fast it is here, and a picture of who waits for whom.
//
// measure and draw create the store's file in DIRECTORY, which must exist; the file has no name while they run.
#include "dev/show/show.h"
#include "base/check.h"
#include "base/clock.h"
#include "net/model.h"
#include "ops/dev_cpu.h"
#include "parallel/offload.h"
#include "train/optim.h"
#include "tools/svg.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ITEMS = 12, STEPS = 3, EVENTS = 8 * ITEMS };
static const size_t ITEM_ELEMS = 1 << 20; // 12 bytes each: weight, m, v

// ---- the formula

// A step of T tokens takes 6 P T floating-point operations at F a second; s bytes a parameter are read and written
// once, at W bytes a second. Moving takes as long as computing where
//     2 s P / W = 6 P T / F,  so  W = s F / (3 T)
static double bandwidth(double s, double flops, double tokens)
{
    return s * flops / (3 * tokens);
}

static void need(void)
{
    static const ModelShape gpt2 = {.layers = 12, .channels = 768, .heads = 12, .kv_heads = 12, .head_size = 64,
                                    .ffn = 3072, .vocab = 50257, .context = 1024, .norm = NORM_LAYERNORM,
                                    .norm_eps = 1e-5f, .bias = true, .tie = true};
    Params params = {0};
    Unit *unit;
    model_describe(&gpt2, &params, &unit);
    printf("| `optim.name` | state s | s with fp32 weights | moved a step, 2 s | updated on the host, 4 + 2 | "
           "W / F, MB/s per TFLOP/s: T = 4096 | T = 65536 | T = 1048576 |\n|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (int i = 0; i < OPTIM_NAMES; i++) {
        double state = (double)optim_state_bytes((OptimName)i, &params) / (double)params.n_elems, s = state + 4;
        const char *host = optim_kind((OptimName)i)->cut == OPTIM_ELEMENT ? "6.00" : ""; // gradients; bf16 weights
        printf("| `%s` | %.2f | %.2f | %.2f | %s | %.0f | %.1f | %.2f |\n", optim_kind((OptimName)i)->name, state, s,
               2 * s, host, bandwidth(s, 1e12, 4096) / 1e6, bandwidth(s, 1e12, 65536) / 1e6,
               bandwidth(s, 1e12, 1048576) / 1e6);
    }
    free(unit);
    params_free(&params);
}

// ---- a step over all items: AdamW on each, `updates` times

typedef struct {
    Dev *dev;
    Mem mem;
    float *grad;
    char path[4096];
    size_t sizes[ITEMS];
} Bench;

static void bench_open(Bench *b, const char *dir)
{
    memset(b, 0, sizeof *b);
    dev_cpu_blas_room(0, false);
    b->dev = dev_cpu_create(0);
    b->grad = mem_alloc(&b->mem, MEM_GRADS, ITEM_ELEMS * sizeof(float), "gradients");
    for (size_t i = 0; i < ITEM_ELEMS; i++) b->grad[i] = 1e-3f;
    for (int i = 0; i < ITEMS; i++) b->sizes[i] = 3 * ITEM_ELEMS * sizeof(float);
    if (snprintf(b->path, sizeof b->path, "%s/offload.%d", dir, (int)getpid()) >= (int)sizeof b->path)
        die("offload: path too long: %s", dir);
}

static void bench_close(Bench *b)
{
    mem_free_all(&b->mem);
    dev_cpu_free(b->dev);
}

static void update(Bench *b, float *state, int updates)
{
    Update u = {.lr = 1e-3f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = 1, .step = 1};
    for (int k = 0; k < updates; k++)
        b->dev->update(b->dev, OPTIM_ADAMW, state, state + ITEM_ELEMS, state + 2 * ITEM_ELEMS, b->grad, ITEM_ELEMS, u);
}

static Offload *store(Bench *b, OffloadMode mode, int n_slots, const OffloadIo *io)
{
    OffloadSettings set = {.mode = mode, .path = b->path, .sizes = b->sizes, .n_items = ITEMS, .n_slots = n_slots,
                           .mem = &b->mem, .tag = MEM_OPTIM, .io = io};
    return offload_create(&set);
}

static void row(Bench *b, OffloadMode mode, int n_slots, int updates)
{
    Offload *o = mode == OFFLOAD_NONE ? NULL : store(b, mode, n_slots, NULL);
    float *all = o ? NULL : mem_alloc(&b->mem, MEM_OPTIM, ITEMS * b->sizes[0], "state");
    OffloadCount first = {0}, c = {0};
    char text[200] = "none: state stays in memory";
    double start = 0;
    for (int step = 0; step <= STEPS; step++) { // the first one warms up
        if (step == 1) {
            start = clock_seconds();
            if (o) first = offload_count(o);
        }
        for (int i = 0; i < ITEMS; i++) {
            float *state = o ? offload_wait(o, i) : all + (size_t)i * 3 * ITEM_ELEMS;
            if (o && i + 1 < ITEMS) offload_fetch(o, i + 1);
            update(b, state, updates);
            if (o) offload_release(o, i, true);
        }
        if (o) offload_flush(o);
    }
    double seconds = clock_seconds() - start;
    if (o) {
        c = offload_count(o);
        c.read_seconds -= first.read_seconds;
        c.write_seconds -= first.write_seconds;
        c.waited_seconds -= first.waited_seconds;
        double mb = (double)(c.bytes_read - first.bytes_read + c.bytes_written - first.bytes_written) / 1e6;
        offload_describe(o, text, sizeof text);
        printf("| %s | %d | %.3f | %.0f | %.3f | %.0f %% |\n", text, updates, seconds / STEPS,
               mb / (c.read_seconds + c.write_seconds), c.waited_seconds / STEPS, 100 * offload_hidden(&c));
    } else printf("| %s | %d | %.3f | | | |\n", text, updates, seconds / STEPS);
    fflush(stdout);
    offload_free(o);
    mem_free(&b->mem, all);
}

static void measure(const char *dir)
{
    static Bench b;
    bench_open(&b, dir);
    printf("| store | updates of each item | seconds a step | moved, MB/s while busy | waited, s | hidden |\n"
           "|---|---:|---:|---:|---:|---:|\n");
    for (int updates = 1; updates <= 16; updates *= 16) {
        row(&b, OFFLOAD_NONE, 1, updates);
        row(&b, OFFLOAD_CPU, 2, updates);
        for (int n_slots = 1; n_slots <= 3; n_slots++) row(&b, OFFLOAD_DISK, n_slots, updates);
    }
    bench_close(&b);
}

// ---- the picture

typedef enum { READ, WORK, WRITE, LANES } Lane;

typedef struct {
    Lane lane;
    int item;
    double from, to;
} Event;

typedef struct {
    pthread_mutex_t lock;
    size_t item_bytes;
    Event event[EVENTS];
    int n;
} Log;

static void note(Log *log, Lane lane, int item, double from)
{
    pthread_mutex_lock(&log->lock);
    if (log->n < EVENTS) log->event[log->n++] = (Event){lane, item, from, clock_seconds()};
    pthread_mutex_unlock(&log->lock);
}

static ssize_t logged_read(void *self, int fd, void *data, size_t n_bytes, off_t at)
{
    double from = clock_seconds();
    ssize_t n = pread(fd, data, n_bytes, at);
    note(self, READ, (int)((size_t)at / ((Log *)self)->item_bytes), from);
    return n;
}

static ssize_t logged_write(void *self, int fd, const void *data, size_t n_bytes, off_t at)
{
    double from = clock_seconds();
    ssize_t n = pwrite(fd, data, n_bytes, at);
    note(self, WRITE, (int)((size_t)at / ((Log *)self)->item_bytes), from);
    return n;
}

// Reads and writes all items. The first pass is not measured, because blocks never written are read without the disk.
static void one_pass(Offload *o)
{
    for (int i = 0; i < ITEMS; i++) {
        offload_wait(o, i);
        offload_release(o, i, true);
    }
    offload_flush(o);
}

// How many updates take 1.5 times as long as reading and writing an item.
static int updates_beside(Bench *b)
{
    Offload *o = store(b, OFFLOAD_DISK, 1, NULL);
    one_pass(o);
    OffloadCount first = offload_count(o);
    one_pass(o);
    OffloadCount c = offload_count(o);
    double busy = c.read_seconds + c.write_seconds - first.read_seconds - first.write_seconds;
    float *state = offload_wait(o, 0);
    update(b, state, 4); // warms up
    double start = clock_seconds();
    update(b, state, 16);
    double seconds = (clock_seconds() - start) / 16;
    offload_release(o, 0, false);
    offload_free(o);
    return 1 + (int)(1.5 * busy / ITEMS / seconds);
}

static void logged_step(Bench *b, int n_slots, int updates, Log *log)
{
    OffloadIo io = {logged_read, logged_write, log};
    log->item_bytes = b->sizes[0];
    Offload *o = store(b, OFFLOAD_DISK, n_slots, &io);
    one_pass(o);
    log->n = 0;
    for (int i = 0; i < ITEMS; i++) {
        float *state = offload_wait(o, i);
        if (i + 1 < ITEMS) offload_fetch(o, i + 1);
        double start = clock_seconds();
        update(b, state, updates);
        note(log, WORK, i, start);
        offload_release(o, i, true);
    }
    offload_flush(o);
    offload_free(o);
}

typedef struct {
    const Log *log[2];
    double seconds; // of the longer step
} Picture;

static void draw_lanes(FILE *f, const Log *log, SvgPanel p, const char *title)
{
    static const char *const lane[LANES] = {"read", "work", "write"};
    static const char *const color[LANES] = {SVG_BLUE, SVG_GREEN, SVG_ORANGE};
    double zero = log->event[0].from, height = p.h / LANES;
    for (int i = 0; i < log->n; i++)
        if (log->event[i].from < zero) zero = log->event[i].from;
    svg_text(f, p.x, p.y - 10, "start", 14, SVG_INK, true, title);
    for (int l = 0; l < LANES; l++) {
        double y = p.y + (l + 0.5) * height;
        svg_text(f, p.x - 8, y + 4, "end", 12, SVG_GREY, false, lane[l]);
        svg_line(f, p.x, y, p.x + p.w, y, SVG_GRID, 1, NULL);
    }
    for (int i = 0; i < log->n; i++) {
        const Event *e = &log->event[i];
        double y = p.y + (e->lane + 0.5) * height, x0 = svg_px(&p, e->from - zero), x1 = svg_px(&p, e->to - zero);
        char text[12];
        svg_line(f, x0 + 0.5, y, x1 - 0.5 > x0 + 0.5 ? x1 - 0.5 : x0 + 1, y, color[e->lane], height - 8, NULL);
        snprintf(text, sizeof text, "%d", e->item);
        if (x1 - x0 > 14) svg_text(f, (x0 + x1) / 2, y + 4, "middle", 11, "#ffffff", true, text);
    }
    char text[80];
    double end = 0;
    for (int i = 0; i < log->n; i++) end = log->event[i].to - zero > end ? log->event[i].to - zero : end;
    snprintf(text, sizeof text, "%.0f ms", 1e3 * end);
    svg_line(f, svg_px(&p, end), p.y, svg_px(&p, end), p.y + p.h, SVG_AXIS, 1, "3,3");
    svg_text(f, svg_px(&p, end), p.y + p.h + 14, "end", 12, SVG_GREY, false, text);
}

static void draw_picture(FILE *f, void *arg)
{
    const Picture *picture = arg;
    static const char *const title[2] = {"1 slot: read, work, write in turn", "2 slots: the next item is read, and the "
                                         "last one written, during the work between"};
    for (int i = 0; i < 2; i++) {
        SvgPanel p = {.x = 60, .y = 40 + 150 * i, .w = 920, .h = 90, .x1 = picture->seconds, .y1 = 1};
        draw_lanes(f, picture->log[i], p, title[i]);
    }
}

static void draw(const char *out, const char *dir)
{
    static Bench b;
    static Log log[2] = {{.lock = PTHREAD_MUTEX_INITIALIZER}, {.lock = PTHREAD_MUTEX_INITIALIZER}};
    Picture picture = {.log = {&log[0], &log[1]}};
    bench_open(&b, dir);
    int updates = updates_beside(&b);
    for (int i = 0; i < 2; i++) {
        logged_step(&b, i + 1, updates, &log[i]);
        double zero = log[i].event[0].from, end = 0;
        for (int k = 0; k < log[i].n; k++) end = log[i].event[k].to > end ? log[i].event[k].to : end;
        if (end - zero > picture.seconds) picture.seconds = end - zero;
    }
    svg_write(out, 1000, 330, "One step over an offload store", draw_picture, &picture);
    printf("%s\n", out);
    bench_close(&b);
}

static const char help[] =
    "usage: show offload need                    bytes a step by optimizer, and the bandwidth that they ask for (formula)\n"
    "       show offload measure DIRECTORY       AdamW's state in memory, in a host store and in a file there, as a table\n"
    "       show offload draw OUT.svg DIRECTORY  reads, writes and work of one step over time, with 1 slot and with 2\n";

int show_offload(int argc, char **argv)
{
    check_help(argc, argv, help);
    if (argc == 2 && !strcmp(argv[1], "need")) need();
    else if (argc == 3 && !strcmp(argv[1], "measure")) measure(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "draw")) draw(argv[2], argv[3]);
    else die_usage("offload: need, measure DIRECTORY or draw OUT.svg DIRECTORY (try --help)");
    return 0;
}
