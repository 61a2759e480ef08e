// test_eval: that every target of the validation set is scored exactly once, with the context that eval.h promises, and
// that nats per token and bits per byte are what their names say.
//
// Two models are used. The logits of the first are the same whatever it reads, so its loss of a target depends only on
// the target, and the total shows which targets were scored. The second is an ordinary one, whose loss depends on where
// each window began.
#include "test/test.h"

#include "dev/check/comm_threads.h"
#include "eval/eval.h"
#include "expect_die.h"
#include "base/rng.h"
#include "temp_dir.h"

enum { V = 37, CONTEXT = 12, TOKENS = 60, BATCH = 3 };

static const ModelShape shape = {
    .layers = 1, .channels = 8, .heads = 2, .kv_heads = 2, .head_size = 4, .ffn = 8, .vocab = V, .context = CONTEXT,
    .norm = NORM_LAYERNORM, .norm_eps = 1e-5f, .bias = true};

typedef struct {
    Mem mem;
    Dev *dev;
    Model *model;
    Dataset *val;
    int32_t token[TOKENS];
    int64_t n; // tokens in val
} Case;
static Case *c; // of the test that runs

static void open_tokens(int64_t n)
{
    dataset_close(c->val);
    DatasetWriter *writer = dataset_writer_open(in_dir("val.bin"), V, DATASET_AUTO);
    dataset_writer_append(writer, c->token, (size_t)n);
    dataset_writer_finish(writer);
    c->val = dataset_open(in_dir("val.bin"), V);
    c->n = n;
}

static float *row_of(const char *name)
{
    int row = params_find(&c->model->params, name);
    assert_true(row >= 0);
    return c->model->weights + c->model->params.row[row].offset;
}

static int setup(void **state)
{
    if (temp_dir_make(state)) return -1;
    c = zeroed(sizeof *c);
    c->dev = dev_cpu_create(1);
    c->model = model_create(&shape, c->dev, &c->mem, BATCH, CONTEXT, 1, false);
    for (size_t i = 0; i < c->model->params.n_elems; i++) // far from the start, where all predictions are alike
        c->model->weights[i] = (float)(0.7 * rng_normal(rng_make(2, "weights", 0), i));
    for (int i = 0; i < TOKENS; i++) c->token[i] = (int32_t)rng_below(rng_make(3, "tokens", 0), (uint64_t)i, V);
    open_tokens(TOKENS);
    return 0;
}

static int teardown(void **state)
{
    dataset_close(c->val);
    end_model(c->model, &c->mem, c->dev);
    free(c);
    return temp_dir_remove(state);
}

// Makes the final norm give (1, 0, ...) always: logit v is the first number of row v of the head. cost: what a token
// costs under these logits, -log softmax.
static void ignore_context(double cost[V])
{
    float *weight = row_of("final_norm.weight"), *bias = row_of("final_norm.bias"), *head = row_of("head.weight");
    double sum = 0;
    for (size_t i = 0; i < shape.channels; i++) weight[i] = 0, bias[i] = i == 0;
    for (size_t v = 0; v < V; v++) {
        assert_true(fabs(head[v * shape.channels]) < 3);
        sum += exp(head[v * shape.channels]);
    }
    for (size_t v = 0; v < V; v++) cost[v] = log(sum) - head[v * shape.channels];
}

// The logits are exact. In units of u: V + 2 for the sum of exps; 2 (3 + 3) + 8 for the worst of them; 8 |log sum| with
// log sum < 3 + log V < 7; 3 (3 + 3) for the two subtractions; and the last rounding of a loss below 10.
#define COST_ERR ((V + 2 + 20 + 56 + 18 + 10) * 0x1p-24)

TEST_WITH(test_every_target_once, setup, teardown)
{
    double cost[V];
    ignore_context(cost);
    const int64_t lengths[] = {2, 3, 12, 13, 14, 24, 25, 26, 37, 60};
    const int64_t strides[] = {0, 1, 5, 11, 12, 100}, limits[] = {0, 1, 12, 13, 30, 1000};
    for (size_t i = 0; i < 10 * 6 * 6 * BATCH; i++) {
        int64_t length = lengths[i / (36 * BATCH)], stride = strides[i / 6 % 6], limit = limits[i % 6], n = length - 1;
        size_t B = 1 + i / 36 % BATCH;
        if (c->n != length) open_tokens(length);
        if (limit && limit < n) n = limit;
        double want = 0;
        for (int64_t t = 1; t <= n; t++) want += cost[c->token[t]] / (double)n;
        EvalResult r = eval_run(c->model, c->val, limit, stride, 1, B, CONTEXT, NULL, -1, NULL);
        assert_true(r.tokens == n && r.bpb == 0);
        if (!(fabs(r.loss - want) <= COST_ERR))
            fail_msg("%ld tokens, first %ld, stride %ld, B %zu: %.9g, not %.9g", (long)length, (long)limit,
                     (long)stride, B, r.loss, want);
    }
}

// By hand from the losses of the targets: of equal windows the standard deviation of their means over sqrt(N), and with
// a shorter last one that of a ratio. If each loss is wrong by e, a window's distance from the mean is by 2 CONTEXT e
// at most, and the standard error by sqrt(4 4/3) 2 CONTEXT e / n: less than 2 e of more than 3 CONTEXT targets.
TEST_WITH(test_standard_error, setup, teardown)
{
    double cost[V];
    ignore_context(cost);
    open_tokens(TOKENS);
    assert_true(isnan(eval_run(c->model, c->val, CONTEXT, 0, 1, 2, CONTEXT, NULL, -1, NULL).error));
    for (int64_t n = 4 * CONTEXT; n > 3 * CONTEXT; n -= 5) {
        double sum[4] = {0}, all = 0, squares = 0;
        for (int64_t t = 1; t <= n; t++) sum[(t - 1) / CONTEXT] += cost[c->token[t]], all += cost[c->token[t]];
        for (int k = 0; k < 4; k++) {
            int64_t size = k < 3 ? CONTEXT : n - 3 * CONTEXT;
            squares += pow(sum[k] - all / (double)n * (double)size, 2);
        }
        double want = n == 4 * CONTEXT ? sqrt(squares / CONTEXT / CONTEXT / 3 / 4) : sqrt(squares * 4 / 3) / (double)n;
        EvalResult r = eval_run(c->model, c->val, n, 0, 1, 2, CONTEXT, NULL, -1, NULL);
        if (!(fabs(r.error - want) <= 2 * COST_ERR && want > 0.05)) fail_msg("%ld: %g, not %g", (long)n, r.error, want);
    }
}

// The loss of target j of n when the window that scores it starts where eval.h says: the first T targets at 0; then
// windows end every `stride` targets, and start T before their end.
static double loss_in_context(int64_t j, int64_t n, int64_t stride)
{
    int64_t end = j <= CONTEXT ? CONTEXT : CONTEXT + (j - CONTEXT + stride - 1) / stride * stride;
    if (end > n) end = n;
    int64_t start = end - CONTEXT;
    int32_t target[CONTEXT];
    for (int t = 0; t < CONTEXT; t++) target[t] = start + 1 + t == j ? c->token[j] : -1;
    model_set_batch(c->model, c->token + start, NULL, target, 1, CONTEXT);
    return model_evaluate(c->model);
}

// One window at a time the model does the very same arithmetic, so only the order of the sum in double is left.
TEST_WITH(test_context_is_what_was_promised, setup, teardown)
{
    double least = INFINITY, most = 0;
    for (int64_t stride = 1; stride <= CONTEXT; stride++) {
        const int64_t n = TOKENS - 1 - stride % 3;
        double want = 0;
        for (int64_t j = 1; j <= n; j++) want += loss_in_context(j, n, stride) / (double)n;
        double got = eval_run(c->model, c->val, n, stride, 1, 1, CONTEXT, NULL, -1, NULL).loss;
        if (!(fabs(got - want) <= 1e-12 * want)) fail_msg("stride %ld: %.15g, not %.15g", (long)stride, got, want);
        least = fmin(least, got);
        most = fmax(most, got);
    }
    assert_true(most > least * 1.001); // the windows do matter to this model
}

// Of three windows the first and the third: what all have without what the second adds to the first.
TEST_WITH(test_every_second_window, setup, teardown)
{
    int32_t bytes[V];
    for (int v = 0; v < V; v++) bytes[v] = 1 + v % 5;
    double sum[3], n_bytes[3];
    for (int k = 0; k < 3; k++) {
        EvalResult r = eval_run(c->model, c->val, CONTEXT + 5 * k, 5, 1, 1, CONTEXT, bytes, -1, NULL);
        sum[k] = r.loss * (double)r.tokens, n_bytes[k] = sum[k] / log(2) / r.bpb;
    }
    EvalResult r = eval_run(c->model, c->val, CONTEXT + 10, 5, 2, 1, CONTEXT, bytes, -1, NULL);
    double want = sum[2] - sum[1] + sum[0], want_bytes = n_bytes[2] - n_bytes[1] + n_bytes[0];
    assert_int_equal(r.tokens, CONTEXT + 5);
    assert_true(fabs(r.loss * (double)r.tokens - want) <= 1e-12 * want);
    assert_true(fabs(r.bpb - want / log(2) / want_bytes) <= 1e-12 * r.bpb);
}

TEST_WITH(test_bits_per_byte, setup, teardown)
{
    int32_t bytes[V];
    for (int v = 0; v < V; v++) bytes[v] = v % 5; // some stand for no text at all, as end-of-text does
    const int64_t limits[] = {0, 1, 20};
    for (int i = 0; i < 3; i++) {
        EvalResult r = eval_run(c->model, c->val, limits[i], 5, 1, 2, CONTEXT, bytes, -1, NULL);
        double n_bytes = 0; // of the targets: the first token is not one
        for (int64_t t = 1; t <= r.tokens; t++) n_bytes += bytes[c->token[t]];
        double want = n_bytes > 0 ? r.loss * (double)r.tokens / n_bytes / log(2) : 0;
        assert_true(fabs(r.bpb - want) <= 1e-12 * want);
    }
    memset(bytes, 0, sizeof bytes);
    assert_true(eval_run(c->model, c->val, 0, 0, 1, 1, CONTEXT, bytes, -1, NULL).bpb == 0); // no text: not known
}

// ---- ranks

typedef struct {
    size_t B;
    int64_t stride, n;
    double loss[4];
    int forwards[4]; // times that the model ran, by rank
} Shared;

static void count_head(void *self, int unit, UnitPass pass)
{
    if (unit == (int)shape.layers + 1 && pass == PASS_FORWARD) (*(int *)self)++;
}

static void one_rank(Comm *ranks, void *arg)
{
    Shared *s = arg;
    Mem mem = {0};
    Dev *dev = dev_cpu_create(1);
    Model *model = model_create(&shape, dev, &mem, BATCH, CONTEXT, 1, false);
    memcpy(model->weights, c->model->weights, model->params.n_elems * sizeof(float));
    model->hooks = (UnitHooks){.self = &s->forwards[ranks->rank], .before = count_head};
    comm_set_ordered(ranks, true);
    EvalRanks share = {.all = ranks, .replica = ranks->rank, .replicas = ranks->size, .counts = true};
    s->loss[ranks->rank] = eval_run(model, c->val, s->n, s->stride, 1, s->B, CONTEXT, NULL, -1, &share).loss;
    end_model(model, &mem, dev);
}

// One loss, the same bits on each rank and for each number of ranks; all ranks run the model equally often, those
// that have no window left too. Together they do no more batches than it takes, rounded up to whole rounds.
TEST_WITH(test_ranks_share_the_work, setup, teardown)
{
    Shared s = {0};
    const int64_t strides[] = {12, 5, 2}, limits[] = {1, 13, 40, 0};
    for (int i = 0; i < 3 * 4 * BATCH; i++) {
        s.stride = strides[i % 3], s.n = limits[i / 3 % 4], s.B = (size_t)(1 + i / 12);
        Dataset *val = c->val;
        double alone = eval_run(c->model, val, s.n, s.stride, 1, s.B, CONTEXT, NULL, -1, NULL).loss;
        assert_true(isfinite(alone));
        int64_t n = s.n ? s.n : TOKENS - 1, T = n < CONTEXT ? n : CONTEXT, stride = s.stride < T ? s.stride : T;
        int windows = (int)(1 + (n - T + stride - 1) / stride);
        for (int N = 1; N <= 4; N++) {
            memset(s.forwards, 0, sizeof s.forwards);
            comm_threads_run(N, one_rank, &s);
            int round = N * (int)s.B, rounds = (windows + round - 1) / round;
            for (int r = 0; r < N; r++) {
                assert_memory_equal(&s.loss[r], &alone, sizeof alone);
                assert_int_equal(s.forwards[r], rounds);
            }
        }
    }
}

// NaN in the weights must come out as NaN, not as a good loss.
TEST_WITH(test_nan_is_nan, setup, teardown)
{
    row_of("final_norm.bias")[3] = NAN;
    assert_true(isnan(eval_run(c->model, c->val, 0, 0, 1, 2, CONTEXT, NULL, -1, NULL).loss));
}

TEST_WITH(test_one_token_is_too_few, setup, teardown)
{
    open_tokens(1);
    expect_dies("1 tokens", eval_run(c->model, c->val, 0, 0, 1, 1, CONTEXT, NULL, -1, NULL));
}

TESTS(NULL, NULL)
