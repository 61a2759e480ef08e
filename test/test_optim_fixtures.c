// test_optim_fixtures: every optimizer against PyTorch, or the reference that its paper's authors gave: six updates of
// matrices and vectors, with decay and without (dev/reference/make_optim.py).
#include "optim_case.h"

#include "fixture.h"

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
