// test_recompute: gradients of every mode against those of `none`, bit for bit, with dropout and packed documents;
// how often each block runs; activation bytes against the formula; 8-bit copies; dropout against finite differences.
// deeper: each family with 4 and with 5 layers, with dropout and with documents
#include "step_run.h"

#include "narrow/narrow.h"

static const struct {
    const char *name;
    RecomputePolicy policy;
} modes[] = {
    {"none", {.mode = RECOMPUTE_NONE}},
    {"selective", {.mode = RECOMPUTE_SELECTIVE}},
    {"attention", {.mode = RECOMPUTE_ATTENTION}},
    {"sqrt", {.mode = RECOMPUTE_SQRT}},
    {"every 1", {.mode = RECOMPUTE_EVERY, .every = 1}},
    {"every 2", {.mode = RECOMPUTE_EVERY, .every = 2}},
    {"every 4", {.mode = RECOMPUTE_EVERY, .every = 4}},
    {"every 9", {.mode = RECOMPUTE_EVERY, .every = 9}},
    {"full", {.mode = RECOMPUTE_FULL}},
};
enum { MODES = sizeof modes / sizeof *modes };

static ModelShape with_layers(const ModelShape *s, size_t layers)
{
    ModelShape shape = *s;
    shape.layers = layers;
    return shape;
}

// ---- every mode gives the gradients of `none`, and so does each with its activations in host memory

// Of both micro-batches of run_step, what is kept goes out once and comes back once.
static void expect_moved(const Result *r, const ModelShape *shape, Dev *dev, RecomputePolicy policy)
{
    Dev *cpu = dev_cpu_create(1);
    size_t n = 0, rows[] = {3 * 10, 2 * 7};
    for (int i = 0; i < 2; i++)
        n += recompute_host_bytes(shape, dev ? dev : cpu, policy, recompute_segment(policy, shape->layers), 0,
                                  shape->layers, rows[i]);
    dev_cpu_free(cpu);
    assert_int_equal(r->bytes_out, n);
    assert_int_equal(r->bytes_in, n);
    assert_int_equal(n > 0, policy.offload);
}

static void check_modes(const ModelShape *shape, Dev *dev, float dropout, bool documents)
{
    Step step = {.dev = dev, .dropout = dropout, .step = 11, .documents = documents, .options.sequences = 5};
    Result none = run_step(shape, step);
    assert_true(distance(&none, NULL) > 0.1 && distance(&none, NULL) < 1e6); // something is compared
    for (int i = 1; i < 2 * MODES; i++) {
        bool away = i >= MODES;
        step.options.recompute = modes[i % MODES].policy;
        step.options.recompute.offload = away;
        Result r = run_step(shape, step);
        if (!same_bits(&r, &none))
            fail_msg("%s%s, %zu layers, dropout %g: differs from none by %g", modes[i % MODES].name,
                     away ? ", offloaded" : "", shape->layers, dropout, distance(&r, &none));
        expect_moved(&r, shape, dev, step.options.recompute);
        free(r.grads);
    }
    free(none.grads);
}

TEST(test_modes_agree_bit_for_bit)
{
    const ModelShape *families[] = {&gpt, &llama, &moe};
    for (int i = 0; i < 3; i++)
        for (size_t layers = 1; layers <= 5; layers += layers == 1 ? 3 : 1) {
            ModelShape shape = with_layers(families[i], layers);
            if (deeper() || layers != 4) check_modes(&shape, NULL, 0.25f, false);
            if (deeper() || layers == 4) check_modes(&shape, NULL, 0, true);
        }
    ModelShape plain = llama; // queries and keys are turned where they are saved
    plain.qk_norm = false;
    check_modes(&plain, NULL, 0.25f, true);
    ModelShape squares = gpt;
    squares.act = ACT_RELU2;
    check_modes(&squares, NULL, 0.25f, true);
    for (int i = 0; i < 3; i++) {
        ModelShape outputs = with_layers(families[i], 4);
        outputs.norm_place = NORM_OF_OUTPUT;
        check_modes(&outputs, NULL, 0.25f, true);
    }
}

// There forward runs sequence by sequence too, and blocks of two kinds share buffers.
TEST(test_modes_agree_on_a_deterministic_device)
{
    Dev *dev = dev_cpu_create(2);
    dev->deterministic = true;
    ModelShape four = with_layers(&moe, 4); // the last one has experts
    check_modes(&four, dev, 0.25f, true);
    check_modes(&moe, dev, 0, true);
    check_modes(&llama, dev, 0, true);
    dev_cpu_free(dev);
}

// 2-byte storage rounds what it keeps: what is made again from it must be what forward made of it.
TEST(test_modes_agree_in_two_bytes)
{
    const XType types[] = {X_BF16, X_FP16};
    for (int i = 0; i < 2; i++) {
        Dev *inner = dev_cpu_create(2), *dev = narrow_create(inner, (NarrowOptions){.x_type = types[i]});
        check_modes(i ? &llama : &gpt, dev, 0.25f, true);
        check_modes(i ? &gpt : &llama, dev, 0, false);
        narrow_free(dev);
        dev_cpu_free(inner);
    }
}

// Without this the test above could compare dropout that does nothing: p, the step, the sample and the seed count.
TEST(test_dropout_changes_gradients)
{
    Result with = run_step(&gpt, (Step){.dropout = 0.25f, .step = 11});
    Result again = run_step(&gpt, (Step){.dropout = 0.25f, .step = 11});
    Result other = run_step(&gpt, (Step){.dropout = 0.25f, .step = 12});
    Result without = run_step(&gpt, (Step){.step = 11});
    assert_true(same_bits(&with, &again));
    assert_true(distance(&with, &without) > 0.05 && distance(&with, &other) > 0.05);
    assert_true(with.loss != without.loss && with.eval_loss == without.eval_loss); // evaluation drops nothing
    free(with.grads), free(again.grads), free(other.grads), free(without.grads);
}

// ---- how often

typedef struct {
    Dev dev; // first: the ops get its address
    Dev *inner;
    double flops, back;   // matmuls and attention, forward and backward
    long norms, by_site[128];
} Counter;

static void count_site(Counter *c, size_t n, size_t in, size_t out, int site)
{
    c->flops += 2 * (double)n * (double)in * (double)out;
    if (site >= 0 && site < 128) c->by_site[site]++;
}

static void counted_matmul(Dev *dev, X *out, const X *inp, const X *weight, const X *bias, size_t n, size_t in,
                           size_t n_out, int site)
{
    count_site((Counter *)dev, n, in, n_out, site);
    Dev *inner = ((Counter *)dev)->inner;
    inner->matmul_forward(inner, out, inp, weight, bias, n, in, n_out, site);
}

static void counted_gelu(Dev *dev, X *out, X *pre, const X *inp, const X *weight, const X *bias, size_t n, size_t in,
                         size_t n_out, int site)
{
    count_site((Counter *)dev, n, in, n_out, site);
    Dev *inner = ((Counter *)dev)->inner;
    inner->matmul_gelu_forward(inner, out, pre, inp, weight, bias, n, in, n_out, site);
}

static void counted_attention(Dev *dev, X *out, float *lse, const X *q, const X *k, const X *v, AttnShape s)
{
    ((Counter *)dev)->flops += 2 * (double)(s.B * s.Tq * s.H * s.D * s.Tk); // 4 B H T T D, half of it seen
    Dev *inner = ((Counter *)dev)->inner;
    inner->attention_forward(inner, out, lse, q, k, v, s);
}

static void counted_input(Dev *dev, X *dinp, const X *dout, const X *weight, size_t n, size_t in, size_t n_out,
                          int site)
{
    ((Counter *)dev)->back += 2 * (double)n * (double)in * (double)n_out;
    Dev *inner = ((Counter *)dev)->inner;
    inner->matmul_backward_input(inner, dinp, dout, weight, n, in, n_out, site);
}

static void counted_gelu_input(Dev *dev, X *dpre, const X *dout, const X *weight, const X *pre, size_t n, size_t in,
                               size_t n_out, int site)
{
    ((Counter *)dev)->back += 2 * (double)n * (double)in * (double)n_out;
    Dev *inner = ((Counter *)dev)->inner;
    inner->matmul_gelu_backward_input(inner, dpre, dout, weight, pre, n, in, n_out, site);
}

static void counted_weight(Dev *dev, float *dweight, float *dbias, const X *dout, const X *inp, size_t n, size_t in,
                           size_t n_out, int site)
{
    ((Counter *)dev)->back += 2 * (double)n * (double)in * (double)n_out;
    Dev *inner = ((Counter *)dev)->inner;
    inner->matmul_backward_weight(inner, dweight, dbias, dout, inp, n, in, n_out, site);
}

static void counted_attention_back(Dev *dev, X *dq, X *dk, X *dv, const X *dout, const X *out, const float *lse,
                                   const X *q, const X *k, const X *v, AttnShape s)
{
    ((Counter *)dev)->back += 4 * (double)(s.B * s.Tq * s.H * s.D * s.Tk);
    Dev *inner = ((Counter *)dev)->inner;
    inner->attention_backward(inner, dq, dk, dv, dout, out, lse, q, k, v, s);
}

static void counted_norm(Dev *dev, X *out, X *sum, float *mean, float *rstd, const X *a, const X *b, const X *weight,
                         const X *bias, size_t n, size_t width, NormKind kind, float eps)
{
    ((Counter *)dev)->norms++;
    Dev *inner = ((Counter *)dev)->inner;
    inner->norm_forward(inner, out, sum, mean, rstd, a, b, weight, bias, n, width, kind, eps);
}

// One batch of N tokens; what its forward ops were.
static Counter count(const ModelShape *shape, RecomputePolicy policy, Params *params, Unit **unit)
{
    Mem mem = {0};
    Counter c = {.inner = dev_cpu_create(1)};
    c.dev = *c.inner;
    c.dev.matmul_forward = counted_matmul;
    c.dev.matmul_gelu_forward = counted_gelu;
    c.dev.attention_forward = counted_attention;
    c.dev.norm_forward = counted_norm;
    c.dev.matmul_backward_input = counted_input;
    c.dev.matmul_gelu_backward_input = counted_gelu_input;
    c.dev.matmul_backward_weight = counted_weight;
    c.dev.attention_backward = counted_attention_back;
    Model *m = model_allocate_with(shape, &c.dev, &mem, B, T, true, (ModelOptions){.recompute = policy});
    run_batch(m, &(Step){0}, 0, B, T);
    model_describe(shape, params, unit);
    end_model(m, &mem, c.inner);
    return c;
}

// By hand: blocks [from, to) of 0 .. layers - 1 run again, those in `ends` without their down-projection.
static const struct {
    RecomputeMode mode;
    size_t every, layers;
    int again[8], down[8]; // RECOMPUTE_ATTENTION: q, k, v and attention alone
} runs[] = {
    {RECOMPUTE_NONE, 0, 5, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
    {RECOMPUTE_SELECTIVE, 0, 5, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
    {RECOMPUTE_ATTENTION, 0, 5, {2, 2, 2, 2, 1}, {1, 1, 1, 1, 1}},
    {RECOMPUTE_FULL, 0, 5, {2, 2, 2, 2, 1}, {1, 1, 1, 1, 1}},
    {RECOMPUTE_FULL, 0, 1, {1}, {1}},
    {RECOMPUTE_EVERY, 2, 5, {2, 2, 2, 2, 1}, {2, 1, 2, 1, 1}},
    {RECOMPUTE_EVERY, 2, 4, {2, 2, 1, 1}, {2, 1, 1, 1}},
    {RECOMPUTE_EVERY, 9, 5, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}},
    {RECOMPUTE_SQRT, 0, 5, {2, 2, 2, 1, 1}, {2, 2, 1, 1, 1}},
    {RECOMPUTE_SQRT, 0, 4, {2, 2, 1, 1}, {2, 1, 1, 1}},
};

static void check_runs(const ModelShape *family)
{
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ModelShape shape = with_layers(family, runs[i].layers);
        RecomputePolicy policy = {.mode = runs[i].mode, .every = runs[i].every};
        Params params, same;
        Unit *unit, *same_unit;
        Counter none = count(&shape, (RecomputePolicy){0}, &params, &unit);
        Counter c = count(&shape, policy, &same, &same_unit);
        // of the down-projection the output too, where its norm's backward reads it
        bool alone = policy.mode == RECOMPUTE_ATTENTION, read = shape.norm_place == NORM_OF_OUTPUT;
        for (size_t l = 0; l < shape.layers; l++) {
            assert_int_equal(c.by_site[unit[1 + l].row[W_QKV]], runs[i].again[l]);
            assert_int_equal(c.by_site[unit[1 + l].row[W_FFN_IN]], alone ? 1 : runs[i].again[l]);
            assert_int_equal(c.by_site[unit[1 + l].row[W_FFN_DOWN]],
                             read && !alone ? runs[i].again[l] : runs[i].down[l]);
        }
        assert_int_equal(c.by_site[unit[shape.layers + 1].row[W_HEAD]], 1); // its chunk, in backward
        // what plan flops and MFU say, and nothing else: whole numbers, below 2^53
        assert_true(none.flops + none.back == N * model_flops_per_token(&shape, T) && c.back == none.back);
        assert_true(c.flops - none.flops == N * recompute_extra_flops(&shape, policy, T));
        if (recompute_restores(policy.mode))
            assert_int_equal(c.norms - none.norms, read ? 0 : 2 * (shape.layers - 1));
        free(unit), free(same_unit);
        params_free(&params), params_free(&same);
    }
}

TEST(test_what_runs_again)
{
    check_runs(&gpt);
    check_runs(&llama);
    ModelShape outputs = llama;
    outputs.norm_place = NORM_OF_OUTPUT;
    check_runs(&outputs);
}

// The guides' "+33%": all blocks once more, beside forward and backward. Ours leaves out the last block and the
// last projection of every segment.
TEST(test_full_costs_at_most_a_third)
{
    ModelShape big = {.layers = 96, .channels = 12288, .heads = 96, .kv_heads = 96, .head_size = 128, .ffn = 49152,
                      .vocab = 50257, .context = 2048};
    double of_all = recompute_extra_flops(&big, (RecomputePolicy){.mode = RECOMPUTE_FULL}, 2048)
                  / model_flops_per_token(&big, 2048);
    double ten = recompute_extra_flops(&big, (RecomputePolicy){.mode = RECOMPUTE_EVERY, .every = 10}, 2048)
               / model_flops_per_token(&big, 2048);
    assert_true(of_all > 0.2 && of_all < ten && ten < 1 / 3.0);
    assert_int_equal(recompute_segment((RecomputePolicy){.mode = RECOMPUTE_SQRT}, 96), 10);
    assert_int_equal(recompute_segment((RecomputePolicy){.mode = RECOMPUTE_SQRT}, 100), 10);
    assert_int_equal(recompute_segment((RecomputePolicy){.mode = RECOMPUTE_SQRT}, 101), 11);
    assert_int_equal(recompute_segment((RecomputePolicy){.mode = RECOMPUTE_SQRT}, 1), 1);
}

// ---- bytes

static void check_bytes(const ModelShape *family, Dev *dev, size_t layers, bool compress, bool offload)
{
    for (int i = 0; i < MODES; i++) {
        ModelShape shape = with_layers(family, layers);
        ModelOptions options = {.recompute = modes[i].policy};
        options.recompute.compress = compress;
        options.recompute.offload = offload;
        Mem mem = {0};
        Model *m = model_allocate_with(&shape, dev, &mem, B, T, true, options);
        size_t formula = recompute_bytes(&shape, dev, options.recompute, B, T);
        if (mem.tag_bytes[MEM_ACTS] != formula)
            fail_msg("%s, %zu layers%s: %zu bytes, the formula says %zu", modes[i].name, layers,
                     compress ? ", compressed" : offload ? ", offloaded" : "", mem.tag_bytes[MEM_ACTS], formula);
        assert_int_equal(mem.tag_bytes[MEM_HOST],
                         recompute_host_bytes(&shape, dev, options.recompute, recompute_segment(options.recompute, layers),
                                              0, layers, B * T));
        model_free(m);
        mem_free_all(&mem);
    }
}

TEST(test_bytes_are_the_formula)
{
    Dev *dev = dev_cpu_create(1), *narrow = narrow_create(dev, (NarrowOptions){.x_type = X_BF16});
    for (size_t layers = 1; layers <= 5; layers++)
        for (int i = 0; i < 3; i++) {
            bool compress = i == 1, offload = i == 2;
            check_bytes(&gpt, dev, layers, compress, offload);
            check_bytes(&llama, dev, layers, compress, offload);
            check_bytes(&moe, dev, layers, compress, offload);
            check_bytes(&llama, narrow, layers, compress, offload);
        }
    // none, in numbers: L A + 2 C + 2 floats a token (doc/units.md)
    size_t A = 4 * 12 + 4 * 12 + 2 * 20 + 3 + 4;
    assert_int_equal(recompute_bytes(&gpt, dev, (RecomputePolicy){0}, B, T), 4 * N * (5 * A + 2 * 12 + 2));
    // full: 6 streams, one set of buffers; selective: five sets without two norms and the activation
    assert_int_equal(recompute_bytes(&gpt, dev, (RecomputePolicy){.mode = RECOMPUTE_FULL}, B, T),
                     4 * N * (6 * 12 + (A - 12) + 12 + 2));
    assert_int_equal(recompute_bytes(&gpt, dev, (RecomputePolicy){.mode = RECOMPUTE_SELECTIVE}, B, T),
                     4 * N * (5 * (A - 2 * 12 - 20) + 2 * 12 + 20 + 2 * 12 + 2));
    // attention: nor q, k, v and the output of attention, of which one set is left
    assert_int_equal(recompute_bytes(&gpt, dev, (RecomputePolicy){.mode = RECOMPUTE_ATTENTION}, B, T),
                     4 * N * (5 * (A - 2 * 12 - 20 - 4 * 12) + 2 * 12 + 20 + 4 * 12 + 2 * 12 + 2));
    // offloaded: one set of buffers, two inputs of blocks, the head's; five inputs and sets wait elsewhere
    RecomputePolicy away = {.offload = true}, starts = {.mode = RECOMPUTE_EVERY, .every = 2, .offload = true};
    assert_int_equal(recompute_bytes(&gpt, dev, away, B, T), 4 * N * ((A - 12) + 2 * 12 + 2 * 12 + 2));
    assert_int_equal(recompute_host_bytes(&gpt, dev, away, 0, 0, 5, N), 4 * N * 5 * A);
    assert_int_equal(recompute_host_bytes(&gpt, dev, starts, 2, 0, 5, N), 4 * N * 3 * 12);
    assert_int_equal(recompute_host_bytes(&gpt, dev, away, 0, 3, 2, N), 4 * N * (2 * A - 12)); // a stage's
    // two ranks that share the rows of the stream: streams, resid and the statistics of norms have half the rows
    ModelShape shared = gpt;
    shared.cut.rows = 2;
    assert_int_equal(recompute_bytes(&shared, dev, (RecomputePolicy){0}, B, T),
                     4 * N * (5 * (A - 2 * 12 - 4) + 12) + 4 * N / 2 * (5 * (2 * 12 + 4) + 12 + 2));
    assert_int_equal(recompute_bytes(&shared, dev, (RecomputePolicy){.mode = RECOMPUTE_EVERY, .every = 2}, B, T),
                     4 * N * (2 * (A - 2 * 12 - 4) + 12) + 4 * N / 2 * ((4 + 1) * 12 + 2 * (12 + 4) + 2));
    narrow_free(narrow);
    dev_cpu_free(dev);
}

// In numbers, because the allocator asks the same functions: a scale for every begun group of 256 elements; and what is
// kept for the gradients of weights (doc/pipeline.md): those of the outputs of a block's four matmuls, and with
// recomputation also their inputs.
TEST(test_bytes_in_numbers)
{
    Dev *dev = dev_cpu_create(1);
    ModelShape s = llama;
    const size_t width[] = {255, 256, 257}, scales[] = {1, 1, 2};
    for (int i = 0; i < 3; i++) {
        s.ffn = width[i]; // of pre, two of them: 2, 2 and 3 groups
        size_t stat = 4 * (4 + 4 + 2 + 4), groups = 1 + 1 + 1 + (i == 2 ? 3 : 2) + 1 + 1 + scales[i] + 1;
        size_t widths = 48 + 24 + 10 + 2 * s.ffn + 10 + 10 + s.ffn + 48, streams = 6 * 10 * 4, head = 10 * 4 + 8;
        assert_int_equal(recompute_bytes(&s, dev, (RecomputePolicy){.compress = true}, B, T),
                         N * (5 * (stat + widths + 4 * groups) + 4 * widths + streams + head));
    }
    assert_int_equal(recompute_late_bytes(&gpt, dev, 0, 0, 5, N), 5 * N * 4 * (36 + 12 + 20 + 12));
    assert_int_equal(recompute_late_bytes(&llama, dev, 0, 0, 3, N), 3 * N * 4 * (48 + 10 + 2 * 130 + 10));
    assert_int_equal(recompute_late_bytes(&llama, dev, 2, 0, 3, N),
                     3 * N * 4 * (48 + 10 + 2 * 130 + 10 + 10 + 24 + 10 + 130));
    dev_cpu_free(dev);
}

static void *no_memory(size_t n_bytes)
{
    static char nowhere;
    (void)n_bytes;
    return &nowhere;
}

static void free_nothing(void *ptr)
{
    (void)ptr;
}

// The table compares each row with the formula itself; here: it has all rows, and costs nothing for a large model.
TEST(test_table)
{
    ModelShape big = {.layers = 96, .channels = 12288, .heads = 96, .kv_heads = 96, .head_size = 128, .ffn = 49152,
                      .vocab = 50257, .context = 2048};
    Mem counting = {.raw_alloc = no_memory, .raw_free = free_nothing};
    Dev *dev = dev_cpu_create(1);
    char *text = PRINTED(out, recompute_print(&big, dev, &counting, 4, 2048, out));
    const char *rows[] = {"\nnone ", "\nselective ", "\nattention ", "\nevery 2 ",
                          "\nsqrt ", "\nfull ", "\nint8 ", "\nfull, int8 "};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_non_null(strstr(text, rows[i]));
    free(text);
    dev_cpu_free(dev);
}

// ---- 8-bit copies

// Rounding to 8 bits is noise of variance scale^2 / 12, where scale is the largest of at most 256 elements over 127:
// with a largest of at most 4 rms, 4 / (127 sqrt(12)) = 0.9% of a buffer's norm. A gradient is a product chain
// through at most 8 such buffers a block; noise of different buffers is independent and adds in squares: at most
// sqrt(8 * 5) 0.9% = 6% for the five blocks, were each buffer to carry the whole gradient.
TEST(test_compressed_gradients_are_near)
{
    const ModelShape *families[] = {&gpt, &llama};
    for (int f = 0; f < 2; f++) {
        Step step = {.dropout = 0.1f, .step = 2};
        Result exact = run_step(families[f], step);
        step.options.recompute = (RecomputePolicy){.compress = true};
        Result packed = run_step(families[f], step);
        assert_true(packed.loss == exact.loss); // forward does not see the copies
        double d = distance(&packed, &exact);
        assert_true(d > 0 && d <= 0.06);
        // A segment that runs again packs the same numbers.
        for (int i = 3; i < MODES; i++) {
            step.options.recompute = modes[i].policy;
            step.options.recompute.compress = true;
            Result r = run_step(families[f], step);
            assert_true(same_bits(&r, &packed));
            free(r.grads);
        }
        step.options.recompute = (RecomputePolicy){.mode = RECOMPUTE_SELECTIVE, .compress = true};
        Result both = run_step(families[f], step);
        assert_true(both.loss == exact.loss && both.act_bytes < packed.act_bytes);
        d = distance(&both, &exact);
        assert_true(d > 0 && d <= 0.06);
        free(exact.grads), free(packed.grads), free(both.grads);
    }
}

// ---- dropout against finite differences

// With the masks fixed, the loss is a function of the weights like any other: along g / |g| its slope is |g|. Central
// differences at h and 2 h: their difference is three times the truncation error at h. Losses are sums of 25 tokens
// of about 4, each with a relative error of some 50 roundings of 2^-24.
static void check_slope(const ModelShape *shape)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *m = model_create(shape, dev, &mem, B, T, 1, true);
    make_weights_lively(m);
    Step step = {.dropout = 0.3f, .step = 3, .documents = true};
    size_t n = m->params.n_elems;
    float *weights = malloc(2 * n * sizeof *weights), *g = weights + n;
    assert_non_null(weights);
    memcpy(weights, m->weights, n * sizeof *weights);
    run_batch(m, &step, 0, B, T);
    memcpy(g, m->grads, n * sizeof *g);
    double norm = 0, slope[2], h = 1.0 / 1024;
    for (size_t i = 0; i < n; i++) norm += (double)g[i] * g[i];
    norm = sqrt(norm);
    for (int k = 0; k < 2; k++) {
        double loss[2], at = h * (1 + k);
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < n; i++)
                m->weights[i] = (float)(weights[i] + (side ? at : -at) * g[i] / norm);
            loss[side] = run_batch(m, &step, 0, B, T) * 0.03125;
        }
        slope[k] = (loss[1] - loss[0]) / (2 * at);
    }
    double truncation = fabs(slope[1] - slope[0]) / 3, rounding = 25 * 4 * 0.03125 * 50 * 0x1p-24 / h;
    if (!(fabs(slope[0] - norm) <= 2 * truncation + rounding) || !(truncation + rounding <= 0.01 * norm))
        fail_msg("the slope is %g, the gradient says %g (truncation %g, rounding %g)", slope[0], norm, truncation,
                 rounding);
    free(weights);
    end_model(m, &mem, dev);
}

TEST(test_gradients_with_dropout)
{
    check_slope(&gpt);
    check_slope(&llama);
    ModelShape squares = gpt;
    squares.act = ACT_RELU2;
    check_slope(&squares);
}

TESTS(NULL, NULL)
