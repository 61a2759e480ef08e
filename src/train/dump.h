// dump: everything that one update computes, as named tensors, for build/diff.
//
// Each rank writes what it has, and of what several have alike, one does. How the pieces fit together stands in the
// files (part.h).
#ifndef DUMP_H
#define DUMP_H
#include "net/model.h"
#include "train/part.h"
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
                           // which adds the decay to it)
    double inverse;        // what undoes the loss scale in gradients of streams: 1, or a power of two
} DumpPlace;

typedef enum { DUMP_WEIGHT, DUMP_FORWARD, DUMP_LOSS, DUMP_BACKWARD, DUMP_GRAD, DUMP_STATE, DUMP_UPDATED } DumpKind;

typedef struct Dump Dump;

// Listens to the model (UnitHooks.saw) from here to dump_unwatch, and keeps in ordinary memory:
//
//   forward.UNIT.BUFFER    what the units make and keep, (samples, context, width): norm1, q, k, v, attn, resid, norm2,
//                          pre or gate and up, act; `out` is the stream behind the unit
//   loss                   of every token in nats, 0 where the target is not counted
//   backward.UNIT          the gradient of the stream below the unit, without the loss scale
Dump *dump_watch(Model *model, DumpPlace place);
void dump_unwatch(Dump *dump);
// Elements [begin, end) of what this rank has of a row: weight.NAME, grad.NAME, updated.NAME, or state.ARRAY.NAME. They
// are copied; scale multiplies fp32. array lives as long as the dump.
void dump_row(Dump *dump, DumpKind kind, const char *array, const Param *row, size_t begin, size_t end,
              SafeDtype dtype, const void *data, double scale);
// What rounding alone is expected to do to a tensor, relative to its size: the model of doc/diff.md. place: 0 the
// embedding, 1 + i block i, behind them the head.
double dump_error(const ModelShape *whole, XType type, bool fp8, DumpKind kind, size_t place, size_t step_tokens);

// run_dir/dump/step_NNNNNNNN: made by rank 0, without what was there before; then each rank writes its
// rank_RRRRR.safetensors. Both die when it cannot be done.
void dump_make_dir(const char *run_dir, long update);
void dump_write(Dump *dump, const char *run_dir);
void dump_free(Dump *dump);

#ifdef __cplusplus
}
#endif
#endif
