// replicas: the processes that train one model together, as a training step sees them.
//
// A few operations of a step depend on the number of processes: this process' share of the batch, the sum of the
// losses, the complete gradient, the new weights on every process. They are here. For one process they are in
// replicas.c, a line or a few each. For several, or when state is sharded or offloaded, src/parallel/ranks.c fills
// ReplicasKind: data, tensor, context and pipeline parallelism, ZeRO, offload.
//
// The invariant: between two collective calls no process takes a branch that another does not take. So every value that
// decides the next action (the loss, the norm, a signal, a file) goes through replicas_sum, replicas_any or
// replicas_tell.
#ifndef REPLICAS_H
#define REPLICAS_H
#include "base/config.h"
#include "comm/comm.h"
#include "net/model.h"
#include "eval/sample.h"
#include "formats/fp8.h"
#include "eval/eval.h"
#include "train/optim.h"
#ifdef __cplusplus
extern "C" {
#endif

// A micro-batch: B sequences of T tokens, on the host. pos and first may be NULL (see model_set_batch and
// model_set_documents).
typedef struct {
    const int32_t *token, *target, *pos, *first; // (B, T)
    size_t B, T;
    float dropout;
    uint64_t seed, sample; // sample: global index of the first sequence
    uint32_t step;
    float each; // model_set_each
} Micro;

typedef struct Replicas Replicas;

// What several processes do; the functions below say when. Entries that a kind leaves NULL are those of one process.
typedef struct {
    void (*allocate)(Replicas *, const Config *cfg, Dev *dev, Mem *mem, const char *dir);
    void (*free)(Replicas *);
    void (*init_weights)(Replicas *, uint64_t seed);
    void (*weights_loaded)(Replicas *);
    size_t (*share)(const Replicas *, size_t sequences, size_t *first);
    void (*forward_backward)(Replicas *, const Micro *micro, float scale, bool last);
    double (*finish)(Replicas *);
    void (*updated)(Replicas *);
    void (*share_scales)(Replicas *, Fp8 *fp8);
    int64_t (*sum_targets)(Replicas *, int64_t x);
    double (*sum)(Replicas *, double x);
    bool (*any)(Replicas *, bool flag);
    void (*tell)(Replicas *, void *data, size_t n_bytes);
    void (*wait)(Replicas *);
    void (*agree)(Replicas *, long step);
    CkptPart (*checkpoint)(Replicas *, bool writes);
    void (*checkpoint_free)(CkptPart *part);
    bool (*range)(const Replicas *, int unit, OptimRange *range);
    void (*read_weights)(const Replicas *, int unit, void *copy);
    const EvalRanks *(*evaluation)(Replicas *);
    SampleForward (*sampling)(Replicas *, bool *takes_part);
    void (*describe)(const Replicas *, char *layout, size_t n);
} ReplicasKind;

struct Replicas {
    const ReplicasKind *kind; // NULL: this process is alone
    void *self;               // the kind's
    int rank, size;           // of all processes of the job; rank 0 alone reads and writes the run's files
    Comm *world;              // all of them, for checkpoints and reports (the host's memory); NULL: alone
    double cores;             // this process' fraction of the machine's speed: 1 when it is alone
    const char *transport;    // what carries device arrays when they do not go through the host's MPI; or NULL
    Model *model;             // made by replicas_allocate: this process' part
    Optim *optim;
};

// One process; world: a group of it alone, for checkpoints and its supervisor. NULL in a plan and in tests.
Replicas replicas_alone(Comm *world);
// Whether a run of one process needs nothing of ranks.c: it is not offloaded, deterministic or accounted for.
bool replicas_plain(const Config *cfg);
// Model, optimizer and buffers for exchange, from the configuration, through `mem`: nothing is initialised or touched,
// so that a plan can call it with an allocator that only counts. dir: of the run; "": a plan.
void replicas_allocate(Replicas *r, Optim *optim, const Config *cfg, Dev *dev, Mem *mem, const char *dir);
void replicas_free(Replicas *r);

// ---- weights

// The random initial weights of the table (params_init): the same for every layout.
void replicas_init_weights(Replicas *r, uint64_t seed);
// After the fp32 weights were written (a checkpoint): what the units read is renewed, everywhere.
void replicas_weights_loaded(Replicas *r);

// ---- a step

// How many of a step's sequences are this process'; *first: the number within the step of the first one.
size_t replicas_share(const Replicas *r, size_t sequences, size_t *first);
// Forward and backward of this process' next micro-batch; last: of the step. Gradients of scale * loss add up. (Stages
// of a pipeline run them all when the last one has come.)
void replicas_forward_backward(Replicas *r, const Micro *micro, float scale, bool last);
// That micro-batch alone, by this process' model: what all kinds but pipelines do.
void replicas_run_micro(Replicas *r, const Micro *micro, float scale);
// After the last one: gradients are those of the whole batch, wherever they are kept. Returns the sum of all token
// losses.
double replicas_finish(Replicas *r);
// After the optimizer's update, or optim_drop: every process has the new weights.
void replicas_updated(Replicas *r);
// The largest magnitudes of fp8's tensors, before fp8_step_end.
void replicas_share_scales(Replicas *r, Fp8 *fp8);

// ---- agreement

// Sum over the processes that work on different sequences.
int64_t replicas_sum_targets(Replicas *r, int64_t x);
// Sum over all; the same bits on each.
double replicas_sum(Replicas *r, double x);
// The same of n numbers, in place.
void replicas_add(Replicas *r, void *x, size_t n, CommType type);
// True everywhere when it is true somewhere.
bool replicas_any(Replicas *r, bool flag);
// Broadcasts n bytes of rank 0 to all.
void replicas_tell(Replicas *r, void *data, size_t n_bytes);
// A barrier.
void replicas_wait(Replicas *r);
// Compares the tensors that all processes hold; dies naming the first tensor and rank that differ.
void replicas_agree(Replicas *r, long step);
// Reports to the supervisor (supervisor.h) the phase that this process enters; and that it is alive.
void replicas_phase(const Replicas *r, long step, const char *phase);
void replicas_alive(const Replicas *r);

// ---- access to the state

// The part of a checkpoint that this process writes, or (writes false) reads.
CkptPart replicas_checkpoint(Replicas *r, bool writes);
void replicas_checkpoint_free(const Replicas *r, CkptPart *part);
// The elements of a unit that this process owns. False: another process with the same elements represents them.
bool replicas_range(const Replicas *r, int unit, OptimRange *range);
// A copy of the fp32 weights of that range, on the host.
void replicas_read_weights(const Replicas *r, int unit, void *copy);
// How the whole model is evaluated and sampled from; NULL, or all zero: by this process alone. takes_part: whether this
// process has to call sample_text.
const EvalRanks *replicas_evaluation(Replicas *r);
SampleForward replicas_sampling(Replicas *r, bool *takes_part);
// "dp 2, tp 2, ZeRO 1"; of one process "dp 1".
void replicas_describe(const Replicas *r, char *layout, size_t n);

#ifdef __cplusplus
}
#endif
#endif
