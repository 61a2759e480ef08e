// recompute: which activations are kept for backward, in what form, and which are recomputed.
//
// The loops over the units are in model_run.c. When all activations are kept (RecomputePool.all_kept), they call
// nothing here. Else they call the functions below between units. Units do not depend on it: it uses only the interface
// in UnitKind (unit.h). On a stage of a pipeline a list of units may begin without the embedding and end without the
// head, and may have several sets of buffers (slots), for several micro-batches in flight.
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
    bool offload;  // what is kept of a block waits in host memory; not with compress
    bool compress; // kept activations of blocks are stored in 8 bits (dev.h, compress); changes gradients a little
} RecomputePolicy;

// Buffers that are in use only during the backward of one micro-batch: one pool serves all slots of a rank.
typedef struct {
    RecomputePolicy policy;
    bool train;
    bool all_kept;  // nothing is recomputed or compressed: every unit has its own buffers; no other field is used
    size_t segment; // blocks that are run again together; 0: none are
    void *work[UNIT_MAX_SAVED];          // of one block: buffers that are restored, compressed or offloaded
    X *input[2]; // offload: the kept inputs of blocks, in turn: a block reads one while the next one's is written
    uint64_t bytes_out, bytes_in; // offload: to host memory, and back, so far
    size_t sets;                         // of a segment's blocks:
    X **inner;                           // their inputs
    void *(*saved)[UNIT_MAX_SAVED];
    int8_t *(*packed)[UNIT_MAX_SAVED];
    float *(*scale)[UNIT_MAX_SAVED];
    int fresh; // the slot whose forward wrote them last, with nothing else in them since; -1: none
} RecomputePool;

// Buffers of one slot, by unit (model_activations). Several units may share one: see recompute.c.
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
    BufferList widest; // unit_widest_saved
    size_t (*pitch)[UNIT_MAX_SAVED]; // bytes from a row of `saved` to the next sequence's, by row: those of the widest
                                     // where blocks of two kinds share a buffer
    X **stream;      // input of each unit (N, C); NULL of the embedding
    void *(*saved)[UNIT_MAX_SAVED];
    int8_t *(*packed)[UNIT_MAX_SAVED]; // compressed copies (max_rows, width); NULL: none
    float *(*scale)[UNIT_MAX_SAVED];
    void *(*host)[UNIT_MAX_SAVED]; // offload: copies of the saved buffers, row by row; NULL: it is not away
    char **host_stream;            // and of the streams
} Activations;

// What backward keeps for linear_backward_later, by unit; with recomputation, also copies of the inputs that it reads.
typedef struct {
    BufferList *row; // with the bytes of one row
    void *(*late)[UNIT_MAX_SAVED];
    void *(*read)[UNIT_MAX_SAVED]; // NULL: still in the slot
} RecomputeLate;

// The mode's name in the configuration.
const char *recompute_name(RecomputeMode mode);
// Whether blocks keep their own buffers, but for some that their `restore` recomputes.
static inline bool recompute_restores(RecomputeMode mode)
{
    return mode == RECOMPUTE_SELECTIVE || mode == RECOMPUTE_ATTENTION;
}
// Blocks of a segment, 1 .. layers; 0: no block is run again.
size_t recompute_segment(RecomputePolicy policy, size_t layers);
// Bytes tagged MEM_ACTS of a training model for micro-batches of B sequences of T tokens, from the formula of
// doc/recompute.md.
size_t recompute_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t B, size_t T);
// The same in parts: of a slot of `layers` blocks from layer `first` on, with the head or not; of the pool; of a
// RecomputeLate. segment: the pool's.
size_t recompute_slot_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t segment,
                            size_t first, size_t layers, bool head, size_t N);
size_t recompute_pool_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t segment, size_t N);
size_t recompute_late_bytes(const ModelShape *shape, const Dev *dev, size_t segment, size_t first, size_t layers,
                            size_t N);
// Bytes tagged MEM_HOST of a slot, with offload: as many go there for each micro-batch, and come back.
size_t recompute_host_bytes(const ModelShape *shape, const Dev *dev, RecomputePolicy policy, size_t segment,
                            size_t first, size_t layers, size_t N);
// Floating-point operations of matmuls and attention that are recomputed, per token of a sequence of T; compare with
// model_flops_per_token.
double recompute_extra_flops(const ModelShape *shape, RecomputePolicy policy, size_t T);

// Table of all modes for a model: buffers, bytes, blocks that run again, operations. `counting`: an allocator whose
// raw_alloc only counts (plan.h has one); only its functions are used.
void recompute_print(const ModelShape *shape, Dev *dev, const Mem *counting, size_t B, size_t T, FILE *out);

// For lists with at most `layers` blocks each; train: for a backward pass (else equal units share, policy is ignored).
// Its buffers are allocated with the slots that need them first.
RecomputePool recompute_pool(size_t layers, bool train, RecomputePolicy policy);
void recompute_pool_free(RecomputePool *pool); // the lists; the buffers belong to the allocator
// Sets unit u's stream and saved buffers (acts->row[u] is already set): its own, or the pool's.
void recompute_place(Activations *acts, int u, Mem *mem);
RecomputeLate recompute_allocate_late(const Activations *acts, const Dev *dev, const ModelShape *shape, Mem *mem);
void recompute_late_free(RecomputeLate *late);

// ---- between the units' calls, for rows [row, row + N) of a slot's, whole sequences; `saved` begins at `row`

// After a forward that a backward follows: compresses or offloads what is to be.
void recompute_keep(const Activations *acts, Dev *dev, int u, size_t row, size_t N, void *const *saved);
// Before unit u's backward, and before its weights are gathered: fetches, runs a segment again, decompresses.
void recompute_again(Activations *acts, const UnitContext *ctx, int u, size_t row, void *const *saved,
                     const Batch *batch);
// The same, when its weights are available: recomputes the buffers that no block keeps (recompute_restores).
void recompute_restore(const Activations *acts, const UnitContext *ctx, int u, size_t row, void *const *saved,
                       const Batch *batch);
// UnitContext.later of unit u, in `out`; NULL: none of its weight gradients can be deferred.
void *const *recompute_late_at(const RecomputeLate *late, int u, size_t row, void **out);
// After its backward: copies of what linear_backward_later will read, of a block that will not run again for it.
void recompute_keep_reads(const Activations *acts, Dev *dev, int u, const RecomputeLate *late, size_t row, size_t N,
                          void *const *saved);
// linear_backward_later of all units in reverse.
void recompute_backward_later(Activations *acts, const UnitContext *ctx, size_t row, const RecomputeLate *late,
                              const Batch *batch);

#ifdef __cplusplus
}
#endif
#endif
