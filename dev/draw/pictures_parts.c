// pictures_parts: who has, or computes, which part: the tiles of attention, the tokens of experts, the slices of a
// checkpoint.
//
// Tiles are those of the loop in attention.c (attn.h has the blocks and the mask), tokens are routed by a real layer,
// and slices are the pieces that ranks write and read, each played in turn (plan_open). Elements of a tensor are then
// copied by ckpt_slice_copy, and what is drawn is where they came from.
#include "dev/draw/pictures.h"

#include "base/check.h"
#include "tools/svg.h"
#include "dev/plan/plan.h"
#include "net/experts.h"
#include "ops/attn.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>

// ---- tiles of attention

enum { LENGTH = 1024, SIDE = 300, GAP = 24, TILE_TOP = 62, TILE_LEFT = 20 };

typedef struct {
    FILE *f;
    AttnShape shape;
    double x;
    size_t tiles, computed, needed; // elements
} Tiles;

static double tile_at(size_t position)
{
    return (double)SIDE * (double)position / LENGTH;
}

// What the rows of a tile see, as one shape: down its left edge, up its right edge. Corners alone, where an edge bends.
static void draw_visible(Tiles *t, AttnBlock blk, size_t k0, size_t w)
{
    size_t edge[2][ATTN_QUERIES], from = 0, rows = 0, begin = 0;
    for (size_t r = 0; r < blk.rows; r++) {
        size_t n = attn_visible(t->shape, blk, r, k0, w, &from);
        t->needed += n - from;
        if (n == from) continue; // rows that see something are neighbours
        if (!rows) begin = r;
        edge[0][rows] = from, edge[1][rows++] = n;
    }
    if (!rows) return;
    fprintf(t->f, "<path fill=\"%s\" d=\"", SVG_BLUE);
    char pen = 'M';
    for (int side = 0; side < 2; side++)
        for (size_t i = 0; i < rows; i++) {
            size_t r = side ? rows - 1 - i : i;
            const size_t *e = edge[side];
            if (r && r + 1 < rows && e[r + 1] - e[r] == e[r] - e[r - 1]) continue;
            double x = t->x + tile_at(k0 + e[r]), y = TILE_TOP + tile_at(blk.pos + begin + r);
            double low = y + tile_at(1);
            fprintf(t->f, "%c%.1f %.1fL%.1f %.1f", pen, x, side ? low : y, x, side ? y : low), pen = 'L';
        }
    fprintf(t->f, "z\"/>\n");
}

static void draw_tiles_of_block(const void *arg, AttnBlock blk)
{
    Tiles *t = (Tiles *)(uintptr_t)arg;
    size_t end = attn_keys_before(t->shape, blk.pos + blk.rows);
    for (size_t k0 = blk.first; k0 < end; k0 += ATTN_KEYS) { // as in attention.c
        size_t w = attn_min(ATTN_KEYS, end - k0);
        double x = t->x + tile_at(k0), y = TILE_TOP + tile_at(blk.pos);
        t->tiles++, t->computed += blk.rows * w;
        pictures_box(t->f, x, y, tile_at(w), tile_at(blk.rows), SVG_ORANGE, NULL);
        draw_visible(t, blk, k0, w);
        pictures_box(t->f, x, y, tile_at(w), tile_at(blk.rows), "none", "#ffffff");
    }
}

static void draw_tiles(FILE *f, void *arg)
{
    (void)arg;
    static const char *const name[] = {"causal", "window of 300 keys", "three documents"};
    const double each = 100.0 / LENGTH / LENGTH;
    int32_t first[LENGTH];
    for (int i = 0; i < LENGTH; i++) first[i] = i < 380 ? 0 : i < 700 ? 380 : 700;
    for (int i = 0; i < 3; i++) {
        AttnShape shape = {.B = 1, .Tq = LENGTH, .Tk = LENGTH, .H = 1, .G = 1, .D = 64, .window = i == 1 ? 300 : 0,
                           .first = i == 2 ? first : NULL};
        Tiles t = {.f = f, .shape = shape, .x = TILE_LEFT + i * (SIDE + GAP)};
        svg_text(f, t.x, 26, "start", 13, SVG_INK, true, name[i]);
        pictures_box(f, t.x, TILE_TOP, SIDE, SIDE, SVG_GRID, NULL);
        attn_each_block(shape, 1, draw_tiles_of_block, &t);
        pictures_label(f, t.x, 44, "start", 11.5, SVG_GREY, "%zu tiles, %.1f%% of T x T computed, %.1f%% needed",
                       t.tiles, each * (double)t.computed, each * (double)t.needed);
    }
    double y = TILE_TOP + SIDE + 24;
    static const char *const what[] = {"seen", "computed, then masked", "never computed"};
    static const char *const fill[] = {SVG_BLUE, SVG_ORANGE, SVG_GRID};
    for (int i = 0; i < 3; i++) {
        double x = TILE_LEFT + (i == 0 ? 0 : i == 1 ? 76 : 250);
        pictures_box(f, x, y - 10, 12, 12, fill[i], NULL);
        svg_text(f, x + 18, y, "start", 12, SVG_INK, false, what[i]);
    }
    pictures_label(f, TILE_LEFT + 390, y, "start", 12, SVG_GREY,
                   "T = %d, queries down, keys across; a tile is up to %d queries x %d keys", LENGTH, ATTN_QUERIES,
                   ATTN_KEYS);
}

void pictures_tiles(const char *path)
{
    svg_write(path, 2 * TILE_LEFT + 3 * SIDE + 2 * GAP, TILE_TOP + SIDE + 42, "tiles of attention", draw_tiles, NULL);
}

// ---- experts

enum { TOKENS = 16, TOKEN_ROW = 24, EXPERT_TOP = 56, MOST_EXPERTS = 8, MOST_CHOICES = 4, TOKEN_X = 110, ROW_X = 430 };

typedef struct {
    const ModelShape *shape;
    Model *model;
    int32_t choice[TOKENS * MOST_CHOICES], row[TOKENS * MOST_CHOICES];
    bool seen;
} Routed;

static void *saved_named(const BufferList *list, void *const *saved, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (!strcmp(list->name[i], name)) return saved[i];
    die("draw: a block with experts saves no '%s'", name);
}

static void saw_block(void *watcher, const Unit *unit, UnitPass pass, const X *stream, void *const *saved,
                      const Batch *batch)
{
    Routed *r = watcher;
    (void)stream;
    if (r->seen || pass != PASS_FORWARD || unit->kind != &unit_experts) return;
    const X *rows;
    Dev *dev = r->model->dev;
    size_t n = TOKENS * r->shape->experts.k * sizeof(int32_t);
    BufferList list = unit->kind->saved(dev, r->shape, 1, TOKENS);
    dev->to_host(dev, r->choice, saved_named(&list, saved, "choice"), n);
    dev->to_host(dev, r->row, experts_slot_rows(dev, r->shape, r->model->scratch, batch, &rows), n);
    r->seen = true;
}

static double token_y(size_t t)
{
    return EXPERT_TOP + TOKEN_ROW * (double)t + TOKEN_ROW / 2.0;
}

// Rows of experts, with a gap between two experts.
static double slot_y(const Routed *r, size_t row, size_t expert)
{
    double each = (double)TOKEN_ROW * TOKENS / (double)(TOKENS * r->shape->experts.k + 2 * r->shape->experts.n);
    return EXPERT_TOP + each * ((double)row + 2 * (double)expert + 1);
}

static void draw_experts(FILE *f, void *arg)
{
    const Routed *r = arg;
    const ModelExperts *x = &r->shape->experts;
    size_t k = x->k, cap = experts_capacity(x, TOKENS), dropped = 0;
    size_t load[MOST_EXPERTS] = {0}, first[MOST_EXPERTS] = {0};
    double each = (double)TOKEN_ROW * TOKENS / (double)(TOKENS * k + 2 * x->n);
    for (size_t i = 0; i < TOKENS * k; i++)
        if (r->row[i] < 0) dropped++;
        else load[r->choice[i]]++;
    for (size_t e = 1; e < x->n; e++) first[e] = first[e - 1] + load[e - 1];
    for (size_t i = 0; i < TOKENS * k; i++) {
        size_t e = (size_t)r->choice[i];
        const char *color = pictures_color[e];
        bool out = r->row[i] < 0; // it ends below the rows of its expert, which has no room
        double y0 = token_y(i / k), to = slot_y(r, out ? first[e] + load[e] : (size_t)r->row[i], e);
        svg_line(f, TOKEN_X + 12, y0, ROW_X, to, color, i % k ? 1 : 2, out ? "3 4" : NULL);
        if (out) svg_text(f, ROW_X + 5, to + 4, "middle", 12, SVG_RED, true, "x");
        else pictures_box(f, ROW_X, to - each / 2 + 0.5, 26, each - 1, color, NULL);
    }
    for (size_t t = 0; t < TOKENS; t++) {
        pictures_box(f, TOKEN_X, token_y(t) - 8, 12, 16, SVG_INK, NULL);
        pictures_label(f, TOKEN_X - 8, token_y(t) + 4, "end", 11.5, SVG_INK, "token %zu", t);
    }
    for (size_t e = 0; e < x->n; e++) {
        double y = (slot_y(r, first[e], e) + slot_y(r, first[e] + load[e], e) - each) / 2 + 4;
        char most[40] = "";
        if (cap) snprintf(most, sizeof most, " of at most %zu", cap);
        pictures_label(f, ROW_X + 36, y, "start", 12, pictures_color[e], "expert %zu: %zu rows%s", e, load[e], most);
    }
    svg_text(f, 14, 24, "start", 13, SVG_INK, true, "One layer's tokens, sorted into the rows of their experts");
    pictures_label(f, 14, 42, "start", 11.5, SVG_GREY,
                   "%d tokens, %zu of %zu experts each (thick: the first choice), %zu of %zu slots dropped", TOKENS, k,
                   x->n, dropped, TOKENS * k);
}

void pictures_experts(const Config *cfg, const char *path)
{
    ModelShape shape = run_shape(cfg);
    if (!shape.experts.n || shape.experts.n > MOST_EXPERTS || shape.experts.k > MOST_CHOICES)
        die("draw: experts: %zu experts, of which a token uses %zu (2 to %d, and 1 to %d; try tiny-moe)",
            shape.experts.n, shape.experts.k, MOST_EXPERTS, MOST_CHOICES);
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Routed r = {.shape = &shape, .model = model_create(&shape, dev, &mem, 1, TOKENS, 1, true)};
    int32_t token[TOKENS];
    for (int i = 0; i < TOKENS; i++) token[i] = (int32_t)((size_t)(97 * i + 5) % shape.vocab);
    r.model->hooks = (UnitHooks){.watcher = &r, .saw = saw_block};
    model_set_batch(r.model, token, NULL, token, 1, TOKENS);
    model_forward_backward(r.model, 1);
    if (!r.seen) die("draw: experts: no layer has experts");
    svg_write(path, 700, EXPERT_TOP + TOKEN_ROW * TOKENS + 20, "tokens and experts", draw_experts, &r);
    model_free(r.model);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

// ---- slices of a checkpoint

enum { MOST_RANKS = 8, MOST_SLICES = 64 };

typedef struct {
    size_t shape[PARAM_DIMS];
    struct {
        CkptSlice slice;
        int rank;
    } part[MOST_SLICES];
    int n, ranks;
} Slices;

static Slices slices_of(const Config *cfg, const char *tensor, bool writes)
{
    Slices s = {.ranks = (int)cfg->parallel.ranks};
    Run *run = malloc(sizeof *run);
    if (!run) die("draw: no memory for a run's description");
    if (s.ranks > MOST_RANKS) die("draw: slices of %d ranks (at most %d)", s.ranks, MOST_RANKS);
    Dev *cpu = dev_cpu_create(1), *dev = run_device(cfg, cpu);
    for (int rank = 0; rank < s.ranks; rank++) {
        plan_open(run, cfg, dev, rank);
        CkptPart part = replicas_checkpoint(&run->replicas, writes);
        for (int i = 0; i < part.n; i++) {
            const CkptPiece *piece = &part.piece[i];
            const Param *row = &part.whole->row[piece->row];
            if (piece->array >= 0 || strcmp(row->name, tensor)) continue;
            if (s.n == MOST_SLICES) die("draw: %s is in more than %d slices", tensor, MOST_SLICES);
            for (int d = 0; d < PARAM_DIMS; d++) s.shape[d] = d < row->ndim ? row->dim[d] : 1;
            s.part[s.n].slice = piece->slice, s.part[s.n++].rank = rank;
        }
        replicas_checkpoint_free(&run->replicas, &part);
        plan_close(run);
    }
    if (!s.n) die("draw: no rank has a tensor '%s' (build/plan params CONFIG lists them)", tensor);
    run_device_free(dev, cpu);
    free(run);
    return s;
}

static uint8_t *bytes_of(size_t n)
{
    uint8_t *out = calloc(n, 1);
    if (!out) die("draw: no memory for %zu bytes", n);
    return out;
}

// The tensor, a byte an element: 1 + the rank whose file has it.
static uint8_t *files_of(const Slices *s)
{
    size_t n = s->shape[0] * s->shape[1], put = 0;
    uint8_t *whole = bytes_of(n);
    CkptSlice all = ckpt_slice_whole(s->shape);
    for (int i = 0; i < s->n; i++) {
        size_t own = s->part[i].slice.to - s->part[i].slice.from;
        uint8_t *src = bytes_of(own);
        memset(src, 1 + s->part[i].rank, own);
        put += ckpt_slice_copy(s->shape, &all, whole, &s->part[i].slice, src, 1);
        free(src);
    }
    if (put != n || memchr(whole, 0, n)) die("draw: the slices hold %zu of %zu elements", put, n);
    return whole;
}

// The same, but 0 where a rank of the reading job does not ask for the element. *n_read: elements that it does.
static uint8_t *read_by(const Slices *files, const Slices *to, int rank, size_t *n_read)
{
    size_t n = files->shape[0] * files->shape[1];
    uint8_t *whole = bytes_of(n);
    CkptSlice all = ckpt_slice_whole(files->shape);
    *n_read = 0;
    for (int i = 0; i < to->n; i++) {
        if (to->part[i].rank != rank) continue;
        const CkptSlice *want = &to->part[i].slice;
        uint8_t *own = bytes_of(want->to - want->from);
        for (int k = 0; k < files->n; k++) {
            size_t have = files->part[k].slice.to - files->part[k].slice.from;
            uint8_t *src = bytes_of(have);
            memset(src, 1 + files->part[k].rank, have);
            *n_read += ckpt_slice_copy(files->shape, want, own, &files->part[k].slice, src, 1);
            free(src);
        }
        ckpt_slice_copy(files->shape, &all, whole, want, own, 1);
        free(own);
    }
    return whole;
}

// Rectangles of equal bytes, each as wide and then as high as it goes.
static void draw_elements(FILE *f, uint8_t *whole, const size_t shape[PARAM_DIMS], double x, double y, double w,
                          double h)
{
    size_t R = shape[0], C = shape[1];
    double cell_w = w / (double)C, cell_h = h / (double)R;
    pictures_box(f, x, y, w, h, SVG_GRID, NULL);
    for (size_t i = 0; i < R * C; i++) {
        size_t r = i / C, c = i % C, wide = 1, high = 1;
        uint8_t value = whole[i];
        if (!value) continue;
        while (c + wide < C && whole[i + wide] == value) wide++;
        for (bool same = true; same && r + high < R; high += same)
            for (size_t j = 0; j < wide; j++) same &= whole[i + high * C + j] == value;
        fprintf(f, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
                "shape-rendering=\"crispEdges\"/>\n", x + cell_w * (double)c, y + cell_h * (double)r,
                cell_w * (double)wide, cell_h * (double)high, pictures_color[value - 1]);
        for (size_t k = 0; k < high; k++) memset(whole + i + k * C, 0, wide);
    }
    pictures_box(f, x, y, w, h, "none", SVG_AXIS);
}

typedef struct {
    Slices files, to;
    const char *tensor;
    char from[120], into[120];
} Reading;

enum { SLICE_W = 90, SLICE_GAP = 22, SLICE_TOP = 86, SLICE_LEFT = 20 };

static double slice_height(const Slices *s)
{
    double h = SLICE_W * (double)s->shape[0] / (double)s->shape[1];
    return h > 260 ? 260 : h < 40 ? 40 : h;
}

static void draw_slices(FILE *f, void *arg)
{
    const Reading *a = arg;
    double x = SLICE_LEFT, h = slice_height(&a->files);
    size_t held[MOST_RANKS + 1] = {0}, n = a->files.shape[0] * a->files.shape[1], n_read;
    uint8_t *whole = files_of(&a->files);
    for (size_t i = 0; i < n; i++) held[whole[i] - 1]++;
    pictures_label(f, SLICE_LEFT, 26, "start", 13, SVG_INK, "%s (%zu, %zu) in a checkpoint", a->tensor,
                   a->files.shape[0], a->files.shape[1]);
    pictures_label(f, SLICE_LEFT, 48, "start", 12, SVG_GREY, "written by %s", a->from);
    pictures_label(f, SLICE_LEFT + 330, 48, "start", 12, SVG_GREY, "read by %s, coloured by the file it comes from",
                   a->into);
    draw_elements(f, whole, a->files.shape, x, SLICE_TOP, SLICE_W, h);
    for (int r = 0, row = 0; r < a->files.ranks; r++) {
        if (!held[r]) continue;
        double y = SLICE_TOP + 14 + 20 * row++;
        pictures_box(f, x + SLICE_W + 14, y - 10, 12, 12, pictures_color[r], NULL);
        pictures_label(f, x + SLICE_W + 32, y, "start", 12, SVG_INK, "model_%05d: %zu elements", r, held[r]);
    }
    free(whole);
    x = SLICE_LEFT + 330;
    for (int r = 0; r < a->to.ranks; r++) {
        whole = read_by(&a->files, &a->to, r, &n_read);
        if (n_read) {
            pictures_label(f, x, SLICE_TOP - 8, "start", 12, SVG_INK, "rank %d", r);
            draw_elements(f, whole, a->files.shape, x, SLICE_TOP, SLICE_W, h);
            pictures_label(f, x, SLICE_TOP + h + 18, "start", 11.5, SVG_GREY, "%zu elements", n_read);
            x += SLICE_W + SLICE_GAP;
        }
        free(whole);
    }
}

static void layout_text(char out[120], const Config *cfg)
{
    snprintf(out, 120, "%ld ranks (dp %ld, tp %ld, pp %ld, ZeRO %ld)", cfg->parallel.ranks, cfg->parallel.dp,
             cfg->parallel.tp, cfg->parallel.pp, cfg->parallel.zero);
}

void pictures_slices(const Config *writes, const Config *reads, const char *tensor, const char *path)
{
    Reading a = {.files = slices_of(writes, tensor, true), .to = slices_of(reads, tensor, false), .tensor = tensor};
    int readers = 0;
    layout_text(a.from, writes), layout_text(a.into, reads);
    for (int r = 0; r < a.to.ranks; r++) {
        bool any = false;
        for (int i = 0; i < a.to.n; i++) any |= a.to.part[i].rank == r;
        readers += any;
    }
    int width = SLICE_LEFT + 330 + readers * (SLICE_W + SLICE_GAP) + 20;
    svg_write(path, width < 860 ? 860 : width, SLICE_TOP + (int)slice_height(&a.files) + 36, "slices of a checkpoint",
              draw_slices, &a);
}
