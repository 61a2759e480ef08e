// Fuzzes the reader of GGUF files: the tables, the settings that follow from the keys, the tensors and the tokenizer.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/disk.h"
#include "models/gguf_model.h"
#include "ops/dev_cpu.h"
#include "train/run.h"

static Dev *dev;

void fuzz_begin(void)
{
    dev = dev_cpu_create(1);
}

// A model of one block, of zeros, of each architecture.
static void seed(const char *name, const char *const *settings, GgufType type)
{
    static const char text[] = "the theme of the thesis, then the other theory";
    char path[300];
    Config cfg;
    Mem mem = {0};
    config_defaults(&cfg);
    for (; *settings; settings += 2) config_set(&cfg, settings[0], settings[1], "seed");
    ModelShape shape = run_shape(&cfg);
    Dev *own = dev_cpu_create(1); // before fuzz_begin
    Model *m = model_allocate(&shape, own, &mem, 1, 1, false);
    TokenizerTrainer *trainer = tokenizer_trainer_new("gpt2");
    tokenizer_trainer_add(trainer, text, sizeof text - 1);
    Tokenizer *t = tokenizer_trainer_finish(trainer, 260);
    snprintf(path, sizeof path, "%s/seed.gguf", fuzz_dir());
    gguf_model_save(path, name, &cfg, m, t, type);
    size_t n;
    char *all = disk_read_file(path, &n, 1 << 20);
    if (all) fuzz_seed(name, all, n);
    free(all);
    tokenizer_free(t);
    model_free(m);
    mem_free_all(&mem);
    dev_cpu_free(own);
}

#define SIZES "model.layers", "1", "model.channels", "4", "model.heads", "2", "model.head_size", "2", \
    "model.ffn", "32", "model.vocab", "261", "model.context", "4"

void fuzz_seeds(void)
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
    seed("gpt2", gpt2, GGUF_F32);
    seed("llama", llama, GGUF_Q8_0);
    seed("qwen3", qwen, GGUF_BF16);
    seed("mixtral", mixtral, GGUF_F16);
    seed("olmoe", olmoe, GGUF_F16);
    seed("olmo2", olmo2, GGUF_BF16);
}

void fuzz_one(const uint8_t *data, size_t n)
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
        const int32_t token = 0;
        model_set_batch(m, &token, NULL, &token, 1, 1);
        model_evaluate(m);
        model_free(m);
        mem_free_all(&mem);
    }
    Tokenizer *t = gguf_model_tokenizer(g);
    TokenIds ids = {0};
    tokenizer_encode(t, "the then", 8, &ids);
    token_ids_free(&ids);
    tokenizer_free(t);
    gguf_close(g);
}
