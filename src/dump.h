// dump: one update's tensors, for build/diff. Layer 4.
#ifndef DUMP_H
#define DUMP_H
#include "model.h"
#ifdef __cplusplus
extern "C" {
#endif

// Writes run_dir/dump/step_NNNNNNNN.safetensors (and makes the folder): weight.NAME and grad.NAME of every
// row of the parameter table as they stand in the model, and `loss` (rows, context): the token losses in
// nats, 0 where the target is not counted. `update` counts from 1. Dies when the file cannot be written.
void dump_write(const char *run_dir, long update, const Model *model, const float *loss, size_t rows);

#ifdef __cplusplus
}
#endif
#endif
