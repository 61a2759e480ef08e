// zero: data parallelism that does not keep everything N times (ZeRO; stage 3 is also called FSDP).
//
//   stage   each of N ranks holds 1/N of                 elements sent by a rank, times (N - 1) / N
//   0       nothing (ddp.h)                              2 P a step
//   1       the optimizer's state                        2 P a step
//   2       that and the gradients                       P a micro-batch and P a step
//   3       that and the weights                         3 P a micro-batch
//
// Hybrid sharding: N ranks hold everything once between them, and other N ranks the same once more.
//
// Sizes and cuts are functions of a table, a rank and a size, so that one process can play every rank.
#ifndef ZERO_H
#define ZERO_H
#include "parallel/ddp.h"
#include "parallel/offload.h"
#include "train/optim.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct Whole Whole; // at the end

typedef struct {
    int stage;
    bool overlap;        // false: the naive twin, which waits where it starts
    bool reshard;        // stage 3: gathered weights are freed after forward, and gathered again; false: they stay
                         // until the next update (reshard_after_forward of PyTorch's FSDP)
    size_t keep;         // stage 3: those of units with fewer parameters stay in any case
    int prefetch;        // stage 3: units that are gathered ahead while one runs, at most ZERO_PREFETCH
    size_t bucket_bytes; // stage 0: gradients that are added in one call, at least
    bool narrow;         // gradients go to other ranks in the storage type; they are kept and accumulated in fp32
    const OffloadSettings *store; // of the optimizer's state, in stage 3 of the weights too; NULL: they are in memory
    Dev *host; // of host memory, where the store is: it updates what the store keeps; NULL: the model's device does
} ZeroSettings;

// Who owns what: of each unit's elements, in flat order, every rank has one range. Of experts that ranks divide
// (Params.ep) rank / ep of size / ep shares it with those that have the same ones.
typedef struct {
    int rank, size, n_units; // size 1: every rank owns everything
    size_t *count; // (n_units, size) elements; of experts the first size / ep of a row
    size_t *begin; // (n_units) where this rank's begin, in the flat order of all
    size_t *at;    // (n_units + 1) and in this rank's shard; the last: elements of the shard
} ZeroCut;

// Room for one unit's weights, or its gradients.
typedef struct {
    void *data;
    int unit;  // -1: free
    bool lent; // the store's item of that unit is being sent
    X *narrow; // gradients on their way in the storage type; NULL: they go in fp32
    CommRequest request;
    bool complete; // gradients: after this reduction the unit's are those of the whole step
} ZeroSlot;

// The sum of a unit's gradient over the ranks, of this step.
typedef struct {
    CommRequest scatter; // stage 1, deterministic: over those that cut it
    CommRequest copies;  // then of this rank's range over those that hold copies of it
    bool started, ended, sent; // the first; the first; the second
} ZeroSum;

enum {
    ZERO_SLOTS = 6,   // of gradients: embedding, blocks at even and at odd places, head; their experts, where ranks
                      // divide them
    ZERO_PREFETCH = 6 // as many as a store of weights has slots for
};

typedef struct {
    ZeroSettings set;
    ZeroCut cut;
    Model *model;
    Comm *dp, *control, *parts; // parts NULL: none
    Comm *copies;               // NULL: nobody has a copy of this rank's ranges
    Comm *tp;                   // NULL: none
    Comm *ep;                   // with the experts between them, on the host; NULL: none
    Comm **group;               // (n_units) ranks with the same tensors: dp or, of experts that ranks divide, a part
    int *slot, *place;          // (n_units) of a unit's gradients in grads, of its gathered weights in weights
    Whole *whole;               // of the optimizer, where tp is; NULL: none
    Ddp *ddp;          // stage 0
    OptimRange *range; // (n_units) this rank's; stage 0: whole units
    bool tied, last;   // last: this micro-batch is the last of the step
    int n_slots;       // of grads: 4, or ZERO_SLOTS
    ZeroSlot *weights; // stage 3: n_weights of them (place_weights in zero.c)
    int n_weights;
    Offload *store;    // stage 3: item u: what this rank owns of the weights that unit u reads; NULL: in memory
    Offload *state;    // item u: the optimizer's arrays of range u, then its weights (optim.h); NULL: in memory
    ZeroSlot grads[ZERO_SLOTS]; // stages 2, 3
    ZeroSum *sum;        // (n_units)
    X *narrow;           // (n_elems) stage 1: gradients on their way in the storage type; NULL: in fp32
} Zero;

// How the table is cut over `size` ranks: evenly, then moved to where `where` allows a cut (zero_where). Stage 0 is not
// cut: the result is that of one rank. Between tensors it is cut by their whole sizes, so at the same ones on all ranks
// of a tensor-parallel group.
ZeroCut zero_cut(const Params *params, OptimCut where, int stage, int rank, int size);
// Where an update may be cut: adaptive clipping needs whole tensors, and what tp ranks bring together (whole.c) must be
// on the same replica on all of them.
OptimCut zero_where(const OptimKind *kind, bool agc, int tp);
void zero_cut_free(ZeroCut *cut);
// What of the model's flat arrays is to be a shard (ModelOptions.shard).
ModelShard zero_shard(const ZeroCut *cut, const Dev *dev, int stage, bool store);

// All NULL in a plan, and where there is one rank.
typedef struct {
    Comm *dp;      // ranks with the same weights and other tokens, which cut them
    Comm *copies;  // hybrid sharding: ranks of other dp groups with the same cut; NULL: dp is all
    Comm *control; // all of them again, for what is neither weights nor gradients, so that dp counts these alone
    Comm *parts;   // ranks that hold one model between them (tensor and pipeline parallel): the norm is over all
    Comm *ep, *experts; // the ranks of dp that have the experts between them, on the host; those of dp with the same
    Comm *tp;      // those of them that hold the same layers; in a plan without ops. NULL, or of one rank: none
} ZeroGroups;

// For a model that was allocated with that shard; sets its hooks. Takes the cut.
Zero *zero_create(Model *model, ZeroSettings set, ZeroCut cut, ZeroGroups group);
void zero_free(Zero *zero);
// The optimizer on this rank's part; its norm (optim_norm) is that of the whole model's gradient.
Optim zero_optim(Zero *zero, OptimSettings set);
// The table's initial weights (params_init): of them what this rank owns, wherever it is kept. Collective.
void zero_init_weights(Zero *zero, Optim *optim, uint64_t seed);

// After this rank's part of what units read was written: every rank sees all of it.
void zero_share_weights(Zero *zero);

// Before each micro-batch; last: of the step.
void zero_micro(Zero *zero, bool last);
// After model_step_finish: the gradients that this rank owns are the sums over the ranks.
void zero_reduce(Zero *zero);
// After the optimizer's update (or optim_drop): gradients are zero, and every rank sees the new weights.
void zero_end(Zero *zero);

// This rank's part of a checkpoint (ckpt.h): the pieces that it writes, or (writes = false) those it needs.
// replica of replicas: which of the ranks with the same part of the model it is. They live as long as zero and
// optim, and their moves are for the thread that trains.
CkptPart zero_part(Zero *zero, Optim *optim, bool writes, int replica, int replicas);
void zero_part_free(CkptPart *part);
// After the weights that this rank owns were written: what the units read is renewed, on all ranks. Collective.
void zero_renew(Zero *zero, const Optim *optim);

// ---- whole.c: updates that need whole tensors, where tensor parallelism has cut them. Each tensor is brought together
// on one rank of the group, its owner, which updates it and gives everyone's part back.

// Which rank has which row, and in which order they come: a function of a table, the ranges and the size of the group.
// All ranks of the group find the same.
typedef struct {
    int size;
    int *owner; // (n_rows) as OptimWhole has it
    int *round; // (n_rounds, size): the row that each rank works on; -1: none
    int *first; // (n_ranges + 1): rounds of each range
} WholePlan;

// What needs it: an optimizer's update, or (agc) adaptive clipping by that unit.
typedef struct {
    const OptimKind *kind;
    bool agc, tied;
    ClipUnit unit;
} WholeNeed;

// range NULL: one of everything. No row needs it: all NULL.
WholePlan whole_plan(const Params *params, WholeNeed need, const OptimRange *range, int n_ranges, int size);
void whole_plan_free(WholePlan *plan);
// Bytes that the whole group sends in one visit of every range.
size_t whole_plan_bytes(const WholePlan *plan, const Params *params);

// For a model whose tensors `group` shares; in a plan the group has no ops.
Whole *whole_create(Model *model, Comm *group, OptimSettings set, const OptimRange *range, int n_ranges);
void whole_free(Whole *whole); // NULL is allowed
OptimWhole whole_of_update(Whole *whole);
OptimWhole whole_of_agc(Whole *whole);

#ifdef __cplusplus
}
#endif
#endif
