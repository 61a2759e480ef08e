// gguf_model: a model and its tokenizer from llama.cpp's file, and to one.
#ifndef GGUF_MODEL_H
#define GGUF_MODEL_H
#include "base/config.h"
#include "models/gguf.h"
#include "net/model.h"
#include "tokenizer/tokenizer.h"
#ifdef __cplusplus
extern "C" {
#endif

// Sets cfg->model from a file's keys: general.architecture gpt2, llama, qwen2, qwen3 or qwen3moe. Dies with the key
// and its value where our blocks cannot say what it says.
void gguf_model_config(const Gguf *g, Config *cfg);
// Fills the weights of a model of that shape. Dies on a tensor that is missing or has another shape.
void gguf_model_load(const Gguf *g, Model *model);
// The tokenizer that the file holds; dies on a kind that is not known here.
Tokenizer *gguf_model_tokenizer(const Gguf *g);

// Writes a model: matrices as `type` (GGUF_F32, F16, BF16 or Q8_0; where a row is no whole number of blocks, F16
// stands for Q8_0), vectors, positions and routers as F32. Returns the architecture. Dies on a model or a tokenizer
// that no architecture can express, and on a failed write.
const char *gguf_model_save(const char *path, const char *name, const Config *cfg, const Model *model,
                            const Tokenizer *tokenizer, GgufType type);
// Its part that is the tokenizer, of an embedding with V rows (gguf_tokenizer.c).
void gguf_model_put_tokenizer(GgufOut *out, const Tokenizer *tokenizer, size_t V, const char *path);

#ifdef __cplusplus
}
#endif
#endif
