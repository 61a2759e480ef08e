// gguf_model: a model and its tokenizer from llama.cpp's file.
//
// Architecture gpt2 has q, k and v as one tensor, (3C, C), and no transposed matrices. Architecture llama turns
// neighbours of a head where we turn its halves, so the rows of q and k stand in another order; qwen2 and qwen3 are as
// ours (weights.h). Scaled rotary positions of LLaMA-3 are there as a tensor of factors, rope_freqs.weight.
#include "models/gguf_model.h"

#include "base/check.h"
#include "models/weights.h"
#include "text/vocab.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKEN_NORMAL = 1, TOKEN_USER = 4, TOKEN_UNUSED = 5, MOST_TOKENS = 1 << 27 };

// ---- the keys of an architecture

typedef struct {
    const Gguf *g;
    const char *arch;
    Config *cfg;
} Keys;

static const char *full_name(const Keys *k, const char *key, char out[128])
{
    snprintf(out, 128, "%s.%s", k->arch, key);
    return out;
}

static double number(const Keys *k, const char *key, double otherwise)
{
    char name[128];
    double x = gguf_number(k->g, full_name(k, key, name), otherwise);
    if (!(x >= 0)) die("%s: key %s: %s", k->g->path, name, gguf_find(k->g, name) ? "a number of 0 or more is needed"
                                                                                  : "there is none");
    return x;
}

static void set_text(const Keys *k, const char *ours, const char *value)
{
    char name[64];
    snprintf(name, sizeof name, "model.%s", ours);
    config_set(k->cfg, name, value, k->g->path);
}

static void set(const Keys *k, const char *ours, double value)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.9g", value); // a float of the file as somebody typed it
    set_text(k, ours, digits);
}

// A key that our blocks cannot follow must have the one value that changes nothing.
static void expect(const Keys *k, const char *key, double value, const char *why)
{
    double x = number(k, key, value);
    if (x != value) die("%s: %s.%s = %g: %s", k->g->path, k->arch, key, x, why);
}

// LLaMA-3's factors: found again from the numbers that its models have, or refused.
static void read_rope_factors(const Keys *k, const GgufTensor *t, size_t D)
{
    double usual[] = {8192, number(k, "rope.scaling.original_context_length", 8192)};
    if (t->type != GGUF_F32 || t->n_elems != D / 2)
        die("%s: rope_freqs.weight: %zu F32 numbers are needed", k->g->path, D / 2);
    const float *factor = t->data;
    for (int i = 0; i < 2; i++) {
        Rope r = {.theta = (float)number(k, "rope.freq_base", 10000), .kind = ROPE_LLAMA3, .factor = factor[D / 2 - 1],
                  .original = (float)usual[i], .slow = 1, .fast = 4};
        bool same = r.factor >= 1;
        for (size_t j = 0; j < D / 2 && same; j++) {
            double f = pow(r.theta, -2.0 * (double)j / (double)D) / rope_frequency(&r, j, D);
            same = fabs(f - factor[j]) <= 1e-5 * f;
        }
        if (!same) continue;
        set_text(k, "rope_scaling", "llama3");
        set(k, "rope_factor", r.factor), set(k, "rope_original", usual[i]);
        set(k, "rope_slow", 1), set(k, "rope_fast", 4);
        return;
    }
    die("%s: rope_freqs.weight: the factors are not LLaMA-3's (slow 1, fast 4, of 8192 tokens)", k->g->path);
}

static void read_rope(const Keys *k, size_t D)
{
    char name[128];
    set(k, "rope_theta", number(k, "rope.freq_base", 10000));
    expect(k, "rope.dimension_count", (double)D, "all of a head is turned");
    const GgufTensor *factors = gguf_tensor(k->g, "rope_freqs.weight");
    if (factors) read_rope_factors(k, factors, D);
    char *type = gguf_string(k->g, full_name(k, "rope.scaling.type", name));
    bool yarn = type && !strcmp(type, "yarn");
    if (type && !yarn && strcmp(type, "linear") && strcmp(type, "none"))
        die("%s: %s = %.40s: not known here (none, linear, yarn)", k->g->path, name, type);
    if (type && strcmp(type, "none")) {
        if (factors) die("%s: both rope_freqs.weight and %s", k->g->path, name);
        expect(k, "rope.scaling.attn_factor", 1, "the factor of YaRN's paper is always used");
        set_text(k, "rope_scaling", type);
        set(k, "rope_factor", number(k, "rope.scaling.factor", -1));
        set(k, "rope_original", number(k, "rope.scaling.original_context_length", number(k, "context_length", -1)));
        if (yarn) set(k, "rope_slow", number(k, "rope.scaling.yarn_beta_slow", 1));
        if (yarn) set(k, "rope_fast", number(k, "rope.scaling.yarn_beta_fast", 32));
    }
    free(type);
}

// Dies unless there is such a matrix: what the keys say has to be in the file before memory is made for it.
static const GgufTensor *need_tensor(const Keys *k, const char *name, size_t rows, size_t cols)
{
    const GgufTensor *t = gguf_tensor(k->g, name);
    if (!t) die("%s: no tensor %s", k->g->path, name);
    size_t have = t->ndim == 1 ? 1 : t->dim[1];
    if (t->ndim > 2 || t->dim[0] != cols || (rows && have != rows))
        die("%s: %s has another shape than the keys say: %zu x %zu are needed", k->g->path, name, rows ? rows : have,
            cols);
    return t;
}

// Without an output matrix the head is tied to the embedding; llama.cpp's GPT-2 has it twice.
static bool is_tied(const Gguf *g)
{
    const GgufTensor *head = gguf_tensor(g, "output.weight"), *embed = gguf_tensor(g, "token_embd.weight");
    return !head || (head->type == embed->type && head->n_bytes == embed->n_bytes &&
                     !memcmp(head->data, embed->data, head->n_bytes));
}

static void read_sizes(const Keys *k)
{
    double C = number(k, "embedding_length", -1), H = number(k, "attention.head_count", -1);
    double L = number(k, "block_count", -1), F = number(k, "feed_forward_length", -1);
    double G = number(k, "attention.head_count_kv", H), D = number(k, "attention.key_length", H > 0 ? floor(C / H) : 0);
    if (H < 1 || G < 1 || D < 1 || F < 1 || fmod(H, G) != 0)
        die("%s: %g heads of %g, %g for keys and values, a feed-forward of %g: all must be 1 or more, and the third "
            "divide the first", k->g->path, H, D, G, F);
    expect(k, "attention.value_length", D, "keys and values have one length");
    expect(k, "expert_count", 0, "experts are not known here");
    expect(k, "attention.sliding_window", 0, "windows are not known here");
    set(k, "channels", C), set(k, "heads", H), set(k, "kv_heads", G), set(k, "head_size", D);
    set(k, "layers", L), set(k, "ffn", F), set(k, "context", number(k, "context_length", -1));
    char last[64];
    snprintf(last, sizeof last, "blk.%.0f.ffn_up.weight", L - 1);
    need_tensor(k, last, (size_t)F, (size_t)C);
    set(k, "vocab", (double)need_tensor(k, "token_embd.weight", 0, (size_t)C)->dim[1]);
    set_text(k, "tie", is_tied(k->g) ? "true" : "false");
}

void gguf_model_config(const Gguf *g, Config *cfg)
{
    char *arch = gguf_string(g, "general.architecture");
    bool gpt2 = arch && !strcmp(arch, "gpt2"), qwen3 = arch && !strcmp(arch, "qwen3");
    if (!gpt2 && !qwen3 && (!arch || (strcmp(arch, "llama") && strcmp(arch, "qwen2"))))
        die("%s: general.architecture = %.60s: not known here (gpt2, llama, qwen2, qwen3)", g->path,
            arch ? arch : "none");
    Keys k = {g, arch, cfg};
    read_sizes(&k);
    set(&k, "norm_eps", number(&k, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", -1));
    set_text(&k, "norm", gpt2 ? "layernorm" : "rmsnorm"), set_text(&k, "activation", gpt2 ? "gelu" : "swiglu");
    set_text(&k, "position", gpt2 ? "learned" : "rope");
    set_text(&k, "bias", gpt2 || gguf_tensor(g, "blk.0.attn_q.bias") ? "true" : "false");
    set_text(&k, "qk_norm", qwen3 ? "true" : "false");
    if (!gpt2) {
        if (cfg->model.head_size % 2)
            die("%s: a head of %ld: RoPE turns pairs, so it must be even", g->path, cfg->model.head_size);
        read_rope(&k, (size_t)cfg->model.head_size);
    }
    free(arch);
}

// ---- tensors

static bool read_tensor(void *self, const Weight *w, float *theirs)
{
    const Gguf *g = self;
    const GgufTensor *t = gguf_tensor(g, w->name);
    if (!t) return false;
    bool two = w->ndim == 2;
    if (t->ndim != w->ndim || t->dim[0] != w->dim[two] || (two && t->dim[1] != w->dim[0]))
        die("%s: %s has another shape than the keys say: %zu x %zu are needed", g->path, w->name, w->dim[0], w->dim[1]);
    gguf_to_float(theirs, t);
    return true;
}

void gguf_model_load(const Gguf *g, Model *m)
{
    char *arch = gguf_string(g, "general.architecture");
    WeightsStyle style = !strcmp(arch, "gpt2") ? WEIGHTS_GGUF_GPT2 : !strcmp(arch, "llama") ? WEIGHTS_GGUF_LLAMA
                                                                                           : WEIGHTS_GGUF_QWEN;
    weights_load(m, style, (WeightsSource){.path = g->path, .read = read_tensor, .self = (void *)(uintptr_t)g});
    free(arch);
}

// ---- the tokenizer, told as tokenizer.json tells it

// llama.cpp's names of the patterns that cut text into words.
static json_t *pattern_json(const Gguf *g, bool *ignore_merges)
{
    static const char *const known[][2] = {{"gpt-2", "gpt2"}, {"olmo", "gpt2"}, {"smollm", "smollm"},
                                           {"llama-bpe", "llama3"}, {"dbrx", "llama3"}, {"qwen2", "qwen2"}};
    char *pre = gguf_string(g, "tokenizer.ggml.pre");
    const char *name = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (pre && !strcmp(pre, known[i][0])) name = known[i][1];
    if (!name)
        die("%s: tokenizer.ggml.pre = %.60s: not known here (gpt-2, olmo, smollm, llama-bpe, dbrx, qwen2; or try "
            "--tokenizer DIR)", g->path, pre ? pre : "none");
    *ignore_merges = !strcmp(pre, "llama-bpe");
    Vocab v = {.pattern = (char *)(uintptr_t)name};
    json_t *all = vocab_json(&v), *pattern = json_incref(json_object_get(all, "pre_tokenizer"));
    json_decref(all);
    free(pre);
    return pattern;
}

static void add_token(const Gguf *g, json_t *vocab, json_t *added, GgufText t, int id, int type)
{
    json_t *text = json_stringn(t.bytes, t.n);
    if (!text || strlen(json_string_value(text)) != t.n) die("%s: token %d is not UTF-8 text", g->path, id);
    if (type != TOKEN_NORMAL)
        json_array_append_new(added, json_pack("{s:i, s:O, s:b}", "id", id, "content", text, "special",
                                               type != TOKEN_USER));
    if (json_object_set_new(vocab, json_string_value(text), json_integer(id)) != 0)
        die("%s: no memory for token %d", g->path, id);
    json_decref(text);
}

static json_t *tokens_json(const Gguf *g, json_t *added)
{
    const GgufKey *tokens = gguf_array(g, "tokenizer.ggml.tokens", GGUF_STRING);
    const GgufKey *type = gguf_find(g, "tokenizer.ggml.token_type") ? gguf_array(g, "tokenizer.ggml.token_type",
                                                                                 GGUF_I32) : NULL;
    if (tokens->n > MOST_TOKENS || (type && type->n != tokens->n))
        die("%s: %zu tokens, and %zu types of tokens", g->path, tokens->n, type ? type->n : 0);
    json_t *vocab = json_object();
    const char *at = tokens->data;
    for (size_t i = 0; i < tokens->n; i++) {
        int32_t kind = TOKEN_NORMAL;
        if (type) memcpy(&kind, type->data + i * sizeof kind, sizeof kind);
        GgufText t = gguf_next(&at);
        if (kind != TOKEN_UNUSED) add_token(g, vocab, added, t, (int)i, kind);
        else if (i + 1 < tokens->n) { // unused ones at the end only fill the embedding's rows
            int32_t next;
            memcpy(&next, type->data + (i + 1) * sizeof next, sizeof next);
            if (next != TOKEN_UNUSED) add_token(g, vocab, added, t, (int)i, kind);
        }
    }
    return vocab;
}

Tokenizer *gguf_model_tokenizer(const Gguf *g)
{
    char *kind = gguf_string(g, "tokenizer.ggml.model");
    if (!kind || strcmp(kind, "gpt2"))
        die("%s: tokenizer.ggml.model = %.40s: not known here (gpt2; or try --tokenizer DIR)", g->path,
            kind ? kind : "none");
    bool ignore_merges;
    json_t *pattern = pattern_json(g, &ignore_merges), *added = json_array(), *vocab = tokens_json(g, added);
    const GgufKey *merges = gguf_array(g, "tokenizer.ggml.merges", GGUF_STRING);
    json_t *list = json_array();
    const char *at = merges->data;
    for (size_t i = 0; i < merges->n; i++) {
        GgufText t = gguf_next(&at);
        if (json_array_append_new(list, json_stringn(t.bytes, t.n)) != 0) die("%s: merge %zu is not UTF-8", g->path, i);
    }
    json_t *all = json_pack("{s:{s:s, s:b, s:o, s:o}, s:o, s:o}", "model", "type", "BPE", "ignore_merges",
                            ignore_merges, "vocab", vocab, "merges", list, "added_tokens", added, "pre_tokenizer",
                            pattern);
    if (!all) die("%s: no memory for its tokenizer", g->path);
    Tokenizer *t = tokenizer_new(vocab_from_json(all, g->path));
    json_decref(all);
    free(kind);
    return t;
}
