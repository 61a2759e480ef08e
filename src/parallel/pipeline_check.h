// pipeline_check: proves that a pipeline's table is correct, or reports the error.
#ifndef PIPELINE_CHECK_H
#define PIPELINE_CHECK_H
#include "parallel/pipeline_table.h"
#include "parallel/pipeline_time.h"

#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

// What is known of a table that holds.
typedef struct {
    int active[PIPELINE_MAX_STAGES]; // most activations (micro-batch, chunk) with F begun and B not ended
    int held[PIPELINE_MAX_STAGES];   // the same, until W has ended in a table that splits
    int sent[PIPELINE_MAX_STAGES];   // outputs that a stage sends to another one
} PipelineProof;

// Every piece in one place; every micro-batch and chunk F and B once, W once where the table splits and never
// where it does not; F before B before W on each stage; and an order over all stages exists: with blocking
// receives and buffered sends every stage comes to its end. False: `why` says stage, slot, action and the
// reason in one line.
bool pipeline_check(const PipelineTable *t, PipelineProof *proof, char *why, size_t n_why);

// The most that a stage holds at once, from the order alone: chunk c takes full[c] from the start of its F to
// the end of its B, then, in a table that splits, kept[c] until the end of its W. In bytes what the engine
// must have room for.
size_t pipeline_check_peak(const PipelineTable *t, int stage, const size_t *full, const size_t *kept);

#ifdef __cplusplus
}
#endif
#endif
