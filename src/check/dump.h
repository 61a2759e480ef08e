// dump: everything that one update computes, as named tensors, for build/diff.
//
// Each rank writes its own elements; of elements that several ranks hold, one rank writes. The files say how the pieces
// fit together, as a Part.
#ifndef DUMP_H
#define DUMP_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/safetensors.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

// Whose dump it is.
typedef struct {
    int rank, ranks;       // of all: names the file, and says how many there will be
    long update;           // counts from 1
    size_t first, samples; // the whole step's sequences: global index of the first, and how many
    size_t context;        // tokens of a whole sequence
    const char *dtype, *layout; // for people: "bf16", "dp 2, ZeRO 3"
    bool fp8;
    bool by_sign;          // an element's update is no smooth function of its gradient (Lion, Muon; Adam,
                           // which adds the decay to it; cautious decay)
    double inverse;        // what undoes the loss scale in gradients of streams: 1, or a power of two
} DumpPlace;

typedef enum {
    DUMP_WEIGHT, DUMP_FORWARD, DUMP_LOSS, DUMP_BACKWARD, DUMP_GRAD, DUMP_STATE, DUMP_UPDATED,
    DUMP_BEFORE // the optimizer's state that the step began with: a hash of it in the metadata, and no tensor
} DumpKind;

typedef struct Dump Dump;

// Listens to the model (UnitHooks.saw) from here to dump_unwatch, and keeps in ordinary memory:
//
//   forward.UNIT.BUFFER    what the units make and keep, (samples, context, width): norm1, q, k, v, attn, resid, norm2,
//                          pre or gate and up, act; `out` is the stream after the unit
//                          of experts: router (.., E), with biases also keys, scores + biases (.., E); choice, weights
//                          (.., k); by slot experts_pre (.., k 2F), experts_act (.., k F), experts_down (.., k C),
//                          0 where one is dropped; experts, their sum with a shared one's. Where ranks divide the experts (ep)
//                          the first two of the slots' are not there: other ranks have them, as rows that came. Where
//                          they divide columns (tp) the third is not: no rank has its sum
//   loss                   of every token in nats, 0 where the target is not counted
//   backward.UNIT          the gradient of the stream below the unit, without the loss scale
Dump *dump_watch(Model *model, DumpPlace place);
// What went in, input.tokens and input.targets (samples, context): B whole sequences of this process, from global index
// `sample` on. Of the ranks that share them, each adds its own tokens, or none.
void dump_input(Dump *dump, const int32_t *token, const int32_t *target, size_t B, uint64_t sample);
void dump_unwatch(Dump *dump);
// Elements [begin, end) of what this rank has of a row: weight.NAME, grad.NAME, updated.NAME, or state.ARRAY.NAME. They
// are copied (of DUMP_BEFORE: hashed); scale multiplies fp32. array lives as long as the dump.
void dump_row(Dump *dump, DumpKind kind, const char *array, const Param *row, size_t begin, size_t end,
              SafeDtype dtype, const void *data, double scale);
// What rounding alone is expected to do to a tensor, relative to its size: the model of doc/diff.md. place: 0 the
// embedding, 1 + i block i, after them the head.
double dump_error(const ModelShape *whole, XType type, bool fp8, DumpKind kind, size_t place, size_t step_tokens);

// run_dir/dump/step_NNNNNNNN: made by rank 0, without what was there before; then each rank writes its
// rank_RRRRR.safetensors. Both die when it cannot be done.
void dump_make_dir(const char *run_dir, long update);
void dump_write(Dump *dump, const char *run_dir);
void dump_free(Dump *dump);

// ---- parts: which elements of a whole tensor an array holds

// Seen as a matrix of `width` columns (its leading axes are the rows), a tensor is cut into ranges of rows and of
// columns; the part is every chosen row's chosen columns, in the order of the ranges. No layout needs more:
//
//   tensor parallelism     columns: heads of q, gate and up
//   sequence, context      rows: tokens, row sample * T + position
//   data parallelism       rows: samples
//   ZeRO                   width 1: elements
enum { PART_DIMS = 4 };

typedef struct {
    size_t first, count;
} PartRange;

typedef struct {
    PartRange *range;
    size_t n, held; // ranges, and what they add up to
} PartList;

typedef struct {
    int ndim;
    size_t shape[PART_DIMS], width; // of the whole
    PartList rows, columns;
    // Beside where: when it was computed, and how exactly.
    long at;          // ascends in the order of execution
    double error;     // what rounding alone is expected to do to it, relative to its size; 0: not known
    SafeDtype stored; // the type it was rounded to when it was stored, be the file's what it may
} Part;

// Of `shape`; no rows and no columns yet.
Part dump_part_make(int ndim, const size_t *shape, size_t width);
// Appends a range, joining it to the last one where they touch.
void dump_part_rows(Part *part, size_t first, size_t count);
void dump_part_columns(Part *part, size_t first, size_t count);
size_t dump_part_elems(const Part *part);       // that it holds
size_t dump_part_whole_elems(const Part *part); // of the whole tensor
void dump_part_free(Part *part);

// As JSON, for a file's metadata. free() it.
char *dump_part_text(const Part *part);
// The way back. False: the text is not such a part, or reaches beyond the whole.
bool dump_part_parse(Part *part, const char *text);

// Puts data (dump_part_elems elements of n_bytes each) where it belongs in whole. seen (dump_part_whole_elems) counts,
// up to 255, how often each element has come. False: an element that had come before has another value now.
bool dump_part_place(const Part *part, void *whole, uint8_t *seen, const void *data, size_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
