// test_optim: every optimizer over a whole parameter table: every element of every row once with its own row's decay,
// any cut and any number of threads with the same bits, gradients that are not finite, weights in less than fp32, bytes
// of state, and every rule against PyTorch or its authors' reference.
#include "formats/formats.h"
#include "dev/plan/plan.h"
#include "optim_case.h"
#include "ckpt_flat.h"
#include "expect_die.h"
#include "temp_dir.h"
#include "fixture.h"

#include <sys/stat.h>

// Not done here: there is no power to lose, and the real one is slow.
int fsync(int fd)
{
    (void)fd;
    return 0;
}

// ---- over a table

TEST(test_every_row_gets_its_update)
{
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c;
        case_open(&c, (OptimName)name, 2);
        for (int step = 1; step <= 5; step++) {
            case_fill(&c, (uint32_t)step);
            double sum = 0, lr = 0.01 * step;
            for (size_t i = 0; i < c.n; i++) sum += (double)c.model.grads[i] * c.model.grads[i];
            // spans of 1024 squares are added in floats: at most gam(1025) / 2 off, relatively
            assert_true(fabs(step_and_check(&c, lr, 1) - sqrt(sum)) <= gam(1025) * sqrt(sum));
            assert_int_equal(c.optim.step, step);
        }
        case_close(&c);
    }
}

// All gradients +-1/2: their squares add exactly, the norm is sqrt(n) / 2, and the factor is known to the bit.
TEST(test_clipping)
{
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c;
        case_open(&c, (OptimName)name, 1);
        const double norm = 0.5 * sqrt((double)c.n), clips[] = {1, norm / 2, norm, 2 * norm, 0};
        for (int i = 0; i < 10; i++) {
            double size = i < 5 ? 1 : 1024; // the second time as fp16 training has them: scaled up
            for (size_t k = 0; k < c.n; k++) c.model.grads[k] = (float)((k % 3 ? 0.5 : -0.5) * size);
            c.optim.set.clip = (float)clips[i % 5];
            c.optim.grad_scale = 1 / size;
            double clip = c.optim.set.clip;
            float scale = (float)((clip > 0 && norm > clip ? clip / norm : 1) / size);
            assert_true(step_and_check(&c, 0.01, scale) == norm); // before clipping
        }
        case_close(&c);
    }
}

static void copy_case(Case *to, const Case *from)
{
    memcpy(to->model.weights, from->model.weights, from->n * sizeof(float));
    for (int s = 0; s < from->optim.kind->n_states; s++)
        memcpy(to->optim.state[s].data, from->optim.state[s].data, from->optim.state[s].n_bytes);
    to->optim.step = from->optim.step;
}

TEST(test_not_finite_changes_nothing)
{
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f}; // the last one's square is too large
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c, before;
        case_open(&c, (OptimName)name, 2);
        case_open(&before, (OptimName)name, 1);
        case_fill(&c, 1);
        optim_step(&c.optim, &c.model, 0.01);
        copy_case(&before, &c);
        for (int i = 0; i < 4; i++) {
            case_fill(&c, 2);
            c.model.grads[i == 0 ? c.n - 1 : (size_t)i * 17] = bad[i];
            assert_false(isfinite(optim_step(&c.optim, &c.model, 0.01)));
            assert_int_equal(c.optim.step, 1);
            expect_same(&c, &before);
            for (size_t j = 0; j < c.n; j++) assert_true(c.model.grads[j] == 0);
        }
        case_close(&c);
        case_close(&before);
    }
}

// One thread in one piece against three threads in pieces: at random places, at blocks, or between tensors. In one of
// three steps the pieces are updated on the host, which is this device.
TEST(test_cuts_and_threads_do_not_matter)
{
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case whole, cut;
        case_open(&whole, (OptimName)name, 1);
        case_open(&cut, (OptimName)name, 3);
        cut.optim.host.grad = mem_alloc(&cut.mem, MEM_HOST, cut.n * sizeof(float), "host");
        const Params *p = &cut.model.params;
        OptimCut kind = cut.optim.kind->cut;
        size_t at = 0;
        for (uint32_t step = 1; step <= 3; step++) {
            case_fill(&whole, step);
            case_fill(&cut, step);
            optim_step(&whole.optim, &whole.model, 0.1);
            cut.optim.step++;
            cut.optim.host.dev = step == 2 ? cut.dev : NULL;
            for (size_t begin = 0, i = 0; begin < cut.n; begin = at, i++) {
                at = begin + 1 + (size_t)rng_below(rng_make(5, "cut", step), i, kind == OPTIM_ELEMENT ? 900 : 1);
                for (int r = 0; r < p->n_rows && kind != OPTIM_ELEMENT; r++) { // up to the next place that is allowed
                    const Param *row = &p->row[r];
                    if (at <= row->offset || at > row->offset + row->n_elems) continue;
                    size_t in = (at - row->offset + UPDATE_BLOCK - 1) / UPDATE_BLOCK * UPDATE_BLOCK;
                    at = row->offset + (kind == OPTIM_BLOCK && in < row->n_elems ? in : row->n_elems);
                    break;
                }
                if (at > cut.n) at = cut.n;
                optim_update(&cut.optim, &cut.model, 0.1, 1, begin, at);
            }
            expect_same(&whole, &cut);
            for (size_t i = 0; i < cut.n; i++) assert_true(cut.model.grads[i] == 0);
        }
        case_close(&whole);
        case_close(&cut);
    }
}

TEST(test_wrong_cuts_are_refused)
{
    const OptimName names[] = {OPTIM_ADAFACTOR, OPTIM_MUON, OPTIM_ADAMW8BIT};
    for (int i = 0; i < 3; i++) {
        Case c;
        case_open(&c, names[i], 1);
        size_t large = c.model.params.row[3].offset;
        const size_t cuts[][2] = {{large + 100, c.n}, {0, large + 100}, {large + UPDATE_BLOCK, c.n}};
        c.optim.step = 1;
        for (int k = 0; k < (names[i] == OPTIM_ADAMW8BIT ? 2 : 3); k++)
            expect_dies("broken invariant: may_cut", optim_update(&c.optim, &c.model, 0.1, 1, cuts[k][0], cuts[k][1]));
        case_close(&c);
    }
}

// A device that stores weights in two bytes, by cutting the other two off.
static void to_bf16(Dev *dev, X *out, const float *inp, size_t n)
{
    (void)dev;
    formats_from_float(out, FORMAT_BF16, inp, n, false);
}

TEST(test_storage_copy_is_renewed)
{
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c;
        case_open(&c, (OptimName)name, 2);
        c.dev->x_type = X_BF16;
        c.dev->x_bytes = 2;
        c.dev->to_x = to_bf16;
        uint16_t *x = mem_alloc(&c.mem, MEM_PARAMS, c.n * 2, "x");
        uint16_t *want = mem_alloc(&c.mem, MEM_PARAMS, c.n * 2, "want");
        c.model.x_weights = (X *)x;
        case_fill(&c, 1);
        optim_step(&c.optim, &c.model, 0.1);
        to_bf16(NULL, (X *)want, c.model.weights, c.n);
        assert_memory_equal(x, want, c.n * 2);
        // A part: nothing outside it is touched.
        size_t begin = c.model.params.row[2].offset, end = c.model.params.row[7].offset;
        case_fill(&c, 2);
        memset(x, 0xEE, c.n * 2);
        c.optim.step++;
        optim_update(&c.optim, &c.model, 0.1, 1, begin, end);
        to_bf16(NULL, (X *)want, c.model.weights, c.n);
        for (size_t i = 0; i < c.n; i++) assert_int_equal(x[i], i >= begin && i < end ? want[i] : 0xEEEE);
        case_close(&c);
    }
}

// ---- bytes

// Counted by hand from case_params: P elements; matrices 35, 15, 66, 4270, 70, 64, 45; vectors 13, 1, 4097, 5.
TEST(test_bytes)
{
    const size_t P = 35 + 15 + 66 + 4270 + 13 + 1 + 70 + 64 + 4097 + 5 + 45;
    const size_t rows = 7 + 3 + 6 + 61 + 10 + 8 + 9, cols = 5 + 5 + 11 + 70 + 7 + 8 + 5, vectors = 13 + 1 + 4097 + 5;
    const size_t in_8bit = 4270 + 4097, blocks = 3 + 3, hidden = 66 + 4270 + 70 + 64;
    const size_t want[OPTIM_NAMES] = {
        [OPTIM_ADAMW] = 8 * P, [OPTIM_ADAM] = 8 * P, [OPTIM_SGD] = 0, [OPTIM_MOMENTUM] = 4 * P,
        [OPTIM_ADAFACTOR] = 4 * (rows + cols + vectors), [OPTIM_LION] = 4 * P,
        [OPTIM_ADAMW8BIT] = 2 * in_8bit + 8 * blocks + 8 * (P - in_8bit), [OPTIM_MUON] = 4 * hidden + 8 * (P - hidden),
        [OPTIM_NORMUON] = 4 * (hidden + 6 + 61 + 10 + 8) + 8 * (P - hidden)};
    const size_t scratch = 4 * (4270 + 2 * 61 * 61);
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c;
        case_open(&c, (OptimName)name, 1);
        bool listed = want[name] || name == OPTIM_SGD; // else arrays of its own, as large as the weights
        size_t bytes = listed ? want[name] : 4 * P * (size_t)c.optim.kind->n_states;
        assert_int_equal(c.n, P);
        assert_int_equal(c.mem.tag_bytes[MEM_OPTIM], bytes);
        assert_int_equal(optim_state_bytes((OptimName)name, &c.model.params), bytes);
        size_t room = name == OPTIM_MUON || name == OPTIM_NORMUON ? scratch : 0;
        assert_int_equal(c.mem.tag_bytes[MEM_SCRATCH], room);
        assert_int_equal(optim_scratch_bytes((OptimName)name, &c.model.params), room);
        case_close(&c);
    }
}

TEST(test_table)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    assert_non_null(out);
    plan_print_optimizers(out);
    fclose(out);
    // 124,439,808 parameters, of which 84,934,656 are hidden matrices: (8 P - 4 * 84934656) / P is 5.2699
    const char *const lines[] = {"| `adamw` | exp_avg, exp_avg_sq | any element | 8.0000 | 8 |\n",
                                 "| `sgd` | none | any element | 0.0000 | 0 |\n", "| tensors | 5.2699 | 4 for"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i])) fail_msg("no '%s' in\n%s", lines[i], text);
    for (int name = 0; name < OPTIM_NAMES; name++) assert_non_null(strstr(text, optim_kind((OptimName)name)->name));
    free(text);
}

// ---- checkpoints

// Three steps, a checkpoint, three more; and from the checkpoint, the same three.
TEST_IN_DIR(test_resume)
{
    char error[512];
    for (int name = 0; name < OPTIM_NAMES; name++) {
        Case c, back;
        const char *run = in_dir(optim_kind((OptimName)name)->name);
        case_open(&c, (OptimName)name, 1);
        case_open(&back, (OptimName)name, 1);
        for (uint32_t step = 1; step <= 6; step++) {
            case_fill(&c, step);
            optim_step(&c.optim, &c.model, 0.1);
            if (step != 3) continue;
            CkptState s = {.step = 3, .adam_step = c.optim.step, .optim = c.optim.kind->name};
            if (!flat_save(run, &s, &c.model.params, c.model.weights, c.optim.state, c.optim.kind->n_states, 1, error,
                           sizeof error))
                fail_msg("%s", error);
            s = (CkptState){.optim = back.optim.kind->name};
            assert_true(flat_load(run, &back.model.params, back.model.weights, back.optim.state,
                                  back.optim.kind->n_states, &s));
            back.optim.step = (int)s.adam_step;
            expect_same(&c, &back);
        }
        for (uint32_t step = 4; step <= 6; step++) {
            case_fill(&back, step);
            optim_step(&back.optim, &back.model, 0.1);
        }
        expect_same(&c, &back);
        case_close(&c);
        case_close(&back);
    }
}

// 1 - 0.999 of 32-bit numbers is 1.3e-5 too small, in every element alike.
TEST(test_one_less_beta)
{
    Dev *dev = dev_cpu_create(1);
    float w = 1, m = 0, v = 0, grad = 3;
    Update u = {.lr = 1e-3f, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .grad_scale = 1, .step = 1};
    dev->update(dev, OPTIM_ADAMW, &w, &m, &v, &grad, 1, u);
    assert_true(fabs(m - 0.1 * 3) <= 2 * 0x1p-24 * 0.3);
    assert_true(fabs(v - 0.001 * 9) <= 3 * 0x1p-24 * 0.009);
    dev_cpu_free(dev);
}

// ---- optim fixtures: every optimizer against PyTorch, or the reference that its paper's authors gave: six updates of
// matrices and vectors, with decay and without (dev/reference/make_optim.py).

typedef struct {
    const char *name;
    OptimName optim;
    bool relative, decay;
    int ndim;
    size_t dim[2];
} FixtureCase;

static const FixtureCase fixture_cases[] = {
    {"sgd/matrix", OPTIM_SGD, false, true, 2, {5, 9}}, {"sgd/vector", OPTIM_SGD, false, false, 1, {13}},
    {"momentum/matrix", OPTIM_MOMENTUM, false, true, 2, {5, 9}},
    {"momentum/vector", OPTIM_MOMENTUM, false, false, 1, {13}},
    {"adam/matrix", OPTIM_ADAM, false, true, 2, {5, 9}}, {"adam/vector", OPTIM_ADAM, false, false, 1, {13}},
    {"adamw/matrix", OPTIM_ADAMW, false, true, 2, {5, 9}}, {"adamw/vector", OPTIM_ADAMW, false, false, 1, {13}},
    {"lion/matrix", OPTIM_LION, false, true, 2, {5, 9}}, {"lion/vector", OPTIM_LION, false, false, 1, {13}},
    {"adafactor/matrix", OPTIM_ADAFACTOR, false, true, 2, {5, 9}},
    {"adafactor/vector", OPTIM_ADAFACTOR, false, false, 1, {13}},
    {"adafactor_relative/matrix", OPTIM_ADAFACTOR, true, true, 2, {5, 9}},
    {"adafactor_relative/vector", OPTIM_ADAFACTOR, true, false, 1, {13}},
    {"muon/wide", OPTIM_MUON, false, true, 2, {6, 11}}, {"muon/tall", OPTIM_MUON, false, false, 2, {10, 7}},
    {"muon/square", OPTIM_MUON, false, true, 2, {8, 8}},
    {"normuon/wide", OPTIM_NORMUON, false, true, 2, {6, 11}},
    {"normuon/tall", OPTIM_NORMUON, false, false, 2, {10, 7}},
    {"adamw_cautious/matrix", OPTIM_ADAMW, false, true, 2, {5, 9}},
    {"muon_cautious/tall", OPTIM_MUON, false, true, 2, {10, 7}},
    {"normuon_cautious/tall", OPTIM_NORMUON, false, true, 2, {10, 7}},
};
enum { STEPS = 6 };

static const char *key(const FixtureCase *f, const char *name)
{
    static char text[100];
    snprintf(text, sizeof text, "%s/%s", f->name, name);
    return text;
}

// A result in double that a fixture stores as float.
static void expect_stored(const FixtureCase *f, const char *what, double got, float stored)
{
    if (!(fabs(got - stored) <= U * fabs(stored) + 1e-11))
        fail_msg("%s %s: the double version gives %.12g, the fixture has %.9g", f->name, what, got, stored);
}

// The double version, six steps in a row, is the reference's; and each of ours is one step of the double version from
// where we are. Since a step starts from the same zeros, our first is also held against the fixture itself.
static void run_fixture(const Fixture *fx, const FixtureCase *f)
{
    Params params = {0};
    params_add(&params, 1, "x", f->ndim, f->dim[0], f->dim[1], 0, 0, f->decay, -1);
    Params with_head = params;
    with_head.n_units = 3; // x is in a block
    OptimSettings set = *case_settings(f->optim);
    set.relative_step = f->relative;
    set.cautious_decay = strstr(f->name, "_cautious") != NULL;
    set.weight_decay = *fixture_f32(fx, key(f, "decay"), 1);
    assert_true(set.beta1 == (float)fixture_number(fx, "beta1") && set.beta2 == (float)fixture_number(fx, "beta2"));
    assert_true(set.eps == (float)fixture_number(fx, "eps") && set.momentum == (float)fixture_number(fx, "momentum"));
    assert_true(set.row_beta2 == (float)fixture_number(fx, "row_beta2"));
    Case c;
    case_begin(&c, with_head, 1, set);
    const float *weight = fixture_f32(fx, key(f, "weight"), c.n), *grad = fixture_f32(fx, key(f, "grad"), STEPS * c.n);
    const float *after = fixture_f32(fx, key(f, "after"), STEPS * c.n), *lr = fixture_f32(fx, "lr", STEPS);
    memcpy(c.model.weights, weight, c.n * sizeof *weight);
    RowCopy chain = row_copy(&c, 0);
    for (int t = 0; t < STEPS; t++) {
        Update u = {.lr = lr[t], .beta1 = set.beta1, .beta2 = set.beta2, .eps = set.eps, .grad_scale = 1, .step = t + 1,
                    .weight_decay = set.weight_decay, .cautious = set.cautious_decay};
        row_update(&chain, f->optim, &set, &c.model.params, &c.model.params.row[0], grad + (size_t)t * c.n, u);
        for (size_t i = 0; i < c.n; i++) expect_stored(f, "weight", chain.w[i], after[(size_t)t * c.n + i]);
        memcpy(c.model.grads, grad + (size_t)t * c.n, c.n * sizeof *grad);
        step_and_check(&c, lr[t], 1);
        for (size_t i = 0; i < c.n && t == 0; i++)
            expect_near("first step", &c.model.params.row[0], i, c.model.weights[i], after[i],
                        chain.w_err[i] + U * fabs(after[i]));
    }
    for (int k = 0; k < 2 && chain.s[k]; k++) {
        char name[24];
        snprintf(name, sizeof name, "state%d", k);
        const float *state = fixture_f32(fx, key(f, name), chain.n_s[k]);
        for (size_t i = 0; i < chain.n_s[k]; i++) expect_stored(f, name, chain.s[k][i], state[i]);
    }
    free(chain.w);
    case_close(&c);
}

TEST(test_against_references)
{
    Fixture *fx = fixture_open("optim");
    for (size_t i = 0; i < sizeof fixture_cases / sizeof *fixture_cases; i++) run_fixture(fx, &fixture_cases[i]);
    fixture_close(fx);
}

// Codes and one update from a given state. The books may differ by what rounding makes of (0.1 + 0.9 x) 10^i: 2 u in
// bitsandbytes' float arithmetic and ours together. A code may differ from the reference's where x lies in the middle
// of two; ref_codes, in the other tests, says whether it does.
TEST(test_8bit_against_reference)
{
    enum { N = 4200 };
    Fixture *fx = fixture_open("optim_8bit");
    float book[2][256];
    for (int k = 0; k < 2; k++) {
        updates_8bit_codes(k == 0, book[k]);
        const float *want = fixture_f32(fx, k ? "books/v" : "books/m", 256);
        for (int i = 0; i < 256; i++) assert_true(fabsf(book[k][i] - want[i]) <= 2 * (float)U * fabsf(want[i]));
        for (int i = 1; i < 256; i++) assert_true(book[k][i] > book[k][i - 1]);
    }
    Params params = {0};
    params_add(&params, 0, "x", 2, 3, 1400, 0, 0, true, -1);
    Case c;
    OptimSettings set = *case_settings(OPTIM_ADAMW8BIT);
    set.weight_decay = (float)fixture_number(fx, "decay");
    case_begin(&c, params, 2, set);
    c.optim.step = (int)fixture_number(fx, "step") - 1;
    memcpy(c.model.weights, fixture_f32(fx, "weight", N), N * sizeof(float));
    memcpy(c.model.grads, fixture_f32(fx, "grad", N), N * sizeof(float));
    for (int k = 0; k < 2; k++) {
        memcpy(c.optim.state[2 * k].data, fixture_i32(fx, k ? "code1" : "code0", N / 4), N);
        memcpy(c.optim.state[2 * k + 1].data, fixture_f32(fx, k ? "scale1" : "scale0", 3), 3 * sizeof(float));
    }
    RowCopy before = row_copy(&c, 0); // its w_err: the bound of this update
    Update u = {.lr = *fixture_f32(fx, "lr", 1), .beta1 = set.beta1, .beta2 = set.beta2, .eps = set.eps,
                .grad_scale = 1, .step = c.optim.step + 1, .weight_decay = set.weight_decay};
    row_update(&before, OPTIM_ADAMW8BIT, &set, &c.model.params, &c.model.params.row[0], c.model.grads, u);
    step_and_check(&c, u.lr, 1);
    const float *weight = fixture_f32(fx, "weight_after", N);
    for (size_t i = 0; i < N; i++)
        expect_near("weight", &c.model.params.row[0], i, c.model.weights[i], weight[i],
                    before.w_err[i] + 2 * U * fabs(weight[i]) + 4 * U * fabs(before.w[i] - weight[i]));
    for (int k = 0; k < 2; k++) {
        const uint8_t *want = (const uint8_t *)fixture_i32(fx, k ? "code1_after" : "code0_after", N / 4);
        const uint8_t *got = c.optim.state[2 * k].data;
        size_t differ = 0;
        for (size_t i = 0; i < N; i++) {
            if (abs(got[i] - want[i]) > 1) fail_msg("code %d of %zu: %d, not %d", k, i, got[i], want[i]);
            differ += got[i] != want[i];
        }
        assert_true(differ <= 5); // x within some u of a middle: about 1 in 10,000
    }
    free(before.w);
    case_close(&c);
    fixture_close(fx);
}

// The bounds for matrices are those of the worst matrix, and would not see a wrong digit in a coefficient. A (1, 1)
// matrix has one singular value, 1, and its way through five polynomials is known: an error grows by |f'| and 12
// roundings each.
TEST(test_muon_of_one_number)
{
    Params params = {0};
    params_add(&params, 1, "x", 2, 1, 1, 0, 0, false, -1);
    params.n_units = 3;
    Case c;
    case_begin(&c, params, 1, *case_settings(OPTIM_MUON));
    c.model.weights[0] = 0;
    c.model.grads[0] = -3;
    double s = 1, err = 6 * U + 1e-7;
    for (int k = 0; k < 5; k++) {
        double slope = fabs(3.4445 - 3 * 4.7750 * s * s + 5 * 2.0315 * pow(s, 4));
        double size = 3.4445 * s + 4.7750 * pow(s, 3) + 2.0315 * pow(s, 5);
        s = 3.4445 * s - 4.7750 * pow(s, 3) + 2.0315 * pow(s, 5);
        err = slope * err + 12 * U * size;
    }
    optim_step(&c.optim, &c.model, 1);
    expect_near("0.2 f(f(f(f(f(1)))))", &c.model.params.row[0], 0, c.model.weights[0], 0.2 * s, 0.2 * err + U);
    case_close(&c);
}

TESTS(NULL, NULL)
