// hf: a model's folder as Transformers writes it: config.json and safetensors, one file or shards with their index.
#ifndef HF_H
#define HF_H
#include "base/config.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

// Whether a folder is one: it holds a config.json.
bool hf_is_folder(const char *path);
// Sets cfg->model from DIR/config.json: model_type gpt2, llama, mistral or qwen3. Dies with the file, the key and its
// value where our blocks cannot say what it says.
void hf_config(const char *dir, Config *cfg);
// Fills the weights of a model of that shape from F32, F16 or BF16 tensors. Dies on a tensor that is missing or has
// another shape.
void hf_load(const char *dir, Model *model);

#ifdef __cplusplus
}
#endif
#endif
