// show_mesh: draws the mesh of a job: which rank stands where, and in which groups.
//
// In the picture a frame is a replica, a row a stage, and a column a tp rank of a cp rank. Each rank's box shows the
// model, with the part that the rank holds in blue (rows: stages; columns: tp slices), the experts (--ep), with the
// rank's in green, and a sequence, with the part that it sees in orange.
#include "dev/show/show.h"
#include "base/check.h"
#include "tools/options.h"
#include "parallel/cp.h"
#include "parallel/mesh.h"
#include "dev/draw/mesh_print.h"
#include "tools/svg.h"

#include <stdio.h>
#include <stdlib.h>

static int number(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end || n < 1 || n > 4096) die_usage("mesh: '%s' (1 to 4096)", text);
    return (int)n;
}

// ---- the picture

enum { CELL = 74, PART_GAP = 18, ROW_GAP = 54, SIDE = 66, TOP = 118, REPLICA_GAP = 40, LINK = 6 };

static int cell_height(MeshShape s)
{
    return s.ep > 1 ? 104 : 92; // with a bar for the experts
}

static int part_width(MeshShape s) // of one cp rank: its tp ranks
{
    return s.tp * CELL;
}

static int replica_width(MeshShape s)
{
    return s.cp * part_width(s) + (s.cp - 1) * PART_GAP;
}

static double cell_x(MeshShape s, MeshPlace p)
{
    return SIDE + p.dp * (replica_width(s) + REPLICA_GAP) + p.cp * (part_width(s) + PART_GAP) + p.tp * CELL;
}

static double cell_y(MeshShape s, MeshPlace p)
{
    return TOP + p.pp * (cell_height(s) + ROW_GAP);
}

static void box(FILE *f, double x, double y, double w, double h, const char *fill)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, w, h, fill);
}

static void frame(FILE *f, const char *class, double x, double y, double w, double h, const char *stroke,
                  const char *fill)
{
    fprintf(f, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"6\" fill=\"%s\" "
            "stroke=\"%s\" stroke-width=\"1.6\"/>\n", class, x, y, w, h, fill, stroke);
}

// What a rank holds: its stage's rows and its tp slice's column of the model, its ep part of the experts, and its cp
// part of a sequence.
static void draw_rank(FILE *f, MeshShape s, int rank)
{
    MeshPlace p = mesh_place(s, rank);
    double x = cell_x(s, p), y = cell_y(s, p), model = CELL - 30, left = x + 15;
    double row = model / s.pp, column = model / s.tp, part = model / s.ep;
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    svg_text(f, x + CELL / 2.0, y + 20, "middle", 14, SVG_INK, true, text);
    for (int i = 0; i < s.pp; i++)
        for (int j = 0; j < s.tp; j++)
            box(f, left + j * column, y + 27 + i * row, column - 1, row - 1,
                i == p.pp && j == p.tp ? SVG_BLUE : SVG_GRID);
    for (int i = 0; s.ep > 1 && i < s.ep; i++)
        box(f, left + i * part, y + 76, part - 1, 8, i == mesh_replica(s, p) % s.ep ? SVG_GREEN : SVG_GRID);
    double chunk = model / (2 * s.cp);
    size_t mine[2];
    for (int half = 0; half < 2; half++) mine[half] = cp_chunk(CP_ZIGZAG, p.cp, s.cp, half);
    for (int i = 0; i < 2 * s.cp; i++)
        box(f, left + i * chunk, y + cell_height(s) - 16, chunk - 1, 8,
            (size_t)i == mine[0] || (size_t)i == mine[1] ? SVG_ORANGE : SVG_GRID);
}

// A line from x0 to x1 around the boxes between, `depth` below them (negative: above).
static void elbow(FILE *f, const char *class, double x0, double x1, double y, double depth, const char *color)
{
    fprintf(f, "<path class=\"%s\" d=\"M%.1f %.1fv%.1fH%.1fv%.1f\" fill=\"none\" stroke=\"%s\" "
            "stroke-width=\"1.6\"/>\n", class, x0, y, depth, x1, -depth, color);
}

// The groups, as mesh_members has them: each once, by its lowest rank; a link from each member to the next.
static void draw_groups(FILE *f, MeshShape s)
{
    int size = mesh_size(s), members[size];
    for (int r = 0; r < size; r++) {
        MeshPlace p = mesh_place(s, r);
        for (int g = MESH_TP; g <= MESH_DP; g++) {
            int n = mesh_members(s, r, (MeshGroup)g, members);
            if (members[0] != r) continue;
            if (g == MESH_TP) {
                double end = cell_x(s, mesh_place(s, members[n - 1])) + CELL;
                frame(f, "tp", cell_x(s, p) + 3, cell_y(s, p), end - cell_x(s, p) - 6, cell_height(s), SVG_GREEN,
                      "none");
            }
            for (int i = 1; i < n; i++) {
                MeshPlace a = mesh_place(s, members[i - 1]), b = mesh_place(s, members[i]);
                double ax = cell_x(s, a) + CELL / 2.0, bx = cell_x(s, b) + CELL / 2.0;
                if (g == MESH_PP) {
                    fprintf(f, "<g class=\"pp\">\n");
                    svg_line(f, ax, cell_y(s, a) + cell_height(s), bx, cell_y(s, b), SVG_BLUE, 1.6, NULL);
                    fprintf(f, "</g>\n");
                }
                if (g == MESH_CP)
                    elbow(f, "cp", ax - 12, bx - 16, cell_y(s, a), -LINK * (1 + s.tp - 1 - a.tp) - 3, SVG_ORANGE);
                if (g == MESH_DP && a.pp == s.pp - 1)
                    elbow(f, "dp", ax + 6, bx - 6, cell_y(s, a) + cell_height(s), 
                          LINK * (s.cp * s.tp - a.cp * s.tp - a.tp) + 6, SVG_GREY);
            }
        }
    }
}

static int bottom_of(MeshShape s)
{
    return TOP + s.pp * cell_height(s) + (s.pp - 1) * ROW_GAP + (s.dp > 1 ? LINK * s.cp * s.tp + 6 : 0);
}

static void draw_legend(FILE *f, MeshShape s)
{
    static const struct {
        const char *text, *color;
    } LINE[] = {{"tp group: one layer's matrices, in slices", SVG_GREEN},
                {"cp group: one sequence, in parts", SVG_ORANGE},
                {"pp group: the stages of one model", SVG_BLUE},
                {"dp group: same weights, other samples (drawn for the last stage)", SVG_GREY},
                {"of the model: the layers (rows) and slice (column) that the rank holds", NULL},
                {"of a sequence: the tokens that it has, one chunk from each end, so that causal work is even", NULL},
                {"of the experts of a layer (ep): those that the rank holds", NULL}};
    static const char *const fill[] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN};
    for (int i = 0; i < (s.ep > 1 ? 7 : 6); i++) {
        double x = 24, y = bottom_of(s) + 36 + 20 * i;
        if (LINE[i].color) svg_line(f, x, y - 4, x + 22, y - 4, LINE[i].color, 2, NULL);
        else box(f, x, y - 10, 22, 12, fill[i - 4]);
        svg_text(f, x + 32, y, "start", 12, SVG_INK, false, LINE[i].text);
    }
}

static void draw(FILE *f, void *arg)
{
    MeshShape s = *(const MeshShape *)arg;
    char text[160], ep[40] = "";
    if (s.ep > 1) snprintf(ep, sizeof ep, ", ep %d within dp x cp", s.ep);
    snprintf(text, sizeof text, "%d ranks = dp %d x pp %d x cp %d x tp %d%s", mesh_size(s), s.dp, s.pp, s.cp, s.tp, ep);
    svg_text(f, 24, 30, "start", 15, SVG_INK, true, text);
    for (int d = 0; d < s.dp; d++) {
        double x = cell_x(s, (MeshPlace){.dp = d});
        snprintf(text, sizeof text, "replica dp %d", d);
        svg_text(f, x + replica_width(s) / 2.0, 62, "middle", 13, SVG_INK, true, text);
        for (int c = 0; c < s.cp; c++) {
            snprintf(text, sizeof text, "cp %d", c);
            double left = cell_x(s, (MeshPlace){.dp = d, .cp = c});
            svg_text(f, left + part_width(s) / 2.0, 84, "middle", 12, SVG_GREY, false, text);
        }
    }
    for (int p = 0; p < s.pp; p++) {
        double y = cell_y(s, (MeshPlace){.pp = p}) + cell_height(s) / 2.0;
        svg_text(f, 24, y - 3, "start", 12, SVG_GREY, false, "stage");
        snprintf(text, sizeof text, "pp %d", p);
        svg_text(f, 24, y + 13, "start", 12, SVG_GREY, false, text);
    }
    draw_groups(f, s);
    for (int r = 0; r < mesh_size(s); r++) {
        check(mesh_rank(s, mesh_place(s, r)) == r);
        draw_rank(f, s, r);
    }
    draw_legend(f, s);
}

static const char help[] =
    "usage: show mesh RANKS [--option VALUE]...\n"
    "RANKS: of the job; dp is RANKS / (pp cp tp): mesh 16 --pp 2 --tp 2 --cp 2 --ep 2\n";

int show_mesh(int argc, char **argv)
{
    int pp = 1, cp = 1, ep = 1, tp = 1;
    const char *svg = NULL;
    enum { MOST = 4096 };
    Option row[] = {OPTION(INT, "--pp", "N", "stages of a pipeline", &pp, .least = 1, .most = MOST),
                    OPTION(INT, "--cp", "N", "ranks that share a sequence", &cp, .least = 1, .most = MOST),
                    OPTION(INT, "--ep", "N", "ranks that share the experts", &ep, .least = 1, .most = MOST),
                    OPTION(INT, "--tp", "N", "ranks that share a layer", &tp, .least = 1, .most = MOST),
                    OPTION(TEXT, "--svg", "FILE", "draws it: up to 64 ranks", &svg)};
    OptionSet set = {"mesh", help, row, sizeof row / sizeof *row, .where = 0};
    if (options_read(&set, argc, argv) != 1) die_usage("mesh: RANKS and options with values (try --help)");
    MeshShape shape = mesh_shape(number(argv[1]), pp, cp, ep, tp);
    mesh_print(shape, stdout);
    if (svg && mesh_size(shape) > 64) die_usage("mesh: --svg of %d ranks (64 at most)", mesh_size(shape));
    int width = SIDE + shape.dp * (replica_width(shape) + REPLICA_GAP);
    int height = bottom_of(shape) + (ep > 1 ? 176 : 156);
    if (svg) svg_write(svg, width < 640 ? 640 : width, height, "who stands where", draw, &shape);
    return 0;
}
