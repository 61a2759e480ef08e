// replicas: what data-parallel ranks hold and send, as the guides' formulas, beside what was counted.
#ifndef REPLICAS_H
#define REPLICAS_H
#include "train/account.h"
#include "train/run.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// What the formulas depend on.
typedef struct {
    size_t ranks, params; // N, P
    int stage;            // of ZeRO; 0 with one rank
    bool reshard, deterministic;
    size_t x_bytes, g_bytes; // of a weight; of a gradient on its way
    size_t state;         // bytes of the optimizer's state for all P, master weights among them
    size_t micro, batch;  // M micro-batches of B sequences on each rank
    size_t again;         // elements that recomputation gathers a third time in a micro-batch (replicas_again)
} ReplicasCase;

// A number of bytes as a formula in P and N, and its value for all ranks together, which is a whole number however
// unevenly P is cut.
typedef struct {
    char text[64]; // for one rank: "8 P / N"
    size_t all;
} ReplicasFormula;

ReplicasCase replicas_case(const Run *run);
// Gathers of a block's weights in a micro-batch at stage 3, all blocks together, beside the one before its forward and
// the one before its backward: segments of blocks that run again push each other out of the slots (zero.c).
size_t replicas_again(size_t layers, size_t segment, bool overlap);
// Bytes held of weights, gradients or optimizer state; of other tags none.
ReplicasFormula replicas_memory(const ReplicasCase *is, MemTag tag);
// Bytes sent in one step by a kind of call, with algorithms that send the fewest.
ReplicasFormula replicas_traffic(const ReplicasCase *is, CommKind kind);
// Two tables: the formulas beside the sum of what `ranks` ranks counted, the difference, and rank 0's part.
void replicas_print(const ReplicasCase *is, const AccountRank *rank, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
