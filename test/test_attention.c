// test_attention: the tiled attention against its naive twin, on the shapes where tiles go wrong: lengths around
// the block of 64 queries and the tile of 256 keys, odd head sizes, grouped queries, rows with gaps, a cache in front.
//
// The bound is computed from the data by ref_attention (ops_ref.h), for each element; the naive twin works in double
// and rounds once (u). The double version of ref_attention and the naive twin are compared too.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "dev_cpu.h"
#include "ops_ref.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XC(ptr) ((const X *)(ptr))
#define XM(ptr) ((X *)(ptr))

typedef struct {
    AttnShape s;
    size_t n_q, n_kv, n_out, n_lse; // elements
    float *q, *k, *v, *out, *lse, *naive, *naive_lse;
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

static void test_lengths_around_the_tiles(void **state)
{
    (void)state;
    const size_t lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 255, 256, 257, 319, 321, 513, 600};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) check_shape(1, lengths[i], 0, 1, 1, 8, 0, 1);
}

static void test_head_sizes_and_groups(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 2, 3, 5, 16, 31, 64, 80, 129};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) check_shape(2, 70, 0, 2, 1, sizes[i], 0, 1);
    const size_t heads[][2] = {{1, 1}, {3, 3}, {3, 1}, {4, 2}, {6, 2}, {6, 3}, {5, 1}};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) check_shape(2, 67, 0, heads[i][0], heads[i][1], 4, 0, 1);
}

static void test_gaps_between_rows_are_not_read(void **state)
{
    (void)state;
    check_shape(2, 70, 0, 4, 2, 6, 5, 1);
    check_shape(1, 300, 0, 2, 2, 3, 1, 1);
    check_shape(2, 3, 66, 2, 1, 5, 7, 1);
}

static void test_behind_a_cache(void **state)
{
    (void)state;
    const size_t starts[] = {1, 63, 64, 100, 191, 192, 255, 256, 257, 511, 512, 600}, news[] = {1, 2, 64, 70};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        for (size_t j = 0; j < sizeof news / sizeof *news; j++) check_shape(1, news[j], starts[i], 2, 1, 4, 0, 1);
    check_shape(3, 130, 260, 4, 2, 5, 2, 1);
}

static void test_large_scores(void **state)
{
    (void)state;
    check_shape(1, 300, 0, 2, 1, 16, 0, 30);
    check_shape(1, 65, 250, 2, 1, 16, 0, 30);
}

// The first query sees one key: its weight is 1, exactly.
static void test_first_row_is_v(void **state)
{
    (void)state;
    Case c = case_make(2, 90, 0, 2, 1, 7, 0, 1);
    run_tiled(&c, 1);
    for (size_t b = 0; b < 2; b++)
        for (size_t h = 0; h < 2; h++)
            assert_memory_equal(c.out + b * 90 * 14 + h * 7, c.v + b * 90 * 7, 7 * sizeof(float));
    case_free(&c);
}

// A key or value that is not a number must show in every query that sees it, and not in another. (But in a block of 64
// queries that reaches the key, a value also reaches queries before it: their weight of it is 0, and 0 NaN is NaN.)
static void test_nan_spreads_to_those_who_see_it(void **state)
{
    (void)state;
    const size_t T = 330, bad = 270;
    for (int in_v = 0; in_v < 2; in_v++) {
        Case c = case_make(1, T, 0, 2, 2, 4, 0, 1);
        (in_v ? c.v : c.k)[bad * c.s.ldkv + 5] = NAN; // of kv head 1
        run_tiled(&c, 2);
        for (size_t t = 0; t < T; t++)
            for (size_t h = 0; h < 2; h++)
                for (size_t d = 0; d < 4; d++) {
                    bool reached = h == 1 && t >= bad && (!in_v || d == 1);
                    if (in_v && t < bad && t / 64 == bad / 64) continue;
                    if (isnan(c.out[(t * 2 + h) * 4 + d]) != reached) fail_msg("row %zu head %zu element %zu", t, h, d);
                }
        case_free(&c);
    }
}

static void test_threads_and_lse_do_not_matter(void **state)
{
    (void)state;
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

// Backward over several blocks and tiles, with groups, gaps and large scores, against the double version.
static void check_backward(size_t B, size_t T, size_t H, size_t G, size_t D, size_t gap, double size)
{
    Case c = case_make(B, T, 0, H, G, D, gap, size);
    run_tiled(&c, 2);
    float *dout = room(c.n_out, sizeof *dout), *d[3];
    fill(dout, "dout", B * T, H * D, H * D, 1);
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
    case_free(&c);
}

static void test_backward(void **state)
{
    (void)state;
    const size_t lengths[] = {1, 2, 63, 65, 129, 257, 330};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) check_backward(1, lengths[i], 2, 1, 4, 0, 1);
    check_backward(2, 70, 6, 2, 5, 3, 1);
    check_backward(1, 300, 2, 2, 8, 0, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths_around_the_tiles),
        cmocka_unit_test(test_head_sizes_and_groups),
        cmocka_unit_test(test_gaps_between_rows_are_not_read),
        cmocka_unit_test(test_behind_a_cache),
        cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_first_row_is_v),
        cmocka_unit_test(test_nan_spreads_to_those_who_see_it),
        cmocka_unit_test(test_threads_and_lse_do_not_matter),
        cmocka_unit_test(test_backward),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
