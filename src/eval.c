// eval: the validation loss.
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
#include "eval.h"

#include "check.h"
#include "packing.h"

#include <math.h>
#include <stdlib.h>

// Fills one window ending at target `end` with those up to `scored` masked.
static void fill_window(const Dataset *val, int64_t scored, int64_t end, size_t T, int32_t *token, int32_t *target)
{
    int64_t start = end - (int64_t)T;
    dataset_span(val, start, (int64_t)T, token);
    dataset_span(val, start + 1, (int64_t)T, target);
    for (int64_t t = 0; t < scored - start; t++) target[t] = -1;
}

EvalResult eval_run(Model *model, const Dataset *val, int64_t tokens, int64_t stride, size_t B, size_t T,
                    const int32_t *token_bytes, int32_t eot)
{
    int64_t n = dataset_tokens(val) - 1;
    if (tokens > 0 && tokens < n) n = tokens;
    if (n < 1) die("validation set: %lld tokens, 2 are the least", (long long)dataset_tokens(val));
    if ((int64_t)T > n) T = (size_t)n;
    if (stride < 1 || stride > (int64_t)T) stride = (int64_t)T;
    int32_t *token = malloc(4 * B * T * sizeof *token);
    if (!token) die("evaluation: no memory for %zu tokens", B * T);
    int32_t *target = token + B * T, *pos = eot >= 0 ? target + B * T : NULL, *first = target + 2 * B * T;
    double sum = 0;
    for (int64_t scored = 0; scored < n;) {
        size_t b = 0;
        for (; b < B && scored < n; b++) {
            int64_t end = scored == 0 ? (int64_t)T : scored + stride < n ? scored + stride : n;
            fill_window(val, scored, end, T, token + b * T, target + b * T);
            scored = end;
        }
        if (pos) packing_positions(token, b, T, eot, pos, first, NULL);
        model_set_batch(model, token, pos, target, b, T);
        if (pos) model_set_documents(model, first);
        sum += model_evaluate(model);
    }
    free(token);
    EvalResult result = {.loss = sum / (double)n, .tokens = n};
    if (token_bytes) {
        int64_t bytes = dataset_text_bytes(val, 1, n, token_bytes);
        if (bytes > 0) result.bpb = sum / log(2) / (double)bytes;
    }
    return result;
}
