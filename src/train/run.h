// run: everything that a training run owns, and the steps its loop is made of.
//
// train_loop.c holds the loop; what it calls lives here, so that every device's main program is the same loop.
#ifndef RUN_H
#define RUN_H
#include "train/ckpt_async.h"
#include "comm/comm.h"
#include "base/config.h"
#include "text/dataset.h"
#include "train/dump.h"
#include "train/eval.h"
#include "train/fault.h"
#include "ops/fp8.h"
#include "train/locate.h"
#include "net/model.h"
#include "comm/mesh.h"
#include "train/monitor.h"
#include "train/optim.h"
#include "train/noise.h"
#include "train/norms.h"
#include "parallel/pipeline.h"
#include "train/progress.h"
#include "train/ramp.h"
#include "train/scaler.h"
#include "train/schedule.h"
#include "text/tokenizer.h"
#include "parallel/zero.h"
#ifdef __cplusplus
extern "C" {
#endif

enum { RUN_EXTRAS = 6 };
// What a rollback leaves behind, for checkpoints to keep: samples that were jumped over, in all; how often; the step
// from which the learning rate is the schedule's again.
enum { RUN_SKIPPED, RUN_ROLLBACKS, RUN_COOL_UNTIL, RUN_GUARD };

typedef struct {
    Config cfg;
    Dev *dev;
    Mem mem;
    int rank, ranks;               // this process' place among all of the job
    MeshShape shape;               // how they share the work
    MeshPlace place;               // this one's part of it
    Comm *world;                   // all of them, on the host. This one and those below are NULL in a plan
    Mesh mesh;                     // groups for the device's memory: replicas carry gradients and weights, tp, cp
                                   // and pp activations
    Comm planned[MESH_GROUPS];     // in a plan: size and place
    Comm *control, *replicas, *parts; // for all else: everybody; the groups MESH_REPLICAS and MESH_MODEL again
    Zero *zero;                    // what of weights, gradients and optimizer this rank has, and their exchange
    Tokenizer *tokenizer;
    Dataset *train, *val;
    double data[2], saved_data[2]; // a hash of the training data, in halves; as a checkpoint has it
    bool other_data;               // the run was resumed on other data than it was begun with
    int32_t *token_bytes;          // (V) bytes of text a token stands for
    double floor_loss, floor_bpb;  // 0: not known
    bool floor_is_bound;
    Model *model;
    PipelineTable *table;          // with parallel.pp > 1: the schedule, this rank's stage, a step's micro-batches
    Pipeline *pipeline;
    PipelineMicro *micro;
    int loss_stage;                // the stage that has the head
    Optim optim;
    Schedule schedule;
    Ramp ramp;
    LossScaler scaler;
    Monitor monitor;
    double scaler_state[2];        // scale and good_steps, as a checkpoint has them
    Fp8 *fp8;                      // the device's; NULL unless numerics.dtype is fp8
    double *fp8_amax;              // its state, as a checkpoint has it
    Noise noise;                   // run.noise_every
    Norms norms;                   // run.norms_every
    KvCache cache;
    int32_t *token, *target;       // this rank's windows of one step: (batch.tokens / ranks) each, on the host
    int32_t *pos, *first;          // with data.document_mask: positions and document starts; else NULL
    CkptPart ckpt_part;            // with ckpt.async: what this rank writes, and the saves that are on their way
    CkptAsync *ckpt;
    long saved_step;               // the last that was committed by this process; -1: none
    long init_step;                // of the weights of ckpt.init
    char dir[600];
    char *config_text;             // the resolved config, as saved with checkpoints
    double peak;                   // flops per second that this machine's matmul reaches on these shapes
    long first_step, last_step;    // this process runs updates [first_step, last_step)
    long dump_update;              // the one that is dumped, counting from 1; 0: none
    long trace_update;             // the one whose pipeline is traced
    Dump *dump;                    // while that update is made
    char dump_layout[64];          // as dump has it, for people
    double seconds;                // training time so far, resumed runs included
    double best_val;
    Progress *progress;            // rank 0's; NULL on the others
    int lock;                      // rank 0's, on the directory; -1 on the others
    double guard[RUN_GUARD];
    Faults faults;
    Locate locate;                 // monitor.locate
    bool watched;                  // the run has begun: faults and drills happen
    long reached;                  // updates made at least once
} Run;

// What one update did.
typedef struct {
    double loss, grad_norm, lr, seconds;
    int64_t tokens;
    bool rescaled; // fp16: the gradient overflowed, the update was skipped and the loss scale lowered
    MonitorVerdict verdict;
    char why[400]; // what run_verdict says of it
} StepResult;

// The shape that the [model] section describes; its vocabulary must be known.
ModelShape run_shape(const Config *cfg);
// The device of numerics.dtype over the CPU: `cpu` itself for fp32. Model and optimizer use this one.
Dev *run_device(const Config *cfg, Dev *cpu);
void run_device_free(Dev *dev, Dev *cpu);
// Sets run->schedule, run->ramp and run->last_step from run->cfg.
void run_schedule(Run *run);
// Model, optimizer, cache and token buffers from run->cfg, run->dev and run->rank, through run->mem: all that a
// rank asks of the memory door. Nothing is initialised or touched, so that build/plan can call it with a door
// that only counts.
void run_allocate(Run *run);
// Gives back what run_allocate made.
void run_free(Run *run);
// Opens data, builds the model, makes the run's directory, and resumes where asked. Dies with one line
// when anything is wrong; nothing is trained before everything has been checked. world has parallel.ranks ranks
// (comm_self for one), takes the device's memory, and outlives the run. From here on all functions of a run are
// called by all of them.
void run_open(Run *run, const Config *cfg, Dev *dev, Comm *world);
void run_close(Run *run);

// One optimizer update: its micro-batches forward and backward, then the optimizer.
StepResult run_step(Run *run, long step);
// Tokens that all updates before `step` have seen.
int64_t run_tokens(const Run *run, long step);
// The scales, for a checkpoint to store or to fill; returns how many of `extra` are used.
int run_extras(Run *run, CkptExtra extra[RUN_EXTRAS]);
// Opens tokenizer and tokens (run_data.c), the same on all ranks; what of them a checkpoint keeps, and what follows
// when that has been filled from one.
void run_open_data(Run *run);
CkptExtra run_data_extra(Run *run);
void run_data_loaded(Run *run);
// Reports a verdict that is out of the ordinary, for update `step` (from 1).
void run_verdict(Run *run, long step, StepResult *result);
// Evaluates and reports.
void run_eval(Run *run, long step);
// The last evaluation, the end record, the last plot and the closing summary; after a signal without the
// evaluation, which may take longer than whoever sent the signal waits.
void run_end(Run *run, long step, bool interrupted);
// Writes sample.count samples to samples.txt and to the progress notes.
void run_sample(Run *run, long step);
// After the first step: writes account.json, every rank's bytes by tag and the traffic of this one step, and prints
// them beside the formulas of the guides.
void run_account(Run *run);
// ---- checkpoints (run_ckpt.c)

// Saves a checkpoint, or with ckpt.async begins to. A failure is reported, and the run goes on.
void run_save(Run *run, long step);
// At every step's end: reports the saves that ended meanwhile.
void run_saves(Run *run);
// Waits for those on their way.
void run_drain(Run *run);
// The same. Whether a checkpoint of this step is committed, after another try where it is not.
bool run_saved(Run *run, long step);
// What saves need of the memory door; run_free gives it back.
void run_ckpt_allocate(Run *run);
void run_ckpt_free(Run *run);
// Weights, optimizer and the rest of the newest checkpoint, whatever layout wrote it. False: there is none.
bool run_load(Run *run, CkptState *state);
// The weights of ckpt.init, which replace the random ones; dies when they do not fit. Collective.
void run_init(Run *run);

// ---- what keeps a run alive (run_guard.c)

// Rank 0 takes the directory's lock; before anything is written there.
void run_lock(Run *run);
// From here on a rank that gets nowhere for run.hang_timeout ends the job.
void run_watched(Run *run);
// What this rank is busy with, for its supervisor.
void run_phase(Run *run, long step, const char *phase);
// The monitor's rules from run->cfg, and run->locate.
void run_rules(Run *run);
// run.fault, around update `step` + 1: before it, in the tokens of its samples, behind it, while a checkpoint is saved.
void run_fault_before(Run *run, long step);
void run_fault_sample(Run *run, int64_t sample, int32_t *token, int32_t *target);
void run_fault_after(Run *run, long step);
void run_fault_save(Run *run, long step, bool begins);
// Whether the ranks hold the same of what they all hold; dies naming the first tensor and rank that do not.
void run_agree(Run *run, long step);

// ---- going back (run_rollback.c)

// The samples of update `step` + 1: behind all that were taken or jumped over before.
RampStep run_samples(const Run *run, long step);
// What the learning rate of that update is multiplied by.
double run_cool(const Run *run, long step);
// What the monitor says of update `step` + 1, and what becomes of it: cools, or turns a drill into a rollback.
MonitorVerdict run_judge(Run *run, long step, double loss, double grad_norm);
// After a verdict of MONITOR_ROLLBACK on update `step`: goes back to a checkpoint, jumps over the data, saves that, and
// returns the step from which training goes on. Where there is no such checkpoint the update is skipped, and `step` is
// returned.
long run_rollback(Run *run, long step, const StepResult *result);

// ---- ranks (run_ranks.c). With one rank none of these costs anything.

// Groups and their settings from run->cfg.
void run_ranks(Run *run, Comm *world);
// run->shape and run->place from run->cfg and run->rank.
void run_place(Run *run);
// After the weights were made or loaded, or zero_end has shared them: stages that hold copies get them too.
void run_share_weights(Run *run);
// What of a step's sequences this rank works on.
RampStep run_share(const Run *run, RampStep batch);
// True on all ranks when it is on one.
bool run_any(Run *run, bool flag);
// Sums over all ranks; over those that work on different sequences; the same bits on all.
double run_sum(Run *run, double x);
int64_t run_sum_samples(Run *run, int64_t x);
// The step's loss from what model_step_finish gave each rank: of different tokens summed, in the tree of comm.h.
double run_sum_loss(Run *run, double x);
// Whether this rank's losses count: it is on the last stage, and the first of those that have the same ones.
bool run_has_losses(const Run *run);
// n bytes of rank 0 to all.
void run_tell(Run *run, void *data, size_t n);
// Returns when all ranks have come.
void run_wait(Run *run);
// The largest magnitudes of fp8's tensors over the ranks, before fp8_step_end.
void run_fp8(Run *run);
// ---- run.dump (run_dump.c). Collective

// Before the update's first micro-batch: its weights, and everything that the model computes from here on.
void run_dump_begin(Run *run, long step);
// Between its last micro-batch and its norm: true gradients. These two do nothing where no dump was begun.
void run_dump_grads(Run *run);
// Behind it: the optimizer's state and the new weights. Writes the files.
void run_dump_end(Run *run);
// Everything from the newest checkpoint (run.c): its step, or -1: there is none.
long run_restore(Run *run);

#ifdef __cplusplus
}
#endif
#endif
