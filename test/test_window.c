// test_window: models whose layers attend within a window: which layer has which, how far a token reaches, that text
// from the key/value cache is that of the whole sequence, and what it costs.
#include "test/test.h"

#include "base/rng.h"
#include "net/model.h"
#include "ops/dev_cpu.h"

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

TESTS(NULL, NULL)
