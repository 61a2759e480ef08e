// test_dump: dumps of one rank's step against the operations that they name; tensor-parallel ranks that round; bugs
// seeded into the device's operations, which build/diff must find at the right place; faults of a dump itself; and
// parts of tensors as texts. (Dumps of any layout, put together: test_layouts.)
#include "test/test.h"
#define PROGRAM "diff"

#include "dev/check/comm_threads.h"
#include "dev/check/diff.h"
#include "expect_die.h"
#include "net/experts.h"
#include "narrow/narrow.h"
#include "parallel/parts.h"
#include "src/check/dump.h"
#include "whole_case.h"
#include "program.h"

// ---- a step that is dumped

enum { T = 8, SAMPLES = 8 };

static const ModelShape gpt = { // a vocabulary that no number of ranks divides
    .layers = 2, .channels = 12, .heads = 4, .kv_heads = 4, .head_size = 4, .ffn = 24, .vocab = 31, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true};
static const ModelShape llama = { // 4 ranks: two of them to a key/value head
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true, .qk_norm = true,
    .logit_cap = 0.25f};
static const ModelShape *const families[] = {&gpt, &llama};

// A fault of one operation: of the matmul of one weight; or of the experts'.
typedef enum {
    SOUND, FORWARD_ELEMENT, FORWARD_SCALE, NO_WEIGHT_GRADIENT, INPUT_GRADIENT, ROUTER, CHOICE, ORDER, WEIGHTS, PRODUCT,
    DOWN, COMBINE
} Fault;

// The second layer's network is a choice of two of four, beside one for all tokens. Capacity drops some slots.
static const ModelShape routed = {
    .layers = 2, .channels = 10, .heads = 4, .kv_heads = 2, .head_size = 6, .ffn = 20, .vocab = 33, .context = T,
    .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rotary.theta = 1e4f, .swiglu = true, .rope = true,
    .experts = {.n = 4, .k = 2, .ffn = 8, .shared = 6, .dense = 1, .every = 1, .sigmoid = true, .renorm = true,
                .scale = 1.5f, .balance = MOE_BALANCE_BIAS, .bias_rate = 0.1f, .capacity = 1.25}};

static struct {
    Fault kind;
    int site;
    Dev sound; // the entries as they were
} fault;

static void bad_forward(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t N, size_t C, size_t OC,
                        int site)
{
    fault.sound.matmul_forward(dev, out, inp, weight, bias, N, C, OC, site);
    if (site != fault.site || fault.kind > FORWARD_SCALE) return;
    float *x = malloc(N * OC * sizeof *x);
    dev->from_x(dev, x, out, N * OC);
    if (fault.kind == FORWARD_ELEMENT) x[(T + 3) * OC + 7] += 0.01f; // sample 1, token 3, channel 7
    for (size_t i = 0; fault.kind == FORWARD_SCALE && i < N * OC; i++) x[i] *= 1.5f;
    dev->to_x(dev, out, x, N * OC);
    free(x);
}

static void bad_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t N, size_t C,
                       size_t OC, int site)
{
    if (site == fault.site && fault.kind == NO_WEIGHT_GRADIENT) N = 1; // one token's, and not all
    fault.sound.matmul_backward_weight(dev, dweight, dbias, dout, inp, N, C, OC, site);
}

static void bad_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t N, size_t C, size_t OC, int site)
{
    fault.sound.matmul_backward_input(dev, dinp, dout, weight, N, C, OC, site);
    for (size_t c = 0; c < C && site == fault.site && fault.kind == INPUT_GRADIENT; c++) ((float *)dinp)[c] *= 1.01f;
}

static void scale_row(Dev *dev, X *x, size_t row, size_t width, float by)
{
    float *numbers = malloc((row + 1) * width * sizeof *numbers);
    dev->from_x(dev, numbers, x, (row + 1) * width);
    for (size_t c = 0; c < width; c++) numbers[row * width + c] *= by;
    dev->to_x(dev, x, numbers, (row + 1) * width);
    free(numbers);
}

static void bad_router(Dev *dev, float *logits, const X *inp, const X *weight, size_t N, size_t C, size_t E)
{
    fault.sound.router_forward(dev, logits, inp, weight, N, C, E);
    logits[5 * E + 2] *= 3;
}

// Token 5 uses another expert, or the same ones in another order.
static void bad_route(Dev *dev, int32_t *choice, float *gate, const float *logits, const float *bias, size_t N,
                      DevRouter router)
{
    fault.sound.route_forward(dev, choice, gate, logits, bias, N, router);
    int32_t *own = choice + 5 * router.k, before = own[0];
    if (fault.kind == WEIGHTS) gate[5 * router.k] *= 3;
    if (fault.kind == ORDER) own[0] = own[1], own[1] = before;
    while (fault.kind == CHOICE && (own[0] == before || own[0] == own[1])) own[0] = (own[0] + 1) % (int)router.E;
}

static void bad_product(Dev *dev, X *out, const X *inp, const X *weight, size_t C, size_t OC, DevExperts experts)
{
    fault.sound.experts_forward(dev, out, inp, weight, C, OC, experts);
    if ((fault.kind == DOWN) == (C == 8)) scale_row(dev, out, 3, OC, 3); // 8: the width of an expert
}

static void bad_combine(Dev *dev, X *out, const X *inp, const int32_t *row, size_t N, size_t k, size_t C)
{
    fault.sound.experts_combine(dev, out, inp, row, N, k, C);
    scale_row(dev, out, 3, C, 3);
}

static void seed(Dev *dev, Fault kind, int site)
{
    if (!kind) return;
    assert_true(site >= 0);
    fault.kind = kind, fault.site = site, fault.sound = *dev;
    dev->matmul_forward = bad_forward;
    dev->matmul_backward_weight = bad_weight;
    dev->matmul_backward_input = bad_input;
    if (kind == ROUTER) dev->router_forward = bad_router;
    if (kind == CHOICE || kind == ORDER || kind == WEIGHTS) dev->route_forward = bad_route;
    if (kind == PRODUCT || kind == DOWN) dev->experts_forward = bad_product;
    if (kind == COMBINE) dev->experts_combine = bad_combine;
}

typedef struct {
    const ModelShape *shape;
    const char *name; // dir/NAME is its run
    int ranks;        // tensor-parallel ones
    bool sequence;
    size_t micro;     // sequences of a micro-batch
    XType x_type;
    Fault fault;
    const char *where; // the row of the matmul that is at fault
    bool checked;      // one rank: against the operations
} Play;

static void check_operations(Model *m, const char *path);
static void check_experts(Model *m, const char *path);

static void add_rows(Dump *d, const Model *m, DumpKind kind, const float *flat)
{
    for (int i = 0; i < m->params.n_rows; i++) {
        const Param *row = &m->params.row[i];
        if (row->owned) dump_row(d, kind, NULL, row, 0, row->n_elems, ST_F32, flat + row->offset, 1);
    }
}

// Sample i: few valid tokens in some, so that micro-batches differ.
static void sample(const ModelShape *s, size_t i, int32_t *token, int32_t *target)
{
    for (size_t t = 0; t < T; t++) {
        token[t] = (int32_t)rng_below(rng_make(7, "token", (uint32_t)i), t, (uint32_t)s->vocab);
        target[t] = (int32_t)rng_below(rng_make(7, "target", (uint32_t)i), t, (uint32_t)s->vocab);
        if (t > 1 + i % 5) target[t] = -1;
    }
}

static void step(Model *m, size_t micro)
{
    int32_t token[SAMPLES * T], target[SAMPLES * T];
    size_t valid = 0;
    for (size_t i = 0; i < SAMPLES; i++) sample(&m->shape, i, token + i * T, target + i * T);
    for (size_t i = 0; i < SAMPLES * T; i++) valid += target[i] >= 0;
    for (size_t i = 0; i < SAMPLES; i += micro) {
        model_set_batch(m, token + i * T, NULL, target + i * T, micro, T);
        model_set_dropout(m, 0, 5, 0, i);
        model_forward_backward(m, 1 / (float)valid);
    }
    model_step_finish(m);
    model_evaluate(m); // which is not dumped
}

static void play_dump(Comm *world, void *arg)
{
    const Play *p = arg;
    Mem mem = {0};
    Dev *cpu = dev_cpu_create(1);
    Dev *dev = p->x_type == X_FP32 ? cpu : narrow_create(cpu, (NarrowOptions){.x_type = p->x_type});
    PartsSettings parts = {.tp = world, .sequence = p->sequence};
    ModelOptions options = {.parts = parts_make(parts), .sequences = SAMPLES};
    Model *m = model_allocate_with(p->shape, dev, &mem, p->micro, T, true, options);
    params_init(&m->params, 1, m->weights);
    make_lively(m);
    for (int u = 0; u < m->n_units; u++)
        for (size_t e = 0; m->experts && m->experts[u].bias && e < 4; e++) m->experts[u].bias[e] = 0.01f * (float)e;
    seed(dev, p->fault, p->fault ? params_find(&m->params, p->where) : -1);
    char path[600], at[900]; // ranks are threads
    snprintf(path, sizeof path, "%s/%s", dir, p->name);
    Dump *d = dump_watch(m, (DumpPlace){.rank = world->rank, .ranks = world->size, .update = 1, .samples = SAMPLES,
                                        .context = T, .dtype = "x", .layout = "y", .inverse = 1});
    add_rows(d, m, DUMP_WEIGHT, m->weights);
    step(m, p->micro);
    dump_unwatch(d);
    add_rows(d, m, DUMP_GRAD, m->grads);
    dump_write(d, path);
    dump_free(d);
    snprintf(at, sizeof at, "%s/dump/step_00000001", path);
    if (p->checked && m->experts) check_experts(m, at);
    else if (p->checked) check_operations(m, at);
    model_free(m);
    mem_free_all(&mem);
    if (dev != cpu) narrow_free(dev);
    dev_cpu_free(cpu);
}

static void dump_of(Play p)
{
    mkdir(in_dir(p.name), 0700);
    dump_make_dir(in_dir(p.name), 1);
    comm_threads_run(p.ranks ? p.ranks : 1, play_dump, &p);
}

// ---- one rank

static const float *tensor(const DiffSide *s, const char *name, size_t n)
{
    const DiffTensor *t = diff_side_find(s, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_int_equal(t->t.dtype, ST_F32);
    assert_int_equal(t->t.n_elems, n);
    assert_int_equal(t->n_missing + t->n_twice, 0);
    return t->t.data;
}

// out (N, OC) = inp weight^T + bias, in double, against what was dumped. A sum of C products loses at most about C u
// of the sum of their sizes (u = 2^-24): with C = 24 and sizes up to 6 that is less than 1e-5.
static void is_matmul(const DiffSide *s, const char *out, const char *inp, const char *weight, const char *bias,
                      const char *plus, size_t C, size_t OC)
{
    const size_t N = SAMPLES * T;
    const float *y = tensor(s, out, N * OC), *x = tensor(s, inp, N * C), *w = tensor(s, weight, OC * C);
    const float *b = bias ? tensor(s, bias, OC) : NULL, *r = plus ? tensor(s, plus, N * OC) : NULL;
    for (size_t i = 0; i < N * OC; i++) {
        double sum = (b ? b[i % OC] : 0) + (r ? r[i] : 0);
        for (size_t k = 0; k < C; k++) sum += (double)x[i / OC * C + k] * w[i % OC * C + k];
        if (!(fabs(sum - y[i]) <= 1e-5 * fmax(1, fabs(sum)))) fail_msg("%s[%zu] is %g, not %g", out, i, y[i], sum);
    }
}

static void check_operations(Model *m, const char *path)
{
    const ModelShape *s = &m->shape;
    const size_t C = s->channels, hd = s->heads * s->head_size, gd = s->kv_heads * s->head_size, N = SAMPLES * T;
    const bool gpt_like = !s->swiglu; // without RoPE queries and keys are matmuls too
    const struct {
        const char *out, *inp, *matrix, *plus;
        size_t C, OC;
        int of; // 0: of both families, 1: GPT, 2: LLaMA
    } rows[] = {{"layers.1.v", "layers.1.norm1", "layers.1.attn.v", NULL, C, gd, 0},
                {"layers.1.q", "layers.1.norm1", "layers.1.attn.q", NULL, C, hd, 1},
                {"layers.1.k", "layers.1.norm1", "layers.1.attn.k", NULL, C, gd, 1},
                {"layers.1.pre", "layers.1.norm2", "layers.1.ffn.up", NULL, C, s->ffn, 1},
                {"layers.1.gate", "layers.1.norm2", "layers.1.ffn.gate", NULL, C, s->ffn, 2},
                {"layers.1.up", "layers.1.norm2", "layers.1.ffn.up", NULL, C, s->ffn, 2},
                {"layers.0.resid", "layers.0.attn", "layers.0.attn.out", "forward.embed.out", hd, C, 0},
                {"layers.0.out", "layers.0.act", "layers.0.ffn.down", "forward.layers.0.resid", s->ffn, C, 0}};
    DiffSide side = diff_side_open(path);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[4][60];
        if (rows[i].of == 1 + gpt_like) continue;
        snprintf(name[0], 60, "forward.%s", rows[i].out), snprintf(name[1], 60, "forward.%s", rows[i].inp);
        snprintf(name[2], 60, "weight.%s.weight", rows[i].matrix);
        snprintf(name[3], 60, "weight.%s.bias", rows[i].matrix);
        is_matmul(&side, name[0], name[1], name[2], gpt_like ? name[3] : NULL, rows[i].plus, rows[i].C, rows[i].OC);
    }
    for (int k = 0; k < 2 && !gpt_like; k++)
        tensor(&side, k ? "forward.layers.0.k_normed" : "forward.layers.0.q_normed", N * (k ? gd : hd));
    tensor(&side, "backward.head", N * C);
    tensor(&side, "backward.layers.0", N * C);
    assert_null(diff_side_find(&side, "backward.embed"));
    const float *loss = tensor(&side, "loss", N), *grad = tensor(&side, "grad.final_norm.weight", C);
    for (size_t i = 0; i < SAMPLES; i++) // sample() counts 2 + i % 5 targets of each
        for (size_t t = 0; t < T; t++) assert_int_equal(loss[i * T + t] > 0, t <= 1 + i % 5);
    const Param *row = &m->params.row[params_find(&m->params, "final_norm.weight")];
    assert_memory_equal(grad, m->grads + row->offset, C * sizeof *grad);
    diff_side_close(&side);
}

// What was dumped of experts, by slot, against the matrices of the expert that each token chose.
static void check_experts(Model *m, const char *path)
{
    enum { E = 4, K = 2, F = 8, C = 10, N = SAMPLES * T };
    DiffSide side = diff_side_open(path);
    const DiffTensor *choice = diff_side_find(&side, "forward.layers.1.choice");
    const float *norm = tensor(&side, "forward.layers.1.norm2", N * C);
    const float *z = tensor(&side, "forward.layers.1.router", N * E);
    const float *key = tensor(&side, "forward.layers.1.keys", N * E);
    const float *pre = tensor(&side, "forward.layers.1.experts_pre", N * K * 2 * F);
    const float *act = tensor(&side, "forward.layers.1.experts_act", N * K * F);
    const float *down = tensor(&side, "forward.layers.1.experts_down", N * K * C);
    const float *gate = tensor(&side, "forward.layers.1.weights", N * K);
    is_matmul(&side, "forward.layers.1.router", "forward.layers.1.norm2", "weight.layers.1.router.weight", NULL, NULL,
              C, E);
    assert_true(choice && choice->t.dtype == ST_I32 && choice->t.n_elems == N * K && !choice->n_missing);
    size_t dropped = 0;
    for (size_t n = 0; n < N; n++)
        for (size_t j = 0; j < K; j++) {
            int e = ((const int32_t *)choice->t.data)[n * K + j];
            const float *p = pre + (n * K + j) * 2 * F, *a = act + (n * K + j) * F, *d = down + (n * K + j) * C;
            char name[2][40];
            for (size_t i = 0; i < E; i++)
                assert_true(key[n * E + i] <= key[n * E + (size_t)e] ||
                            (int)i == ((const int32_t *)choice->t.data)[n * K]);
            double s = 1 / (1 + exp(-z[n * E + (size_t)e]));
            assert_true(fabs(key[n * E + (size_t)e] - s - 0.01 * e) < 1e-6);
            bool there = false;
            for (size_t f = 0; f < 2 * F; f++) there |= p[f] != 0;
            if (!there) dropped++;
            snprintf(name[0], 40, "layers.1.experts.%d.gate.weight", e);
            snprintf(name[1], 40, "layers.1.experts.%d.down.weight", e);
            const float *in = m->weights + m->params.row[params_find(&m->params, name[0])].offset; // up follows gate
            const float *out = m->weights + m->params.row[params_find(&m->params, name[1])].offset;
            for (size_t f = 0; f < 2 * F; f++) {
                double sum = 0;
                for (size_t c = 0; c < C; c++) sum += (double)norm[n * C + c] * in[f * C + c];
                assert_true(fabs(p[f] - there * sum) < 1e-4);
            }
            for (size_t f = 0; f < F; f++)
                assert_true(fabs(a[f] - gate[n * K + j] * (p[f] / (1 + exp(-p[f])) * p[F + f])) < 1e-4);
            for (size_t c = 0; c < C; c++) {
                double sum = 0;
                for (size_t f = 0; f < F; f++) sum += (double)a[f] * out[c * F + f];
                assert_true(fabs(d[c] - sum) < 1e-4);
            }
        }
    assert_true(dropped > 0 && dropped < N);
    const float *out = tensor(&side, "forward.layers.1.out", N * C);
    const float *resid = tensor(&side, "forward.layers.1.resid", N * C);
    const float *sum = tensor(&side, "forward.layers.1.experts", N * C);
    for (size_t i = 0; i < N * C; i++) assert_true(out[i] == resid[i] + sum[i]);
    diff_side_close(&side);
}

TEST(test_experts_are_in_the_order_of_tokens)
{
    dump_of((Play){.shape = &routed, .micro = 2, .name = "routed", .checked = true});
}

TEST(test_names_are_true)
{
    for (int f = 0; f < 2; f++)
        dump_of((Play){.shape = families[f], .micro = 2, .name = "true", .checked = true});
}

// Key/value heads that ranks share, and sums in another order; in 16 bits, where ranks round what they send.
TEST(test_tensor_parallel_ranks_round)
{
    Play one = {.shape = &llama, .micro = 2, .name = "one"}, four = one;
    dump_of(one);
    four.ranks = 4, four.sequence = true, four.name = "four";
    dump_of(four);
    expect_run("four one", 0, "rounding: ");
    expect_run("four one --exact", 1, "DIFFERENT: first at ");
    expect_run("one one", 0, "identical: ");
    for (int k = 0; k < 6; k++) {
        one.shape = k < 4 ? families[k % 2] : &routed, one.x_type = k < 4 ? X_BF16 : X_FP32;
        Play two = one;
        two.ranks = 2, two.sequence = k / 2 % 2 || k == 5, two.name = "two";
        dump_of(one);
        dump_of(two);
        expect_run("two one", 0, "rounding: ");
        if (k >= 4) says("note: 1 tensors were not compared"); // experts_down
    }
}

// ---- rounding or a bug

typedef struct {
    Fault fault;
    const char *where, *first, *note; // the weight at fault, what is found first, what is said besides
    bool in_bf16;                     // there too
} Seeded;

// The sound step passes against itself in other micro-batches and in bf16; each fault is found, and named first.
static void find_faults(const ModelShape *shape, const Seeded *rows, size_t n)
{
    Play sound = {.shape = shape, .micro = 4, .name = "sound"}, other = sound, narrow = sound;
    dump_of(sound);
    other.micro = 2, other.name = "other";
    dump_of(other);
    expect_run("other sound", 0, "rounding: ");
    narrow.x_type = X_BF16, narrow.name = "narrow";
    dump_of(narrow);
    if (shape->experts.n) expect_run("narrow sound", 3, "cannot tell: not compared: grad (");
    expect_run(formatted("narrow sound%s", shape->experts.n ? " --only 'forward.*'" : ""), 0, "rounding: ");
    for (size_t i = 0; i < 2 * n; i++) {
        const Seeded *row = &rows[i / 2];
        if (i % 2 && !row->in_bf16) continue;
        Play p = i % 2 ? narrow : sound;
        p.name = "bug", p.fault = row->fault, p.where = row->where;
        dump_of(p);
        expect_run("bug sound", 1, formatted("DIFFERENT: first at %s;", row->first));
        if (i % 2 == 0) says(row->note);
    }
}

TEST(test_faults_are_found)
{
    const Seeded rows[] = {
        {FORWARD_ELEMENT, "layers.1.attn.out.weight", "forward.layers.1.resid", "sample 1, token 3, channel 7 ", false},
        {FORWARD_ELEMENT, "layers.0.ffn.down.weight", "forward.layers.0.out", "", false},
        {FORWARD_SCALE, "layers.1.attn.q.weight", "forward.layers.1.q", "", true},
        {NO_WEIGHT_GRADIENT, "layers.0.ffn.up.weight", "grad.layers.0.ffn.up.bias", "", true}, // the bias comes first
        {INPUT_GRADIENT, "layers.1.attn.out.weight", "backward.layers.1", "", false},
    };
    find_faults(&gpt, rows, sizeof rows / sizeof *rows);
}

// A router that is wrong is named first, and so is each op after it; tokens that chose otherwise are counted. In bf16
// nearly all choices of so small a model are ties.
TEST(test_faults_of_experts_are_found)
{
#define ROUTER_OF "layers.1.router.weight"
#define CHOSE "tokens chose other experts, "
    const Seeded rows[] = {
        {ROUTER, ROUTER_OF, "forward.layers.1.router", "", true},
        {CHOICE, ROUTER_OF, "forward.layers.1.choice",
         "note: layers.1: 2 of 64 " CHOSE "0 the same in another order: 2 of ", false},
        {ORDER, ROUTER_OF, "forward.layers.1.choice",
         "note: layers.1: 0 of 64 " CHOSE "2 the same in another order: 2 of ", false},
        {WEIGHTS, ROUTER_OF, "forward.layers.1.weights", "", true},
        {PRODUCT, ROUTER_OF, "forward.layers.1.experts_pre", "", true},
        {DOWN, ROUTER_OF, "forward.layers.1.experts_down", "", true},
        {COMBINE, ROUTER_OF, "forward.layers.1.experts", "", true},
    };
    find_faults(&routed, rows, sizeof rows / sizeof *rows);
}

// ---- faults of a dump

static void remove_file(const char *path)
{
    assert_int_equal(unlink(in_dir(path)), 0);
}

TEST(test_missing_ranks)
{
    Play one = {.shape = &gpt, .micro = 2, .name = "one"}, two = one;
    dump_of(one);
    two.ranks = 2, two.name = "two";
    dump_of(two);
    remove_file("two/dump/step_00000001/rank_00001.safetensors");
    expect_run("two one", 1, "elements are in no file of A");
    says("note: A lacks the files of 1 rank, the first is rank 1");
    expect_run("two/dump/step_00000001/rank_00000.safetensors one", 1, "elements are in no file of A");
    expect_run("one/dump/step_00000001/rank_00000.safetensors one", 0, "identical: ");
    expect_run("one/dump one/dump/step_00000001", 0, "identical: ");
}

// Two ranks that each write everything: their files overlap, which is told, and must not contradict each other.
TEST(test_doubled_elements)
{
    for (int k = 0; k < 2; k++) {
        Mem mem = {0};
        Dev *dev = dev_cpu_create(1);
        Model *m = model_create(&gpt, dev, &mem, 1, T, 1, true);
        mkdir(in_dir("both"), 0700);
        dump_make_dir(in_dir("both"), 7);
        for (int rank = 0; rank < 2; rank++) {
            Dump *d = dump_watch(m, (DumpPlace){.rank = rank, .ranks = 2, .update = 7, .samples = 1, .context = T,
                                                .dtype = "x", .layout = "y", .inverse = 1});
            m->weights[3] += (float)k;
            add_rows(d, m, DUMP_WEIGHT, m->weights);
            dump_unwatch(d);
            dump_write(d, in_dir("both"));
            dump_free(d);
        }
        if (k == 0) expect_run("both both", 0, "elements of A are in more than one file");
        else expect_run("both both", 1, "(31,12)  ranks of A do not agree in the 372 elements that they share");
        end_model(m, &mem, dev);
    }
}

TEST(test_cannot_be_made)
{
    expect_dies("no/such/run/dump: cannot be made", dump_make_dir("no/such/run", 1));
}

// ---- part: parts of tensors: where elements go, conversion to text and back, and texts that are not parts.

// A tensor (2, 3, 4): its rows 1, 2 and 5, columns 1 and 3.
static Part example(void)
{
    const size_t shape[] = {2, 3, 4};
    Part part = dump_part_make(3, shape, 4);
    dump_part_rows(&part, 1, 1);
    dump_part_rows(&part, 2, 1); // joins the one before
    dump_part_rows(&part, 5, 1);
    dump_part_rows(&part, 4, 0); // nothing
    dump_part_columns(&part, 1, 1);
    dump_part_columns(&part, 3, 1);
    part.at = 12345678901;
    part.error = 1.0 / 3;
    part.stored = ST_BF16;
    return part;
}

TEST(test_elements_go_where_they_belong)
{
    Part part = example();
    const int16_t data[] = {1, 2, 3, 4, 5, 6}, other[] = {1, 2, 3, 4, 5, 7};
    int16_t whole[24] = {0}, expected[24] = {0};
    uint8_t seen[24] = {0};
    const size_t at[] = {5, 7, 9, 11, 21, 23};
    assert_int_equal(part.rows.n, 2);
    assert_int_equal(dump_part_elems(&part), 6);
    assert_int_equal(dump_part_whole_elems(&part), 24);
    assert_true(dump_part_place(&part, whole, seen, data, sizeof *data));
    for (int i = 0; i < 6; i++) expected[at[i]] = data[i];
    assert_memory_equal(whole, expected, sizeof whole);
    for (int i = 0; i < 24; i++) assert_int_equal(seen[i], expected[i] != 0);
    assert_true(dump_part_place(&part, whole, seen, data, sizeof *data)); // again, the same
    assert_int_equal(seen[23], 2);
    assert_false(dump_part_place(&part, whole, seen, other, sizeof *data));
    dump_part_free(&part);
}

TEST(test_text_and_back)
{
    Part part = example(), back;
    char *text = dump_part_text(&part);
    assert_true(dump_part_parse(&back, text));
    assert_int_equal(back.ndim, 3);
    assert_memory_equal(back.shape, part.shape, 3 * sizeof *part.shape);
    assert_int_equal(back.width, 4);
    assert_int_equal(back.rows.n, 2);
    assert_memory_equal(back.rows.range, part.rows.range, 2 * sizeof *part.rows.range);
    assert_memory_equal(back.columns.range, part.columns.range, 2 * sizeof *part.columns.range);
    assert_int_equal(back.at, part.at);
    assert_true(back.error == part.error);
    assert_int_equal(back.stored, ST_BF16);
    assert_int_equal(dump_part_elems(&back), 6);
    free(text);
    dump_part_free(&back);
    for (int type = 0; type < ST_DTYPES; type++) {
        part.stored = (SafeDtype)type;
        text = dump_part_text(&part);
        assert_true(dump_part_parse(&back, text) && back.stored == part.stored);
        free(text);
        dump_part_free(&back);
    }
    dump_part_free(&part);
}

TEST(test_what_is_no_part)
{
    const char *const rest = "\"at\":0,\"error\":0.0,\"stored\":\"F32\"}";
    const char *const wrong[] = {
        "", "[]", "{}", "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4]]}",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,3]],\"columns\":[[0,4]],",          // a row too many
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[3,0]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[-1,1]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[1,4]],",          // a column too many
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[1,9223372036854775807]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2],[1,1]],\"columns\":[[0,4]],", // more than the whole
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4],[0,4],[0,4]],",
        "{\"shape\":[2,4],\"width\":3,\"rows\":[[0,2]],\"columns\":[[0,3]],",          // no such matrix
        "{\"shape\":[2,4],\"width\":0,\"rows\":[[0,2]],\"columns\":[[0,3]],",
        "{\"shape\":[2,0],\"width\":4,\"rows\":[],\"columns\":[[0,4]],",
        "{\"shape\":[4294967296,4294967296,4294967296],\"width\":1,\"rows\":[],\"columns\":[],", // overflows
        "{\"shape\":[1,1,1,1,1],\"width\":1,\"rows\":[],\"columns\":[],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,\"2\"]],\"columns\":[[0,4]],",
        "{\"shape\":[2,4],\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4]],",
    };
    Part part;
    char text[400];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t n = strlen(wrong[i]);
        snprintf(text, sizeof text, "%s%s", wrong[i], n && wrong[i][n - 1] == ',' ? rest : "");
        if (dump_part_parse(&part, text)) fail_msg("taken for a part: %s", text);
    }
    assert_true(dump_part_parse(&part, "{\"shape\":[2,4],\"width\":4,\"rows\":[[0,2]],\"columns\":[[0,4]],\"at\":0,"
                                  "\"error\":0.0,\"stored\":\"F32\"}"));
    dump_part_free(&part);
}

TESTS(program_set_up, temp_dir_remove)
