// hf: a model's folder as Transformers writes it: config.json and safetensors, one file or shards with their index.
//
// LLaMA's class and those like it keep our matrices, (out, in), under other names. GPT-2's class keeps the four
// matrices of a block transposed, (in, out), and q, k and v as one: c_attn (C, 3C) = [q^T | k^T | v^T]. The rotary
// embedding turns the halves of a head against each other on both sides, so rows of q and k stay where they are.
// dev/export.c is the way back. (doc/hf.md)
#include "models/hf.h"

#include "base/check.h"
#include "base/formats.h"
#include "base/safetensors.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// ---- config.json

typedef struct {
    char path[PATH_MAX];
    json_t *all;
    Config *cfg;
} Folder;

bool hf_is_folder(const char *path)
{
    char name[PATH_MAX];
    struct stat info;
    return snprintf(name, sizeof name, "%s/config.json", path) < (int)sizeof name && stat(name, &info) == 0;
}

// The value of a key, NULL where there is none or it is null.
static const json_t *value_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

static void refuse(const Folder *f, const char *key, const json_t *value, const char *what)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    die("%s: %s = %.80s: %s", f->path, key, text ? text : "null", what);
}

static double number(const Folder *f, const json_t *object, const char *key, double otherwise)
{
    const json_t *value = value_of(object, key);
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
    char name[64];
    snprintf(name, sizeof name, "model.%s", key);
    config_set(f->cfg, name, value, f->path);
}

static void set_number(Folder *f, const char *key, double value)
{
    char digits[40];
    snprintf(digits, sizeof digits, "%.17g", value);
    set_text(f, key, digits);
}

static void set_size(Folder *f, const char *ours, const char *theirs, double otherwise)
{
    set_number(f, ours, number(f, f->all, theirs, otherwise));
}

static void read_gpt2(Folder *f)
{
    const char *act = text(f, f->all, "activation_function", "gelu_new");
    if (strcmp(act, "gelu_new") && strcmp(act, "gelu_pytorch_tanh"))
        refuse(f, "activation_function", value_of(f->all, "activation_function"), "only the tanh GELU is known");
    if (!flag(f, "scale_attn_weights", true) || flag(f, "scale_attn_by_inverse_layer_idx", false))
        die("%s: scale_attn_weights, scale_attn_by_inverse_layer_idx: attention is always scaled by 1 / sqrt(head "
            "size)", f->path);
    double C = number(f, f->all, "n_embd", -1), H = number(f, f->all, "n_head", -1);
    set_number(f, "channels", C), set_number(f, "heads", H), set_number(f, "kv_heads", H);
    set_number(f, "head_size", H > 0 ? C / H : 0);
    set_size(f, "layers", "n_layer", -1);
    set_size(f, "ffn", "n_inner", 4 * C);
    set_size(f, "context", "n_positions", 1024);
    set_size(f, "norm_eps", "layer_norm_epsilon", 1e-5);
    set_text(f, "norm", "layernorm"), set_text(f, "activation", "gelu"), set_text(f, "position", "learned");
    set_text(f, "bias", "true"), set_text(f, "tie", flag(f, "tie_word_embeddings", true) ? "true" : "false");
}

// Transformers 5 has all of it in rope_parameters; 4 has rope_theta, and the rest in rope_scaling.
static void read_rope(Folder *f)
{
    const json_t *rope = value_of(f->all, "rope_parameters"), *old = value_of(f->all, "rope_scaling");
    if (!rope) rope = old;
    const char *type = text(f, rope, "rope_type", text(f, rope, "type", "default"));
    double theta = number(f, rope, "rope_theta", number(f, f->all, "rope_theta", 10000));
    bool linear = !strcmp(type, "linear"), yarn = !strcmp(type, "yarn"), llama3 = !strcmp(type, "llama3");
    set_number(f, "rope_theta", theta);
    if (!strcmp(type, "default")) return;
    if (!linear && !yarn && !llama3) refuse(f, "rope_type", value_of(rope, "rope_type"), "not known here");
    if (value_of(rope, "attention_factor") || value_of(rope, "mscale"))
        die("%s: attention_factor, mscale: the factor of YaRN's paper is always used", f->path);
    set_text(f, "rope_scaling", type);
    set_number(f, "rope_factor", number(f, rope, "factor", -1));
    set_number(f, "rope_original", number(f, rope, "original_max_position_embeddings",
                                          linear ? number(f, f->all, "max_position_embeddings", 2048) : -1));
    if (linear) return;
    set_number(f, "rope_slow", number(f, rope, yarn ? "beta_slow" : "low_freq_factor", 1));
    set_number(f, "rope_fast", number(f, rope, yarn ? "beta_fast" : "high_freq_factor", yarn ? 32 : 4));
}

static void read_llama(Folder *f, bool qk_norm)
{
    if (strcmp(text(f, f->all, "hidden_act", "silu"), "silu"))
        refuse(f, "hidden_act", value_of(f->all, "hidden_act"), "only silu is known");
    bool bias = flag(f, "attention_bias", false);
    if (bias != flag(f, "mlp_bias", false))
        die("%s: attention_bias and mlp_bias: either all matrices have biases, or none", f->path);
    double C = number(f, f->all, "hidden_size", -1), H = number(f, f->all, "num_attention_heads", -1);
    double T = number(f, f->all, "max_position_embeddings", 2048);
    const json_t *window = value_of(f->all, "sliding_window");
    if (window && flag(f, "use_sliding_window", !qk_norm) && json_number_value(window) < T)
        refuse(f, "sliding_window", window, "windows are not known here");
    set_number(f, "channels", C), set_number(f, "heads", H), set_number(f, "context", T);
    set_size(f, "kv_heads", "num_key_value_heads", H);
    set_size(f, "head_size", "head_dim", H > 0 ? C / H : 0);
    set_size(f, "layers", "num_hidden_layers", -1);
    set_size(f, "ffn", "intermediate_size", -1);
    set_size(f, "norm_eps", "rms_norm_eps", 1e-6);
    set_text(f, "norm", "rmsnorm"), set_text(f, "activation", "swiglu"), set_text(f, "position", "rope");
    set_text(f, "bias", bias ? "true" : "false"), set_text(f, "qk_norm", qk_norm ? "true" : "false");
    set_text(f, "tie", flag(f, "tie_word_embeddings", false) ? "true" : "false");
    read_rope(f);
}

// What config_set lets pass, because 0 stands there for "derived", and what no block can have.
static void check_shape(const Folder *f)
{
    const Config *c = f->cfg;
    long H = c->model.heads, G = c->model.kv_heads, D = c->model.head_size;
    if (G < 1 || H % G) die("%s: %ld heads and %ld key/value heads: the second must divide the first", f->path, H, G);
    if (D < 1 || c->model.ffn < 1 || c->model.vocab < 1)
        die("%s: a head of %ld, a feed-forward of %ld, a vocabulary of %ld: all must be 1 or more", f->path, D,
            c->model.ffn, c->model.vocab);
    if (c->model.position == CONFIG_POSITION_ROPE && D % 2)
        die("%s: a head of %ld: RoPE turns pairs, so it must be even", f->path, D);
}

void hf_config(const char *dir, Config *cfg)
{
    Folder f = {.cfg = cfg};
    json_error_t error;
    if (snprintf(f.path, sizeof f.path, "%s/config.json", dir) >= (int)sizeof f.path) die("%s: too long a name", dir);
    f.all = json_load_file(f.path, 0, &error);
    if (!f.all) die("%s:%d: %s", f.path, error.line, error.text);
    const char *type = text(&f, f.all, "model_type", NULL);
    bool qwen3 = !strcmp(type, "qwen3");
    if (!strcmp(type, "gpt2")) read_gpt2(&f);
    else if (qwen3 || !strcmp(type, "llama") || !strcmp(type, "mistral")) read_llama(&f, qwen3);
    else refuse(&f, "model_type", value_of(f.all, "model_type"), "not known here (gpt2, llama, mistral, qwen3)");
    set_size(&f, "vocab", "vocab_size", -1);
    check_shape(&f);
    json_decref(f.all);
}

// ---- tensors

enum { MAX_FILES = 1000 };
typedef struct {
    const char *dir;
    SafeTensors *file[MAX_FILES];
    int n;
} Files;

static void open_file(Files *f, const char *name)
{
    char path[PATH_MAX], error[600];
    for (int i = 0; i < f->n; i++)
        if (!strcmp(strrchr(f->file[i]->path, '/') + 1, name)) return;
    if (strchr(name, '/') || snprintf(path, sizeof path, "%s/%s", f->dir, name) >= (int)sizeof path)
        die("%s: a shard called %s", f->dir, name);
    if (f->n == MAX_FILES) die("%s: more than %d shards", f->dir, MAX_FILES);
    f->file[f->n] = safetensors_open(path, error, sizeof error);
    if (!f->file[f->n++]) die("%s", error);
}

static Files open_files(const char *dir)
{
    Files f = {.dir = dir};
    char path[PATH_MAX];
    json_error_t error;
    struct stat info;
    if (snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir) >= (int)sizeof path)
        die("%s: too long a name", dir);
    if (stat(path, &info) != 0) {
        open_file(&f, "model.safetensors");
        return f;
    }
    json_t *index = json_load_file(path, 0, &error), *map = json_object_get(index, "weight_map"), *file;
    if (!json_is_object(map)) die("%s:%d: %s", path, index ? 0 : error.line, index ? "no weight_map" : error.text);
    const char *name;
    json_object_foreach(map, name, file) {
        if (!json_is_string(file)) die("%s: %s: the name of a file is needed", path, name);
        open_file(&f, json_string_value(file));
    }
    json_decref(index);
    return f;
}

static const SafeTensor *find(const Files *f, const char *name)
{
    for (int i = 0; i < f->n; i++) {
        const SafeTensor *t = safetensors_find(f->file[i], name);
        if (t) return t;
    }
    return NULL;
}

// Our names of a block's parts, or of the whole model's, GPT-2's, and LLaMA's.
static const struct {
    const char *ours, *gpt2, *llama;
    int part; // of a matrix of three
} names[] = {
    {"embed.tokens", "wte", "model.embed_tokens", 0}, {"embed.positions", "wpe", NULL, 0},
    {"final_norm", "ln_f", "model.norm", 0},          {"head", "lm_head", "lm_head", 0},
    {"attn_norm", "ln_1", "input_layernorm", 0},      {"ffn_norm", "ln_2", "post_attention_layernorm", 0},
    {"attn.q", "attn.c_attn", "self_attn.q_proj", 0}, {"attn.k", "attn.c_attn", "self_attn.k_proj", 1},
    {"attn.v", "attn.c_attn", "self_attn.v_proj", 2}, {"attn.out", "attn.c_proj", "self_attn.o_proj", 0},
    {"attn.q_norm", NULL, "self_attn.q_norm", 0},     {"attn.k_norm", NULL, "self_attn.k_norm", 0},
    {"ffn.up", "mlp.c_fc", "mlp.up_proj", 0},         {"ffn.gate", NULL, "mlp.gate_proj", 0},
    {"ffn.down", "mlp.c_proj", "mlp.down_proj", 0},
};

// Where a row of our table stands: the tensor, and the first of its columns if it is transposed.
typedef struct {
    char name[200];
    bool transposed;
    int part;
} Place;

static Place place_of(const char *row, bool gpt2)
{
    Place p = {.part = -1};
    int layer = -1, skip = 0;
    const char *kind = strrchr(row, '.'); // .weight or .bias
    if (sscanf(row, "layers.%d.%n", &layer, &skip) == 1) row += skip;
    for (size_t i = 0; i < sizeof names / sizeof *names && p.part < 0; i++) {
        const char *theirs = gpt2 ? names[i].gpt2 : names[i].llama;
        size_t n = (size_t)(kind - row);
        if (!theirs || strlen(names[i].ours) != n || memcmp(names[i].ours, row, n)) continue;
        p.part = gpt2 ? names[i].part : 0;
        if (layer < 0) snprintf(p.name, sizeof p.name, "%s%s", theirs, kind);
        else snprintf(p.name, sizeof p.name, "%s.%d.%s%s", gpt2 ? "h" : "model.layers", layer, theirs, kind);
        p.transposed = gpt2 && layer >= 0 && strchr(theirs, '.') != NULL;
    }
    check(p.part >= 0);
    return p;
}

// GPT-2's files from before it had a head have no "transformer." in their names.
static const SafeTensor *find_either(const Files *f, const Place *p, bool gpt2)
{
    char longer[240];
    snprintf(longer, sizeof longer, "transformer.%s", p->name);
    const SafeTensor *t = find(f, p->name);
    if (!t && gpt2) t = find(f, longer);
    if (!t) die("%s: no tensor %s%s", f->dir, gpt2 ? "[transformer.]" : "", p->name);
    return t;
}

static void load_row(const Files *f, const Param *row, float *out, bool gpt2)
{
    Place p = place_of(row->name, gpt2);
    const SafeTensor *t = find_either(f, &p, gpt2);
    size_t n_out = row->dim[0], n_in = row->ndim == 2 ? row->dim[1] : 1;
    bool fused = gpt2 && strstr(p.name, "c_attn"), turned = p.transposed && row->ndim == 2;
    size_t ld = fused ? 3 * n_out : n_out, at = (size_t)p.part * n_out;
    size_t rows = turned ? n_in : ld, cols = turned ? ld : n_in;
    if (t->ndim != row->ndim || t->shape[0] != rows || (row->ndim == 2 && t->shape[1] != cols))
        die("%s: %s has another shape than config.json says: %zu x %zu are needed", f->dir, t->name, rows, cols);
    if (t->dtype != ST_F32 && t->dtype != ST_F16 && t->dtype != ST_BF16)
        die("%s: %s is of a type that is not known here (F32, F16, BF16)", f->dir, t->name);
    Format format = t->dtype == ST_F32 ? FORMAT_FP32 : t->dtype == ST_F16 ? FORMAT_FP16 : FORMAT_BF16;
    if (!turned) {
        formats_to_float(out, format, (const char *)t->data + at * formats_bytes(format), row->n_elems);
        return;
    }
    float *line = malloc(ld * sizeof *line);
    if (!line) die("%s: no memory for %zu numbers", f->dir, ld);
    for (size_t i = 0; i < n_in; i++) {
        formats_to_float(line, format, (const char *)t->data + i * ld * formats_bytes(format), ld);
        for (size_t o = 0; o < n_out; o++) out[o * n_in + i] = line[at + o];
    }
    free(line);
}

void hf_load(const char *dir, Model *m)
{
    Files f = open_files(dir);
    for (int i = 0; i < m->params.n_rows; i++)
        load_row(&f, &m->params.row[i], m->weights + m->params.row[i].offset, !m->shape.rope);
    model_weights_changed(m);
    while (f.n) safetensors_close(f.file[--f.n]);
}
