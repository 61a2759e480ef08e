// plan: what a run will need, without running it.
#ifndef PLAN_H
#define PLAN_H
#include "formats/formats.h"
#include "dev/plan/plan_job.h"
#include "train/run.h"

#include <stdio.h>

// A tag's bytes as a formula, in letters and in this run's numbers.
typedef struct {
    size_t n_bytes;
    char symbols[200], numbers[400];
} PlanFormula;

// A letter of the formulas: a size of the run (`means` says of what), or short for a formula of the letters
// before it (`means` is that formula).
enum { PLAN_LETTERS = 64 };
typedef struct {
    char name[4], means[240];
    size_t value;
    bool is_formula;
} PlanLetter;

typedef struct {
    PlanLetter letter[PLAN_LETTERS];
    int n;
} PlanLetters;

// Fills model.vocab from data.tokenizer where it is not set; dies when neither gives it.
void plan_vocab(Config *cfg);
// An allocator that only counts: the memory that it returns must not be read or written.
Mem plan_door(void);
// One rank of a run, whose buffers all exist in run->mem's table and nowhere else: run_allocate with that allocator.
// Only sizes may be read. cfg is resolved and has a vocabulary, dev is run_device's; rank is below parallel.ranks.
void plan_open(Run *run, const Config *cfg, Dev *dev, int rank);
void plan_close(Run *run);

// Whether any layer has a window.
bool plan_has_windows(const ModelShape *shape);
PlanLetters plan_letters(const Run *run);
// The value of a formula over letters: whole numbers, letters, + and -, products without a sign ("2 L C"), brackets,
// ceil(a / b), floor(log2(a)), max(a, b), min(a, b). numbers (size) gets the same text with the letters' values; it may
// be NULL. Dies when the text is not a formula, or its numbers do not fit.
size_t plan_evaluate(const PlanLetters *letters, const char *text, char *numbers, size_t size);
PlanFormula plan_formula(const Run *run, MemTag tag);
// Bytes of activations that this rank's step sends to host memory and gets back, with memory.offload_acts.
typedef struct {
    size_t out, in;
} PlanMoved;
PlanMoved plan_moved(const Run *run);
// plan_formula; dies when it is not the sum of the tag's buffers to the byte. For a model cut over ranks (tensor,
// context, pipeline parallel) it is that sum alone, without a formula.
PlanFormula plan_checked(const Run *run, MemTag tag);

// The table of bytes by tag with their formulas, and the buffers they consist of; checked.
void plan_print_memory(const Run *run, FILE *out);
// As markdown, for each memory.recompute: the bytes of the fullest rank, whether they fit into the accelerator, and the
// largest micro-batch that fits, with the same number of sequences in a step.
void plan_print_fits(const Config *cfg, const Machine *machine, FILE *out);
// The parameter table and its totals.
void plan_print_params(const Run *run, FILE *out);
// The same as JSON.
void plan_report_params(const Run *run, FILE *out);
// Floating-point operations per token, term by term; per step; and for run.steps.
void plan_print_flops(const Run *run, FILE *out);
// The same with each formula's numbers put in, or as JSON.
void plan_report_flops(const Run *run, bool json, FILE *out);
// As markdown: bytes per parameter for every numerics.dtype and optim.name, and bytes of activations per token for
// every numerics.dtype, memory.recompute and memory.compress. The rest is cfg's. Counted and checked, each of them.
void plan_print_table(const Config *cfg, FILE *out);
// All optimizers as a markdown table: arrays, cut, bytes of state per parameter of a model of GPT-2's size beside the
// guides' figure.
void plan_print_optimizers(FILE *out);
// Markdown table: two estimators of the gradient noise scale on synthetic gradients of known noise, for several batch
// sizes.
void plan_print_noise(FILE *out, uint64_t seed);

// A preset's configuration, resolved; dies when there is none of that name.
void plan_preset(Config *cfg, const char *name);
// Tokens that the first `steps` steps of a configuration read, with its ramp grown a sequence at a time.
double plan_tokens(const Config *cfg, long steps);
// argv[1] names one of traffic, time, layout, scaling, approach, cluster, for, prepare, recipe, machines, published and
// guides: runs that plan and returns true. False: it is none of them.
bool plan_show(int argc, char **argv, FILE *out);

// ---- the number formats (plan_print.c)

typedef struct {
    const char *name, *use; // "bf16"; what it is for
    int bits, exponent, mantissa, bias;
    bool has_inf;
    double max, min_normal, min_denormal;
    double epsilon; // 2^-mantissa: from 1 to the next number. Rounding errs by at most half of it.
    double digits;  // decimal: (mantissa + 1) log10(2)
} FormatInfo;

FormatInfo plan_format(Format f);
// The range and precision of all formats as a table.
void plan_print_formats(FILE *out);
#endif
