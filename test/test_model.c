// test_model: whole tiny models of both families against PyTorch: logits, loss, every gradient, ten AdamW
// steps.
//
// The fixtures (dev/reference/make_models.py) hold float64 results, and for each tensor a yardstick: the
// largest error that PyTorch's own float32 makes in it over 16 orders of summation. Ours may be MULTIPLE
// times that. Rounding errors of another order are draws from the same distribution; it would be no accident
// if one more draw exceeded four times the largest of sixteen. A wrong term is thousands of
// yardsticks away, and the yardsticks are checked to be small.
#include "fixture.h"

#include "net/model.h"
#include "train/optim.h"

#include <math.h>

#define MULTIPLE 4.0
enum { MAX_NAME = 128 };

typedef struct {
    Fixture *fx, *steps;
    Dev *dev;
    Mem mem;
    Model *model;
    size_t B, T, V, N;
    const int32_t *token, *target;
} Case;

static size_t whole(const Fixture *fx, const char *key)
{
    return (size_t)fixture_number(fx, key);
}

static ModelExperts experts_of(const Fixture *fx)
{
    if (!fixture_has(fx, "param/layers.1.router.weight")) return (ModelExperts){.n = 0};
    return (ModelExperts){
        .n = whole(fx, "experts"),
        .k = whole(fx, "experts_active"),
        .ffn = whole(fx, "experts_ffn"),
        .shared = whole(fx, "experts_shared"),
        .dense = whole(fx, "experts_dense"),
        .every = whole(fx, "experts_every"),
        .groups = whole(fx, "experts_groups"),
        .best = whole(fx, "experts_groups_active"),
        .sigmoid = whole(fx, "sigmoid"),
        .renorm = whole(fx, "renorm"),
        .scale = (float)fixture_number(fx, "experts_scale"),
        .balance = MOE_BALANCE_SEQUENCE,
        .balance_coef = (float)fixture_number(fx, "balance_coef"),
        .z_coef = (float)fixture_number(fx, "z_coef"),
    };
}

static ModelShape shape_of(const Fixture *fx)
{
    ModelShape shape = {
        .layers = whole(fx, "layers"),
        .channels = whole(fx, "channels"),
        .heads = whole(fx, "heads"),
        .kv_heads = whole(fx, "kv_heads"),
        .head_size = whole(fx, "head_size"),
        .ffn = whole(fx, "ffn"),
        .vocab = whole(fx, "vocab"),
        .context = whole(fx, "context"),
        .norm = whole(fx, "layernorm") ? NORM_LAYERNORM : NORM_RMSNORM,
        .norm_eps = (float)fixture_number(fx, "norm_eps"),
        .rotary.theta = (float)fixture_number(fx, "rope_theta"),
        .swiglu = whole(fx, "swiglu"),
        .rope = whole(fx, "rope"),
        .bias = whole(fx, "bias"),
        .tie = whole(fx, "tie"),
        .qk_norm = (QkNorm)whole(fx, "qk_norm"),
        .norm_place = json_object_get(json_object_get(fx->header, "__metadata__"), "norm_of_output") ?
                      NORM_OF_OUTPUT : NORM_OF_INPUT,
        .experts = experts_of(fx),
    };
    return shape;
}

// The tensor KIND/NAME of a parameter row.
static const float *row_tensor(const Fixture *fx, const char *kind, const Param *row)
{
    char key[MAX_NAME];
    snprintf(key, sizeof key, "%s/%s", kind, row->name);
    return fixture_f32(fx, key, row->n_elems);
}

static double yardstick(const Fixture *fx, const char *kind, const char *name)
{
    char key[MAX_NAME];
    snprintf(key, sizeof key, "yard.%s%s%s", kind, *name ? "." : "", name);
    return fixture_number(fx, key);
}

static void case_open(Case *c, const char *family, int threads)
{
    char steps[64];
    snprintf(steps, sizeof steps, "model_%s_steps", family);
    memset(c, 0, sizeof *c);
    c->steps = fixture_open(steps);
    steps[strlen(steps) - strlen("_steps")] = 0;
    c->fx = fixture_open(steps);
    ModelShape shape = shape_of(c->fx);
    c->B = whole(c->fx, "batch"), c->T = whole(c->fx, "tokens"), c->V = shape.vocab, c->N = c->B * c->T;
    c->token = fixture_i32(c->fx, "token", c->N);
    c->target = fixture_i32(c->fx, "target", c->N);
    c->dev = dev_cpu_create(threads);
    c->model = model_create(&shape, c->dev, &c->mem, c->B, c->T, 1, true);
    model_set_each(c->model, 1 / (float)c->B); // the weight of a sequence in the losses of routers
    const Params *p = &c->model->params;
    assert_int_equal(p->n_rows, whole(c->fx, "params"));
    for (int i = 0; i < p->n_rows; i++)
        memcpy(c->model->weights + p->row[i].offset, row_tensor(c->fx, "param", &p->row[i]),
               p->row[i].n_elems * sizeof(float));
}

static void case_close(Case *c)
{
    end_model(c->model, &c->mem, c->dev);
    fixture_close(c->fx);
    fixture_close(c->steps);
}

static float valid_scale(const int32_t *target, size_t n)
{
    int valid = 0;
    for (size_t i = 0; i < n; i++) valid += target[i] >= 0;
    return 1 / (float)valid;
}

// False for NaN and infinity on either side.
static bool near_enough(double got, double want, double yard)
{
    return fabs(got - want) <= MULTIPLE * yard && yard < INFINITY;
}

static void expect_close(const char *name, const float *got, const float *want, size_t n, double yard)
{
    double u = 0x1p-24; // storing the reference rounded it
    for (size_t i = 0; i < n; i++)
        if (!near_enough(got[i], want[i], yard + u * fabs(want[i])))
            fail_msg("%s[%zu] is %.9g, PyTorch has %.9g: %.1f yardsticks of %.2e", name, i, got[i], want[i],
                     fabs((double)got[i] - want[i]) / yard, yard);
}

// Every row of a flat buffer against KIND/NAME.
static void expect_rows(const Fixture *fx, const char *kind, const Params *p, const float *flat)
{
    for (int i = 0; i < p->n_rows; i++) {
        const Param *row = &p->row[i];
        expect_close(row->name, flat + row->offset, row_tensor(fx, kind, row), row->n_elems,
                     yardstick(fx, kind, row->name));
    }
}

static void check_first_batch(Case *c)
{
    Model *m = c->model;
    float *logits = zeroed(c->N * c->V * sizeof *logits);
    model_set_batch(m, c->token, NULL, c->target, c->B, c->T);
    model_logits(m, logits);
    expect_close("logits", logits, fixture_f32(c->fx, "logits", c->N * c->V), c->N * c->V,
                 yardstick(c->fx, "logits", ""));
    free(logits);
    float scale = valid_scale(c->target, c->N);
    double loss = model_evaluate(m), again = model_forward_backward(m, scale);
    assert_true(loss == again);
    float mean = (float)(loss * scale);
    expect_close("loss", &mean, fixture_f32(c->fx, "loss", 1), 1, yardstick(c->fx, "loss", ""));
    expect_rows(c->fx, "grad", &m->params, m->grads);
}

// The same batch as two micro-batches with different numbers of valid tokens: the gradients add up to the
// same.
static void check_accumulation(Case *c)
{
    Model *m = c->model;
    float scale = valid_scale(c->target, c->N);
    memset(m->grads, 0, m->params.n_elems * sizeof *m->grads);
    double loss = 0;
    for (size_t b = 0; b < c->B; b += 2) {
        size_t rows = c->B - b < 2 ? c->B - b : 2;
        model_set_batch(m, c->token + b * c->T, NULL, c->target + b * c->T, rows, c->T);
        loss += model_forward_backward(m, scale);
    }
    float mean = (float)(loss * scale);
    expect_close("loss", &mean, fixture_f32(c->fx, "loss", 1), 1, yardstick(c->fx, "loss", ""));
    expect_rows(c->fx, "grad", &m->params, m->grads);
    memset(m->grads, 0, m->params.n_elems * sizeof *m->grads);
}

static void check_steps(Case *c)
{
    Model *m = c->model;
    size_t n = whole(c->steps, "steps");
    const int32_t *token = fixture_i32(c->steps, "token", n * c->N),
                  *target = fixture_i32(c->steps, "target", n * c->N);
    const float *lr = fixture_f32(c->steps, "lr", n), *losses = fixture_f32(c->steps, "loss", n);
    const float *norms = fixture_f32(c->steps, "grad_norm", n);
    Optim optim = optim_create(m, (OptimSettings){.beta1 = (float)fixture_number(c->steps, "beta1"),
                                                  .beta2 = (float)fixture_number(c->steps, "beta2"),
                                                  .eps = (float)fixture_number(c->steps, "eps"),
                                                  .weight_decay = (float)fixture_number(c->steps, "weight_decay"),
                                                  .clip = (float)fixture_number(c->steps, "clip")});
    for (size_t i = 0; i < n; i++) {
        const int32_t *y = target + i * c->N;
        float scale = valid_scale(y, c->N);
        model_set_batch(m, token + i * c->N, NULL, y, c->B, c->T);
        float loss = (float)(model_forward_backward(m, scale) * scale),
              norm = (float)optim_step(&optim, m, lr[i]);
        expect_close("loss of a step", &loss, losses + i, 1, yardstick(c->steps, "loss", ""));
        expect_close("gradient norm of a step", &norm, norms + i, 1, yardstick(c->steps, "grad_norm", ""));
    }
    expect_rows(c->steps, "final", &m->params, m->weights);
}

// Logits through the key/value cache, tokens fed in pieces of different length, against those of the whole
// sequence.
static void check_cache(Case *c)
{
    const size_t pieces[] = {1, 4, 1, 1, 5};
    float *logits = zeroed(c->V * sizeof *logits);
    const float *want = fixture_f32(c->fx, "logits", c->N * c->V);
    KvCache cache = model_cache_create(c->model);
    for (size_t i = 0, t = 0; i < sizeof pieces / sizeof *pieces; i++) {
        model_next_logits(c->model, &cache, c->token + t, pieces[i], logits);
        t += pieces[i];
        expect_close("cached logits", logits, want + (t - 1) * c->V, c->V, yardstick(c->fx, "logits", ""));
    }
    free(logits);
}

static void run_family(const char *family, void (*check)(Case *))
{
    Case c;
    case_open(&c, family, 2);
    check(&c);
    case_close(&c);
}

static void test_first_batch(void **state)
{
    run_family(*state, check_first_batch);
}

static void test_accumulation(void **state)
{
    run_family(*state, check_accumulation);
}

static void test_ten_steps(void **state)
{
    run_family(*state, check_steps);
}

static void test_cached_logits(void **state)
{
    run_family(*state, check_cache);
}

static void test_threads_agree_bit_for_bit(void **state)
{
    Case one, many;
    case_open(&one, *state, 1);
    check_steps(&one);
    for (int threads = 2; threads <= 3; threads++) {
        case_open(&many, *state, threads);
        check_steps(&many);
        assert_memory_equal(many.model->weights, one.model->weights,
                            one.model->params.n_elems * sizeof(float));
        case_close(&many);
    }
    case_close(&one);
}

// The yardsticks themselves must be small, or the comparison forgives: at most 1e-5 of a tensor's largest
// gradient, and final weights known to a tenth of the smallest full step. The bias of k is the exception:
// adding the same number to all scores of a query changes nothing, so its true gradient is zero, and AdamW
// turns the rounding noise that is left into steps.
static void test_yardsticks_are_small(void **state)
{
    Case c;
    case_open(&c, *state, 1);
    const Params *p = &c.model->params;
    double lr = fixture_f32(c.steps, "lr", whole(c.steps, "steps"))[0];
    assert_false(near_enough(NAN, 0, 1));
    assert_false(near_enough(0, 0, NAN));
    assert_false(near_enough(0, 0, INFINITY));
    for (int i = 0; i < p->n_rows; i++) {
        const Param *row = &p->row[i];
        const float *grad = row_tensor(c.fx, "grad", row);
        double largest = 0;
        for (size_t j = 0; j < row->n_elems; j++) largest = fmax(largest, fabs(grad[j]));
        bool k_bias = strstr(row->name, "attn.k.bias") != NULL;
        assert_true(k_bias || largest > 1e-3);
        assert_true(yardstick(c.fx, "grad", row->name) <= (k_bias ? 1e-6 : 1e-5 * largest));
        if (!(yardstick(c.steps, "final", row->name) <= (k_bias ? 10 * lr : 0.1 * lr)))
            fail_msg("%s: final yardstick %.2e", row->name, yardstick(c.steps, "final", row->name));
    }
    case_close(&c);
}

int main(void)
{
    static const char *const families[] = {"gpt", "llama", "llama_qknorm", "mixtral", "olmoe", "deepseek",
                                           "olmo2"};
    static const struct {
        const char *name;
        void (*run)(void **);
    } checks[] = {
        {"yardsticks are small", test_yardsticks_are_small},
        {"logits, loss, gradients", test_first_batch},
        {"gradient accumulation", test_accumulation},
        {"ten AdamW steps", test_ten_steps},
        {"cached logits", test_cached_logits},
        {"threads agree bit for bit", test_threads_agree_bit_for_bit},
    };
    enum { FAMILIES = sizeof families / sizeof *families, CHECKS = sizeof checks / sizeof *checks };
    struct CMUnitTest tests[FAMILIES * CHECKS];
    static char names[FAMILIES * CHECKS][64];
    for (size_t i = 0; i < FAMILIES * CHECKS; i++) {
        const char *family = families[i / CHECKS];
        snprintf(names[i], sizeof names[i], "%s: %s", family, checks[i % CHECKS].name);
        tests[i] = (struct CMUnitTest){
            .name = names[i], .test_func = checks[i % CHECKS].run, .initial_state = (void *)family};
    }
    return _cmocka_run_group_tests("model", tests, FAMILIES * CHECKS, NULL, NULL);
}
