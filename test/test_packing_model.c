// test_packing_model: a packed row gives the losses and gradients of its documents run alone, through whole models of
// both families: learned and rotary positions, grouped queries, QK-norm, a tied head.
#include "test/test.h"

#include "net/model.h"
#include "text/packing.h"
#include "base/rng.h"

static const ModelShape gpt = {
    .layers = 2, .channels = 12, .heads = 3, .kv_heads = 3, .head_size = 4, .ffn = 20, .vocab = 197, .context = 96,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};
static const ModelShape llama = {
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
