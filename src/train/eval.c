// eval: the validation loss, and text from the model. See eval.h.
//
// A stream of n + 1 tokens has n targets. Window k ends at target e_k = min(T + k stride, n), starts T
// tokens before it, and scores the targets after e_{k-1}; the others are masked. With stride = T this is
// plain chunking, where the first tokens of a window are guessed with hardly any context; a smaller
// stride costs T / stride times the work and scores every token with context, as a reader would have it
// (the sliding window of Transformers' perplexity page).
//
// The invariant: the scored targets of all windows are disjoint and cover 1..n, so the result is a mean
// over tokens, and bits per byte can be compared between tokenizers: bits per byte = nats per token / ln
// 2 x tokens / bytes.
//
// Ranks take turns batch by batch (rank r: batches r, r + N, ...), so that a batch is the same on any number of
// ranks, down to the shapes of its matmuls. Each window's sum goes to its own place of an array that is zero elsewhere;
// adding these arrays over the ranks is exact, and then windows are added in their order. Where batches do not divide
// by the ranks, the last ones run an empty one: with sharded weights (zero.h) each forward is a collective call.
//
// Samples.   p_v = softmax(logits / temperature), cut to the top k, then to the smallest set with mass >= top_p,
// renormalised. The text is a function of weights, prompt, rule and rng alone; a token costs one forward pass of one
// row, since the keys and values of what came before are in the cache.
#include "train/eval.h"

#include "base/check.h"
#include "text/packing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Fills one window ending at target `end` with those up to `scored` masked.
static void fill_window(const Dataset *val, int64_t scored, int64_t end, size_t T, int32_t *token, int32_t *target)
{
    int64_t start = end - (int64_t)T;
    dataset_span(val, start, (int64_t)T, token);
    dataset_span(val, start + 1, (int64_t)T, target);
    for (int64_t t = 0; t < scored - start; t++) target[t] = -1;
}

// Everything about one evaluation.
typedef struct {
    const Dataset *val;
    int64_t n, stride; // targets; from one window to the next
    size_t B, T, n_windows;
    int32_t eot;
    int32_t *token, *target, *pos, *first; // (B * T); the last two NULL without documents
} Eval;

// Runs windows [first, last) as one batch; without any a window of which no target counts.
static void run_batch(const Eval *e, Model *model, const EvalForward *forward, size_t first, size_t last)
{
    size_t B = last - first, T = e->T;
    for (size_t b = 0; b < B; b++) {
        int64_t k = (int64_t)(first + b), scored = k ? (int64_t)T + (k - 1) * e->stride : 0;
        int64_t end = k ? scored + e->stride : (int64_t)T;
        fill_window(e->val, scored, end < e->n ? end : e->n, T, e->token + b * T, e->target + b * T);
    }
    if (B == 0) {
        B = 1;
        fill_window(e->val, (int64_t)T, (int64_t)T, T, e->token, e->target);
    }
    if (e->pos) packing_positions(e->token, B, T, e->eot, e->pos, e->first, NULL);
    if (forward && forward->losses) {
        forward->losses(forward->self, &(EvalBatch){e->token, e->pos, e->target, e->pos ? e->first : NULL, B, T});
        return;
    }
    model_set_batch(model, e->token, e->pos, e->target, B, T);
    if (e->pos) model_set_documents(model, e->first);
    model_evaluate(model);
}

static double sum_windows(const Eval *e, Model *model, const EvalRanks *ranks)
{
    size_t N = ranks ? (size_t)ranks->replicas : 1, rank = ranks ? (size_t)ranks->replica : 0;
    double *window = calloc(e->n_windows, sizeof *window), sum = 0;
    if (!window) die("evaluation: no memory for %zu windows", e->n_windows);
    for (size_t round = 0; round < e->n_windows; round += N * e->B) {
        size_t first = round + rank * e->B, last = first + e->B;
        if (first > e->n_windows) first = e->n_windows;
        if (last > e->n_windows) last = e->n_windows;
        run_batch(e, model, ranks ? &ranks->forward : NULL, first, last);
        supervisor_progress(comm_heartbeat(ranks ? ranks->all : NULL));
        for (size_t k = first; k < last && (!ranks || ranks->counts); k++)
            window[k] = model_sum_losses(model, (k - first) * model->batch.T, model->batch.T);
    }
    if (ranks) {
        CommRequest request = comm_all_reduce(ranks->all, window, window, e->n_windows, COMM_FP64, COMM_SUM);
        comm_wait(ranks->all, &request);
    }
    for (size_t k = 0; k < e->n_windows; k++) sum += window[k];
    free(window);
    return sum;
}

EvalResult eval_run(Model *model, const Dataset *val, int64_t tokens, int64_t stride, size_t B, size_t T,
                    const int32_t *token_bytes, int32_t eot, const EvalRanks *ranks)
{
    int64_t n = dataset_tokens(val) - 1;
    if (tokens > 0 && tokens < n) n = tokens;
    if (n < 1) die("validation set: %lld tokens, 2 are the least", (long long)dataset_tokens(val));
    if ((int64_t)T > n) T = (size_t)n;
    if (stride < 1 || stride > (int64_t)T) stride = (int64_t)T;
    int32_t *token = malloc(4 * B * T * sizeof *token);
    if (!token) die("evaluation: no memory for %zu tokens", B * T);
    Eval e = {.val = val, .n = n, .stride = stride, .B = B, .T = T, .eot = eot, .token = token,
              .n_windows = 1 + (size_t)((n - (int64_t)T + stride - 1) / stride),
              .target = token + B * T, .pos = eot >= 0 ? token + 2 * B * T : NULL, .first = token + 3 * B * T};
    double sum = sum_windows(&e, model, ranks);
    free(token);
    EvalResult result = {.loss = sum / (double)n, .tokens = n};
    if (token_bytes) {
        int64_t bytes = dataset_text_bytes(val, 1, n, token_bytes);
        if (bytes > 0) result.bpb = sum / log(2) / (double)bytes;
    }
    return result;
}

// ---- samples

typedef struct {
    float p;
    int32_t id;
} Candidate;

static int by_probability(const void *a, const void *b)
{
    const Candidate *x = a, *y = b;
    if (x->p != y->p) return x->p < y->p ? 1 : -1;
    return x->id < y->id ? -1 : 1;
}

int32_t eval_sample_token(const float *logits, size_t V, SampleRule rule, double u)
{
    size_t best = 0;
    for (size_t v = 1; v < V; v++)
        if (logits[v] > logits[best]) best = v;
    if (rule.temperature <= 0) return (int32_t)best;

    Candidate *c = malloc(V * sizeof *c);
    if (!c) die("sample: no memory for %zu candidates", V);
    float top = logits[best];
    for (size_t v = 0; v < V; v++)
        c[v] = (Candidate){expf((logits[v] - top) / (float)rule.temperature), (int32_t)v};
    size_t n = V;
    if (rule.top_k > 0 || rule.top_p < 1) {
        qsort(c, V, sizeof *c, by_probability);
        if (rule.top_k > 0 && (size_t)rule.top_k < n) n = (size_t)rule.top_k;
        double mass = 0, kept = 0;
        for (size_t i = 0; i < n; i++) mass += c[i].p;
        size_t m = 0;
        while (m < n && kept < rule.top_p * mass) kept += c[m++].p;
        n = m ? m : 1;
    }
    double mass = 0;
    for (size_t i = 0; i < n; i++) mass += c[i].p;
    double left = u * mass;
    size_t i = 0;
    while (i + 1 < n && left >= c[i].p) left -= c[i++].p;
    int32_t id = c[i].id;
    free(c);
    return id;
}

typedef struct {
    char *text;
    size_t n, cap;
} Text;

static void append(Text *t, const char *bytes, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = 2 * (t->n + n + 1);
        t->text = realloc(t->text, t->cap);
        if (!t->text) die("sample: no memory for %zu bytes of text", t->cap);
    }
    memcpy(t->text + t->n, bytes, n);
    t->n += n;
    t->text[t->n] = 0;
}

char *eval_sample(Model *model, EvalForward forward, KvCache *cache, Tokenizer *tokenizer, const char *prompt, size_t n,
                  SampleRule rule, Rng rng)
{
    size_t V = model->shape.vocab, context = model->shape.context;
    int32_t eot = tokenizer_eot(tokenizer);
    TokenIds ids = {0};
    Text out = {0};
    token_ids_push(&ids, eot >= 0 ? eot : 0);
    tokenizer_encode(tokenizer, prompt, strlen(prompt), &ids);
    append(&out, prompt, strlen(prompt));
    float *logits = malloc(V * sizeof *logits);
    if (!logits) die("sample: no memory for %zu logits", V);
    size_t fed = 0; // ids that the cache has seen
    cache->length = 0;
    for (size_t i = 0; i < n; i++) {
        if (cache->length + (ids.n - fed) > context) { // full: start again with the newer half
            cache->length = 0;
            fed = ids.n - (context + 1) / 2;
        }
        if (forward.next_logits) forward.next_logits(forward.self, cache, ids.id + fed, ids.n - fed, logits);
        else model_next_logits(model, cache, ids.id + fed, ids.n - fed, logits);
        fed = ids.n;
        int32_t id = eval_sample_token(logits, V, rule, rng_uniform(rng, i));
        if (id == eot) break;
        token_ids_push(&ids, id);
        size_t n_bytes;
        const char *bytes = tokenizer_decode(tokenizer, id, &n_bytes);
        append(&out, bytes, n_bytes);
    }
    free(logits);
    token_ids_free(&ids);
    return out.text;
}
