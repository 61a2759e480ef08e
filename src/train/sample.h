// sample: text from the model, token by token.
#ifndef SAMPLE_H
#define SAMPLE_H
#include "net/model.h"
#include "parallel/pipeline.h"
#include "base/rng.h"
#include "text/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    double temperature; // divides the logits; 0: always the likeliest token
    long top_k;         // draw from the k likeliest; 0: all
    double top_p;       // draw from the fewest that hold this probability (Holtzman et al., arXiv 1904.09751); 1: all
} SampleRule;

// One token from logits (V); they are left as they were. u in [0, 1) is the random number.
int32_t sample_token(const float *logits, size_t V, SampleRule rule, double u);

// Writes `prompt` and up to n more tokens as text into a fresh string (free it). The prompt stands
// behind an end-of-text token, as every document does; sampling ends early at the next one. Token i is
// drawn with random number i of rng. When the context is full, the older half of it is forgotten.
// pipeline: that runs the model, NULL where this rank has all of it.
char *sample_text(Model *model, Pipeline *pipeline, KvCache *cache, Tokenizer *tokenizer, const char *prompt, size_t n,
                  SampleRule rule, Rng rng);

#ifdef __cplusplus
}
#endif
#endif
