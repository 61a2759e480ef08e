// test_cp: which rank has which tokens, and how even that is; ring attention and its gather twin against the serial op,
// forward and backward, on ranks that are threads; the same bits on any number of ranks; bytes sent; and that the next
// block is being received while this one is computed.
#include "test/test.h"

#include "base/clock.h"
#include "formats/formats.h"
#include "base/rng.h"
#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "ops/attn.h"
#include "narrow/narrow.h"
#include "parallel/cp.h"

#include <pthread.h>

#define XC(ptr) ((const X *)(ptr))
#define XM(ptr) ((X *)(ptr))

enum { MAX_RANKS = 8, DOCUMENTS = 1, DROPPED = 2 };

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
    double *wide = zeroed(n * sizeof *wide);
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
    Case *c = zeroed(sizeof *c);
    c->c = spec;
    c->x_bytes = spec.x_type == X_FP32 ? 4 : 2;
    c->rows = spec.B * spec.T;
    size_t hd = spec.H * spec.D, gd = spec.G * spec.D;
    for (int i = 0; i < 3; i++) c->width[i] = i ? gd : hd, c->ld[i] = c->width[i] + spec.gap;
    static const char *const name[] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++) {
        c->in[i] = zeroed(rows_bytes(c, i));
        c->d[i] = zeroed(rows_bytes(c, i));
        fill(c, c->in[i], name[i], c->width[i], c->ld[i]);
    }
    c->dout = zeroed(c->rows * hd * c->x_bytes), c->out = zeroed(c->rows * hd * c->x_bytes);
    fill(c, c->dout, "dout", hd, hd);
    c->lse = zeroed(spec.B * spec.H * spec.T * sizeof *c->lse);
    c->first = zeroed(c->rows * sizeof *c->first);
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
    void *in[3], *d[3], *dout = zeroed(rows * hd * c->x_bytes), *out = zeroed(rows * hd * c->x_bytes);
    for (int i = 0; i < 3; i++) {
        in[i] = zeroed(rows * c->ld[i] * c->x_bytes), d[i] = zeroed(rows * c->ld[i] * c->x_bytes);
        move_rows(c, rank, in[i], c->in[i], c->ld[i] * c->x_bytes, false);
    }
    move_rows(c, rank, dout, c->dout, hd * c->x_bytes, false);
    float *lse = zeroed(rows * spec.H * sizeof *lse);
    int32_t *first = zeroed(rows * sizeof *first);
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

static void run_serial(Case *c)
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
static void run_one_rank(Case *c)
{
    c->s.T = c->c.T, c->s.blocks = c->c.set.blocks;
    run_serial(c);
}

// ---- who has what

TEST(test_every_token_has_one_place)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        for (size_t n = 1; n <= 5; n += 2)
            for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
                size_t T = 2 * (size_t)size * n, own = T / (size_t)size;
                int seen[2 * MAX_RANKS * 5] = {0};
                for (int r = 0; r < size; r++)
                    for (size_t i = 0, back; i < own; i++) {
                        size_t at = cp_position(assign, T, r, size, i);
                        assert_true(at < T && seen[at]++ == 0);
                        assert_true(i == 0 || at > cp_position(assign, T, r, size, i - 1));
                        assert_int_equal(cp_rank(assign, T, size, at, &back), r);
                        assert_int_equal(back, i);
                    }
            }
    assert_int_equal(cp_position(CP_ZIGZAG, 12, 0, 2, 3), 9); // chunks 0 and 3 of 3 tokens
    assert_int_equal(cp_position(CP_ZIGZAG, 12, 1, 2, 3), 6); // 1 and 2
    assert_int_equal(cp_position(CP_CONTIGUOUS, 12, 1, 2, 3), 9);
}

TEST(test_cut)
{
    int32_t whole[2][12], part[2][6];
    for (int i = 0; i < 24; i++) whole[i / 12][i % 12] = 100 * (i / 12) + i % 12;
    for (int r = 0; r < 2; r++)
        for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
            cp_cut(part, whole, sizeof **whole, 2, assign, 12, r, 2);
            for (int b = 0; b < 2; b++)
                for (size_t i = 0; i < 6; i++)
                    assert_int_equal(part[b][i], 100 * b + (int)cp_position(assign, 12, r, 2, i));
        }
}

TEST(test_work)
{
    for (int size = 1; size <= MAX_RANKS; size++)
        for (CpAssign assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++) {
            size_t n = 3, T = 2 * (size_t)size * n;
            uint64_t N = (uint64_t)size, sum = 0;
            for (int r = 0; r < size; r++) {
                uint64_t own = 0;
                for (int owner = 0; owner < size; owner++) {
                    uint64_t pairs = 0;
                    for (size_t i = 0; i < 2 * n; i++)
                        for (size_t j = 0; j < 2 * n; j++)
                            pairs += cp_position(assign, T, owner, size, j) <= cp_position(assign, T, r, size, i);
                    assert_int_equal(cp_work(assign, T, r, size, owner), pairs);
                    if (assign == CP_ZIGZAG && owner != r) assert_int_equal(pairs, 2 * n * n); // even in every step
                    own += pairs;
                }
                uint64_t formula = assign == CP_ZIGZAG ? 2 * N - 1 : 4 * (uint64_t)r + 1;
                assert_int_equal(own, formula * n * n + n * (n + 1));
                sum += own;
            }
            assert_int_equal(sum, T * (T + 1) / 2);
        }
}

TEST(test_refused)
{
    const CpSettings none = {0}, blocks = {.blocks = 16};
    expect_dies("30 tokens in 2 x 4 equal chunks", cp_check(none, 30, 4));
    expect_dies("24 tokens would do", cp_check(none, 30, 4));
    expect_dies("8 tokens would do", cp_check(none, 2, 4));
    expect_dies("over 3 ranks: 16 blocks", cp_check(blocks, 48, 3));
    expect_dies("over 4 ranks: 4 blocks", cp_check((CpSettings){.blocks = 4}, 48, 4));
    expect_dies("8 tokens in 16 blocks", cp_check(blocks, 8, 1));
    expect_dies("contiguous chunks over 2 ranks", cp_check((CpSettings){.blocks = 16, .assign = CP_CONTIGUOUS}, 48, 2));
    cp_check((CpSettings){.blocks = 16}, 48, 8);
    cp_check((CpSettings){.blocks = 16, .assign = CP_CONTIGUOUS}, 48, 1);
    cp_check((CpSettings){0}, 30, 5);
}

// ---- against the serial op

// Ring and serial op add the same terms in different orders; the ring also merges partial results, with weights that
// are exponentials of rounded numbers. In 2-byte storage two results may round to neighbours.
static void expect(const Case *c, const char *what, const void *got_, const void *want_, size_t rows, size_t width,
                   size_t ld)
{
    double *got = widen(c, got_, rows * ld), *want = widen(c, want_, rows * ld);
    for (size_t i = 0; i < rows * ld; i++) {
        double bound = 2e-5 * (1 + fabs(want[i])) + (c->c.x_type == X_FP32 ? 0 : 0x1p-7 * fabs(want[i]));
        if (i % ld < width && !(fabs(got[i] - want[i]) <= bound))
            fail_msg("%s[%zu] on %d ranks, %s, %s, %d blocks, T %zu, heads %zu/%zu of %zu, kind %d, window %zu: %.9g, "
                     "serial %.9g, bound %.3g", what, i, c->c.ranks,
                     c->c.set.assign == CP_ZIGZAG ? "zig-zag" : "contiguous",
                     c->c.set.way == CP_RING ? "ring" : "gather", c->c.set.blocks, c->c.T, c->c.H, c->c.G, c->c.D,
                     c->c.kind, c->c.window, got[i], want[i], bound);
    }
    free(got), free(want);
}

// The serial op once, then every way over every number of ranks.
static void compare(Spec spec, const int *ranks, int n_ranks)
{
    static const char *const name[] = {"dq", "dk", "dv"};
    Case *serial = case_make(spec);
    run_serial(serial);
    for (int n = 0; n < n_ranks; n++)
        for (int way = 0; way < 5; way++) {
            Spec one = spec;
            one.ranks = ranks[n];
            one.set = (CpSettings){.assign = way & 1 ? CP_CONTIGUOUS : CP_ZIGZAG, .way = way & 2 ? CP_GATHER : CP_RING};
            if (way == 4) {
                if (ranks[n] & (ranks[n] - 1)) continue;
                one.set.blocks = 16;
            }
            Case *c = case_make(one);
            c->given_out = serial->out, c->given_lse = serial->lse;
            comm_threads_run(one.ranks, play, c);
            expect(c, "out", c->out, serial->out, c->rows, c->width[0], c->width[0]);
            for (size_t i = 0; i < c->rows * spec.H; i++)
                if (!(fabs((double)c->lse[i] - serial->lse[i]) <= 2e-5))
                    fail_msg("lse[%zu] is %.9g, serial %.9g", i, c->lse[i], serial->lse[i]);
            for (int i = 0; i < 3; i++) expect(c, name[i], c->d[i], serial->d[i], c->rows, c->width[i], c->ld[i]);
            case_free(c);
        }
    case_free(serial);
}

TEST(test_against_the_serial_op)
{
    const int ranks[] = {2, 4};
    for (int kind = 0; kind < 4; kind++)
        compare((Spec){.B = 2, .T = 72, .H = 4, .G = 2, .D = 6, .gap = 3, .kind = kind}, ranks, 2);
    compare((Spec){.B = 1, .T = 40, .H = 2, .G = 2, .D = 5, .gap = 0, .kind = DOCUMENTS}, ranks, 2);
    compare((Spec){.B = 1, .T = 24, .H = 3, .G = 1, .D = 4, .gap = 1, .kind = DROPPED}, ranks, 2);
}

// Chunks longer than a block of queries, and keys of more than a tile.
TEST(test_long_chunks)
{
    const int ranks[] = {2, 4};
    compare((Spec){.B = 1, .T = 536, .H = 2, .G = 1, .D = 4, .gap = 1, .kind = DROPPED}, ranks, 2);
    compare((Spec){.B = 1, .T = 536, .H = 1, .G = 1, .D = 4, .gap = 0, .kind = DOCUMENTS}, ranks + 1, 1);
}

// Windows shorter than a chunk, of one, that reach several chunks back, and that reach all.
TEST(test_windows)
{
    const int ranks[] = {2, 3, 4};
    const size_t windows[] = {1, 7, 9, 10, 11, 19, 40, 72};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        compare((Spec){.B = 1, .T = 72, .H = 2, .G = 1, .D = 6, .gap = 3, .window = windows[i]}, ranks, 3);
    compare((Spec){.B = 2, .T = 72, .H = 2, .G = 2, .D = 5, .gap = 0, .kind = DOCUMENTS | DROPPED, .window = 13}, ranks,
            3);
}

// A rank computes the steps of which it sees a key, and no others.
TEST(test_steps_outside_the_window_are_skipped)
{
    enum { T = 32, RANKS = 4, OWN = T / RANKS };
    for (int assign = CP_ZIGZAG; assign <= CP_CONTIGUOUS; assign++)
        for (size_t window = 1; window <= T; window++) {
            Case *c = case_make((Spec){.set = {.assign = assign}, .ranks = RANKS, .B = 1, .T = T, .H = 1, .G = 1,
                                       .D = 4, .watched = true, .window = window});
            comm_threads_run(RANKS, play, c);
            for (int r = 0; r < RANKS; r++) {
                int steps = 0;
                for (int owner = 0; owner < RANKS; owner++) {
                    bool any = false;
                    for (size_t i = 0; i < OWN * OWN; i++) {
                        size_t t = cp_position(assign, T, r, RANKS, i / OWN);
                        size_t j = cp_position(assign, T, owner, RANKS, i % OWN);
                        any |= j <= t && t - j < window;
                    }
                    steps += any;
                }
                assert_int_equal(c->parts[r], 2 * steps); // forward, backward
            }
            case_free(c);
        }
}

TEST(test_odd_numbers_of_ranks)
{
    const int ranks[] = {3, 5};
    compare((Spec){.B = 1, .T = 90, .H = 2, .G = 1, .D = 4, .gap = 2, .kind = DOCUMENTS | DROPPED}, ranks, 2);
}

TEST(test_two_bytes)
{
    const int ranks[] = {2, 4};
    compare((Spec){.B = 2, .T = 40, .H = 4, .G = 2, .D = 6, .gap = 3, .kind = DOCUMENTS | DROPPED, .x_type = X_BF16},
            ranks, 2);
}

// A 2-byte device's pieces are those of the fp32 device on the widened numbers, to the bit; also in several chunks.
TEST(test_two_bytes_are_widened)
{
    enum { B = 3, T = 12, OWN = 6, H = 4, G = 2, D = 3, HD = H * D, GD = G * D, GAP = 1 };
    Spec spec = {.B = B, .T = OWN, .H = H, .G = G, .D = D, .gap = GAP, .kind = DOCUMENTS | DROPPED, .x_type = X_BF16};
    Case *c = case_make(spec);
    fill(c, c->out, "out", HD, HD);
    Dev *cpu = dev_cpu_create(1);
    AttnShape s = c->s;
    s.T = T, s.q_start = s.q_cut = 3, s.k_cut = 3, s.k_jump = 6; // rank 1's queries, rank 0's keys
    for (size_t i = 0; i < B * OWN; i++) c->first[i] = (int32_t)(i % 3);
    float *wide[5]; // q, k, v, dout, out
    const void *narrow_in[] = {c->in[0], c->in[1], c->in[2], c->dout, c->out};
    const size_t n[] = {B * OWN * (HD + GAP), B * OWN * (GD + GAP), B * OWN * (GD + GAP), B * OWN * HD, B * OWN * HD};
    for (int i = 0; i < 5; i++) {
        wide[i] = zeroed(n[i] * sizeof(float));
        formats_to_float(wide[i], FORMAT_BF16, narrow_in[i], n[i]);
    }
    float out[2][B * OWN * HD], lse[2][B * H * OWN], d[2][3][B * OWN * HD];
    for (size_t chunk = 0; chunk <= OWN * HD; chunk += OWN * HD) {
        Dev *dev = narrow_create(cpu, (NarrowOptions){.x_type = X_BF16, .chunk_floats = chunk});
        cpu->attention_part_forward(cpu, out[0], lse[0], XC(wide[0]), XC(wide[1]), XC(wide[2]), s);
        dev->attention_part_forward(dev, out[1], lse[1], XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), s);
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
        cpu->attention_part_backward(cpu, d[0][0], d[0][1], d[0][2], XC(wide[3]), XC(wide[4]), lse[0], XC(wide[0]),
                                     XC(wide[1]), XC(wide[2]), s);
        dev->attention_part_backward(dev, d[1][0], d[1][1], d[1][2], XC(c->dout), XC(c->out), lse[0], XC(c->in[0]),
                                     XC(c->in[1]), XC(c->in[2]), s);
        assert_memory_equal(d[0][0], d[1][0], B * OWN * HD * sizeof(float));
        assert_memory_equal(d[0][1], d[1][1], B * OWN * GD * sizeof(float));
        assert_memory_equal(d[0][2], d[1][2], B * OWN * GD * sizeof(float));
        narrow_free(dev);
    }
    for (int i = 0; i < 5; i++) free(wide[i]);
    dev_cpu_free(cpu);
    case_free(c);
}

// ---- the same bits

static void same(const Case *a, const Case *b, const char *what, const void *x, const void *y, size_t n_bytes)
{
    if (memcmp(x, y, n_bytes))
        fail_msg("%s differs between %d ranks and %d, %s, kind %d", what, a->c.ranks, b->c.ranks,
                 b->c.set.way == CP_RING ? "ring" : "gather", b->c.kind);
}

TEST(test_same_bits_on_any_number_of_ranks)
{
    for (int kind = 0; kind < 5; kind++) // 4: with a window
        for (XType type = X_FP32; type <= X_BF16; type++) {
            Spec spec = {.set = {.blocks = 16}, .ranks = 1, .B = 2, .T = 16 * (kind == 3 ? 21 : 5), .H = 4, .G = 2,
                         .D = 6, .gap = 2, .kind = kind % 4, .x_type = type, .window = kind == 4 ? 23 : 0};
            if (type == X_BF16 && kind != 3) continue;
            Case *one = case_make(spec);
            run_one_rank(one);
            for (int n = 2; n <= 8; n *= 2)
                for (CpWay way = CP_RING; way <= CP_GATHER; way++) {
                    spec.ranks = n, spec.set.way = way;
                    Case *c = case_make(spec);
                    comm_threads_run(n, play, c);
                    same(one, c, "out", one->out, c->out, c->rows * c->width[0] * c->x_bytes);
                    same(one, c, "lse", one->lse, c->lse, c->rows * spec.H * sizeof(float));
                    same(one, c, "dq", one->d[0], c->d[0], rows_bytes(c, 0));
                    same(one, c, "dk", one->d[1], c->d[1], rows_bytes(c, 1));
                    same(one, c, "dv", one->d[2], c->d[2], rows_bytes(c, 2));
                    case_free(c);
                }
            case_free(one);
        }
}

// ---- bytes

TEST(test_bytes)
{
    for (int n = 2; n <= 8; n *= 2)
        for (int way = 0; way < 4; way++) {
            Spec spec = {.ranks = n, .B = 2, .T = 48, .H = 4, .G = 2, .D = 3, .gap = 1,
                         .x_type = n == 4 ? X_BF16 : X_FP32};
            spec.set = (CpSettings){.way = way & 1 ? CP_GATHER : CP_RING, .blocks = way & 2 ? 16 : 0};
            Case *c = case_make(spec);
            comm_threads_run(n, play, c);
            for (int backward = 0; backward < 2; backward++) {
                const CommCount *count = c->count[backward];
                size_t sent = 0, received = 0, bytes = cp_bytes(n, c->x_bytes, 2, 48, 2, 3, backward);
                for (int k = 0; k < COMM_KINDS; k++) sent += count[k].sent, received += count[k].received;
                assert_int_equal(sent, bytes);
                assert_int_equal(received, bytes);
                // N - 1 times K and V, B T/N G D elements each; backward the same again, and their gradients in fp32
                size_t block = 2 * 2 * 48 / (size_t)n * 2 * 3;
                assert_int_equal(bytes, (size_t)(n - 1) * block * (c->x_bytes + (backward ? 4 : 0)));
                size_t messages = (size_t)(n - 1) * (backward ? 2 : 1);
                assert_int_equal(count[COMM_SEND].calls, way & 1 ? 0 : messages);
                assert_int_equal(count[COMM_ALL_GATHER].calls, way & 1);
                assert_int_equal(count[COMM_REDUCE_SCATTER].calls, way & 1 && backward);
            }
            for (int r = 0; r < n; r++)
                assert_int_equal(c->held[r], cp_memory(spec.set, n, c->x_bytes, 2, 48, 4, 2, 3));
            case_free(c);
        }
}

// ---- order of events: the next block is there before the work on this one ends

TEST(test_the_next_block_travels_meanwhile)
{
    for (int n = 2; n <= 4; n += 2)
        for (int blocks = 0; blocks <= 16; blocks += 16) {
            Case *c = case_make((Spec){.set = {.blocks = blocks}, .ranks = n, .B = 1, .T = 32, .H = 2, .G = 1, .D = 4,
                                       .watched = true});
            comm_threads_run(n, play, c);
            for (int r = 0; r < n; r++)
                if (!c->overlapped[r]) fail_msg("rank %d of %d had to wait for a block", r, n);
            case_free(c);
        }
}

typedef struct {
    int calls, elsewhere;
    pthread_t caller;
} Meanwhile;

static void count_call(void *arg)
{
    Meanwhile *m = arg;
    m->calls++;
    m->elsewhere += !pthread_equal(pthread_self(), m->caller);
}

// Messages are moved on the caller's thread, also when the op has several; the serial op moves none.
TEST(test_a_long_op_lets_messages_move)
{
    Case *c = case_make((Spec){.B = 1, .T = 640, .H = 2, .G = 1, .D = 4});
    Dev *dev = dev_cpu_create(3);
    Meanwhile m = {.caller = pthread_self()};
    float *part = zeroed(c->rows * 8 * sizeof *part), *d = zeroed(c->rows * 16 * sizeof *d);
    dev->meanwhile = count_call, dev->meanwhile_arg = &m;
    dev->attention_forward(dev, XM(c->out), c->lse, XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), c->s);
    assert_int_equal(m.calls, 0);
    AttnShape s = c->s;
    s.T = 640;
    for (int i = 0; i < 50 && !m.calls; i++) // who gets a task of the loop is open
        dev->attention_part_forward(dev, part, c->lse, XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), s);
    assert_true(m.calls > 0);
    assert_memory_equal(part, c->out, c->rows * 8 * sizeof *part); // all keys in one piece: the serial op's bits
    dev->threads = 1, m.calls = 0;
    dev->attention_part_backward(dev, d, d + c->rows * 8, d + c->rows * 12, XC(c->dout), XC(c->out), c->lse,
                                 XC(c->in[0]), XC(c->in[1]), XC(c->in[2]), s);
    assert_int_equal(m.calls, 2 * ((640 + ATTN_QUERIES - 1) / ATTN_QUERIES));
    assert_int_equal(m.elsewhere, 0);
    dev_cpu_free(dev);
    free(part), free(d);
    case_free(c);
}

// ---- rotary positions are those of the whole sequence

TEST(test_rope_by_position)
{
    enum { T = 24, HEADS = 2, SIZE = 4, WIDTH = HEADS * SIZE, RANKS = 4, OWN = T / RANKS };
    float whole[T * WIDTH], part[OWN * WIDTH], want[OWN * WIDTH];
    int32_t pos[T], own[OWN];
    Dev *dev = dev_cpu_create(1);
    for (int rank = 0; rank < RANKS; rank++) {
        for (int t = 0; t < T; t++) pos[t] = t;
        for (size_t i = 0; i < T * WIDTH; i++) whole[i] = (float)rng_normal(rng_make(6, "x", 0), i);
        cp_cut(part, whole, WIDTH * sizeof *whole, 1, CP_ZIGZAG, T, rank, RANKS);
        cp_cut(own, pos, sizeof *pos, 1, CP_ZIGZAG, T, rank, RANKS);
        dev->rope_forward(dev, XM(part), own, OWN, HEADS, SIZE, WIDTH, (Rope){.theta = 1e4f});
        dev->rope_forward(dev, XM(whole), pos, T, HEADS, SIZE, WIDTH, (Rope){.theta = 1e4f});
        cp_cut(want, whole, WIDTH * sizeof *whole, 1, CP_ZIGZAG, T, rank, RANKS);
        assert_memory_equal(part, want, sizeof part);
    }
    dev_cpu_free(dev);
}

TESTS(NULL, NULL)
