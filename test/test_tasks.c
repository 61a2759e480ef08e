// test_tasks: what becomes of each dataset's fields, which tokens of a choice are scored, that the model's
// log-likelihoods are those of a forward of that choice alone, and figures computed by hand; files that are cut, wrong
// or forged.
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "expect_die.h"
#include "ops/dev_cpu.h"
#include "temp_dir.h"
#include "eval/tasks.h"

// JSON with ' in place of ".
static const char *named_file(const char *name, const char *text)
{
    char *json = strdup(text);
    assert_non_null(json);
    for (char *c = json; (c = strchr(c, '\''));) *c = '"';
    const char *path = put_bytes(name, json, strlen(json));
    free(json);
    return path;
}

static const char *text_file(const char *text)
{
    return named_file("task.jsonl", text);
}

// ---- formats

static void expect(const char *name, const char *text, size_t gold, size_t n, const char *const (*choice)[2])
{
    Tasks *t = tasks_open(formatted("%s%s", name, text_file(text)), (TasksOptions){0});
    assert_int_equal(t->n, 1);
    assert_int_equal(t->item[0].n, n);
    if (n > 1) assert_int_equal(t->item[0].gold, gold);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(t->item[0].choice[i].context, choice[i][0]);
        assert_string_equal(t->item[0].choice[i].ending, choice[i][1]);
    }
    tasks_free(t);
}
#define CHOICES(...) \
    sizeof (const char *const[][2]){__VA_ARGS__} / sizeof(char *[2]), (const char *const[][2]){__VA_ARGS__}

TEST_IN_DIR(test_wording)
{
    expect("", "{'activity_label': 'Baking', 'ctx_a': '[header] How to bake [title] Mix. [step] Use Flour.', 'ctx_b': "
           "'\xC3\xA9lan Cook', 'endings': ['[substeps] rests.', ' bakes it '], 'label': '1'}\n", 1,
           CHOICES({"Baking: How to bake. Mix. Use Flour. \xC3\x89lan cook", "  rests."},
                   {"Baking: How to bake. Mix. Use Flour. \xC3\x89lan cook", " bakes it"}));
    expect("", "{'goal': 'Open it', 'sol1': 'pull', 'sol2': 'push', 'label': 0}", 0,
           CHOICES({"Question: Open it\nAnswer:", " pull"}, {"Question: Open it\nAnswer:", " push"}));
    expect("", "{'sentence': 'Ann met Eve and _ smiled.\xE3\x80\x80', 'option1': 'Ann', 'option2': 'Eve', 'answer': '2'}", 1,
           CHOICES({"Ann met Eve and Ann", " smiled."}, {"Ann met Eve and Eve", " smiled."}));
    expect("", "{'question': 'Hot?', 'choices': {'text': ['ice', 'sun'], 'label': ['1', '2']}, 'answerKey': "
           "'2'}", 1, CHOICES({"Question: Hot?\nAnswer:", " ice"}, {"Question: Hot?\nAnswer:", " sun"}));
    expect("", "{'question_stem': 'The sun is', 'choices': {'text': ['cold', 'hot', 'wet'], 'label': ['A', "
           "'B', 'C']}, 'answerKey': 'B'}", 1,
           CHOICES({"The sun is", " cold"}, {"The sun is", " hot"}, {"The sun is", " wet"}));
    const char *yes = "{'passage': 'P.', 'question': 'is it', 'label': 1}";
    expect("", yes, 1, CHOICES({"P.\nQuestion: is it?\nAnswer:", " no"}, {"P.\nQuestion: is it?\nAnswer:", " yes"}));
    expect("", "{'passage': 'P.', 'question': 'is it', 'answer': false}", 0,
           CHOICES({"P.\nQuestion: is it?\nAnswer:", " no"}, {"P.\nQuestion: is it?\nAnswer:", " yes"}));
    expect("", "{'text': 'one two  three'}", 0, CHOICES({"one two ", " three"}));
    expect("", "{'text': 'word'}", 0, CHOICES({"", " word"}));
    const char *mmlu = "{'question': ' Why? ', 'subject': 'high_school', 'choices': ['x', 'y'], 'answer': 1}";
#define TOPIC(KIND) "The following are " KIND " (with answers) about high school.\n\n"
    expect("", mmlu, 1, CHOICES({TOPIC("multiple choice questions") "Why?\nA. x\nB. y\nAnswer:", " A"},
                                {TOPIC("multiple choice questions") "Why?\nA. x\nB. y\nAnswer:", " B"}));
    expect("mmlu_full=", mmlu, 1, CHOICES({TOPIC("questions") "Question: Why?\nAnswer:", " x"},
                                          {TOPIC("questions") "Question: Why?\nAnswer:", " y"}));
    expect("mmlu=", "{'question': 'Why?', 'choices': ['x', 'y'], 'answer': 'B'}", 1,
           CHOICES({"Why?\nA. x\nB. y\nAnswer:", " A"}, {"Why?\nA. x\nB. y\nAnswer:", " B"}));
    expect("", "{'question': 'Two?', 'choices': {'text': ['x', 'y'], 'label': ['A', 'A']}, 'answerKey': 'A'}", 0,
           CHOICES({"Question: Two?\nAnswer:", " x"}, {"Question: Two?\nAnswer:", " y"}));
}

#define PIQA(GOAL, LABEL) "{'goal': '" GOAL "', 'sol1': 'one', 'sol2': 'two', 'label': " LABEL "}\n"

// A byte order mark, lines that end as in Windows, empty ones, and a last one that does not end change nothing. The
// file's own name does not say how it is read, and of NAME= only the first word does.
TEST_IN_DIR(test_same_items)
{
    static const char *const text[] = {
        PIQA("a", "0") PIQA("b", "1"), "\xEF\xBB\xBF" PIQA("a", "0") PIQA("b", "1"),
        "\n{'goal': 'a', 'sol1': 'one', 'sol2': 'two', 'label': '0'}\r\n \t\r\n"
        "{'label': 'B', 'goal': 'b', 'sol1': 'one', 'sol2': 'two'}"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        char *named = formatted("%s%s", i ? "arcs=" : "", named_file("arc easy.jsonl", text[i]));
        Tasks *t = tasks_open(named, (TasksOptions){0});
        assert_string_equal(t->name, i ? "arcs" : "arc_easy");
        assert_true(t->n == 2 && t->item[0].gold == 0 && t->item[1].gold == 1);
        assert_int_equal(t->item[1].line, i == 2 ? 4 : 2);
        assert_string_equal(t->item[1].choice[1].context, "Question: b\nAnswer:");
        tasks_free(t);
    }
}

// Solved items are the first of their file that are not the question itself, and on its topic.
TEST_IN_DIR(test_shots)
{
    TasksOptions options = {.shots = 2,
                            .from = named_file("shots.jsonl", PIQA("a", "0") PIQA("b", "1") PIQA("c", "0"))};
    Tasks *t = tasks_open(text_file(PIQA("b", "1") PIQA("z", "0")), options);
    assert_string_equal(t->item[0].choice[1].context, "Question: a\nAnswer: one\n\nQuestion: c\nAnswer: one\n\n"
                                                      "Question: b\nAnswer:");
    assert_string_equal(t->item[1].choice[0].context, "Question: a\nAnswer: one\n\nQuestion: b\nAnswer: two\n\n"
                                                      "Question: z\nAnswer:");
    tasks_free(t);
#define MMLU(SUBJECT, QUESTION) \
    "{'question': '" QUESTION "', 'subject': '" SUBJECT "', 'choices': ['x', 'y'], 'answer': 0}\n"
    options = (TasksOptions){.shots = 1, .from = named_file("dev.jsonl", MMLU("law", "L") MMLU("art", "M"))};
    t = tasks_open(text_file(MMLU("art", "Q")), options);
    assert_string_equal(t->item[0].choice[0].context,
                        "The following are multiple choice questions (with answers) about art."
                        "\n\nM\nA. x\nB. y\nAnswer: A\n\nQ\nA. x\nB. y\nAnswer:");
    tasks_free(t);
}

#define REQUEST(ID, IDX, CONTEXT, ENDING, LABEL) "{'request_type': 'loglikelihood', 'doc_id': " ID ", 'idx': " IDX \
    ", 'label': " LABEL ", 'request': {'context': '" CONTEXT "', 'continuation': '" ENDING "'}}\n"
#define REQUESTS REQUEST("0", "0", "Q", " a", "1") REQUEST("0", "1", "Q", " b\u00e9", "1") \
    REQUEST("7", "0", "R", " c", "0") REQUEST("7", "1", "R", " d", "0") \
    REQUEST("1000000", "0", "Answer:", " a", "1") REQUEST("1000000", "1", "Answer:", " b\u00e9", "1") \
    REQUEST("1000007", "0", "Answer:", " c", "0") REQUEST("1000007", "1", "Answer:", " d", "0")

TEST_IN_DIR(test_requests)
{
    Tasks *t = tasks_open(text_file(REQUESTS), (TasksOptions){0});
    assert_true(t->n == 2 && t->item[1].id == 7);
    for (size_t i = 0; i < 2; i++) {
        assert_true(t->item[i].n == 2 && t->item[i].gold == 1 - i);
        assert_string_equal(t->item[i].choice[1].context, i ? "R" : "Q");
        assert_string_equal(t->item[i].plain[1].context, "Answer:");
        assert_string_equal(t->item[i].plain[0].ending, i ? " c" : " a");
    }
    assert_true(t->item[0].choice[1].chars == 2 && t->item[0].choice[1].bytes == 3); // without the space
    tasks_free(t);
    t = tasks_open(text_file(REQUESTS), (TasksOptions){.limit = 1});
    assert_true(t->n == 1 && t->item[0].plain);
    tasks_free(t);
    t = tasks_open(text_file(REQUEST("0", "0", "Q", " a", "['a']") REQUEST("1", "0", "Q", " b", "['b']")),
                   (TasksOptions){0});
    assert_true(t->n == 2 && t->item[1].n == 1);
    tasks_free(t);
}

// llm.c's: a header, then two examples of two endings.
static size_t llmc_file(char *out, uint16_t *token, size_t n)
{
    const int32_t head[4] = {20240522, 1, 2, 26};
    memset(out, 0, 1024);
    memcpy(out, head, sizeof head);
    memcpy(out + 1024, token, 2 * n);
    return 1024 + 2 * n;
}
#define EXAMPLES {65535, 26, 0, 1, 2, 3, 10, 11, 12, 1, 13, 1, 14, 65535, 26, 1, 0, 2, 1, 20, 2, 21, 22, 2, 23, 24}

TEST_IN_DIR(test_llmc)
{
    uint16_t token[] = EXAMPLES;
    char bytes[2000];
    size_t n = llmc_file(bytes, token, sizeof token / 2);
    Tasks *t = tasks_open(put_bytes("hellaswag.bin", bytes, n), (TasksOptions){0});
    assert_string_equal(t->name, "hellaswag");
    assert_true(t->n == 2 && t->item[0].gold == 1);
    const TasksChoice *a = &t->item[0].choice[1], *b = t->item[1].choice;
    assert_true(a->n == 4 && a->scored == 1 && a->token[2] == 12 && a->token[3] == 14);
    assert_true(b[0].n == 3 && b[0].scored == 2 && b[1].token[2] == 24);
    TasksResult r = tasks_result(t);
    assert_true(isnan(r.acc[TASKS_CHARS]) && !isnan(r.acc[TASKS_TOKENS]));
    tasks_free(t);
}

// ---- tokens

enum { V = 300, T = 64, BATCH = 3 };
static const ModelShape shape = {
    .layers = 2, .channels = 16, .heads = 2, .kv_heads = 2, .head_size = 8, .ffn = 24, .vocab = V, .context = T,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};

static Tokenizer *train_tokenizer(void)
{
    static const char text[] =
        "the cook bakes the cake and the baker cooks a steak; the answer is the cake, the question is what the baker "
        "bakes: Question: who bakes? Answer: the cook. Question: what cooks? Answer: the steak.";
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, text, sizeof text - 1);
    return tokenizer_trainer_finish(trainer, V);
}

// first: the token before the text; -1: none.
static void check_tokens(const TasksChoice *c, Tokenizer *tokenizer, int32_t first, const char *before,
                         const char *after)
{
    TokenIds want = {0}, context = {0};
    char *text = formatted("%s%s", before, after);
    if (first >= 0) token_ids_push(&want, first), token_ids_push(&context, first);
    tokenizer_encode(tokenizer, text, strlen(text), &want);
    tokenizer_encode(tokenizer, before, strlen(before), &context);
    assert_int_equal(c->n, want.n);
    assert_memory_equal(c->token, want.id, want.n * sizeof *want.id);
    assert_int_equal(c->scored, want.n - context.n);
    token_ids_free(&want);
    token_ids_free(&context);
}

static int32_t id_of(Tokenizer *tokenizer, const char *letter)
{
    TokenIds ids = {0};
    tokenizer_encode(tokenizer, letter, 1, &ids);
    int32_t id = ids.id[0];
    token_ids_free(&ids);
    return id;
}

// White space that ends the context is the ending's. What begins a document comes first: the tokenizer's own BOS always,
// else end-of-text, which --bare leaves out of all but an empty context.
TEST_IN_DIR(test_border)
{
    Tokenizer *plain = train_tokenizer();
    Vocab vocab = *tokenizer_vocab(plain);
    enum { BOS = 7 };
    const char *text = REQUEST("0", "0", "the cook \\n", "bakes", "0") REQUEST("0", "1", "the", " cake", "0")
        REQUEST("0", "2", "", " cake", "0") REQUEST("0", "3", "  ", "cake", "0")
        REQUEST("0", "4", "the cook\xC2\xA0\xE3\x80\x80", "bakes", "0") REQUEST("0", "5", "the coo", "k", "0");
    for (int kind = 0; kind < 3; kind++) // BOS is end-of-text; there is none; another token
        for (int bare = 0; bare < 2; bare++) {
            Vocab *changed = (Vocab *)tokenizer_vocab(plain); // which it only reads
            changed->has_bos = kind != 1;
            changed->bos = kind == 2 ? BOS : vocab.eot;
            int32_t always = kind == 2 ? BOS : vocab.eot, first = bare && kind < 2 ? -1 : always;
            Tasks *t = tasks_open(text_file(text), (TasksOptions){0});
            tasks_encode(t, plain, V, 50, bare);
            const TasksChoice *c = t->item[0].choice;
            check_tokens(&c[0], plain, first, "the cook", " \nbakes");
            check_tokens(&c[1], plain, first, "the", " cake");
            check_tokens(&c[2], plain, always, "", " cake");
            check_tokens(&c[3], plain, always, "", "  cake");
            check_tokens(&c[4], plain, first, "the cook", "\xC2\xA0\xE3\x80\x80" "bakes"); // U+00A0, U+3000
            assert_true(c[5].scored == 1 && c[5].token[c[5].n - 1] == id_of(plain, "k")); // " cook" is one
            assert_int_equal(t->cut, 0);
            tasks_free(t);
        }
    tokenizer_free(plain);
}

// T tokens are read, and one more is predicted: the first are dropped, then those of the ending too.
TEST_IN_DIR(test_cut)
{
    Tokenizer *tokenizer = train_tokenizer();
    const char *text = REQUEST("0", "0", "the baker bakes a cake and", " the cook", "0")
        REQUEST("0", "1", "a", " steak", "0");
    Tasks *whole = tasks_open(text_file(text), (TasksOptions){0});
    tasks_encode(whole, tokenizer, V, 50, false);
    const TasksChoice *all = &whole->item[0].choice[0];
    for (size_t most = 1; most <= all->n; most++) {
        Tasks *t = tasks_open(text_file(text), (TasksOptions){0});
        tasks_encode(t, tokenizer, V, most, false);
        const TasksChoice *c = &t->item[0].choice[0];
        size_t n = all->n < most + 1 ? all->n : most + 1;
        assert_int_equal(c->n, n);
        assert_memory_equal(c->token, all->token + all->n - n, n * sizeof *c->token);
        assert_int_equal(c->scored, all->scored < n - 1 ? all->scored : n - 1);
        assert_int_equal(t->cut, (all->n > most + 1) + (whole->item[0].choice[1].n > most + 1));
        tasks_free(t);
    }
    tasks_free(whole);
    tokenizer_free(tokenizer);
}

// ---- the model

typedef struct {
    double loglik[4][18];
} Case;

typedef struct {
    Mem mem;
    Dev *dev;
    Model *model;
    Tokenizer *tokenizer;
} Played;

static void begin_play(Played *p)
{
    *p = (Played){.dev = dev_cpu_create(1), .tokenizer = train_tokenizer()};
    Model *m = p->model = model_create(&shape, p->dev, &p->mem, BATCH, T, 1, false);
    for (size_t i = 0; i < m->params.n_elems; i++) m->weights[i] = (float)(0.5 * rng_normal(rng_make(2, "w", 0), i));
}

static void end_play(Played *p)
{
    tokenizer_free(p->tokenizer);
    end_model(p->model, &p->mem, p->dev);
}

static Tasks *open_encoded(const Played *p, const char *path)
{
    Tasks *t = tasks_open(path, (TasksOptions){0});
    tasks_encode(t, p->tokenizer, V, T, false);
    return t;
}

// -ln p of the scored tokens, from one forward of this choice alone, without padding.
static double alone(Model *m, const TasksChoice *c)
{
    int32_t target[T];
    for (size_t i = 0; i + 1 < c->n; i++) target[i] = i + 1 + c->scored >= c->n ? c->token[i + 1] : -1;
    model_set_batch(m, c->token, NULL, target, 1, c->n - 1);
    return -model_evaluate(m);
}

#define ENDINGS(ID, PRE) REQUEST(ID, "0", PRE "the cook and the baker", " bakes a cake and a steak; the answer", "0") \
    REQUEST(ID, "1", PRE "what cooks", " a", "0") REQUEST(ID, "2", "who", " " PRE "bakes", "0")
static const char *const mixed = ENDINGS("0", "") ENDINGS("1", "Question: ") ENDINGS("2", "Answer: the cake.")
    ENDINGS("3", "question: what the baker bakes? ") ENDINGS("4", "x") ENDINGS("5", "the answer is the cake, yes: ");

TEST_IN_DIR(test_loglik)
{
    Played p;
    begin_play(&p);
    Tasks *t = open_encoded(&p, text_file(mixed));
    tasks_run(t, p.model, NULL, (SampleForward){0}, NULL);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->item[i].n; k++) {
            const TasksChoice *c = &t->item[i].choice[k];
            double want = alone(p.model, c); // other shapes of matmuls: other orders of sums
            if (!(fabs(c->loglik - want) <= 1e-4 * fabs(want))) fail_msg("%zu %zu: %g, not %g", i, k, c->loglik, want);
            assert_true(want < -1);
        }
    tasks_free(t);
    end_play(&p);
}

// Endings of tokens that the model likes best are greedy; another last, or first, token is not.
TEST_IN_DIR(test_greedy)
{
    Played p;
    begin_play(&p);
    Model *m = p.model;
    KvCache cache = model_cache_create(m);
    float logits[V];
    int32_t token[12] = {V - 1, 5, 77, 130, 9};
    for (size_t i = 0; i < 4; i++) { // the likeliest after the first 5
        cache.length = 0;
        model_next_logits(m, &cache, token, 5 + i, logits);
        for (size_t v = 0; v < V; v++)
            if (logits[v] > logits[token[5 + i]]) token[5 + i] = (int32_t)v;
    }
    Tasks t = {.name = (char *)"greedy", .n = 3};
    TasksItem item[3] = {0};
    TasksChoice choice[3] = {0};
    int32_t own[3][9];
    t.item = item;
    for (int k = 0; k < 3; k++) {
        memcpy(own[k], token, sizeof own[k]);
        if (k) own[k][k == 1 ? 8 : 5] = (own[k][k == 1 ? 8 : 5] + 3) % V;
        choice[k] = (TasksChoice){.token = own[k], .n = 9, .scored = 4, .context = (char *)""};
        item[k] = (TasksItem){.choice = &choice[k], .n = 1};
    }
    tasks_run(&t, m, NULL, (SampleForward){0}, &cache);
    assert_true(choice[0].greedy && !choice[1].greedy && !choice[2].greedy);
    TasksResult r = tasks_result(&t);
    assert_true(r.cloze && fabs(r.acc[TASKS_SUM] - 1.0 / 3) < 1e-15 && r.chance == 0 && isnan(r.acc[TASKS_TOKENS]));
    double mean = (choice[0].loglik + choice[1].loglik + choice[2].loglik) / 3;
    assert_true(fabs(r.perplexity / exp(-mean) - 1) < 1e-12);
    double squares = 0;
    for (int k = 0; k < 3; k++) squares += (choice[k].loglik - mean) * (choice[k].loglik - mean);
    assert_true(fabs(r.perplexity_error / (r.perplexity * sqrt(squares / 2 / 3)) - 1) < 1e-12);
    for (size_t i = 0; i < m->params.n_elems; i++) m->weights[i] = NAN;
    tasks_run(&t, m, NULL, (SampleForward){0}, &cache);
    assert_false(choice[0].greedy);
    end_play(&p);
}

static void one_rank(Comm *ranks, void *arg)
{
    Case *c = arg;
    Played p;
    begin_play(&p);
    KvCache cache = model_cache_create(p.model);
    comm_set_ordered(ranks, true);
    EvalRanks share = {.all = ranks, .replica = ranks->rank, .replicas = ranks->size, .counts = true};
    Tasks *t = open_encoded(&p, in_dir("task.jsonl"));
    tasks_run(t, p.model, &share, (SampleForward){0}, &cache);
    for (size_t i = 0; i < t->n; i++)
        for (size_t k = 0; k < t->item[i].n; k++)
            c->loglik[ranks->rank][i * t->item[0].n + k] = t->item[i].choice[k].loglik;
    tasks_free(t);
    end_play(&p);
}

// The same bits on each rank, and for each number of ranks.
TEST_IN_DIR(test_ranks)
{
    static Case one, several;
    text_file(mixed);
    comm_threads_run(1, one_rank, &one);
    for (int N = 2; N <= 4; N++) {
        comm_threads_run(N, one_rank, &several);
        for (int r = 0; r < N; r++) assert_memory_equal(several.loglik[r], one.loglik[0], 18 * sizeof(double));
    }
    assert_true(one.loglik[0][17] < 0);
}

// ---- figures

// By hand. Item 0: sums -6 -8 -6, 2 3 4 characters, 2 6 4 bytes, 1 4 2 tokens; after "Answer:" -2 -9 -1. Item 1: sums
// -4 -3.
TEST_IN_DIR(test_figures)
{
    TasksChoice a[] = {{.context = (char *)"", .loglik = -6, .chars = 2, .bytes = 2, .scored = 1},
                       {.loglik = -8, .chars = 3, .bytes = 8, .scored = 8},
                       {.loglik = -6, .chars = 4, .bytes = 4, .scored = 2}};
    TasksChoice a_plain[] = {{.loglik = -2}, {.loglik = -9}, {.loglik = -1}};
    TasksChoice b[] = {{.loglik = -4, .chars = 9, .bytes = 9, .scored = 4},
                       {.loglik = -3, .chars = 1, .bytes = 1, .scored = 1}};
    TasksChoice b_plain[] = {{.loglik = -4}, {.loglik = -2}};
    TasksItem item[] = {{.choice = a, .plain = a_plain, .n = 3, .gold = 0},
                        {.choice = b, .plain = b_plain, .n = 2, .gold = 0}};
    Tasks t = {.item = item, .n = 2};
    TasksResult r;
    // For each answer to item 0: by sums (the first of two equal ones), -3 -2.67 -1.5 of characters, -3 -1 -1.5 of
    // bytes, -6 -1 -3 of tokens, and -4 1 -5 less the plain ones; of item 1 -0.44 -3, -0.44 -3, -1 -3 and 0 -1.
    const double acc[3][TASKS_RULES] = {{0.5, 0.5, 0.5, 0.5, 0.5}, {0, 0.5, 1, 1, 1}, {0, 1, 0.5, 0.5, 0.5}};
    for (size_t gold = 0; gold < 3; gold++) {
        item[0].gold = gold;
        r = tasks_result(&t);
        assert_memory_equal(r.acc, acc[gold], sizeof r.acc);
    }
    assert_true(fabs(r.chance - 5.0 / 12) < 1e-15);
    item[0].gold = 1;
    r = tasks_result(&t);
    assert_true(fabs(r.centred + 5.0 / 7) < 1e-15);
    item[0].gold = 0;
    r = tasks_result(&t);
    assert_true(fabs(tasks_stderr(&r, TASKS_SUM) - 0.5) < 1e-15); // sqrt(0.25 / 1)
    assert_true(fabs(r.centred - 1.0 / 7) < 1e-15);               // (1/2 - 5/12) / (7/12)
    a[2].chars = 0, b[1].bytes = 0; // an empty ending is the worst
    item[0].gold = item[1].gold = 1;
    r = tasks_result(&t);
    assert_true(r.acc[TASKS_CHARS] == 0.5 && r.acc[TASKS_BYTES] == 0.5);
    item[0].gold = 0;
    b[1].loglik = NAN;
    item[1].plain = NULL;
    item[1].gold = 0;
    r = tasks_result(&t);
    assert_true(r.acc[TASKS_TOKENS] == 0 && isnan(r.acc[TASKS_UNCONDITIONAL]));
}

// By hand: of subject b 2 of 3 are right, of c 0 of 2. Micro 2/5, macro (2/3 + 0) / 2, its error that of b / 2.
TEST_IN_DIR(test_subjects)
{
    TasksChoice right[] = {{.loglik = -1, .scored = 1}, {.loglik = -2, .scored = 1}};
    TasksChoice wrong[] = {{.loglik = -2, .scored = 1}, {.loglik = -1, .scored = 1}};
    char b[] = "b", c[] = "c", again[] = "b";
    TasksItem item[] = {{.choice = right, .n = 2, .subject = b}, {.choice = wrong, .n = 2, .subject = c},
                        {.choice = wrong, .n = 2, .subject = b}, {.choice = right, .n = 2, .subject = again},
                        {.choice = wrong, .n = 2, .subject = c}};
    Tasks t = {.item = item, .n = 5};
    TasksSubject *list;
    double error;
    assert_int_equal(tasks_subjects(&t, &list), 2);
    assert_true(!strcmp(list[0].name, "b") && !strcmp(list[1].name, "c") && list[0].result.items == 3);
    assert_true(fabs(list[0].result.acc[TASKS_SUM] - 2.0 / 3) < 1e-15 && list[1].result.acc[TASKS_SUM] == 0);
    assert_true(fabs(tasks_result(&t).acc[TASKS_SUM] - 0.4) < 1e-15);
    assert_true(fabs(tasks_macro(list, 2, TASKS_SUM, &error) - 1.0 / 3) < 1e-15);
    assert_true(fabs(error - sqrt(2.0 / 9 / 2) / 2) < 1e-15);
    free(list);
    item[4].subject = NULL;
    assert_int_equal(tasks_subjects(&t, &list), 0);
    free(list);
}

// ---- what is refused

static int open_file(void *arg)
{
    Tokenizer *tokenizer = train_tokenizer();
    Tasks *t = tasks_open(arg, (TasksOptions){0});
    tasks_encode(t, tokenizer, V, 8, false);
    return 0;
}

static int open_with_shots(void *arg)
{
    tasks_open(arg, (TasksOptions){.shots = 3, .from = arg});
    return 0;
}

static int open_without_shots(void *arg)
{
    tasks_open(arg, (TasksOptions){.from = arg});
    return 0;
}

// 1,000 endings are the most, and brackets within brackets end somewhere.
TEST_IN_DIR(test_too_much)
{
    enum { DEEP = 100000 };
    static char text[4 * DEEP];
    memset(text, '[', DEEP);
    text[0] = ' ';
    expect_die(open_file, (void *)put_bytes("task.jsonl", text, DEEP), "task.jsonl:1: not JSON: maximum parsing depth");
    for (int n = 1000; n <= 1001; n++) {
        char *to = stpcpy(text, "{'ctx_a': 'a', 'ctx_b': 'b', 'activity_label': 'c', 'label': 0, 'endings': ['x'");
        for (int i = 1; i < n; i++) to = stpcpy(to, ", 'x'");
        strcpy(to, "]}");
        if (n > 1000) expect_die(open_file, (void *)text_file(text), "task.jsonl:1: more than 1000 endings");
        else tasks_free(tasks_open(text_file(text), (TasksOptions){0}));
    }
    memset(text, ' ', sizeof text - 1);
    memcpy(text, PIQA("a", "0"), strlen(PIQA("a", "0")));
    tasks_free(tasks_open(text_file(text), (TasksOptions){0}));
}

TEST_IN_DIR(test_wrong_lines)
{
    static const char *const bad[][2] = {
        {"", "no items"}, {"{'goal': 'a', 'sol1':", "task.jsonl:1: not JSON"},
        {PIQA("a", "0") "{'goal'\n", "task.jsonl:2: not JSON"}, {" [1]\n", "not a JSON object"},
        {"[1]\n", "task.jsonl: is a JSON array (make lines"}, {"PAR1", "is Parquet (duckdb"}, {"PK\3\4", "is a zip (try"},
        {"\x1f\x8b", "is compressed (try gunzip)"}, {"version https://git-lfs", "is a pointer of Git LFS"},
        {"goal,sol1,sol2\n", "task.jsonl:1: not JSON"},
        {"{'a': 1}", "no known task"}, {PIQA("a", "0") "{'goal': 'b', 'sol1': 'c'}", "task.jsonl:2"},
        {"{'goal': 1, 'sol1': 'c', 'sol2': 'd', 'label': 0}", "no text 'goal'"},
        {PIQA("a", "2"), "number 3 of 2"}, {PIQA("a", "-1"), "not the number of an answer"},
        {PIQA("a", "1.5"), "not the number of an answer"},
        {PIQA("\xff", "0"), "not JSON"},
        {"{'goal': 'a', 'sol1': 'c', 'sol2': 'd'}", "no 'label'"},
        {"{'ctx_a': 'a', 'ctx_b': 'b', 'activity_label': 'c', 'endings': [], 'label': 0}", "0 choices"},
        {"{'ctx_a': 'a', 'ctx_b': 'b', 'activity_label': 'c', 'endings': [1, 2], 'label': 0}", "endings"},
        {"{'sentence': 'no gap', 'option1': 'a', 'option2': 'b', 'answer': '1'}", "no _"},
        {"{'question': 'q', 'choices': {'text': ['a'], 'label': ['A', 'B']}, 'answerKey': 'A'}", "1 texts"},
        {"{'question': 'q', 'choices': {'text': ['a', 'b'], 'label': ['A', 'B']}, 'answerKey': 'C'}", "no label"},
        {PIQA("a", "0") "{'question': 'q', 'choices': ['a'], 'answer': 0}", "no text"},
        {"{'question': 'q', 'choices': ['a'], 'answer': 0}", "1 choices"},
        {REQUEST("0", "1", "Q", " a", "0"), "idx 1 after 0"},
        {REQUEST("-1", "0", "Q", " a", "0"), "not numbers in range"},
        {REQUEST("0", "0", "Q", " a", "5") REQUEST("0", "1", "Q", " a", "5"), "number 6 of 2"},
        {REQUEST("0", "0", "Q", " a", "0") REQUEST("0", "1", "Q", " b", "0") REQUEST("1", "0", "Q", " a", "0"),
         "1 choices"},
        {REQUEST("1000000", "0", "Q", " a", "0"), "there is no item 0"},
        {REQUESTS REQUEST("1000000", "0", "Answer:", " a", "1"), "not the next ending"},
        {REQUEST("0", "0", "Q", " a", "0") REQUEST("0", "1", "Q", " b", "0") REQUEST("1000000", "0", "A", " a", "0"),
         "ends after 1 of 2"},
        {REQUEST("0", "0", "Q", " a", "0") REQUEST("0", "1", "Q", "", "0"), "no token of its own"},
        {"{'request_type': 'generate_until', 'doc_id': 0, 'idx': 0}", "generate_until"}, {"\x1f\x8b\x08", "compressed"},
        {REQUEST("0", "0", "Q", " a", "'1'") REQUEST("0", "1", "Q", " b", "'1'"), "task.jsonl:1: label"},
        {PIQA("a", "0") REQUEST("0", "0", "Q", " a", "0"), "task.jsonl:2: no text"},
        {REQUEST("0", "0", "Q", " a", "0") REQUEST("0", "1", "Q", " b", "1"), "task.jsonl:2: doc_id 0: another label"},
        {REQUEST("0", "0", "Q", " a", "0") "\n" REQUEST("0", "1", "Q", "", "0"), "task.jsonl:1: choice 2"},
        {"{'sentence': 'a _', 'option1': 'a', 'option2': 'b', 'answer': true}", "not the number of an answer"},
        {"{'goal': 'a', 'goal': 'b', 'sol1': 'c', 'sol2': 'd', 'label': 0}", "task.jsonl:1: not JSON: duplicate"},
        {PIQA("a\\u0000", "0"), "task.jsonl:1: not JSON"}, {PIQA("a", "1e999"), "task.jsonl:1: not JSON"},
        {PIQA("a", "9223372036854775807"), "of 2 choices"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_die(open_file, (void *)text_file(bad[i][0]), bad[i][1]);
    expect_die(open_file, (void *)"nonesuch.jsonl", "nonesuch");
    expect_die(open_with_shots, (void *)text_file(PIQA("a", "0") PIQA("b", "0")), "too few");
    expect_die(open_without_shots, (void *)text_file(PIQA("a", "0")), "--shots 5");
    expect_die(open_with_shots, (void *)text_file(REQUESTS), "--shots");
}

TEST_IN_DIR(test_wrong_tokens)
{
    static const struct {
        size_t at, value;
        const char *words;
    } bad[] = {{0, 1, "does not begin"}, {2, 5, "does not begin"}, {3, 2, "fewer than 2"}, {4, 1, "fewer than 2"},
               {4, 1001, "more than 1000"}, {4, 1000, "is empty or cut"}, {5, 60000, "is cut"}, {9, 0, "is empty"},
               {9, 60000, "cut"}, {1, 24, "26 bytes"}, {6, 300, "token 300"}};
    char bytes[2000];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint16_t token[] = EXAMPLES;
        token[bad[i].at] = (uint16_t)bad[i].value;
        size_t n = llmc_file(bytes, token, sizeof token / 2);
        expect_die(open_file, (void *)put_bytes("x.bin", bytes, n), bad[i].words);
    }
    uint16_t token[] = EXAMPLES;
    size_t n = llmc_file(bytes, token, sizeof token / 2);
    for (size_t less = 1; less < n; less += 7)
        expect_die(open_file, (void *)put_bytes("x.bin", bytes, n - less), "x.bin");
    bytes[n] = 1;
    expect_die(open_file, (void *)put_bytes("x.bin", bytes, n + 1), "1 bytes after");
    memcpy(bytes + 8, (int32_t[]){INT32_MAX}, 4);
    expect_die(open_file, (void *)put_bytes("x.bin", bytes, n), "example 2: the file is cut");
    memcpy(bytes + 8, (int32_t[]){-1}, 4);
    expect_die(open_file, (void *)put_bytes("x.bin", bytes, n), "after its 0 examples");
    memcpy(bytes + 4, (int32_t[]){2}, 4);
    expect_die(open_file, (void *)put_bytes("x.bin", bytes, n), "version 2");
}

TESTS(NULL, NULL)
