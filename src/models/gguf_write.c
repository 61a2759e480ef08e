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

void gguf_put_array(GgufOut *out, const char *key, GgufValue type, const void *value, size_t n)
{
    put_key(out, key, GGUF_ARRAY);
    put_u32(&out->keys, type);
    put_u64(&out->keys, n);
    if (value) put(&out->keys, value, n * 4); // I32 and FLOAT
}

void gguf_add_string(GgufOut *out, const char *bytes, size_t n)
{
    put_text(&out->keys, bytes, n);
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
        const struct { char mark[4]; uint32_t version; uint64_t n_tensors, n_keys; } head = {
            {'G', 'G', 'U', 'F'}, 3, out->n_tensors, out->n_keys};
        write_all(out, &head, sizeof head);
        write_all(out, out->keys.bytes, out->keys.n);
        write_all(out, out->table.bytes, out->table.n);
        pad(out, sizeof head + out->keys.n + out->table.n);
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
