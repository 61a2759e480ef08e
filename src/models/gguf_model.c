// gguf_model: a model from llama.cpp's file.
//
// Architecture gpt2 has q, k and v as one tensor, (3C, C), and no transposed matrices. Architecture llama turns
// neighbours of a head where we turn its halves, so the rows of q and k stand in another order; qwen2, qwen3,
// qwen3moe and olmoe are as ours (weights.h). Scaled rotary positions of LLaMA-3 are there as a tensor of factors,
// rope_freqs.weight. Architecture llama is Mixtral where it has experts; of a layer all experts' gates are one tensor.
#include "models/gguf_model.h"

#include "base/check.h"
#include "models/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (!(x >= 0) && gguf_find(k->g, name)) die("%s: %s = %g: a number of 0 or more is needed", k->g->path, name, x);
    if (!(x >= 0)) die("%s: key %s: there is none", k->g->path, name);
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

// Dies unless there is such a matrix (experts > 0: one of each of so many): what the keys say has to be in the file
// before memory is made for it.
static const GgufTensor *need_tensor(const Keys *k, const char *name, size_t experts, size_t rows, size_t cols)
{
    const GgufTensor *t = gguf_tensor(k->g, name);
    if (!t) die("%s: no tensor %s", k->g->path, name);
    size_t have = t->ndim == 1 ? 1 : t->dim[1];
    if (t->ndim > (experts ? 3 : 2) || t->dim[0] != cols || (rows && have != rows) || (experts && t->dim[2] != experts))
        die("%s: %s has another shape than the keys say: %zu x %zu x %zu are needed", k->g->path, name,
            experts ? experts : 1, rows ? rows : have, cols);
    return t;
}

// Without an output matrix the head is tied to the embedding; llama.cpp's GPT-2 has it twice.
static bool is_tied(const Gguf *g)
{
    const GgufTensor *head = gguf_tensor(g, "output.weight"), *embed = gguf_tensor(g, "token_embd.weight");
    return !head || (head->type == embed->type && head->n_bytes == embed->n_bytes &&
                     !memcmp(head->data, embed->data, head->n_bytes));
}

// Except in Qwen3's architecture the experts are as wide as the key of a feed-forward says. Returns how many there are;
// sets their width. The weights of a token's experts are divided by their sum, but in OLMoE's.
static size_t read_experts(const Keys *k, double *F)
{
    bool llama = !strcmp(k->arch, "llama"), qwen = !strcmp(k->arch, "qwen3moe");
    bool olmoe = !strcmp(k->arch, "olmoe");
    if (!llama && !qwen && !olmoe) expect(k, "expert_count", 0, "this architecture has no experts");
    double E = number(k, "expert_count", qwen || olmoe ? -1 : 0);
    if (E < 1 && !qwen && !olmoe) return 0;
    double used = number(k, "expert_used_count", -1);
    expect(k, "expert_shared_count", 0, "an expert that all tokens use is not in this architecture");
    if (qwen) *F = number(k, "expert_feed_forward_length", -1);
    set(k, "experts", E), set(k, "experts_active", used), set(k, "experts_ffn", *F);
    set_text(k, "experts_renorm", olmoe ? "false" : "true");
    if (!(used <= E && *F >= 1))
        die("%s: %s.expert_used_count = %g of %g experts, each of width %g: at most all can be used, and the width "
            "must be 1 or more", k->g->path, k->arch, used, E, *F);
    return (size_t)E;
}

static void read_sizes(const Keys *k)
{
    double C = number(k, "embedding_length", -1), H = number(k, "attention.head_count", -1);
    double L = number(k, "block_count", -1), F = number(k, "feed_forward_length", -1);
    double G = number(k, "attention.head_count_kv", H), D = number(k, "attention.key_length", H > 0 ? floor(C / H) : 0);
    if (H < 1 || G < 1 || D < 1 || F < 1 || fmod(H, G) != 0)
        die("%s: attention.head_count = %g heads of %g, head_count_kv = %g, feed_forward_length = %g: all must be 1 or "
            "more, and the third divide the first", k->g->path, H, D, G, F);
    expect(k, "attention.value_length", D, "keys and values have one length");
    if (number(k, "attention.sliding_window", 0) > 0 &&
        number(k, "attention.sliding_window", 0) < number(k, "context_length", -1))
        die("%s: %s.attention.sliding_window: no windows are read from GGUF (a folder of Transformers can have them)",
            k->g->path, k->arch);
    set(k, "channels", C), set(k, "heads", H), set(k, "kv_heads", G), set(k, "head_size", D);
    set(k, "layers", L), set(k, "ffn", F), set(k, "context", number(k, "context_length", -1));
    char last[64];
    size_t experts = read_experts(k, &F);
    snprintf(last, sizeof last, "blk.%.0f.ffn_up%s.weight", L - 1, experts ? "_exps" : "");
    need_tensor(k, last, experts, (size_t)F, (size_t)C);
    set(k, "vocab", (double)need_tensor(k, "token_embd.weight", 0, 0, (size_t)C)->dim[1]);
    set_text(k, "tie", is_tied(k->g) ? "true" : "false");
}

void gguf_model_config(const Gguf *g, Config *cfg)
{
    double parts = gguf_number(g, "split.count", 1);
    if (parts > 1)
        die("%s: split.count = %g: one of so many files (make one of them: llama-gguf-split --merge)", g->path, parts);
    char *arch = gguf_string(g, "general.architecture");
    bool gpt2 = arch && !strcmp(arch, "gpt2"), qwen3 = arch && !strncmp(arch, "qwen3", 5);
    static const char known[] = "gpt2, llama, qwen2, qwen3, qwen3moe, olmoe, olmo2";
    const char *at = arch && *arch ? strstr(known, arch) : NULL, *end = at ? at + strlen(arch) : "?";
    if ((at > known && at[-1] != ' ') || (*end && *end != ','))
        die("%s: general.architecture = %.60s: not known here (%s)", g->path, arch ? arch : "none", known);
    Keys k = {g, arch, cfg};
    read_sizes(&k);
    set(&k, "norm_eps", number(&k, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", -1));
    set_text(&k, "norm", gpt2 ? "layernorm" : "rmsnorm"), set_text(&k, "activation", gpt2 ? "gelu" : "swiglu");
    set_text(&k, "position", gpt2 ? "learned" : "rope");
    set_text(&k, "bias", gpt2 || gguf_tensor(g, "blk.0.attn_q.bias") ? "true" : "false");
    set_text(&k, "qk_norm", qwen3 ? "true" : !strncmp(arch, "olmo", 4) ? "whole" : "false");
    set_text(&k, "norm_place", !strcmp(arch, "olmo2") ? "output" : "input");
    expect(&k, "attention.clamp_kqv", 0, "queries, keys and values are not clipped here");
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
    size_t shape[3];
    weights_shape(w, shape);
    bool same = t->ndim == w->ndim;
    for (int d = 0; d < w->ndim && same; d++) same = t->dim[d] == shape[w->ndim - 1 - d];
    if (!same)
        die("%s: %s has another shape than the keys say: %zu x %zu x %zu are needed", g->path, w->name, shape[0],
            shape[1], shape[2]);
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
