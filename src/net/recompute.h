// recompute: which activations wait for backward, in what form, and what is made again.
//
// It owns the streams between the units and their saved buffers, and runs a list of units forward and
// back. Units do not know of it: it uses what stands in a UnitKind (unit.h). A list may begin without the embedding
// and end without the head, and may have several sets of buffers, slots, for several micro-batches in flight: what a
// stage of a pipeline has.
#ifndef RECOMPUTE_H
#define RECOMPUTE_H
#include <stdio.h>

#include "base/config.h"
#include "base/mem.h"
#include "net/unit.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    RecomputeMode mode;
    size_t every;  // RECOMPUTE_EVERY; more than the layers: as many as the layers
    bool compress; // what is kept of the blocks waits in 8 bits (dev.h, compress); changes gradients a little
} RecomputePolicy;

// Buffers that hold something only while one micro-batch goes back: one pool serves all slots of a rank.
typedef struct {
    RecomputePolicy policy;
    bool train;
    size_t segment; // blocks that are run again together; 0: none are
    void *work[UNIT_MAX_SAVED];          // of one block: what is made again (selective), or was compressed
    size_t sets;                         // of a segment's blocks:
    X **inner;                           // their inputs
    void *(*saved)[UNIT_MAX_SAVED];
    int8_t *(*packed)[UNIT_MAX_SAVED];
    float *(*scale)[UNIT_MAX_SAVED];
    int fresh; // the slot whose forward wrote them last, with nothing else in them since; -1: none
} RecomputePool;

// Buffers of one slot, by unit. Several units may share one: see recompute.c.
typedef struct {
    RecomputePool *pool;
    RecomputePolicy policy;
    const Unit *unit;
    int n_units, slot; // slot: differs between all of the pool
    size_t segment;
    size_t max_rows; // N of the buffers
    size_t x_bytes, stream_row; // bytes of one X, of a row of a stream
    size_t sharers;  // ranks that share the rows of a stream; 1: none do
    BufferList *row; // the saved buffers of each unit, with the bytes of one row
    X **stream;      // input of each unit (N, C); NULL of the embedding
    void *(*saved)[UNIT_MAX_SAVED];
    int8_t *(*packed)[UNIT_MAX_SAVED]; // compressed copies (max_rows, width); NULL: none
    float *(*scale)[UNIT_MAX_SAVED];
} Activations;

// What backward leaves for backward_weight, by unit; where blocks run again, copies of what they read beside.
typedef struct {
    BufferList *row; // with the bytes of one row
    void *(*late)[UNIT_MAX_SAVED];
    void *(*read)[UNIT_MAX_SAVED]; // NULL: still in the slot
} RecomputeLate;

// Blocks of a segment, 1 .. layers; 0: no block is run again.
size_t recompute_segment(RecomputePolicy policy, size_t layers);
// Bytes tagged MEM_ACTS of a training model for micro-batches of B sequences of T tokens, from the formula of
// doc/recompute.md.
size_t recompute_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t B, size_t T);
// The same in parts: of a slot of `layers` blocks, with the head or not; of the pool; of a RecomputeLate. segment: the
// pool's.
size_t recompute_slot_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t segment,
                            size_t layers, bool head, size_t N);
size_t recompute_pool_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t segment, size_t N);
size_t recompute_late_bytes(const ModelShape *shape, const Dev *dev, size_t segment, size_t layers, size_t N);
// Floating-point operations of matmuls and attention that are done again, per token of a sequence of T;
// to be compared with model_flops_per_token.
double recompute_extra_flops(const ModelShape *shape, RecomputePolicy policy, size_t T);

// Table of all modes for a model: buffers, bytes, blocks that run again, operations. `counting`: a door whose
// raw_alloc hands out no memory (plan.h has one); only its functions are used.
void recompute_print(const ModelShape *shape, Dev *dev, const Mem *counting, size_t B, size_t T, FILE *out);

// For lists with at most `layers` blocks each; train: for a backward pass (else equal units share, policy is ignored).
// Its buffers come with the slots that need them first.
RecomputePool recompute_pool(size_t layers, bool train, RecomputePolicy policy);
void recompute_pool_free(RecomputePool *pool); // the lists; the buffers are the door's
// A slot for B sequences of T tokens. The pool must stay where it is.
Activations recompute_allocate(RecomputePool *pool, int slot, const Unit *unit, int n_units, const Dev *dev,
                               const ModelShape *shape, Mem *mem, size_t B, size_t T);
void recompute_free(Activations *acts);
RecomputeLate recompute_allocate_late(const Activations *acts, const Dev *dev, const ModelShape *shape, Mem *mem);
void recompute_late_free(RecomputeLate *late);

// Rows [row, row + batch->N) of a slot's, whole sequences. All units in order: from acts->stream[0], unless that is
// the embedding's, to out (max_rows, C), which a list that ends with the head has not. batch->train: what backward
// needs is left behind.
void recompute_forward(Activations *acts, const UnitContext *ctx, X *out, size_t row, const Batch *batch);
// All units in reverse, of rows that forward was given. dstream (batch->N, C): the gradient of the last unit's output
// on entry (the head's: anything), of the first one's input on return (the embedding's: anything). late: NULL, or what
// recompute_backward_weight needs goes there and the gradients of the blocks' matmuls are left to it.
void recompute_backward(Activations *acts, const UnitContext *ctx, X *dstream, size_t row, const RecomputeLate *late,
                        const Batch *batch);
void recompute_backward_weight(Activations *acts, const UnitContext *ctx, size_t row, const RecomputeLate *late,
                               const Batch *batch);

#ifdef __cplusplus
}
#endif
#endif
