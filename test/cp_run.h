// cp_run.h: attention over ranks that are threads: a case, one rank's part in it, the serial op on the same numbers,
// and how far the two may be apart; for test_cp.
//
// Bounds. Serial op and ring add the same terms in different orders, so each is within err (ops_ref.h, for any order)
// of the exact value. The ring's forward also merges: with L at least every |lse|, a merge takes weights exp(lse - top)
// of two lse that were rounded (u L each), rounds the difference (2 u L), calls exp (FN u), and divides, multiplies and
// adds (6 u); lse' is a log (FN u) of a rounded sum, added and rounded (u L). The error of a part's lse before its
// first merge (lse_err of ops_ref.h) is a relative error of its weight. All of that counts twice, in the numerator and
// in the denominator of a convex combination of values of at most max |v|, over 1 - p with dropout. Backward gets the
// serial op's out and lse, so only its order of sums differs. In 2-byte storage two results may round to neighbours.
#ifndef CP_RUN_H
#define CP_RUN_H
#include "base/clock.h"
#include "parallel/cp.h"
#include "base/formats.h"
#include "ops/narrow.h"
#include "ops_ref.h"
#include "base/rng.h"

#define XC(ptr) ((const X *)(ptr))
#define XM(ptr) ((X *)(ptr))

enum { MAX_RANKS = 8, DOCUMENTS = 1, DROPPED = 2 };

static void *room(size_t n, size_t size)
{
    void *ptr = calloc(n ? n : 1, size);
    if (!ptr) fail_msg("no memory");
    return ptr;
}

// ---- a case: whole arrays, which ranks cut and fill

typedef struct {
    CpSettings set;
    int ranks;
    size_t B, T, H, G, D, gap;
    int kind; // DOCUMENTS | DROPPED
    XType x_type;
    bool watched;
    size_t window;
} Spec;

typedef struct {
    Spec c;
    AttnShape s;            // of whole sequences
    size_t x_bytes, ld[3], width[3], rows; // of q, k, v
    void *in[3], *dout, *out, *d[3];       // rows of X: what ranks read, and what they or the serial op write
    float *lse;             // (B, H, T)
    int32_t *first;
    const void *given_out;  // not NULL: what backward starts from, the serial op's out and lse
    const float *given_lse;
    CommCount count[2][COMM_KINDS]; // of rank 0, forward and backward
    size_t held[MAX_RANKS];
    bool overlapped[MAX_RANKS];
    int parts[MAX_RANKS]; // watched: calls of attention on pieces
} Case;

static size_t rows_bytes(const Case *c, int i)
{
    return c->rows * c->ld[i] * c->x_bytes;
}

// Normal numbers that X can hold; NaN in the gaps between rows.
static void fill(const Case *c, void *to, const char *name, size_t used, size_t ld)
{
    for (size_t i = 0; i < c->rows * ld; i++) {
        float x = i % ld < used ? (float)rng_normal(rng_make(4, name, 0), i) : NAN;
        if (c->c.x_type == X_FP32) ((float *)to)[i] = x;
        else formats_from_float((uint16_t *)to + i, FORMAT_BF16, &x, 1, false);
    }
}

static double *widen(const Case *c, const void *from, size_t n)
{
    double *wide = room(n, sizeof *wide);
    for (size_t i = 0; i < n; i++) {
        float x;
        if (c->c.x_type == X_FP32) x = ((const float *)from)[i];
        else formats_to_float(&x, FORMAT_BF16, (const uint16_t *)from + i, 1);
        wide[i] = x;
    }
    return wide;
}

static Case *case_make(Spec spec)
{
    Case *c = room(1, sizeof *c);
    c->c = spec;
    c->x_bytes = spec.x_type == X_FP32 ? 4 : 2;
    c->rows = spec.B * spec.T;
    size_t hd = spec.H * spec.D, gd = spec.G * spec.D;
    for (int i = 0; i < 3; i++) c->width[i] = i ? gd : hd, c->ld[i] = c->width[i] + spec.gap;
    static const char *const name[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        c->in[i] = room(rows_bytes(c, i), 1);
        c->d[i] = room(rows_bytes(c, i), 1);
        fill(c, c->in[i], name[i], c->width[i], c->ld[i]);
    }
    c->dout = room(c->rows * hd, c->x_bytes), c->out = room(c->rows * hd, c->x_bytes);
    fill(c, c->dout, "dout", hd, hd);
    c->lse = room(spec.B * spec.H * spec.T, sizeof *c->lse);
    c->first = room(c->rows, sizeof *c->first);
    for (size_t b = 0; b < spec.B; b++) // documents of 1, 5, 14, 30, 55 ... tokens, shifted from row to row
        for (size_t t = 0, start = 0, end = 1 + b, k = 1; t < spec.T; t++) {
            if (t == end) start = t, k++, end += k * k;
            c->first[b * spec.T + t] = (int32_t)start;
        }
    c->s = (AttnShape){.B = spec.B, .Tq = spec.T, .Tk = spec.T, .H = spec.H, .G = spec.G, .D = spec.D, .ldq = c->ld[0],
                       .ldkv = c->ld[1], .window = spec.window};
    if (spec.kind & DOCUMENTS) c->s.first = c->first;
    if (spec.kind & DROPPED) c->s.drop = (Dropout){.p = 0.3f, .rng = rng_make(5, "cp", 1), .first = 7};
    return c;
}

static void case_free(Case *c)
{
    for (int i = 0; i < 3; i++) free(c->in[i]), free(c->d[i]);
    free(c->dout), free(c->out), free(c->lse), free(c->first), free(c);
}

// Copies the rank's rows out of the whole array, or back to their place.
static void move_rows(const Case *c, int rank, void *local, void *whole, size_t row_bytes, bool back)
{
    size_t own = c->c.T / (size_t)c->c.ranks;
    for (size_t b = 0; b < c->c.B; b++)
        for (size_t i = 0; i < own; i++) {
            size_t at = b * c->c.T + cp_position(c->c.set.assign, c->c.T, rank, c->c.ranks, i);
            char *here = (char *)local + (b * own + i) * row_bytes, *there = (char *)whole + at * row_bytes;
            memcpy(back ? there : here, back ? here : there, row_bytes);
        }
}

// (B, H, T) statistics of the rank's rows, or back.
static void move_lse(const Case *c, int rank, float *local, float *whole, bool back)
{
    size_t own = c->c.T / (size_t)c->c.ranks;
    for (size_t bh = 0; bh < c->c.B * c->c.H; bh++)
        for (size_t i = 0; i < own; i++) {
            float *there = whole + bh * c->c.T + cp_position(c->c.set.assign, c->c.T, rank, c->c.ranks, i);
            if (back) *there = local[bh * own + i];
            else local[bh * own + i] = *there;
        }
}

// ---- watching: a device whose attention observes the ring meanwhile

typedef struct {
    const Case *c;
    Cp *cp;
    void (*forward)(Dev *, float *, float *, const X *, const X *, const X *, AttnShape);
    void (*backward)(Dev *, float *, float *, float *, const X *, const X *, const float *, const X *, const X *,
                     const X *, AttnShape);
    int step;
    bool overlapped;
} Watch;
static _Thread_local Watch *watch; // one a rank

// While step j is still being computed, the block of step j + 1 arrives: keys and values of rank r - j - 1.
static void look(const Dev *dev)
{
    const Case *c = watch->c;
    if (c->s.window) { // steps may be skipped
        watch->step++;
        return;
    }
    if (!dev->meanwhile || dev->meanwhile_arg != watch->cp->comm) watch->overlapped = false;
    int size = c->c.ranks, j = watch->step++ % size, owner = (watch->cp->comm->rank - j - 1 + size) % size;
    if (j == size - 1) return;
    size_t own = c->c.T / (size_t)size, row = c->width[1] * c->x_bytes;
    double limit = clock_seconds() + 60;
    while (!comm_progress(watch->cp->comm) && clock_seconds() < limit) {}
    for (int i = 1; i < 3; i++)
        for (size_t t = 0; t < own; t++) {
            size_t at = cp_position(c->c.set.assign, c->c.T, owner, size, t) * c->ld[i] * c->x_bytes;
            const char *here = watch->cp->kv + ((size_t)((j + 1) % 2) * 2 + (size_t)(i - 1)) * own * row + t * row;
            if (memcmp(here, (const char *)c->in[i] + at, row)) watch->overlapped = false;
        }
}

static void watch_forward(Dev *dev, float *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    look(dev);
    watch->forward(dev, out, lse, q, k, v, s);
}

static void watch_backward(Dev *dev, float *dq, float *dk, float *dv, const X *dout, const X *out, const float *lse,
                           const X *q, const X *k, const X *v, AttnShape s)
{
    look(dev);
    watch->backward(dev, dq, dk, dv, dout, out, lse, q, k, v, s);
}

// ---- one rank

static void play(Comm *world, void *arg)
{
    Case *c = arg;
    Spec spec = c->c;
    int rank = world->rank;
    size_t own = spec.T / (size_t)spec.ranks, rows = spec.B * own, hd = c->width[0];
    comm_set_ordered(world, spec.set.blocks > 0);
    comm_set_checked(world, true);
    Dev *cpu = dev_cpu_create(1), *dev = cpu, seen;
    // pieces have fp32 probabilities (attention_bf16.c), and so shall the whole
    if (spec.x_type != X_FP32)
        dev = narrow_create(cpu, (NarrowOptions){.x_type = spec.x_type, .products = PRODUCTS_WIDENED});
    Mem mem = {0};
    Watch w = {.c = c, .forward = cpu->attention_part_forward, .backward = cpu->attention_part_backward,
               .overlapped = true};
    if (spec.watched) {
        seen = *cpu, dev = &seen, watch = &w;
        seen.attention_part_forward = watch_forward, seen.attention_part_backward = watch_backward;
    }
    void *in[3], *d[3], *dout = room(rows * hd, c->x_bytes), *out = room(rows * hd, c->x_bytes);
    for (int i = 0; i < 3; i++) {
        in[i] = room(rows * c->ld[i], c->x_bytes), d[i] = room(rows * c->ld[i], c->x_bytes);
        move_rows(c, rank, in[i], c->in[i], c->ld[i] * c->x_bytes, false);
    }
    move_rows(c, rank, dout, c->dout, hd * c->x_bytes, false);
    float *lse = room(rows * spec.H, sizeof *lse);
    int32_t *first = room(rows, sizeof *first);
    cp_cut(first, c->first, sizeof *first, spec.B, spec.set.assign, spec.T, rank, spec.ranks);
    AttnShape s = c->s;
    s.Tq = s.Tk = own;
    if (s.first) s.first = first;

    Cp *cp = w.cp = cp_create(world, dev, &mem, spec.set, spec.B, spec.T, spec.H, spec.G, spec.D);
    c->held[rank] = mem.tag_bytes[MEM_COMM];
    comm_reset_counts(world);
    cp_forward(cp, XM(out), lse, XC(in[0]), XC(in[1]), XC(in[2]), s);
    if (rank == 0) memcpy(c->count[0], world->count, sizeof world->count);
    move_rows(c, rank, out, c->out, hd * c->x_bytes, true);
    move_lse(c, rank, lse, c->lse, true);
    if (c->given_out) {
        move_rows(c, rank, out, (void *)(uintptr_t)c->given_out, hd * c->x_bytes, false);
        move_lse(c, rank, lse, (float *)(uintptr_t)c->given_lse, false);
    }
    comm_reset_counts(world);
    cp_backward(cp, XM(d[0]), XM(d[1]), XM(d[2]), XC(dout), XC(out), lse, XC(in[0]), XC(in[1]), XC(in[2]), s);
    if (rank == 0) memcpy(c->count[1], world->count, sizeof world->count);
    for (int i = 0; i < 3; i++) move_rows(c, rank, d[i], c->d[i], c->ld[i] * c->x_bytes, true);
    c->parts[rank] = w.step;
    c->overlapped[rank] = w.overlapped && w.step == (spec.watched ? 2 * spec.ranks : 0);
    free(cp);

    for (int i = 0; i < 3; i++) free(in[i]), free(d[i]);
    free(dout), free(out), free(lse), free(first);
    mem_free_all(&mem);
    if (spec.x_type != X_FP32) narrow_free(dev);
    dev_cpu_free(cpu);
}

static inline void run_serial(Case *c)
{
    Dev *cpu = dev_cpu_create(1), *dev = cpu;
    if (c->c.x_type != X_FP32)
        dev = narrow_create(cpu, (NarrowOptions){.x_type = c->c.x_type, .products = PRODUCTS_WIDENED});
    dev->attention_forward(dev, XM(c->out), c->lse, XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), c->s);
    dev->attention_backward(dev, XM(c->d[0]), XM(c->d[1]), XM(c->d[2]), XC(c->dout), XC(c->out), c->lse, XC(c->in[0]),
                            XC(c->in[1]), XC(c->in[2]), c->s);
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

// The same with the sums of all ranks' order, as a model of one rank calls it (linear.c).
static inline void run_one_rank(Case *c)
{
    c->s.T = c->c.T, c->s.blocks = c->c.set.blocks;
    run_serial(c);
}

// ---- how far a run may be from the exact values

typedef struct {
    double *out, *lse, *d[3]; // bounds of one run against the exact values
} Bounds;

static double largest(const double *x, size_t rows, size_t width, size_t ld, size_t group)
{
    double most = 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t g = 0; g < width; g += group) {
            double sum = 0;
            for (size_t d = 0; d < group; d++) sum += x[r * ld + g + d] * x[r * ld + g + d];
            if (sqrt(sum) > most) most = sqrt(sum);
        }
    return most;
}

static inline Bounds bounds(const Case *c)
{
    size_t n = c->rows * c->width[0], n_lse = c->rows * c->c.H;
    Bounds b = {.out = room(n, 8), .lse = room(n_lse, 8)};
    double *in[3], *d[3], *dout = widen(c, c->dout, n), *out = room(n, 8), *lse = room(n_lse, 8);
    for (int i = 0; i < 3; i++) {
        in[i] = widen(c, c->in[i], c->rows * c->ld[i]);
        d[i] = room(c->rows * c->ld[i], 8), b.d[i] = room(c->rows * c->ld[i], 8);
    }
    ref_attention(out, b.out, lse, b.lse, in[0], in[1], in[2], c->s);
    ref_attention_back(d[0], d[1], d[2], b.d[0], b.d[1], b.d[2], dout, in[0], in[1], in[2], c->s);
    size_t D = c->c.D;
    double q = largest(in[0], c->rows, c->width[0], c->ld[0], D), k = largest(in[1], c->rows, c->width[1], c->ld[1], D);
    double score = q * k / sqrt((double)D); // at least every |score|
    double L = score + log((double)c->c.T), keep = c->s.drop.p > 0 ? 1 / (1 - (double)c->s.drop.p) : 1;
    double merges = c->c.set.blocks ? c->c.set.blocks : c->c.ranks - 1;
    double part = gam(c->c.T + 2) + FN * U * (1 + log((double)c->c.T)) + 4 * U * (L + score) + gam(D + 2) * score;
    double merged = part + merges * U * (5 * L + 2 * FN + 6);
    for (size_t i = 0; i < n; i++) b.out[i] += 2 * merged * keep * largest(in[2], c->rows, c->width[1], c->ld[2], 1);
    for (size_t i = 0; i < n_lse; i++) b.lse[i] += merged;
    for (int i = 0; i < 3; i++) free(in[i]), free(d[i]);
    free(dout), free(out), free(lse);
    return b;
}

#endif
