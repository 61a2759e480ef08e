// llmc: the model files of llm.c: a header of 256 int32 and GPT-2's tensors in its order.
//
//   magic 20240326, version (3: fp32, 5: bf16), context, V, layers, heads, C, V padded; the rest 0
//
// The tensors follow without names, those of a block for all layers together, not transposed, q, k and v as one; the
// head is tied. The embedding has the padded rows.
#ifndef LLMC_H
#define LLMC_H
#include "base/config.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

bool llmc_begins_with(const char *path, int32_t magic); // false for a device or a pipe, which is not read
bool llmc_is_file(const char *path);
// Sets cfg->model from the header. Dies when the file has not the size that follows from it.
void llmc_config(const char *path, Config *cfg);
void llmc_load(const char *path, Model *model);
// Writes version 3, or 5 with bf16, with the rows of the embedding padded to a multiple of 128 by zeros. Dies on a
// model that is not GPT-2's with a tied head and ffn = 4 C, and on a failed write.
void llmc_save(const char *path, const Model *model, bool bf16);

#ifdef __cplusplus
}
#endif
#endif
