// ckpt: checkpoints that survive a crash, of any layout, for any layout.
//
//   RUN/checkpoints/step_00000100/manifest.json            state, files, tensors, slices, hashes; written last
//                                 model_00003.safetensors  what rank 3 owns of the weights, by the names of the whole
//                                                          model's parameter table
//                                 optim_00003.safetensors  of the optimizer's arrays: exp_avg.NAME, ...
//   RUN/checkpoints/latest                                 the name of the newest: a hint for people
//
// One process alone writes model.safetensors and optim.safetensors: whole tensors. A directory without the suffix
// .tmp is complete. What is loaded has been hashed first.
#ifndef CKPT_H
#define CKPT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "base/mem.h"
#include "base/params.h"
#include "tools/safetensors.h"
#ifdef __cplusplus
extern "C" {
#endif

// ---- which elements of a tensor a piece of it holds

// Tensor parallelism cuts a tensor along one axis into parts; sharding cuts a part, as a row-major list of elements,
// into ranges. A slice describes both, so its meaning does not depend on the layout.
typedef struct {
    int cut;                // axis along which the tensor is cut into parts; -1: the part is the tensor
    size_t first;           // index along `cut` of the part's first element
    size_t dim[PARAM_DIMS]; // the part's shape; 1 after the tensor's dimensions
    size_t from, to;        // elements [from, to) of the part
} CkptSlice;

// All of a tensor; its shape has 1 after its dimensions.
CkptSlice ckpt_slice_whole(const size_t shape[PARAM_DIMS]);
bool ckpt_slice_is_whole(const CkptSlice *slice, const size_t shape[PARAM_DIMS]);
// Whether a slice can be one of a tensor of this shape (whose number of elements must not overflow).
bool ckpt_slice_fits(const CkptSlice *slice, const size_t shape[PARAM_DIMS], int ndim);
// Whether n slices (each fits) in ascending order of (first, from) hold every element of the tensor exactly once.
bool ckpt_slice_tiles(const CkptSlice *slice, int n, const size_t shape[PARAM_DIMS]);
// False: they share no element. True: they may.
bool ckpt_slice_meets(const CkptSlice *a, const CkptSlice *b);
// Copies the elements that both hold from src, which is all of `have`, to their places in dst, which is all of
// `want`. Returns how many.
size_t ckpt_slice_copy(const size_t shape[PARAM_DIMS], const CkptSlice *want, void *dst, const CkptSlice *have,
                       const void *src, size_t elem_bytes);

// ---- what a checkpoint holds

enum { CKPT_VERSION = 2 }; // of the manifest; a reader refuses a higher one, and reads all lower ones

// An array with something for each row of the parameter table, back to back in table order. Each row's part is
// stored as the tensor PREFIX.NAME.
typedef struct {
    const char *prefix; // at most 30 characters
    SafeDtype dtype;
    // Fills dim with the shape of a row's part and returns its number of dimensions; 0: nothing for this row.
    int (*shape)(const Params *params, const Param *row, size_t dim[PARAM_DIMS]);
    void *data;
    size_t n_bytes; // of data
} CkptArray;

// Numbers by name, for the parts of a run that have little state: scales, counters, windows. They are stored
// exactly, NaN and infinities too.
typedef struct {
    const char *name;
    size_t n;
    double *value; // n of them
} CkptExtra;

// The state beside the tensors with which a run resumes as if it had never stopped.
typedef struct {
    long step;       // optimizer steps done; names the directory
    long adam_step;  // updates that the optimizer applied (for its bias correction): step, less the skipped batches
    uint64_t sample; // samples consumed: where in the data order the next batch begins
    uint64_t tokens; // tokens trained on
    uint64_t seed;
    double seconds;  // of training so far
    double best_val; // lowest validation loss so far; not finite: none
    // The resolved configuration as config_write prints it, or NULL. Saving stores it. Loading reads it:
    // where it is given, the switches of its [model] section that leave no trace in the shapes must equal
    // the stored ones.
    const char *config;
    // Loading, for another run: of those the rope_ keys may differ (rope.h), and the context with them; and experts
    // that the checkpoint lacks begin as the network that it has in their layer: then it sets `upcycled`.
    bool init, upcycled;
    // The optimizer's name, or NULL. Loading compares it in the same way.
    const char *optim;
    // Saving stores the values; loading fills them in. A name that the checkpoint does not have keeps its values;
    // one of another length is an error.
    const CkptExtra *extra;
    int n_extra;
} CkptState;

// A piece of a tensor on this rank: of the weights, or of one of the optimizer's arrays.
typedef struct {
    int array, row; // array: index in CkptPart.array, -1: the weights; row: in CkptPart.whole
    CkptSlice slice;
    int unit;       // where it is on this rank: for `move` alone
    size_t at;
} CkptPiece;

// One rank's part of a checkpoint. The pieces that all ranks write must hold each element of each tensor exactly once;
// the pieces that they read need not.
typedef struct {
    const Params *whole;    // the table of the whole model
    const CkptArray *array; // what the optimizer keeps; the data is not looked at
    int n_arrays;
    CkptPiece *piece;       // (n) in ascending order of (array, row)
    int n;
    // Copies all of a piece from where it is kept into buf, or (out = false) there.
    void (*move)(void *self, const CkptPiece *piece, void *buf, bool out);
    void *self;
} CkptPart;

size_t ckpt_piece_bytes(const CkptPart *part, const CkptPiece *piece);

// ---- saving

// The run whose checkpoints these are, and which of them are kept.
typedef struct {
    const char *run_dir;
    Comm *world;    // the ranks that write, or read, one checkpoint between them; NULL: one process alone
    int keep;       // number of the newest checkpoints (up to the saved step) that are kept; >= 1
    int keep_every; // and each whose step is a multiple of this; 0: no others
    long up_to;     // none of a later step is loaded; 0: any
} CkptRun;

// Writes RUN/checkpoints/step_N (N = state->step), replacing one of that step, then deletes what CkptRun does not
// keep; later ones (of a run that was rolled back) are not touched. False, on all ranks: nothing was committed, earlier
// checkpoints are unchanged, error says what failed and on which rank (a tensor with a number that is not finite, too);
// the run may continue. Collective; rank 0's state is stored.
bool ckpt_save_part(const CkptRun *run, const CkptState *state, const CkptPart *part, char *error, size_t n_error);

// ---- asynchronous saves: writing while training continues

// A save copies this rank's pieces into memory of its own and returns; a thread writes them. All calls are collective,
// for the thread that trains:
//
//     while (ckpt_async_full(a, step)) { ckpt_async_poll(a, true, &done); report(done); }
//     ckpt_async_save(a, &state);
//     ...                                                              // at every step's end:
//     while (ckpt_async_poll(a, false, &done)) report(done);
enum { CKPT_ASYNC_SAVES = 2, CKPT_ERROR = 1024 }; // at a time; bytes of a message

typedef struct CkptAsync CkptAsync;

// A save that has come to an end.
typedef struct {
    long step;
    bool ok;          // committed, on all ranks or on none
    char error[CKPT_ERROR]; // what failed, and on which rank
    size_t n_bytes;   // that this rank wrote
    double seconds;   // that its thread took
    double busy;      // of these, a processor's: with all cores training it is taken from training
    double stalled;   // seconds for which training waited: for the copy, and for a free slot
} CkptDone;

// Bytes of one snapshot; there are CKPT_ASYNC_SAVES.
size_t ckpt_async_bytes(const CkptPart *part);
// Snapshots come from `host`, tag MEM_HOST; the thread starts with the first save. part, and what run points to, must
// outlive it; run->world may be NULL in a plan.
CkptAsync *ckpt_async_create(const CkptRun *run, const CkptPart *part, Mem *host);
// Waits for the thread; what was not polled is not committed. Before mem_free_all. NULL is allowed.
void ckpt_async_free(CkptAsync *async);

// Whether all slots are in use, or a save of this step is in progress.
bool ckpt_async_full(const CkptAsync *async, long step);
// Begins a save of what the run holds now. What the state points to, but for config and optim, is copied.
void ckpt_async_save(CkptAsync *async, const CkptState *state);
// True: the oldest save has ended, and *done has the result. Without `wait` it costs one small message while a save is
// in progress, else nothing. False: none has ended (with wait: there is none).
bool ckpt_async_poll(CkptAsync *async, bool wait, CkptDone *done);

// ---- loading

// Loads the newest checkpoint of a run that is complete and whose hashes are right, whatever layout wrote it, and
// removes left-overs (*.tmp). All ranks skip a damaged one, or one with a NaN, with one line on stderr. False: the run
// has none. Dies when all are damaged, and when an undamaged one does not fit the model (naming the tensor and both
// shapes). Without arrays: only the weights. Collective; every rank gets the state.
bool ckpt_load_part(const CkptRun *run, const CkptPart *part, CkptState *state);

// The weights of a run's newest checkpoint, of the one at path, or of a safetensors file with our names (or
// weight.NAME, as a dump has them), for another run; where part has arrays, the optimizer's state too, which a file has
// not. Dies when there is none, or when it does not fit. Collective; every rank gets the state, which a file has not: step 0.
void ckpt_load_weights(Comm *world, const char *path, const CkptPart *part, CkptState *state);

// The highest step that has a directory, or -1: whether a run that does not resume would walk over
// another one.
long ckpt_newest_step(const char *run_dir);

// A checkpoint without a parameter table: for programs that export or compare.
typedef struct {
    char *dir;
    CkptState state;           // config and optim point into the manifest; no extra
    int n, n_model;            // tensors in the table's order; the first n_model are the weights
    const SafeTensor **tensor; // whole: in the mapped file, or in memory where several ranks wrote it
    SafeTensor *joined;        // (n) those in memory
    void *manifest;
} Ckpt;

// Opens and verifies a checkpoint, or the newest sound one of a run. optim: with the optimizer's tensors.
// NULL: error says why. Changes nothing on disk. A checkpoint that is named may hold NaNs: one wants to see them.
Ckpt *ckpt_open(const char *path, bool optim, char *error, size_t n_error);
void ckpt_close(Ckpt *ckpt); // NULL is allowed
// Fills one of its extras, which keeps its values when it is not stored. False: another length, or no numbers.
bool ckpt_extra(const Ckpt *ckpt, const CkptExtra *extra, char *error, size_t n_error);

// The value of a key in the [model] section of a configuration's text. False: not there.
bool ckpt_model_key(const char *config, const char *key, char *value, size_t n_value);

// The steps that have a directory step_N in dir, in ascending order, from malloc. remove_tmp: removes left-overs of
// interrupted saves as well. Returns their number, 0 when there is no such directory.
int ckpt_list_steps(const char *dir, bool remove_tmp, long **steps);

#ifdef __cplusplus
}
#endif
#endif
