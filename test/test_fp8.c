// test_fp8: per-tensor scales: which tensors have one, what they are from step to step, and what survives a
// resume.
//
// A scale is one float32 division of the format's largest number by an amax, so all comparisons are exact.

#include "test/test.h"

#include "expect_die.h"
#include "formats/fp8.h"

#include <float.h>

enum { Q = 1, DOWN = 5, Q1 = 6 }; // rows of the table

static Params table(void)
{
    Params p = {0};
    params_add(&p, 0, "embed.tokens.weight", 2, 10, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.attn.q.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.attn.k.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.attn.v.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.ffn_norm.weight", 1, 4, 0, 1, 0, false, -1);
    params_add(&p, 1, "layers.0.ffn.down.weight", 2, 4, 8, 0, 1, true, 1);
    params_add(&p, 2, "layers.1.attn.q.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 3, "head.weight", 2, 10, 4, 0, 1, true, 0);
    return p;
}

typedef struct {
    Fp8 *fp8;
} Case;

static Case open_case(Fp8Scaling scaling, int history, Params *params)
{
    *params = table();
    Case c = {.fp8 = fp8_create(scaling, history)};
    fp8_set_sites(c.fp8, params, NULL);
    return c;
}

static void close_case(Case *c, Params *params)
{
    fp8_free(c->fp8);
    params_free(params);
}

TEST(test_sites)
{
    Params p = table();
    Fp8 *all = fp8_create(FP8_CURRENT, 1), *some = fp8_create(FP8_CURRENT, 1);
    assert_false(fp8_runs(all, Q)); // none before they are set
    fp8_set_sites(all, &p, "");
    fp8_set_sites(some, &p, "layers.1.,ffn.down");
    const bool want_all[] = {false, true, true, true, false, true, true, false};
    const bool want_some[] = {false, true, true, true, false, false, false, false};
    for (int i = 0; i < p.n_rows; i++) {
        assert_int_equal(fp8_runs(all, i), want_all[i]);
        assert_int_equal(fp8_runs(some, i), want_some[i]);
    }
    assert_false(fp8_runs(all, -1));
    assert_false(fp8_runs(all, p.n_rows));
    fp8_free(all);
    fp8_free(some);
    params_free(&p);
}

static int keep(void *arg)
{
    Params p = table();
    fp8_set_sites(fp8_create(FP8_CURRENT, 1), &p, arg);
    return 0;
}

static int no_history(void *arg)
{
    fp8_create(FP8_DELAYED, *(int *)arg);
    return 0;
}

TEST(test_errors)
{
    expect_die(keep, "layers.7.", "'layers.7.' is in no name of a block's matrix");
    expect_die(keep, "ffn_norm", "'ffn_norm' is in no name"); // a vector
    expect_die(keep, "head", "'head' is in no name");         // never in fp8 anyway
    expect_die(keep, "ffn.down,,attn.q", "'' is no part");
    int zero = 0;
    expect_die(no_history, &zero, "amax history of 0 steps");
}

TEST(test_formats_by_role)
{
    assert_int_equal(fp8_format(FP8_INP), FORMAT_E4M3);
    assert_int_equal(fp8_format(FP8_WEIGHT), FORMAT_E4M3);
    assert_int_equal(fp8_format(FP8_DOUT), FORMAT_E5M2);
}

TEST(test_current_scale_is_of_this_tensor)
{
    Params p;
    Case c = open_case(FP8_CURRENT, 4, &p);
    for (int step = 0; step < 3; step++) {
        fp8_step_begin(c.fp8);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, 7.0f) == 448 / 7.0f);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, 0.1f) == 448 / 0.1f);
        assert_true(fp8_scale(c.fp8, Q, FP8_DOUT, 3e-6f) == 57344 / 3e-6f);
        assert_true(fp8_step_end(c.fp8));
    }
    assert_true(fp8_scale(c.fp8, Q, FP8_INP, 0) == 1); // zeros: any scale will do, and none is infinite
    for (float tiny = 1e-45f; tiny < 1e-30f; tiny *= 1000) {
        float s = fp8_scale(c.fp8, Q, FP8_WEIGHT, tiny);
        assert_true(s <= FLT_MAX && 1 / s > 0);
    }
    close_case(&c, &p);
}

// The scale of step s is the largest amax of steps s - history .. s - 1, whatever this step brings.
TEST(test_delayed_scale_follows_the_history)
{
    enum { HISTORY = 3, STEPS = 12 };
    const float amax[STEPS] = {2, 8, 4, 1, 0.5f, 0.25f, 16, 1, 1, 1, 1, 3};
    Params p;
    Case c = open_case(FP8_DELAYED, HISTORY, &p);
    for (int step = 0; step < STEPS; step++) {
        float top = 0;
        for (int k = step - HISTORY; k < step; k++)
            if (k >= 0 && amax[k] > top) top = amax[k];
        float want = step == 0 ? 448 / (amax[0] / 2) : 448 / top; // nothing known: this tensor's own
        fp8_step_begin(c.fp8);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, amax[step] / 2) == want);
        if (step > 0) { // a second micro-batch has the same scale, and its amax counts
            assert_true(fp8_scale(c.fp8, Q, FP8_INP, amax[step]) == want);
            assert_true(fp8_scale(c.fp8, Q, FP8_INP, amax[step] / 4) == want);
        } else {
            fp8_scale(c.fp8, Q, FP8_INP, amax[step]);
        }
        assert_true(fp8_step_end(c.fp8));
    }
    // Sites and roles do not mix: these were never seen.
    assert_true(fp8_scale(c.fp8, Q, FP8_WEIGHT, 7.0f) == 64);
    assert_true(fp8_scale(c.fp8, DOWN, FP8_INP, 7.0f) == 64);
    close_case(&c, &p);
}

// What runs between two steps leaves nothing behind.
TEST(test_evaluation_is_forgotten)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 2, &p);
    fp8_step_begin(c.fp8);
    fp8_scale(c.fp8, Q, FP8_INP, 2);
    assert_true(fp8_step_end(c.fp8));
    assert_true(fp8_scale(c.fp8, Q, FP8_INP, 1000) == 224); // evaluation, with an outlier
    assert_true(fp8_scale(c.fp8, Q, FP8_INP, INFINITY) == 224);
    for (int step = 0; step < 3; step++) {
        fp8_step_begin(c.fp8);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, 2) == 224);
        assert_true(fp8_step_end(c.fp8));
    }
    close_case(&c, &p);
}

// NaN and infinity mark the step; neither they nor the rest of that step enter the history.
TEST(test_bad_step)
{
    const float bad[] = {INFINITY, NAN};
    for (int i = 0; i < 2; i++)
        for (int scaling = FP8_CURRENT; scaling <= FP8_DELAYED; scaling++) {
            Params p;
            Case c = open_case((Fp8Scaling)scaling, 2, &p);
            fp8_step_begin(c.fp8);
            fp8_scale(c.fp8, Q, FP8_INP, 2);
            assert_true(fp8_step_end(c.fp8));
            fp8_step_begin(c.fp8);
            float s = fp8_scale(c.fp8, Q, FP8_INP, bad[i]);
            assert_true(s == (scaling == FP8_DELAYED ? 224 : 1));
            fp8_scale(c.fp8, Q, FP8_INP, 1e30f);
            assert_false(fp8_step_end(c.fp8));
            fp8_step_begin(c.fp8);
            assert_true(fp8_scale(c.fp8, Q, FP8_INP, 2) == 224);
            assert_true(fp8_step_end(c.fp8)); // the mark is gone
            close_case(&c, &p);
        }
}

// A step in which a tensor was not used, or was all zeros, is not a step of its history.
TEST(test_unused_tensor_keeps_its_history)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 2, &p);
    fp8_step_begin(c.fp8);
    fp8_scale(c.fp8, Q, FP8_DOUT, 7);
    fp8_step_end(c.fp8);
    for (int step = 0; step < 5; step++) {
        fp8_step_begin(c.fp8);
        if (step % 2) assert_true(fp8_scale(c.fp8, Q, FP8_DOUT, 0) == 8192);
        fp8_step_end(c.fp8);
    }
    assert_true(fp8_scale(c.fp8, Q, FP8_DOUT, 1) == 8192);
    close_case(&c, &p);
}

// A device that looks at its tensors by itself: it asks what is known, and what it noted comes when it is fetched.
static void fetch(Fp8 *fp8, void *amax)
{
    fp8_note(fp8, Q, FP8_INP, *(const float *)amax);
}

TEST(test_noted_elsewhere)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 2, &p);
    float amax = 7;
    c.fp8->fetch = fetch, c.fp8->fetch_arg = &amax;
    long changes = c.fp8->changes;
    fp8_step_begin(c.fp8);
    assert_true(c.fp8->changes > changes);
    changes = c.fp8->changes;
    assert_true(fp8_known(c.fp8, Q, FP8_INP) == 0);
    fp8_collect(c.fp8);
    assert_true(c.fp8->now[Q * FP8_ROLES + FP8_INP] == 7);
    assert_true(c.fp8->changes == changes); // what is known is what it was
    assert_true(fp8_step_end(c.fp8));
    assert_true(c.fp8->changes > changes && fp8_known(c.fp8, Q, FP8_INP) == 7);
    assert_true(fp8_scale_for(FP8_INP, 7) == 64);
    amax = INFINITY;
    fp8_step_begin(c.fp8);
    assert_false(fp8_step_end(c.fp8)); // which fetches
    assert_true(fp8_known(c.fp8, Q, FP8_INP) == 7);
    changes = c.fp8->changes;
    size_t n;
    fp8_state(c.fp8, &n); // may be written to
    assert_true(c.fp8->changes > changes);
    close_case(&c, &p);
}

// A copy scales as the original does, whatever it held before.
TEST(test_copy)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 3, &p);
    Fp8 *copy = fp8_create(FP8_DELAYED, 3);
    for (int step = 0; step < 3; step++) {
        fp8_step_begin(c.fp8);
        fp8_scale(c.fp8, Q, FP8_WEIGHT, 1 + (float)step);
        fp8_scale(c.fp8, DOWN, FP8_DOUT, NAN);
        fp8_copy(copy, c.fp8);
        assert_true(copy->bad && fp8_runs(copy, Q) && !fp8_runs(copy, p.n_rows - 1));
        assert_true(copy->now[Q * FP8_ROLES + FP8_WEIGHT] == 1 + (float)step);
        c.fp8->bad = false;
        assert_true(fp8_step_end(c.fp8));
        fp8_copy(copy, c.fp8);
        assert_true(fp8_known(copy, Q, FP8_WEIGHT) == 1 + (float)step);
        fp8_scale(copy, Q, FP8_WEIGHT, 100); // forgotten by the next copy
    }
    fp8_free(copy);
    close_case(&c, &p);
}

// Save after any step, restore into a fresh one: all later scales are the same.
TEST(test_resume)
{
    enum { STEPS = 9 };
    for (int stop = 0; stop < STEPS; stop++) {
        Params p, p2;
        Case whole = open_case(FP8_DELAYED, 4, &p), cut = open_case(FP8_DELAYED, 4, &p2);
        for (int step = 0; step < STEPS; step++) {
            if (step == stop) {
                size_t n, m;
                float *from = fp8_state(cut.fp8, &n);
                Fp8 *fresh = fp8_create(FP8_DELAYED, 4);
                fp8_set_sites(fresh, &p2, NULL);
                float *to = fp8_state(fresh, &m);
                assert_int_equal(n, m);
                assert_int_equal(n, 8 * FP8_ROLES * 4);
                memcpy(to, from, n * sizeof *to);
                fp8_free(cut.fp8);
                cut.fp8 = fresh;
            }
            fp8_step_begin(whole.fp8);
            fp8_step_begin(cut.fp8);
            for (int role = 0; role < FP8_ROLES; role++)
                for (int site = Q; site <= Q1; site += DOWN - Q) {
                    float amax = (float)((step * 7 + role * 3 + site) % 5) + 0.5f;
                    assert_true(fp8_scale(whole.fp8, site, (Fp8Role)role, amax) ==
                                fp8_scale(cut.fp8, site, (Fp8Role)role, amax));
                }
            assert_true(fp8_step_end(whole.fp8) && fp8_step_end(cut.fp8));
        }
        close_case(&whole, &p);
        close_case(&cut, &p2);
    }
}

TESTS(NULL, NULL)
