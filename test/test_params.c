// Tests of params: the layout (order, offsets, unit ranges), names that are unique, and an initialisation in
// which every element depends only on (seed, tensor name, index).
#include "base/params.h"

#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/test.h"

#include "expect_die.h"

enum { ROWS = 7 };

// A model in small: an embedding, two blocks of a matrix and a vector, a final norm and a head. Sizes are odd
// on purpose.
static Params small_table(void)
{
    Params params = {0};
    params_add(&params, 0, "embed.tokens.weight", 2, 33, 7, 0, 0.02f, true, 0);
    for (int i = 0; i < 2; i++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "layers.%d.attn.q.weight", i);
        params_add(&params, 1 + i, name, 2, 7, 5, 0, 0.5f, true, 0);
        snprintf(name, sizeof name, "layers.%d.attn_norm.weight", i);
        params_add(&params, 1 + i, name, 1, 7, 99, 1, 0, false, -1); // dim1 of a vector is not looked at
    }
    params_add(&params, 3, "final_norm.bias", 1, 7, 1, 0, 0, false, -1);
    params_add(&params, 3, "head.weight", 2, 33, 7, 0.25f, 0.02f, true, 1);
    return params;
}

TEST(test_layout)
{
    Params params = small_table();
    assert_int_equal(params.n_rows, ROWS);
    assert_int_equal(params.n_units, 4);
    size_t offset = 0;
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        assert_int_equal(params_place(&params, row),
                         row->unit == 0 ? PARAM_OF_EMBEDDING : row->unit == 3 ? PARAM_OF_HEAD : PARAM_OF_BLOCK);
        assert_int_equal(row->offset, offset); // back to back
        assert_int_equal(row->n_elems, row->dim[0] * row->dim[1]);
        if (row->ndim == 1) assert_int_equal(row->dim[1], 1);
        offset += row->n_elems;
    }
    assert_int_equal(params.n_elems, offset);
    assert_int_equal(params.n_elems, 33 * 7 + 2 * (7 * 5 + 7) + 7 + 33 * 7);
    const Param *head = &params.row[ROWS - 1];
    params.no_embedding = params.no_head = true; // a stage of blocks alone
    assert_int_equal(params_place(&params, &params.row[0]), PARAM_OF_BLOCK);
    assert_int_equal(params_place(&params, head), PARAM_OF_BLOCK);
    assert_string_equal(head->name, "head.weight");
    assert_true(head->decay && head->cut == 1 && head->unit == 3 && head->ndim == 2);
    assert_true(head->init_mean == 0.25f && head->init_std == 0.02f);
    assert_true(!params.row[2].decay && params.row[2].cut == -1 && params.row[2].unit == 1);
    params_free(&params);
    assert_int_equal(params.n_rows, 0);
    assert_int_equal(params.n_elems, 0);
}

TEST(test_find)
{
    Params params = small_table();
    for (int i = 0; i < params.n_rows; i++) assert_int_equal(params_find(&params, params.row[i].name), i);
    assert_int_equal(params_find(&params, "layers.2.attn.q.weight"), -1);
    assert_int_equal(params_find(&params, "head"), -1);
    assert_int_equal(params_find(&params, ""), -1);
    params_free(&params);
    assert_int_equal(params_find(&params, "head.weight"), -1);
}

// The units' ranges follow one another and cover the buffer.
TEST(test_unit_ranges)
{
    Params params = small_table();
    size_t expected = 0, begin, end;
    for (int unit = 0; unit < params.n_units; unit++) {
        params_unit_range(&params, unit, &begin, &end);
        assert_int_equal(begin, expected);
        size_t n = 0;
        for (int i = 0; i < params.n_rows; i++) n += params.row[i].unit == unit ? params.row[i].n_elems : 0;
        assert_int_equal(end - begin, n);
        expected = end;
    }
    assert_int_equal(expected, params.n_elems);
    params_free(&params);
}

// Work grows with the rows, not with their square: the limit is 10 s of this process' own time, and the square of
// 200,000 takes minutes. The signal ends the program.
TEST(test_many_units)
{
    enum { UNITS = 20000, ROWS_EACH = 10 };
    struct itimerval limit = {.it_value.tv_sec = 10};
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &limit, NULL), 0);
    Params params = {0};
    for (int i = 0; i < UNITS * ROWS_EACH; i++) {
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "layers.%d.row%d", i / ROWS_EACH, i % ROWS_EACH);
        params_add(&params, i / ROWS_EACH, name, 1, 3, 1, 0, 0, false, -1);
    }
    for (int u = 0; u < UNITS; u++) {
        size_t begin, end;
        params_unit_range(&params, u, &begin, &end);
        assert_int_equal(begin, 3 * ROWS_EACH * (size_t)u);
        assert_int_equal(end - begin, 3 * ROWS_EACH);
    }
    params_free(&params);
    limit.it_value.tv_sec = 0;
    assert_int_equal(setitimer(ITIMER_VIRTUAL, &limit, NULL), 0);
}

static int add_twice(void *arg)
{
    (void)arg;
    Params params = small_table();
    params_add(&params, 3, "head.weight", 2, 1, 1, 0, 0, true, -1);
    return 0;
}

static int add_to_an_earlier_unit(void *arg)
{
    (void)arg;
    Params params = small_table();
    params_add(&params, 1, "layers.0.late", 2, 1, 1, 0, 0, true, -1);
    return 0;
}

static int add_long_name(void *arg)
{
    (void)arg;
    Params params = {0};
    char name[PARAM_NAME + 1];
    memset(name, 'a', PARAM_NAME);
    name[PARAM_NAME] = 0;
    params_add(&params, 0, name, 1, 1, 1, 0, 0, true, -1);
    return 0;
}

static int add_three_axes(void *arg)
{
    (void)arg;
    Params params = {0};
    params_add(&params, 0, "cube", 3, 2, 2, 0, 0, true, -1);
    return 0;
}

static int range_of_no_unit(void *arg)
{
    (void)arg;
    Params params = small_table();
    size_t begin, end;
    params_unit_range(&params, params.n_units, &begin, &end);
    return 0;
}

TEST(test_dies)
{
    expect_die(add_twice, NULL, "strcmp(params->row[i].name, name)");
    expect_die(add_to_an_earlier_unit, NULL, "unit >=");
    expect_die(add_long_name, NULL, "PARAM_NAME");
    expect_die(add_three_axes, NULL, "ndim");
    expect_die(range_of_no_unit, NULL, "broken invariant");
}

// Element i of a tensor is init_mean + init_std * rng_normal((seed, name, 0), i), rounded once; std 0 gives
// the constant.
TEST(test_init_formula)
{
    Params params = small_table();
    float *flat = zeroed(params.n_elems * sizeof *flat);
    for (size_t i = 0; i < params.n_elems; i++) flat[i] = NAN; // whatever init leaves out stays NaN
    params_init(&params, 42, flat);
    for (int r = 0; r < params.n_rows; r++) {
        const Param *row = &params.row[r];
        Rng rng = rng_make(42, row->name, 0);
        for (size_t i = 0; i < row->n_elems; i++) {
            double expected = row->init_mean;
            if (row->init_std != 0) expected += row->init_std * rng_normal(rng, i);
            assert_true(flat[row->offset + i] == (float)expected);
        }
    }
    Params one = {0}; // a deviation of 1 is one too
    params_add(&one, 0, "one.weight", 2, 3, 5, 2, 1, true, 0);
    params_init(&one, 42, flat);
    for (size_t i = 0; i < 15; i++) assert_true(flat[i] == (float)(2 + rng_normal(rng_make(42, "one.weight", 0), i)));
    params_free(&one);
    free(flat);
    params_free(&params);
}

// The same names in another order, among other tensors: each tensor gets the same bits. Another seed: other
// bits.
TEST(test_init_ignores_order)
{
    Params a = {0}, b = {0};
    params_add(&a, 0, "x.weight", 2, 9, 11, 0, 0.02f, true, 0);
    params_add(&a, 0, "y.weight", 2, 3, 5, 0, 0.02f, true, 0);
    params_add(&b, 0, "other.bias", 1, 13, 1, 0, 0.02f, false, -1);
    params_add(&b, 0, "y.weight", 2, 3, 5, 0, 0.02f, true, 0);
    params_add(&b, 2, "x.weight", 2, 9, 11, 0, 0.02f, true, 0);
    float *fa = calloc(a.n_elems, sizeof *fa), *fb = calloc(b.n_elems, sizeof *fb), *other;
    other = calloc(a.n_elems, sizeof *other);
    assert_non_null(fa);
    assert_non_null(fb);
    assert_non_null(other);
    params_init(&a, 1, fa);
    params_init(&b, 1, fb);
    params_init(&a, 2, other);
    static const char *const names[] = {"x.weight", "y.weight"};
    for (size_t n = 0; n < 2; n++) {
        const Param *ra = &a.row[params_find(&a, names[n])], *rb = &b.row[params_find(&b, names[n])];
        assert_int_equal(ra->n_elems, rb->n_elems);
        assert_memory_equal(fa + ra->offset, fb + rb->offset, ra->n_elems * sizeof *fa);
        assert_memory_not_equal(fa + ra->offset, other + ra->offset, ra->n_elems * sizeof *fa);
    }
    assert_memory_not_equal(fa, fa + a.row[1].offset, 15 * sizeof *fa); // tensors differ from each other
    free(fa);
    free(fb);
    free(other);
    params_free(&a);
    params_free(&b);
}

// Mean and standard deviation of n draws, within 6 standard errors: s / sqrt(n), and s^2 sqrt(2/n) for the
// variance.
TEST(test_init_moments)
{
    enum { N = 200 * 300 };
    Params params = {0};
    params_add(&params, 0, "w", 2, 200, 300, 0.5f, 0.02f, true, 0);
    float *w = zeroed(N * sizeof *w);
    params_init(&params, 3, w);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < N; i++) {
        sum += w[i] - 0.5;
        squares += (w[i] - 0.5) * (w[i] - 0.5);
    }
    assert_true(fabs(sum / N) <= 6 * 0.02 / sqrt(N));
    assert_true(fabs(squares / N - 0.02 * 0.02) <= 6 * 0.02 * 0.02 * sqrt(2.0 / N));
    free(w);
    params_free(&params);
}

TESTS(NULL, NULL)
