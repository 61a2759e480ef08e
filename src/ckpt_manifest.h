// ckpt_manifest: the page that makes a directory of tensors a checkpoint. Layer 5. Used by ckpt alone.
#ifndef CKPT_MANIFEST_H
#define CKPT_MANIFEST_H
#include <stdbool.h>
#include <stddef.h>

#include "ckpt.h"
#ifdef __cplusplus
extern "C" {
#endif

// A file as safetensors_write left it.
typedef struct {
    const char *name, *kind; // kind: model or optim
    const SafeTensor *tensor;
    int n;
    size_t n_bytes;
    char hash[ST_HASH];
} CkptFile;

// Why a checkpoint was not opened: damaged (another one may do), or sound but not for this program.
typedef enum { CKPT_SOUND, CKPT_DAMAGED, CKPT_REFUSED } CkptVerdict;

// Where the message of a failure goes.
typedef struct {
    char *text;
    size_t n;
} CkptFailure;

// Writes the message and returns false.
bool ckpt_fail(CkptFailure f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Writes dir/manifest.json and fsyncs it.
bool ckpt_manifest_write(const char *dir, const CkptState *state, const CkptFile *file, int n_files,
                         char *error, size_t n_error);
// Fills one extra of an open checkpoint; leaves it as it is when it is not stored. False: another length, or no
// numbers.
bool ckpt_manifest_extra(const Ckpt *ckpt, const CkptExtra *extra, CkptFailure f);
// Verifies dir: the manifest's own hash, then size and hash of each file it needs, then every tensor's
// place.
Ckpt *ckpt_manifest_read(const char *dir, bool optim, CkptVerdict *verdict, char *error, size_t n_error);

#ifdef __cplusplus
}
#endif
#endif
