// test_unit: units and their models: buffer lists against what the allocator counts and against the formula worked out
// by hand, roles and their tensors, the head, whose results must not depend on its chunks of rows; layers that attend
// within a window; and packed rows against their documents alone.
#include "test/test.h"

#include "net/model.h"
#include "base/vmath.h"
#include "ops_ref.h"
#include "base/rng.h"
#include "ops/dev_cpu.h"
#include "text/packing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const ModelShape gpt = {
    .layers = 3, .channels = 12, .heads = 3, .kv_heads = 3, .head_size = 4, .ffn = 20, .vocab = 31, .context = 9,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = {
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 14, .vocab = 31, .context = 9,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

// ---- memory

// Saved floats of one block for one row. GPT: two norms and the residual (3C), their statistics (4), q k v, attention,
// lse (H), and both sides of the GELU (2F). LLaMA: one F more for the gate; QK-norm: q k v again, a statistic a head.
static size_t block_row(const ModelShape *s)
{
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size;
    size_t n = 3 * s->channels + 4 + qkv + s->heads * s->head_size + s->heads + (s->swiglu ? 3 : 2) * s->ffn;
    return n + (s->qk_norm ? qkv + s->heads + s->kv_heads : 0);
}

static size_t head_row(const ModelShape *s)
{
    return s->channels + 2;
}

// Scratch: the widest gradients of one block (C, q k v, attention, F or 3F), the logits of a chunk of rows, in training
// the stream's gradient, and token, position, target and loss of a row.
static size_t scratch_floats(const ModelShape *s, size_t N, bool train)
{
    size_t qkv = (s->heads + 2 * s->kv_heads) * s->head_size, chunk = N < 1024 ? N : 1024;
    size_t row = s->channels + qkv + s->heads * s->head_size + (s->swiglu ? 3 : 1) * s->ffn + 4;
    return N * (row + (train ? s->channels : 0)) + chunk * s->vocab;
}

static void check_memory(const ModelShape *s, size_t B, size_t T, bool train)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_create(s, dev, &mem, B, T, 1, train);
    size_t N = B * T, n = m->params.n_elems, listed = 0;
    for (int u = 0; u < m->n_units; u++) {
        BufferList list = m->unit[u].kind->saved(dev, s, B, T);
        bool own = train || u < 2 || u == m->n_units - 1; // without gradients all blocks share
        for (int i = 0; own && i < list.n; i++) listed += list.n_bytes[i];
    }
    size_t blocks = train ? s->layers : 1, streams = train ? s->layers + 1 : 1;
    assert_int_equal(listed, 4 * N * (blocks * block_row(s) + head_row(s)));
    assert_int_equal(mem.tag_bytes[MEM_PARAMS], 4 * n);
    assert_int_equal(mem.tag_bytes[MEM_GRADS], train ? 4 * n : 0);
    assert_int_equal(mem.tag_bytes[MEM_ACTS], listed + 4 * streams * N * s->channels);
    assert_int_equal(mem.tag_bytes[MEM_SCRATCH], 4 * scratch_floats(s, N, train));
    BufferList scratch = unit_scratch(dev, s, N);
    size_t shared = 0;
    for (int i = 0; i < scratch.n; i++) shared += scratch.n_bytes[i];
    assert_int_equal(shared, mem.tag_bytes[MEM_SCRATCH] - 4 * N * (4 + (train ? s->channels : 0)));
    assert_int_equal(mem.bytes, mem.tag_bytes[MEM_PARAMS] + mem.tag_bytes[MEM_GRADS] + mem.tag_bytes[MEM_ACTS]
                                    + mem.tag_bytes[MEM_SCRATCH]);
    KvCache cache = model_cache_create(m);
    assert_non_null(cache.k);
    assert_int_equal(mem.tag_bytes[MEM_SCRATCH], 4 * scratch_floats(s, N, train)
                                                     + 8 * s->layers * s->context * s->kv_heads * s->head_size);
    end_model(m, &mem, dev);
}

TEST(test_lists_are_what_is_allocated)
{
    check_memory(&gpt, 2, 9, true);
    check_memory(&llama, 2, 9, true);
    check_memory(&gpt, 1, 9, false);
    check_memory(&llama, 3, 5, false);
    check_memory(&gpt, 200, 9, true); // more rows than one chunk of logits
}

// ---- roles

TEST(test_roles)
{
    const ModelShape *shapes[] = {&gpt, &llama};
    for (int i = 0; i < 2; i++) {
        const ModelShape *s = shapes[i];
        Mem mem = {0};
        Dev *dev = dev_cpu_create(1);
        Model *m = model_create(s, dev, &mem, 1, 1, 1, true);
        UnitContext ctx = {.dev = dev, .shape = s, .params = &m->params, .weight = m->unit_weight,
                           .grad = m->unit_grad, .begin = m->unit_begin, .linear = &linear_plain};
        const Unit *embed = &m->unit[0], *block = &m->unit[1], *head = &m->unit[m->n_units - 1];
        assert_int_equal(unit_weight(&ctx, block, B_QKV) == NULL, !s->bias);
        assert_int_equal(unit_weight(&ctx, block, W_Q_NORM) == NULL, !s->qk_norm);
        assert_int_equal(unit_weight(&ctx, embed, W_POSITIONS) == NULL, s->rope);
        assert_int_equal(unit_weight(&ctx, head, W_HEAD) == unit_weight(&ctx, embed, W_TOKENS), s->tie);
        assert_null(unit_weight(&ctx, head, W_QKV));
        const char *names[] = {"layers.0.attn.q.weight", "layers.0.ffn.down.weight"};
        const UnitRole roles[] = {W_QKV, W_FFN_DOWN};
        for (int j = 0; j < 2; j++) {
            size_t at = m->params.row[params_find(&m->params, names[j])].offset;
            assert_ptr_equal(unit_weight(&ctx, block, roles[j]), m->weights + at);
            assert_ptr_equal(unit_grad(&ctx, block, roles[j]), m->grads + at);
        }
        const Param *q = &m->params.row[block->row[W_QKV]]; // k and v right behind it: one matmul
        assert_string_equal(q[1].name, "layers.0.attn.k.weight");
        assert_string_equal(q[2].name, "layers.0.attn.v.weight");
        assert_int_equal(q[1].offset, q[0].offset + q[0].n_elems);
        assert_int_equal(q[2].offset, q[1].offset + q[1].n_elems);
        end_model(m, &mem, dev);
    }
}

// ---- dropout

// A site's numbers follow from its name, which holds the layer, and from the global index of the sequence.
TEST(test_dropout_sites)
{
    const Unit embed = {.place = 0}, third = {.index = 1, .place = 3}; // on a later stage
    Batch batch = {.B = 2, .T = 9, .N = 18, .train = true, .dropout = 0.25f, .seed = 8, .step = 5, .sample = 40};
    const struct {
        const Unit *unit;
        const char *site, *name;
    } sites[] = {{&embed, "embed", "dropout.embed"}, {&third, "attn", "dropout.layers.2.attn"},
                 {&third, "probs", "dropout.layers.2.probs"}};
    for (int i = 0; i < 3; i++) {
        Dropout drop = unit_dropout(sites[i].unit, &batch, sites[i].site, 7);
        Rng rng = rng_make(8, sites[i].name, 5);
        assert_true(drop.p == 0.25f && drop.first == 280);
        assert_true(drop.rng.seed == rng.seed && drop.rng.name == rng.name && drop.rng.step == rng.step);
    }
    batch.train = false;
    assert_true(unit_dropout(&third, &batch, "attn", 7).p == 0);
}

// Elements first .. first + n - 1 get the mask that they have in the whole tensor. Dropout and GELU write no others.
TEST(test_dropout_of_a_part)
{
    float one[16], whole[16], part[18];
    for (int i = 0; i < 16; i++) one[i] = 1;
    Dropout drop = {.p = 0.5f, .rng = rng_make(3, "dropout", 0)};
    Dev *dev = dev_cpu_create(1);
    dev->dropout(dev, (X *)whole, (X *)one, 16, drop);
    for (size_t first = 0; first < 8; first++)
        for (size_t n = 0; n <= 8; n++) {
            for (int i = 0; i < 18; i++) part[i] = 77;
            drop.first = first;
            dev->dropout(dev, (X *)(part + 1), (X *)one, n, drop);
            assert_memory_equal(part + 1, whole + first, n * sizeof *part);
            assert_true(part[0] == 77 && part[n + 1] == 77);
            dev->act_forward(dev, (X *)(part + 1), (X *)one, n, ACT_GELU);
            assert_true(part[0] == 77 && part[n + 1] == 77);
        }
    dev_cpu_free(dev);
}

// ---- the head

TEST(test_chunk_size)
{
    const size_t vocabs[] = {2, 257, 4096, 32768, 50257, 128256, 600000, 5000000};
    const size_t rows[] = {1, 63, 64, 100, 1024, 9000};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            ModelShape s = {.vocab = vocabs[i]};
            size_t chunk = unit_head_chunk(&s, rows[j]);
            assert_true(chunk >= 1 && chunk <= rows[j] && chunk <= 1024);
            assert_true(chunk * s.vocab <= (1u << 25) || chunk <= 64);
            assert_true(chunk == rows[j] || chunk % 64 == 0);
        }
    ModelShape small = {.vocab = 4096};
    assert_int_equal(unit_head_chunk(&small, 9000), 1024); // not needlessly small either
    for (int one = 0; one < 2; one++) { // of the rank with the largest share, and the same on all ranks
        ModelShape part = {.vocab = 32768, .cut = {.size = 3, .vocab = 3 * 32768 + (size_t)one}};
        assert_int_equal(unit_head_chunk(&part, 9000), one ? 960 : 1024);
    }
}

enum { ROWS = 2500, C = 6, V = 29 }; // three chunks: 1024, 1024, 452

typedef struct {
    float x[ROWS * C], norm[ROWS * C], mean[ROWS], rstd[ROWS], loss[ROWS], stream[ROWS * C], scratch[ROWS * C];
    float logits[1024 * V];
    int32_t target[ROWS];
    float *grads;
} Head;

// One head unit by hand; row range [first, first + n) as a batch of its own. Gradients are added to h->grads.
static void run_head(Head *h, const ModelShape *s, const Params *params, const Unit *unit, float *weights, size_t first,
                     size_t n, bool train)
{
    Dev *dev = dev_cpu_create(2);
    size_t begin[3] = {0}, end;
    X *weight[3];
    float *grad[3];
    for (int u = 0; u < 3; u++) {
        params_unit_range(params, u, &begin[u], &end);
        weight[u] = (X *)(weights + begin[u]);
        grad[u] = h->grads + begin[u];
    }
    void *scratch[] = {h->scratch, NULL, NULL, NULL, h->logits};
    void *saved[] = {h->norm + first * C, h->mean + first, h->rstd + first};
    UnitContext ctx = {.dev = dev, .shape = s, .params = params, .weight = weight, .grad = grad, .begin = begin,
                       .scratch = scratch, .linear = &linear_plain};
    Batch batch = {.B = 1, .T = n, .N = n, .target = h->target + first, .loss = h->loss + first, .scale = 0.125f,
                   .train = train};
    const X *inp = (const X *)(h->x + first * C);
    unit->kind->forward(&ctx, unit, NULL, inp, saved, &batch);
    if (train) unit->kind->backward(&ctx, unit, (X *)(h->stream + first * C), inp, saved, &batch);
    dev_cpu_free(dev);
}

// logits = norm W^T and the loss of each row in double from the rounded norm, with their bounds: an error e of the
// logits moves the loss by at most 2 e, and the gradient by at most 2 e of its softmax.
static void expect_head(const Head *h, const float *w_head, const float *grad_head, double cap, const char *what)
{
    size_t n_logits = (size_t)ROWS * V;
    double *norm = zeroed((ROWS * C + V * C + 4 * n_logits + 2 * ROWS + 2 * V * C) * sizeof *norm);
    double *w = norm + ROWS * C, *z = w + V * C, *z_err = z + n_logits, *dz = z_err + n_logits, *dz_err = dz + n_logits;
    double *loss = dz_err + n_logits, *loss_err = loss + ROWS, *dw = loss_err + ROWS, *dw_err = dw + V * C;
    for (size_t i = 0; i < ROWS * C; i++) norm[i] = h->norm[i];
    for (size_t i = 0; i < V * C; i++) w[i] = w_head[i];
    ref_matmul(z, z_err, norm, w, NULL, ROWS, C, V);
    ref_xent(loss, loss_err, dz, dz_err, z, h->target, ROWS, V, 0.125, cap);
    for (size_t n = 0; n < ROWS; n++) {
        double e = 0;
        for (size_t v = 0; v < V; v++) e = fmax(e, z_err[n * V + v]);
        if (!(fabs(h->loss[n] - loss[n]) <= loss_err[n] + 2 * e))
            fail_msg("%s: loss of row %zu: %.9g, not %.9g", what, n, h->loss[n], loss[n]);
        for (size_t v = 0; v < V; v++) {
            double p = h->target[n] < 0 ? 0 : fabs(dz[n * V + v]) + (h->target[n] == (int32_t)v ? 0.125 : 0);
            dz_err[n * V + v] += cap > 0 ? 0.125 * (2 * e + e / cap) : 2 * e * p; // the slope moves by e / cap at most
        }
    }
    ref_outer_sum(dw, dw_err, dz, norm, ROWS, V, C);
    for (size_t v = 0; grad_head && v < V; v++)
        for (size_t c = 0; c < C; c++) {
            double err = dw_err[v * C + c];
            for (size_t n = 0; n < ROWS; n++) err += dz_err[n * V + v] * fabs(norm[n * C + c]);
            if (!(fabs(grad_head[v * C + c] - dw[v * C + c]) <= err))
                fail_msg("%s: gradient (%zu, %zu): %.9g, not %.9g", what, v, c, grad_head[v * C + c], dw[v * C + c]);
        }
    free(norm);
}

// All rows in one batch (three chunks) or in batches of 100 (one chunk each), and these with a cap of the logits,
// forward only and with backward: every row
// has the loss it has alone, and the weight gradient is the sum over all rows.
TEST(test_chunks_do_not_show)
{
    ModelShape s = {.layers = 1, .channels = C, .heads = 1, .kv_heads = 1, .head_size = C, .ffn = 1, .vocab = V,
                    .context = 1, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 1e4f};
    Params params;
    Unit *unit;
    model_describe(&s, &params, &unit);
    Head *h = calloc(1, sizeof *h);
    float *weights = calloc(2 * params.n_elems, sizeof *weights);
    assert_true(h && weights);
    h->grads = weights + params.n_elems;
    params_init(&params, 1, weights);
    size_t at = params.row[unit[2].row[W_HEAD]].offset;
    for (size_t i = 0; i < (size_t)V * C; i++) weights[at + i] *= 50; // normal(0, 1): the softmax is not flat
    for (size_t i = 0; i < (size_t)ROWS * C; i++) h->x[i] = (float)rng_normal(rng_make(1, "x", 0), i);
    for (size_t n = 0; n < ROWS; n++) h->target[n] = n % 9 == 4 ? -1 : (int32_t)rng_below(rng_make(1, "y", 0), n, V);
    const size_t sizes[] = {ROWS, 100, 100};
    for (int i = 0; i < 3; i++) {
        s.logit_cap = i == 2 ? 3 : 0;
        for (int train = 0; train < 2; train++) {
            memset(h->grads, 0, params.n_elems * sizeof *h->grads);
            for (size_t n = 0; n < ROWS; n++) h->loss[n] = NAN;
            for (size_t first = 0; first < ROWS; first += sizes[i])
                run_head(h, &s, &params, &unit[2], weights, first, sizes[i], train);
            expect_head(h, weights + at, train ? h->grads + at : NULL, s.logit_cap,
                        s.logit_cap > 0 ? "capped" : i ? "batches of 100" : "one batch");
        }
    }
    free(h);
    free(weights);
    free(unit);
    params_free(&params);
}

// ---- logits of a new model: capped, and with projections into the residual stream that start at 0

static void logits_at_start(const ModelShape *s, float *out)
{
    static const int32_t token[9] = {3, 30, 0, 3, 17, 9, 9, 21, 1};
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_create(s, dev, &mem, 1, 9, 1, false);
    model_set_batch(m, token, NULL, token, 1, 9);
    model_logits(m, out);
    end_model(m, &mem, dev);
}

// What samples are drawn from: the capped logits.
TEST(test_capped_logits)
{
    float plain[9 * 31], capped[9 * 31];
    ModelShape s = llama;
    logits_at_start(&s, plain);
    s.logit_cap = 0.125f;
    logits_at_start(&s, capped);
    double most = 0;
    for (size_t i = 0; i < 9 * 31; i++) {
        assert_true(capped[i] == vmath_cap(plain[i], s.logit_cap) && fabsf(capped[i]) <= s.logit_cap);
        most = fmax(most, fabs(plain[i] - capped[i]));
    }
    assert_true(most > 0.001);
}

// Those matrices are 0 and the other rows are as they were; so blocks add nothing, and more of them change no bit.
TEST(test_zero_init)
{
    ModelShape moe = llama;
    moe.experts = (ModelExperts){.n = 4, .k = 2, .ffn = 6, .shared = 10, .every = 2, .scale = 1};
    const ModelShape *const family[] = {&gpt, &llama, &moe};
    for (int f = 0; f < 3; f++) {
        ModelShape zero = *family[f], deep;
        zero.zero_init = true;
        Params plain, params;
        Unit *unit[2];
        model_describe(family[f], &plain, &unit[0]);
        model_describe(&zero, &params, &unit[1]);
        assert_int_equal(params.n_rows, plain.n_rows);
        size_t out = 0;
        for (int i = 0; i < params.n_rows; i++) {
            const Param *p = &params.row[i], *q = &plain.row[i];
            bool writes = strstr(p->name, "attn.out.weight") || strstr(p->name, "down.weight");
            out += writes;
            if (!(p->init_std == (writes ? 0 : q->init_std) && p->init_mean == q->init_mean))
                fail_msg("%s: std %g", p->name, p->init_std);
            assert_true(!writes || q->init_std > 0);
        }
        assert_int_equal(out, f == 2 ? 2 + 1 + 5 : 2 * zero.layers); // 4 experts and the shared one
        float a[9 * 31], b[9 * 31], with[9 * 31];
        deep = zero, deep.layers += 3;
        logits_at_start(&zero, a), logits_at_start(&deep, b), logits_at_start(family[f], with);
        assert_memory_equal(a, b, sizeof a);
        assert_memory_not_equal(a, with, sizeof a);
        params_free(&plain), params_free(&params);
        free(unit[0]), free(unit[1]);
    }
}

// ---- window: models whose layers attend within a window: which layer has which, how far a token reaches, that text
// from the key/value cache is that of the whole sequence, and what it costs; and packed rows against their documents
// alone.

enum { VOCAB = 61 };

static ModelShape shape_of(size_t layers, size_t context, size_t window, const char *pattern)
{
    ModelShape s = {.layers = layers, .channels = 16, .heads = 4, .kv_heads = 2, .head_size = 4, .ffn = 24,
                    .vocab = VOCAB, .context = context, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f,
                    .swiglu = true, .rope = true, .window = window};
    strcpy(s.window_pattern, pattern);
    return s;
}

typedef struct {
    Dev *dev;
    Mem mem;
    Model *model;
    int32_t *token;
    size_t T;
} Case;

// Weights so large that every key changes the output.
static Case *case_open(ModelShape s, size_t T, bool train)
{
    Case *c = zeroed(sizeof *c);
    c->dev = dev_cpu_create(2), c->token = calloc(T + 1, sizeof *c->token), c->T = T;
    assert_non_null(c->token);
    c->model = model_create(&s, c->dev, &c->mem, 1, T, 1, train);
    for (size_t i = 0; i < c->model->params.n_elems; i++)
        c->model->weights[i] = 0.4f * (float)rng_normal(rng_make(2, "w", 0), i);
    for (size_t t = 0; t <= T; t++) c->token[t] = (int32_t)(rng_uniform(rng_make(3, "t", 0), t) * VOCAB);
    return c;
}

static void case_close(Case *c)
{
    end_model(c->model, &c->mem, c->dev);
    free(c->token);
    free(c);
}

static float *logits_of(Case *c)
{
    float *logits = zeroed((c->T * VOCAB) * sizeof *logits);
    model_set_batch(c->model, c->token, NULL, c->token + 1, 1, c->T);
    model_logits(c->model, logits);
    return logits;
}

// ---- which layer has a window

static size_t seen[32], n_seen;
static void (*forward_of_cpu)(Dev *, X *, float *, const X *, const X *, const X *, AttnShape);
static void (*backward_of_cpu)(Dev *, X *, X *, X *, const X *, const X *, const float *, const X *, const X *,
                               const X *, AttnShape);

static void record_forward(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    seen[n_seen++] = s.window;
    forward_of_cpu(dev, out, lse, q, k, v, s);
}

static void record_backward(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse, const X *q,
                            const X *k, const X *v, AttnShape s)
{
    seen[n_seen++] = s.window;
    backward_of_cpu(dev, dq, dk, dv, dout, out, lse, q, k, v, s);
}

TEST(test_pattern)
{
    enum { W = 3, LAYERS = 7 };
    static const struct {
        const char *pattern, *layers;
    } rows[] = {{"", "sssssss"}, {"s", "sssssss"}, {"sf", "sfsfsfs"}, {"ssf", "ssfssfs"}, {"sssssf", "sssssfs"},
                {"f", "fffffff"}, {"fffsfsss", "fffsfss"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Case *c = case_open(shape_of(LAYERS, 8, W, rows[i].pattern), 8, true);
        forward_of_cpu = c->dev->attention_forward, backward_of_cpu = c->dev->attention_backward;
        c->dev->attention_forward = record_forward, c->dev->attention_backward = record_backward;
        n_seen = 0;
        model_set_batch(c->model, c->token, NULL, c->token + 1, 1, 8);
        model_forward_backward(c->model, 1);
        assert_int_equal(n_seen, 2 * LAYERS);
        for (size_t l = 0; l < LAYERS; l++) {
            size_t want = rows[i].layers[l] == 's' ? W : 0;
            assert_int_equal(unit_window(&c->model->shape, l), want);
            assert_int_equal(seen[l], want);
            assert_int_equal(seen[2 * LAYERS - 1 - l], want);
        }
        case_close(c);
    }
}

// ---- the receptive field: a token reaches layers (W - 1) tokens on, and with one full layer all

TEST(test_how_far_a_token_reaches)
{
    enum { T = 40, AT = 5 };
    for (size_t layers = 1; layers <= 3; layers++)
        for (size_t W = 1; W <= 6; W++)
            for (int full = 0; full < 2; full++) {
                Case *c = case_open(shape_of(layers, T, W, full ? "fss" : "s"), T, false);
                float *before = logits_of(c);
                c->token[AT] = (c->token[AT] + 1) % VOCAB;
                float *after = logits_of(c);
                size_t last = full ? T - 1 : AT + layers * (W - 1);
                for (size_t t = 0; t < T; t++) {
                    bool same = !memcmp(before + t * VOCAB, after + t * VOCAB, VOCAB * sizeof *before);
                    if (same != (t < AT || t > last))
                        fail_msg("%zu layers, window %zu, full %d: token %zu", layers, W, full, t);
                }
                free(before), free(after);
                case_close(c);
            }
}

// A window of the whole sequence changes no bit of loss and gradient; one token less changes both.
TEST(test_the_widest_window)
{
    enum { T = 70 };
    Case *none = case_open(shape_of(2, T, 0, ""), T, true);
    model_set_batch(none->model, none->token, NULL, none->token + 1, 1, T);
    double loss = model_forward_backward(none->model, 1);
    const size_t windows[] = {T - 1, T, T + 1, 1000};
    for (int i = 0; i < 4; i++) {
        Case *c = case_open(shape_of(2, T, windows[i], "s"), T, true);
        model_set_batch(c->model, c->token, NULL, c->token + 1, 1, T);
        assert_int_equal(model_forward_backward(c->model, 1) == loss, i > 0);
        size_t n_bytes = c->model->params.n_elems * sizeof(float);
        assert_int_equal(!memcmp(c->model->grads, none->model->grads, n_bytes), i > 0);
        case_close(c);
    }
    case_close(none);
}

// ---- the cache

// A logit is the end of a chain of 8 sums a layer, of at most C + F + T terms each; one of n terms errs by n u of the
// sum of their sizes, and norms keep sizes near 1. Two ways to compute it may err in opposite directions.
static double bound(const ModelShape *s, const float *logits, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = fmax(most, fabs((double)logits[i]));
    return 2 * 8 * (double)s->layers * (double)(s->channels + s->ffn + s->context) * 0x1p-24 * most;
}

// Logits from the cache, tokens fed in pieces, are those of the whole sequence, twice in a row; in all but the first
// case the keys of the windows move in the cache, several times.
TEST(test_the_cache)
{
    enum { T = 700 };
    static const struct {
        size_t window;
        const char *pattern;
        size_t rows; // that the cache holds, of 3 layers
    } rows[] = {{300, "s", 3 * T}, {1, "s", 3 * 192}, {2, "s", 3 * 192}, {20, "sf", 2 * 192 + T},
                {64, "fs", 2 * T + 192}, {65, "s", 3 * 195}, {150, "s", 3 * 450}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ModelShape s = shape_of(3, T, rows[i].window, rows[i].pattern);
        Case *c = case_open(s, T, false);
        size_t held = c->mem.tag_bytes[MEM_SCRATCH];
        KvCache cache = model_cache_create(c->model);
        assert_int_equal(c->mem.tag_bytes[MEM_SCRATCH] - held, 2 * rows[i].rows * s.kv_heads * s.head_size * 4);
        float *want = logits_of(c), *got = calloc(VOCAB, sizeof *got);
        double most = bound(&s, want, T * VOCAB);
        for (int again = 0; again < 2; again++, cache.length = 0)
            for (size_t t = 0, n; t < T; t += n) {
                n = t == 0 ? 130 : t % 97 == 0 ? 61 : 1; // a prompt, then tokens one by one, and some together
                if (n > T - t) n = T - t;
                model_next_logits(c->model, &cache, c->token + t, n, got);
                for (size_t v = 0; v < VOCAB; v++) {
                    float full = want[(t + n - 1) * VOCAB + v];
                    if (!(fabs((double)got[v] - full) <= most))
                        fail_msg("window %zu %s: token %zu: %g, not %g within %g", s.window, s.window_pattern,
                                 t + n - 1, got[v], full, most);
                }
            }
        assert_int_equal(cache.start > 0, i > 0);
        free(want), free(got);
        case_close(c);
    }
}

// ---- cost

// The sum of min(t + 1, W) over the queries is W T - W (W - 1) / 2; the W / 2 of the diagonal are left out, as for
// T x T, where half is counted. Within the rounding to whole keys.
TEST(test_flops)
{
    const size_t T = 100;
    for (size_t W = 0; W <= 120; W++) {
        ModelShape s = shape_of(6, T, W, "ssf"), none = shape_of(6, T, 0, "");
        double keys = 0;
        for (size_t t = 0; t < T; t++) keys += (double)(W && t + 1 > W ? W : t + 1);
        keys -= (double)(W && W < T ? W : T) / 2;
        double got = unit_window_keys(&s, 0, T) / 2;
        assert_true(got >= keys / (double)T - 1e-9 && got <= keys / (double)T + 0.5);
        assert_true(unit_window_keys(&s, 2, T) == (double)T);
        double less = 6 * 4 * 16 * ((double)T - 2 * got); // 4 layers, H D = 16
        assert_true(model_flops_per_token(&none, T) - model_flops_per_token(&s, T) == less);
        RecomputePolicy full = {.mode = RECOMPUTE_FULL}; // all layers but the last: the same 4 with a window
        assert_true(recompute_extra_flops(&none, full, T) - recompute_extra_flops(&s, full, T) == less / 3);
    }
}

// ---- packing model: a packed row gives the losses and gradients of its documents run alone, through whole models of
// both families: learned and rotary positions, grouped queries, QK-norm, a tied head.

static const ModelShape window_gpt = {
    .layers = 2, .channels = 12, .heads = 3, .kv_heads = 3, .head_size = 4, .ffn = 20, .vocab = 197, .context = 96,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
static const ModelShape window_llama = {
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 14, .vocab = 197, .context = 96,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

enum { EOT = 0, B = 2, T = 96, N = B * T, N_DOCS = 5 };
static const size_t doc_length[N_DOCS] = {5, 70, 21, 33, 63}; // the fourth goes on from a row before

// Tokens that stand nowhere else, but for the end-of-text token; the last row's last target and one more are masked.
typedef struct {
    int32_t token[N], target[N], pos[N], first[N];
} Rows;

static Rows rows_make(void)
{
    Rows r;
    for (int i = 0; i < N; i++) r.token[i] = 1 + (i * 5 + 3) % 196; // 5 and 196 have no common factor
    for (size_t d = 0, at = 0; d < N_DOCS; at += doc_length[d++])
        if (d != 3) r.token[at] = EOT;
    for (int i = 0; i < N; i++) r.target[i] = i + 1 < N ? r.token[i + 1] : EOT;
    r.target[T - 1] = EOT; // the document that ends the first row
    packing_positions(r.token, B, T, EOT, r.pos, r.first, r.target);
    r.target[40] = r.target[N - 1] = -1;
    return r;
}

// Larger weights than at the start of training: attention that is far from uniform.
static Model *model_make(const ModelShape *s, Dev *dev, Mem *mem)
{
    Model *m = model_allocate_with(s, dev, mem, B, T, true, (ModelOptions){.documents = true, .sequences = N_DOCS});
    params_init(&m->params, 1, m->weights);
    Rng more = rng_make(7, "more", 0);
    for (size_t i = 0; i < m->params.n_elems; i++) m->weights[i] += (float)(0.3 * rng_normal(more, i));
    model_weights_changed(m);
    return m;
}

static const float scale = 1.0f / N;

// Each document by itself; gradients add up. The losses go where the packed ones are.
static void run_alone(Model *m, const Rows *r, float *loss)
{
    for (size_t d = 0, at = 0; d < N_DOCS; at += doc_length[d++]) {
        model_set_batch(m, r->token + at, NULL, r->target + at, 1, doc_length[d]);
        model_forward_backward(m, scale);
        memcpy(loss + at, m->loss, doc_length[d] * sizeof *loss);
    }
}

static double norm_of(const float *x, const float *minus, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += pow((double)x[i] - (minus ? minus[i] : 0), 2);
    return sqrt(sum);
}

// Losses are the same to the bit on a deterministic device, where blocks of rows do not matter, and otherwise to a few
// roundings; gradients, tensor by tensor, are sums of the same terms in two orders.
static void check_model(const ModelShape *s, bool deterministic)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(2);
    dev->deterministic = deterministic;
    Model *packed = model_make(s, dev, &mem), *alone = model_make(s, dev, &mem);
    float loss[N];
    Rows r = rows_make();
    run_alone(alone, &r, loss);
    model_step_finish(alone);
    model_set_batch(packed, r.token, r.pos, r.target, B, T);
    model_set_documents(packed, r.first);
    model_forward_backward(packed, scale);
    model_step_finish(packed);
    for (size_t i = 0; i < N; i++)
        if (!(fabs((double)packed->loss[i] - loss[i]) <= (deterministic ? 0 : 1e-5 * loss[i])))
            fail_msg("the loss of token %zu is %.9g, alone %.9g", i, packed->loss[i], loss[i]);
    for (int i = 0; i < packed->params.n_rows; i++) {
        const Param *row = &packed->params.row[i];
        const float *own = packed->grads + row->offset, *other = alone->grads + row->offset;
        double off = norm_of(own, other, row->n_elems), size = norm_of(own, NULL, row->n_elems);
        bool nothing = strstr(row->name, "attn.k.bias"); // rounding alone
        if (!(size > 0 && (nothing || off <= 1e-5 * size))) fail_msg("%s: %g apart of %g", row->name, off, size);
    }
    const Param *embed = &packed->params.row[params_find(&packed->params, "embed.tokens.weight")];
    for (size_t i = 0; i < N && deterministic && !s->tie; i++) { // of a token that stands once: its row of the stream
        size_t row = embed->offset + (size_t)r.token[i] * s->channels;
        if (r.token[i] == EOT) continue;
        assert_memory_equal(packed->grads + row, alone->grads + row, s->channels * sizeof(float));
    }
    // And this is no matter of course: without documents the second one already sees the first.
    model_set_batch(packed, r.token, NULL, r.target, B, T);
    model_evaluate(packed);
    for (size_t i = 0; i < T; i++) {
        bool same = fabs((double)packed->loss[i] - loss[i]) <= 1e-5 * loss[i];
        assert_true(r.target[i] < 0 || same == (i < doc_length[0]));
    }
    model_free(packed), model_free(alone);
    mem_free_all(&mem);
    dev_cpu_free(dev);
}

TEST(test_packed_is_alone)
{
    ModelShape tied = window_gpt;
    tied.tie = true;
    check_model(&window_gpt, false);
    check_model(&tied, false);
    check_model(&window_llama, false);
}

TEST(test_packed_is_alone_in_deterministic_mode)
{
    check_model(&window_gpt, true);
    check_model(&window_llama, true);
}

TESTS(NULL, NULL)
