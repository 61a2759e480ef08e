// test_sample: drawing a token follows the stated probabilities and cuts, and drawing text with the key/value
// cache gives what the model gives without one.
#include "test/test.h"

#include "expect_die.h"

#include "base/words.h"
#include "eval/sample.h"
#include "ops/dev_cpu.h"
#include "narrow/narrow.h"

// ---- one token

enum { DRAWS = 20000 };
#define RULE(T, K, P) ((SampleRule){.temperature = T, .top_k = K, .top_p = P})
static const SampleRule plain = {.temperature = 1, .top_k = 0, .top_p = 1};

static int32_t draw(const double *p, size_t V, SampleRule rule, double u)
{
    float logits[32];
    for (size_t v = 0; v < V; v++) logits[v] = (float)(log(p[v]) - 3); // any constant
    return sample_token(logits, V, rule, u);
}

// With u at the middle of each of DRAWS equal parts, a token of probability p comes p DRAWS times, give or take one at
// each end of its stretch (and one for the rounding of p).
static void expect_shares(const double *p, size_t V, SampleRule rule, const double *share)
{
    int count[32] = {0};
    for (int i = 0; i < DRAWS; i++) {
        int32_t id = draw(p, V, rule, (i + 0.5) / DRAWS);
        assert_in_range(id, 0, V - 1);
        count[id]++;
    }
    for (size_t v = 0; v < V; v++)
        if (!(fabs(count[v] - share[v] * DRAWS) <= (share[v] > 0 ? 3 : 0)))
            fail_msg("token %zu: %d times of %d, not %g", v, count[v], DRAWS, share[v] * DRAWS);
}

static const double five[] = {0.1, 0.4, 0.05, 0.25, 0.2};

TEST(test_shares_are_probabilities)
{
    expect_shares(five, 5, plain, five);
    expect_shares((double[]){1e-30, 1}, 2, plain, (double[]){0, 1});
}

// p^(1/temperature), renormalised
TEST(test_temperature)
{
    const double temperatures[] = {0.5, 2, 0.1};
    for (int i = 0; i < 3; i++) {
        double share[5], sum = 0;
        for (int v = 0; v < 5; v++) sum += share[v] = pow(five[v], 1 / temperatures[i]);
        for (int v = 0; v < 5; v++) share[v] /= sum;
        expect_shares(five, 5, RULE(temperatures[i], 0, 1), share);
    }
    for (int i = 0; i < 10; i++) assert_int_equal(draw(five, 5, RULE(0, 0, 1), i / 10.0), 1);
    const double tie[] = {0.1, 0.3, 0.3, 0.3};
    assert_int_equal(draw(tie, 4, RULE(0, 0, 1), 0.9), 1); // the first of equals
}

// top_k; top_p: the fewest tokens that hold it, 0.4, 0.65, 0.85, 0.95, 1 are the sums; min_p, of the largest.
TEST(test_cuts)
{
    static const double one[] = {0, 1, 0, 0, 0}, two[] = {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0};
    static const double three[] = {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85};
    const struct {
        size_t top_k;
        double top_p, min_p;
        const double *share;
    } rows[] = {
        {1, 1, 0, one}, {3, 1, 0, three}, {5, 1, 0, five}, {100, 1, 0, five}, {0, 0.001, 0, one}, {0, 0.399, 0, one},
        {0, 0.401, 0, two}, {0, 0.649, 0, two}, {0, 0.651, 0, three}, {0, 0.999, 0, five},
        // top_k first: of the three likeliest, 0.7 * 0.85 = 0.595 is within the first two
        {3, 0.7, 0, two}, {2, 0.99, 0, two},
        {0, 1, 1, one}, {0, 1, 0.63, one}, {0, 1, 0.62, two}, {0, 1, 0.51, two}, {0, 1, 0.49, three},
        {0, 1, 0.12, five},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        SampleRule rule = {.temperature = 1, .top_k = rows[i].top_k, .top_p = rows[i].top_p, .min_p = rows[i].min_p};
        expect_shares(five, 5, rule, rows[i].share);
    }
    SampleRule after = RULE(2, 0, 1); // of the probabilities after the temperature: sqrt(0.25 / 0.4) = 0.79
    after.min_p = 0.78;
    double first = sqrt(0.4) / (sqrt(0.4) + sqrt(0.25));
    expect_shares(five, 5, after, (double[]){0, first, 0, 1 - first, 0});
}

TEST(test_ends_of_the_interval)
{
    const double below_one = 1 - 0x1p-53;
    const SampleRule rules[] = {plain, RULE(1, 2, 1), RULE(1, 0, 0.9), RULE(100, 0, 1), RULE(0.01, 0, 1)};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        assert_in_range(draw(five, 5, rules[i], 0), 0, 4);
        assert_in_range(draw(five, 5, rules[i], below_one), 0, 4);
    }
    assert_int_equal(draw(five, 5, plain, 0), 0);
    assert_int_equal(draw(five, 5, plain, below_one), 4);
    assert_int_equal(draw(five, 5, RULE(1, 2, 1), below_one), 3); // the last of those left
}

// ---- text. The tokenizer has the 256 bytes and end-of-text, nothing else: a byte is a token.

enum { CONTEXT = 16, N_TOKENS = 257, PROMPT_MAX = 64 };
static const SampleRule greedy = {.temperature = 0, .top_p = 1};

typedef struct {
    Mem mem;
    Dev *dev;
    Model *model;
    KvCache cache;
    Tokenizer *tokenizer;
} Case;
static Case *c; // of the test that runs

static int setup(void **state)
{
    (void)state;
    c = zeroed(sizeof *c);
    ModelShape shape = {.layers = 2, .channels = 16, .heads = 4, .kv_heads = 2, .head_size = 4, .ffn = 16,
                        .vocab = N_TOKENS, .context = CONTEXT, .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true,
                        .rotary.theta = 100, .swiglu = true};
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, "x", 1);
    c->tokenizer = tokenizer_trainer_finish(trainer, N_TOKENS);
    c->dev = dev_cpu_create(1);
    c->model = model_create(&shape, c->dev, &c->mem, 1, CONTEXT, 1, false);
    for (size_t i = 0; i < c->model->params.n_elems; i++)
        c->model->weights[i] = (float)(0.5 * rng_normal(rng_make(4, "weights", 0), i));
    c->cache = model_cache_create(c->model);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(c->tokenizer);
    end_model(c->model, &c->mem, c->dev);
    free(c);
    return 0;
}

static int32_t token_of(unsigned char byte)
{
    TokenIds ids = {0};
    tokenizer_encode(c->tokenizer, (char *)&byte, 1, &ids);
    assert_int_equal(ids.n, 1);
    int32_t id = ids.id[0];
    token_ids_free(&ids);
    return id;
}

static float *head_row(int32_t id)
{
    int row = params_find(&c->model->params, "head.weight");
    assert_true(row >= 0);
    return c->model->weights + c->model->params.row[row].offset + (size_t)id * c->model->shape.channels;
}

static Sampler begin(KvCache *cache, const char *prompt, SampleRule rule, uint64_t seed)
{
    return sample_begin(c->model, (SampleForward){0}, cache, c->tokenizer, prompt, strlen(prompt), rule,
                        rng_make(seed, "s", 0));
}

// A row of zeros in the head has logit 0; the likeliest of 257 is well above that. Such a token is never taken.
static void never(int32_t id)
{
    memset(head_row(id), 0, c->model->shape.channels * sizeof(float));
}

// Greedy text byte by byte: each must be the likeliest token, as the model says when it reads everything it is to
// remember at once, without a cache. What it remembers: all since the start, or, each time the context is full, the
// newer half of it and on. (Within 1e-4 of the largest logit, for the two orders of summation: logits are sums of 16
// products of size 1 or so, 1e-4 is 100 roundings of each.)
static void expect_greedy(const char *prompt, size_t n, double repetition)
{
    SampleRule rule = greedy;
    rule.repetition = repetition;
    char *text = sample_text(c->model, (SampleForward){0}, &c->cache, c->tokenizer, prompt, n, rule,
                             rng_make(1, "sample", 0));
    size_t n_prompt = strlen(prompt), n_ids = 1 + n_prompt, first = 0;
    int32_t ids[1 + PROMPT_MAX + 4 * CONTEXT] = {tokenizer_eot(c->tokenizer)};
    static float logits[CONTEXT * N_TOKENS];
    assert_int_equal(strlen(text), n_prompt + n);
    assert_memory_equal(text, prompt, n_prompt);
    for (size_t i = 0; i < n_prompt; i++) ids[1 + i] = token_of((unsigned char)prompt[i]);
    for (size_t i = 0; i < n; i++) {
        if (n_ids - first > CONTEXT) first = n_ids - (CONTEXT + 1) / 2;
        size_t T = n_ids - first;
        model_set_batch(c->model, ids + first, NULL, ids + first, 1, T);
        model_logits(c->model, logits);
        float *last = logits + (T - 1) * N_TOKENS;
        bool seen[N_TOKENS] = {false};
        for (size_t k = 0; k < n_ids; k++) {
            if (!seen[ids[k]]) last[ids[k]] *= last[ids[k]] < 0 ? (float)repetition : 1 / (float)repetition;
            seen[ids[k]] = true;
        }
        float top = last[0];
        for (size_t v = 1; v < N_TOKENS; v++) top = last[v] > top ? last[v] : top;
        int32_t id = token_of((unsigned char)text[n_prompt + i]);
        if (!(last[id] >= top - 1e-4f * fabsf(top)))
            fail_msg("byte %zu of '%s' + %zu: logit %g, largest %g", i, prompt, n, last[id], top);
        ids[n_ids++] = id;
    }
    free(text);
}

// Within the context, beyond it, and with a penalty for what was there.
TEST_WITH(test_cache_is_the_model, setup, teardown)
{
    never(tokenizer_eot(c->tokenizer));
    never(token_of(0)); // would end the string
    expect_greedy("", 10, 1);
    expect_greedy("abc", 12, 1);
    expect_greedy("", 3 * CONTEXT, 1);
    expect_greedy("a prompt of 15 b", CONTEXT, 1);         // with end-of-text: one more than fits
    expect_greedy("a prompt of 15", 2 * CONTEXT, 1);
    expect_greedy("a prompt that is longer than the whole context", 20, 1);
    expect_greedy("abcabc", CONTEXT, 1.3);
    expect_greedy("", 3 * CONTEXT, 20);
}

// Logits that are all below 0, and least so for a token of the prompt: the penalty takes it further down.
TEST_WITH(test_repetition_below_zero, setup, teardown)
{
    const int32_t a = token_of('a');
    int taken = 0;
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int32_t id = 0; id < N_TOKENS; id++) {
            never(id);
            head_row(id)[0] = (float)sign * (id == a ? 0.5f : 1); // times the norm's first channel, of either sign
        }
        for (int penalty = 1; penalty <= 10; penalty += 9) {
            SampleRule rule = greedy;
            rule.repetition = penalty;
            Sampler s = begin(&c->cache, "a", rule, 1);
            bool again = sample_next(&s, NULL) == a;
            assert_false(again && penalty > 1);
            taken += again;
            sample_end(&s);
        }
    }
    assert_int_equal(taken, 1);
}

// The probability that the model itself gives the token, whatever the rule has made of it.
TEST_WITH(test_log_probability, setup, teardown)
{
    static float logits[CONTEXT * N_TOKENS];
    SampleRule rule = RULE(0.5, 3, 1);
    rule.repetition = 2;
    never(tokenizer_eot(c->tokenizer));
    Sampler s = begin(&c->cache, "ab", rule, 1);
    double given[CONTEXT];
    for (size_t i = 0; i < CONTEXT - 3; i++) assert_true(sample_next(&s, &given[i]) >= 0);
    model_set_batch(c->model, s.ids.id, NULL, s.ids.id, 1, s.ids.n);
    model_logits(c->model, logits);
    for (size_t i = 0; i < CONTEXT - 3; i++) {
        const float *z = logits + (2 + i) * N_TOKENS;
        double sum = 0;
        for (size_t v = 0; v < N_TOKENS; v++) sum += exp((double)z[v] - z[0]);
        double want = (double)z[s.ids.id[3 + i]] - z[0] - log(sum);
        // The same two orders of summation as in expect_greedy, for logits of size 1 or so.
        if (!(fabs(given[i] - want) <= 1e-4 * (1 + fabs(want)))) fail_msg("token %zu: %g, not %g", i, given[i], want);
    }
    sample_end(&s);
}

// Cut anywhere, a text comes out whole, and no part ends within a character.
TEST(test_characters)
{
    const char *const rows[][2] = {
        {"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"},
        {"a\xFF(", "a\xEF\xBF\xBD("}, {"\xE2\x28\xA1", "\xEF\xBF\xBD(\xEF\xBF\xBD"},
        {"\xED\xA0\x80x", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDx"}, // a surrogate
        {"a\xF0\x9F\x98", "a\xEF\xBF\xBD"}, // never ends
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *bytes = rows[i][0];
        size_t n = strlen(bytes);
        for (size_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
            SampleText text = {0};
            char all[200] = "", out[100];
            size_t total = 0;
            for (size_t from = 0, to = 1; from < n; from = to, to = from + 1) {
                while (to < n && !(cuts >> (to - 1) & 1)) to++;
                size_t k = sample_characters(&text, bytes + from, to - from, out), length;
                assert_int_equal(words_utf8_invalid(out, k, 0, &length), k);
                memcpy(all + total, out, k);
                total += k;
            }
            total += sample_characters(&text, NULL, 0, all + total);
            assert_int_equal(total, strlen(rows[i][1]));
            assert_memory_equal(all, rows[i][1], total);
        }
    }
}

// ---- several documents side by side

// Sizes that are no multiples of what the processor computes at once: where an element lies in a register depends on
// how many rows come before its own.
static const ModelShape odd[] = {
    {.layers = 2, .channels = 21, .heads = 3, .kv_heads = 3, .head_size = 7, .ffn = 37, .vocab = 131, .context = 40,
     .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true, .tie = true},
    {.layers = 3, .channels = 195, .heads = 5, .kv_heads = 1, .head_size = 6, .ffn = 83, .vocab = 257, .context = 40,
     .norm = NORM_RMSNORM, .norm_eps = 1e-5f, .rope = true, .rotary.theta = 100, .swiglu = true, .qk_norm = true,
     .window = 5, .window_pattern = "sf"},
};

// Sequence b has 2 b + 1 tokens before the batch. Its logits must have the bits that it gets alone, whatever the others
// are; in the second step of a batch, too, which reads what the first has cached.
static void each_as_alone(const ModelShape *shape, bool bf16, int threads, bool deterministic)
{
    Mem mem = {0};
    Dev *cpu = dev_cpu_create(threads);
    cpu->deterministic = deterministic;
    Dev *dev = bf16 ? narrow_create(cpu, (NarrowOptions){.x_type = X_BF16}) : cpu;
    Model *m = model_create(shape, dev, &mem, 1, 20, 1, false);
    size_t V = shape->vocab;
    for (size_t i = 0; i < m->params.n_elems; i++)
        m->weights[i] = (float)(0.3 * rng_normal(rng_make(5, "weights", 0), i));
    if (bf16) model_weights_changed(m);
    KvCache cache[FEW_ROWS], *list[FEW_ROWS];
    int32_t token[FEW_ROWS][20];
    float *alone = zeroed(2 * FEW_ROWS * V * sizeof *alone), *each = zeroed(FEW_ROWS * V * sizeof *each);
    for (size_t b = 0; b < FEW_ROWS; b++) {
        cache[b] = model_cache_for(m, 20);
        list[b] = &cache[b];
        for (size_t t = 0; t < 20; t++)
            token[b][t] = (int32_t)(rng_uniform(rng_make(6, "token", 0), 20 * b + t) * (double)V);
        model_next_logits(m, &cache[b], token[b], 2 * b + 1, alone);
    }
    for (size_t b = 0; b < FEW_ROWS; b++)
        for (size_t k = 0; k < 2; k++)
            model_next_logits(m, &cache[b], token[b] + 2 * b + 1 + k, 1, alone + (k * FEW_ROWS + b) * V);
    for (size_t B = 1; B <= FEW_ROWS; B++) {
        for (size_t b = 0; b < B; b++) {
            cache[b].length = 0;
            model_next_logits(m, &cache[b], token[b], 2 * b + 1, each);
        }
        for (size_t k = 0; k < 2; k++) {
            int32_t next[FEW_ROWS];
            for (size_t b = 0; b < B; b++) next[b] = token[b][2 * b + 1 + k];
            model_next_logits_each(m, list, next, B, each);
            for (size_t b = 0; b < B; b++)
                if (memcmp(each + b * V, alone + (k * FEW_ROWS + b) * V, V * sizeof *each))
                    fail_msg("%s, %d threads: step %zu, sequence %zu of %zu has other logits than alone", dev->name,
                             threads, k, b, B);
        }
    }
    free(alone), free(each);
    model_free(m);
    mem_free_all(&mem);
    if (bf16) narrow_free(dev);
    dev_cpu_free(cpu);
}

TEST(test_logits_of_each)
{
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (int threads = 1; threads <= 2; threads++) {
            each_as_alone(&odd[i], false, threads, false);
            each_as_alone(&odd[i], true, threads, false);
            each_as_alone(&odd[i], false, threads, true);
        }
}

// Documents with prompts and random numbers of their own, which end at different times and start their caches again at
// different times, are the same tokens with the same log-probabilities as alone.
TEST_WITH(test_documents_side_by_side, setup, teardown)
{
    enum { TOKENS = 3 * CONTEXT };
    const char *const prompt[FEW_ROWS] = {"ab", "", "a prompt of 15", "ab", "x", "xyz", "q",
                                          "a prompt that is longer than the whole context"};
    static int32_t alone[FEW_ROWS][TOKENS + 1];
    static double given[FEW_ROWS][TOKENS + 1];
    size_t n_alone[FEW_ROWS], most = 0, n_ended = 0;
    SampleRule rule = RULE(1.5, 0, 1);
    rule.repetition = 1.2;
    for (size_t k = 0; k < c->model->shape.channels; k++) head_row(tokenizer_eot(c->tokenizer))[k] *= 2; // some end
    for (size_t b = 0; b < FEW_ROWS; b++) {
        Sampler s = begin(&c->cache, prompt[b], rule, b);
        size_t *n = &n_alone[b];
        for (*n = 0; *n < TOKENS && (alone[b][*n] = sample_next(&s, &given[b][*n])) >= 0;) ++*n;
        n_ended += *n < TOKENS;
        most = *n > most ? *n : most;
        sample_end(&s);
    }
    if (most < TOKENS || n_ended < 2) fail_msg("%zu documents end, the longest has %zu tokens", n_ended, most);
    KvCache cache[FEW_ROWS];
    Sampler all[FEW_ROWS], *live[FEW_ROWS];
    size_t n_live = FEW_ROWS, which[FEW_ROWS];
    for (size_t b = 0; b < FEW_ROWS; b++) {
        cache[b] = model_cache_create(c->model);
        all[b] = begin(&cache[b], prompt[b], rule, b);
        live[b] = &all[b], which[b] = b;
    }
    assert_int_equal(sample_batch(c->model), FEW_ROWS);
    for (size_t i = 0; i < TOKENS && n_live; i++) {
        int32_t id[FEW_ROWS];
        double log_probability[FEW_ROWS];
        size_t left = 0;
        sample_next_each(live, n_live, id, log_probability);
        for (size_t k = 0; k < n_live; k++) {
            size_t b = which[k];
            assert_int_equal(id[k], alone[b][i]);
            assert_true(log_probability[k] == given[b][i]);
            if (id[k] >= 0) live[left] = live[k], which[left++] = b;
        }
        n_live = left;
    }
    assert_int_equal(n_live, FEW_ROWS - n_ended);
    for (size_t b = 0; b < FEW_ROWS; b++) sample_end(&all[b]);
}

// The bytes alone: nothing begins or ends a text; or the last byte is what separates documents, and nothing begins
// them.
static Tokenizer *without_bos(bool has_eot)
{
    Vocab v = vocab_new("gpt2");
    v.special = zeroed(256 * sizeof *v.special);
    v.eot = has_eot ? 255 : -1;
    return tokenizer_new(v);
}

static Sampler begin_with(Tokenizer *t, const char *prompt)
{
    return sample_begin(c->model, (SampleForward){0}, &c->cache, t, prompt, strlen(prompt), greedy,
                        rng_make(1, "sample", 0));
}

TEST_WITH(test_begins_as_the_tokenizer_says, setup, teardown)
{
    Tokenizer *own = without_bos(true); // c->tokenizer was trained here
    const struct {
        Tokenizer *tokenizer;
        const char *prompt;
        size_t n;
        int32_t first;
    } rows[] = {{own, "!", 1, 0}, {own, "", 1, 255}, {c->tokenizer, "!", 2, tokenizer_eot(c->tokenizer)}};
    for (int i = 0; i < 3; i++) {
        Sampler s = begin_with(rows[i].tokenizer, rows[i].prompt);
        assert_int_equal(s.ids.n, rows[i].n);
        assert_int_equal(s.ids.id[0], rows[i].first);
        sample_end(&s);
    }
    tokenizer_free(own);
    expect_dies("an empty prompt, and no token of the tokenizer begins or ends a text", {
        Sampler s = begin_with(without_bos(false), "");
        sample_end(&s);
    });
}

TESTS(NULL, NULL)
