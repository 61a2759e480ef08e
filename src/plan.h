// plan: what a run will need, without running it. Layer 5.
#ifndef PLAN_H
#define PLAN_H
#include "run.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// A tag's bytes as the formula of the guides gives them, in symbols and in this run's numbers.
typedef struct {
    size_t n_bytes;
    char symbols[160], numbers[320];
} PlanFormula;

// Fills model.vocab from data.tokenizer where it is not set; dies when neither tells.
void plan_vocab(Config *cfg);
// A run whose buffers all exist in run->mem's table and nowhere else: run_allocate with a door that counts.
// Only sizes may be read. cfg is resolved and has a vocabulary.
void plan_open(Run *run, const Config *cfg, Dev *dev);
void plan_close(Run *run);

PlanFormula plan_formula(const Run *run, MemTag tag);
// The table of bytes by tag with their formulas, and the buffers they consist of. Dies when a formula and
// the sum of the buffers differ by a byte.
void plan_print_memory(const Run *run, FILE *out);
// The parameter table and its totals.
void plan_print_params(const Run *run, FILE *out);
// Floating-point operations per token, term by term; per step; and for run.steps.
void plan_print_flops(const Run *run, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
