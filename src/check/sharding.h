// sharding: what data-parallel ranks hold and send, as the guides' formulas, beside what was counted.
#ifndef SHARDING_H
#define SHARDING_H
#include "src/check/account.h"
#include "parallel/ranks.h"

#include <stdio.h>
#ifdef __cplusplus
extern "C" {
#endif

// What the formulas depend on.
typedef struct {
    size_t ranks, params; // N, P
    size_t shard;         // S of them cut what ZeRO cuts, and N / S hold copies; 0: all
    size_t experts, ep;   // Px: of P, what ep ranks divide: N / ep ranks have the same; 0, 1: none
    int stage;            // of ZeRO; 0 with one rank
    bool reshard, deterministic;
    size_t x_bytes, g_bytes; // of a weight; of a gradient element when it is sent
    size_t state;         // bytes of the optimizer's state for all P, master weights among them
    size_t micro, batch;  // M micro-batches of B sequences on each rank
    size_t more;          // micro-batches whose gradient is measured, and reduced, apart (run.noise_every)
    size_t keep;          // units with fewer elements stay gathered for a step (parallel.keep); 0: none
    // Elements: of these units; that recomputation gathers a third time in a micro-batch (sharding_again); that a
    // pipeline's W reduces once more in a micro-batch; of an embedding whose tied head is on another stage, gathered and
    // reduced once more.
    size_t kept, again, later, tied;
    size_t experts_kept, experts_again, experts_later; // of the experts
    bool stored, host; // optimizer state, in stage 3 the weights too, is in a store; the host updates it
    size_t embed; // E: of the embedding that is gathered once a step in 4 bytes (numerics.embed_dtype); 0: it is not
} ShardingCase;

// A number of bytes as a formula in P and N, and its value for all ranks together, which is a whole number however
// unevenly P is cut.
typedef struct {
    char text[96]; // for one rank: "8 P / N"
    size_t all;
} ShardingFormula;

ShardingCase sharding_case(const Run *run);
// Units [first, first + n) of the `units` of a stage; whether the first is the embedding, the last the head.
typedef struct {
    size_t first, n, units;
    size_t slots, ahead;         // in which its blocks take turns; units that are gathered while one runs
    bool embedding, head, apart; // apart: of the divided experts, which have slots of their own
    const size_t *block;         // elements that take turns, of each of its blocks; 0: it has none
} ShardingChunk;
// Elements that are gathered again in a micro-batch at stage 3, besides the gathers before each forward and before each
// backward: blocks that are recomputed evict each other from the slots (zero.c).
size_t sharding_again(ShardingChunk chunk, size_t segment);
// Elements of a unit that are gathered for each of its runs: n, or 0 where it stays gathered.
size_t sharding_streamed(const ShardingCase *is, size_t n);
// S: ranks that cut what ZeRO cuts; N without hybrid sharding.
size_t sharding_ranks(const ShardingCase *is);
// Bytes held of weights, gradients or optimizer state; of other tags none.
ShardingFormula sharding_memory(const ShardingCase *is, MemTag tag);
// Bytes sent in one step by a kind of call, with algorithms that send the fewest.
ShardingFormula sharding_traffic(const ShardingCase *is, CommKind kind); // of all but the divided experts
size_t sharding_gathered(const ShardingCase *is, size_t n); // of n elements, those that a step gathers at stage 3
// The divided experts alone, as a case of N / ep ranks; there are ep of it.
ShardingCase sharding_experts(const ShardingCase *is);
// Bytes that this rank's update moves out of device memory and into it, with memory.offload: what is in the store, there
// and back; or, where the host updates it, gradients out and weights in. In stage 3 units gather the weights from the
// store besides.
typedef struct {
    size_t out, in;
} ShardingMoved;
ShardingMoved sharding_update_moved(const Run *run);
// Two tables: the formulas beside the sum of what `ranks` ranks counted, the difference, and rank 0's part.
void sharding_print(const ShardingCase *is, const AccountRank *rank, FILE *out);

// run.account: after the first step writes account.json, every rank's bytes by tag and the traffic of this one step,
// and prints them beside the formulas. For runs whose replicas ranks_join made.
Observer sharding_account(void);

#ifdef __cplusplus
}
#endif
#endif
