// Fuzzes the reader of Transformers' folders: config.json, and the tensors that it asks for. An input is up to four
// files, with a line of four dashes between them: config.json, model.safetensors, model.safetensors.index.json, and the
// other shard, b.safetensors.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/safetensors.h"
#include "models/hf.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

static Dev *dev;

void fuzz_begin(void)
{
    dev = dev_cpu_create(1);
}

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
static void seed(const char *name, const char *config, const char *const *tensor, size_t (*shape)[2], int n)
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

void fuzz_seeds(void)
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
    seed("qwen3_moe", "{\"model_type\": \"qwen3_moe\", \"vocab_size\": 5, \"hidden_size\": 4, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"intermediate_size\": 6, "
         "\"max_position_embeddings\": 4, \"num_experts\": 2, \"num_experts_per_tok\": 1, \"moe_intermediate_size\": 3, "
         "\"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"router_aux_loss_coef\": 0.001}", moe, moe_shape,
         (int)(sizeof moe / sizeof *moe));
    seed("llama", "{\"model_type\": \"llama\", \"vocab_size\": 5, \"hidden_size\": 4, \"num_hidden_layers\": 1, "
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
    seed("gpt2", "{\"model_type\": \"gpt2\", \"vocab_size\": 5, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 2, "
         "\"n_positions\": 4, \"n_inner\": 8}", gpt2, gpt2_shape, 16);
}

void fuzz_one(const uint8_t *data, size_t n)
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
    const int32_t token = 0;
    model_set_batch(m, &token, NULL, &token, 1, 1);
    model_evaluate(m);
    model_free(m);
    mem_free_all(&mem);
}
