// llmc_state: the debug state of llm.c (gpt2_124M_debug_state.bin) as a side of build/diff.
#ifndef LLMC_STATE_H
#define LLMC_STATE_H
#include "dev/check/diff.h"

#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

bool llmc_state_is(const char *path);
// Adds its gradients to an empty side, as grad.NAME; shapes are those of the other side. Dies when they do not fit.
void llmc_state_read(DiffSide *side, const char *path, const DiffSide *other);

#ifdef __cplusplus
}
#endif
#endif
