// test_sample: drawing a token follows the stated probabilities and cuts, and drawing text with the key/value
// cache gives what the model gives without one.
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "train/eval.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- one token

enum { DRAWS = 20000 };
static const SampleRule plain = {.temperature = 1, .top_k = 0, .top_p = 1};

static int32_t draw(const double *p, size_t V, SampleRule rule, double u)
{
    float logits[32];
    for (size_t v = 0; v < V; v++) logits[v] = (float)(log(p[v]) - 3); // any constant
    return eval_sample_token(logits, V, rule, u);
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

static void test_shares_are_probabilities(void **state)
{
    (void)state;
    expect_shares(five, 5, plain, five);
    const double one[] = {1}, sure[] = {1e-30, 1};
    expect_shares(one, 1, plain, one);
    expect_shares(sure, 2, plain, (double[]){0, 1});
}

// p^(1/temperature), renormalised
static void test_temperature(void **state)
{
    (void)state;
    const double temperatures[] = {0.5, 2, 0.1};
    for (int i = 0; i < 3; i++) {
        double share[5], sum = 0;
        for (int v = 0; v < 5; v++) sum += share[v] = pow(five[v], 1 / temperatures[i]);
        for (int v = 0; v < 5; v++) share[v] /= sum;
        expect_shares(five, 5, (SampleRule){temperatures[i], 0, 1}, share);
    }
    for (int i = 0; i < 10; i++) assert_int_equal(draw(five, 5, (SampleRule){0, 0, 1}, i / 10.0), 1);
    const double tie[] = {0.1, 0.3, 0.3, 0.3};
    assert_int_equal(draw(tie, 4, (SampleRule){0, 0, 1}, 0.9), 1); // the first of equals
}

static void test_top_k(void **state)
{
    (void)state;
    expect_shares(five, 5, (SampleRule){1, 1, 1}, (double[]){0, 1, 0, 0, 0});
    expect_shares(five, 5, (SampleRule){1, 3, 1}, (double[]){0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85});
    expect_shares(five, 5, (SampleRule){1, 5, 1}, five);
    expect_shares(five, 5, (SampleRule){1, 100, 1}, five);
}

// The fewest tokens that hold top_p: 0.4, 0.65, 0.85, 0.95, 1 are the sums.
static void test_top_p(void **state)
{
    (void)state;
    const double two[] = {0, 0.4 / 0.65, 0, 0.25 / 0.65, 0}, three[] = {0, 0.4 / 0.85, 0, 0.25 / 0.85, 0.2 / 0.85};
    expect_shares(five, 5, (SampleRule){1, 0, 0.001}, (double[]){0, 1, 0, 0, 0});
    expect_shares(five, 5, (SampleRule){1, 0, 0.399}, (double[]){0, 1, 0, 0, 0});
    expect_shares(five, 5, (SampleRule){1, 0, 0.401}, two);
    expect_shares(five, 5, (SampleRule){1, 0, 0.649}, two);
    expect_shares(five, 5, (SampleRule){1, 0, 0.651}, three);
    expect_shares(five, 5, (SampleRule){1, 0, 0.999}, five);
    // top_k first: of the three likeliest, 0.7 * 0.85 = 0.595 is within the first two
    expect_shares(five, 5, (SampleRule){1, 3, 0.7}, two);
    expect_shares(five, 5, (SampleRule){1, 2, 0.99}, two);
}

static void test_ends_of_the_interval(void **state)
{
    (void)state;
    const double below_one = 1 - 0x1p-53;
    const SampleRule rules[] = {plain, {1, 2, 1}, {1, 0, 0.9}, {100, 0, 1}, {0.01, 0, 1}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        assert_in_range(draw(five, 5, rules[i], 0), 0, 4);
        assert_in_range(draw(five, 5, rules[i], below_one), 0, 4);
    }
    assert_int_equal(draw(five, 5, plain, 0), 0);
    assert_int_equal(draw(five, 5, plain, below_one), 4);
    assert_int_equal(draw(five, 5, (SampleRule){1, 2, 1}, below_one), 3); // the last of those left
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

static int setup(void **state)
{
    Case *c = calloc(1, sizeof *c);
    if (!c) return -1;
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
    *state = c;
    return 0;
}

static int teardown(void **state)
{
    Case *c = *state;
    tokenizer_free(c->tokenizer);
    model_free(c->model);
    mem_free_all(&c->mem);
    dev_cpu_free(c->dev);
    free(c);
    return 0;
}

static int32_t token_of(Case *c, unsigned char byte)
{
    TokenIds ids = {0};
    tokenizer_encode(c->tokenizer, (char *)&byte, 1, &ids);
    assert_int_equal(ids.n, 1);
    int32_t id = ids.id[0];
    token_ids_free(&ids);
    return id;
}

static float *head_row(Case *c, int32_t id)
{
    int row = params_find(&c->model->params, "head.weight");
    assert_true(row >= 0);
    return c->model->weights + c->model->params.row[row].offset + (size_t)id * c->model->shape.channels;
}

// A row of zeros in the head has logit 0; the likeliest of 257 is well above that. Such a token is never taken.
static void never(Case *c, int32_t id)
{
    memset(head_row(c, id), 0, c->model->shape.channels * sizeof(float));
}

// Greedy text byte by byte: each must be the likeliest token, as the model says when it reads everything it is to
// remember at once, without a cache. What it remembers: all since the start, or, each time the context is full, the
// newer half of it and on. (Within 1e-4 of the largest logit, for the two orders of summation: logits are sums of 16
// products of size 1 or so, 1e-4 is 100 roundings of each.)
static void expect_greedy(Case *c, const char *prompt, size_t n)
{
    char *text = eval_sample(c->model, (EvalForward){0}, &c->cache, c->tokenizer, prompt, n, greedy,
                             rng_make(1, "sample", 0));
    size_t n_prompt = strlen(prompt), n_ids = 1 + n_prompt, first = 0;
    int32_t ids[1 + PROMPT_MAX + 4 * CONTEXT] = {tokenizer_eot(c->tokenizer)};
    static float logits[CONTEXT * N_TOKENS];
    assert_int_equal(strlen(text), n_prompt + n);
    assert_memory_equal(text, prompt, n_prompt);
    for (size_t i = 0; i < n_prompt; i++) ids[1 + i] = token_of(c, (unsigned char)prompt[i]);
    for (size_t i = 0; i < n; i++) {
        if (n_ids - first > CONTEXT) first = n_ids - (CONTEXT + 1) / 2;
        size_t T = n_ids - first;
        model_set_batch(c->model, ids + first, NULL, ids + first, 1, T);
        model_logits(c->model, logits);
        const float *last = logits + (T - 1) * N_TOKENS;
        float top = last[0];
        for (size_t v = 1; v < N_TOKENS; v++) top = last[v] > top ? last[v] : top;
        int32_t id = token_of(c, (unsigned char)text[n_prompt + i]);
        if (!(last[id] >= top - 1e-4f * fabsf(top)))
            fail_msg("byte %zu of '%s' + %zu: logit %g, largest %g", i, prompt, n, last[id], top);
        ids[n_ids++] = id;
    }
    free(text);
}

static void test_cache_is_the_model(void **state)
{
    Case *c = *state;
    never(c, tokenizer_eot(c->tokenizer));
    never(c, token_of(c, 0)); // would end the string
    expect_greedy(c, "", 10);
    expect_greedy(c, "abc", 12);
}

static void test_beyond_the_context(void **state)
{
    Case *c = *state;
    never(c, tokenizer_eot(c->tokenizer));
    never(c, token_of(c, 0));
    expect_greedy(c, "", 3 * CONTEXT);
    expect_greedy(c, "a prompt of 15 b", CONTEXT);         // with end-of-text: one more than fits
    expect_greedy(c, "a prompt of 15", 2 * CONTEXT);
    expect_greedy(c, "a prompt that is longer than the whole context", 20);
}

static void test_text_is_a_function_of_the_seed(void **state)
{
    Case *c = *state;
    char *text[4];
    const uint64_t seeds[] = {1, 1, 2, 1};
    for (int i = 0; i < 4; i++)
        text[i] = eval_sample(c->model, (EvalForward){0}, &c->cache, c->tokenizer, "ab", 12, (SampleRule){3, 0, 1},
                              rng_make(seeds[i], "sample", i == 3));
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    assert_string_not_equal(text[0], text[3]);
    for (int i = 0; i < 4; i++) free(text[i]);
}

// A head of zeros but for end-of-text, whose logit is +-x for the first channel x of the norm: one of the signs makes
// it the likeliest token, and then nothing follows the prompt.
static void test_end_of_text_ends(void **state)
{
    Case *c = *state;
    bool ended = false, went_on = false;
    for (int32_t id = 0; id < N_TOKENS; id++) never(c, id);
    for (int sign = -1; sign <= 1; sign += 2) {
        head_row(c, tokenizer_eot(c->tokenizer))[0] = (float)sign;
        char *text = eval_sample(c->model, (EvalForward){0}, &c->cache, c->tokenizer, "ab", 1, greedy,
                                 rng_make(1, "sample", 0));
        assert_memory_equal(text, "ab", 2);
        if (strlen(text) == 2) ended = true;
        else went_on = strlen(text) == 3;
        free(text);
    }
    assert_true(ended && went_on);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_are_probabilities),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),
        cmocka_unit_test(test_ends_of_the_interval),
        TEST(test_cache_is_the_model),
        TEST(test_beyond_the_context),
        TEST(test_text_is_a_function_of_the_seed),
        TEST(test_end_of_text_ends),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
