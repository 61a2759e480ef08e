// sample: text from a model, token by token.
#ifndef SAMPLE_H
#define SAMPLE_H
#include "base/rng.h"
#include "net/model.h"
#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

// How a token is drawn. The steps are taken in the order of the fields; what a field of 0 leaves out is said there.
typedef struct {
    double temperature; // divides the logits; 0: always the likeliest token
    long top_k;         // draw from the k likeliest; 0: all
    double top_p;       // draw from the fewest that hold this probability (Holtzman et al., arXiv 1904.09751); 1: all
    double min_p;       // and at least this part of the likeliest one's (Nguyen et al., arXiv 2407.01082); 0: all
    double repetition;  // first of all, logits of tokens that the text has: z / r, or z r where z < 0 (Keskar et al.,
                        // arXiv 1909.05858, section 4.1); 0 or 1: off
} SampleRule;

// One token from logits (V); they are left as they were. u in [0, 1) is the random number. Without `repetition`, which
// needs the text.
int32_t sample_token(const float *logits, size_t V, SampleRule rule, double u);

// How the next logits are computed of a model that this rank has only a part of; all zero: model_next_logits.
typedef struct {
    void (*next_logits)(void *self, KvCache *cache, const int32_t *token, size_t n, float *logits);
    void *self;
} SampleForward;

// A document that is being written.
typedef struct {
    Model *model;
    SampleForward forward;
    KvCache *cache; // its own
    Tokenizer *tokenizer;
    SampleRule rule;
    Rng rng;
    TokenIds ids;  // what a text starts with (tokenizer_bos), the prompt, what was drawn
    size_t fed;    // of them, those that the cache has seen
    size_t drawn;  // token i is drawn with random number i of rng
    float *logits; // (V) of the token after all that was fed
} Sampler;

// Begins a document with a prompt of n bytes, which follows the token that a text starts with, if there is one, and in
// an empty prompt else an end-of-text token. Dies when there is nothing to begin with. Model, cache and tokenizer are
// the caller's.
Sampler sample_begin(Model *model, SampleForward forward, KvCache *cache, Tokenizer *tokenizer, const char *prompt,
                      size_t n, SampleRule rule, Rng rng);
// Begins with these tokens alone (ids: taken over), a conversation.
Sampler sample_begin_ids(Model *model, SampleForward forward, KvCache *cache, Tokenizer *tokenizer, TokenIds ids,
                         SampleRule rule, Rng rng);
// Draws the next token, of those that the tokenizer has, and appends it; -1 at the end of the text. *log_probability
// (NULL is allowed): its logarithm, in the model's own distribution, whatever the rule. When the cache is full, the
// older half of it is forgotten.
int32_t sample_next(Sampler *s, double *log_probability);
// The same for n documents of one model, at most sample_batch, all with a SampleForward of zeros: id (n),
// log_probability (n; NULL is allowed). They are rows of one forward pass, and on the CPU each comes out as it does
// alone.
void sample_next_each(Sampler *const *document, size_t n, int32_t *id, double *log_probability);
size_t sample_batch(const Model *model);
void sample_end(Sampler *s);

// `prompt` and up to n more tokens as text: a fresh string (free it).
char *sample_text(Model *model, SampleForward forward, KvCache *cache, Tokenizer *tokenizer, const char *prompt,
                  size_t n, SampleRule rule, Rng rng);

// Text that arrives in pieces which may end within a character: what of it is complete.
typedef struct {
    char bytes[4];
    size_t n; // held back: the beginning of a character
} SampleText;
// Appends to out (3 n + 12 bytes) the characters that n more bytes complete, U+FFFD for what cannot become one; returns
// how many bytes. bytes NULL: the text has ended.
size_t sample_characters(SampleText *text, const char *bytes, size_t n, char *out);

#ifdef __cplusplus
}
#endif
#endif
