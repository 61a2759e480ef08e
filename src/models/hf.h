// hf: a model's folder as Transformers writes it: config.json and safetensors, one file or shards with their index.
#ifndef HF_H
#define HF_H
#include "base/config.h"
#include "formats/formats.h"
#include "net/model.h"
#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

// Whether a folder is one: it holds a config.json.
bool hf_is_folder(const char *path);
// Sets cfg->model from DIR/config.json: model_type gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen3_moe, olmoe,
// olmo2. Dies with the file, the key and its value where our blocks cannot say what it says. Of classes with experts
// also moe.balance_coef.
void hf_config(const char *dir, Config *cfg);
// Fills the weights of a model of that shape from F32, F16 or BF16 tensors. Dies on a tensor that is missing or has
// another shape.
void hf_load(const char *dir, Model *model);

// Writes a model's folder, which is made if it is missing: config.json, model.safetensors (or, where they would hold
// more than `shard` bytes, several files and their index) with tensors of `format` (fp32, fp16 or bf16), and the
// tokenizer's files; tokenizer NULL: none. Returns the class for Transformers. Dies on a model that no class can
// express, and on a failed write.
const char *hf_save(const char *dir, const Config *cfg, const Model *model, const Tokenizer *tokenizer, Format format,
                    size_t shard);

#ifdef __cplusplus
}
#endif
#endif
