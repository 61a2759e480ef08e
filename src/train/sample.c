// sample: draws tokens from the model with a cache of keys and values.
//
//   p_v = softmax(logits / temperature), cut to the top k, then to the smallest set with mass >= top_p, renormalised
//
// The invariant: the text is a function of weights, prompt, rule and rng alone; a token costs one
// forward pass of one row, since the keys and values of what came before are in the cache.
#include "train/sample.h"

#include "base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

int32_t sample_token(const float *logits, size_t V, SampleRule rule, double u)
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

char *sample_text(Model *model, Pipeline *pipeline, KvCache *cache, Tokenizer *tokenizer, const char *prompt, size_t n,
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
        if (pipeline) pipeline_next_logits(pipeline, cache, ids.id + fed, ids.n - fed, logits);
        else model_next_logits(model, cache, ids.id + fed, ids.n - fed, logits);
        fed = ids.n;
        int32_t id = sample_token(logits, V, rule, rng_uniform(rng, i));
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
