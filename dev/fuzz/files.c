// files: targets about the formats of models and checkpoints, and the pieces of dumps. See doc/fuzz.md.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/safetensors.h"
#include "models/gguf_model.h"
#include "models/hf.h"
#include "models/llmc.h"
#include "ops/dev_cpu.h"
#include "ckpt/ckpt_manifest.h"
#include "src/check/dump.h"
#include "train/run.h"

// ---- safetensors: the reader of safetensors files: what it accepts lies inside the file, to the last byte.
static void safetensors_seeds(void)
{
    const float x[6] = {1, 2, 3, 4, 5, 6};
    const SafeTensor t[3] = {{.name = "w", .dtype = ST_F32, .ndim = 2, .shape = (size_t[]){2, 3}, .data = x},
                             {.name = "b", .dtype = ST_U8, .ndim = 1, .shape = (size_t[]){5}, .data = x},
                             {.name = "s", .dtype = ST_F64, .ndim = 0, .data = x}};
    const SafeMeta meta = {"step", "12"};
    char path[300];
    for (int n = 0; n <= 3; n++) {
        snprintf(path, sizeof path, "%s/%d_tensors", fuzz_dir(), n);
        if (safetensors_write(path, t, n, &meta, 1, NULL, NULL, NULL, 0)) fuzz_seed_file(path);
    }
}

static void safetensors_one(const uint8_t *data, size_t n)
{
    char error[600] = "";
    const char *path = fuzz_file("x.safetensors", data, n);
    SafeTensors *st = safetensors_open(path, error, sizeof error);
    if (!st) {
        fuzz_check(strstr(error, path)); // every message names the file
        return;
    }
    size_t sum = 0;
    unsigned char all = 0;
    int *order = malloc(((size_t)st->n + 1) * sizeof *order);
    fuzz_check(order);
    safetensors_order(st, order);
    for (int i = 0; i < st->n; i++) {
        const SafeTensor *t = &st->tensor[i];
        for (size_t k = 0; k < t->n_bytes; k++) all ^= ((const unsigned char *)t->data)[k];
        sum += t->n_bytes;
        fuzz_check(safetensors_find(st, t->name) == t);
        fuzz_check(order[i] >= 0 && order[i] < st->n);
    }
    for (int i = 0; i < st->n_meta; i++) fuzz_check(safetensors_meta(st, st->meta[i].key) == st->meta[i].value);
    fuzz_check(sum <= n && (all || !all));
    free(order);
    safetensors_close(st);
}

FUZZ(safetensors, NULL)

// ---- manifest: the reader of a checkpoint's manifest. Its hash would reject nearly every mutation at once, so it is computed
// right again first: this is the forger's view.
static void manifest_seeds(void)
{
    fuzz_seed_file("test/fixtures/ckpt_v1/manifest.json");
    fuzz_seed_file("test/fixtures/ckpt_v2/manifest.json");
    // Two files, a tensor that is cut along an axis, and one that is cut into ranges.
    static const char sliced[] =
        "{\"xxh3_128\": \"00000000000000000000000000000000\",\n\"format\": \"pretrain.c checkpoint\", \"version\": 2,\n"
        "\"state\": {\"step\": 3, \"adam_step\": 3, \"sample\": 24, \"tokens\": 768, \"seed\": 1, \"seconds\": 0.5, "
        "\"best_val\": 2.5, \"optim\": \"adamw\"}, \"config\": \"[run]\\nname = x\\n\",\n"
        "\"extra\": {\"loss_scale\": 65536.0, \"amax\": [1.5, \"nan\"]},\n\"files\": ["
        "{\"name\": \"model_00000.safetensors\", \"kind\": \"model\", \"bytes\": 100, \"xxh3_128\": \"0\"},"
        "{\"name\": \"optim_00001.safetensors\", \"kind\": \"optim\", \"bytes\": 100, \"xxh3_128\": \"0\"}],\n"
        "\"tensors\": [{\"name\": \"w\", \"dtype\": \"F32\", \"shape\": [4, 6], \"slices\": ["
        "{\"file\": \"model_00000.safetensors\", \"cut\": 0, \"first\": 0, \"extent\": 2, \"xxh3_128\": \"0\"},"
        "{\"file\": \"model_00000.safetensors\", \"cut\": 0, \"first\": 2, \"extent\": 2, \"xxh3_128\": \"0\"}]},"
        "{\"name\": \"exp_avg.w\", \"dtype\": \"BF16\", \"shape\": [4, 6], \"slices\": ["
        "{\"file\": \"optim_00001.safetensors\", \"range\": [0, 11], \"xxh3_128\": \"0\"},"
        "{\"file\": \"optim_00001.safetensors\", \"range\": [11, 24], \"xxh3_128\": \"0\"}]}]}\n";
    fuzz_seed("sliced", sliced, sizeof sliced - 1);
}

static void use(CkptManifest *m, CkptFailure f)
{
    double value[2];
    const CkptExtra extra[] = {{"loss_scale", 1, value}, {"amax", 2, value}};
    for (int i = 0; i < 2; i++) ckpt_manifest_extra(m, &extra[i], f);
    for (int i = 0; i < m->n_files; i++) {
        const char *name = m->file[i].name;
        fuzz_check(!strchr(name, '/') && strcmp(name, "..") != 0); // no way out of the directory
        if (i < 4) fuzz_check(!ckpt_manifest_open(m, i, false, f)); // there is no such file
    }
    for (int i = 0; i < m->n; i++) {
        const CkptTensor *t = &m->tensor[i];
        size_t held = 0;
        for (int k = 0; k < t->n; k++) {
            fuzz_check(t->place[k].file >= 0 && t->place[k].file < m->n_files);
            held += t->slice[k].to - t->slice[k].from;
        }
        fuzz_check(held == t->shape[0] * t->shape[1]);
        fuzz_check(ckpt_manifest_find(m, t->name) == t);
    }
}

static void manifest_one(const uint8_t *data, size_t n)
{
    static const char opening[] = "{\"xxh3_128\": \"";
    char error[600] = "", hash[ST_HASH], *text = malloc(n + 1);
    size_t at = sizeof opening - 1;
    fuzz_check(text);
    memcpy(text, data, n);
    text[n] = 0;
    if (n > at + ST_HASH && !memcmp(text, opening, at)) {
        memset(text + at, '0', ST_HASH - 1);
        safetensors_hash(hash, text, n);
        memcpy(text + at, hash, ST_HASH - 1);
    }
    CkptVerdict verdict;
    CkptFailure f = {error, sizeof error};
    CkptManifest *m = ckpt_manifest_parse(fuzz_dir(), text, n, &verdict, f);
    if (m) use(m, f);
    else fuzz_check(*error && verdict != CKPT_SOUND);
    ckpt_manifest_free(m);
    free(text);
}

FUZZ(manifest, NULL)

// ---- part: the parts of tensors in dumps: one that is taken can be put into the whole, from as many elements as it says.
static void part_seeds(void)
{
    static const char *const text[] = {
        "{\"shape\":[8,4,6],\"width\":6,\"rows\":[[0,3],[9,2]],\"columns\":[[3,3]],"
        "\"at\":7,\"error\":0.5,\"stored\":\"BF16\"}",
        "{\"shape\":[12],\"width\":1,\"rows\":[[4,8]],\"columns\":[[0,1]],\"at\":0,\"error\":0,\"stored\":\"F32\"}",
        "{\"shape\":[],\"width\":1,\"rows\":[[0,1]],\"columns\":[[0,1]],\"at\":0,\"error\":1e-3,\"stored\":\"F64\"}",
        "{\"shape\":[6,4],\"width\":4,\"rows\":[[0,3],[2,3]],\"columns\":[[0,2],[0,1],[3,1]],"
        "\"at\":1,\"error\":0,\"stored\":\"F16\"}"};
    fuzz_seed_texts(text, 4);
}

static void part_one(const uint8_t *data, size_t n)
{
    enum { MOST = 1 << 16 };
    char *text = malloc(n + 1);
    Part part, again;
    fuzz_check(text);
    memcpy(text, data, n);
    text[n] = 0;
    if (dump_part_parse(&part, text)) {
        size_t held = dump_part_elems(&part), whole = dump_part_whole_elems(&part);
        fuzz_check(held <= whole);
        if (whole <= MOST) {
            char *to = calloc(whole + 1, 2), *from = calloc(held + 1, 2);
            uint8_t *seen = calloc(whole + 1, 1);
            fuzz_check(to && from && seen);
            dump_part_place(&part, to, seen, from, 2);
            size_t sum = 0;
            for (size_t i = 0; i < whole; i++) sum += seen[i];
            fuzz_check(sum <= held);
            free(to), free(from), free(seen);
        }
        char *written = dump_part_text(&part);
        fuzz_check(dump_part_parse(&again, written) && dump_part_elems(&again) == held && again.stored == part.stored);
        free(written);
        dump_part_free(&again);
        dump_part_free(&part);
    }
    free(text);
}

FUZZ(part, NULL)

// ---- models: their devices, and a loss, which reads all that was loaded
static Dev *dev;

static void make_device(void)
{
    dev = dev_cpu_create(1);
}

static void compute(Model *m, Mem *mem)
{
    const int32_t token = 0;
    model_set_batch(m, &token, NULL, &token, 1, 1);
    model_evaluate(m);
    model_free(m);
    mem_free_all(mem);
}

// ---- hf: the reader of Transformers' folders: config.json, and the tensors that it asks for. An input is up to four
// files, with a line of four dashes between them: config.json, model.safetensors, model.safetensors.index.json, and the
// other shard, b.safetensors.
static const char divider[] = "\n----\n";

// Appends a file of n tensors, and removes it.
static size_t put_file(char *all, size_t most, const char *file, const SafeTensor *tensor, int n)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), file);
    FILE *f = safetensors_write(path, tensor, n, NULL, 0, NULL, NULL, NULL, 0) ? fopen(path, "rb") : NULL;
    size_t k = f ? fread(all, 1, most, f) : 0;
    if (f) fclose(f), unlink(path);
    return k;
}

// A model of one block, of zeros; in shards: the first half of its tensors, the index, the second half.
static void hf_seed(const char *name, const char *config, const char *const *tensor, size_t (*shape)[2], int n)
{
    static const float zeros[200];
    SafeTensor t[20];
    char all[12000], sharded[24];
    for (int i = 0; i < n; i++)
        t[i] = (SafeTensor){.name = tensor[i], .dtype = i % 2 ? ST_F32 : ST_BF16, .ndim = shape[i][1] ? 2 : 1,
                            .shape = shape[i], .data = zeros};
    const size_t begin = (size_t)snprintf(all, sizeof all, "%s%s", config, divider);
    fuzz_seed(name, all, begin + put_file(all + begin, sizeof all - begin, "whole", t, n));
    size_t k = begin + put_file(all + begin, sizeof all - begin, "half", t, n / 2);
    k += (size_t)snprintf(all + k, sizeof all - k, "%s{\"metadata\": {\"total_size\": 1}, \"weight_map\": {", divider);
    for (int i = 0; i < n; i++)
        k += (size_t)snprintf(all + k, sizeof all - k, "%s\"%s\": \"%s.safetensors\"", i ? ", " : "", tensor[i],
                              i < n / 2 ? "model" : "b");
    k += (size_t)snprintf(all + k, sizeof all - k, "}}%s", divider);
    k += put_file(all + k, sizeof all - k, "half", t + n / 2, n - n / 2);
    snprintf(sharded, sizeof sharded, "%s_shards", name);
    fuzz_seed(sharded, all, k);
}

static void hf_seeds(void)
{
    static const char *const llama[] = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight"};
    static size_t llama_shape[][2] = {{5, 4}, {4, 0}, {5, 4}, {4, 0}, {4, 0}, {4, 4},
                                      {2, 4}, {2, 4}, {4, 4}, {6, 4}, {6, 4}, {4, 6}};
    static const char *const moe[] = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight",
        "model.layers.0.input_layernorm.weight", "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight", "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight",
        "model.layers.0.mlp.gate.weight", "model.layers.0.mlp.experts.0.gate_proj.weight",
        "model.layers.0.mlp.experts.0.up_proj.weight", "model.layers.0.mlp.experts.0.down_proj.weight",
        "model.layers.0.mlp.experts.1.gate_proj.weight", "model.layers.0.mlp.experts.1.up_proj.weight",
        "model.layers.0.mlp.experts.1.down_proj.weight"};
    static size_t moe_shape[][2] = {{5, 4}, {4, 0}, {5, 4}, {4, 0}, {4, 0}, {4, 4}, {2, 4}, {2, 4}, {4, 4}, {2, 0}, {2, 0},
                                    {2, 4}, {3, 4}, {3, 4}, {4, 3}, {3, 4}, {3, 4}, {4, 3}};
    hf_seed("qwen3_moe", "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 5, \"hidden_size\": 4, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 6, "
         "\"max_position_embeddings\": 4, \"num_experts\": 2, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 3, "
         "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"router_aux_loss_coef\": 0.001}", moe, moe_shape,
         (int)(sizeof moe / sizeof *moe));
    hf_seed("llama", "{\"model_type\": \"llama\", \"vocab_size\": 5, \"hidden_size\": 4, \"num_hidden_layers\": 1, "
         "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 6, "
         "\"max_position_embeddings\": 4, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"original_max_position_embeddings\": 2, \"low_freq_factor\": 1, \"high_freq_factor\": 4}}", llama,
         llama_shape, 12);
    static const char *const gpt2[] = {"wte.weight", "wpe.weight", "h.0.ln_1.weight", "h.0.ln_1.bias",
        "h.0.ln_2.weight", "h.0.ln_2.bias", "h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias", "h.0.attn.c_proj.weight",
        "h.0.attn.c_proj.bias", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight",
        "h.0.mlp.c_proj.bias", "ln_f.weight", "ln_f.bias"};
    static size_t gpt2_shape[][2] = {{5, 4}, {4, 4}, {4, 0}, {4, 0}, {4, 0}, {4, 0}, {4, 12}, {12, 0},
                                     {4, 4}, {4, 0}, {4, 8}, {8, 0}, {8, 4}, {4, 0}, {4, 0}, {4, 0}};
    hf_seed("gpt2", "{\"model_type\": \"gpt2\", \"vocab_size\": 5, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, "
         "\"n_positions\": 4, \"n_inner\": 8}", gpt2, gpt2_shape, 16);
}

static void hf_one(const uint8_t *data, size_t n)
{
    static const char *const file[] = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                       "b.safetensors"};
    char folder[300], path[340];
    snprintf(folder, sizeof folder, "%s", fuzz_dir());
    for (size_t i = 0, second; i < 4; i++, data += second, n -= second) {
        size_t k = fuzz_cut(data, n, &second);
        snprintf(path, sizeof path, "%s/%s", folder, file[i]);
        if (i < 2 || n) fuzz_file(file[i], data, i < 3 ? k : n);
        else unlink(path);
    }
    Config cfg;
    config_defaults(&cfg);
    fuzz_check(hf_is_folder(folder));
    hf_config(folder, &cfg);
    ModelShape s = run_shape(&cfg);
    fuzz_check(s.heads && s.kv_heads && s.heads % s.kv_heads == 0 && s.head_size && s.ffn && s.vocab && s.layers);
    size_t most = s.heads * s.head_size + s.channels + s.ffn + s.vocab + s.context + s.experts.n + s.experts.ffn;
    if (s.layers > 4 || most > 500) return; // refused above, or only slow
    Mem mem = {0};
    Model *m = model_allocate(&s, dev, &mem, 1, 1, false);
    hf_load(folder, m);
    compute(m, &mem);
}

FUZZ(hf, make_device)

// ---- gguf: the reader of GGUF files: the tables, the settings that follow from the keys, the tensors and the tokenizer.
// A model of one block, of zeros, of each architecture.
static void gguf_seed(const char *name, const char *const *settings, GgufType type)
{
    static const char text[] = "the theme of the thesis, then the other theory";
    char path[300];
    Config cfg;
    Mem mem = {0};
    config_defaults(&cfg);
    for (; *settings; settings += 2) config_set(&cfg, settings[0], settings[1], "seed");
    ModelShape shape = run_shape(&cfg);
    Model *m = model_allocate(&shape, dev, &mem, 1, 1, false);
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, text, sizeof text - 1);
    Tokenizer *t = tokenizer_trainer_finish(trainer, 260);
    snprintf(path, sizeof path, "%s/%s", fuzz_dir(), name);
    gguf_model_save(path, name, &cfg, m, t, type);
    fuzz_seed_file(path);
    tokenizer_free(t);
    model_free(m);
    mem_free_all(&mem);
}

#define SIZES "model.layers", "1", "model.channels", "4", "model.heads", "2", "model.head_size", "2", \
    "model.ffn", "32", "model.vocab", "261", "model.context", "4"

static void gguf_seeds(void)
{
    static const char *const gpt2[] = {SIZES, "model.kv_heads", "2", NULL};
    static const char *const llama[] = {SIZES, "model.kv_heads", "1", "model.norm", "rmsnorm", "model.activation",
        "swiglu", "model.position", "rope", "model.bias", "false", "model.rope_scaling", "yarn", "model.rope_factor", "2",
        "model.rope_original", "2", "model.rope_fast", "32", NULL};
    static const char *const qwen[] = {SIZES, "model.kv_heads", "2", "model.norm", "rmsnorm", "model.activation",
        "swiglu", "model.position", "rope", "model.bias", "false", "model.qk_norm", "true", "model.tie", "false", NULL};
    static const char *const mixtral[] = {SIZES, "model.kv_heads", "2", "model.norm", "rmsnorm", "model.activation",
        "swiglu", "model.position", "rope", "model.bias", "false", "model.experts", "3", "model.experts_ffn", "32", NULL};
    static const char *const olmoe[] = {SIZES, "model.kv_heads", "2", "model.norm", "rmsnorm", "model.activation",
        "swiglu", "model.position", "rope", "model.bias", "false", "model.qk_norm", "whole", "model.tie", "false",
        "model.experts", "3", "model.experts_ffn", "32", "model.experts_renorm", "false", NULL};
    static const char *const olmo2[] = {SIZES, "model.kv_heads", "1", "model.norm", "rmsnorm", "model.activation",
        "swiglu", "model.position", "rope", "model.bias", "false", "model.qk_norm", "whole", "model.tie", "false",
        "model.norm_place", "output", NULL};
    gguf_seed("gpt2", gpt2, GGUF_F32);
    gguf_seed("llama", llama, GGUF_Q8_0);
    gguf_seed("qwen3", qwen, GGUF_BF16);
    gguf_seed("mixtral", mixtral, GGUF_F16);
    gguf_seed("olmoe", olmoe, GGUF_F16);
    gguf_seed("olmo2", olmo2, GGUF_BF16);
}

static void gguf_one(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("m.gguf", data, n);
    if (!gguf_is_file(path)) return;
    Gguf *g = gguf_open(path);
    for (size_t i = 0; i < g->n_tensors; i++) {
        const char *at = g->tensor[i].data;
        fuzz_check(at >= g->map && at + g->tensor[i].n_bytes <= g->map + g->n_bytes);
    }
    Config cfg;
    config_defaults(&cfg);
    gguf_model_config(g, &cfg);
    ModelShape s = run_shape(&cfg);
    fuzz_check(s.heads && s.kv_heads && s.heads % s.kv_heads == 0 && s.head_size && s.ffn && s.vocab && s.layers);
    if (s.layers <= 4 && s.heads * s.head_size + s.channels + s.ffn + s.vocab + s.context <= 1000) {
        Mem mem = {0};
        Model *m = model_allocate(&s, dev, &mem, 1, 1, false);
        gguf_model_load(g, m);
        compute(m, &mem);
    }
    Tokenizer *t = gguf_model_tokenizer(g);
    TokenIds ids = {0};
    tokenizer_encode(t, "the then", 8, &ids);
    token_ids_free(&ids);
    tokenizer_free(t);
    gguf_close(g);
}

FUZZ(gguf, make_device)

// ---- llmc: the reader of llm.c's model files.
static void llmc_seeds(void)
{
    // Context 2, V 3, one layer, one head, C 2, V padded 4: 90 numbers.
    static int32_t file[256 + 90] = {20240326, 3, 2, 3, 1, 1, 2, 4};
    fuzz_seed("fp32", file, sizeof file);
    file[1] = 5;
    fuzz_seed("bf16", file, 256 * 4 + 90 * 2);
}

static void llmc_one(const uint8_t *data, size_t n)
{
    const char *path = fuzz_file("m.bin", data, n);
    if (!llmc_is_file(path)) return;
    Config cfg;
    config_defaults(&cfg);
    llmc_config(path, &cfg);
    ModelShape s = run_shape(&cfg);
    fuzz_check(s.heads && s.channels % s.heads == 0 && s.vocab && s.layers);
    Mem mem = {0};
    Model *m = model_allocate(&s, dev, &mem, 1, 1, false);
    llmc_load(path, m);
    compute(m, &mem);
}

FUZZ(llmc, make_device)
