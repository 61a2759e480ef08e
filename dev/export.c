// export: the weights of a checkpoint for other programs.
//
//   build/export CHECKPOINT_OR_RUN --to safetensors --out FILE   our names, one file of whole tensors
//   build/export CHECKPOINT_OR_RUN --to state --out FILE         the same with the optimizer's tensors
//   build/export CHECKPOINT_OR_RUN --to hf --out DIR             a folder for Transformers: model and tokenizer
//
// A run stands for its newest checkpoint. Hashes are checked before anything is written; the output is
// written under a temporary name and renamed.
//
// Transformers has a class for each of the two families. LlamaForCausalLM keeps our layout: only the names
// change (the rotary embedding is rotate-half on both sides, so q and k need no permutation). Qwen3ForCausalLM is the
// same with a norm of each head's queries and keys before the rotation.
// GPT2LMHeadModel keeps the four matrices of a block as Conv1D, (in, out), so they are transposed; and it
// fuses q, k and v:
//   c_attn.weight (C, 3C) = [q.weight^T | k.weight^T | v.weight^T], c_attn.bias (3C) = [q.bias | k.bias | v.bias]
// Its dropouts default to 0.1 and are written as 0. A tied head is left out, as Transformers does.
// A model that none of them can express (a mixture of the two families, say) is refused.
#include "base/check.h"
#include "train/ckpt.h"
#include "base/disk.h"
#include "base/config.h"
#include "ops/rope.h"
#include "base/safetensors.h"
#include "text/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- the list of tensors to write; owns names, shapes and converted data

typedef struct {
    SafeTensor *tensor;
    void **owned;
    int n, n_owned, cap;
} List;

static void *own(List *l, void *ptr)
{
    if (!ptr) die("export: no memory");
    l->owned[l->n_owned++] = ptr;
    return ptr;
}

static List list_make(int cap)
{
    List l = {calloc((size_t)cap, sizeof *l.tensor), calloc(3 * (size_t)cap, sizeof *l.owned), 0, 0, cap};
    if (!l.tensor || !l.owned) die("export: no memory");
    return l;
}

static void list_free(List *l)
{
    for (int i = 0; i < l->n_owned; i++) free(l->owned[i]);
    free(l->owned);
    free(l->tensor);
}

// Appends `name` with the shape and data given.
static void list_add(List *l, const char *name, int ndim, size_t dim0, size_t dim1, const void *data)
{
    check(l->n < l->cap);
    size_t *shape = own(l, malloc(2 * sizeof *shape));
    shape[0] = dim0;
    shape[1] = dim1;
    l->tensor[l->n++] = (SafeTensor){
        .name = own(l, strdup(name)), .dtype = ST_F32, .ndim = ndim, .shape = shape, .data = data};
}

static const SafeTensor *find(const Ckpt *c, const char *name)
{
    for (int i = 0; i < c->n_model; i++)
        if (!strcmp(c->tensor[i]->name, name)) return c->tensor[i];
    die("%s: no tensor %s", c->dir, name);
}

// ---- Transformers

typedef struct {
    size_t layers, channels, heads, kv_heads, head_size, ffn, vocab, context;
    double norm_eps;
    Rope rope;
    bool llama, bias, tie, qk_norm;
} Shape;

static const char *class_of(const Shape *s)
{
    return !s->llama ? "GPT2LMHeadModel" : s->qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM";
}

static const char *model_key(const Ckpt *c, const char *key, char value[64])
{
    if (!c->state.config) die("%s: holds no configuration (only --to safetensors is possible)", c->dir);
    if (!ckpt_model_key(c->state.config, key, value, 64))
        die("%s: its configuration has no model.%s", c->dir, key);
    return value;
}

static bool key_is(const Ckpt *c, const char *key, const char *expected)
{
    char value[64];
    return !strcmp(model_key(c, key, value), expected);
}

static double key_number(const Ckpt *c, const char *key)
{
    char value[64], *end;
    double x = strtod(model_key(c, key, value), &end);
    if (end == value || *end) die("%s: model.%s: %s: not a number", c->dir, key, value);
    return x;
}

static Rope read_rope(const Ckpt *c)
{
    static const char *const kinds[] = {"none", "linear", "ntk", "yarn", "llama3"};
    Rope rope = {.theta = (float)key_number(c, "rope_theta")};
    char kind[64];
    if (!ckpt_model_key(c->state.config, "rope_scaling", kind, sizeof kind)) return rope; // older than the key
    while (rope.kind <= ROPE_LLAMA3 && strcmp(kinds[rope.kind], kind)) rope.kind++;
    if (rope.kind > ROPE_LLAMA3) die("%s: model.rope_scaling: '%s': not known here", c->dir, kind);
    if (rope.kind == ROPE_NONE) return rope;
    rope.factor = (float)key_number(c, "rope_factor");
    rope.original = (float)key_number(c, "rope_original");
    if (rope.kind < ROPE_YARN) return rope;
    rope.slow = (float)key_number(c, "rope_slow");
    rope.fast = (float)key_number(c, "rope_fast");
    return rope;
}

// The shape of a model that one of the classes can express; dies on any other.
static Shape read_shape(const Ckpt *c)
{
    Shape s = {.layers = (size_t)key_number(c, "layers"),
               .channels = (size_t)key_number(c, "channels"),
               .heads = (size_t)key_number(c, "heads"),
               .kv_heads = (size_t)key_number(c, "kv_heads"),
               .head_size = (size_t)key_number(c, "head_size"),
               .ffn = (size_t)key_number(c, "ffn"),
               .vocab = find(c, "embed.tokens.weight")->shape[0],
               .context = (size_t)key_number(c, "context"),
               .norm_eps = key_number(c, "norm_eps"),
               .bias = key_is(c, "bias", "true"),
               .tie = key_is(c, "tie", "true"),
               .qk_norm = key_is(c, "qk_norm", "true"),
               .llama = key_is(c, "position", "rope")};
    bool llama = key_is(c, "norm", "rmsnorm") && key_is(c, "activation", "swiglu") && s.llama;
    bool gpt2 = key_is(c, "norm", "layernorm") && key_is(c, "activation", "gelu") && !s.llama && s.bias &&
                s.kv_heads == s.heads && s.head_size * s.heads == s.channels;
    if ((!llama && !gpt2) || (s.qk_norm && (!llama || s.bias)))
        die("%s: neither GPT2LMHeadModel nor LlamaForCausalLM nor Qwen3ForCausalLM can express this model (norm, "
            "activation, position, bias and qk_norm must be one family's; use --to safetensors)", c->dir);
    if (s.llama) s.rope = read_rope(c);
    return s;
}

// Transposes t (out, in) into columns `at`, at + 1, ... of out (in, ld).
static void transpose_into(float *out, size_t ld, size_t at, const SafeTensor *t)
{
    size_t rows = t->shape[0], cols = t->shape[1];
    const float *w = t->data;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) out[j * ld + at + i] = w[i * cols + j];
}

// Adds PREFIX.weight (in, sum of out) and PREFIX.bias from n linears of layer i stacked along out.
static void add_conv1d(List *l, const Ckpt *c, const char *prefix, size_t i, const char *const *linear,
                       int n)
{
    char name[128];
    const SafeTensor *w[3] = {NULL}, *b[3] = {NULL};
    size_t out = 0, at = 0;
    for (int k = 0; k < n; k++) {
        snprintf(name, sizeof name, "layers.%zu.%s.weight", i, linear[k]);
        w[k] = find(c, name);
        snprintf(name, sizeof name, "layers.%zu.%s.bias", i, linear[k]);
        b[k] = find(c, name);
        out += w[k]->shape[0];
    }
    check(n >= 1 && n <= 3);
    size_t in = w[0]->shape[1];
    float *weight = own(l, malloc(in * out * sizeof *weight)), *bias = own(l, malloc(out * sizeof *bias));
    for (int k = 0; k < n; k++) {
        transpose_into(weight, out, at, w[k]);
        memcpy(bias + at, b[k]->data, b[k]->n_bytes);
        at += w[k]->shape[0];
    }
    snprintf(name, sizeof name, "transformer.h.%zu.%s.weight", i, prefix);
    list_add(l, name, 2, in, out, weight);
    snprintf(name, sizeof name, "transformer.h.%zu.%s.bias", i, prefix);
    list_add(l, name, 1, out, 0, bias);
}

// Adds a tensor unchanged, under another name.
static void add_as(List *l, const Ckpt *c, const char *theirs, const char *ours)
{
    const SafeTensor *t = find(c, ours);
    list_add(l, theirs, t->ndim, t->shape[0], t->ndim == 2 ? t->shape[1] : 0, t->data);
}

// The same for a tensor of block i.
static void add_block(List *l, const Ckpt *c, const char *theirs, const char *ours, size_t i)
{
    char a[128], b[128];
    snprintf(a, sizeof a, "%s.%zu.%s", strncmp(theirs, "ln_", 3) ? "model.layers" : "transformer.h", i,
             theirs);
    snprintf(b, sizeof b, "layers.%zu.%s", i, ours);
    add_as(l, c, a, b);
}

static void add_gpt2(List *l, const Ckpt *c, const Shape *s)
{
    static const char *const qkv[] = {"attn.q", "attn.k", "attn.v"}, *const out[] = {"attn.out"},
                             *const up[] = {"ffn.up"}, *const down[] = {"ffn.down"};
    add_as(l, c, "transformer.wte.weight", "embed.tokens.weight");
    add_as(l, c, "transformer.wpe.weight", "embed.positions.weight");
    for (size_t i = 0; i < s->layers; i++) {
        add_block(l, c, "ln_1.weight", "attn_norm.weight", i);
        add_block(l, c, "ln_1.bias", "attn_norm.bias", i);
        add_conv1d(l, c, "attn.c_attn", i, qkv, 3);
        add_conv1d(l, c, "attn.c_proj", i, out, 1);
        add_block(l, c, "ln_2.weight", "ffn_norm.weight", i);
        add_block(l, c, "ln_2.bias", "ffn_norm.bias", i);
        add_conv1d(l, c, "mlp.c_fc", i, up, 1);
        add_conv1d(l, c, "mlp.c_proj", i, down, 1);
    }
    add_as(l, c, "transformer.ln_f.weight", "final_norm.weight");
    add_as(l, c, "transformer.ln_f.bias", "final_norm.bias");
    if (!s->tie) add_as(l, c, "lm_head.weight", "head.weight");
}

static void add_llama(List *l, const Ckpt *c, const Shape *s)
{
    static const char *const names[][2] = {
        {"self_attn.q_proj", "attn.q"}, {"self_attn.k_proj", "attn.k"}, {"self_attn.v_proj", "attn.v"},
        {"self_attn.o_proj", "attn.out"}, {"mlp.gate_proj", "ffn.gate"}, {"mlp.up_proj", "ffn.up"},
        {"mlp.down_proj", "ffn.down"}};
    add_as(l, c, "model.embed_tokens.weight", "embed.tokens.weight");
    for (size_t i = 0; i < s->layers; i++) {
        add_block(l, c, "input_layernorm.weight", "attn_norm.weight", i);
        add_block(l, c, "post_attention_layernorm.weight", "ffn_norm.weight", i);
        if (s->qk_norm) add_block(l, c, "self_attn.q_norm.weight", "attn.q_norm.weight", i);
        if (s->qk_norm) add_block(l, c, "self_attn.k_norm.weight", "attn.k_norm.weight", i);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            for (int bias = 0; bias <= (s->bias ? 1 : 0); bias++) {
                char theirs[64], ours[64];
                snprintf(theirs, sizeof theirs, "%s.%s", names[k][0], bias ? "bias" : "weight");
                snprintf(ours, sizeof ours, "%s.%s", names[k][1], bias ? "bias" : "weight");
                add_block(l, c, theirs, ours, i);
            }
    }
    add_as(l, c, "model.norm.weight", "final_norm.weight");
    if (!s->tie) add_as(l, c, "lm_head.weight", "head.weight");
}

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
    double theta = r->theta;
    if (r->kind == ROPE_NTK && head_size > 2) theta *= pow(r->factor, (double)head_size / ((double)head_size - 2));
    json_t *rope = json_pack("{s:s, s:f}", "rope_type", types[r->kind], "rope_theta", theta);
    if (r->kind != ROPE_NONE && r->kind != ROPE_NTK) set(rope, "factor", json_real(r->factor));
    if (r->kind >= ROPE_YARN) set_size(rope, "original_max_position_embeddings", (size_t)r->original);
    if (r->kind >= ROPE_YARN) set(rope, r->kind == ROPE_YARN ? "beta_slow" : "low_freq_factor", json_real(r->slow));
    if (r->kind >= ROPE_YARN) set(rope, r->kind == ROPE_YARN ? "beta_fast" : "high_freq_factor", json_real(r->fast));
    set(config, "rope_theta", json_real(theta));
    if (r->kind != ROPE_NONE && r->kind != ROPE_NTK) set(config, "rope_scaling", json_deep_copy(rope));
    set(config, "rope_parameters", rope);
}

static void set_llama(json_t *config, const Shape *s)
{
    set_size(config, "hidden_size", s->channels);
    set_size(config, "intermediate_size", s->ffn);
    set_size(config, "num_hidden_layers", s->layers);
    set_size(config, "num_attention_heads", s->heads);
    set_size(config, "num_key_value_heads", s->kv_heads);
    set_size(config, "head_dim", s->head_size);
    set_size(config, "max_position_embeddings", s->context);
    set(config, "hidden_act", json_string("silu"));
    set(config, "rms_norm_eps", json_real(s->norm_eps));
    set(config, "attention_bias", json_boolean(s->bias));
    set(config, "mlp_bias", json_boolean(s->bias));
    set_rope(config, &s->rope, s->head_size);
}

static void set_gpt2(json_t *config, const Shape *s)
{
    set_size(config, "n_embd", s->channels);
    set_size(config, "n_inner", s->ffn);
    set_size(config, "n_layer", s->layers);
    set_size(config, "n_head", s->heads);
    set_size(config, "n_positions", s->context);
    set(config, "activation_function", json_string("gelu_new"));
    set(config, "layer_norm_epsilon", json_real(s->norm_eps));
    set(config, "resid_pdrop", json_real(0));
    set(config, "embd_pdrop", json_real(0));
    set(config, "attn_pdrop", json_real(0));
}

// eot: the id that begins and ends a document, -1: not known.
static void set_ends(json_t *config, int32_t eot)
{
    set(config, "bos_token_id", eot >= 0 ? json_integer(eot) : json_null());
    set(config, "eos_token_id", eot >= 0 ? json_integer(eot) : json_null());
}

static json_t *config_json(const Shape *s, int32_t eot)
{
    json_t *config = json_object();
    set(config, "architectures", json_pack("[s]", class_of(s)));
    set(config, "model_type", json_string(!s->llama ? "gpt2" : s->qk_norm ? "qwen3" : "llama"));
    set_size(config, "vocab_size", s->vocab);
    set(config, "tie_word_embeddings", json_boolean(s->tie));
    set(config, "torch_dtype", json_string("float32"));
    set_ends(config, eot);
    if (s->llama) set_llama(config, s);
    else set_gpt2(config, s);
    return config;
}

// ---- output

// Writes a temporary file and renames it to path. The metadata holds the step.
static void write_tensors(const char *path, const SafeTensor *tensor, int n, long step)
{
    char tmp[PATH_MAX], number[32], error[1024];
    if ((size_t)snprintf(tmp, sizeof tmp, "%s.tmp", path) >= sizeof tmp)
        die("%s: the path is too long", path);
    if (disk_is_special(path)) die("%s: is a device or a pipe (safetensors are written to a plain file)", path);
    snprintf(number, sizeof number, "%ld", step);
    SafeMeta meta = {"step", number};
    bool ok = safetensors_write(tmp, tensor, n, &meta, 1, NULL, NULL, error, sizeof error);
    if (ok && rename(tmp, path) < 0) {
        snprintf(error, sizeof error, "%.900s: cannot rename: %s", path, strerror(errno));
        ok = false;
    }
    if (!ok) {
        unlink(tmp);
        die("%s", error);
    }
    if (!disk_sync_parent(path)) die("%s: cannot fsync its directory: %s", path, strerror(errno));
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

// The tokenizer's files, and what begins a document and ends it. The folder is that of the run's settings unless the
// command names one; returns the end-of-text token, -1 without a tokenizer.
static int32_t write_tokenizer(const Ckpt *c, const Config *cfg, const char *from, size_t vocab, const char *dir)
{
    if (!from && access(cfg->data.tokenizer, F_OK) != 0) {
        fprintf(stderr, "warning: %s: its tokenizer is not at '%s', so the folder has none (try --tokenizer DIR)\n",
                c->dir, cfg->data.tokenizer);
        return -1;
    }
    Tokenizer *t = tokenizer_load(from ? from : cfg->data.tokenizer);
    if ((size_t)tokenizer_vocab_size(t) > vocab)
        die("%s: a vocabulary of %d tokens, and the model has %zu (another --tokenizer?)",
            from ? from : cfg->data.tokenizer, tokenizer_vocab_size(t), vocab);
    tokenizer_save(t, dir);
    int32_t eot = tokenizer_eot(t);
    if (eot >= 0) {
        write_json(json_pack("{s:s, s:s}", "bos_token", TOKENIZER_EOT, "eos_token", TOKENIZER_EOT), dir,
                   "special_tokens_map.json");
        json_t *generation = json_pack("{s:b, s:f, s:i, s:f}", "do_sample", cfg->sample.temperature > 0, "temperature",
                                       cfg->sample.temperature > 0 ? cfg->sample.temperature : 1.0, "top_k",
                                       (int)cfg->sample.top_k, "top_p", cfg->sample.top_p);
        set_ends(generation, eot);
        write_json(generation, dir, "generation_config.json");
    }
    tokenizer_free(t);
    return eot;
}

static void export_hf(const Ckpt *c, const char *tokenizer, const char *dir)
{
    Shape s = read_shape(c);
    Config cfg;
    config_defaults(&cfg);
    config_load_text(&cfg, c->state.config, c->dir);
    if (cfg.optim.mup_base && cfg.optim.mup_base_head && (size_t)cfg.optim.mup_base_head != s.head_size)
        die("%s: optim.mup_base_head = %ld: its attention is scaled as Transformers' classes cannot say (use --to "
            "safetensors)", c->dir, cfg.optim.mup_base_head);
    List l = list_make(c->n_model + 2);
    if (s.llama) add_llama(&l, c, &s);
    else add_gpt2(&l, c, &s);
    char path[PATH_MAX];
    struct stat info;
    if (mkdir(dir, 0777) < 0 && (errno != EEXIST || stat(dir, &info) < 0 || !S_ISDIR(info.st_mode)))
        die("%s: cannot create the directory: %s", dir, strerror(errno));
    if ((size_t)snprintf(path, sizeof path, "%s/model.safetensors", dir) >= sizeof path)
        die("%s: the path is too long", dir);
    int32_t eot = write_tokenizer(c, &cfg, tokenizer, s.vocab, dir);
    write_tensors(path, l.tensor, l.n, c->state.step);
    write_json(config_json(&s, eot), dir, "config.json");
    printf("%s: step %ld, %d tensors for %s%s in %s\n", c->dir, c->state.step, l.n, class_of(&s),
           eot >= 0 ? ", and the tokenizer," : "", dir);
    list_free(&l);
}

// Writes whatever was opened, so with or without the optimizer's tensors.
static void export_safetensors(const Ckpt *c, const char *path)
{
    SafeTensor *tensor = calloc((size_t)c->n + 1, sizeof *tensor);
    if (!tensor) die("export: no memory");
    for (int i = 0; i < c->n; i++) tensor[i] = *c->tensor[i];
    write_tensors(path, tensor, c->n, c->state.step);
    printf("%s: step %ld, %d tensors in %s\n", c->dir, c->state.step, c->n, path);
    free(tensor);
}

static const char help[] =
    "usage: export CHECKPOINT_OR_RUN --to safetensors --out FILE\n"
    "       export CHECKPOINT_OR_RUN --to state --out FILE\n"
    "       export CHECKPOINT_OR_RUN --to hf --out DIR [--tokenizer DIR]\n"
    "  safetensors  the whole weights as one file of named F32 tensors\n"
    "  state        the same with the optimizer's tensors, whatever layout wrote them\n"
    "  hf           a folder for Transformers: model.safetensors, config.json (GPT-2, LLaMA or, with QK-norm, Qwen3),\n"
    "               and the tokenizer, which is that of the run unless --tokenizer names a folder\n";

int main(int argc, char **argv)
{
    check_help(argc, argv, help);
    const char *from = NULL, *to = NULL, *out = NULL, *tokenizer = NULL;
    for (int i = 1; i < argc; i++) {
        const char **slot = !strcmp(argv[i], "--to") ? &to : !strcmp(argv[i], "--out") ? &out
                            : !strcmp(argv[i], "--tokenizer") ? &tokenizer : NULL;
        if (slot && i + 1 == argc) die_usage("%s needs a value (try --help)", argv[i]);
        if (slot) *slot = argv[++i];
        else if (!strncmp(argv[i], "--", 2)) die_usage("unknown option %s (try --help)", argv[i]);
        else if (from) die_usage("more than one checkpoint: %s (try --help)", argv[i]);
        else from = argv[i];
    }
    if (!from || !to || !out) die_usage("usage: export CHECKPOINT_OR_RUN --to safetensors|state|hf --out PATH");
    bool hf = !strcmp(to, "hf"), state = !strcmp(to, "state");
    if (!hf && !state && strcmp(to, "safetensors")) die_usage("--to %s: unknown (safetensors, state or hf)", to);
    char error[1024];
    Ckpt *c = ckpt_open(from, state, error, sizeof error);
    if (!c) die("%s", error);
    if (tokenizer && !hf) die_usage("--tokenizer: only with --to hf (try --help)");
    if (hf) export_hf(c, tokenizer, out);
    else export_safetensors(c, out);
    ckpt_close(c);
    return 0;
}
