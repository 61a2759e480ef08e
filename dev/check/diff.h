// diff: what build/diff compares: two sides, as whole tensors in execution order, and how far two arrays are apart.
#ifndef DIFF_H
#define DIFF_H
#include "ckpt/ckpt.h"
#include "src/check/dump.h"
#include "tools/safetensors.h"

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
    double tokens;    // backward.UNIT: their effective number; else 0
} DiffTensor;

typedef struct {
    char path[1000], about[200]; // about: "dump of update 2, bf16, 4 ranks (dp 4, ZeRO 2)"
    bool dump;         // the tensors have a dump's names
    bool header;       // of run.dump, which says how exact each tensor is, and that all of them are there
    bool pieces;       // the tensors are the side's own memory: put together, or read from another format
    bool foreign;      // of llm.c: the tensors' names are its own memory, too
    char dtype[24];    // its arithmetic: fp32, tf32, bf16, bf16-autocast, fp16, fp8
    bool low, declared; // fewer bits than fp32; dtype was given on the command line
    DiffTensor *tensor;
    int n;
    size_t head_size;  // 0: not known
    long update, ranks; // of a dump; 0: not known
    bool knows_before; // the next one is known
    uint64_t before;   // the hash of the optimizer's state that the step began with (dump.h)
    double norm[2];    // of all gradients, and of the classifier's, which adaptive clipping leaves alone
    int n_absent, absent; // ranks of a dump that have no file, and the first of them
    SafeTensors **file;
    int n_files;
    Ckpt *ckpt;
} DiffSide;

// What two paths stand for. A file, a dump's directory (dump/step_NNNNNNNN) and a checkpoint stand for themselves.
// Runs, or their dump directories, stand for the latest update that both have dumped, beside a file of another program
// for the latest; runs without dumps for their newest checkpoints. Dies when there are none.
void diff_side_resolve(const char *a, const char *b, char path_a[1000], char path_b[1000]);
// Dies when it cannot be read. A debug state of llm.c is empty until diff_side_complete.
DiffSide diff_side_open(const char *path);
// What can only be read with the other side's shapes known. Call for both sides, after both are open.
void diff_side_complete(DiffSide *side, const DiffSide *other);
DiffTensor *diff_side_add(DiffSide *side, const SafeTensor *tensor);
// How the side computed, whatever its file says. False: no such dtype.
bool diff_side_declare(DiffSide *side, const char *dtype);
void diff_side_sort(DiffSide *side); // by `at`
// Whether a name is one of a dump's: *kind.
bool diff_kind(const char *name, DumpKind *kind);
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

#define DIFF_STATS_SAFETY 4.0 // times what is expected

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
