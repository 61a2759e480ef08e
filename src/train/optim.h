// optim: the optimizers over the parameter table: their state, groups, clipping.
//
// An optimizer is a row of one table (optim_kinds.c): which arrays it keeps, how large they are for a row
// of the parameter table, and the call that updates elements. Whatever allocates, counts, saves or cuts
// optimizer state walks that row.
#ifndef OPTIM_H
#define OPTIM_H
#include <stdbool.h>
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "train/grads.h"
#include "base/config.h"
#include "base/mem.h"
#include "net/model.h"
#ifdef __cplusplus
extern "C" {
#endif

// Where the flat range of all elements may be cut for an update of a part: anywhere; at multiples of
// UPDATE_BLOCK from the start of a tensor; between tensors.
typedef enum { OPTIM_ELEMENT, OPTIM_BLOCK, OPTIM_TENSOR } OptimCut;
enum { OPTIM_STATES = 6 };

typedef struct {
    OptimName name;
    double beta1, beta2; // beta1: also sgd's momentum; each as far as the optimizer has it
    float eps, weight_decay;
    double momentum;    // of Muon's matrices; its AdamW rows use beta1, beta2, eps. Training sets it before each update
                        // (schedule_momentum)
    double row_beta2;   // of NorMuon's means of squares
    float matrix_lr;    // learning rate of Muon's matrices, as a multiple; 0 means 1
    bool relative_step; // Adafactor: steps of min(0.01, 1 / sqrt(t)), and lr is not read
    bool cautious_decay; // adamw, muon, normuon: decay only where update and weight do not have opposite signs
    float clip;         // largest global gradient norm; 0: do not clip
    float agc;          // adaptive clipping (grads.h): largest |gradient| / |weight| of a unit; 0: off
    ClipUnit agc_unit;
} OptimSettings;

typedef struct Optim Optim;
// What one update call gets: elements [first, first + n) of what this rank has of a row, which is all of it but for
// ranges (OPTIM_ELEMENT: they may run on into the rows after it, which then decay alike).
typedef struct {
    const Param *row;
    size_t first, n;
    float *weight, *grad;      // at `first`
    void *state[OPTIM_STATES]; // at the start of the row's part of each array
} OptimPiece;

// A part of the flat range of all elements that this rank updates, and where its first element stands.
typedef struct {
    size_t begin, end;
    float *weight, *grad;
    X *x_weight; // used only where the storage type is not fp32
} OptimRange;

// A store for what is not in memory: items, one a range, that are lent while they are worked on. (offload_lender of
// parallel/offload.h makes one.)
typedef struct {
    // Item's bytes, until give_back; waits for them. next: the item that will be asked for next, -1: none.
    void *(*lend)(void *self, int item, int next); // NULL: there is no store
    void (*give_back)(void *self, int item, bool dirty);
    // Bytes [at, at + n_bytes) of an item that is not lent, for checkpoints and dumps: host memory.
    void (*read)(void *self, int item, size_t at, void *host, size_t n_bytes);
    void *self;
} OptimStore;

// Rows of which this rank has a part, and an update needs all (parallel/whole.c makes it). Each has an owner.
typedef void (*OptimWork)(void *arg, int row, float *weight, float *grad);
typedef struct {
    const int *owner; // (n_rows) among the ranks that share the row; -1: not such a row. NULL: there are none
    // The model's table, but such a row has the dimensions of the whole tensor on its owner, and 0 elsewhere: what the
    // optimizer keeps of it. n_elems and offset stay those of the model's table. NULL: nothing is kept.
    const Params *table;
    // For each such row of range k: weights and gradients come to its owner, where `work` changes one of them; that
    // (grads: which) goes back to all. Collective. `range` is where this rank has range k.
    void (*visit)(void *self, int k, const OptimRange *range, bool grads, OptimWork work, void *arg);
    void *self;
} OptimWhole;

// Of one rank of several (zero.h), or with its state in a store.
typedef struct {
    const OptimRange *range; // in ascending order, cut as kind->cut says; must outlive the optimizer. NULL: everything
    int n_ranges;
    // State is in a store, and with it the weights of ranges whose `weight` is NULL (master weights). The caller
    // makes the store, with items of optim_item_bytes that begin at zero, and sets optim.store.
    bool stored;
    OptimStore weights; // what units read of range k is item k of this store. In fp32 that is the weights
    Dev *host;          // of host memory, which has both stores: it makes the updates; NULL: the model's device does
    OptimWhole whole, agc; // rows for the update, and for adaptive clipping
} OptimPlace;

// Updates on the host: room for a range's gradients that have come down, and for its new weights in the storage type
// before they go up (NULL: the store has these bytes). Bytes moved so far.
typedef struct {
    Dev *dev; // NULL: updates are the model's device's
    float *grad;
    X *weight;
    size_t down, up;
} OptimHost;

typedef struct {
    const char *name, *guide; // guide: bytes of state per parameter as the guides put it
    OptimCut cut;
    int n_states;
    CkptArray state[OPTIM_STATES]; // without data
    void (*update)(Optim *optim, Dev *dev, const Params *params, OptimPiece piece, Update u);
} OptimKind;

struct Optim {
    OptimSettings set;
    const OptimKind *kind;
    CkptArray state[OPTIM_STATES]; // kind->state with data; what a checkpoint stores
    float *scratch;                // Muon
    double grad_scale;             // multiplies all gradients first: 1, or what undoes a loss scale
    int step;                      // updates made
    const OptimRange *range;       // state holds these alone, back to back; NULL: everything
    int n_ranges;
    double (*norm)(void *self, double grad_scale); // of all ranks' gradients; NULL: of the model's (grads_norm)
    void *self;
    OptimStore store;   // item k: the arrays of range k, then its weights; `state` has no data then
    OptimStore weights; // as OptimPlace has it
    OptimWhole whole, agc;
    OptimHost host;
    bool fp32;          // the storage type
    size_t *at;         // with ranges (n_ranges, n_states + 2): see optim_place_of
};

// Zero state for all of the model's parameters.
Optim optim_create(const Model *model, OptimSettings set);
// The same for a part of them, or for a store.
Optim optim_create_at(const Model *model, OptimSettings set, OptimPlace place);
// Frees the table of ranges; the arrays are the memory allocator's (Mem), the store is its maker's.
void optim_free(Optim *optim);
// One update from model->grads, which it leaves zeroed; x_weights are renewed. Matrices decay, vectors do not
// (the table says which). Returns the global norm of the scaled gradient before clipping (Pascanu et al., arXiv
// 1211.5063); when it is not finite, nothing is updated, the gradients are zeroed and the norm is returned as
// it is. That is optim_norm, then optim_apply or optim_drop, for callers that need the norm in between.
double optim_step(Optim *optim, Model *model, double lr);
// The global norm of model->grads times grad_scale.
double optim_norm(const Optim *optim, const Model *model);
// Clips and updates; `norm` is what optim_norm returned, and must be finite.
void optim_apply(Optim *optim, Model *model, double norm, double lr);
// No update: zeroes the gradients.
void optim_drop(Model *model);
// The last part of optim_apply alone, for elements [begin, end) of the flat range, which must be cut as
// kind->cut says: gradients times grad_scale, update number optim->step. Any cuts give the same bits.
void optim_update(Optim *optim, Model *model, double lr, double grad_scale, size_t begin, size_t end);

// The row of the table.
const OptimKind *optim_kind(OptimName name);
// Whether an update of a part of the row, cut along row->cut over `ranks` ranks, needs the rest of it.
bool optim_needs_whole(const OptimKind *kind, const Params *params, const Param *row, int ranks);
// Floating-point operations of a whole row's update, for whoever divides rows over ranks.
double optim_cost(const OptimKind *kind, const Params *params, const Param *row);
// The table by which the functions below find the optimizer's state: the model's, or whole.table.
const Params *optim_table(const Optim *optim, const Model *model);
// Elements of one of its arrays for one row.
size_t optim_kind_elems(const CkptArray *array, const Params *params, const Param *row);
// The same for elements [begin, end) of the flat range, cut as the optimizer's kind says.
size_t optim_range_elems(const CkptArray *array, const Params *params, size_t begin, size_t end);
// Where range k's part of array s starts, in bytes: from the start of item k of the store, or of state[s].data.
// s = n_states: its weights, in a store that holds them. *n_bytes: its size; 0 where it is not there.
size_t optim_place_of(const Optim *optim, const Params *params, int k, int s, size_t *n_bytes);
// Bytes of item k of the store, with the gaps that align its arrays.
size_t optim_item_bytes(const Optim *optim, int k);
// Bytes that optim_create asks for: with the tag optimizer, and as scratch. params: optim_table's.
size_t optim_state_bytes(OptimName name, const Params *params);
size_t optim_scratch_bytes(OptimName name, const Params *params);

#ifdef __cplusplus
}
#endif
#endif
