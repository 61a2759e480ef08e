// test_diff: build/diff as its user runs it: verdicts, numbers, first tensor, histogram, exit status; and the bound
// that it derives, at its edges.
#include "test/test.h"
#define PROGRAM "diff"

#include "ckpt_flat.h"
#include "base/disk.h"
#include "base/rng.h"
#include "tools/safetensors.h"
#include "program.h"
#include "dev/check/diff.h"

#include <sys/wait.h>

static void put_tensors(const char *name, const SafeTensor *t, size_t n, const SafeMeta *meta)
{
    assert_true(safetensors_write(in_dir(name), t, n, meta, meta != NULL, NULL, NULL, NULL, 0));
}

// A file of one tensor "x" of n elements.
static void put(const char *name, SafeDtype dtype, const void *data, size_t n)
{
    put_tensors(name, &(SafeTensor){.name = "x", .dtype = dtype, .ndim = 1, .shape = &n, .data = data}, 1, NULL);
}

static void put_floats(const char *name, const float *x, size_t n) { put(name, ST_F32, x, n); }

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

TEST(test_identical)
{
    float x[3] = {1, NAN, -0.0f};
    put_floats("a", x, 3);
    put_floats("b", x, 3);
    expect_run("a b", 0, "bound: equal bits");
    says("identical: 1 tensors, 3 elements");
    says("note: 1 elements are the same NaN on both sides");
    expect_run("a b --rtol 0", 0, "");
}

// Each row: two numbers, options, exit status. A bound holds exactly at its edge and breaks just beyond.
TEST(test_bounds)
{
    const float next = nextafterf(1, 2), inf = INFINITY;
    const struct {
        float a, b;
        const char *options;
        int status;
    } rows[] = {
        {1, next, "", 1},
        {1, next, "--rtol 1e-7", 1},  // 2^-23 = 1.19e-7, relative to b
        {1, next, "--rtol 1.2e-7", 0}, {1.5f, 1.25f, "--atol 0.25", 0}, {1.5f, 1.25f, "--atol 0.2499", 1},
        {1.5f, 1.25f, "--rtol 0.2", 0}, // 0.25 <= 0.2 * 1.25: B is the reference
        {1.25f, 1.5f, "--rtol 0.16", 1},
        {1.25f, 1.5f, "--rtol 0.1 --atol 0.1", 0}, // 0.25 <= 0.1 + 0.15
        {0, -0.0f, "", 1}, {0, -0.0f, "--atol 0", 0}, {NAN, 1, "--rtol 1e30 --atol 1e30", 1},
        {1, NAN, "--rtol 1e30 --atol 1e30", 1}, {NAN, NAN, "", 0}, {NAN, -NAN, "--rtol 1e30", 1},
        {inf, inf, "--rtol 1", 0}, {inf, -inf, "--rtol 1e30 --atol 1e30", 1}, {inf, 1, "--rtol 1e30 --atol 1e30", 1},
        {1, inf, "--rtol 1e30", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_floats("a", &rows[i].a, 1);
        put_floats("b", &rows[i].b, 1);
        expect_run(formatted("a b %s", rows[i].options), rows[i].status, "");
    }
}

// Distances in ULPs: one, across a power of two, across zero, the two zeros, and NaN.
TEST(test_histogram)
{
    float a[8] = {1, 1, 1, from_bits(1), 0, 5, 1, NAN};
    float b[8] = {1, from_bits(0x3f800001), from_bits(0x3f7fffff), from_bits(0x80000001), -0.0f, 5,
                  from_bits(0x3f800005), 1};
    put_floats("a", a, 8);
    put_floats("b", b, 8);
    expect_run("a b", 1, "  0                             3"); // 1, 5 and the two zeros
    says("  1                             2"); // to either side of 1
    says("  2-3                           1"); // smallest denormals of both signs
    says("  4-7                           1");
    says("  NaN on one side               1");
    says("first out of bound: x (8), 6 of 8 elements");
    says("[7]                                            nan               1"
           "             7fc00000 3f800000"); // the worst
    says("(8)      nan      nan        1          5        6 OUT");
    says("DIFFERENT: first at x; 1 of 1 tensors out of bound");
}

TEST(test_dtypes)
{
    uint16_t bf16[2] = {0x3f80, 0xc000}, bf16_next[2] = {0x3f81, 0xc000};
    uint16_t f16[6] = {0x3c00, 0xc000, 1, 0x7c00, 0x7bff, 0x83ff};
    float f32[2] = {1, -2}, f16_as_f32[6] = {1, -2, 0x1p-24f, INFINITY, 65504, -1023 * 0x1p-24f};
    double f64[2] = {1, -2};
    int64_t big[2] = {INT64_MAX, INT64_MIN}, bigger[2] = {INT64_MAX - 1, INT64_MAX};
    int8_t i8[2] = {-1, 3}, i8b[2] = {1, 3};
    const struct {
        const char *name;
        SafeDtype dtype;
        const void *data;
        size_t n;
    } files[] = {{"bf16", ST_BF16, bf16, 2}, {"bf16_next", ST_BF16, bf16_next, 2}, {"f32", ST_F32, f32, 2},
                 {"f64", ST_F64, f64, 2}, {"f16", ST_F16, f16, 6}, {"f16_as_f32", ST_F32, f16_as_f32, 6},
                 {"big", ST_I64, big, 2}, {"bigger", ST_I64, bigger, 2}, {"i8", ST_I8, i8, 2}, {"i8b", ST_I8, i8b, 2}};
    for (int i = 0; i < 10; i++) put(files[i].name, files[i].dtype, files[i].data, files[i].n);
    expect_run("bf16 f32", 1, "dtype is BF16, F32 in B"); // equal values, but not the same bits
    expect_run("bf16 f32 --atol 0", 0, "");
    expect_run("f64 f32 --atol 0", 0, "");
    expect_run("f16 f16_as_f32 --atol 0", 0, "");
    expect_run("bf16 bf16_next", 1, "   0.0078   0.0078        0          1        1 OUT"); // one ULP of bf16 is 2^-7
    expect_run("big bigger", 1, " 18446744073709551615        2 OUT"); // INT64_MIN to INT64_MAX
    expect_run("big bigger --atol 1", 1, "");
    expect_run("i8 i8b --atol 2", 0, "");
    expect_run("i8 i8b --atol 1.9", 1, "");
}

// Missing names and shapes are differences; the first one reported is the first in execution order.
TEST(test_names_shapes_order)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {1, 2, 3, 5};
    SafeTensor a[] = {
        {.name = "layers.2", .dtype = ST_F32, .ndim = 2, .shape = (size_t[]){2, 2}, .data = x},
        {.name = "layers.10", .dtype = ST_F32, .ndim = 2, .shape = (size_t[]){2, 2}, .data = x},
        {.name = "last", .dtype = ST_F32, .ndim = 1, .shape = (size_t[]){4}, .data = x}};
    SafeTensor b[] = {a[0], a[1], a[2]};
    b[0].data = b[1].data = y;
    put_tensors("a", a, 3, NULL);
    put_tensors("b", b, 3, NULL);
    expect_run("a b", 1, "");
    // Not layers.10, which stands first in the file.
    says("first out of bound: layers.2 (2,2), 1 of 4 elements");
    says("  [1,1]                                            4               5             40800000 40a00000");
    says("2 of 3 tensors out of bound");
    expect_run("a b --atol 1", 0,
               "within: 2 of 3 tensors differ, 2 of 12 elements; at most 1 of the bound, at layers.2");
    b[1].shape = (size_t[]){4, 1};
    put_tensors("b", b, 2, NULL);
    expect_run("a b --atol 9", 1, "shape is (4,1) in B");
    says("not in B");
    expect_run("b a --atol 9", 1, "not in A");
    says("first out of bound: layers.10 (4,1)\n");
    // Something against nothing, and nothing against nothing: neither is agreement.
    put_tensors("b", b, 0, NULL);
    expect_run("b a", 1, "");
    expect_run("a b", 1, "");
    expect_run("b b", 1, "no tensor in either");
}

static int shape_same(const Params *params, const Param *row, size_t dim[PARAM_DIMS])
{
    (void)params;
    memcpy(dim, row->dim, sizeof row->dim);
    return row->ndim;
}

TEST(test_checkpoints)
{
    char error[512];
    Params params = {0};
    params_add(&params, 0, "w", 2, 2, 2, 0, 0, true, 0);
    float w[4] = {1, 2, 3, 4}, m[4] = {0}, v[4] = {0};
    CkptState s = {.step = 1};
    CkptArray moments[2] = {{"exp_avg", ST_F32, shape_same, m, sizeof m},
                            {"exp_avg_sq", ST_F32, shape_same, v, sizeof v}};
    for (int i = 0; i < 2; i++, v[3] = 1) { // the two runs differ in exp_avg_sq alone
        char *run_dir = in_dir(formatted("run%d", i));
        assert_true(flat_save(run_dir, &s, &params, w, moments, 2, 1, error, sizeof error));
    }
    params_free(&params);
    expect_run("run0 run0/checkpoints/step_00000001", 0, "identical: 3 tensors");
    expect_run("run0 run1", 1, "first out of bound: exp_avg_sq.w");
    expect_run("run0/checkpoints/step_00000001/model.safetensors run1/checkpoints/step_00000001/model.safetensors",
        0, "");
    expect_run("run0 run2", 1, "run2: cannot open");
}

// ---- another program's file, whose tensors have a dump's names

#pragma GCC diagnostic ignored "-Wmissing-field-initializers" // what a row leaves out is 0
enum { TOKENS = 64, WIDTH = 32 };

typedef struct {
    const char *name;
    float factor, noise; // of a: b times the factor, and random errors of this size
    float size;          // of b; 0: 1
    size_t last;         // b is 0 after the first `last` tokens; 0: it is not
    float mean;          // what all of b have in common
} Theirs;

// Files a and b of the tensors, (1, TOKENS, WIDTH) each; b has those before `only_a` only.
static void put_theirs_before(const Theirs *theirs, int n, int only_a, const char *dtype, const char *before)
{
    enum { N = TOKENS * WIDTH };
    static const size_t shape[] = {1, TOKENS, WIDTH};
    SafeMeta meta[] = {{"state_before", before}, {"dtype", dtype}};
    float *a = malloc((size_t)n * N * sizeof *a), *b = malloc((size_t)n * N * sizeof *b);
    SafeTensor at[8], bt[8];
    int n_meta = dtype ? 2 : 1;
    assert_true(a && b && n <= 8);
    for (int k = 0; k < n; k++) {
        float *x = a + k * N, *y = b + k * N;
        for (size_t i = 0; i < N; i++) {
            float size = theirs[k].last && i >= theirs[k].last * WIDTH ? 0 : theirs[k].size > 0 ? theirs[k].size : 1;
            y[i] = theirs[k].mean + size * (float)rng_normal(rng_make(1, theirs[k].name, 0), i);
            x[i] = y[i] * theirs[k].factor + theirs[k].noise * (float)rng_normal(rng_make(2, theirs[k].name, 0), i);
        }
        at[k] = bt[k] = (SafeTensor){.name = theirs[k].name, .dtype = ST_F32, .ndim = 3, .shape = shape, .data = x};
        bt[k].data = y;
    }
    assert_true(safetensors_write(in_dir("a"), at, (size_t)n, meta, n_meta, NULL, NULL, NULL, 0));
    assert_true(safetensors_write(in_dir("b"), bt, (size_t)only_a, &(SafeMeta){"state_before", "0"}, 1, NULL, NULL,
                                  NULL, 0));
    free(a);
    free(b);
}

static void put_theirs(const Theirs *theirs, int n, int only_a, const char *dtype)
{
    put_theirs_before(theirs, n, only_a, dtype, "0");
}

TEST(test_files_of_others)
{
    const Theirs sound[] = {{"forward.layers.0.out", 1, 1e-7f}, {"grad.layers.0.q", 1, 2e-7f}, {"other", 5}};
    put_theirs(sound, 3, 2, NULL);
    expect_run("a b", 0, "(A fp32, B fp32)");
    says("rounding: 2 of 2 tensors differ");
    says("note: 1 tensors were not compared");
    expect_run("a b --json", 0, "{\"verdict\":\"rounding\",\"compared\":2,\"apart\":1,");
    expect_run("a b --only 'weight.*'", 3, "cannot tell: no tensor that both have");
    const Theirs scaled[] = {{"forward.layers.0.out", 1, 1e-7f}, {"grad.layers.0.q", 1.00001f, 1e-7f}};
    put_theirs(scaled, 2, 2, NULL); // well within the bound of each element
    expect_run("a b", 1, "OUT scale");
    says("DIFFERENT: first at grad.layers.0.q; 1 of 2");
    says("each number of A is that of B times 1 +1e-05");
    expect_run("a b --only 'forward.*'", 0, "");
    const Theirs narrow[] = {{"forward.layers.0.out", 1, 3e-3f}};
    put_theirs(narrow, 1, 1, "bf16-autocast");
    expect_run("a b", 0, "(A bf16-autocast, B fp32)");
    expect_run("a b --a-dtype fp32", 1, "");
    const Theirs foreign[] = {{"x", 1}, {"y", 1}};
    put_theirs(foreign, 2, 2, NULL);
    expect_run("a b", 0, "bound: equal bits");
}

// What one side lacks altogether is named, and so is an optimizer's state that was another one before.
TEST(test_cannot_tell)
{
    const Theirs step[] = {{"weight.x", 1}, {"loss", 1}, {"grad.x", 1, 2e-7f}, {"state.exp_avg.x", 1},
                           {"updated.x", 1}};
    put_theirs(step, 5, 3, NULL);
    for (int k = 0; k < 2; k++) {
        expect_run(k ? "b a" : "a b", 3, "cannot tell: not compared: state, updated (--only PATTERN judges the others "
                                         "alone); 1 of 3 tensors differ, ");
        says("; 2 not compared; a factor on all of a tensor would be seen from 1 +- ");
    }
    expect_run("a b --only 'weight.*' --only 'grad.*'", 0, "rounding: 1 of 2 tensors differ");
    expect_run("a b --json", 3, "\"not_compared\":\"state, updated\"");
    put_theirs_before(step, 5, 5, NULL, "1f");
    expect_run("a b", 3, "cannot tell: the optimizer's state already differed before this step: begin both with ");
    put_theirs((Theirs[]){{"weight.x", 2}}, 1, 1, NULL);
    expect_run("a b", 3, "cannot tell: the weights already differed before this step: start both from the same "
                         "checkpoint: COMMAND OF B --ckpt.init=a\n");
    put_theirs(step, 5, 5, NULL);
    expect_run("a b", 0, "rounding: 1 of 5");
}

// The factor with which the verdict's line ends: half of it is rounding, three times as much is not.
TEST(test_what_would_be_seen)
{
    Theirs step[] = {{"forward.layers.0.out", 1, 3e-3f}};
    put_theirs(step, 1, 1, "bf16-autocast");
    expect_run("a b", 0, "; a factor on all of a tensor would be seen from 1 +- ");
    float seen = strtof(strstr(output, "1 +- ") + 5, NULL);
    says(" on (forward.layers.0.out), in half of those that differ from 1 +- ");
    for (int k = 0; k < 2; k++) {
        step[0].factor = 1 + (k ? 3 : 0.5f) * seen;
        put_theirs(step, 1, 1, "bf16-autocast");
        expect_run("a b", k, k ? "DIFFERENT: first at forward.layers.0.out; 1 of 1" : "rounding: ");
    }
}

// Of honest pairs that were once called different, what they had in common, and the like that is an error.
TEST(test_rounding_that_elements_share)
{
    static const struct {
        const char *dtype, *first; // NULL: rounding
        int n;
        Theirs theirs[3];
    } rows[] = {
        // A gradient that is the sum of a few tokens has their errors; one of many tokens has not.
        {NULL, NULL, 2, {{"backward.head", 1, 1e-7f, 1, 4}, {"grad.final_norm.weight", 1 - 4e-6f, 1e-7f}}},
        {NULL, "grad.final_norm.weight", 2,
         {{"backward.head", 1, 1e-7f, 1}, {"grad.final_norm.weight", 1 - 4e-6f, 1e-7f}}},
        // Clipping divides every gradient by the norm of all of them, which is rounded, too.
        {"bf16-autocast", NULL, 2,
         {{"grad.head.weight", 1.001f, 0.02f}, {"state.exp_avg.x.weight", 1 / 1.001f, 0, 1e-3f}}},
        {"bf16-autocast", "state.exp_avg.x.weight", 2,
         {{"grad.head.weight", 1, 0.02f}, {"state.exp_avg.x.weight", 1 / 1.04f, 0, 1e-3f}}},
        // A bias whose gradient is rounding error alone; another optimizer has its matrix.
        {NULL, NULL, 3, {{"grad.x.weight", 1, 1e-7f}, {"grad.x.bias", 1, 1e-7f, 1e-7f},
                         {"state.exp_avg.x.bias", 1, 1e-9f, 1e-9f}}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_theirs(rows[i].theirs, rows[i].n, rows[i].n, rows[i].dtype);
        expect_run("a b", rows[i].first != NULL, rows[i].first ? "DIFFERENT: first at " : "");
        if (rows[i].first) says(rows[i].first);
        else if (i > 0) expect_run("a b --only 'state.*'", 0, "");
    }
}

// The norm of the gradients clips them all: as far as the two sides' norms are apart, their states may be. Here it is
// the gradient of a few tokens that makes the norms differ.
TEST(test_norms_that_clip)
{
    const char *few = "backward.head", *many = "backward.layers.0", *top = "backward.layers.1";
    for (int i = 0; i < 4; i++) {
        // The whole norm, or that of the classifier, which adaptive clipping leaves; and squares: twice as far.
        bool head = i == 1, square = i == 2, same = i == 3;
        float by = 1 - 1.6e-5f, own = square ? 1 - 2.4f * 1.6e-5f : by;
        const Theirs clipped[] = {{"forward.layers.5.out", 1, 0, 1}, // six layers: bounds are wide enough
                                  {few, 1, 0, 1, 2, 0}, {many, 1, 0, 1, 0, 0}, {top, 1, 0, 1, 0, 0},
                                  {"grad.head.weight", same ? 1 : by, 1e-8f, 1},
                                  {"grad.other.weight", 1, 0, head ? 100 : 1e-3f},
                                  {square ? "state.exp_avg_sq.layers.0.x.weight" : "state.exp_avg.layers.0.x.weight",
                                   own, 1e-8f, 0, 0, 0}};
        put_theirs(clipped, 7, 7, NULL);
        expect_run("a b", same, "");
        if (same) says("DIFFERENT: first at state.exp_avg.layers.0.x.weight");
    }
}

// What all keys, or all values, have in common cancels in the gradients of queries and keys, but not its rounding.
TEST(test_what_attention_cancels)
{
    const struct {
        float v, k, norm; // what all tokens have in common
        const char *first;
    } rows[] = {{10, 10, 10, NULL},
                {0, 0, 0, "grad.layers.0.attn.q.weight"},
                {10, 0, 10, "grad.layers.0.attn.q.weight"},
                {10, 10, 0, "grad.layers.0.attn.k.weight"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const Theirs step[] = {{"forward.layers.0.norm1", 1, 1e-7f, 0, 0, rows[i].norm},
                               {"forward.layers.0.k", 1, 1e-7f, 0, 0, rows[i].k},
                               {"forward.layers.0.v", 1, 1e-7f, 0, 0, rows[i].v},
                               {"grad.layers.0.attn.q.weight", 1, 1e-4f}, {"grad.layers.0.attn.k.weight", 1, 1e-4f},
                               {"state.exp_avg.layers.0.attn.q.weight", 1, 1e-4f},
                               {"grad.layers.0.attn.v.weight", 1, 1e-4f}};
        char *first = formatted("DIFFERENT: first at %s;", rows[i].first);
        put_theirs(step, 6, 6, NULL);
        expect_run("a b", rows[i].first != NULL, "");
        if (rows[i].first) says(first);
        if (rows[i].first) continue;
        put_theirs(step, 7, 7, NULL); // the gradient of the values is no such difference
        expect_run("a b", 1, "DIFFERENT: first at grad.layers.0.attn.v.weight; 1 of 7");
    }
}

TEST(test_command_line)
{
    static const struct {
        const char *arguments;
        int status;
        const char *words;
    } rows[] = {{"", 2, ""}, {"a", 2, ""}, {"a a a", 2, ""}, {"a a --rtol", 2, ""}, {"a a --rtol x", 2, ""},
                {"a a --rtol 1e-3x", 2, ""}, {"a a --rtol -1", 2, ""}, {"a a --atol nan", 2, ""},
                {"a a --atol inf", 2, ""}, {"a a --exact --rtol 1", 2, ""}, {"--help", 0, ""},
                {"a a --bound 3", 2, "--bound: no such option"}, {"a a --a-dtype int8", 2, "--a-dtype 'int8' (fp32, "},
                {"a nothing", 1, "error: nothing: cannot open: No such file"}};
    put_floats("a", (float[]){1}, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_run(rows[i].arguments, rows[i].status, rows[i].words);
}

// ---- choices of experts

// What two programs say of a model with two layers of experts, 2 sequences of 4 tokens, 3 experts of which 2 are used.
typedef struct {
    float router[8][3], keys[8][3], down[8][4], experts[8][2], out[8][2], norm[8][2], router1[8][3];
    float loss[8], backward[8][2], grad[4];
    int32_t choice[8][2], choice1[8][2];
    bool has_keys;
} Routed;

static Routed routed(void)
{
    Routed r = {.has_keys = false};
    for (size_t n = 0; n < 8; n++) {
        const float z[3] = {1, 0.5f, -1};
        for (size_t e = 0; e < 3; e++) r.router[n][e] = r.router1[n][e] = r.keys[n][e] = z[e];
        r.choice[n][1] = r.choice1[n][1] = 1;
        for (size_t c = 0; c < 2; c++) r.experts[n][c] = r.out[n][c] = r.norm[n][c] = r.backward[n][c] = 1 + (float)n;
        r.loss[n] = 2;
        for (size_t c = 0; c < 4; c++) r.down[n][c] = 0.5f;
    }
    for (size_t i = 0; i < 4; i++) r.grad[i] = 1;
    return r;
}

static void put_routed(const char *name, const Routed *r)
{
    static const size_t three[3] = {2, 4, 3}, two[3] = {2, 4, 2}, slots[3] = {2, 4, 4}, four[1] = {4};
    const struct {
        const char *name;
        const void *data;
        const size_t *shape;
    } rows[] = {{"forward.layers.0.router", r->router, three}, {"forward.layers.0.choice", r->choice, two},
                {"forward.layers.0.experts_down", r->down, slots}, {"forward.layers.0.experts", r->experts, two},
                {"forward.layers.0.out", r->out, two}, {"forward.layers.1.norm1", r->norm, two},
                {"forward.layers.1.router", r->router1, three}, {"forward.layers.1.choice", r->choice1, two},
                {"loss", r->loss, two}, {"backward.layers.0", r->backward, two},
                {"grad.layers.0.router.weight", r->grad, four}, {"forward.layers.0.keys", r->keys, three}};
    SafeTensor t[12];
    for (int i = 0; i < 12; i++)
        t[i] = (SafeTensor){.name = rows[i].name, .dtype = strstr(rows[i].name, "choice") ? ST_I32 : ST_F32,
                            .ndim = rows[i].shape == four ? 1 : i == 8 ? 2 : 3, .shape = rows[i].shape,
                            .data = rows[i].data};
    put_tensors(name, t, r->has_keys ? 12 : 11, NULL);
}

static void expect_routed(const Routed *a, const Routed *b, int status, const char *text)
{
    put_routed("ra", a), put_routed("rb", b);
    expect_run("ra rb", status, text);
}

// Token 2 of the first sequence has a tie of experts 1 and 2 but for rounding.
static void make_tie(Routed *a, Routed *b)
{
    *a = *b = routed();
    b->router[2][2] = 0.5f - 1e-7f, a->router[2][2] = 0.5f + 1e-7f;
    a->choice[2][1] = 2;
}

TEST(test_ties_of_experts)
{
    Routed a, b;
    make_tie(&a, &b);
    for (size_t n = 2; n < 4; n++) { // what follows: the sum, the next layer from it on, choices there
        a.norm[n][0] = 9, a.loss[n] = 5, a.router1[n][2] = 7, a.choice1[n][0] = 2;
        if (n == 2) a.experts[n][1] = a.out[n][1] = 9;
    }
    for (size_t n = 0; n < 4; n++) a.backward[n][1] = 9;
    a.grad[2] = 9;
    expect_routed(&a, &b, 3, "cannot tell: not compared: grad (--only PATTERN judges the others alone); ");
    says("note: layers.0: 1 of 8 tokens chose other experts, 0 the same in another order: ties, but for rounding");
    says("note: 1 gradients, states and updates were not compared");
    assert_null(strstr(output, "note: layers.1"));
    expect_run("ra rb --json", 3, "\"chose_otherwise\":1");
    expect_run("ra rb --exact", 1, "");

    // What does not follow from it is compared.
    float *places[] = {&a.out[3][0], &a.norm[1][0], &a.norm[4][0], &a.loss[1], &a.backward[4][0], &a.router[2][0]};
    const char *first[] = {"forward.layers.0.out;", "forward.layers.1.norm1;", "forward.layers.1.norm1;", "loss;",
                           "backward.layers.0;", "forward.layers.0.router;"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        float was = *places[i];
        *places[i] += 3;
        expect_routed(&a, &b, 1, formatted("DIFFERENT: first at %s", first[i]));
        *places[i] = was;
    }
    // Another slot of the sequence, which one side's capacity drops; where no token chose otherwise, an error.
    a.down[3][2] = a.down[3][3] = 0, a.experts[3][0] = a.out[3][0] = 2;
    expect_routed(&a, &b, 3, "note: layers.0: 1 of 8 tokens chose other experts");
    a.down[6][2] = a.down[6][3] = 0;
    expect_routed(&a, &b, 1, "DIFFERENT: first at forward.layers.0.experts_down;");
    a.down[6][2] = a.down[6][3] = 0.5f;
    a.choice1[5][1] = 2; // another token, whose scores are 1.5 apart
    expect_routed(&a, &b, 1, "DIFFERENT: first at forward.layers.1.choice;");
    says("note: layers.1: 1 of 8 tokens chose other experts, 0 the same in another order: 1 of them by more than ");
    says("sample 1, token 1, choice 1");
}

TEST(test_choices_that_are_no_ties)
{
    Routed a, b;
    make_tie(&a, &b);
    b.router[2][2] = a.router[2][2] = 0.25f; // of 0.5
    expect_routed(&a, &b, 1, "DIFFERENT: first at forward.layers.0.choice;");
    expect_routed(&b, &a, 1, "DIFFERENT: first at forward.layers.0.choice;"); // the reference may be wrong, too
    // In another order: near a tie the sums are alike, and gradients are compared.
    a = b = routed();
    b.router[2][1] = 1 - 1e-7f, a.router[2][1] = 1 + 1e-7f;
    a.choice[2][0] = 1, a.choice[2][1] = 0;
    expect_routed(&a, &b, 0, "note: layers.0: 0 of 8 tokens chose other experts, 1 the same in another order: ties");
    a.experts[2][0] = 9;
    expect_routed(&a, &b, 1, "DIFFERENT: first at forward.layers.0.experts;");
    a.experts[2][0] = b.experts[2][0], a.grad[0] = 9;
    expect_routed(&a, &b, 1, "DIFFERENT: first at grad.layers.0.router.weight;");
    a.grad[0] = 1, b.router[2][1] = a.router[2][1] = 0.75f;
    expect_routed(&a, &b, 1, "DIFFERENT: first at forward.layers.0.choice;");
    // With biases the keys decide, whatever the router's outputs are.
    make_tie(&a, &b);
    a.has_keys = b.has_keys = true;
    expect_routed(&a, &b, 1, "DIFFERENT: first at forward.layers.0.choice;");
    a.keys[2][2] = b.keys[2][2] = 0.5f;
    a.router[2][2] = b.router[2][2] = -1;
    expect_routed(&a, &b, 3, "ties, but for rounding");
}

// ---- diff stats: the derived bound at its edges, where errors hide (one element, one row, all a little), NaN, ULPs of
// types that differ, updates, and random rounding, which must pass.

enum { ROWS = 40, COLUMNS = 50, N = ROWS * COLUMNS };
static const size_t shape[] = {ROWS, COLUMNS};

static SafeTensor tensor_of(const float *x)
{
    return (SafeTensor){.name = "x", .dtype = ST_F32, .ndim = 2, .shape = shape, .data = x, .n_elems = N,
                        .n_bytes = N * sizeof *x};
}

// Normal numbers with rms 1; one row is a hundred times larger, one a hundred times smaller.
static void fill(float *x)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)rng_normal(rng_make(1, "x", 0), i);
        if (i / COLUMNS == 3) x[i] *= 100;
        if (i / COLUMNS == 4) x[i] /= 100;
    }
}

static double ratio(const float *a, const float *b, double error, double floor)
{
    SafeTensor x = tensor_of(a), y = tensor_of(b);
    DiffStats s = diff_stats(&x, &y, ST_F32, ST_F32,
                             (DiffStatsBound){.mode = DIFF_STATS_DERIVED, .error = error, .floor = floor});
    assert_int_equal(s.n, N);
    assert_true((s.n_out > 0) <= !(s.ratio <= 1));
    return s.ratio;
}

static double rms(const float *x, size_t n, size_t stride)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i * stride] * x[i * stride];
    return sqrt(sum / (double)n);
}

// Errors of the size that is expected are 1 / S = a quarter of the bound of the whole; ten times that is out.
TEST(test_size_of_errors)
{
    const double e = 1e-4;
    float a[N], b[N];
    fill(b);
    for (int k = 0; k < 2; k++) {
        double scale = (k ? 10 * e : e) * rms(b, N, 1);
        for (size_t i = 0; i < N; i++) a[i] = (float)(b[i] + scale * rng_normal(rng_make(2, "error", 0), i));
        double r = ratio(a, b, e, 0);
        assert_true(k ? r > 1 : r > 0.2 && r < 0.3);
    }
}

// One element off: by up to 4 e sqrt(2 ln(2e6 N)) times the largest of its own size, its row's, its column's and the
// whole's.
TEST(test_one_element)
{
    const double e = 1e-5, limit = 4 * e * sqrt(2 * log(2e6 * N));
    const size_t at[] = {0, 17, 4 * COLUMNS + 1, 3 * COLUMNS + 2, N - 1};
    float a[N], b[N];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int k = 0; k < 2; k++) {
            fill(b);
            for (size_t r = 0; r < ROWS; r++) b[r * COLUMNS + 17] *= 5; // a column that is larger
            double row = rms(b + at[i] / COLUMNS * COLUMNS, COLUMNS, 1);
            double column = rms(b + at[i] % COLUMNS, ROWS, COLUMNS);
            double scale = fmax(fmax(row, column), fmax(rms(b, N, 1), fabs(b[at[i]])));
            memcpy(a, b, sizeof a);
            a[at[i]] += (float)((k ? 1.01 : 0.99) * limit * scale);
            double got = ratio(a, b, e, 0);
            if (k == 0 ? !(got > 0.98 && got <= 1) : got <= 1)
                fail_msg("element %zu, %d: %g of the bound", at[i], k, got);
        }
}

TEST(test_not_finite)
{
    float a[N], b[N];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        fill(b);
        memcpy(a, b, sizeof a);
        a[7] = bad[i];
        assert_false(ratio(a, b, 1e30, 0) <= 1);
        assert_false(ratio(b, a, 1e30, 0) <= 1);
        assert_true(ratio(a, a, 1e-5, 0) == 0);
    }
}

// Neighbours in bf16 are one ULP apart, whoever is compared with them, and half of one is rounded.
TEST(test_ulps_of_the_coarser)
{
    const uint16_t narrow[] = {0x3f80, 0x3f81, 0x4000, 0xbf80};                 // 1, 1 + 2^-7, 2, -1
    const float wide[] = {1, 1, 2 + 0x1p-8f, -1 + 0x1p-9f};
    const size_t n = 4;
    SafeTensor a = {.dtype = ST_BF16, .ndim = 1, .shape = &n, .data = narrow, .n_elems = n, .n_bytes = 8};
    SafeTensor b = {.dtype = ST_F32, .ndim = 1, .shape = &n, .data = wide, .n_elems = n, .n_bytes = 16};
    DiffStats s = diff_stats(&a, &b, ST_BF16, ST_F32, (DiffStatsBound){.mode = DIFF_STATS_GIVEN});
    assert_int_equal(s.bucket[0], 2); // 1; 2 + 2^-8 is a quarter of bf16's step at 2
    assert_int_equal(s.bucket[1], 2); // 1 + 2^-7 against 1; -1 + 2^-9 is half of the step below 1
    s = diff_stats(&b, &b, ST_BF16, ST_F32, (DiffStatsBound){.mode = DIFF_STATS_GIVEN});
    assert_int_equal(s.bucket[0], 4);
    assert_int_equal(diff_stats_coarser(ST_F32, ST_F16), ST_F16);
    assert_int_equal(diff_stats_coarser(ST_BF16, ST_F16), ST_BF16);
}

// An update may turn where the gradient's sign is not certain, and not elsewhere.
TEST(test_updates)
{
    const size_t n = 3;
    const float grad_a[] = {1, -1e-9f, 1}, grad_b[] = {1, 1e-9f, 1}, weight[] = {1, 1, 1};
    const struct {
        float step[3];
        bool within;
    } rows[] = {{{0.1f, 0.1f, -0.1f}, true}, {{0.1f, -0.1f, -0.1f}, true}, {{-0.1f, 0.1f, -0.1f}, false},
                {{0.11f, 0.1f, -0.1f}, false}, {{0, 0, 0}, false}, {{NAN, 0.1f, -0.1f}, false}};
    SafeTensor t[4];
    float a[3], b[3] = {1.1f, 1.1f, 0.9f};
    const float *data[] = {a, b, grad_a, grad_b};
    for (int i = 0; i < 4; i++)
        t[i] = (SafeTensor){.dtype = ST_F32, .ndim = 1, .shape = &n, .data = data[i], .n_elems = n, .n_bytes = 12};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int k = 0; k < 3; k++) a[k] = weight[k] + rows[i].step[k];
        DiffStats s = diff_stats(&t[0], &t[1], ST_F32, ST_F32,
                                 (DiffStatsBound){.mode = DIFF_STATS_UPDATE, .error = 1e-6, .most = 0.1,
                                                  .grad_a = &t[2], .grad_b = &t[3]});
        if ((s.ratio <= 1 && !s.n_out) != rows[i].within) fail_msg("row %zu: %g of the bound", i, s.ratio);
    }
}

TEST(test_worst_come_first)
{
    const size_t n = 9;
    const float a[] = {0, 3, 1, NAN, 5, 2, 4, 7, 6}, b[9] = {0};
    SafeTensor x = {.dtype = ST_F32, .ndim = 1, .shape = &n, .data = a, .n_elems = n}, y = x;
    y.data = b;
    DiffStats s = diff_stats(&x, &y, ST_F32, ST_F32, (DiffStatsBound){.mode = DIFF_STATS_GIVEN, .atol = 1});
    assert_int_equal(s.n_worst, DIFF_STATS_WORST);
    const size_t order[] = {3, 7, 8, 4, 6};
    for (int i = 0; i < DIFF_STATS_WORST; i++) assert_int_equal(s.worst[i], order[i]);
    assert_int_equal(s.n_out, 7);
    assert_int_equal(diff_stats_median(&s) > 20, 1);
}

TESTS(program_set_up, temp_dir_remove)
