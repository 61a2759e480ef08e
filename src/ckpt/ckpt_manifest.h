// ckpt_manifest: the file that makes a directory of tensors a checkpoint, and what saving and loading share. Used by
// ckpt*.c alone.
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H
#include "ckpt/ckpt.h"

#include <limits.h>
#ifdef __cplusplus
extern "C" {
#endif

// Where the message of a failure goes.
typedef struct {
    char *text;
    size_t n;
} CkptFailure;

// Writes the message and returns false.
bool ckpt_fail(CkptFailure f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Why a checkpoint was not opened: damaged (another one may do), or sound but not for this program.
typedef enum { CKPT_SOUND, CKPT_DAMAGED, CKPT_REFUSED } CkptVerdict;

#define CKPT_FORMAT "pretrain.c checkpoint"

typedef struct {
    const char *name, *hash;
    bool optim; // holds optimizer state, else weights
    uint64_t n_bytes;
    SafeTensors *open; // NULL: not opened (yet)
} CkptFile;

// A slice of a tensor is the tensor of the same name in one of the files.
typedef struct {
    int file;
    const char *hash;
} CkptPlace;

typedef struct {
    const char *name;
    SafeDtype dtype;
    bool optim;
    int ndim;
    size_t shape[PARAM_DIMS]; // 1 after the dimensions
    int n;                    // slices; in ascending order of (first, from)
    CkptSlice *slice;         // (n)
    CkptPlace *place;         // (n)
} CkptTensor;

typedef struct {
    char *dir;
    CkptState state; // config and optim point into the JSON; no extra
    int n_files, n, n_model;
    CkptFile *file;
    CkptTensor *tensor;         // (n) in the table's order; the first n_model are the weights
    const CkptTensor **by_name; // (n)
    CkptSlice *slices;          // what the tensors point into
    CkptPlace *places;
    void *json;                 // owns the strings
} CkptManifest;

// Writes dir/manifest.json and fsyncs it. Of the tables dir, json, by_name and open are not looked at.
bool ckpt_manifest_write(const char *dir, const CkptState *state, const CkptManifest *tables, CkptFailure f);

// The bytes of dir/manifest.json, for ckpt_manifest_parse, or NULL. free() them.
char *ckpt_manifest_load(const char *dir, size_t *n_bytes, CkptFailure f);
// Checks the manifest's own hash (which it overwrites in text), and that its slices are tensors. Opens no file.
CkptManifest *ckpt_manifest_parse(const char *dir, char *text, size_t n_bytes, CkptVerdict *verdict, CkptFailure f);
// Fills by_name, which has room for n. False: a name stands twice.
bool ckpt_manifest_index(CkptManifest *manifest, CkptFailure f);
void ckpt_manifest_free(CkptManifest *manifest); // NULL is allowed
// Opens a file, where it is not open, and checks its structure and that it holds its slices; with `hash` every byte
// too.
bool ckpt_manifest_open(CkptManifest *manifest, int file, bool hash, CkptFailure f);
// By name, or NULL.
const CkptTensor *ckpt_manifest_find(const CkptManifest *manifest, const char *name);
// Fills one extra; leaves it as it is when it is not stored. False: another length, or no numbers.
bool ckpt_manifest_extra(const CkptManifest *manifest, const CkptExtra *extra, CkptFailure f);

// ---- shared by ckpt.c, which has them, and ckpt_load.c

enum { CKPT_TENSOR_NAME = PARAM_NAME + 32 };

// What a piece is a piece of.
typedef struct {
    char name[CKPT_TENSOR_NAME];
    SafeDtype dtype;
    int ndim;
    size_t shape[PARAM_DIMS]; // 1 after the dimensions
} CkptTarget;

CkptTarget ckpt_target(const CkptPart *part, int array, int row);
// A path (PATH_MAX) made by printf. One that does not fit is the user's error.
void ckpt_join(char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// True on all ranks when `ok` on all; else *f is the message of the lowest rank that failed, on all. Collective.
bool ckpt_agree(Comm *world, bool ok, CkptFailure f);
// Whether all numbers are finite, of the types that can hold others (F32: no array of an optimizer has another one).
bool ckpt_finite(SafeDtype dtype, const void *data, size_t n);
// n bytes of rank 0 to all ranks.
void ckpt_tell(Comm *world, void *data, size_t n);

#ifdef __cplusplus
}
#endif
#endif
