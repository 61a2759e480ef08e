// eval: validation loss in nats per token and bits per byte.
#ifndef EVAL_H
#define EVAL_H
#include "comm/comm.h"
#include "text/dataset.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double loss; // nats per token: sum of token losses / tokens scored
    double error; // standard error of loss, over windows; NAN of a single one
    double bpb;  // bits per byte of text: the same sum / ln 2 / bytes that the scored tokens stand for; 0 if unknown
    int64_t tokens, bytes; // scored; bytes: 0 if unknown
    bool stopped; // a signal asks the program to end (stop.h): loss and bpb are NAN
} EvalResult;

// What model_set_batch and model_set_documents take; pos and first may be NULL.
typedef struct {
    const int32_t *token, *pos, *target, *first;
    size_t B, T;
} EvalBatch;

// How a forward of a model is done that this rank has only a part of (pipeline_forward); all zero: it has all of it.
typedef struct {
    void (*losses)(void *self, const EvalBatch *batch); // model_evaluate: token losses, on the rank that has the head
    void *self;
} EvalForward;

// How several ranks share the work.
typedef struct {
    Comm *all;             // all ranks that call
    int replica, replicas; // this rank's copy of the model, of so many
    EvalForward forward;
    bool counts;           // whether this rank's losses count; of ranks with the same tokens in one copy only one's do
} EvalRanks;

// One forward: the losses of a batch, for model_sum_losses. forward NULL, or all zero: by the model itself.
void eval_losses(Model *model, const EvalForward *forward, const EvalBatch *batch);

// The tokens of a row that has n to score: a multiple of what deterministic mode and ranks that share a sequence need,
// at most T.
size_t eval_row_tokens(const Model *model, size_t n, size_t T);
// Whether a signal asks any of the ranks to end. Collective.
bool eval_must_stop(const EvalRanks *ranks);
// Scores the first `tokens` targets of the set (0: all), in windows of T tokens that move on by `stride` (1..T). Every
// target is scored exactly once; from the second window on, each has at least T - stride tokens before it. every: of
// the windows only each so-manyth, from the first on. B windows at a time. token_bytes (V) as in dataset_text_bytes;
// NULL: bits per byte are not wanted. eot >= 0: a token sees its own document only, which starts with eot (packing.h).
// ranks NULL: alone. Else all of them call this, and all get the result: the same bits however many copies of the model
// there are. Each runs the model equally often.
EvalResult eval_run(Model *model, const Dataset *val, int64_t tokens, int64_t stride, size_t every, size_t B, size_t T,
                    const int32_t *token_bytes, int32_t eot, const EvalRanks *ranks);

#ifdef __cplusplus
}
#endif
#endif
