// safetensors: named tensors in a file.
//
// The format of https://github.com/huggingface/safetensors: 8 bytes little-endian header length N, N
// bytes of JSON, then the data back to back. Files are read strictly: what is not exactly right is
// refused with a message that names file, tensor and reason.
#ifndef SAFETENSORS_H
#define SAFETENSORS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// In the order by which writers sort (descending), so that every tensor ends up aligned to its element.
typedef enum {
    ST_BOOL, ST_U8, ST_I8, ST_I16, ST_U16, ST_F16, ST_BF16, ST_I32, ST_U32, ST_F32, ST_F64, ST_I64, ST_U64, ST_DTYPES
} SafeDtype;

typedef struct {
    const char *name;
    SafeDtype dtype;
    int ndim;            // 0: a scalar
    const size_t *shape; // [ndim]
    const void *data;    // aligned to the element when the writer padded its header (all usual ones do)
    size_t n_elems, n_bytes; // set by safetensors_open; the writer computes its own
} SafeTensor;

typedef struct {
    const char *key, *value;
} SafeMeta;

typedef struct {
    char *path;
    int n;              // tensors
    SafeTensor *tensor; // in file order (by offset); data points into the mapped file
    int n_meta;
    SafeMeta *meta; // __metadata__
    const void *map;
    size_t n_bytes; // of the file
    size_t *shapes; // what the tensors' shape points into
    void *header;   // the parsed JSON, which owns the strings
} SafeTensors;

// What stands in place of a model's file (its beginning, with a 0 behind it): a pointer of Git LFS, a page, ...; or NULL.
const char *safetensors_other(const char *text);

enum { ST_HASH = 33 }; // 32 hex digits of XXH3-128 and the closing 0

// Maps and checks a file. When it is not valid: with error NULL it dies, else it returns NULL and writes
// the message to error (n_error bytes). The data stays valid until safetensors_close.
SafeTensors *safetensors_open(const char *path, char *error, size_t n_error);
void safetensors_close(SafeTensors *st); // NULL is allowed
// By name, or NULL; the value of a __metadata__ key, or NULL.
const SafeTensor *safetensors_find(const SafeTensors *st, const char *name);
const char *safetensors_meta(const SafeTensors *st, const char *key);
// The tensors in the order of the "order" metadata (see safetensors_write), then those not named there, in file order:
// order[i] is an index into st->tensor. order has room for st->n.
void safetensors_order(const SafeTensors *st, int *order);

// Writes n tensors to path (which it truncates: write a temporary and rename it) and fsyncs. The data is sorted by
// dtype, then name; metadata is {"format": "pt"} and the caller's pairs; where sorting changed the order in which the
// tensors were given, the key "order" keeps it (names joined by "\n"). Equal input gives equal bytes. hash, when not
// NULL, receives the XXH3-128 of the whole file, n_bytes its size. Errors as in safetensors_open.
bool safetensors_write(const char *path, const SafeTensor *tensor, int n, const SafeMeta *meta,
                       int n_meta, char hash[ST_HASH], size_t *n_bytes, char *error, size_t n_error);

// Returns the data of the i-th tensor given, valid until the next call; NULL: it is not available.
typedef const void *(*SafeSource)(void *self, int i);
// The same, but source(self, i) is asked for one tensor at a time, in file order, so they need not all be in memory.
// source NULL: each tensor's `data`. hashes, when not NULL, receives the XXH3-128 of each tensor's data.
bool safetensors_write_from(const char *path, const SafeTensor *tensor, int n, SafeSource source, void *self,
                            char (*hashes)[ST_HASH], char hash[ST_HASH], size_t *n_bytes, char *error, size_t n_error);

// XXH3-128 in hex, most significant digit first (what `xxhsum -H2` prints).
void safetensors_hash(char hash[ST_HASH], const void *data, size_t n_bytes);
const char *safetensors_dtype_name(SafeDtype dtype); // "F32"
size_t safetensors_dtype_bytes(SafeDtype dtype);

#ifdef __cplusplus
}
#endif
#endif
