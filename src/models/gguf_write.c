// gguf_write: llama.cpp's file of a model, written: the tables are gathered in memory, the data follows them.
#include "models/gguf.h"

#include "base/check.h"
#include "base/disk.h"
#include "formats/formats.h"
#include "base/words.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 32, BLOCK = 32 };

typedef struct {
    char *bytes;
    size_t n, cap;
} Buffer;

struct GgufOut {
    DiskOut *file;
    Buffer keys, table;
    uint64_t n_keys, n_tensors;
    uint64_t *bytes; // (n_tensors) of each tensor's data
    size_t cap;
    uint64_t offset;  // of the next tensor's data
    size_t written;   // tensors whose data is
};

static void put(Buffer *b, const void *data, size_t n)
{
    b->bytes = words_grow(b->bytes, &b->cap, b->n + n, 1);
    memcpy(b->bytes + b->n, data, n);
    b->n += n;
}

static void put_u32(Buffer *b, uint32_t x)
{
    put(b, &x, sizeof x);
}

static void put_u64(Buffer *b, uint64_t x)
{
    put(b, &x, sizeof x);
}

static void put_text(Buffer *b, const char *bytes, size_t n)
{
    put_u64(b, n);
    put(b, bytes, n);
}

static void put_key(GgufOut *out, const char *key, GgufValue type)
{
    put_text(&out->keys, key, strlen(key));
    put_u32(&out->keys, type);
    out->n_keys++;
}

GgufOut *gguf_create(const char *path)
{
    GgufOut *out = calloc(1, sizeof *out);
    if (!out) die("%s: no memory", path);
    out->file = disk_out_open(path);
    return out;
}

void gguf_put_number(GgufOut *out, const char *key, GgufValue type, double value)
{
    put_key(out, key, type);
    uint8_t flag = value != 0;
    float real = (float)value;
    if (type == GGUF_BOOL) put(&out->keys, &flag, 1);
    else if (type == GGUF_FLOAT) put(&out->keys, &real, sizeof real);
    else check(type == GGUF_U32), put_u32(&out->keys, (uint32_t)value);
}

void gguf_put_string(GgufOut *out, const char *key, const char *value)
{
    put_key(out, key, GGUF_STRING);
    put_text(&out->keys, value, strlen(value));
}

void gguf_put_strings(GgufOut *out, const char *key, const GgufText *value, size_t n)
{
    put_key(out, key, GGUF_ARRAY);
    put_u32(&out->keys, GGUF_STRING);
    put_u64(&out->keys, n);
    for (size_t i = 0; i < n; i++) put_text(&out->keys, value[i].bytes, value[i].n);
}

// Of elements of 4 bytes.
static void put_array(GgufOut *out, const char *key, GgufValue type, const void *value, size_t n)
{
    put_key(out, key, GGUF_ARRAY);
    put_u32(&out->keys, type);
    put_u64(&out->keys, n);
    put(&out->keys, value, n * 4);
}

void gguf_put_i32s(GgufOut *out, const char *key, const int32_t *value, size_t n)
{
    put_array(out, key, GGUF_I32, value, n);
}

void gguf_put_floats(GgufOut *out, const char *key, const float *value, size_t n)
{
    put_array(out, key, GGUF_FLOAT, value, n);
}

void gguf_put_tensor(GgufOut *out, const char *name, GgufType type, int ndim, const size_t *dim)
{
    size_t n = 1;
    put_text(&out->table, name, strlen(name));
    put_u32(&out->table, (uint32_t)ndim);
    for (int d = ndim - 1; d >= 0; d--) put_u64(&out->table, dim[d]), n *= dim[d];
    put_u32(&out->table, type);
    put_u64(&out->table, out->offset);
    out->bytes = words_grow(out->bytes, &out->cap, out->n_tensors + 1, sizeof *out->bytes);
    out->bytes[out->n_tensors++] = gguf_bytes(type, n);
    out->offset += (gguf_bytes(type, n) + ALIGN - 1) / ALIGN * ALIGN;
}

static void write_all(const GgufOut *out, const void *data, size_t n)
{
    if (fwrite(data, 1, n, out->file->f) != n)
        die("%s: cannot write: %s (is the disk full?)", out->file->path, strerror(errno));
}

// Zeros up to the next multiple of the alignment.
static void pad(const GgufOut *out, size_t n)
{
    static const char zeros[ALIGN];
    write_all(out, zeros, (ALIGN - n % ALIGN) % ALIGN);
}

void gguf_put_data(GgufOut *out, const void *data)
{
    if (!out->written) {
        Buffer head = {0};
        put(&head, "GGUF", 4);
        put_u32(&head, 3);
        put_u64(&head, out->n_tensors);
        put_u64(&head, out->n_keys);
        write_all(out, head.bytes, head.n);
        write_all(out, out->keys.bytes, out->keys.n);
        write_all(out, out->table.bytes, out->table.n);
        pad(out, head.n + out->keys.n + out->table.n);
        free(head.bytes);
    }
    check(out->written < out->n_tensors);
    write_all(out, data, out->bytes[out->written]);
    pad(out, out->bytes[out->written++]);
}

void gguf_finish(GgufOut *out)
{
    check(out->written == out->n_tensors);
    disk_out_commit(out->file);
    free(out->keys.bytes);
    free(out->table.bytes);
    free(out->bytes);
    free(out);
}

// d = largest / 127, rounded to fp16 only for the file, as llama.cpp does it: q = x / d.
static void write_block(uint8_t *out, const float *x)
{
    float most = 0;
    for (int i = 0; i < BLOCK; i++) most = fmaxf(most, fabsf(x[i]));
    float d = most / 127, inverse = d != 0 ? 1 / d : 0;
    uint32_t bits = formats_encode(FORMAT_FP16, d, true);
    out[0] = (uint8_t)bits, out[1] = (uint8_t)(bits >> 8);
    for (int i = 0; i < BLOCK; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

void gguf_from_float(void *out, GgufType type, const float *in, size_t n)
{
    if (type != GGUF_Q8_0) {
        formats_from_float(out, type == GGUF_F32 ? FORMAT_FP32 : type == GGUF_F16 ? FORMAT_FP16 : FORMAT_BF16, in, n,
                           false);
        return;
    }
    check(n % BLOCK == 0);
#pragma omp parallel for
    for (size_t i = 0; i < n / BLOCK; i++) write_block((uint8_t *)out + i * gguf_bytes(type, BLOCK), in + i * BLOCK);
}
