// recompute: which activations wait for backward, in what form, and what is made again. Layer 3.
//
// It owns the streams between the units and their saved buffers, and runs the list of units forward and
// back. Units do not know of it: it uses `saved`, `forward`, `backward` and `restore` of unit.h.
#ifndef RECOMPUTE_H
#define RECOMPUTE_H
#include <stdio.h>

#include "mem.h"
#include "unit.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    RECOMPUTE_NONE,      // all is kept
    RECOMPUTE_SELECTIVE, // norms' and activations' outputs are made again: no matmul, no attention
    RECOMPUTE_SQRT,      // segments of ceil(sqrt(layers)) blocks (Chen et al., arXiv 1604.06174)
    RECOMPUTE_EVERY,     // segments of `every` blocks: the stream is kept at their starts, the rest made again
    RECOMPUTE_FULL       // segments of one block
} RecomputeMode;

typedef struct {
    RecomputeMode mode;
    size_t every;  // RECOMPUTE_EVERY; more than the layers: as many as the layers
    bool compress; // what is kept of the blocks waits in 8 bits (dev.h, compress); changes gradients a little
} RecomputePolicy;

// Buffers by unit. Several units may share one: see recompute.c.
typedef struct {
    RecomputePolicy policy;
    const Unit *unit;
    int n_units;
    size_t segment;  // blocks that are run again together; 0: none are
    size_t max_rows; // N of the buffers
    size_t x_bytes, stream_row; // bytes of one X, of a row of a stream
    size_t sharers;  // ranks that share the rows of a stream; 1: none do
    BufferList *row; // the saved buffers of each unit, with the bytes of one row
    X **stream;      // input of each unit (N, C); that of the first is not used
    void *(*saved)[UNIT_MAX_SAVED];
    int8_t *(*packed)[UNIT_MAX_SAVED]; // compressed copies (max_rows, width); NULL: none
    float *(*scale)[UNIT_MAX_SAVED];
} Activations;

// Blocks of a segment, 1 .. layers; 0: no block is run again.
size_t recompute_segment(RecomputePolicy policy, size_t layers);
// Bytes tagged MEM_ACTS of a training model for micro-batches of B sequences of T tokens, from the formula of
// doc/recompute.md.
size_t recompute_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t B, size_t T);
// Floating-point operations of matmuls and attention that are done again, per token of a sequence of T;
// to be compared with model_flops_per_token.
double recompute_extra_flops(const ModelShape *shape, RecomputePolicy policy, size_t T);

// Table of all modes for a model: buffers, bytes, blocks that run again, operations. `counting`: a door whose
// raw_alloc hands out no memory (plan.h has one); only its functions are used.
void recompute_print(const ModelShape *shape, Dev *dev, const Mem *counting, size_t B, size_t T, FILE *out);

// Buffers for B sequences of T tokens; train: for a backward pass (else equal units share, policy is ignored).
Activations recompute_allocate(const Unit *unit, int n_units, const Dev *dev, const ModelShape *shape, Mem *mem,
                               size_t B, size_t T, bool train, RecomputePolicy policy);
void recompute_free(Activations *acts); // the lists; the buffers are the door's

// All units in order. batch->train: what backward needs is left behind.
void recompute_forward(Activations *acts, const UnitContext *ctx, const Batch *batch);
// All units in reverse, for the rows of `batch`, which are those from `row` on of the batch that forward was
// given (whole sequences). dstream: room for the gradient of the stream, (batch->N, C).
void recompute_backward(Activations *acts, const UnitContext *ctx, X *dstream, size_t row, const Batch *batch);

#ifdef __cplusplus
}
#endif
#endif
