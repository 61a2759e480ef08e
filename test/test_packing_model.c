// test_packing_model: a packed row gives the losses and gradients of its documents run alone, through whole models of
// both families: learned and rotary positions, grouped queries, QK-norm, a tied head.
#include "test/test.h"

#include "net/model.h"
#include "ops_ref.h"
#include "text/packing.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *zeros(size_t n)
{
    double *ptr = calloc(n, sizeof *ptr);
    if (!ptr) fail_msg("no memory");
    return ptr;
}

static const ModelShape gpt = {
    .layers = 2, .channels = 12, .heads = 3, .kv_heads = 3, .head_size = 4, .ffn = 20, .vocab = 197, .context = 96,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
static const ModelShape llama = {
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 14, .vocab = 197, .context = 96,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true};

enum { EOT = 0, B = 2, T = 96, N = B * T, N_DOCS = 5 };
static const size_t doc_length[N_DOCS] = {5, 70, 21, 33, 63}; // the fourth goes on from a row before

// A device whose rows do not know of each other, matmul by matmul: what BLAS does to a row may depend on how many there
// are. And which notes, for every element of the gradient, the sum of the sizes of the terms that make it.
typedef struct {
    Dev dev;
    Dev *inner;
    const float *grads;
    double *size;
} Spy;

static const char *row_at(const X *x, size_t i)
{
    return (const char *)x + i * sizeof(float);
}

static void spy_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t rows, size_t C,
                        size_t OC, int site)
{
    for (size_t n = 0; n < rows; n++)
        ((Spy *)dev)->inner->matmul_forward(dev, (X *)row_at(out, n * OC), (const X *)row_at(inp, n * C), weight, bias,
                                            1, C, OC, site);
}

static void spy_gelu_forward(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t rows,
                             size_t C, size_t OC, int site)
{
    for (size_t n = 0; n < rows; n++)
        ((Spy *)dev)->inner->matmul_gelu_forward(dev, (X *)row_at(out, n * OC), (X *)row_at(pre, n * OC),
                                                 (const X *)row_at(inp, n * C), weight, bias, 1, C, OC, site);
}

static void spy_backward_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t rows, size_t C, size_t OC,
                               int site)
{
    for (size_t n = 0; n < rows; n++)
        ((Spy *)dev)->inner->matmul_backward_input(dev, (X *)row_at(dinp, n * C), (const X *)row_at(dout, n * OC),
                                                   weight, 1, C, OC, site);
}

static void spy_gelu_backward_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre, size_t rows,
                                    size_t C, size_t OC, int site)
{
    for (size_t n = 0; n < rows; n++)
        ((Spy *)dev)->inner->matmul_gelu_backward_input(dev, (X *)row_at(dpre, n * C),
                                                        (const X *)row_at(dout, n * OC), weight,
                                                        (const X *)row_at(pre, n * C), 1, C, OC, site);
}

// The gradient at `grad` gets one more term.
static void note(Dev *dev, const float *grad, double term)
{
    ((Spy *)dev)->size[grad - ((Spy *)dev)->grads] += fabs(term);
}

static void spy_backward_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t rows,
                                size_t C, size_t OC, int site)
{
    const float *dy = (const float *)dout, *x = (const float *)inp;
    for (size_t n = 0; n < rows; n++)
        for (size_t o = 0; o < OC; o++) {
            for (size_t c = 0; c < C; c++) note(dev, dweight + o * C + c, (double)dy[n * OC + o] * x[n * C + c]);
            if (dbias) note(dev, dbias + o, dy[n * OC + o]);
        }
    ((Spy *)dev)->inner->matmul_backward_weight(dev, dweight, dbias, dout, inp, rows, C, OC, site);
}

static void spy_embed_backward(Dev *dev, float *dwte, float *dwpe, const X *dout, const int32_t *token,
                               const int32_t *pos, size_t rows, size_t C, size_t V)
{
    const float *dy = (const float *)dout;
    for (size_t i = 0; i < rows * C; i++) {
        note(dev, dwte + (size_t)token[i / C] * C + i % C, dy[i]);
        if (dwpe) note(dev, dwpe + (size_t)pos[i / C] * C + i % C, dy[i]);
    }
    ((Spy *)dev)->inner->embed_backward(dev, dwte, dwpe, dout, token, pos, rows, C, V);
}

static void spy_norm_backward(Dev *dev, X *dinp, float *dweight, float *dbias, const X *dout, const X *dresid,
                              const X *inp, const float *mean, const float *rstd, const X *weight, size_t rows,
                              size_t C, NormKind kind)
{
    const float *dy = (const float *)dout, *x = (const float *)inp;
    for (size_t i = 0; i < rows * C; i++) {
        double centre = kind == NORM_LAYERNORM ? mean[i / C] : 0;
        note(dev, dweight + i % C, dy[i] * (fabs(x[i]) + fabs(centre)) * rstd[i / C]);
        if (dbias) note(dev, dbias + i % C, dy[i]);
    }
    ((Spy *)dev)->inner->norm_backward(dev, dinp, dweight, dbias, dout, dresid, inp, mean, rstd, weight, rows, C, kind);
}

static void spy_head_norm_backward(Dev *dev, X *dinp, float *dweight, const X *dout, const X *inp, const float *rstd,
                                   const X *weight, size_t rows, size_t heads, size_t D, size_t ld)
{
    const float *dy = (const float *)dout, *x = (const float *)inp;
    for (size_t n = 0; n < rows; n++)
        for (size_t i = 0; i < heads * D; i++)
            note(dev, dweight + i % D, (double)dy[n * ld + i] * x[n * ld + i] * rstd[n * heads + i / D]);
    ((Spy *)dev)->inner->head_norm_backward(dev, dinp, dweight, dout, inp, rstd, weight, rows, heads, D, ld);
}

static void spy_watch(Spy *spy, Dev *inner)
{
    *spy = (Spy){.dev = *inner, .inner = inner};
    spy->dev.matmul_forward = spy_forward;
    spy->dev.matmul_gelu_forward = spy_gelu_forward;
    spy->dev.matmul_backward_input = spy_backward_input;
    spy->dev.matmul_gelu_backward_input = spy_gelu_backward_input;
    spy->dev.matmul_backward_weight = spy_backward_weight;
    spy->dev.embed_backward = spy_embed_backward;
    spy->dev.norm_backward = spy_norm_backward;
    spy->dev.head_norm_backward = spy_head_norm_backward;
}

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

static void check_model(const ModelShape *s, bool deterministic)
{
    Mem mem = {0};
    Dev *cpu = dev_cpu_create(2);
    cpu->deterministic = deterministic;
    Spy spy;
    spy_watch(&spy, cpu);
    Dev *dev = deterministic ? cpu : &spy.dev;
    Model *packed = model_make(s, dev, &mem), *alone = model_make(s, dev, &mem);
    size_t n = packed->params.n_elems;
    double *size = zeros(n), *twice = zeros(n);
    float loss[N];
    Rows r = rows_make();

    spy.grads = alone->grads, spy.size = twice;
    run_alone(alone, &r, loss);
    model_step_finish(alone);
    spy.grads = packed->grads, spy.size = size;
    model_set_batch(packed, r.token, r.pos, r.target, B, T);
    model_set_documents(packed, r.first);
    model_forward_backward(packed, scale);
    model_step_finish(packed);
    assert_memory_equal(packed->loss, loss, sizeof loss); // every token's loss, all bits
    if (!s->tie) // a token that stands once has for a gradient its row of the stream: nothing was summed
        for (size_t i = 0; i < N; i++) {
            size_t row = packed->params.row[params_find(&packed->params, "embed.tokens.weight")].offset
                + (size_t)r.token[i] * s->channels;
            if (r.token[i] == EOT) continue;
            assert_memory_equal(packed->grads + row, alone->grads + row, s->channels * sizeof(float));
        }
    // The other gradients are sums of the same terms, at most N a tensor and head, in two orders: each is within
    // gam(terms) of the exact sum. Five more for the rounding of a term.
    for (size_t i = 0; !deterministic && i < n; i++) {
        double bound = 2 * gam((size_t)N * s->heads + 5) * size[i];
        assert_true(fabs(size[i] - twice[i]) <= 1e-9 * size[i]); // the same terms
        if (!(fabs((double)packed->grads[i] - alone->grads[i]) <= bound))
            fail_msg("gradient %zu: packed %.9g, alone %.9g, bound %.2g", i, packed->grads[i], alone->grads[i], bound);
    }
    // And this is no matter of course: without documents the second one already sees the first.
    model_set_batch(packed, r.token, NULL, r.target, B, T);
    model_evaluate(packed);
    // (The first is in larger blocks now, and a matmul of other sizes may round otherwise: some ulps of 6e-8 each.)
    for (size_t i = 0; i < T; i++) {
        bool same = fabs((double)packed->loss[i] - loss[i]) <= 1e-5 * loss[i];
        assert_true(r.target[i] < 0 || same == (i < doc_length[0]));
    }
    model_free(packed), model_free(alone);
    mem_free_all(&mem);
    dev_cpu_free(cpu);
    free(size), free(twice);
}

TEST(test_packed_is_alone)
{
    ModelShape tied = gpt;
    tied.tie = true;
    check_model(&gpt, false);
    check_model(&tied, false);
    check_model(&llama, false);
}

TEST(test_packed_is_alone_in_deterministic_mode)
{
    check_model(&gpt, true);
    check_model(&llama, true);
}

TESTS(NULL, NULL)
