// show_cp: which chunks of a sequence each rank has, who computes what in each step of the ring, and what is sent.
//
// Work is counted in query-key pairs of causal attention, for one head. The ranks of a ring wait for each other, so a
// step takes as long as its busiest rank; "ring" is the sum of these over the steps. In the drawing a cell is one chunk
// of queries (down) with one chunk of keys (across); its colour is the rank and its number the step.
#include "dev/show/show.h"
#include "base/check.h"
#include "tools/options.h"
#include "parallel/cp.h"
#include "tools/svg.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64, DRAWN = 8, CELL = 26 };

static const char *const name[] = {"zig-zag", "contiguous"};

typedef struct {
    size_t T;
    int size;
} Cut;

static size_t number(const char *text, size_t most)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (end == text || *end || *text == '-' || n < 1 || n > most) die_usage("cp: '%s' (1 to %zu)", text, most);
    return (size_t)n;
}

static int owner_of(int rank, int size, int step)
{
    return (rank - step + size) % size;
}

static void print_chunks(Cut c)
{
    printf("| rank |");
    for (int assign = 0; assign < 2; assign++) printf(" chunks, %s |", name[assign]);
    printf("\n|---|---|---|\n");
    for (int r = 0; r < c.size; r++) {
        printf("| %d |", r);
        for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++)
            printf(" %zu, %zu |", cp_chunk(assign, r, c.size, 0), cp_chunk(assign, r, c.size, 1));
        printf("\n");
    }
}

// The pairs of every rank in every step, in millions; then those of each step's busiest rank, for which the ring waits.
static void print_work(Cut c, CpAssign assign)
{
    uint64_t most[MAX_RANKS] = {0}, ring = 0, sum = 0, busiest = 0;
    printf("| %s |", name[assign]);
    for (int j = 0; j < c.size; j++) printf(" step %d |", j);
    printf(" all |\n|---|");
    for (int j = 0; j <= c.size; j++) printf("---:|");
    printf("\n");
    for (int r = 0; r < c.size; r++) {
        uint64_t own = 0;
        printf("| rank %d |", r);
        for (int j = 0; j < c.size; j++) {
            uint64_t pairs = cp_work(assign, c.T, r, c.size, owner_of(r, c.size, j));
            printf(" %.3f |", 1e-6 * (double)pairs);
            own += pairs;
            if (pairs > most[j]) most[j] = pairs;
        }
        printf(" %.3f |\n", 1e-6 * (double)own);
        sum += own;
        if (own > busiest) busiest = own;
    }
    printf("| the busiest |");
    for (int j = 0; j < c.size; j++) {
        printf(" %.3f |", 1e-6 * (double)most[j]);
        ring += most[j];
    }
    double mean = (double)sum / c.size;
    printf(" %.3f |\n\nMillions of pairs. Busiest rank / mean: %.3f. Ring / mean: %.3f.\n", 1e-6 * (double)ring,
           (double)busiest / mean, (double)ring / mean);
}

static void print_bytes(Cut c, size_t H, size_t G, size_t D, size_t x_bytes)
{
    CpSettings ring = {0}, gather = {.way = CP_GATHER}, tree = {.blocks = 1};
    while (tree.blocks < 2 * c.size) tree.blocks *= 2;
    printf("| a sequence, a layer, a rank | bytes |\n|---|---:|\n");
    printf("| sent forward, ring or gather | %zu |\n", cp_bytes(c.size, x_bytes, 1, c.T, G, D, false));
    printf("| sent backward, ring or gather | %zu |\n", cp_bytes(c.size, x_bytes, 1, c.T, G, D, true));
    printf("| buffers, ring | %zu |\n", cp_memory(ring, c.size, x_bytes, 1, c.T, H, G, D));
    printf("| buffers, gather | %zu |\n", cp_memory(gather, c.size, x_bytes, 1, c.T, H, G, D));
    if (!(c.size & (c.size - 1)))
        printf("| buffers, ring, the bits of one rank | %zu |\n",
               cp_memory(tree, c.size, x_bytes, 1, c.T, H, G, D));
}

static void draw_one(FILE *f, Cut c, CpAssign assign, double x0, double y0)
{
    static const char *const color[DRAWN] = {SVG_BLUE, SVG_ORANGE, SVG_GREEN, SVG_RED,
                                             "#7a4fa3", "#9a7b00", "#0b8a8f", SVG_GREY};
    size_t chunk = c.T / (2 * (size_t)c.size), i;
    svg_text(f, x0, y0 - 10, "start", 13, SVG_INK, true, name[assign]);
    for (int q = 0; q < 2 * c.size; q++) {
        int rank = cp_rank(assign, c.T, c.size, (size_t)q * chunk, &i);
        double y = y0 + q * CELL;
        char text[16];
        for (int k = 0; k <= q; k++) {
            int owner = cp_rank(assign, c.T, c.size, (size_t)k * chunk, &i);
            fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#fff\"/>\n",
                    x0 + k * CELL, y, CELL, CELL, color[rank]);
            snprintf(text, sizeof text, "%d", (rank - owner + c.size) % c.size);
            svg_text(f, x0 + (k + 0.5) * CELL, y + 0.68 * CELL, "middle", 12, "#ffffff", false, text);
        }
        snprintf(text, sizeof text, "rank %d", rank);
        svg_text(f, x0 + 2 * c.size * CELL + 6, y + 0.68 * CELL, "start", 11, color[rank], false, text);
    }
}

static void draw(FILE *f, void *arg)
{
    Cut c = *(Cut *)arg;
    for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++)
        draw_one(f, c, assign, 20 + assign * (2 * c.size * CELL + 80.0), 40);
}

static const char help[] =
    "usage: show cp TOKENS RANKS [--option VALUE]...\n"
    "TOKENS RANKS: the length of a sequence and the number of ranks that share it, e.g. 8192 4\n";

int show_cp(int argc, char **argv)
{
    size_t H = 32, G = 8, D = 128, x_bytes = 2;
    const char *svg = NULL;
    enum { MOST = 1 << 20 };
    Option row[] = {OPTION(SIZE, "--heads", "N", "query heads (32)", &H, .least = 1, .most = MOST),
                    OPTION(SIZE, "--kv-heads", "N", "(8)", &G, .least = 1, .most = MOST),
                    OPTION(SIZE, "--head-size", "N", "(128)", &D, .least = 1, .most = MOST),
                    OPTION(SIZE, "--bytes", "N", "of an element (2)", &x_bytes, .least = 1, .most = MOST),
                    OPTION(TEXT, "--svg", "FILE", "draws who computes what, and when", &svg)};
    OptionSet set = {"cp", help, row, sizeof row / sizeof *row, .where = 0};
    if (options_read(&set, argc, argv) != 2) die_usage("cp: TOKENS RANKS and options with values (try --help)");
    Cut c = {.T = number(argv[1], 1u << 30), .size = (int)number(argv[2], MAX_RANKS)};
    cp_check((CpSettings){0}, c.T, c.size);
    if (svg) {
        if (c.size > DRAWN) die("cp: a drawing of %d ranks (at most %d)", c.size, DRAWN);
        svg_write(svg, 40 + 2 * (2 * c.size * CELL + 80), 60 + 2 * c.size * CELL,
                  "causal attention over ranks: who computes which chunk, in which step", draw, &c);
        return 0;
    }
    print_chunks(c);
    for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
        printf("\n");
        print_work(c, assign);
    }
    printf("\n");
    print_bytes(c, H, G, D, x_bytes);
    return 0;
}
