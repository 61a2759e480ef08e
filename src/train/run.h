// run: the state of a training run, how it is built from its configuration, its checkpoints and its reports.
//
// train.c has the loop and the step. The functions of a run that they call, by file:
//
//   run.c         from the configuration to a run that can make its first step
//   run_data.c    tokenizer, tokens, and the sequences of a step
//   run_saves.c   checkpoints, resuming, rolling back
//   run_report.c  evaluation, samples, reports of unusual steps, the end
//
// All functions of a run are called by all of its processes (replicas.h); rank 0 has the files.
#ifndef RUN_H
#define RUN_H
#include "base/config.h"
#include "base/disk.h"
#include "base/mem.h"
#include "formats/fp8.h"
#include "net/model.h"
#include "text/dataset.h"
#include "tokenizer/tokenizer.h"
#include "ckpt/ckpt.h"
#include "train/loads.h"
#include "train/monitor.h"
#include "train/optim.h"
#include "train/schedule.h"
#include "train/phases.h"
#include "record/progress.h"
#include "train/replicas.h"
#include "train/grads.h"
#include "eval/tasks.h"
#include "text/packing.h"
#ifdef __cplusplus
extern "C" {
#endif

// One of eval.sets.
typedef struct {
    char *name;
    Dataset *tokens;
} RunSet;

// What a run reads (run_data.c).
typedef struct {
    Tokenizer *tokenizer;          // NULL: the run writes and reads no text
    int vocab;                     // tokens are below it: the tokenizer's, without one model.vocab
    Dataset *train, *val;
    RunSet *set;                   // (n_sets) eval.sets
    Tasks **task;                  // (n_tasks) eval.tasks
    size_t n_sets, n_tasks;
    double hash[2], saved_hash[2]; // of the training data, in halves; as the checkpoint that was resumed has it
    bool other;                    // the run was resumed on other data than it was begun with
    int32_t *token_bytes;          // (V) bytes of text that a token stands for; NULL: not known, without a tokenizer
    double floor_loss, floor_bpb;  // entropy of the validation data; 0: not known
    bool floor_is_bound;
    // this process' sequences of one step, (batch.tokens / data ranks) each, on the host; pos and first: with
    // data.document_mask, else NULL
    int32_t *token, *target, *pos, *first;
    int64_t sample;   // the global index of the first
    Screen *screen;   // data.max_repeat, max_broken; NULL: both are off
    size_t screened;  // targets that it has taken from the loss, of the whole batch; and of all steps so far
    int64_t screened_all, targets_all;
} RunData;

// What of the numbers a checkpoint keeps beside tensors. The first two are as a checkpoint has them.
typedef struct {
    LossScaler scaler;
    Fp8 *fp8;               // the device's scales; NULL unless numerics.dtype is fp8
    double scaler_state[2]; // scale and good_steps
    double *fp8_amax;
} RunScales;

// Rollbacks (run_saves.c): samples skipped in all; number of rollbacks; the step from which the learning rate is the
// schedule's again. A checkpoint keeps them.
enum { RUN_SKIPPED, RUN_ROLLBACKS, RUN_COOL_UNTIL, RUN_GUARD };

// The run's checkpoints (run_saves.c).
typedef struct {
    CkptPart part;    // with ckpt.async: what this process writes, and the saves that are on their way
    CkptAsync *async;
    long last;        // step of the last one that this process committed; -1: none
    long init_step;   // step of the weights of ckpt.init
    bool upcycled;    // they had no experts
    long harmed;      // updates in a row, up to now, without a finite loss and gradient norm: nothing is saved then
    double guard[RUN_GUARD];
} RunSaves;

// What one update did.
typedef struct {
    double loss, grad_norm, lr, seconds;
    int64_t tokens;
    size_t valid;  // targets that count, of the whole batch
    bool rescaled; // fp16: the gradient overflowed, the update was skipped and the loss scale lowered
    MonitorVerdict verdict;
    char why[400]; // what run_verdict says of it
} StepResult;

typedef struct Run Run;

// An observer watches a run without being part of it: a dump, norms, faults, a profiler's marks. train.c makes the list
// of those that the configuration asks for and calls them at four points of every update `step` + 1; run_data.c and
// run_saves.c call the others. An observer changes nothing that the update reads (except faults, whose purpose it is).
// Any entry may be NULL.
typedef struct {
    void *self;
    void (*before)(void *self, Run *run, long step);                      // nothing of the step has happened
    void (*loaded)(void *self, Run *run, long step, int64_t rows);        // this process' sequences are there
    void (*gradients)(void *self, Run *run, long step, const StepResult *result); // complete; before the update
    void (*updated)(void *self, Run *run, long step);
    void (*explain)(void *self, Run *run, char *text, size_t n);          // it is not finite: adds why; collective
    void (*announce)(void *self, Run *run);                               // rank 0 writes the first lines
    void (*sample)(void *self, Run *run, int64_t sample, int32_t *token, int32_t *target); // one sequence was read
    void (*save)(void *self, Run *run, long step, bool begins);           // a checkpoint is written; or was
    void (*free)(void *self);
} Observer;
enum { RUN_OBSERVERS = 12 };

struct Run {
    Config cfg;
    Dev *dev;
    Mem mem;
    Replicas replicas; // the processes that train together
    RunData data;
    Model *model;
    Optim optim;
    Schedule schedule;
    Ramp ramp;
    bool paced;        // run.minutes decides how many steps there are
    Pace pace;
    double pace_state[PACE_STATE];
    RunScales scales;
    Loads loads;       // of experts
    Monitor monitor;
    RunSaves saves;
    KvCache cache;     // for sampling
    Norms norms;       // run.norms_every
    double noise_scale; // run.noise_every: the latest that no train line has; 0: none
    Phases phases;     // where the time goes
    Observer observer[RUN_OBSERVERS]; // what watches the steps, in the order of their calls
    int n_observers;
    Progress *progress; // rank 0's; NULL on the others
    char dir[600];
    DiskLock lock;     // rank 0's, on the directory; -1 on the others
    char *config_text; // the resolved configuration, as checkpoints keep it
    long first_step, last_step; // this process runs updates [first_step, last_step)
    bool begun;        // the first step is next: a drill happens from here on
    double seconds;    // of training so far, resumed runs included
    double best_val;
    double peak;       // floating-point operations per second that matmul reaches on these shapes, all processes
    bool beaten;       // a step was faster than what was measured
};

// Adds one to the end of the list, before run_begin.
void run_observe(Run *run, Observer observer);

// ---- where a program computes, when that is not the CPU: what train_gpu.cu gives to train.c

typedef struct {
    const char *target; // what it is compiled for (override.h)
    int (*count)(void); // devices of this machine; dies with a line when there is none
    // Device number `device`, from 0, with the storage of numerics.dtype. threads: becomes dev->threads.
    Dev *(*open)(const Config *cfg, int device, int threads);
    void (*close)(Dev *dev);
    // A group of the ranks of `world`, two or more, for the memory of `dev`, which is device number `device`.
    // Collective.
    Comm *(*ranks)(const Config *cfg, Comm *world, int device, Dev *dev);
    void (*part)(Dev *dev, Comm *ranks); // frees that group, before the device
} RunDevice;

extern const RunDevice run_device_gpu; // of programs that are linked with train_gpu.cu

// ---- from the configuration (run.c)

// The shape that the [model] section describes; its vocabulary must be known.
ModelShape run_shape(const Config *cfg);
OptimSettings run_optim_settings(const Config *cfg);
// Recomputation, documents and sequences of a step, for a model on one process.
ModelOptions run_model_options(const Config *cfg);
// The device of numerics.dtype over the CPU: `cpu` itself for fp32. Model and optimizer use this one.
Dev *run_device(const Config *cfg, Dev *cpu);
void run_device_free(Dev *dev, Dev *cpu);
// Whether that device multiplies matrices by the CPU's bf16 instruction.
bool run_bf16_products(const Config *cfg);
// Sets run->schedule, run->ramp and run->last_step from run->cfg.
void run_schedule(Run *run);
// Model, optimizer, cache and token buffers from run->cfg, run->dev and run->replicas, through run->mem: all that a
// process asks of the allocator. Nothing is initialised or touched, so that build/plan can call it with one that only
// counts.
void run_allocate(Run *run);
void run_free(Run *run); // gives back what run_allocate made
// Opens the data, makes the run's directory, builds the model. Dies with one line when anything is wrong.
void run_open(Run *run, const Config *cfg, Dev *dev, Replicas replicas);
// Whether run.minutes decides how many steps there are, and they have to be timed; then run_plan sets what follows from
// that in run->cfg: run.steps, eval.tokens.
bool run_wants_timing(Run *run);
void run_plan(Run *run, double seconds_a_step);
// run.minutes, after update `step`: plans the run's length again; the tenth that was just over, 0: none. Collective.
int run_pace(Run *run, long step, double seconds);
void run_pace_loaded(Run *run); // run->pace_state is a checkpoint's
// Floating-point operations per second of all processes together, of which MFU is the used part: never less than
// run->peak was. Collective.
void run_measure_peak(Run *run);
// Resumes or starts: run->first_step. Nothing is trained before everything has been checked.
void run_begin(Run *run);
void run_close(Run *run);

// ---- data (run_data.c)

void run_open_data(Run *run);
void run_close_data(Run *run);
// The samples of update `step` + 1: those after all that were taken or jumped over before. Tokens that all updates
// before `step` have seen.
RampStep run_samples(const Run *run, long step);
int64_t run_tokens(const Run *run, long step);
// This process' sequences of that update, into run->data; those of the next one are fetched from disk while this one
// runs. Returns how many; *valid: targets that count, of the whole batch.
int64_t run_load_step(Run *run, long step, size_t *valid);
// The micro-batch that begins at the row `row` of these sequences.
Micro run_micro(const Run *run, long step, int64_t row);

// ---- checkpoints (run_saves.c)

// Saves a checkpoint, or with ckpt.async begins to. A failure is reported, and the run continues.
void run_save(Run *run, long step);
// At every step's end: reports the saves that ended meanwhile.
void run_poll_saves(Run *run);
// Waits for those on their way. Whether a checkpoint of this step is committed, after another try where it is not.
bool run_saved(Run *run, long step);
// Everything from the newest sound checkpoint up to that step (0: any), whatever layout wrote it: its step, or -1:
// there is none.
long run_restore(Run *run, long up_to);
// The weights of ckpt.init, which replace the random ones, and with ckpt.init_state the optimizer's state; dies when
// they do not fit.
void run_init(Run *run);
// The monitor's verdict on update `step` + 1. Starts a cool-down, or turns a drill (monitor.rollback_at) into a
// rollback.
MonitorVerdict run_judge(Run *run, long step, double loss, double grad_norm);
// What the learning rate of that update is multiplied by.
double run_cool(const Run *run, long step);
// After a verdict of MONITOR_ROLLBACK on update `step`: goes back to a checkpoint, jumps over the data, saves that, and
// returns the step from which training continues. Where there is no such checkpoint the update is skipped, and `step`
// is returned.
long run_rollback(Run *run, long step, const StepResult *result);
// What saves need of the allocator.
void run_saves_allocate(Run *run);
void run_saves_free(Run *run);

// ---- reports (run_report.c)

// The table of settings, matmul speed, memory and data: the first lines. Opens run->progress on rank 0.
void run_announce(Run *run);
// Reports a verdict that is out of the ordinary, for update `step` (from 1).
void run_verdict(Run *run, long step, StepResult *result);
// Evaluates, eval.sets too, and reports.
bool run_by_tenths(const Run *run); // evaluations at each tenth of run.minutes, of a tenth of the text
void run_eval(Run *run, long step);
// Runs the tasks of eval.tasks and reports. False: a signal asks the run to end.
bool run_tasks(Run *run, long step);
// Writes sample.count samples to samples.txt and to the progress notes.
void run_sample(Run *run, long step);
// The last evaluation, the end record, the last plot and the closing summary; `stopped`, by a signal, without the
// evaluation, which may take longer than the sender of the signal waits, and with the command that goes on. A signal
// during the evaluation stops that too.
void run_end(Run *run, long step, bool stopped, const char *command);

#ifdef __cplusplus
}
#endif
#endif
