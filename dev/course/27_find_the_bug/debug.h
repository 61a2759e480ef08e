// debug: what the tests give to the seven files in place of the rest of the trainer.
#ifndef DEBUG_H
#define DEBUG_H
#include "ops/dev.h"

// A CPU device whose entries are those of one file: debug_device(norm_cpu_fill).
Dev debug_device(void (*fill)(Dev *));

// Runs a collective in fp32 over `size` ranks by the steps of collectives_step, all ranks side by side. counts (size):
// the elements of each rank's shard; in[r], out[r]: the rank's buffers. bytes (size), or NULL: what each rank has sent.
void debug_collective(int kind, int size, const size_t *counts, float **in, float **out, size_t *bytes);
#endif
