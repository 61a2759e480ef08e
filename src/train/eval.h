// eval: validation loss in nats per token and bits per byte.
#ifndef EVAL_H
#define EVAL_H
#include "comm/comm.h"
#include "text/dataset.h"
#include "net/model.h"
#include "parallel/pipeline.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double loss; // nats per token: sum of token losses / tokens scored
    double bpb;  // bits per byte of text: the same sum / ln 2 / bytes that the scored tokens stand for; 0 if unknown
    int64_t tokens;
} EvalResult;

// How several ranks share the work.
typedef struct {
    Comm *all;             // everybody who calls
    int replica, replicas; // this rank's copy of the model, of so many
    Pipeline *pipeline;    // that runs the model; NULL: this rank has all of it
    bool counts;           // of the ranks that run one copy, one or those with different tokens say what the losses are
} EvalRanks;

// Scores the first `tokens` targets of the set (0: all), in windows of T tokens that move on by `stride`
// (1..T). Every target is scored exactly once; from the second window on, each has at least T - stride
// tokens before it. B windows at a time. token_bytes (V) as in dataset_text_bytes; NULL: bits per byte
// are not wanted. eot >= 0: a token sees its own document only, which starts with eot (packing.h).
// ranks NULL: alone. Else all of them call this, and all get the result: the same bits however many copies of the model
// there are. Each runs the model equally often.
EvalResult eval_run(Model *model, const Dataset *val, int64_t tokens, int64_t stride, size_t B, size_t T,
                    const int32_t *token_bytes, int32_t eot, const EvalRanks *ranks);

#ifdef __cplusplus
}
#endif
#endif
