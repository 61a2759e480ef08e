// gguf_save: a model and its tokenizer as llama.cpp's file.
#include "models/gguf_model.h"

#include "base/check.h"
#include "models/weights.h"
#include "text/vocab.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5 };

static const char *const arch_of[] = {"gpt2", "llama", "qwen3"};

typedef struct {
    GgufOut *out;
    const char *arch;
} Keys;

static void put(const Keys *k, const char *key, GgufValue type, double value)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", k->arch, key);
    gguf_put_number(k->out, name, type, value);
}

static void put_size(const Keys *k, const char *key, size_t value)
{
    put(k, key, GGUF_U32, (double)value);
}

// NTK scaling is a larger base; LLaMA-3's is a tensor (put_rope_factors).
static void put_rope(const Keys *k, const ModelShape *s)
{
    char name[128];
    const Rope *r = &s->rotary;
    double theta = r->theta, D = (double)s->head_size;
    if (r->kind == ROPE_NTK && D > 2) theta *= pow(r->factor, D / (D - 2));
    put(k, "rope.freq_base", GGUF_FLOAT, theta);
    put_size(k, "rope.dimension_count", s->head_size);
    if (r->kind == ROPE_NONE || r->kind == ROPE_NTK) return;
    put_size(k, "rope.scaling.original_context_length", (size_t)r->original);
    if (r->kind == ROPE_LLAMA3) return;
    snprintf(name, sizeof name, "%s.rope.scaling.type", k->arch);
    gguf_put_string(k->out, name, r->kind == ROPE_YARN ? "yarn" : "linear");
    put(k, "rope.scaling.factor", GGUF_FLOAT, r->factor);
    if (r->kind != ROPE_YARN) return;
    put(k, "rope.scaling.yarn_beta_fast", GGUF_FLOAT, r->fast);
    put(k, "rope.scaling.yarn_beta_slow", GGUF_FLOAT, r->slow);
}

static void put_shape(const Keys *k, const ModelShape *s, double norm_eps, bool gpt2)
{
    put_size(k, "context_length", s->context);
    put_size(k, "embedding_length", s->channels);
    put_size(k, "block_count", s->layers);
    put_size(k, "feed_forward_length", s->ffn);
    put_size(k, "attention.head_count", s->heads);
    put_size(k, "attention.head_count_kv", s->kv_heads);
    put_size(k, "vocab_size", s->vocab);
    put(k, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", GGUF_FLOAT, norm_eps);
    if (gpt2) return;
    put_size(k, "attention.key_length", s->head_size);
    put_size(k, "attention.value_length", s->head_size);
    put_rope(k, s);
}

// llama.cpp's name of the pattern that cuts text into words.
static const char *pre_of(const Vocab *v, const char *path)
{
    if (!strcmp(v->pattern, "gpt2")) return "gpt-2";
    if (!strcmp(v->pattern, "smollm")) return "smollm";
    if (!strcmp(v->pattern, "qwen2")) return "qwen2";
    if (strcmp(v->pattern, "llama3") && strcmp(v->pattern, "cl100k")) // the last two cut every text alike
        die("%s: llama.cpp has no name for the pattern of this tokenizer: %.60s", path, v->pattern);
    return v->ignore_merges ? "llama-bpe" : "dbrx";
}

// The tokens as tokenizer.json spells them. Rows of the embedding that no token has are filled.
static void put_tokens(GgufOut *out, json_t *all, size_t V, const char *path)
{
    GgufText *text = calloc(V, sizeof *text);
    int32_t *type = malloc(V * sizeof *type);
    char (*unused)[24] = calloc(V, sizeof *unused);
    json_t *vocab = json_object_get(json_object_get(all, "model"), "vocab"), *id, *token;
    const char *key;
    size_t i;
    if (!text || !type || !unused) die("%s: no memory for %zu tokens", path, V);
    json_object_foreach(vocab, key, id) {
        check((size_t)json_integer_value(id) < V);
        text[json_integer_value(id)] = (GgufText){key, strlen(key)};
    }
    for (i = 0; i < V; i++) {
        type[i] = text[i].bytes ? TOKEN_NORMAL : TOKEN_UNUSED;
        if (!text[i].bytes) text[i] = (GgufText){unused[i], (size_t)snprintf(unused[i], 24, "[PAD%zu]", i)};
    }
    json_array_foreach(json_object_get(all, "added_tokens"), i, token) {
        type[json_integer_value(json_object_get(token, "id"))] =
            json_is_true(json_object_get(token, "special")) ? TOKEN_CONTROL : TOKEN_USER;
    }
    gguf_put_strings(out, "tokenizer.ggml.tokens", text, V);
    gguf_put_i32s(out, "tokenizer.ggml.token_type", type, V);
    free(text), free(type), free(unused);
}

static void put_merges(GgufOut *out, json_t *merges, const char *path)
{
    size_t n = json_array_size(merges), i;
    GgufText *text = calloc(n + 1, sizeof *text);
    json_t *m;
    if (!text) die("%s: no memory for %zu merges", path, n);
    json_array_foreach(merges, i, m) {
        const char *a = json_string_value(json_array_get(m, 0)), *b = json_string_value(json_array_get(m, 1));
        char *both = malloc(strlen(a) + strlen(b) + 2);
        if (!both) die("%s: no memory for %zu merges", path, n);
        text[i] = (GgufText){both, (size_t)sprintf(both, "%s %s", a, b)};
    }
    gguf_put_strings(out, "tokenizer.ggml.merges", text, n);
    for (i = 0; i < n; i++) free((void *)(uintptr_t)text[i].bytes);
    free(text);
}

// A text begins with the end-of-text token there, as it does here.
static void put_tokenizer(GgufOut *out, const Tokenizer *t, size_t V, const char *path)
{
    const Vocab *v = tokenizer_vocab(t);
    json_t *all = vocab_json(v);
    if (!all) die("%s: no memory for its tokenizer", path);
    gguf_put_string(out, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(out, "tokenizer.ggml.pre", pre_of(v, path));
    put_tokens(out, all, V, path);
    put_merges(out, json_object_get(json_object_get(all, "model"), "merges"), path);
    if (v->eot >= 0) {
        gguf_put_number(out, "tokenizer.ggml.bos_token_id", GGUF_U32, v->eot);
        gguf_put_number(out, "tokenizer.ggml.eos_token_id", GGUF_U32, v->eot);
    }
    gguf_put_number(out, "tokenizer.ggml.add_bos_token", GGUF_BOOL, v->eot >= 0);
    json_decref(all);
}

static GgufType type_of(const Weight *w, GgufType type)
{
    bool positions = strstr(w->name, "position_embd") != NULL;
    if (w->ndim == 1 || positions) return GGUF_F32;
    return gguf_bytes(type, w->dim[1]) ? type : GGUF_F16;
}

static void put_rope_factors(GgufOut *out, const ModelShape *s, bool data)
{
    size_t n = s->head_size / 2;
    float *factor = malloc(n * sizeof *factor);
    if (!factor) die("gguf: no memory for %zu factors", n);
    for (size_t i = 0; i < n; i++)
        factor[i] = (float)(pow(s->rotary.theta, -2.0 * (double)i / (double)s->head_size) /
                            rope_frequency(&s->rotary, i, s->head_size));
    if (data) gguf_put_data(out, factor);
    else gguf_put_tensor(out, "rope_freqs.weight", GGUF_F32, 1, &n);
    free(factor);
}

static void put_tensors(GgufOut *out, const Model *m, WeightsStyle style, GgufType type, const char *path)
{
    Weights w = weights_table(m, style);
    bool factors = m->shape.rope && m->shape.rotary.kind == ROPE_LLAMA3;
    size_t most = 1;
    for (int i = 0; i < w.n; i++) {
        const Weight *t = &w.weight[i];
        gguf_put_tensor(out, t->name, type_of(t, type), t->ndim, t->dim);
        if (t->dim[0] * t->dim[1] > most) most = t->dim[0] * t->dim[1];
    }
    if (factors) put_rope_factors(out, &m->shape, false);
    float *theirs = malloc(most * sizeof *theirs);
    void *data = malloc(most * sizeof *theirs);
    if (!theirs || !data) die("%s: no memory for a tensor of %zu elements", path, most);
    for (int i = 0; i < w.n; i++) {
        weights_gather(m, &w.weight[i], theirs);
        gguf_from_float(data, type_of(&w.weight[i], type), theirs, w.weight[i].dim[0] * w.weight[i].dim[1]);
        gguf_put_data(out, data);
    }
    if (factors) put_rope_factors(out, &m->shape, true);
    free(theirs), free(data);
    weights_free(&w);
}

const char *gguf_model_save(const char *path, const char *name, const Config *cfg, const Model *m,
                            const Tokenizer *tokenizer, GgufType type)
{
    WeightsFamily family = weights_family(&m->shape, path);
    bool gpt2 = family == WEIGHTS_IS_GPT2;
    Keys k = {gguf_create(path), arch_of[family]};
    gguf_put_string(k.out, "general.architecture", k.arch);
    gguf_put_string(k.out, "general.name", name);
    gguf_put_number(k.out, "general.file_type", GGUF_U32, type == GGUF_Q8_0 ? 7 : type == GGUF_BF16 ? 32 : type);
    gguf_put_number(k.out, "general.quantization_version", GGUF_U32, 2);
    put_shape(&k, &m->shape, cfg->model.norm_eps, gpt2);
    put_tokenizer(k.out, tokenizer, m->shape.vocab, path);
    static const WeightsStyle style[] = {WEIGHTS_GGUF_GPT2, WEIGHTS_GGUF_LLAMA, WEIGHTS_GGUF_QWEN}; // by family
    put_tensors(k.out, m, style[family], type, path);
    gguf_finish(k.out);
    return k.arch;
}
