// hf: a model's folder as Transformers writes it: config.json and safetensors, one file or shards with their index.
//
// LLaMA's class and those like it keep our matrices, (out, in), under other names. GPT-2's class keeps the four
// matrices of a block transposed, (in, out), and q, k and v as one: c_attn (C, 3C) = [q^T | k^T | v^T]. The rotary
// embedding turns the halves of a head against each other on both sides, so rows of q and k stay where they are
// (weights.h). hf_save.c is the way back. (doc/models.md)
#include "models/hf.h"

#include "base/check.h"
#include "base/words.h"
#include "tools/safetensors.h"
#include "models/weights.h"
#include "tokenizer/vocab.h"

#include <glob.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- config.json

// A class of Transformers: its kind of layers, and what a key has that config.json leaves out (configuration_*.py). 0:
// key/value heads and a head's size as the heads have them; no window. A class without windows does not read that key.
typedef struct {
    const char *type;
    QkNorm qk_norm;
    bool experts;
    double eps, context, kv_heads, head_size, theta, window, max_window_layers;
} Class;
enum { NO_WINDOWS = -1 };
static const Class classes[] = {
    {"llama", QK_NORM_NONE, false, 1e-6, 2048, 0, 0, 1e4, NO_WINDOWS, 0},
    {"mistral", QK_NORM_NONE, false, 1e-6, 131072, 8, 0, 1e4, 4096, 0},
    {"mixtral", QK_NORM_NONE, true, 1e-5, 131072, 8, 0, 1e6, 0, 0},
    {"qwen2", QK_NORM_NONE, false, 1e-6, 32768, 32, 0, 1e4, 4096, 28},
    {"qwen3", QK_NORM_HEAD, false, 1e-6, 32768, 32, 128, 1e4, 4096, 28},
    {"qwen3_moe", QK_NORM_HEAD, true, 1e-6, 32768, 4, 0, 1e4, 4096, 0},
    {"olmoe", QK_NORM_WHOLE, true, 1e-5, 4096, 0, 0, 1e4, NO_WINDOWS, 0},
    {"olmo2", QK_NORM_WHOLE, false, 1e-5, 2048, 0, 0, 1e4, NO_WINDOWS, 0},
};

typedef struct {
    char path[PATH_MAX];
    json_t *all;
    Config *cfg;
    const char *key; // of config.json, of a value that is set; NULL: of several
} Folder;

bool hf_is_folder(const char *path)
{
    char name[PATH_MAX];
    return snprintf(name, sizeof name, "%s/config.json", path) < (int)sizeof name && access(name, F_OK) == 0;
}

// The value of a key, NULL where there is none or it is null.
static const json_t *value_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

#define refuse(f, key, value, why) vocab_refuse((f)->path, key, value, why)

// One number, or a list with that number for each layer.
static double number(const Folder *f, const json_t *object, const char *key, double otherwise)
{
    const json_t *value = value_of(object, key), *list = value, *item;
    size_t i;
    json_array_foreach(list, i, item) {
        if (i && !json_equal(item, value)) refuse(f, key, list, "one number for all layers is needed");
        value = item;
    }
    if (!value && otherwise >= 0) return otherwise;
    if (!json_is_number(value)) refuse(f, key, value, "a number is needed");
    return json_number_value(value);
}

static bool flag(const Folder *f, const char *key, bool otherwise)
{
    const json_t *value = value_of(f->all, key);
    if (value && !json_is_boolean(value)) refuse(f, key, value, "true or false is needed");
    return value ? json_is_true(value) : otherwise;
}

static const char *text(const Folder *f, const json_t *object, const char *key, const char *otherwise)
{
    const json_t *value = value_of(object, key);
    if (!value && otherwise) return otherwise;
    if (!json_is_string(value)) refuse(f, key, value, "a string is needed");
    return json_string_value(value);
}

static void set_text(Folder *f, const char *key, const char *value)
{
    char name[64], where[PATH_MAX + 80];
    snprintf(name, sizeof name, "model.%s", key);
    snprintf(where, sizeof where, "%s%s%s", f->path, f->key ? ": " : "", f->key ? f->key : "");
    config_set(f->cfg, name, value, where);
}

static void set_number(Folder *f, const char *key, double value)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.17g", value);
    set_text(f, key, digits);
}

static void set_size(Folder *f, const char *ours, const char *theirs, double otherwise)
{
    f->key = theirs;
    set_number(f, ours, number(f, f->all, theirs, otherwise));
    f->key = NULL;
}

// A switch of theirs that is always as said here.
static void expect_flag(const Folder *f, const char *key, bool always, const char *why)
{
    if (flag(f, key, always) != always) refuse(f, key, value_of(f->all, key), why);
}

static void read_gpt2(Folder *f)
{
    const char *act = text(f, f->all, "activation_function", "gelu_new");
    if (strcmp(act, "gelu_new") && strcmp(act, "gelu_pytorch_tanh"))
        refuse(f, "activation_function", value_of(f->all, "activation_function"), "only the tanh GELU is known");
    expect_flag(f, "scale_attn_weights", true, "attention is always scaled by 1 / sqrt(head size)");
    expect_flag(f, "scale_attn_by_inverse_layer_idx", false, "attention is scaled by 1 / sqrt(head size) alone");
    double C = number(f, f->all, "n_embd", -1), H = number(f, f->all, "n_head", -1);
    set_size(f, "channels", "n_embd", -1), set_size(f, "heads", "n_head", -1), set_size(f, "kv_heads", "n_head", -1);
    set_number(f, "head_size", H > 0 ? C / H : 0);
    set_size(f, "layers", "n_layer", -1);
    set_size(f, "ffn", "n_inner", 4 * C);
    set_size(f, "context", "n_positions", 1024);
    set_size(f, "norm_eps", "layer_norm_epsilon", 1e-5);
    set_text(f, "norm", "layernorm"), set_text(f, "activation", "gelu"), set_text(f, "position", "learned");
    set_text(f, "bias", "true"), set_text(f, "tie", flag(f, "tie_word_embeddings", true) ? "true" : "false");
}

// Transformers 5 has all of it in rope_parameters; 4 has rope_theta, and the rest in rope_scaling, which 5 still takes
// before its own. Both take the longest text where the original one is not given.
static void read_rope(Folder *f, double usual_theta)
{
    const json_t *rope = value_of(f->all, "rope_scaling");
    if (rope && !json_is_object(rope)) refuse(f, "rope_scaling", rope, "an object is needed");
    if (!json_object_size(rope)) rope = value_of(f->all, "rope_parameters");
    static const char *const known[] = {
        "rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "beta_slow", "beta_fast",
        "low_freq_factor", "high_freq_factor", "truncate", "attention_factor", "mscale", "mscale_all_dim"};
    const char *key, *type = text(f, rope, "rope_type", text(f, rope, "type", "default"));
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)rope, key, value) {
        size_t i = 0, n = sizeof known / sizeof *known;
        while (i < n && strcmp(known[i], key)) i++;
        if (i == n && !json_is_null(value)) refuse(f, key, value, "not known here, of RoPE");
    }
    double theta = number(f, value_of(rope, "rope_theta") ? rope : f->all, "rope_theta", usual_theta);
    bool linear = !strcmp(type, "linear"), yarn = !strcmp(type, "yarn"), llama3 = !strcmp(type, "llama3");
    set_number(f, "rope_theta", theta);
    if (!strcmp(type, "default")) return;
    key = value_of(rope, "rope_type") ? "rope_type" : "type";
    if (!linear && !yarn && !llama3) refuse(f, key, value_of(rope, key), "not known here");
    for (size_t i = sizeof known / sizeof *known - 3; i < sizeof known / sizeof *known; i++)
        if ((value = value_of(rope, known[i])))
            refuse(f, known[i], value, "the factor of YaRN's paper is always used");
    if (yarn && json_is_false(value_of(rope, "truncate")))
        refuse(f, "truncate", value_of(rope, "truncate"), "the ends of YaRN's ramp are whole pairs here");
    set_text(f, "rope_scaling", type);
    set_number(f, "rope_factor", number(f, rope, "factor", -1));
    key = "original_max_position_embeddings";
    set_number(f, "rope_original", number(f, value_of(f->all, key) ? f->all : rope, key, f->cfg->model.context));
    if (linear) return;
    set_number(f, "rope_slow", number(f, rope, yarn ? "beta_slow" : "low_freq_factor", 1));
    set_number(f, "rope_fast", number(f, rope, yarn ? "beta_fast" : "high_freq_factor", yarn ? 32 : 4));
}

// Which layers have the window is a list, or (Qwen, in older folders) those from max_window_layers on, or all. Other
// classes have it on all, whatever these keys say. A window of null is none; one that is left out is the class's.
static void read_window(Folder *f, const Class *class)
{
    bool all = !class->max_window_layers;
    const json_t *window = value_of(f->all, "sliding_window"), *kinds = all ? NULL : value_of(f->all, "layer_types");
    const json_t *kind;
    double tokens = json_object_get(f->all, "sliding_window") ? 0 : class->window;
    double first = all ? 0 : number(f, f->all, "max_window_layers", class->max_window_layers);
    double layers = number(f, f->all, "num_hidden_layers", -1);
    char pattern[CONFIG_TEXT];
    size_t n = 0, i;
    if (!window && !tokens) return;
    if (window && (!json_is_integer(window) || json_integer_value(window) < 1))
        refuse(f, "sliding_window", window, "a number of tokens, 1 or more, is needed");
    if (!(layers < sizeof pattern))
        die("%s: windows of %g layers: %zu are the most", f->path, layers, sizeof pattern - 1);
    if (kinds && json_array_size(kinds) != (size_t)layers)
        refuse(f, "layer_types", kinds, "one for each layer is needed");
    json_array_foreach(kinds, i, kind) {
        const char *name = json_is_string(kind) ? json_string_value(kind) : "";
        bool full = !strcmp(name, "full_attention");
        if (!full && strcmp(name, "sliding_attention")) refuse(f, "layer_types", kind, "not known here");
        pattern[n++] = full ? 'f' : 's';
    }
    while (n < (size_t)layers) pattern[n] = (double)n < first ? 'f' : 's', n++;
    pattern[n] = 0;
    if (!strchr(pattern, 's')) return;
    set_number(f, "window", window ? json_number_value(window) : tokens);
    set_text(f, "window_pattern", strchr(pattern, 'f') ? pattern : "s");
}

// Which layers have experts is a step and a list of those that have none. Ours are every so-manyth from some layer on.
static void read_layers(Folder *f)
{
    const json_t *list = value_of(f->all, "mlp_only_layers"), *item;
    double step = number(f, f->all, "decoder_sparse_step", 1);
    size_t L = (size_t)f->cfg->model.layers, first = L, next = L, i;
    bool *dense = calloc(L + 1, sizeof *dense);
    if (!dense) die("%s: no memory for %zu layers", f->path, L);
    if (!(step >= 1 && step <= 1e6 && step == floor(step)))
        refuse(f, "decoder_sparse_step", value_of(f->all, "decoder_sparse_step"), "a number of layers is needed");
    json_array_foreach(list, i, item) {
        if (!json_is_integer(item)) refuse(f, "mlp_only_layers", item, "a layer's number is needed");
        json_int_t layer = json_integer_value(item);
        if (layer >= 0 && layer < (json_int_t)L) dense[layer] = true;
    }
    for (i = L; i-- > 0;) {
        dense[i] |= (i + 1) % (size_t)step != 0;
        if (!dense[i]) next = first, first = i;
    }
    size_t every = next - first, begin = first + 1 - every;
    bool same = first < L && every <= first + 1;
    for (i = 0; i < L && same; i++) same = dense[i] == (i < begin || (i - begin + 1) % every != 0);
    if (!same)
        refuse(f, "mlp_only_layers", list, "with decoder_sparse_step, these are not every so-manyth layer from some "
               "layer on (model.experts_dense, experts_every)");
    set_number(f, "experts_dense", (double)begin), set_number(f, "experts_every", (double)every);
    free(dense);
}

// Transformers' loss of balance is of a mean over the layers, and its shares sum to k; ours adds those of the layers,
// and the shares sum to 1.
static void read_experts(Folder *f, QkNorm qk_norm)
{
    bool mixtral = qk_norm == QK_NORM_NONE, qwen = qk_norm == QK_NORM_HEAD;
    const char *key = value_of(f->all, "num_experts") ? "num_experts" : "num_local_experts"; // one or the other
    char digits[40];
    set_size(f, "experts", key, -1);
    if (!f->cfg->model.experts) return;
    set_size(f, "experts_active", "num_experts_per_tok", -1);
    set_size(f, "experts_ffn", qwen ? "moe_intermediate_size" : "intermediate_size", -1);
    set_text(f, "experts_renorm", mixtral || flag(f, "norm_topk_prob", false) ? "true" : "false");
    if (qwen) read_layers(f);
    long k = f->cfg->model.experts_active, E = f->cfg->model.experts, F = f->cfg->model.experts_ffn;
    if (k > E || F < 1)
        die("%s: num_experts_per_tok = %ld of %s = %ld experts, each of width %ld: at most all can be used, and the "
            "width must be 1 or more", f->path, k, key, E, F);
    long with = (f->cfg->model.layers - f->cfg->model.experts_dense) / f->cfg->model.experts_every;
    double usual = qk_norm == QK_NORM_WHOLE ? 0.01 : 0.001;
    double coef = number(f, f->all, "router_aux_loss_coef", usual) * (double)k / (double)with;
    snprintf(digits, sizeof digits, "%.15g", coef);
    config_set(f->cfg, "moe.balance_coef", digits, f->path);
}

// Qwen2 has biases on q, k and v alone, LLaMA's attention_bias adds them to the output; the others are then 0 here.
static void read_llama(Folder *f, const Class *class)
{
    static const char *const norms[] = {"false", "true", "whole"};
    QkNorm qk_norm = class->qk_norm;
    bool olmo = qk_norm == QK_NORM_WHOLE, qwen2 = !strcmp(class->type, "qwen2");
    const char *act = text(f, f->all, "hidden_act", "silu");
    if (strcmp(act, "silu") && strcmp(act, "swish"))
        refuse(f, "hidden_act", value_of(f->all, "hidden_act"), "only silu is known");
    bool bias = flag(f, "attention_bias", qwen2);
    if (!bias) expect_flag(f, "mlp_bias", false, "without attention_bias: either all matrices have biases, or none");
    double C = number(f, f->all, "hidden_size", -1), H = number(f, f->all, "num_attention_heads", -1);
    bool said = json_object_get(f->all, "num_key_value_heads"); // null: as many as heads
    const json_t *clip = olmo ? value_of(f->all, "clip_qkv") : NULL;
    if (clip) refuse(f, "clip_qkv", clip, "queries, keys and values are not clipped here");
    bool asks = qwen2 || qk_norm == QK_NORM_HEAD; // Qwen's classes
    if (class->window != NO_WINDOWS && (!asks || flag(f, "use_sliding_window", false))) read_window(f, class);
    set_size(f, "channels", "hidden_size", -1), set_size(f, "heads", "num_attention_heads", -1);
    set_size(f, "context", "max_position_embeddings", class->context);
    set_size(f, "kv_heads", "num_key_value_heads", !said && class->kv_heads ? class->kv_heads : H);
    set_size(f, "head_size", "head_dim", class->head_size ? class->head_size : H > 0 ? C / H : 0);
    set_size(f, "layers", "num_hidden_layers", -1);
    set_size(f, "ffn", "intermediate_size", -1);
    set_size(f, "norm_eps", "rms_norm_eps", class->eps);
    set_text(f, "norm", "rmsnorm"), set_text(f, "activation", "swiglu"), set_text(f, "position", "rope");
    set_text(f, "bias", bias ? "true" : "false"), set_text(f, "qk_norm", norms[qk_norm]);
    set_text(f, "tie", flag(f, "tie_word_embeddings", false) ? "true" : "false");
    read_rope(f, class->theta);
    if (class->experts) read_experts(f, qk_norm);
}

// What config_set lets pass, because 0 stands there for "derived", and what no block can have.
static void check_shape(const Folder *f)
{
    const Config *c = f->cfg;
    long H = c->model.heads, G = c->model.kv_heads, D = c->model.head_size;
    if (G < 1 || H % G)
        die("%s: num_key_value_heads = %ld: must divide num_attention_heads, %ld", f->path, G, H);
    if (D < 1 || c->model.ffn < 1 || c->model.vocab < 1)
        die("%s: head_dim = %ld, a feed-forward of %ld, vocab_size = %ld: all must be 1 or more", f->path, D,
            c->model.ffn, c->model.vocab);
    if (c->model.position == CONFIG_POSITION_ROPE && D % 2)
        die("%s: head_dim = %ld: RoPE turns pairs, so it must be even", f->path, D);
}

// What blocks of other types have, and ours have not. The first name that a type begins with counts.
static const char *why_not(const char *type)
{
    static const char *const known[][2] = {
        {"gemma", "its blocks scale the embedding and add 1 to the weights of a norm; later ones also cap the logits"},
        {"phi3", "its q, k and v are one matrix, and so are gate and up"},
        {"qwen2_moe", "what all tokens' expert gives is multiplied by a sigmoid"},
        {"gpt_neox", "its attention and feed-forward read the same input, and RoPE turns a part of a head"},
        {"deepseek", "its keys and values come from a smaller latent vector, and experts are chosen"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strncmp(type, known[i][0], strlen(known[i][0]))) return known[i][1];
    return "not known here (gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, olmoe, olmo2)";
}

void hf_config(const char *dir, Config *cfg)
{
    Folder f = {.cfg = cfg};
    if (snprintf(f.path, sizeof f.path, "%s/config.json", dir) >= (int)sizeof f.path) die("%s: too long a name", dir);
    f.all = vocab_read_json(f.path, 0);
    const char *type = text(&f, f.all, "model_type", NULL);
    const Class *class = classes, *end = classes + sizeof classes / sizeof *classes;
    while (class < end && strcmp(class->type, type)) class++;
    if (class < end) read_llama(&f, class);
    else if (!strcmp(type, "gpt2")) read_gpt2(&f);
    else refuse(&f, "model_type", value_of(f.all, "model_type"),
                value_of(f.all, "text_config") ? "text_config is a part of it: save that model alone" : why_not(type));
    const json_t *packed = value_of(f.all, "quantization_config");
    if (packed) refuse(&f, "quantization_config", packed, "quantised weights are not read here");
    if (number(&f, f.all, "partial_rotary_factor", 1) != 1)
        refuse(&f, "partial_rotary_factor", value_of(f.all, "partial_rotary_factor"), "all of a head is turned");
    set_text(&f, "norm_place", !strcmp(type, "olmo2") ? "output" : "input");
    set_size(&f, "vocab", "vocab_size", -1);
    check_shape(&f);
    json_decref(f.all);
}

// ---- tensors

// All tensors of the folder's files, by their names.
enum { MAX_FILES = 1000 };
typedef struct {
    const char *dir;
    SafeTensors *file[MAX_FILES];
    int n;
    Words name;
    struct { const SafeTensor *tensor; const char *path; } *at; // (name.n)
    size_t cap;
    bool tied;
} Files;

static const SafeTensor *find(const Files *f, const char *name)
{
    int64_t i = words_find(&f->name, name, strlen(name));
    return i < 0 ? NULL : f->at[i].tensor;
}

// A tensor in two shards: a peer takes the one that it reads last, so both must be the same.
static void add_tensor(Files *f, const SafeTensor *t, const char *path)
{
    size_t known = f->name.n, i = words_add(&f->name, t->name, strlen(t->name));
    const SafeTensor *other = i < known ? f->at[i].tensor : t;
    if (other->n_bytes != t->n_bytes || memcmp(other->data, t->data, t->n_bytes))
        die("%s: %s is another one than in %s (delete the shards of the older model)", path, t->name, f->at[i].path);
    f->at = words_grow(f->at, &f->cap, f->name.n, sizeof *f->at);
    f->at[i].tensor = t, f->at[i].path = path;
}

static void open_file(Files *f, const char *name)
{
    char path[PATH_MAX], error[600];
    for (int i = 0; i < f->n; i++)
        if (!strcmp(strrchr(f->file[i]->path, '/') + 1, name)) return;
    if (!*name || strchr(name, '/') || snprintf(path, sizeof path, "%s/%s", f->dir, name) >= (int)sizeof path)
        die("%s: a shard called '%s'", f->dir, name);
    if (f->n == MAX_FILES) die("%s: more than %d shards", f->dir, MAX_FILES);
    SafeTensors *st = f->file[f->n++] = safetensors_open(path, error, sizeof error);
    if (!st) die("%s", error);
    for (int i = 0; i < st->n; i++) add_tensor(f, &st->tensor[i], st->path);
}

// As Transformers does: the single file where it is there, and else the shards that the index names.
static Files open_files(const char *dir)
{
    Files f = {.dir = dir};
    char path[PATH_MAX];
    glob_t other = {0};
    json_t *file;
    const char *name;
    if (snprintf(path, sizeof path, "%s/model.safetensors", dir) >= PATH_MAX - 12) die("%s: too long a name", dir);
    if (access(path, F_OK) == 0) return open_file(&f, "model.safetensors"), f;
    strcat(path, ".index.json");
    if (access(path, F_OK) != 0) {
        snprintf(path, sizeof path, "%s/*.{safetensors,bin,pt,pth,gguf}", dir);
        bool some = glob(path, GLOB_BRACE, NULL, &other) == 0;
        die("%s: neither model.safetensors nor model.safetensors.index.json is there%s%s (in Python, save_pretrained "
            "writes them)", dir, some ? ", but " : "", some ? strrchr(other.gl_pathv[0], '/') + 1 : "");
    }
    json_t *index = vocab_read_json(path, 0), *map = json_object_get(index, "weight_map");
    if (!json_is_object(map)) die("%s: no weight_map", path);
    json_object_foreach(map, name, file) {
        if (!json_is_string(file)) die("%s: %s: the name of a file is needed", path, name);
        open_file(&f, json_string_value(file));
    }
    json_decref(index);
    return f;
}

// Of a tensor that is not there: dies where a longer name ends in its name, as of a model that was saved in another.
static void refuse_inside(const Files *f, const char *name, const char *short_name)
{
    size_t n = strlen(short_name);
    for (size_t i = 0; i < f->name.n; i++) {
        const char *full = f->at[i].tensor->name, *end = full + strlen(full);
        if ((size_t)(end - full) > n && *(end - n - 1) == '.' && !strcmp(end - n, short_name))
            die("%s: no tensor %s, but %s: the model is inside another one, or in a compiled module (save its own "
                "state_dict)", f->at[i].path, name, full);
    }
}

// The embedding, where the head is tied to it and may be there too, or alone. Of two that differ one is lost.
static const SafeTensor *find_tied(const Files *f, const SafeTensor *t)
{
    const SafeTensor *head = find(f, "lm_head.weight");
    if (t && head && (t->n_bytes != head->n_bytes || memcmp(t->data, head->data, t->n_bytes)))
        die("%s: lm_head.weight is not %s, and tie_word_embeddings is true (Transformers 4 ties them, 5 does not: set "
            "it to false, or take lm_head.weight out)", f->dir, t->name);
    return t ? t : head;
}

// A model that was saved without its head, as its base class, has no "transformer." or "model." in its names.
static bool read_tensor(void *self, const Weight *w, float *theirs)
{
    const Files *f = self;
    const char *base = w->name + (!strncmp(w->name, "transformer.", 12) ? 12 : !strncmp(w->name, "model.", 6) ? 6 : 0);
    const SafeTensor *t = find(f, w->name);
    if (!t) t = find(f, base);
    if (f->tied && !strcmp(w->first->name, "embed.tokens.weight")) t = find_tied(f, t);
    if (!t) return refuse_inside(f, w->name, base), false;
    size_t have[2] = {t->ndim > 0 ? t->shape[0] : 1, t->ndim > 1 ? t->shape[1] : 1};
    if (t->ndim != w->ndim || have[0] != w->dim[0] || have[1] != w->dim[1])
        die("%s: %s is %zu x %zu, and config.json says %zu x %zu", f->dir, t->name, have[0], have[1], w->dim[0],
            w->dim[1]);
    if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
        die("%s: %s is of type %s (F32, F16 and BF16 are read)", f->dir, t->name, safetensors_dtype_name(t->dtype));
    formats_to_float(theirs, t->dtype == ST_F32 ? FORMAT_FP32 : t->dtype == ST_F16 ? FORMAT_FP16 : FORMAT_BF16,
                     t->data, t->n_elems);
    return true;
}

void hf_load(const char *dir, Model *m)
{
    Files f = open_files(dir);
    f.tied = m->shape.tie;
    weights_load(m, weights_hf_style(&m->shape), (WeightsSource){.path = dir, .read = read_tensor, .self = &f});
    while (f.n) safetensors_close(f.file[--f.n]);
    words_free(&f.name);
    free(f.at);
}
