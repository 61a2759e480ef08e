// diff_side: one of the two things that build/diff compares, as whole tensors in execution order.
#ifndef DIFF_SIDE_H
#define DIFF_SIDE_H
#include "train/ckpt.h"
#include "train/dump.h"
#include "base/safetensors.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    SafeTensor t;     // whole
    long at;          // of Part, as are the next two
    double error;
    SafeDtype stored;
    size_t n_missing; // elements that no rank has written; they are 0
    size_t n_twice;   // that several have
    bool disagrees;   // and not alike
    uint8_t *seen;    // while it is put together
} DiffTensor;

typedef struct {
    char path[1000], about[200]; // about: "dump of update 2, bf16, 4 ranks (dp 4, ZeRO 2)"
    bool dump;
    DiffTensor *tensor;
    int n;
    size_t head_size;  // 0: not known
    int n_absent, absent; // ranks of a dump that have no file, and the first of them
    SafeTensors **file;
    int n_files;
    Ckpt *ckpt;
} DiffSide;

// What two paths stand for. A file and a directory of a dump (dump/step_NNNNNNNN) or a checkpoint stand for themselves.
// Of runs, or their dump directories, the latest update is meant that both have dumped; of runs without dumps, the
// newest checkpoints. Dies when there is no such thing.
void diff_side_resolve(const char *a, const char *b, char path_a[1000], char path_b[1000]);
// Dies when it cannot be read.
DiffSide diff_side_open(const char *path);
void diff_side_close(DiffSide *side);
const DiffTensor *diff_side_find(const DiffSide *side, const char *name);

#ifdef __cplusplus
}
#endif
#endif
