// gguf: llama.cpp's file of a model: keys with values, and named tensors, some of them in blocks of few bits.
//
//   "GGUF", u32 version (2 or 3), u64 tensors, u64 keys; each key: string, u32 type, value; each tensor: string, u32
//   dimensions, u64 each (the first is contiguous), u32 type, u64 offset from where the data begins, which is the next
//   multiple of the alignment (32 bytes, or the key general.alignment). A string is u64 bytes and the bytes; an array
//   u32 type of its elements, u64 how many, the elements. All is little-endian.
//
// Blocks of 32 numbers of a row: Q8_0 is fp16 d and 32 int8, x = d q. Q4_0 is fp16 d and 16 bytes, whose low halves are
// the first 16 numbers, x = d (q - 8). Q4_1 is fp16 d, fp16 m and 16 bytes, x = d q + m.
#ifndef GGUF_H
#define GGUF_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// ---- reading

typedef enum {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_FLOAT, GGUF_BOOL, GGUF_STRING, GGUF_ARRAY, GGUF_U64,
    GGUF_I64, GGUF_DOUBLE, GGUF_VALUES
} GgufValue;

typedef enum { GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q4_1 = 3, GGUF_Q8_0 = 8, GGUF_BF16 = 30 } GgufType;

typedef struct {
    const char *bytes; // (n), not 0-terminated
    size_t n;
} GgufText;

typedef struct {
    GgufText name;
    GgufValue type;   // of an array: of its elements
    bool array;
    size_t n;         // elements; 1 without an array
    const char *data; // (n) values, not aligned; of strings (u64 and bytes) each
} GgufKey;

typedef struct {
    GgufText name;
    int ndim;
    size_t dim[4]; // 1 from ndim on
    GgufType type;
    size_t n_elems, n_bytes;
    const void *data;
} GgufTensor;

typedef struct {
    char *path;
    GgufKey *key; // (n_keys)
    size_t n_keys;
    GgufTensor *tensor; // (n_tensors)
    size_t n_tensors;
    const char *map;
    size_t n_bytes;
} Gguf;

bool gguf_is_file(const char *path); // it begins with "GGUF"
// Maps and checks a file; dies with the file, the place and what is wrong there, on a type that is not above by name.
Gguf *gguf_open(const char *path);
void gguf_close(Gguf *g); // NULL is allowed

// A key's value; NULL, or `otherwise`, where it has none. Dies when it is of another kind (integers fit a double). An
// array of one number again and again, as of all layers, is that number.
const GgufKey *gguf_find(const Gguf *g, const char *name);
double gguf_number(const Gguf *g, const char *name, double otherwise);
char *gguf_string(const Gguf *g, const char *name); // a copy, 0-terminated; free() it
// Dies unless it is an array of `type` (there must be one).
const GgufKey *gguf_array(const Gguf *g, const char *name, GgufValue type);
// The string at *at of an array's data, and the next place.
GgufText gguf_next(const char **at);

const GgufTensor *gguf_tensor(const Gguf *g, const char *name); // NULL: none
void gguf_to_float(float *out, const GgufTensor *t);            // (n_elems)

// ---- writing

size_t gguf_bytes(GgufType type, size_t n); // of n numbers; 0 when that is not a whole number of blocks
const char *gguf_type_name(GgufType type);  // "Q8_0"
// n numbers (whole blocks) as F32, F16, BF16 or Q8_0.
void gguf_from_float(void *out, GgufType type, const float *in, size_t n);

// A file that is being written: first keys, then the table of tensors, then their data in that order.
typedef struct GgufOut GgufOut;

GgufOut *gguf_create(const char *path); // PATH.tmp until it is complete
void gguf_put_number(GgufOut *out, const char *key, GgufValue type, double value); // U32, FLOAT, BOOL
void gguf_put_string(GgufOut *out, const char *key, const char *value);
// An array of I32, FLOAT, or STRING: then value is NULL, and gguf_add_string follows n times.
void gguf_put_array(GgufOut *out, const char *key, GgufValue type, const void *value, size_t n);
void gguf_add_string(GgufOut *out, const char *bytes, size_t n);
void gguf_put_tensor(GgufOut *out, const char *name, GgufType type, int ndim, const size_t *dim); // the last contiguous
void gguf_put_data(GgufOut *out, const void *data); // of the next tensor
void gguf_finish(GgufOut *out);

#ifdef __cplusplus
}
#endif
#endif
