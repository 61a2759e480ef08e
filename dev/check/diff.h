// diff: what build/diff compares: two sides, as whole tensors in execution order, and how far two arrays are apart.
#ifndef DIFF_H
#define DIFF_H
#include "train/ckpt.h"
#include "train/dump.h"
#include "base/safetensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    SafeTensor t;     // whole
    long at;          // of Part, as are the next two
    double error;
    SafeDtype stored;
    size_t n_missing; // elements that no rank has written, left 0
    size_t n_twice;   // elements that several ranks have written
    bool disagrees;   // whether those differ
    uint8_t *seen;    // while the pieces are put together
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

// What two paths stand for. A file, a dump's directory (dump/step_NNNNNNNN) and a checkpoint stand for themselves.
// Runs, or their dump directories, stand for the latest update that both have dumped; runs without dumps for their
// newest checkpoints. Dies when there are none.
void diff_side_resolve(const char *a, const char *b, char path_a[1000], char path_b[1000]);
// Dies when it cannot be read.
DiffSide diff_side_open(const char *path);
void diff_side_close(DiffSide *side);
const DiffTensor *diff_side_find(const DiffSide *side, const char *name);

// ---- how far one array is from another, and whether rounding explains it

// 0, 1, 2-3, 4-7, ..., 2^63 and more ULPs; NaN on one side.
enum { DIFF_STATS_BUCKETS = 66, DIFF_STATS_NAN = DIFF_STATS_BUCKETS - 1, DIFF_STATS_WORST = 5 };

typedef enum {
    DIFF_STATS_EXACT,   // equal bits
    DIFF_STATS_GIVEN,   // |a - b| <= atol + rtol |b|
    DIFF_STATS_DERIVED, // what rounding may do: see diff.c
    DIFF_STATS_UPDATE   // weights after an optimizer's update
} DiffStatsMode;

typedef struct {
    DiffStatsMode mode;
    double rtol, atol;
    double error;        // DERIVED, UPDATE: expected relative error of a - b; UPDATE: 0 stands for not known
    double floor;        // DERIVED: the size of b is at least this
    double most;         // UPDATE: the largest |update| of b, and the gradients behind the updates, of a's shape
    const SafeTensor *grad_a, *grad_b;
} DiffStatsBound;

typedef struct {
    size_t n, n_differ, n_out, n_both_nan;
    double max_abs, max_rel; // NaN once an element's difference is NaN
    double ratio;            // the largest error / bound; out of bound unless <= 1
    uint64_t max_ulp;
    size_t bucket[DIFF_STATS_BUCKETS];
    size_t worst[DIFF_STATS_WORST]; // elements, the worst first
    double worst_ratio[DIFF_STATS_WORST];
    int n_worst;
} DiffStats;

// a and b have one shape; b is the reference. ULPs are those of the coarser of the two stored types.
DiffStats diff_stats(const SafeTensor *a, const SafeTensor *b, SafeDtype stored_a, SafeDtype stored_b,
                     DiffStatsBound bound);
void diff_stats_add(DiffStats *sum, const DiffStats *s);
// The bucket of the median element: half of the elements are no farther apart.
int diff_stats_median(const DiffStats *s);
// "0", "4-7", "2^20 to 2^21"
const char *diff_stats_label(int bucket, char text[48]);

// Element i as a number, and its bits.
double diff_stats_value(const SafeTensor *t, size_t i);
uint64_t diff_stats_bits(const SafeTensor *t, size_t i);
// Root of the mean square; the largest |a - b| (shapes are equal).
double diff_stats_rms(const SafeTensor *t);
double diff_stats_most(const SafeTensor *a, const SafeTensor *b);
// The coarser of two stored types.
SafeDtype diff_stats_coarser(SafeDtype a, SafeDtype b);

#ifdef __cplusplus
}
#endif
#endif
