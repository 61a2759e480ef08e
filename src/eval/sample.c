// sample: text from a model, token by token.
//
//   z_v of tokens that the text has: z_v / r, or z_v r where z_v < 0      repetition
//   p_v = softmax(z / temperature)                                        temperature
//   the k largest                                                         top-k
//   of these the fewest with mass >= top_p of what top-k kept             top-p
//   of these those with p_v >= min_p max(p)                               min-p
//
// renormalised; that is Transformers' order. The text is a function of weights, prompt, rule and rng alone. A token
// costs one forward pass of one row, since the keys and values of what came before are in the cache. Several documents
// are rows of one pass, which reads the weights once for all of them.
//
// The invariant: `ids` up to `fed` are those whose keys and values the cache holds, or, where it was emptied, a newer
// part of them; the logits belong to the last one.
#include "eval/sample.h"

#include "base/check.h"
#include "base/words.h"

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

static size_t likeliest(const float *logits, size_t V)
{
    size_t best = 0;
    for (size_t v = 1; v < V; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

// How many of V candidates, now in the order of their probability, are kept.
static size_t cut(Candidate *c, size_t V, SampleRule rule)
{
    size_t n = V;
    if (rule.top_k <= 0 && rule.top_p >= 1 && rule.min_p <= 0) return n;
    qsort(c, V, sizeof *c, by_probability);
    if (rule.top_k > 0 && (size_t)rule.top_k < n) n = (size_t)rule.top_k;
    double mass = 0, kept = 0;
    for (size_t i = 0; i < n; i++) mass += c[i].p;
    size_t m = 0;
    while (m < n && kept < rule.top_p * mass) kept += c[m++].p;
    while (m > 1 && c[m - 1].p < rule.min_p * c[0].p) m--;
    return m ? m : 1;
}

int32_t sample_token(const float *logits, size_t V, SampleRule rule, double u)
{
    size_t best = likeliest(logits, V);
    if (rule.temperature <= 0) return (int32_t)best;
    Candidate *c = malloc(V * sizeof *c);
    if (!c) die("sample: no memory for %zu candidates", V);
    float top = logits[best];
    for (size_t v = 0; v < V; v++)
        c[v] = (Candidate){expf((logits[v] - top) / (float)rule.temperature), (int32_t)v};
    size_t n = cut(c, V, rule), i = 0;
    double mass = 0;
    for (size_t k = 0; k < n; k++) mass += c[k].p;
    double left = u * mass;
    while (i + 1 < n && left >= c[i].p) left -= c[i++].p;
    int32_t id = c[i].id;
    free(c);
    return id;
}

// The natural logarithm of softmax(logits)[id].
static double log_probability_of(const float *logits, size_t V, int32_t id)
{
    double top = logits[likeliest(logits, V)], sum = 0;
    for (size_t v = 0; v < V; v++) sum += exp(logits[v] - top);
    return logits[id] - top - log(sum);
}

// ---- a document

Sampler sample_begin_ids(Model *model, SampleForward forward, KvCache *cache, Tokenizer *tokenizer, TokenIds ids,
                         SampleRule rule, Rng rng)
{
    Sampler s = {.model = model, .forward = forward, .cache = cache, .tokenizer = tokenizer, .rule = rule, .rng = rng,
                 .ids = ids, .logits = malloc(model->shape.vocab * sizeof *s.logits)};
    if (!s.logits) die("sample: no memory for %zu logits", model->shape.vocab);
    if (!ids.n) die("sample: an empty prompt, and no token of the tokenizer begins or ends a text (give a prompt)");
    cache->length = 0;
    return s;
}

Sampler sample_begin(Model *model, SampleForward forward, KvCache *cache, Tokenizer *tokenizer, const char *prompt,
                      size_t n, SampleRule rule, Rng rng)
{
    TokenIds ids = {0};
    int32_t bos = tokenizer_bos(tokenizer), eot = tokenizer_eot(tokenizer);
    if (bos >= 0) token_ids_push(&ids, bos);
    else if (!n && eot >= 0) token_ids_push(&ids, eot); // the end of a text before
    tokenizer_encode(tokenizer, prompt, n, &ids);
    return sample_begin_ids(model, forward, cache, tokenizer, ids, rule, rng);
}

// How many ids are to be fed; first empties a cache that has no room for them.
static size_t unfed(Sampler *s)
{
    size_t room = s->cache->room;
    if (s->cache->length + (s->ids.n - s->fed) > room) { // full: start again with the newer half
        s->cache->length = 0;
        s->fed = s->ids.n - (room + 1) / 2;
    }
    return s->ids.n - s->fed;
}

// The logits after all ids, in s->logits.
static void feed(Sampler *s)
{
    size_t n = unfed(s);
    const int32_t *more = s->ids.id + s->fed;
    if (s->forward.next_logits) s->forward.next_logits(s->forward.self, s->cache, more, n, s->logits);
    else model_next_logits(s->model, s->cache, more, n, s->logits);
    s->fed = s->ids.n;
}

size_t sample_batch(const Model *m)
{
    return model_max_rows(m) < FEW_ROWS ? model_max_rows(m) : FEW_ROWS;
}

// The same for n documents. Those with more than one token to feed, a prompt or half a context, are fed alone.
static void feed_each(Sampler *const *document, size_t n)
{
    Model *model = document[0]->model;
    size_t B = 0, V = model->shape.vocab;
    Sampler *row[FEW_ROWS];
    KvCache *cache[FEW_ROWS];
    int32_t token[FEW_ROWS];
    check(n <= sample_batch(model));
    for (size_t i = 0; i < n; i++) {
        Sampler *s = document[i];
        if (unfed(s) > 1) feed(s);
        else row[B] = s, cache[B] = s->cache, token[B++] = s->ids.id[s->fed];
    }
    if (!B) return;
    float *logits = malloc(B * V * sizeof *logits);
    if (!logits) die("sample: no memory for %zu logits", B * V);
    model_next_logits_each(model, cache, token, B, logits);
    for (size_t b = 0; b < B; b++) {
        memcpy(row[b]->logits, logits + b * V, V * sizeof *logits);
        row[b]->fed = row[b]->ids.n;
    }
    free(logits);
}

// Once each, however often a token is there: what is weakened is the model's own logit.
static void weaken_repeated(float *out, const float *logits, const TokenIds *ids, float penalty)
{
    for (size_t i = 0; i < ids->n; i++) {
        float z = logits[ids->id[i]];
        out[ids->id[i]] = z < 0 ? z * penalty : z / penalty;
    }
}

// Draws from s->logits and appends what was drawn.
static int32_t draw(Sampler *s, double *log_probability)
{
    size_t V = s->model->shape.vocab;
    float *logits = s->logits;
    if (s->rule.repetition > 0 && s->rule.repetition != 1) { // a copy: log_probability is the model's own
        logits = malloc(V * sizeof *logits);
        if (!logits) die("sample: no memory for %zu logits", V);
        memcpy(logits, s->logits, V * sizeof *logits);
        weaken_repeated(logits, s->logits, &s->ids, (float)s->rule.repetition);
    }
    size_t n = (size_t)tokenizer_vocab_size(s->tokenizer); // rows beyond, of a padded vocabulary, are no tokens
    int32_t id = sample_token(logits, n < V ? n : V, s->rule, rng_uniform(s->rng, s->drawn++));
    if (logits != s->logits) free(logits);
    if (log_probability) *log_probability = log_probability_of(s->logits, V, id);
    if (tokenizer_ends(s->tokenizer, id)) return -1;
    token_ids_push(&s->ids, id);
    return id;
}

int32_t sample_next(Sampler *s, double *log_probability)
{
    feed(s);
    return draw(s, log_probability);
}

void sample_next_each(Sampler *const *document, size_t n, int32_t *id, double *log_probability)
{
    feed_each(document, n);
    for (size_t i = 0; i < n; i++) id[i] = draw(document[i], log_probability ? log_probability + i : NULL);
}

void sample_end(Sampler *s)
{
    free(s->logits);
    token_ids_free(&s->ids);
}

typedef struct {
    char *bytes;
    size_t n, cap;
} Text;

static void append(Text *t, const char *bytes, size_t n)
{
    t->bytes = words_grow(t->bytes, &t->cap, t->n + n + 1, 1);
    memcpy(t->bytes + t->n, bytes, n);
    t->n += n;
    t->bytes[t->n] = 0;
}

char *sample_text(Model *model, SampleForward forward, KvCache *cache, Tokenizer *tokenizer, const char *prompt,
                  size_t n, SampleRule rule, Rng rng)
{
    Sampler s = sample_begin(model, forward, cache, tokenizer, prompt, strlen(prompt), rule, rng);
    Text out = {0};
    append(&out, prompt, strlen(prompt));
    int32_t id;
    for (size_t i = 0; i < n && (id = sample_next(&s, NULL)) >= 0; i++) {
        size_t n_bytes;
        bool first = !i && !*prompt;
        const char *bytes = (first ? tokenizer_decode_first : tokenizer_decode)(tokenizer, id, &n_bytes);
        append(&out, bytes, n_bytes);
    }
    sample_end(&s);
    return out.bytes;
}

// ---- whole characters

// Whether n bytes, an ill-formed sequence, are the beginning of a well-formed one.
static bool may_go_on(const char *s, size_t n)
{
    unsigned char lead = (unsigned char)*s;
    size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    return lead >= 0xC2 && lead <= 0xF4 && n < whole;
}

size_t sample_characters(SampleText *text, const char *bytes, size_t n, char *out)
{
    char *to = out, *all = malloc(text->n + n + 1);
    if (!all) die("sample: no memory for %zu bytes of text", n);
    memcpy(all, text->bytes, text->n);
    if (n) memcpy(all + text->n, bytes, n);
    size_t end = text->n + n, at = 0, length;
    bool valid;
    text->n = 0;
    for (; at < end; at += length) {
        length = words_utf8_length(all + at, end - at, &valid);
        if (!valid && bytes && at + length == end && may_go_on(all + at, length)) {
            memcpy(text->bytes, all + at, text->n = length);
            break;
        }
        const char *from = valid ? all + at : "\xEF\xBF\xBD"; // U+FFFD
        memcpy(to, from, valid ? length : 3);
        to += valid ? length : 3;
    }
    free(all);
    return (size_t)(to - out);
}
