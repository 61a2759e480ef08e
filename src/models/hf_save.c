// hf_save: a model's folder as Transformers reads it.
//
// GPT2LMHeadModel, LlamaForCausalLM, or, for a norm of each head's queries and keys, Qwen3ForCausalLM; with experts
// MixtralForCausalLM, Qwen3MoeForCausalLM, or, for a norm of all heads' together, OlmoeForCausalLM; for norms of what
// branches give Olmo2ForCausalLM. GPT-2's dropouts default to 0.1 and are written as 0. A tied head is left out, as
// Transformers does. A window on all layers makes a LLaMA a MistralForCausalLM; Qwen3's class has a list of the layers
// with one.
#include "models/hf.h"

#include "base/check.h"
#include "base/disk.h"
#include "tools/safetensors.h"
#include "models/weights.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const class_of[] = {"GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM", "MixtralForCausalLM",
                                       "Qwen3MoeForCausalLM", "OlmoeForCausalLM", "Olmo2ForCausalLM",
                                       "MistralForCausalLM"};
static const char *const type_of[] = {"gpt2", "llama", "qwen3", "mixtral", "qwen3_moe", "olmoe", "olmo2", "mistral"};
enum { MISTRAL = WEIGHTS_FAMILIES };

// ---- config.json

static void set(json_t *config, const char *key, json_t *value)
{
    check(value && json_object_set_new(config, key, value) == 0);
}

static void set_size(json_t *config, const char *key, size_t value)
{
    set(config, key, json_integer((json_int_t)value));
}

// Transformers 5 reads rope_parameters; 4 reads rope_theta and rope_scaling. NTK scaling is a larger theta, so it is
// written as that theta.
static void set_rope(json_t *config, const Rope *r, size_t head_size)
{
    static const char *const types[] = {"default", "linear", "default", "yarn", "llama3"};
    bool scaled = r->kind != ROPE_NONE && r->kind != ROPE_NTK, yarn = r->kind == ROPE_YARN;
    double theta = r->theta;
    if (r->kind == ROPE_NTK && head_size > 2) theta *= pow(r->factor, (double)head_size / ((double)head_size - 2));
    json_t *rope = json_pack("{s:s, s:f}", "rope_type", types[r->kind], "rope_theta", theta);
    if (scaled) set(rope, "factor", json_real(r->factor));
    if (r->kind >= ROPE_YARN) {
        set_size(rope, "original_max_position_embeddings", (size_t)r->original);
        set(rope, yarn ? "beta_slow" : "low_freq_factor", json_real(r->slow));
        set(rope, yarn ? "beta_fast" : "high_freq_factor", json_real(r->fast));
    }
    set(config, "rope_theta", json_real(theta));
    if (scaled) set(config, "rope_scaling", json_deep_copy(rope));
    set(config, "rope_parameters", rope);
}

static void set_llama(json_t *config, const ModelShape *s, double norm_eps)
{
    set_size(config, "hidden_size", s->channels);
    set_size(config, "intermediate_size", s->ffn);
    set_size(config, "num_hidden_layers", s->layers);
    set_size(config, "num_attention_heads", s->heads);
    set_size(config, "num_key_value_heads", s->kv_heads);
    set_size(config, "head_dim", s->head_size);
    set_size(config, "max_position_embeddings", s->context);
    set(config, "hidden_act", json_string("silu"));
    set(config, "rms_norm_eps", json_real(norm_eps));
    set(config, "attention_bias", json_boolean(s->bias));
    set(config, "mlp_bias", json_boolean(s->bias));
    set_rope(config, &s->rotary, s->head_size);
}

// Qwen3-MoE's layers without experts are listed. Transformers' loss of balance is of a mean over the layers, and its
// shares sum to k; ours adds those of the layers, and the shares sum to 1 (doc/models.md).
static void set_experts(json_t *config, const ModelShape *s, const Config *cfg)
{
    const ModelExperts *x = &s->experts;
    bool loss = x->balance == MOE_BALANCE_SEQUENCE || x->balance == MOE_BALANCE_BATCH;
    bool mixtral = !s->qk_norm, qwen = s->qk_norm == QK_NORM_HEAD;
    size_t with = 0;
    json_t *dense = json_array();
    for (size_t i = 0; i < s->layers; i++) {
        if (unit_has_experts(s, i)) with++;
        else json_array_append_new(dense, json_integer((json_int_t)i));
    }
    set_size(config, mixtral ? "num_local_experts" : "num_experts", x->n);
    set_size(config, "num_experts_per_tok", x->k);
    set_size(config, qwen ? "moe_intermediate_size" : "intermediate_size", x->ffn);
    set(config, "router_aux_loss_coef", json_real(loss ? cfg->moe.balance_coef * (double)with / (double)x->k : 0));
    if (!mixtral) set(config, "norm_topk_prob", json_boolean(x->renorm));
    if (qwen) {
        set_size(config, "decoder_sparse_step", 1);
        set(config, "mlp_only_layers", dense);
    } else json_decref(dense);
}

static void set_window(json_t *config, const ModelShape *s)
{
    if (!s->window) return;
    json_t *kinds = json_array();
    for (size_t i = 0; i < s->layers; i++)
        json_array_append_new(kinds, json_string(unit_window(s, i) ? "sliding_attention" : "full_attention"));
    set_size(config, "sliding_window", s->window);
    set(config, "use_sliding_window", json_true());
    set(config, "layer_types", kinds);
}

// The class of a family, with windows.
static int class_number(WeightsFamily family, const ModelShape *s, const char *path)
{
    bool all = true;
    if (!s->window) return (int)family;
    for (size_t i = 0; i < s->layers; i++) all &= unit_window(s, i) != 0;
    if (family == WEIGHTS_IS_QWEN3) return (int)family;
    bool olmo = family == WEIGHTS_IS_OLMOE || family == WEIGHTS_IS_OLMO2;
    if (family == WEIGHTS_IS_GPT2 || olmo || s->bias || !all)
        die("%s: model.window: only LLaMA's family without biases has a class with windows, on all layers, and Qwen3's "
            "(use --to safetensors)", path);
    return family == WEIGHTS_IS_LLAMA ? MISTRAL : (int)family;
}

static void set_gpt2(json_t *config, const ModelShape *s, double norm_eps)
{
    set_size(config, "n_embd", s->channels);
    set_size(config, "n_inner", s->ffn);
    set_size(config, "n_layer", s->layers);
    set_size(config, "n_head", s->heads);
    set_size(config, "n_positions", s->context);
    set(config, "activation_function", json_string("gelu_new"));
    set(config, "layer_norm_epsilon", json_real(norm_eps));
    set(config, "resid_pdrop", json_real(0));
    set(config, "embd_pdrop", json_real(0));
    set(config, "attn_pdrop", json_real(0));
}

// The tokens that a text begins with and ends with; -1: not known.
typedef struct {
    int32_t bos, eos;
} Ends;

static Ends ends_of(const Tokenizer *t)
{
    if (!t) return (Ends){-1, -1};
    const Vocab *v = tokenizer_vocab(t);
    return (Ends){tokenizer_bos(t), v->has_eos ? v->eos : tokenizer_eot(t)};
}

static void set_ends(json_t *config, Ends ends)
{
    set(config, "bos_token_id", ends.bos >= 0 ? json_integer(ends.bos) : json_null());
    set(config, "eos_token_id", ends.eos >= 0 ? json_integer(ends.eos) : json_null());
}

static json_t *config_json(int class, const Model *m, const Config *cfg, Format format, Ends ends)
{
    double norm_eps = cfg->model.norm_eps;
    const char *dtype = format == FORMAT_FP32 ? "float32" : format == FORMAT_FP16 ? "float16" : "bfloat16";
    json_t *config = json_object();
    set(config, "architectures", json_pack("[s]", class_of[class]));
    set(config, "model_type", json_string(type_of[class]));
    set_size(config, "vocab_size", m->shape.vocab);
    set(config, "tie_word_embeddings", json_boolean(m->shape.tie));
    set(config, "torch_dtype", json_string(dtype));
    set(config, "dtype", json_string(dtype));
    set_ends(config, ends);
    if (class == WEIGHTS_IS_GPT2) set_gpt2(config, &m->shape, norm_eps);
    else set_llama(config, &m->shape, norm_eps), set_window(config, &m->shape);
    if (m->shape.experts.n) set_experts(config, &m->shape, cfg);
    return config;
}

static void write_json(json_t *value, const char *dir, const char *name)
{
    char path[PATH_MAX], *text = json_dumps(value, JSON_INDENT(2));
    snprintf(path, sizeof path, "%.4000s/%s", dir, name);
    if (!text || !disk_replace_file(path, text, strlen(text)))
        die("%s: cannot write: %s", path, strerror(errno));
    free(text);
    json_decref(value);
}

// What begins a document and ends it, and how text is drawn.
static void write_ends(const Config *cfg, const Tokenizer *t, Ends ends, const char *dir)
{
    const char *const key[] = {"bos_token", "eos_token"};
    const int32_t id[] = {ends.bos, ends.eos};
    json_t *map = json_object();
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        const char *name = id[i] >= 0 ? tokenizer_decode(t, id[i], &n) : NULL;
        if (name) set(map, key[i], json_stringn(name, n));
    }
    write_json(map, dir, "special_tokens_map.json");
    bool draw = cfg->sample.temperature > 0;
    json_t *generation = json_pack("{s:b, s:f, s:i, s:f}", "do_sample", draw, "temperature",
                                   draw ? cfg->sample.temperature : 1.0, "top_k", (int)cfg->sample.top_k, "top_p",
                                   cfg->sample.top_p);
    set_ends(generation, ends);
    write_json(generation, dir, "generation_config.json");
}

// ---- tensors

// What safetensors_write_from asks for, one tensor at a time.
typedef struct {
    const Model *m;
    const Weight *first; // of the file
    Format format;
    float *theirs;
    void *out;
} Source;

static const void *convert(void *self, int i)
{
    Source *s = self;
    const Weight *w = s->first + i;
    weights_gather(s->m, w, s->theirs);
    formats_from_float(s->out, s->format, s->theirs, weights_elems(w), false);
    return s->out;
}

static void write_file(const char *dir, const char *name, Source *s, int n)
{
    char path[PATH_MAX], tmp[PATH_MAX], error[1024];
    SafeTensor *t = calloc((size_t)n + 1, sizeof *t);
    if (!t) die("export: no memory for a table of %d tensors", n);
    for (int i = 0; i < n; i++)
        t[i] = (SafeTensor){.name = s->first[i].name, .ndim = s->first[i].ndim, .shape = s->first[i].dim,
                            .dtype = s->format == FORMAT_FP32 ? ST_F32 : s->format == FORMAT_FP16 ? ST_F16 : ST_BF16};
    snprintf(path, sizeof path, "%.4000s/%s", dir, name);
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp) die("%s: the path is too long", path);
    if (disk_is_special(path)) die("%s: is a device or a pipe (safetensors are written to a plain file)", path);
    if (!safetensors_write_from(tmp, t, n, convert, s, NULL, NULL, NULL, error, sizeof error)) {
        unlink(tmp);
        die("%s", error);
    }
    if (rename(tmp, path) < 0 || !disk_sync_parent(path)) die("%s: cannot rename: %s", path, strerror(errno));
    free(t);
}

// Elements of the file that begins with tensor i, and how many tensors: as many as fit.
static int file_of(const Weights *w, int i, size_t most, size_t *bytes, size_t element)
{
    int n = 0;
    for (*bytes = 0; i + n < w->n; n++) {
        size_t more = weights_elems(&w->weight[i + n]) * element;
        if (n && *bytes + more > most) break;
        *bytes += more;
    }
    return n;
}

// One file, or several with the index that says where each tensor is.
static void write_tensors(const char *dir, const Weights *w, Source *s, size_t most)
{
    int files = 0, k = 0, n;
    size_t bytes, total = 0, element = formats_bytes(s->format);
    for (int i = 0; i < w->n; i += file_of(w, i, most, &bytes, element)) files++;
    json_t *map = json_object();
    for (int i = 0; i < w->n; i += n) {
        char name[64] = "model.safetensors";
        n = file_of(w, i, most, &bytes, element);
        if (files > 1) snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", ++k, files);
        for (int j = i; j < i + n; j++) set(map, w->weight[j].name, json_string(name));
        total += bytes;
        s->first = w->weight + i;
        write_file(dir, name, s, n);
    }
    char older[PATH_MAX]; // would be read instead
    snprintf(older, sizeof older, "%.4000s/model.safetensors%s", dir, files > 1 ? "" : ".index.json");
    unlink(older);
    if (files > 1) write_json(json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map",
                                        map), dir, "model.safetensors.index.json");
    else json_decref(map);
}

const char *hf_save(const char *dir, const Config *cfg, const Model *m, const Tokenizer *tokenizer, Format format,
                    size_t shard)
{
    struct stat info;
    WeightsFamily family = weights_family(&m->shape, dir);
    int class = class_number(family, &m->shape, dir);
    Weights w = weights_table(m, weights_hf_style(&m->shape));
    size_t most = 1;
    for (int i = 0; i < w.n; i++)
        if (weights_elems(&w.weight[i]) > most) most = weights_elems(&w.weight[i]);
    Source s = {.m = m, .format = format, .theirs = malloc(most * sizeof *s.theirs), .out = malloc(most * 4)};
    if (!s.theirs || !s.out) die("%s: no memory for a tensor of %zu elements", dir, most);
    if (mkdir(dir, 0777) < 0 && (errno != EEXIST || stat(dir, &info) < 0 || !S_ISDIR(info.st_mode)))
        die("%s: cannot create the directory: %s", dir, strerror(errno));
    Ends ends = ends_of(tokenizer);
    if (tokenizer) tokenizer_save(tokenizer, dir);
    if (tokenizer) write_ends(cfg, tokenizer, ends, dir);
    write_tensors(dir, &w, &s, shard);
    write_json(config_json(class, m, cfg, format, ends), dir, "config.json");
    free(s.theirs);
    free(s.out);
    weights_free(&w);
    return class_of[class];
}
