// show_tp: what each rank of a tensor-parallel group has of a layer, and what a layer sends.
//
// Everything is read from the parameter tables that the trainer itself uses (tp_shape, model_describe). In the drawing
// a row is a rank and a box a matrix as it is stored (outputs down, inputs across); its coloured part is what the rank
// holds. f and g between the boxes are the points of communication. It is drawn without and with sequence parallelism.
#include "dev/show/show.h"
#include "base/check.h"
#include "base/config.h"
#include "train/run.h"
#include "ops/dev_cpu.h"
#include "parallel/tp.h"
#include "tools/svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, DRAWN = 8, BOX = 46, GAP = 22, ROW = 74, LEFT = 70, PANEL = 40 };

typedef struct {
    ModelShape shape;
    int ranks;
    bool sp;
    size_t rows; // B T of a micro-batch
    Params part[MAX_RANKS];
} Layer;

static void describe(Layer *l, bool sp)
{
    for (int r = 0; r < l->ranks; r++) {
        ModelShape part = tp_shape(&l->shape, r, l->ranks, sp);
        Unit *unit;
        model_describe(&part, &l->part[r], &unit);
        free(unit);
    }
}

static const char *gradient(const Param *row)
{
    return row->sum == PARAM_COMPLETE ? "complete" : row->sum == PARAM_SUM_ALL ? "added over all"
                                                                              : "added over those that share it";
}

static void print_rows(const Layer *l)
{
    printf("| tensor | whole | rank 0 | cut along | copies | its gradient on a rank |\n|---|---|---|---|---:|---|\n");
    for (int i = 0; i < l->part[0].n_rows; i++) {
        const Param *row = &l->part[0].row[i];
        if (row->unit > 1 && row->unit != l->part[0].n_units - 1) continue; // one block stands for all
        size_t held = 0;
        int owners = 0;
        for (int r = 0; r < l->ranks; r++) owners += l->part[r].row[i].owned, held += l->part[r].row[i].n_elems;
        if (row->ndim == 2) {
            printf("| %s | (%zu, %zu) | (%zu, %zu) |",
                   row->name, row->whole[0], row->whole[1], row->dim[0], row->dim[1]);
            printf(" %s |", row->cut == 0 ? "outputs (column-parallel)"
                   : row->cut == 1 ? "inputs (row-parallel)" : "-");
        } else {
            printf("| %s | (%zu) | (%zu) | %s |",
                   row->name, row->whole[0], row->dim[0], row->cut == 0 ? "outputs" : "-");
        }
        size_t whole = row->whole[0] * (row->ndim == 2 ? row->whole[1] : 1);
        printf(" %zu | %s |\n", held / whole, gradient(row));
        check(owners >= 1);
    }
    double stream = 4.0 * (double)l->rows * (double)l->shape.channels, part = 2.0 * (l->ranks - 1) / l->ranks;
    printf("\nA block adds (N, C) over the ranks twice forward and twice back (%s). For N = %zu rows in fp32 "
           "a rank sends 4 x %.4g x %.0f = %.0f bytes.\n", l->sp ? "reduce-scatter and all-gather" : "all-reduce",
           l->rows, part, stream, 4 * part * stream);
}

// ---- the drawing

static const char *const color[DRAWN] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN, SVG_RED,
                                         "#7a4fa3", "#9a7b00", "#0b8a8f", SVG_GREY};

// Draws the rank's part of a tensor within the whole.
static void draw_tensor(FILE *f, const Layer *l, int rank, const char *name, double x, double y)
{
    char full[PARAM_NAME];
    snprintf(full, sizeof full, "layers.0.%s", name);
    int i = params_find(&l->part[rank], full);
    check(i >= 0);
    const Param *row = &l->part[rank].row[i];
    double w = BOX, h = BOX, top = 0, left = 0, high = h, wide = w;
    if (row->ndim == 1) w = wide = 10;
    double at = row->cut < 0 ? 0 : (double)row->first / (double)row->whole[row->cut];
    double part = row->cut < 0 ? 1 : (double)row->dim[row->cut] / (double)row->whole[row->cut];
    if (row->cut == 0) top = h * at, high = h * part;
    if (row->cut == 1) left = w * at, wide = w * part;
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"%s\"/>\n", x, y, w, h,
            SVG_AXIS);
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\" opacity=\"%s\"/>\n", x + left,
            y + top, wide, high, color[rank], row->cut < 0 ? "0.35" : "0.9");
}

// Draws the residual stream between two exchanges: all rows on every rank, or only this rank's.
static void draw_stream(FILE *f, const Layer *l, int rank, double x, double y)
{
    double high = l->sp ? (double)BOX / l->ranks : BOX, top = l->sp ? rank * high : 0;
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"%d\" fill=\"none\" stroke=\"%s\"/>\n", x, y, BOX,
            SVG_AXIS);
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"%.1f\" fill=\"%s\"/>\n", x, y + top, high, SVG_INK);
}

// In `what` NULL is the residual stream, "f" and "g" are exchanges, and the rest are tensors.
static void draw_panel(FILE *f, const Layer *l, double y0)
{
    bool swiglu = l->shape.swiglu;
    const char *const what[] = {NULL, "attn_norm.weight", "f", "attn.q.weight", "attn.k.weight", "attn.v.weight",
                                "attn.out.weight", "g", NULL, "ffn_norm.weight", "f", swiglu ? "ffn.gate.weight" : "",
                                "ffn.up.weight", "ffn.down.weight", "g", NULL};
    const char *const label[] = {"rows", "norm", "f", "q", "k", "v", "out", "g", "rows", "norm", "f", "gate", "up",
                                 "down", "g", "rows"};
    double x = LEFT, bottom = y0 + PANEL + l->ranks * ROW - 14;
    svg_text(f, LEFT, y0 + 12, "start", 13, SVG_INK, true,
             l->sp ? "with sequence parallelism: f gathers rows, g adds and scatters them"
                   : "tensor parallelism: f does nothing forward, g adds over the ranks; back the other way round");
    for (size_t k = 0; k < sizeof what / sizeof *what; k++) {
        bool talk = what[k] && (!strcmp(what[k], "f") || !strcmp(what[k], "g"));
        double w = !what[k] ? 12 : talk ? 14 : strstr(what[k], "norm") ? 10 : BOX;
        if (what[k] && !*what[k]) continue;
        svg_text(f, x + w / 2, y0 + PANEL - 8, "middle", 11, talk ? SVG_RED : SVG_GREY, talk, label[k]);
        if (talk)
            svg_line(f, x + w / 2, y0 + PANEL, x + w / 2, bottom, SVG_RED, 2,
                     label[k][0] == 'f' && !l->sp ? "3 4" : NULL);
        for (int r = 0; r < l->ranks && !talk; r++) {
            double y = y0 + PANEL + r * ROW;
            if (what[k]) draw_tensor(f, l, r, what[k], x, y);
            else draw_stream(f, l, r, x, y);
        }
        x += w + GAP;
    }
    for (int r = 0; r < l->ranks; r++) {
        char text[24];
        snprintf(text, sizeof text, "rank %d", r);
        svg_text(f, LEFT - 12, y0 + PANEL + r * ROW + BOX / 2.0 + 4, "end", 12, color[r], true, text);
    }
}

static int panel_height(const Layer *l)
{
    return PANEL + l->ranks * ROW + 20;
}

static void draw(FILE *f, void *arg)
{
    Layer *l = arg;
    for (int sp = 0; sp < 2; sp++) {
        l->sp = sp;
        describe(l, sp);
        draw_panel(f, l, 24 + sp * panel_height(l));
        for (int r = 0; r < l->ranks; r++) params_free(&l->part[r]);
    }
}

static const char help[] =
    "usage: show tp CONFIG RANKS [--sp] [--svg FILE]\n"
    "  CONFIG RANKS  a configuration or preset, and the number of ranks that share its layers:\n"
    "                presets/tiny.toml 4\n"
    "  --sp          with sequence parallelism\n"
    "  --svg FILE    draws the matrices and who holds what of them\n";

int show_tp(int argc, char **argv)
{
    check_help(argc, argv, help);
    static Config cfg;
    static Layer l;
    const char *svg = NULL;
    char *end = NULL;
    if (argc < 3) die_usage("tp: CONFIG RANKS (try --help)");
    long ranks = strtol(argv[2], &end, 10);
    if (*end || ranks < 2 || ranks > MAX_RANKS) die_usage("tp: '%s' ranks (2 to %d)", argv[2], MAX_RANKS);
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--sp")) l.sp = true;
        else if (!strcmp(argv[i], "--svg") && i + 1 < argc) svg = argv[++i];
        else die_usage("tp: no option '%s' (try --help)", argv[i]);
    }
    config_defaults(&cfg);
    config_load_file(&cfg, argv[1]);
    if (!cfg.model.vocab) config_set_derived(&cfg, "model.vocab", 4096);
    config_resolve(&cfg);
    l.shape = run_shape(&cfg);
    l.ranks = (int)ranks;
    l.rows = (size_t)(cfg.batch.micro * cfg.model.context);
    tp_check(&l.shape, l.ranks, l.sp, l.shape.context);
    if (svg) {
        if (l.ranks > DRAWN) die("tp: a drawing of %d ranks (at most %d)", l.ranks, DRAWN);
        svg_write(svg, 860, 40 + 2 * panel_height(&l), "one transformer layer over a tensor-parallel group", draw, &l);
        return 0;
    }
    describe(&l, l.sp);
    print_rows(&l);
    for (int r = 0; r < l.ranks; r++) params_free(&l.part[r]);
    return 0;
}
