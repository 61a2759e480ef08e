// test_locate: a NaN or an infinity put into a weight or a gradient of a small model is found where it is, on the
// rank where it is.
#include "dev/check/comm_threads.h"
#include "step_run.h"

#include "formats/formats.h"
#include "src/check/observers.h"

#include <math.h>

TEST(test_finite)
{
    Dev fp32 = {.x_type = X_FP32}, bf16 = {.x_type = X_BF16}, fp16 = {.x_type = X_FP16};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY}, good[] = {0, -0.0f, 3.4e38f, -3.4e38f, 1e-45f};
    for (size_t n = 1; n < 40; n++)
        for (size_t at = 0; at < n; at++) {
            float x[40] = {0};
            for (size_t i = 0; i < 4; i++) {
                x[at] = bad[i];
                assert_true(!formats_finite(x, n) && !locate_finite_x(&fp32, (const X *)x, n));
                assert_true(formats_finite(x, at)); // and not behind the end
            }
            for (size_t i = 0; i < 5; i++) x[at] = good[i], assert_true(formats_finite(x, n));
        }
    const struct { uint16_t bits; bool bf16, fp16; } half[] = {
        {0x7f80, false, false}, {0xff81, false, false}, {0x7f7f, true, false},
        {0x7c00, true, false}, {0xfc01, true, false}, {0x7bff, true, true}, {0, true, true}, {0x8001, true, true},
    };
    for (size_t i = 0; i < sizeof half / sizeof *half; i++) {
        uint16_t x[5] = {0, 0, half[i].bits, 0, 0};
        assert_true(locate_finite_x(&bf16, (const X *)x, 5) == half[i].bf16);
        assert_true(locate_finite_x(&fp16, (const X *)x, 5) == half[i].fp16);
    }
}

// What goes wrong on which rank, and what must be said of it; rank -1: nowhere.
typedef struct {
    int rank;
    const char *tensor;
    bool gradient;
    int other;             // another rank with the same; -1
    bool deterministic;
    int ranks;
    const char *said;      // NULL: nothing
} Case;

static void put(Model *m, const Case *c)
{
    const Param *row = &m->params.row[params_find(&m->params, c->tensor)];
    float *at = (c->gradient ? m->grads : m->weights) + row->offset;
    at[row->n_elems / 2] = c->gradient ? INFINITY : NAN;
    if (!c->gradient) model_weights_changed(m);
}

static void body(Comm *world, void *arg)
{
    const Case *c = arg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    dev->deterministic = c->deterministic;
    Model *m = model_allocate_with(&gpt, dev, &mem, B, T, true, (ModelOptions){.documents = true, .sequences = 2 * B});
    params_init(&m->params, 1, m->weights);
    model_weights_changed(m);
    Locate locate;
    Step step = {0};
    char text[LOCATE_TEXT] = "";
    Comm *ranks = world->size > 1 ? world : NULL;
    locate_begin(&locate, m);
    for (int turn = 0; turn < 2; turn++) { // the second step is clean again
        locate_step(&locate);
        memset(m->grads, 0, m->params.n_elems * sizeof *m->grads);
        if (!turn && (world->rank == c->rank || world->rank == c->other)) put(m, c);
        for (size_t i = 0; i < 2; i++) run_batch(m, &step, i * B, B, T);
        model_step_finish(m);
        bool found = locate_first(&locate, ranks, text);
        bool want = c->said && (!turn || !c->gradient);
        if (found != want || (want && strcmp(text, c->said)))
            fail_msg("%s on rank %d, step %d: %s", c->tensor, c->rank, turn, found ? text : "not found");
        if (c->gradient) continue;
        params_init(&m->params, 1, m->weights);
        model_weights_changed(m);
        break;
    }
    end_model(m, &mem, dev);
}

TEST(test_first)
{
    const Case cases[] = {
        {0, "layers.2.ffn.up.weight", false, -1, false, 1, "weight layers.2.ffn.up.weight"},
        {0, "layers.2.ffn.up.weight", true, -1, false, 1, "the gradient of layers.2.ffn.up.weight"},
        {0, "embed.tokens.weight", true, -1, false, 1, "the gradient of embed.tokens.weight"},
        {-1, "embed.tokens.weight", false, -1, false, 1, NULL},
        {1, "layers.4.attn.q.weight", false, -1, false, 3, "rank 1: weight layers.4.attn.q.weight"},
        {2, "layers.4.attn.q.weight", true, -1, false, 3, "rank 2: the gradient of layers.4.attn.q.weight"},
        {2, "layers.0.attn.q.bias", true, 1, false, 3, "rank 1: the gradient of layers.0.attn.q.bias"},
        {-1, "embed.tokens.weight", true, -1, false, 3, NULL},
        {1, "final_norm.bias", false, -1, true, 2, "rank 1: weight final_norm.bias"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) comm_threads_run(cases[i].ranks, body, (void *)&cases[i]);
}

static void fill_row(Model *m, const char *name, float value)
{
    const Param *row = &m->params.row[params_find(&m->params, name)];
    for (size_t i = 0; i < row->n_elems; i++) m->weights[row->offset + i] = value;
    model_weights_changed(m);
}

// A step of the model, and what is said of it.
static void expect_located(Model *m, Locate *locate, const char *want)
{
    Step step = {0};
    char text[LOCATE_TEXT] = "";
    run_batch(m, &step, 0, B, T);
    assert_true(locate_first(locate, NULL, text));
    assert_string_equal(text, want);
}

// Numbers that are born not finite: weights so large that a norm's squares overflow. The output in which it shows first
// is named, not the losses behind it, nor the gradients. Of several, the first in time is named: of outputs that of the
// embedding, of gradients those of the last unit.
TEST(test_born_and_first_of_several)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_create(&gpt, dev, &mem, B, T, 1, true);
    const Param *row = m->params.row;
    Locate locate;
    locate_begin(&locate, m);
    locate_step(&locate);
    memset(m->grads, 0, m->params.n_elems * sizeof *m->grads);
    m->grads[row[params_find(&m->params, "layers.1.attn.q.weight")].offset] = INFINITY;
    m->grads[row[params_find(&m->params, "layers.3.attn.q.weight")].offset] = NAN;
    expect_located(m, &locate, "the gradient of layers.3.attn.q.weight");
    fill_row(m, "layers.3.ffn.up.weight", 3e38f);
    locate_step(&locate);
    expect_located(m, &locate, "the output of block 3");
    fill_row(m, "embed.tokens.weight", 3e38f);
    fill_row(m, "embed.positions.weight", 3e38f);
    locate_step(&locate);
    expect_located(m, &locate, "the output of the embedding");
    end_model(m, &mem, dev);
}

TESTS(NULL, NULL)
