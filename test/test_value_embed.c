// test_value_embed: which layers have a value embedding, what their tables are to optimizer, muP and fp8, and that they
// start a model near the one without. (test_model compares gradients with PyTorch, test_tp, test_cp_model and
// test_layouts.sh ranks with one.)
#include "test/test.h"

#include "net/model.h"
#include "ops/fp8.h"
#include "train/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 61, T = 8, G = 2, D = 6 };
static const ModelShape shape = {
    .layers = 5, .channels = 16, .heads = 4, .kv_heads = G, .head_size = D, .ffn = 28, .vocab = V, .context = T,
    .value_embeddings = "v--", .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true,
    .rope = true};

static bool is_table(const Param *row)
{
    return strstr(row->name, ".attn.value_embed.weight") != NULL;
}

TEST(test_layers)
{
    Params params;
    Unit *unit;
    model_describe(&shape, &params, &unit);
    int tables = 0;
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i], *scale = row + 1;
        if (!is_table(row)) continue;
        tables++;
        assert_true((row->unit - 1) % 3 == 0);
        assert_true(row->dim[0] == V && row->dim[1] == G * D && row->cut == 1 && row->decay);
        assert_true(row->init_mean == 0 && row->init_std == 0.02f);
        assert_non_null(strstr(scale->name, ".attn.value_embed.scale"));
        assert_true(scale->n_elems == 8 && scale->init_mean == 1 && scale->init_std == 0 && !scale->decay);
    }
    assert_int_equal(tables, 2); // layers 0 and 3
    ModelShape none = shape;
    strcpy(none.value_embeddings, "");
    for (size_t l = 0; l < shape.layers; l++) assert_false(unit_has_values(&none, l));
    assert_true(model_matmul_params(&shape) == model_matmul_params(&none)); // nothing is multiplied by a table
    free(unit);
    params_free(&params);
}

// To the optimizer, muP and fp8 a table is what the token embedding is.
TEST(test_an_embedding)
{
    ModelShape mup = shape;
    mup.mup_base = 4;
    Params params;
    Unit *unit;
    model_describe(&mup, &params, &unit);
    Fp8 *fp8 = fp8_create(FP8_CURRENT, 1);
    fp8_set_sites(fp8, &params, "");
    const OptimKind *muon = optim_kind(OPTIM_MUON);
    for (int i = 0; i < params.n_rows; i++) {
        const Param *row = &params.row[i];
        bool embedding = is_table(row) || !strcmp(row->name, "embed.tokens.weight");
        bool hidden = row->ndim == 2 && !embedding && strcmp(row->name, "head.weight");
        assert_int_equal(params_place(&params, row) == PARAM_OF_EMBEDDING, embedding);
        assert_int_equal(optim_kind_elems(&muon->state[0], &params, row) > 0, hidden);
        assert_int_equal(row->lr_scale == 1, row->ndim == 1 || embedding);
        assert_int_equal(fp8->on[i], hidden);
        if (embedding) assert_true(row->init_std == 0.02f);
    }
    fp8_free(fp8);
    free(unit);
    params_free(&params);
}

static float *logits_of(const ModelShape *s, float scale)
{
    static const int32_t token[T] = {3, 60, 0, 3, 17, 9, 9, 41};
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_create(s, dev, &mem, 1, T, 1, false);
    for (int i = 0; i < m->params.n_rows; i++)
        if (strstr(m->params.row[i].name, "value_embed.scale")) m->weights[m->params.row[i].offset] *= scale;
    float *logits = malloc(T * V * sizeof *logits);
    assert_non_null(logits);
    model_set_batch(m, token, NULL, token, 1, T);
    model_logits(m, logits);
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(dev);
    return logits;
}

// Initial weights are a function of a tensor's name, so the other tensors are those of the model without.
TEST(test_begins_near_the_plain_model)
{
    ModelShape none = shape;
    strcpy(none.value_embeddings, "");
    float *plain = logits_of(&none, 1), *off = logits_of(&shape, 0), *on = logits_of(&shape, 1);
    double size = 0, moved = 0;
    for (size_t i = 0; i < T * V; i++) {
        assert_true(off[i] == plain[i]);
        size += plain[i] * plain[i], moved += (on[i] - plain[i]) * (on[i] - plain[i]);
    }
    assert_true(moved > 0 && moved < 0.01 * size);
    free(plain), free(off), free(on);
}

TESTS(NULL, NULL)
