// gguf_save: a model and its tokenizer as llama.cpp's file.
#include "models/gguf_model.h"

#include "base/check.h"
#include "models/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const arch_of[] = {"gpt2", "llama", "qwen3", "llama", "qwen3moe", "olmoe", "olmo2"}; // by family

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

static void check_experts(const ModelShape *s, const char *arch, const char *path)
{
    const ModelExperts *x = &s->experts;
    bool olmoe = s->qk_norm == QK_NORM_WHOLE;
    const char *key = x->dense ? "experts_dense" : x->every > 1 ? "experts_every" :
        x->renorm == olmoe ? "experts_renorm" : NULL;
    if (key)
        die("%s: model.%s: llama.cpp's %s has experts in all layers, and %s their weights by the sum (use --to hf)",
            path, key, arch, olmoe ? "does not divide" : "divides");
    if (olmoe && (s->tie || s->kv_heads != s->heads))
        die("%s: model.%s: llama.cpp's olmoe has a head of its own, and as many heads for keys as for queries (use "
            "--to hf)", path, s->tie ? "tie" : "kv_heads");
}

static void put_experts(const Keys *k, const ModelExperts *x)
{
    put_size(k, "expert_count", x->n);
    put_size(k, "expert_used_count", x->k);
    put_size(k, "expert_feed_forward_length", x->ffn);
}

static void put_shape(const Keys *k, const ModelShape *s, double norm_eps, bool gpt2)
{
    put_size(k, "context_length", s->context);
    put_size(k, "embedding_length", s->channels);
    put_size(k, "block_count", s->layers);
    put_size(k, "feed_forward_length", s->experts.n && s->qk_norm != QK_NORM_HEAD ? s->experts.ffn : s->ffn);
    put_size(k, "attention.head_count", s->heads);
    put_size(k, "attention.head_count_kv", s->kv_heads);
    put_size(k, "vocab_size", s->vocab);
    put(k, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", GGUF_FLOAT, norm_eps);
    if (gpt2) return;
    put_size(k, "attention.key_length", s->head_size);
    put_size(k, "attention.value_length", s->head_size);
    put_rope(k, s);
}

static GgufType type_of(const Weight *w, GgufType type)
{
    bool small = strstr(w->name, "position_embd") || strstr(w->name, "ffn_gate_inp");
    if (w->ndim == 1 || small) return GGUF_F32;
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
        size_t shape[3];
        weights_shape(t, shape);
        gguf_put_tensor(out, t->name, type_of(t, type), t->ndim, shape);
        if (weights_elems(t) > most) most = weights_elems(t);
    }
    if (factors) put_rope_factors(out, &m->shape, false);
    float *theirs = malloc(most * sizeof *theirs);
    void *data = malloc(most * sizeof *theirs);
    if (!theirs || !data) die("%s: no memory for a tensor of %zu elements", path, most);
    for (int i = 0; i < w.n; i++) {
        weights_gather(m, &w.weight[i], theirs);
        gguf_from_float(data, type_of(&w.weight[i], type), theirs, weights_elems(&w.weight[i]));
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
    if (m->shape.window && m->shape.window < m->shape.context)
        die("%s: model.window = %zu: llama.cpp's %s has no windows (use --to hf)", path, m->shape.window,
            arch_of[family]);
    if (m->shape.experts.n) check_experts(&m->shape, arch_of[family], path);
    if (family == WEIGHTS_IS_OLMO2 && m->shape.tie)
        die("%s: model.tie: llama.cpp's olmo2 has a head of its own (use --to hf)", path);
    Keys k = {gguf_create(path), arch_of[family]};
    gguf_put_string(k.out, "general.architecture", k.arch);
    gguf_put_string(k.out, "general.name", name);
    gguf_put_number(k.out, "general.file_type", GGUF_U32, type == GGUF_Q8_0 ? 7 : type == GGUF_BF16 ? 32 : type);
    gguf_put_number(k.out, "general.quantization_version", GGUF_U32, 2);
    put_shape(&k, &m->shape, cfg->model.norm_eps, gpt2);
    if (m->shape.experts.n) put_experts(&k, &m->shape.experts);
    gguf_model_put_tokenizer(k.out, tokenizer, m->shape.vocab, path);
    WeightsStyle style = gpt2 ? WEIGHTS_GGUF_GPT2 : m->shape.qk_norm ? WEIGHTS_GGUF_QWEN : WEIGHTS_GGUF_LLAMA;
    put_tensors(k.out, m, style, type, path);
    gguf_finish(k.out);
    return k.arch;
}
