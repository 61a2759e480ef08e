// test_optim: one optimizer step over a whole parameter table: which rows decay, clipping by the global norm,
// and a gradient that is not finite. The update of an element itself is checked in test_ops; here every element of
// every row must get it once, with its own row's decay.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ops_ref.h"
#include "optim.h"
#include "rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Rows of every kind: matrices with biases, norms, two matrices in a row; 7 channels, so that rows end anywhere.
static const ModelShape shape = {
    .layers = 2, .channels = 7, .heads = 1, .kv_heads = 1, .head_size = 7, .ffn = 11, .vocab = 13, .context = 5,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};

typedef struct {
    Mem mem;
    Dev *dev;
    Model *model;
    Optim optim;
    size_t n;
    float *w, *m, *v; // the state before a step
} Case;

static void case_open(Case *c, int threads, float clip)
{
    *c = (Case){.dev = dev_cpu_create(threads)};
    c->model = model_create(&shape, c->dev, &c->mem, 1, shape.context, 1, true);
    c->optim = optim_create(c->model, 0.9f, 0.95f, 1e-8f, 0.1f, clip);
    c->n = c->model->params.n_elems;
    c->w = calloc(3 * c->n, sizeof *c->w);
    assert_non_null(c->w);
    c->m = c->w + c->n;
    c->v = c->m + c->n;
}

static void case_close(Case *c)
{
    free(c->w);
    model_free(c->model);
    mem_free_all(&c->mem);
    dev_cpu_free(c->dev);
}

static void remember(Case *c)
{
    memcpy(c->w, c->model->weights, c->n * sizeof *c->w);
    memcpy(c->m, c->optim.m, c->n * sizeof *c->m);
    memcpy(c->v, c->optim.v, c->n * sizeof *c->v);
}

static void fill_normal(Case *c, uint32_t step, double size)
{
    for (size_t i = 0; i < c->n; i++) c->model->grads[i] = (float)(size * rng_normal(rng_make(5, "grad", step), i));
}

static void expect_near(const char *what, const Param *row, double got, double want, double err)
{
    if (!(fabs(got - want) <= err)) fail_msg("%s of %s: %.9g, not %.9g within %.1e", what, row->name, got, want, err);
}

// Every element against AdamW in double, started from the state before. Matrices decay, vectors do not.
static void expect_update(const Case *c, const float *grad, double lr, float scale, int step)
{
    const Params *p = &c->model->params;
    size_t seen = 0;
    for (int r = 0; r < p->n_rows; r++) {
        const Param *row = &p->row[r];
        AdamW h = {.lr = (float)lr, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .grad_scale = scale, .step = step,
                   .weight_decay = row->ndim == 2 ? 0.1f : 0};
        for (size_t i = row->offset; i < row->offset + row->n_elems; i++, seen++) {
            double w = c->w[i], m = c->m[i], v = c->v[i], err[3];
            ref_adamw(&w, &m, &v, err, grad[i], h);
            expect_near("weight", row, c->model->weights[i], w, err[0]);
            expect_near("first moment", row, c->optim.m[i], m, err[1]);
            expect_near("second moment", row, c->optim.v[i], v, err[2]);
            assert_true(c->model->grads[i] == 0);
        }
    }
    assert_true(seen == c->n);
}

// The norm adds squares in floats, 1024 at a time: at most gam(1025) / 2 off, relatively.
static double true_norm(const float *grad, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)grad[i] * grad[i];
    return sqrt(sum);
}

static void test_every_row_gets_its_update(void **state)
{
    (void)state;
    Case c;
    case_open(&c, 2, 0);
    float *grad = malloc(c.n * sizeof *grad);
    assert_non_null(grad);
    for (int step = 1; step <= 3; step++) {
        fill_normal(&c, (uint32_t)step, 0.1);
        memcpy(grad, c.model->grads, c.n * sizeof *grad);
        remember(&c);
        double norm = optim_step(&c.optim, c.model, 0.01 * step), want = true_norm(grad, c.n);
        assert_true(fabs(norm - want) <= gam(1025) * want);
        assert_int_equal(c.optim.step, step);
        expect_update(&c, grad, 0.01 * step, 1, step);
    }
    free(grad);
    case_close(&c);
}

// All gradients +-1/2: their squares add exactly, the norm is sqrt(n) / 2, and the factor is known to the bit.
static void test_clipping(void **state)
{
    (void)state;
    Case c;
    case_open(&c, 1, 0);
    float *grad = malloc(c.n * sizeof *grad);
    assert_non_null(grad);
    for (size_t i = 0; i < c.n; i++) grad[i] = i % 3 ? 0.5f : -0.5f;
    const double norm = 0.5 * sqrt((double)c.n);
    const double clips[] = {1, norm / 2, norm, 2 * norm, 0};
    for (int i = 0; i < 5; i++) {
        c.optim.clip = (float)clips[i];
        memcpy(c.model->grads, grad, c.n * sizeof *grad);
        remember(&c);
        double clip = c.optim.clip;
        assert_true(optim_step(&c.optim, c.model, 0.01) == norm); // before clipping
        expect_update(&c, grad, 0.01, clip > 0 && norm > clip ? (float)(clip / norm) : 1, i + 1);
    }
    free(grad);
    case_close(&c);
}

static void test_not_finite_changes_nothing(void **state)
{
    (void)state;
    Case c;
    case_open(&c, 2, 1);
    fill_normal(&c, 1, 0.1);
    optim_step(&c.optim, c.model, 0.01);
    remember(&c);
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f}; // the last one's square is too large
    for (int i = 0; i < 4; i++) {
        fill_normal(&c, 2, 0.1);
        c.model->grads[i == 0 ? c.n - 1 : (size_t)i * 17] = bad[i];
        assert_false(isfinite(optim_step(&c.optim, c.model, 0.01)));
        assert_int_equal(c.optim.step, 1);
        assert_memory_equal(c.model->weights, c.w, c.n * sizeof *c.w);
        assert_memory_equal(c.optim.m, c.m, c.n * sizeof *c.m);
        assert_memory_equal(c.optim.v, c.v, c.n * sizeof *c.v);
        for (size_t j = 0; j < c.n; j++) assert_true(c.model->grads[j] == 0);
    }
    case_close(&c);
}

static void test_threads_do_not_matter(void **state)
{
    (void)state;
    Case one, many;
    case_open(&one, 1, 0.5f);
    case_open(&many, 3, 0.5f);
    for (uint32_t step = 1; step <= 2; step++) {
        fill_normal(&one, step, 1);
        fill_normal(&many, step, 1);
        double a = optim_step(&one.optim, one.model, 0.1), b = optim_step(&many.optim, many.model, 0.1);
        assert_true(a == b);
    }
    assert_memory_equal(one.model->weights, many.model->weights, one.n * sizeof(float));
    case_close(&one);
    case_close(&many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_row_gets_its_update),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_not_finite_changes_nothing),
        cmocka_unit_test(test_threads_do_not_matter),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
