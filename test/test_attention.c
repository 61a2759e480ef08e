// test_attention: the tiled attention against its naive twin, on the shapes where tiles go wrong: lengths around
// the block of 60 queries and the tile of 256 keys, odd head sizes, grouped queries, rows with gaps, a cache before the
// queries, several documents in a row, windows, dropout.
//
// The bound is computed from the data by ref_attention (ops_ref.h), for each element; the naive twin works in double
// and rounds once (u). The double version of ref_attention and the naive twin are compared too.
#include "test/test.h"

#include "ops/attn.h"
#include "expect_die.h"
#include "ops_ref.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XC(ptr) ((const X *)(ptr))
#define XM(ptr) ((X *)(ptr))

typedef struct {
    AttnShape s;
    size_t n_q, n_kv, n_out, n_lse; // elements
    float *q, *k, *v, *out, *lse, *naive, *naive_lse;
    int32_t *first;
} Case;

static void *room(size_t n, size_t size)
{
    void *ptr = calloc(n, size);
    if (!ptr) fail_msg("no memory");
    return ptr;
}

// Normal numbers in the rows, NaN in the gaps between them: whoever reads a gap shows it.
static void fill(float *x, const char *name, size_t rows, size_t used, size_t ld, double size)
{
    for (size_t i = 0; i < rows * ld; i++)
        x[i] = i % ld < used ? (float)(size * rng_normal(rng_make(3, name, 0), i)) : NAN;
}

// size: of queries; large ones make scores of up to a hundred or so, where exp without the maximum overflows.
static Case case_make(size_t B, size_t Tq, size_t q_start, size_t H, size_t G, size_t D, size_t gap, double size)
{
    Case c = {.s = {.B = B, .Tq = Tq, .Tk = q_start + Tq, .H = H, .G = G, .D = D, .ldq = H * D + gap,
                    .ldkv = G * D + gap, .q_start = q_start}};
    c.n_q = B * Tq * c.s.ldq, c.n_kv = B * c.s.Tk * c.s.ldkv, c.n_out = B * Tq * H * D, c.n_lse = B * H * Tq;
    c.q = room(c.n_q, sizeof *c.q);
    c.k = room(c.n_kv, sizeof *c.k);
    c.v = room(c.n_kv, sizeof *c.v);
    c.out = room(c.n_out, sizeof *c.out);
    c.naive = room(c.n_out, sizeof *c.naive);
    c.lse = room(c.n_lse, sizeof *c.lse);
    c.naive_lse = room(c.n_lse, sizeof *c.naive_lse);
    fill(c.q, "q", B * Tq, H * D, c.s.ldq, size);
    fill(c.k, "k", B * c.s.Tk, G * D, c.s.ldkv, 1);
    fill(c.v, "v", B * c.s.Tk, G * D, c.s.ldkv, 1);
    for (size_t i = 0; i < c.n_out; i++) c.out[i] = NAN;
    return c;
}

static void case_free(Case *c)
{
    float *all[] = {c->q, c->k, c->v, c->out, c->lse, c->naive, c->naive_lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(c->first);
}

// Cuts every row into documents: length[0] queries, length[1], ... , again and again until the row ends.
static void cut(Case *c, const size_t *length, size_t n)
{
    c->s.first = c->first = room(c->s.B * c->s.Tq, sizeof *c->first);
    for (size_t b = 0; b < c->s.B; b++)
        for (size_t t = 0, i = b, end = 0, start = 0; t < c->s.Tq; t++) {
            if (t == end) start = t ? c->s.q_start + t : 0, end += length[i++ % n];
            c->first[b * c->s.Tq + t] = (int32_t)start;
        }
}

static Dropout dropped(float p)
{
    return (Dropout){.p = p, .rng = rng_make(8, "dropped", 4), .first = 2};
}

static void run_tiled(Case *c, int threads)
{
    Dev *dev = dev_cpu_create(threads);
    dev->attention_forward(dev, XM(c->out), c->lse, XC(c->q), XC(c->k), XC(c->v), c->s);
    dev_cpu_free(dev);
}

static double *widen(const float *x, size_t n)
{
    double *wide = room(n, sizeof *wide);
    for (size_t i = 0; i < n; i++) wide[i] = x[i];
    return wide;
}

static void expect(const char *what, const Case *c, const float *got, const float *naive, const double *ref,
                   const double *err, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double once = U * fabs(ref[i]) + 1e-12 * (1 + fabs(ref[i]));
        bool ok = fabs(naive[i] - ref[i]) <= once && fabs((double)got[i] - naive[i]) <= err[i] + once;
        if (!ok)
            fail_msg("%s[%zu], B %zu Tq %zu after %zu, heads %zu/%zu of %zu: tiled %.9g, naive %.9g, double %.9g, "
                     "bound %.1e", what, i, c->s.B, c->s.Tq, c->s.q_start, c->s.H, c->s.G, c->s.D, got[i], naive[i],
                     ref[i], err[i]);
    }
}

static void compare(Case *c)
{
    double *q = widen(c->q, c->n_q), *k = widen(c->k, c->n_kv), *v = widen(c->v, c->n_kv);
    double *ref = room(c->n_out, sizeof *ref), *err = room(c->n_out, sizeof *err);
    double *lse = room(c->n_lse, sizeof *lse), *lse_err = room(c->n_lse, sizeof *lse_err);
    run_tiled(c, 2);
    attention_forward_naive(c->naive, c->naive_lse, c->q, c->k, c->v, c->s);
    ref_attention(ref, err, lse, lse_err, q, k, v, c->s);
    expect("out", c, c->out, c->naive, ref, err, c->n_out);
    expect("lse", c, c->lse, c->naive_lse, lse, lse_err, c->n_lse);
    double *all[] = {q, k, v, ref, err, lse, lse_err};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void check_shape(size_t B, size_t Tq, size_t q_start, size_t H, size_t G, size_t D, size_t gap, double size)
{
    Case c = case_make(B, Tq, q_start, H, G, D, gap, size);
    compare(&c);
    case_free(&c);
}

TEST(test_lengths_around_the_tiles)
{
    const size_t lengths[] = {1, 2, 15, 16, 17, 59, 60, 61, 119, 121, 255, 256, 257, 319, 321, 513, 600};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) check_shape(1, lengths[i], 0, 1, 1, 8, 0, 1);
}

TEST(test_head_sizes_and_groups)
{
    const size_t sizes[] = {1, 2, 3, 5, 16, 31, 64, 80, 129};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_shape(2, 70, 0, 2, 1, sizes[i], 0, 1);
    const size_t heads[][2] = {{1, 1}, {3, 3}, {3, 1}, {4, 2}, {6, 2}, {6, 3}, {5, 1}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) check_shape(2, 67, 0, heads[i][0], heads[i][1], 4, 0, 1);
}

TEST(test_gaps_between_rows_are_not_read)
{
    check_shape(2, 70, 0, 4, 2, 6, 5, 1);
    check_shape(1, 300, 0, 2, 2, 3, 1, 1);
    check_shape(2, 3, 66, 2, 1, 5, 7, 1);
}

TEST(test_behind_a_cache)
{
    const size_t starts[] = {1, 59, 60, 100, 191, 192, 255, 256, 257, 511, 512, 600}, news[] = {1, 2, 60, 70};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        for (size_t j = 0; j < sizeof news / sizeof *news; j++) check_shape(1, news[j], starts[i], 2, 1, 4, 0, 1);
    check_shape(3, 130, 260, 4, 2, 5, 2, 1);
}

TEST(test_large_scores)
{
    check_shape(1, 300, 0, 2, 1, 16, 0, 30);
    check_shape(1, 65, 250, 2, 1, 16, 0, 30);
}

// The first query sees one key: its weight is 1, exactly.
TEST(test_first_row_is_v)
{
    Case c = case_make(2, 90, 0, 2, 1, 7, 0, 1);
    run_tiled(&c, 1);
    for (size_t b = 0; b < 2; b++)
        for (size_t h = 0; h < 2; h++)
            assert_memory_equal(c.out + b * 90 * 14 + h * 7, c.v + b * 90 * 7, 7 * sizeof(float));
    case_free(&c);
}

// A key or value that is not a number must show in every query that sees it, and not in another. (But in a block of
// queries that reaches the key, a value also reaches queries before it: their weight of it is 0, and 0 NaN is NaN.)
TEST(test_nan_spreads_to_those_who_see_it)
{
    const size_t T = 330, bad = 270;
    for (int in_v = 0; in_v < 2; in_v++) {
        Case c = case_make(1, T, 0, 2, 2, 4, 0, 1);
        (in_v ? c.v : c.k)[bad * c.s.ldkv + 5] = NAN; // of kv head 1
        run_tiled(&c, 2);
        for (size_t t = 0; t < T; t++)
            for (size_t h = 0; h < 2; h++)
                for (size_t d = 0; d < 4; d++) {
                    bool reached = h == 1 && t >= bad && (!in_v || d == 1);
                    if (in_v && t < bad && t / ATTN_QUERIES == bad / ATTN_QUERIES) continue;
                    if (isnan(c.out[(t * 2 + h) * 4 + d]) != reached) fail_msg("row %zu head %zu element %zu", t, h, d);
                }
        case_free(&c);
    }
}

TEST(test_threads_and_lse_do_not_matter)
{
    Case one = case_make(2, 200, 70, 4, 2, 9, 0, 1), many = case_make(2, 200, 70, 4, 2, 9, 0, 1);
    run_tiled(&one, 1);
    run_tiled(&many, 3);
    assert_memory_equal(one.out, many.out, one.n_out * sizeof(float));
    assert_memory_equal(one.lse, many.lse, one.n_lse * sizeof(float));
    float *lse = many.lse;
    many.lse = NULL; // not wanted
    run_tiled(&many, 2);
    assert_memory_equal(one.out, many.out, one.n_out * sizeof(float));
    many.lse = lse;
    case_free(&one);
    case_free(&many);
}

// ---- backward, over several blocks and tiles, with groups, gaps, documents, dropout and large scores, against the
// double version; with the forward results that it wants, rounded once
static void compare_backward(Case *case_)
{
    Case c = *case_;
    size_t B = c.s.B, T = c.s.Tq, H = c.s.H, G = c.s.G, D = c.s.D;
    float *dout = room(c.n_out, sizeof *dout), *d[3];
    fill(dout, "dout", B * T, H * D, H * D, 1);
    attention_forward_naive(c.out, c.lse, c.q, c.k, c.v, c.s);
    double *q = widen(c.q, c.n_q), *k = widen(c.k, c.n_kv), *v = widen(c.v, c.n_kv), *dy = widen(dout, c.n_out);
    const size_t n[] = {c.n_q, c.n_kv, c.n_kv}, ld[] = {c.s.ldq, c.s.ldkv, c.s.ldkv}, used[] = {H * D, G * D, G * D};
    double *ref[3], *err[3];
    for (int i = 0; i < 3; i++) {
        d[i] = room(n[i], sizeof *d[i]);
        for (size_t j = 0; j < n[i]; j++) d[i][j] = 77; // gaps must stay as they are, the rest is written
        ref[i] = room(n[i], sizeof *ref[i]);
        err[i] = room(n[i], sizeof *err[i]);
    }
    Dev *dev = dev_cpu_create(2);
    dev->attention_backward(dev, XM(d[0]), XM(d[1]), XM(d[2]), XC(dout), XC(c.out), c.lse, XC(c.q), XC(c.k),
                            XC(c.v), c.s);
    dev_cpu_free(dev);
    ref_attention_back(ref[0], ref[1], ref[2], err[0], err[1], err[2], dy, q, k, v, c.s);
    for (int i = 0; i < 3; i++)
        for (size_t j = 0; j < n[i]; j++) {
            double want = j % ld[i] < used[i] ? ref[i][j] : 77;
            // P is at least e^-87.3, not 0, where the score is far below the maximum
            if (!(fabs(d[i][j] - want) <= err[i][j] + U * fabs(want) + 0x1p-110))
                fail_msg("d%c[%zu], T %zu: %.9g, not %.9g within %.1e", "qkv"[i], j, T, d[i][j], want, err[i][j]);
        }
    for (int i = 0; i < 3; i++) free(d[i]), free(ref[i]), free(err[i]);
    free(dout), free(q), free(k), free(v), free(dy);
}

static void check_backward(size_t B, size_t T, size_t H, size_t G, size_t D, size_t gap, double size)
{
    Case c = case_make(B, T, 0, H, G, D, gap, size);
    compare_backward(&c);
    case_free(&c);
}

TEST(test_backward)
{
    const size_t lengths[] = {1, 2, 63, 65, 129, 257, 330};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) check_backward(1, lengths[i], 2, 1, 4, 0, 1);
    check_backward(2, 70, 6, 2, 5, 3, 1);
    check_backward(1, 300, 2, 2, 8, 0, 10);
}

// ---- documents

static const size_t uneven[] = {1, 60, 61, 257, 3, 2, 138};
enum { N_UNEVEN = sizeof uneven / sizeof *uneven };

TEST(test_documents)
{
    for (int backward = 0; backward < 2; backward++)
        for (int p = 0; p < 2; p++) {
            Case c = case_make(2, 522, 0, 2, 1, 5, 3, 3);
            cut(&c, uneven, N_UNEVEN);
            if (p) c.s.drop = dropped(0.2f);
            (backward ? compare_backward : compare)(&c);
            case_free(&c);
        }
    Case c = case_make(2, 150, 90, 4, 2, 3, 0, 1); // the first document starts in the cache
    cut(&c, uneven + 1, N_UNEVEN - 1);
    c.first[0] = 17;
    compare(&c);
    case_free(&c);
    c = case_make(1, 100, 0, 1, 1, 4, 0, 1); // not documents: the last 20 keys
    cut(&c, uneven, N_UNEVEN);
    for (size_t t = 0; t < 100; t++) c.first[t] = t < 20 ? 0 : (int32_t)t - 19;
    compare(&c);
    compare_backward(&c);
    case_free(&c);
}

typedef struct {
    float *out, *lse, *dout, *d[3];
} Passes; // forward, then backward, of a case

static Passes run_both(Case *c, int threads, const float *dout)
{
    Passes r = {.out = room(c->n_out, 4), .lse = room(c->n_lse, 4), .dout = room(c->n_out, 4),
                .d = {room(c->n_q, 4), room(c->n_kv, 4), room(c->n_kv, 4)}};
    memcpy(r.dout, dout, c->n_out * sizeof *dout);
    Dev *dev = dev_cpu_create(threads);
    dev->attention_forward(dev, XM(r.out), r.lse, XC(c->q), XC(c->k), XC(c->v), c->s);
    dev->attention_backward(dev, XM(r.d[0]), XM(r.d[1]), XM(r.d[2]), XC(r.dout), XC(r.out), r.lse, XC(c->q), XC(c->k),
                            XC(c->v), c->s);
    dev_cpu_free(dev);
    return r;
}

static void passes_free(Passes *r)
{
    free(r->out), free(r->lse), free(r->dout), free(r->d[0]), free(r->d[1]), free(r->d[2]);
}

// The document of `length` tokens at `start` of the packed case, alone in arrays of its own, against its part of the
// packed results: all bits.
static void check_alone(const Case *packed, const Passes *in_row, size_t start, size_t length)
{
    AttnShape s = packed->s;
    size_t width = s.H * s.D;
    Case c = case_make(1, length, 0, s.H, s.G, s.D, s.ldq - s.H * s.D, 1);
    memcpy(c.q, packed->q + start * s.ldq, c.n_q * sizeof *c.q);
    memcpy(c.k, packed->k + start * s.ldkv, c.n_kv * sizeof *c.k);
    memcpy(c.v, packed->v + start * s.ldkv, c.n_kv * sizeof *c.v);
    Passes alone = run_both(&c, 2, in_row->dout + start * width);
    assert_memory_equal(alone.out, in_row->out + start * width, c.n_out * sizeof(float));
    for (size_t h = 0; h < s.H; h++)
        assert_memory_equal(alone.lse + h * length, in_row->lse + h * s.Tq + start, length * sizeof(float));
    const size_t ld[] = {s.ldq, s.ldkv, s.ldkv}, used[] = {width, s.G * s.D, s.G * s.D};
    for (int i = 0; i < 3; i++)
        for (size_t t = 0; t < length; t++)
            assert_memory_equal(alone.d[i] + t * ld[i], in_row->d[i] + (start + t) * ld[i], used[i] * sizeof(float));
    passes_free(&alone);
    case_free(&c);
}

// A packed row gives the bits of its documents alone, wherever they lie and whatever stands in the others: one of them
// is full of NaN.
TEST(test_packed_is_alone_to_the_bit)
{
    const size_t T = 522, bad = 4;
    Case c = case_make(1, T, 0, 4, 2, 5, 3, 1);
    cut(&c, uneven, N_UNEVEN);
    float *dout = room(c.n_out, sizeof *dout);
    fill(dout, "dout", T, 20, 20, 1);
    size_t start[N_UNEVEN] = {0};
    for (size_t i = 1; i < N_UNEVEN; i++) start[i] = start[i - 1] + uneven[i - 1];
    float *rows[] = {c.q, c.k, c.v, dout};
    const size_t ld[] = {c.s.ldq, c.s.ldkv, c.s.ldkv, 20};
    for (int a = 0; a < 4; a++)
        for (size_t j = start[bad] * ld[a]; j < (start[bad] + uneven[bad]) * ld[a]; j++) rows[a][j] = NAN;
    Passes in_row = run_both(&c, 3, dout);
    for (size_t i = 0; i < N_UNEVEN; i++)
        if (i != bad) check_alone(&c, &in_row, start[i], uneven[i]);
    passes_free(&in_row);
    free(dout);
    case_free(&c);
}

// ---- windows

static const size_t windows[] = {1, 2, 59, 60, 61, 255, 256, 257, 329, 330};
enum { N_WINDOWS = sizeof windows / sizeof *windows };

TEST(test_windows)
{
    for (size_t i = 0; i < N_WINDOWS; i++)
        for (int kind = 0; kind < 3; kind++) { // whole rows, documents, queries that follow a cache
            Case c = kind == 2 ? case_make(1, 70, 260, 2, 1, 5, 3, 3) : case_make(1, 330, 0, 2, 1, 5, 3, 3);
            if (kind == 1) cut(&c, uneven + 1, N_UNEVEN - 1);
            c.s.window = windows[i];
            compare(&c);
            if (kind < 2) compare_backward(&c);
            case_free(&c);
        }
}

// A window of one: every query sees itself alone. One of T or more: the bits of no window.
TEST(test_the_narrowest_and_the_widest_window)
{
    Case c = case_make(1, 330, 0, 2, 2, 5, 0, 1);
    float *dout = room(c.n_out, sizeof *dout);
    fill(dout, "dout", 330, 10, 10, 1);
    Passes none = run_both(&c, 2, dout);
    for (size_t window = 330; window <= 100000000; window *= 66) {
        c.s.window = window;
        Passes wide = run_both(&c, 2, dout);
        assert_memory_equal(none.out, wide.out, c.n_out * sizeof(float));
        assert_memory_equal(none.lse, wide.lse, c.n_lse * sizeof(float));
        assert_memory_equal(none.d[0], wide.d[0], c.n_q * sizeof(float));
        for (int i = 1; i < 3; i++) assert_memory_equal(none.d[i], wide.d[i], c.n_kv * sizeof(float));
        passes_free(&wide);
    }
    c.s.window = 1;
    Passes own = run_both(&c, 2, dout);
    assert_memory_equal(own.out, c.v, c.n_out * sizeof(float));
    assert_memory_equal(own.d[2], dout, c.n_out * sizeof(float));
    passes_free(&none), passes_free(&own);
    free(dout);
    case_free(&c);
}

// A key that is not a number: seen by W queries, all others are as they were, to the bit. Only keys that one of a block
// of queries sees are read at all.
TEST(test_keys_outside_the_window_are_not_read)
{
    const size_t T = 400, bad = 200, W = 70;
    Case c = case_make(1, T, 0, 1, 1, 4, 0, 1);
    c.s.window = W;
    run_tiled(&c, 1);
    float *clean = room(c.n_out, sizeof *clean);
    memcpy(clean, c.out, c.n_out * sizeof *clean);
    c.k[bad * 4] = NAN;
    for (size_t d = 0; d < 4; d++) c.v[d] = NAN; // of key 0, which blocks 0 and 1 read
    run_tiled(&c, 1);
    for (size_t t = 0; t < T; t++) {
        bool reached = (t >= bad && t < bad + W) || t < 2 * ATTN_QUERIES;
        if (reached) assert_true(isnan(c.out[t * 4]));
        else assert_memory_equal(c.out + t * 4, clean + t * 4, 4 * sizeof *clean);
    }
    free(clean);
    case_free(&c);
}

TEST(test_a_document_cannot_start_later)
{
    Case c = case_make(1, 9, 0, 1, 1, 4, 0, 1);
    cut(&c, uneven, N_UNEVEN);
    c.first[5] = 6;
    expect_dies("broken invariant", run_tiled(&c, 1));
    case_free(&c);
}

// Backward is of whole sequences: queries that follow a cache, and keys that do not begin the sequence, are refused.
static int call_backward(void *arg)
{
    const Case *c = arg;
    float *dq = room(c->n_q, sizeof *dq), *dk = room(c->n_kv, sizeof *dk), *dv = room(c->n_kv, sizeof *dv);
    Dev *dev = dev_cpu_create(1);
    dev->attention_backward(dev, XM(dq), XM(dk), XM(dv), XC(c->out), XC(c->out), c->lse, XC(c->q), XC(c->k), XC(c->v),
                            c->s);
    return 0;
}

TEST_FIRST(test_backward_is_of_whole_sequences)
{
    Case c = case_make(1, 9, 2, 1, 1, 4, 0, 1);
    expect_die(call_backward, &c, "broken invariant");
    case_free(&c);
    c = case_make(1, 9, 0, 1, 1, 4, 0, 1);
    c.s.k_start = 1;
    expect_die(call_backward, &c, "broken invariant");
    case_free(&c);
}

// ---- dropout

TEST(test_dropout_against_the_twin)
{
    const size_t lengths[] = {1, 3, 65, 257, 330};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int backward = 0; backward < 2; backward++) {
            Case c = case_make(2, lengths[i], 0, 2, 1, 5, 1, 2);
            c.s.drop = dropped(0.4f);
            (backward ? compare_backward : compare)(&c);
            case_free(&c);
        }
}

// The mask belongs to the sequence's place in the whole run: sequence 1 of a batch is sequence 0 of a batch that starts
// there. And the mask of a second call, or with other threads, is the same; lse is that without dropout.
TEST(test_the_mask_is_a_function_of_the_place)
{
    size_t T = 77, H = 2, D = 6, n = T * H * D;
    Case c = case_make(2, T, 0, H, 1, D, 0, 1), plain = case_make(2, T, 0, H, 1, D, 0, 1);
    float *dout = room(c.n_out, sizeof *dout);
    fill(dout, "dout", 2 * T, H * D, H * D, 1);
    Passes none = run_both(&plain, 2, dout);
    c.s.drop = dropped(0.25f);
    Passes both = run_both(&c, 2, dout), again = run_both(&c, 3, dout);
    assert_memory_equal(both.out, again.out, c.n_out * sizeof(float));
    assert_memory_equal(both.d[0], again.d[0], c.n_q * sizeof(float));
    assert_memory_equal(both.d[1], again.d[1], c.n_kv * sizeof(float));
    assert_memory_equal(both.lse, none.lse, c.n_lse * sizeof(float));
    assert_memory_not_equal(both.out, none.out, c.n_out * sizeof(float));
    Case second = case_make(1, T, 0, H, 1, D, 0, 1);
    memcpy(second.q, c.q + second.n_q, second.n_q * sizeof(float));
    memcpy(second.k, c.k + second.n_kv, second.n_kv * sizeof(float));
    memcpy(second.v, c.v + second.n_kv, second.n_kv * sizeof(float));
    second.s.drop = c.s.drop;
    second.s.drop.first += 1;
    Passes alone = run_both(&second, 1, dout + n);
    assert_memory_equal(alone.out, both.out + n, n * sizeof(float));
    assert_memory_equal(alone.d[0], both.d[0] + second.n_q, second.n_q * sizeof(float));
    assert_memory_equal(alone.d[2], both.d[2] + second.n_kv, second.n_kv * sizeof(float));
    Passes *all[] = {&none, &both, &again, &alone};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) passes_free(all[i]);
    free(dout);
    case_free(&c), case_free(&plain), case_free(&second);
}

// All keys and all values equal: out is the kept share of the keys, over 1 - p. Its mean over n weights of 1/T each is
// 1 within 5 standard deviations, sqrt(p / (1 - p) / n) each.
TEST(test_dropout_keeps_the_mean)
{
    size_t T = 400, H = 2;
    float p = 0.3f;
    Case c = case_make(1, 1, T - 1, H, 1, 1, 0, 0); // one query, queries of size 0: equal scores
    for (size_t t = 0; t < T; t++) c.v[t] = 1;
    c.s.drop = dropped(p);
    double sum = 0;
    enum { STEPS = 50 };
    for (uint32_t step = 0; step < STEPS; step++) {
        c.s.drop.rng.step = step;
        run_tiled(&c, 1);
        for (size_t h = 0; h < H; h++) sum += c.out[h] / (double)(H * STEPS);
    }
    assert_true(fabs(sum - 1) <= 5 * sqrt(p / (1 - p) / (double)(T * H * STEPS)));
    assert_true(fabs(sum - 1) > 0);
    case_free(&c);
}

TESTS(NULL, NULL)
