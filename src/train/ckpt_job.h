// ckpt_job: one save, in the steps that ranks and threads take turns at. Used by ckpt alone.
//
//     begin      all ranks: rank 0 makes step_N.tmp
//     write      each rank, in any of its threads: its files
//     collect    all ranks: what was written, and whether, to rank 0
//     commit     rank 0, in any of its threads: manifest, rename, older checkpoints
//     end        all ranks: the verdict
//
// Where one failed the others do nothing, and the verdict says what it was.
#ifndef CKPT_JOB_H
#define CKPT_JOB_H
#include "train/ckpt.h"
#include "train/ckpt_manifest.h"

#include <limits.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { CKPT_TENSOR_NAME = PARAM_NAME + 32, CKPT_ERROR = 1024 };

// What a piece is a piece of.
typedef struct {
    char name[CKPT_TENSOR_NAME];
    SafeDtype dtype;
    int ndim;
    size_t shape[PARAM_DIMS]; // 1 behind the dimensions
} CkptTarget;

CkptTarget ckpt_job_target(const CkptPart *part, int array, int row);
size_t ckpt_job_piece_bytes(const CkptPart *part, const CkptPiece *piece);

// A piece that was written. It travels between ranks as it stands here.
typedef struct {
    int array, row, file; // file: rank * 2, and one more for optimizer state
    CkptSlice slice;
    char hash[ST_HASH];
} CkptRecord;

// How one rank fared.
typedef struct {
    int ok, n_records;
    size_t n_bytes[2]; // of its files; 0: it has none
    char hash[2][ST_HASH], error[CKPT_ERROR];
} CkptReport;

typedef struct {
    CkptRun run;
    CkptState state;
    const CkptPart *part;
    int rank, ranks;
    char dir[PATH_MAX], final[PATH_MAX], tmp[PATH_MAX];
    CkptReport own, *report; // report (ranks): on rank 0
    CkptRecord *record;      // this rank's; behind collect on rank 0 all ranks'
    int n_records;
} CkptJob;

// The state, and what it points to, must live until the end; so must part.
void ckpt_job_begin(CkptJob *job, const CkptRun *run, const CkptState *state, const CkptPart *part);
// snapshot: the bytes of the pieces, each at a multiple of CKPT_ALIGN behind the one before; NULL: part->move is
// asked.
void ckpt_job_write(CkptJob *job, const char *snapshot);
void ckpt_job_collect(CkptJob *job);
void ckpt_job_commit(CkptJob *job);
bool ckpt_job_end(CkptJob *job, char *error, size_t n_error);

enum { CKPT_ALIGN = 64 };
size_t ckpt_job_snapshot_bytes(const CkptPart *part);

// A verified checkpoint into the run (ckpt_load.c). False, on all ranks: it does not fit. Collective.
bool ckpt_load_take(CkptManifest *manifest, Comm *world, const CkptPart *part, CkptState *state, CkptFailure f);

// ---- the directory (ckpt.c)

// A path made by printf. One that does not fit is the user's error.
void ckpt_join(char path[PATH_MAX], const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The steps that have a directory step_N, in ascending order, from malloc. remove_tmp: removes left-overs of
// interrupted saves as well. Returns their number, 0 when there is no such directory.
int ckpt_list_steps(const char *dir, bool remove_tmp, long **steps);
// True on all ranks when `ok` on all; else *f is the message of the lowest rank that failed, on all. Collective.
bool ckpt_agree(Comm *world, bool ok, CkptFailure f);
// n bytes of rank 0 to all ranks.
void ckpt_tell(Comm *world, void *data, size_t n);

#ifdef __cplusplus
}
#endif
#endif
