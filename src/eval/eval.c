// eval: the validation loss. See eval.h.
//
// A stream of n + 1 tokens has n targets. Window k ends at target e_k = min(T + k stride, n), starts T tokens before
// it, and scores the targets after e_{k-1}; the others are masked. With stride = T this is plain chunking, where the
// first tokens of a window are guessed with hardly any context; a smaller stride costs T / stride times the work and
// scores every token with context, as a reader would have it (the sliding window of Transformers' perplexity page).
//
// The invariant: the scored targets of all windows are disjoint and cover 1..n, so the result is a mean over tokens,
// and bits per byte can be compared between tokenizers: bits per byte = nats per token / ln 2 x tokens / bytes.
//
// Ranks take turns batch by batch (rank r: batches r, r + N, ...), so that a batch is the same on any number of
// ranks, down to the shapes of its matmuls. Each window's sum goes to its own place of an array that is zero elsewhere;
// adding these arrays over the ranks is exact, and then windows are added in their order. Where batches do not divide
// by the ranks, the last ones run an empty one: with sharded weights (zero.h) each forward is a collective call.
#include "eval/eval.h"

#include "base/check.h"
#include "base/stop.h"
#include "text/packing.h"

#include <math.h>
#include <stdlib.h>

size_t eval_row_tokens(const Model *model, size_t n, size_t T)
{
    enum { GRAIN = 16 }; // deterministic mode adds in 16 blocks (cp.h)
    size_t share = 2 * model_sharers(model) * model->acts.sharers, unit = GRAIN;
    while (unit % share) unit += GRAIN;
    n = (n + unit - 1) / unit * unit;
    return n < T ? n : T;
}

// Fills one window ending at target `end` with those up to `scored` masked. A set that is shorter than a window has
// nothing behind its end.
static void fill_window(const Dataset *val, int64_t scored, int64_t end, size_t T, int32_t *token, int32_t *target)
{
    int64_t start = end > (int64_t)T ? end - (int64_t)T : 0, n = end - start;
    dataset_span(val, start, n, token);
    dataset_span(val, start + 1, n, target);
    dataset_counted(val, start + 1, n, target);
    for (int64_t t = 0; t < scored - start; t++) target[t] = -1;
    for (int64_t t = n; t < (int64_t)T; t++) token[t] = 0, target[t] = -1;
}

// Everything about one evaluation.
typedef struct {
    const Dataset *val;
    int64_t n, stride; // targets; from one window to the next
    size_t B, T, n_windows, every; // windows 0, every, 2 every, ... are scored, n_windows of them
    int32_t eot;
    int32_t *token, *target, *pos, *first; // (B * T); the last two NULL without documents
} Eval;

// The targets of windows before k.
static int64_t before(const Eval *e, size_t k)
{
    int64_t n = k ? (int64_t)e->T + ((int64_t)k - 1) * e->stride : 0;
    return n < e->n ? n : e->n;
}

// The tokens that are the targets of scored window k: *n from the returned one on.
static int64_t targets_of(const Eval *e, size_t k, int64_t *n)
{
    int64_t begin = before(e, k * e->every);
    *n = before(e, k * e->every + 1) - begin;
    return 1 + begin;
}

// How many targets that count the scored windows from `first` to `last` have.
static int64_t scored(const Eval *e, size_t first, size_t last)
{
    int64_t sum = 0;
    for (size_t k = first; k < last; k++) {
        int64_t n, begin = targets_of(e, k, &n);
        sum += dataset_counted(e->val, begin, n, NULL);
    }
    return sum;
}

void eval_losses(Model *model, const EvalForward *forward, const EvalBatch *b)
{
    if (forward && forward->losses) {
        forward->losses(forward->self, b);
        return;
    }
    model_set_batch(model, b->token, b->pos, b->target, b->B, b->T);
    if (b->first) model_set_documents(model, b->first);
    model_evaluate(model);
}

// Runs windows [first, last) as one batch; without any a window of which no target counts.
static void run_batch(const Eval *e, Model *model, const EvalForward *forward, size_t first, size_t last)
{
    size_t B = last - first, T = e->T;
    for (size_t b = 0; b < B; b++) {
        size_t k = (first + b) * e->every;
        fill_window(e->val, before(e, k), before(e, k + 1), T, e->token + b * T, e->target + b * T);
    }
    if (B == 0) {
        B = 1;
        int64_t end = (int64_t)T < e->n ? (int64_t)T : e->n;
        fill_window(e->val, end, end, T, e->token, e->target);
    }
    if (e->pos) packing_positions(e->token, B, T, e->eot, e->pos, e->first, NULL);
    eval_losses(model, forward, &(EvalBatch){e->token, e->pos, e->target, e->pos ? e->first : NULL, B, T});
}

// The standard error of sum / n: of a ratio, from a sample of windows with a loss and a number of targets each.
static double error_over_windows(const Eval *e, const double *window, double sum)
{
    double squares = 0, n = (double)scored(e, 0, e->n_windows), N = (double)e->n_windows;
    for (size_t k = 0; k < e->n_windows; k++) {
        double away = window[k] - sum / n * (double)scored(e, k, k + 1);
        squares += away * away;
    }
    return N > 1 ? sqrt(squares * N / (N - 1)) / n : NAN;
}

bool eval_must_stop(const EvalRanks *ranks)
{
    double asked = stop_asked;
    if (!ranks) return asked > 0;
    CommRequest request = comm_all_reduce(ranks->all, &asked, &asked, 1, COMM_FP64, COMM_SUM);
    comm_wait(ranks->all, &request);
    return asked > 0;
}

static double sum_windows(const Eval *e, Model *model, const EvalRanks *ranks, double *error, bool *stopped)
{
    size_t N = ranks ? (size_t)ranks->replicas : 1, rank = ranks ? (size_t)ranks->replica : 0;
    double *window = calloc(e->n_windows, sizeof *window), sum = 0;
    if (!window) die("evaluation: no memory for %zu windows", e->n_windows);
    for (size_t round = 0; round < e->n_windows && !(*stopped = eval_must_stop(ranks)); round += N * e->B) {
        size_t first = round + rank * e->B, last = first + e->B;
        if (first > e->n_windows) first = e->n_windows;
        if (last > e->n_windows) last = e->n_windows;
        run_batch(e, model, ranks ? &ranks->forward : NULL, first, last);
        if (ranks) supervisor_progress(comm_heartbeat(ranks->all));
        for (size_t k = first; k < last && (!ranks || ranks->counts); k++)
            window[k] = model_sum_losses(model, (k - first) * model->batch.T, model->batch.T);
    }
    if (ranks) {
        CommRequest request = comm_all_reduce(ranks->all, window, window, e->n_windows, COMM_FP64, COMM_SUM);
        comm_wait(ranks->all, &request);
    }
    for (size_t k = 0; k < e->n_windows; k++) sum += window[k];
    *error = error_over_windows(e, window, sum);
    free(window);
    return *stopped ? NAN : sum;
}

EvalResult eval_run(Model *model, const Dataset *val, int64_t tokens, int64_t stride, size_t every, size_t B, size_t T,
                    const int32_t *token_bytes, int32_t eot, const EvalRanks *ranks)
{
    int64_t n = dataset_tokens(val) - 1;
    if (tokens > 0 && tokens < n) n = tokens;
    if (n < 1) die("validation set: %lld tokens, 2 are the least", (long long)dataset_tokens(val));
    if ((int64_t)T > n) T = eval_row_tokens(model, (size_t)n, T);
    if (stride < 1 || stride > (int64_t)T) stride = (int64_t)T;
    int32_t *token = malloc(4 * B * T * sizeof *token);
    if (!token) die("evaluation: no memory for %zu tokens", B * T);
    size_t windows = n > (int64_t)T ? 1 + (size_t)((n - (int64_t)T + stride - 1) / stride) : 1;
    Eval e = {.val = val, .n = n, .stride = stride, .every = every, .B = B, .T = T, .eot = eot, .token = token,
              .n_windows = (windows + every - 1) / every, .target = token + B * T,
              .pos = eot >= 0 ? token + 2 * B * T : NULL, .first = token + 3 * B * T};
    bool stopped = false;
    double error, sum = sum_windows(&e, model, ranks, &error, &stopped);
    free(token);
    n = scored(&e, 0, e.n_windows);
    if (!n) die("validation set: none of its targets counts (data.loss=assistant: has it conversations?)");
    EvalResult result = {.loss = sum / (double)n, .error = error, .tokens = n, .stopped = stopped};
    for (size_t k = 0; token_bytes && k < e.n_windows; k++) {
        int64_t targets, begin = targets_of(&e, k, &targets);
        result.bytes += dataset_text_bytes(val, begin, targets, token_bytes);
    }
    if (result.bytes > 0) result.bpb = sum / log(2) / (double)result.bytes;
    return result;
}
