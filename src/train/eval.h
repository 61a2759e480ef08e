// eval: validation loss in nats per token and bits per byte; text from the model, token by token.
#ifndef EVAL_H
#define EVAL_H
#include "comm/comm.h"
#include "text/dataset.h"
#include "base/rng.h"
#include "text/tokenizer.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double loss; // nats per token: sum of token losses / tokens scored
    double bpb;  // bits per byte of text: the same sum / ln 2 / bytes that the scored tokens stand for; 0 if unknown
    int64_t tokens;
} EvalResult;

// What model_set_batch and model_set_documents take; pos and first may be NULL.
typedef struct {
    const int32_t *token, *pos, *target, *first;
    size_t B, T;
} EvalBatch;

// How a forward of a model is done that this rank has only a part of (pipeline_forward); all zero: it has all of it.
typedef struct {
    void (*losses)(void *self, const EvalBatch *batch); // model_evaluate: token losses, on the rank that has the head
    void (*next_logits)(void *self, KvCache *cache, const int32_t *token, size_t n, float *logits); // model_next_logits
    void *self;
} EvalForward;

// How several ranks share the work.
typedef struct {
    Comm *all;             // all ranks that call
    int replica, replicas; // this rank's copy of the model, of so many
    EvalForward forward;
    bool counts;           // whether this rank's losses count; of ranks with the same tokens in one copy only one's do
} EvalRanks;

// Scores the first `tokens` targets of the set (0: all), in windows of T tokens that move on by `stride`
// (1..T). Every target is scored exactly once; from the second window on, each has at least T - stride
// tokens before it. B windows at a time. token_bytes (V) as in dataset_text_bytes; NULL: bits per byte
// are not wanted. eot >= 0: a token sees its own document only, which starts with eot (packing.h).
// ranks NULL: alone. Else all of them call this, and all get the result: the same bits however many copies of the model
// there are. Each runs the model equally often.
EvalResult eval_run(Model *model, const Dataset *val, int64_t tokens, int64_t stride, size_t B, size_t T,
                    const int32_t *token_bytes, int32_t eot, const EvalRanks *ranks);

// ---- samples

typedef struct {
    double temperature; // divides the logits; 0: always the likeliest token
    long top_k;         // draw from the k likeliest; 0: all
    double top_p;       // draw from the fewest that hold this probability (Holtzman et al., arXiv 1904.09751); 1: all
} SampleRule;

// One token from logits (V); they are left as they were. u in [0, 1) is the random number.
int32_t eval_sample_token(const float *logits, size_t V, SampleRule rule, double u);

// Writes `prompt` and up to n more tokens as text into a fresh string (free it). The prompt follows
// an end-of-text token, as every document does; sampling ends early at the next one. Token i is
// drawn with random number i of rng. When the context is full, the older half of it is forgotten.
char *eval_sample(Model *model, EvalForward forward, KvCache *cache, Tokenizer *tokenizer, const char *prompt, size_t n,
                  SampleRule rule, Rng rng);

#ifdef __cplusplus
}
#endif
#endif
