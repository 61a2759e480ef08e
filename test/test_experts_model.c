// test_experts_model: blocks with experts in a model, by what must be equal to the bit: one expert and the dense layer;
// equal experts and the dense layer; the loads that are counted, whatever runs again; and what capacity, bias and shares change. (Values and gradients against PyTorch: test_model.)
#include "step_run.h"

#include "net/experts.h"
#include "train/loads.h"

static Model *make(const ModelShape *shape, Dev *dev, Mem *mem, ModelOptions options)
{
    Model *m = model_allocate_with(shape, dev, mem, B, T, true, options);
    params_init(&m->params, 1, m->weights);
    make_weights_lively(m);
    return m;
}

static float *row_of(const Model *m, float *flat, const char *name)
{
    int i = params_find(&m->params, name);
    if (i < 0) fail_msg("no tensor %s", name);
    return flat + m->params.row[i].offset;
}

// The dense model's tensors in a model with experts: each expert gets the matrices of the one network.
static void copy_dense(Model *to, const Model *from)
{
    for (int i = 0; i < to->params.n_rows; i++) {
        const Param *row = &to->params.row[i];
        char name[PARAM_NAME], *at, *end;
        snprintf(name, sizeof name, "%s", row->name);
        if (strstr(name, "router")) continue;
        if ((at = strstr(name, "experts.")) && (end = strchr(at + 8, '.'))) {
            char rest[PARAM_NAME];
            snprintf(rest, sizeof rest, "%s", end);
            snprintf(at, sizeof name - (size_t)(at - name), "ffn%s", rest);
        }
        memcpy(to->weights + row->offset, row_of(from, from->weights, name), row->n_elems * sizeof(float));
    }
    model_weights_changed(to);
}

static void run(Model *m, float *logits, double *loss)
{
    Step step = {.dropout = 0.1f, .step = 3, .documents = true};
    *loss = run_batch(m, &step, 0, B, T);
    model_step_finish(m);
    model_logits(m, logits);
}

static const ModelExperts ONE = {.n = 1, .k = 1, .every = 1, .renorm = true, .scale = 1};

// n: experts, 0: none. Both kinds of network are F wide. A deterministic device adds 21 columns in one part, 96 in 8.
static ModelShape with_experts(const ModelExperts *experts, size_t n, size_t F)
{
    ModelShape s = llama;
    s.layers = 3, s.ffn = F, s.experts = *experts;
    s.experts.n = n, s.experts.ffn = F;
    return s;
}

// Same bits: logits, loss, and all gradients; an expert's gradient times `times` is the dense one.
static void expect_dense(const ModelExperts *experts, size_t F, bool deterministic, bool zero_router, float times)
{
    float logits[2][N * 31];
    double loss[2];
    Mem mem[2];
    memset(mem, 0, sizeof mem);
    Dev *dev = dev_cpu_create(2);
    dev->deterministic = deterministic;
    ModelShape shape[2] = {with_experts(experts, 0, F), with_experts(experts, experts->n, F)};
    Model *dense = make(&shape[0], dev, &mem[0], (ModelOptions){0});
    Model *m = make(&shape[1], dev, &mem[1], (ModelOptions){0});
    copy_dense(m, dense);
    for (int i = 0; zero_router && i < m->params.n_rows; i++)
        if (strstr(m->params.row[i].name, "router"))
            memset(m->weights + m->params.row[i].offset, 0, m->params.row[i].n_elems * sizeof(float));
    run(dense, logits[0], &loss[0]);
    run(m, logits[1], &loss[1]);
    assert_true(loss[0] == loss[1] && loss[0] > 1);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    for (int i = 0; i < dense->params.n_rows; i++) {
        const Param *row = &dense->params.row[i];
        const char *ffn = strstr(row->name, "ffn.");
        char name[PARAM_NAME];
        snprintf(name, sizeof name, "%.*s", ffn ? (int)(ffn - row->name) : (int)sizeof name - 1, row->name);
        if (ffn) snprintf(name + strlen(name), sizeof name - strlen(name), "experts.0.%s", ffn + 4);
        const float *want = dense->grads + row->offset, *got = row_of(m, m->grads, name);
        for (size_t j = 0; j < row->n_elems; j++)
            if (got[j] * (ffn ? times : 1) != want[j])
                fail_msg("gradient of %s[%zu]: %.9g, dense %.9g", name, j, got[j], want[j]);
    }
    model_free(dense), model_free(m);
    mem_free_all(&mem[0]), mem_free_all(&mem[1]);
    dev_cpu_free(dev);
}

TEST(test_one_expert_is_the_dense_layer)
{
    for (int i = 0; i < 4; i++) {
        bool deterministic = i % 2;
        size_t F = i < 2 ? 21 : 96;
        expect_dense(&ONE, F, deterministic, false, 1);
        ModelExperts sigmoid = ONE;
        sigmoid.sigmoid = true; // its weight, divided by itself, is 1
        expect_dense(&sigmoid, F, deterministic, false, 1);
    }
}

// Scores that are all equal choose the first two experts, each with weight 1/2 (renormalised or scaled): halves of
// equal outputs add up to the whole without rounding, and each has half of the gradient.
TEST(test_equal_experts_are_the_dense_layer)
{
    for (int i = 0; i < 4; i++) {
        bool deterministic = i % 2;
        size_t F = i < 2 ? 21 : 96;
        ModelExperts four = ONE;
        four.n = 4, four.k = 2;
        expect_dense(&four, F, deterministic, true, 2);
        four.renorm = false, four.scale = 2; // 2 * 1/4
        expect_dense(&four, F, deterministic, true, 2);
        four.balance = MOE_BALANCE_SEQUENCE, four.balance_coef = 1; // acts on the router alone, whose input has no part
        expect_dense(&four, F, deterministic, true, 2);
    }
}

// ---- what is counted

static void counts_of(Model *m, float count[5][6])
{
    for (int u = 0; u < m->n_units; u++)
        if (m->unit[u].kind == &unit_experts)
            memcpy(count[m->unit[u].place - 1], m->experts[u].count, 6 * sizeof(float));
}

// Each slot of a step once, whatever is recomputed and evaluated; drops of 2 of 5 experts at capacity 1.2.
TEST(test_loads_count_each_slot_once)
{
    const RecomputePolicy policy[] = {{.mode = RECOMPUTE_NONE}, {.mode = RECOMPUTE_SELECTIVE}, {.mode = RECOMPUTE_FULL},
                                      {.mode = RECOMPUTE_EVERY, .every = 2}};
    float first[5][6] = {{0}};
    for (int i = 0; i < 8; i++) {
        float count[5][6] = {{0}};
        Mem mem = {0};
        Dev *dev = dev_cpu_create(2);
        dev->deterministic = i >= 4;
        Model *m = make(&moe, dev, &mem, (ModelOptions){.recompute = policy[i % 4], .sequences = 5});
        Step step = {.step = 3};
        run_batch(m, &step, 0, B, T);
        model_evaluate(m);
        run_batch(m, &step, 3, 2, T);
        counts_of(m, i ? count : first);
        for (int l = 0; l < 5; l++) {
            double sum = 0;
            for (int e = 0; e < 5; e++) sum += i ? count[l][e] : first[l][e];
            assert_true(sum == (l > 0 && l % 2 == 0 ? 5 * T * 2 : 0));
        }
        assert_true(first[2][5] > 0 && first[2][5] < 5 * T);
        if (i) assert_memory_equal(count, first, sizeof count);
        end_model(m, &mem, dev);
    }
}

// 1.1 times a load of 20 is 22 slots, though 1.1 in binary is a little more than 1.1.
TEST(test_capacity_is_rounded_up_once)
{
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 5, .k = 2, .capacity = 1.1}, 50), 22);
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 8, .k = 2, .capacity = 1.25}, 128), 40);
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 5, .k = 2, .capacity = 1.2}, 10), 5); // 4.8
    assert_int_equal(experts_capacity(&(ModelExperts){.n = 5, .k = 2}, 10), 0);
}

// Capacity acts in training alone.
TEST(test_evaluation_drops_nothing)
{
    double loss[2], trained[2];
    for (int i = 0; i < 2; i++) {
        ModelShape s = moe;
        s.experts.capacity = i ? 0.6f : 0;
        Mem mem = {0};
        Dev *dev = dev_cpu_create(2);
        Model *m = make(&s, dev, &mem, (ModelOptions){0});
        Step step = {.step = 3};
        trained[i] = run_batch(m, &step, 0, B, T);
        loss[i] = model_evaluate(m);
        end_model(m, &mem, dev);
    }
    assert_true(loss[0] == loss[1] && trained[0] == loss[0] && trained[1] != loss[0]);
}

// ---- loads over a step

TEST(test_loads_move_biases)
{
    ModelShape s = moe;
    s.experts.balance = MOE_BALANCE_BIAS, s.experts.bias_rate = 0.25f;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(2);
    Model *m = make(&s, dev, &mem, (ModelOptions){0});
    Replicas alone = {.size = 1};
    Loads loads = loads_create(&s);
    loads_tell(&loads, m);
    const float slots[6] = {10, 40, 20, 20, 10, 7}; // 20 is even; 7 were dropped
    memcpy(m->experts[3].count, slots, sizeof slots);
    loads_step(&loads, m, &alone, false); // a skipped update: read, and no more
    assert_true(loads.state[2 * 2 * 5] == 0 && m->experts[3].count[1] == 0);
    memcpy(m->experts[3].count, slots, sizeof slots);
    loads_step(&loads, m, &alone, true);
    const double bias[5] = {0.25, -0.25, 0, 0, 0.25}, share[5] = {0.1, 0.4, 0.2, 0.2, 0.1};
    for (int e = 0; e < 5; e++) {
        assert_true(loads.state[2 * 2 * 5 + e] == bias[e] && m->experts[3].bias[e] == (float)bias[e]);
        assert_true(loads.state[2 * 2 * 5 + 5 + e] == share[e]);
        assert_true(loads.state[e] == 0); // a layer without experts
    }
    LoadFigures f = loads_figures(&loads, 2);
    assert_true(f.slots == 100 && f.most == 2 && f.least == 0.5 && f.dropped == 0.07);
    assert_true(fabs(f.entropy - (0.2 * log(10) + 0.4 * log(2.5) + 0.4 * log(5)) / log(5)) < 1e-12);
    assert_true(fabs(f.nats - f.entropy * log(5)) < 1e-12 && f.idle == 0);
    assert_true(f.bias[0] == -0.25 && f.bias[1] == 0.25);
    assert_true(isnan(f.largest)); // nobody watched
    assert_true(loads_figures(&loads, 1).slots == 0);
    loads_free(&loads);
    end_model(m, &mem, dev);
}

// ---- what the metrics have of every token

// The means that loads_watch makes, from the routers' outputs as they are after forward: largest weight, balance loss,
// mean square of log sum exp. In 2^-20, so equal for micro-batches of 1 and of 6 sequences.
static void expect_sums(MoeBalance balance, bool sigmoid)
{
    LoadFigures got[2];
    double want[3] = {0, 0, 0};
    for (size_t each = 1; each <= 6; each += 5) {
        ModelShape s = moe;
        s.experts.balance = balance, s.experts.sigmoid = sigmoid, s.experts.z_coef = 0.5f, s.experts.balance_coef = 2;
        Mem mem = {0};
        Dev *dev = dev_cpu_create(2);
        dev->deterministic = true;
        Model *m = model_allocate_with(&s, dev, &mem, 6, T, true, (ModelOptions){.sequences = 6});
        params_init(&m->params, 1, m->weights);
        make_weights_lively(m);
        Replicas alone = {.size = 1};
        Loads loads = loads_create(&s);
        for (size_t e = 0; e < 5; e++) loads.state[(2 * 2 + 1) * 5 + e] = 0.1 * (double)e; // f of layer 2 for `batch`
        loads_tell(&loads, m);
        loads_watch(&loads, m, true);
        Step step = {.step = 3};
        for (size_t b = 0; b < 6; b += each) run_batch(m, &step, each == 1 ? 5 - b : b, each, T); // in another order
        for (size_t n = 0; each == 6 && n < 6 * T; n++) { // unit 3 is layer 2; its buffers are still there
            BufferList list = m->unit[3].kind->saved(dev, &m->local, 6, T);
            void *saved[UNIT_MAX_SAVED];
            model_saved_at(&m->acts, 3, 0, saved);
            const float *z = NULL, *g = NULL;
            const int32_t *choice = NULL;
            for (int i = 0; i < list.n; i++) {
                if (!strcmp(list.name[i], "router")) z = (const float *)saved[i] + n * 5;
                if (!strcmp(list.name[i], "gate")) g = (const float *)saved[i] + n * 2;
                if (!strcmp(list.name[i], "choice")) choice = (const int32_t *)saved[i] + n / T * T * 2;
            }
            double sum = 0, exps = 0, mean = 0;
            for (size_t e = 0; e < 5; e++) exps += exp(z[e]), sum += sigmoid ? 1 / (1 + exp(-z[e])) : exp(z[e]);
            for (size_t e = 0; e < 5; e++) {
                double f = 0.1 * (double)e;
                if (balance == MOE_BALANCE_SEQUENCE) f = 0;
                for (size_t i = 0; balance == MOE_BALANCE_SEQUENCE && i < T * 2; i++) f += choice[i] == (int)e;
                if (balance == MOE_BALANCE_SEQUENCE) f /= T * 2;
                mean += 5 * f * (sigmoid ? 1 / (1 + exp(-z[e])) : exp(z[e])) / sum;
            }
            want[0] += fmax(g[0], g[1]) / (6 * T), want[1] += 2 * mean / (6 * T);
            want[2] += 0.5 * log(exps) * log(exps) / (6 * T);
        }
        loads_step(&loads, m, &alone, true);
        got[each == 6] = loads_figures(&loads, 2);
        assert_true(loads.own[2 * EXPERTS_SUMS] == 0); // begins again
        loads_watch(&loads, m, false);
        model_step_finish(m);
        run_batch(m, &step, 0, 6, T);
        assert_true(loads.own[2 * EXPERTS_SUMS] == 0);
        loads_free(&loads);
        end_model(m, &mem, dev);
    }
    assert_true(got[0].largest == got[1].largest && got[0].z == got[1].z && got[0].balance == got[1].balance);
    bool none = balance == MOE_BALANCE_BIAS;
    if (!(fabs(got[1].largest - want[0]) < 1e-6 && fabs(got[1].z - want[2]) < 1e-6 * (1 + want[2]) &&
          fabs(got[1].balance - (none ? 0 : want[1])) < 2e-6))
        fail_msg("%g %g %g, not %g %g %g", got[1].largest, got[1].balance, got[1].z, want[0], want[1], want[2]);
}

TEST(test_sums_over_tokens)
{
    expect_sums(MOE_BALANCE_SEQUENCE, false);
    expect_sums(MOE_BALANCE_SEQUENCE, true);
    expect_sums(MOE_BALANCE_BATCH, false);
    expect_sums(MOE_BALANCE_BIAS, true);
}

// Loads of one layer with 5 experts, of which a token uses 2, over some steps; the words of the last.
static bool judged(Loads *loads, const double count[5], int times, long steps, double least, char text[LOADS_TEXT])
{
    bool warned = false;
    for (int i = 0; i < times; i++) {
        memcpy(loads->count + 2 * 6, count, 5 * sizeof *count);
        warned = loads_judge(loads, 2, steps, least, text);
        if (i + 1 < times) assert_false(warned);
    }
    return warned;
}

TEST(test_idle_experts_are_reported_once)
{
    const double even[5] = {20, 20, 20, 20, 20}, two_idle[5] = {40, 0, 30, 30, 0}, one_idle[5] = {25, 25, 25, 25, 0};
    const double low[5] = {49, 1, 48, 1, 1};
    char text[LOADS_TEXT] = "";
    Loads loads = loads_create(&moe);
    assert_false(judged(&loads, even, 9, 3, 0.5, text));
    assert_true(judged(&loads, two_idle, 3, 3, 0.2, text));
    assert_string_equal(text, "experts of layers.2: for 3 steps no token has used 2 of them: 1 4");
    assert_false(judged(&loads, two_idle, 9, 3, 0.2, text)); // known
    assert_false(judged(&loads, one_idle, 9, 3, 0.2, text)); // 4 still is
    assert_true(judged(&loads, two_idle, 3, 3, 0.2, text));  // 1 is again
    assert_false(judged(&loads, even, 9, 3, 0.5, text));
    assert_false(judged(&loads, low, 9, 3, 0.02, text));     // H = 0.837 of ln 2 .. ln 5: 0.157
    assert_true(judged(&loads, low, 3, 3, 0.2, text));
    assert_non_null(strstr(text, "as low as if 2.3 of 5 were used evenly"));
    assert_false(judged(&loads, low, 9, 3, 0.2, text));
    assert_false(judged(&loads, two_idle, 2, 0, 0.9, text)); // off
    assert_false(loads_judge(&loads, 1, 1, 0.9, text));      // a layer without experts
    loads_free(&loads);
}

// ---- what balances

static double distance_of(ModelShape shape, float bias, float load)
{
    Mem mem = {0};
    Dev *dev = dev_cpu_create(2);
    Model *m = make(&shape, dev, &mem, (ModelOptions){0});
    for (int u = 0; u < m->n_units; u++) {
        if (m->unit[u].kind != &unit_experts) continue;
        if (m->experts[u].bias) m->experts[u].bias[4] = bias;
        if (m->experts[u].load) m->experts[u].load[4] = load;
    }
    Step step = {.step = 3};
    run_batch(m, &step, 0, B, T);
    float count[5][6] = {{0}};
    counts_of(m, count);
    double of_expert = count[2][4], norm = 0;
    const float *router = row_of(m, m->grads, "layers.2.router.weight");
    for (size_t i = 0; i < 5 * 10; i++) norm += router[i] * router[i];
    end_model(m, &mem, dev);
    return of_expert + (load > 0 ? norm : 0);
}

// A large bias makes every token choose the expert, a very small one none; and only where moe.balance asks for it.
TEST(test_bias_moves_the_choice)
{
    ModelShape s = moe;
    s.experts.balance = MOE_BALANCE_BIAS;
    assert_true(distance_of(s, 10, 0) == B * T);
    assert_true(distance_of(s, -10, 0) == 0);
    double even = distance_of(s, 0, 0);
    assert_true(even > 0 && even < B * T);
}

TEST(test_shares_of_the_batch_are_read)
{
    ModelShape s = moe;
    s.experts.balance = MOE_BALANCE_BATCH;
    assert_true(distance_of(s, 0, 0.9f) != distance_of(s, 0, 0.1f));
    s.experts.balance_coef = 0;
    assert_true(distance_of(s, 0, 0.9f) == distance_of(s, 0, 0.1f));
}

TESTS(NULL, NULL)
