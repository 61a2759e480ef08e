// dump: one update's tensors, for build/diff. Layer 4.
#ifndef DUMP_H
#define DUMP_H
#include "params.h"
#ifdef __cplusplus
extern "C" {
#endif

// Writes run_dir/dump/step_NNNNNNNN.safetensors (and makes the folder): weight.NAME and grad.NAME of every
// row of the parameter table, from flat fp32 arrays laid out by it, and `loss` (rows, context): the token losses in
// nats, 0 where the target is not counted. `update` counts from 1. Dies when the file cannot be written.
void dump_write(const char *run_dir, long update, const Params *params, const float *weights, const float *grads,
                const float *loss, size_t rows, size_t context);

#ifdef __cplusplus
}
#endif
#endif
