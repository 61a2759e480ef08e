// tp: tensor and sequence parallelism: one layer's matrices cut over a group of ranks.
//
// Units do not depend on it: tp_fill replaces entries of the table that they call (linear.h).
#ifndef TP_H
#define TP_H
#include "comm/comm.h"
#include "net/linear.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    Comm *group;      // the ranks that hold a layer between them: 2 or more; NULL: there is no tp
    Comm *neighbours; // those of them that hold the same key/value heads; NULL: every head is on one rank
    float *stage;     // tp_stage_floats: gradients of a unit that are not complete yet
} Tp;
typedef struct Parts Parts; // parts.h

// ---- which rank has which part

// Dies, with one sentence, where a shape cannot be cut over `size` ranks; sequence: with rows of T tokens shared too.
void tp_check(const ModelShape *whole, int size, bool sequence, size_t T);
// What one rank has of a shape. size 1: the shape itself. To be given to model_describe.
ModelShape tp_shape(const ModelShape *whole, int rank, int size, bool sequence);
// The groups for a part. Collective over `group`, which must have two ranks or more, or in a plan has no ops.
Tp tp_create(Comm *group, const ModelShape *part);
size_t tp_stage_floats(const Params *params);
// Tokens and targets (n, on the host) as Batch wants them: counted from this rank's first. Either may be NULL.
void tp_localise(const ModelShape *part, int32_t *token, int32_t *target, size_t n);

// Replaces the entries of *linear that tp changes. parts->tp is set.
void tp_fill(Parts *parts, Linear *linear);

// ---- around the model

// One row of logits (whole vocabulary) from each rank's part of it; both on the host, part in its place in row.
void tp_gather_logits(const Tp *tp, const ModelShape *part, float *row);

#ifdef __cplusplus
}
#endif
#endif
