// gguf: llama.cpp's file of a model, read. Nothing that it says is believed before it is known to lie in the file.
#include "models/gguf.h"
#include "models/llmc.h"

#include "base/check.h"
#include "formats/formats.h"
#include "base/words.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 32, MOST_NAME = 200 };

static const size_t value_bytes[GGUF_VALUES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Every type that llama.cpp has had, by number; those with bytes are read. `per` numbers are `bytes` long.
static const struct {
    const char *name;
    size_t per, bytes;
} types[] = {
    {"F32", 1, 4}, {"F16", 1, 2}, {"Q4_0", BLOCK, 18}, {"Q4_1", BLOCK, 20}, {"Q4_2", 0, 0}, {"Q4_3", 0, 0},
    {"Q5_0", 0, 0}, {"Q5_1", 0, 0}, {"Q8_0", BLOCK, 34}, {"Q8_1", 0, 0}, {"Q2_K", 0, 0}, {"Q3_K", 0, 0},
    {"Q4_K", 0, 0}, {"Q5_K", 0, 0}, {"Q6_K", 0, 0}, {"Q8_K", 0, 0}, {"IQ2_XXS", 0, 0}, {"IQ2_XS", 0, 0},
    {"IQ3_XXS", 0, 0}, {"IQ1_S", 0, 0}, {"IQ4_NL", 0, 0}, {"IQ3_S", 0, 0}, {"IQ2_S", 0, 0}, {"IQ4_XS", 0, 0},
    {"I8", 0, 0}, {"I16", 0, 0}, {"I32", 0, 0}, {"I64", 0, 0}, {"F64", 0, 0}, {"IQ1_M", 0, 0}, {"BF16", 1, 2},
};
enum { TYPES = sizeof types / sizeof *types };

const char *gguf_type_name(GgufType type)
{
    return types[type].name;
}

size_t gguf_bytes(GgufType type, size_t n)
{
    return n % types[type].per ? 0 : n / types[type].per * types[type].bytes;
}

// ---- what stands where

typedef struct {
    Gguf *g;
    size_t at;
} Cursor;

// n bytes from here on, which are passed.
static const char *take(Cursor *c, size_t n, const char *what)
{
    if (n > c->g->n_bytes - c->at)
        die("%s: byte %zu: %s of %zu bytes, and the file has %zu more (cut short?)", c->g->path, c->at, what, n,
            c->g->n_bytes - c->at);
    c->at += n;
    return c->g->map + c->at - n;
}

static uint32_t take_u32(Cursor *c, const char *what)
{
    uint32_t x;
    memcpy(&x, take(c, sizeof x, what), sizeof x);
    return x;
}

static uint64_t take_u64(Cursor *c, const char *what)
{
    uint64_t x;
    memcpy(&x, take(c, sizeof x, what), sizeof x);
    return x;
}

static GgufText take_text(Cursor *c, const char *what)
{
    uint64_t n = take_u64(c, what);
    const char *bytes = take(c, n, what);
    return (GgufText){bytes, n};
}

// A count of things that take at least `least` bytes each.
static size_t take_count(Cursor *c, size_t least, const char *what)
{
    uint64_t n = take_u64(c, what);
    if (n > (c->g->n_bytes - c->at) / least)
        die("%s: byte %zu: %" PRIu64 " %s, and the file has %zu more bytes (damaged?)", c->g->path, c->at - 8, n, what,
            c->g->n_bytes - c->at);
    return n;
}

static GgufValue take_type(Cursor *c, const GgufKey *k)
{
    uint32_t type = take_u32(c, "a type");
    if (type >= GGUF_VALUES)
        die("%s: key %.*s: a value of type %u, which GGUF has not (damaged?)", c->g->path, (int)k->name.n,
            k->name.bytes, type);
    return type;
}

static void read_key(Cursor *c, GgufKey *k)
{
    k->name = take_text(c, "a key");
    if (k->name.n > MOST_NAME) die("%s: byte %zu: a key of %zu bytes (damaged?)", c->g->path, c->at, k->name.n);
    k->type = take_type(c, k), k->n = 1;
    if ((k->array = k->type == GGUF_ARRAY)) {
        k->type = take_type(c, k);
        if (k->type == GGUF_ARRAY)
            die("%s: key %.*s: arrays of arrays are not known here", c->g->path, (int)k->name.n, k->name.bytes);
        k->n = take_count(c, k->type == GGUF_STRING ? 8 : value_bytes[k->type], "elements");
    }
    k->data = c->g->map + c->at;
    if (k->type == GGUF_STRING)
        for (size_t i = 0; i < k->n; i++) take_text(c, "a string");
    else take(c, k->n * value_bytes[k->type], "a value");
}

static void read_tensor(Cursor *c, GgufTensor *t, uint64_t *offset)
{
    const char *path = c->g->path;
    t->name = take_text(c, "a tensor's name");
    if (t->name.n > MOST_NAME) die("%s: byte %zu: a name of %zu bytes (damaged?)", path, c->at, t->name.n);
    uint32_t ndim = take_u32(c, "dimensions"), type;
    if (ndim < 1 || ndim > 4)
        die("%s: tensor %.*s: %u dimensions (1 to 4 are known)", path, (int)t->name.n, t->name.bytes, ndim);
    t->ndim = (int)ndim, t->n_elems = 1;
    for (int d = 0; d < 4; d++) {
        t->dim[d] = d < t->ndim ? take_u64(c, "a dimension") : 1;
        if (__builtin_mul_overflow(t->n_elems, t->dim[d], &t->n_elems) || !t->dim[d] || t->n_elems > SIZE_MAX / 64)
            die("%s: tensor %.*s: dimension %d is %zu (damaged?)", path, (int)t->name.n, t->name.bytes, d, t->dim[d]);
    }
    if ((type = take_u32(c, "a type")) >= TYPES || !types[type].bytes)
        die("%s: tensor %.*s is of type %u%s%s (F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are read)", path, (int)t->name.n,
            t->name.bytes, type, type < TYPES ? ", " : "", type < TYPES ? types[type].name : "");
    t->type = type;
    if (t->dim[0] % types[type].per)
        die("%s: tensor %.*s: rows of %zu numbers, which are no blocks of %s", path, (int)t->name.n, t->name.bytes,
            t->dim[0], types[type].name);
    t->n_bytes = gguf_bytes(t->type, t->n_elems);
    *offset = take_u64(c, "an offset");
}

// Names are found by their place in the list.
static void check_names(const Gguf *g, const GgufText *name, size_t stride, size_t n, const char *what)
{
    Words seen = {0};
    for (size_t i = 0; i < n; i++) {
        const GgufText *t = (const void *)((const char *)name + i * stride);
        if (words_add(&seen, t->bytes, t->n) != i)
            die("%s: %s %.*s is there twice (damaged?)", g->path, what, (int)t->n, t->bytes);
    }
    words_free(&seen);
}

static int by_place(const void *a, const void *b)
{
    const GgufTensor *const *x = a, *const *y = b;
    return (*x)->data < (*y)->data ? -1 : (*x)->data > (*y)->data;
}

static void check_overlap(const Gguf *g)
{
    const GgufTensor **order = malloc((g->n_tensors + 1) * sizeof *order);
    if (!order) die("%s: no memory for %zu tensors", g->path, g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) order[i] = &g->tensor[i];
    qsort(order, g->n_tensors, sizeof *order, by_place);
    for (size_t i = 1; i < g->n_tensors; i++)
        if ((const char *)order[i - 1]->data + order[i - 1]->n_bytes > (const char *)order[i]->data)
            die("%s: tensors %.*s and %.*s overlap (damaged?)", g->path, (int)order[i - 1]->name.n,
                order[i - 1]->name.bytes, (int)order[i]->name.n, order[i]->name.bytes);
    free(order);
}

static void read_tables(Gguf *g)
{
    Cursor c = {.g = g};
    if (memcmp(take(&c, 4, "GGUF's mark"), "GGUF", 4) != 0) die("%s: is not a GGUF file", g->path);
    uint32_t version = take_u32(&c, "the version");
    if (version != 2 && version != 3)
        die("%s: GGUF version %u%s (2 and 3 are read; llama.cpp's tools convert others)", g->path, version,
            version == 3u << 24 ? ", which is 3 with the bytes of a big-endian machine" : "");
    g->n_tensors = take_count(&c, 24, "tensors");
    g->n_keys = take_count(&c, 13, "keys");
    g->key = calloc(g->n_keys + 1, sizeof *g->key);
    g->tensor = calloc(g->n_tensors + 1, sizeof *g->tensor);
    uint64_t *offset = calloc(g->n_tensors + 1, sizeof *offset);
    if (!g->key || !g->tensor || !offset) die("%s: no memory for its tables", g->path);
    for (size_t i = 0; i < g->n_keys; i++) read_key(&c, &g->key[i]);
    check_names(g, &g->key->name, sizeof *g->key, g->n_keys, "key");
    for (size_t i = 0; i < g->n_tensors; i++) read_tensor(&c, &g->tensor[i], &offset[i]);
    check_names(g, &g->tensor->name, sizeof *g->tensor, g->n_tensors, "tensor");
    double align = gguf_number(g, "general.alignment", 32);
    if (align != 8 && align != 16 && align != 32 && align != 64 && align != 128 && align != 4096)
        die("%s: general.alignment = %g: a power of two from 8 on is needed", g->path, align);
    size_t begin = (c.at + (size_t)align - 1) / (size_t)align * (size_t)align;
    for (size_t i = 0; i < g->n_tensors; i++) {
        GgufTensor *t = &g->tensor[i];
        if (begin > g->n_bytes || offset[i] % (size_t)align || offset[i] > g->n_bytes - begin ||
            t->n_bytes > g->n_bytes - begin - offset[i])
            die("%s: tensor %.*s: %zu bytes at %" PRIu64 " of the data, and the file has %zu bytes (cut short?)",
                g->path, (int)t->name.n, t->name.bytes, t->n_bytes, offset[i], g->n_bytes);
        t->data = g->map + begin + offset[i];
    }
    free(offset);
    check_overlap(g);
}

bool gguf_is_file(const char *path)
{
    return llmc_begins_with(path, 'G' | 'G' << 8 | 'U' << 16 | 'F' << 24);
}

Gguf *gguf_open(const char *path)
{
    Gguf *g = calloc(1, sizeof *g);
    int fd = open(path, O_RDONLY);
    struct stat info;
    if (!g || !(g->path = strdup(path))) die("%s: no memory", path);
    if (fd < 0 || fstat(fd, &info) < 0) die("%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size < 24) die("%s: is not a GGUF file (it is empty, or no file)", path);
    g->n_bytes = (size_t)info.st_size;
    g->map = mmap(NULL, g->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (g->map == MAP_FAILED) die("%s: cannot be mapped: %s", path, strerror(errno));
    read_tables(g);
    return g;
}

void gguf_close(Gguf *g)
{
    if (!g) return;
    munmap((void *)(uintptr_t)g->map, g->n_bytes);
    free(g->key);
    free(g->tensor);
    free(g->path);
    free(g);
}

// ---- keys

static bool is_name(GgufText t, const char *name)
{
    return t.n == strlen(name) && !memcmp(t.bytes, name, t.n);
}

const GgufKey *gguf_find(const Gguf *g, const char *name)
{
    for (size_t i = 0; i < g->n_keys; i++)
        if (is_name(g->key[i].name, name)) return &g->key[i];
    return NULL;
}

// Any number as a double; of an array number i.
static double value_of(const GgufKey *k, size_t i)
{
    union { uint8_t u8; int8_t i8; uint16_t u16; int16_t i16; uint32_t u32; int32_t i32; float f; uint64_t u64;
            int64_t i64; double d; } x = {0};
    memcpy(&x, k->data + i * value_bytes[k->type], value_bytes[k->type]);
    switch (k->type) {
    case GGUF_U8: case GGUF_BOOL: return x.u8;
    case GGUF_I8: return x.i8;
    case GGUF_U16: return x.u16;
    case GGUF_I16: return x.i16;
    case GGUF_U32: return x.u32;
    case GGUF_I32: return x.i32;
    case GGUF_FLOAT: return x.f;
    case GGUF_U64: return (double)x.u64;
    case GGUF_I64: return (double)x.i64;
    default: return x.d;
    }
}

double gguf_number(const Gguf *g, const char *name, double otherwise)
{
    const GgufKey *k = gguf_find(g, name);
    if (!k) return otherwise;
    if (!k->n || k->type == GGUF_STRING) die("%s: key %s: a number is needed", g->path, name);
    double x = value_of(k, 0);
    for (size_t i = 1; i < k->n; i++)
        if (value_of(k, i) != x)
            die("%s: key %s: %g, and %g for layer %zu: one for all is needed", g->path, name, x, value_of(k, i), i);
    return x;
}

GgufText gguf_next(const char **at)
{
    uint64_t n;
    memcpy(&n, *at, sizeof n);
    GgufText t = {*at + sizeof n, n};
    *at = t.bytes + n;
    return t;
}

char *gguf_string(const Gguf *g, const char *name)
{
    const GgufKey *k = gguf_find(g, name);
    if (!k) return NULL;
    if (k->array || k->type != GGUF_STRING) die("%s: key %s: a string is needed", g->path, name);
    const char *at = k->data;
    GgufText t = gguf_next(&at);
    char *copy = strndup(t.bytes, t.n);
    if (!copy) die("%s: no memory", g->path);
    return copy;
}

const GgufKey *gguf_array(const Gguf *g, const char *name, GgufValue type)
{
    const GgufKey *k = gguf_find(g, name);
    if (!k || !k->array || k->type != type)
        die("%s: key %s: %s", g->path, name, k ? "another kind of array is needed" : "there is none");
    return k;
}

// ---- tensors

const GgufTensor *gguf_tensor(const Gguf *g, const char *name)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        if (is_name(g->tensor[i].name, name)) return &g->tensor[i];
    return NULL;
}

static float half_at(const uint8_t *bytes)
{
    return formats_decode(FORMAT_FP16, (uint32_t)(bytes[0] | bytes[1] << 8));
}

static void read_block(float *out, const uint8_t *b, GgufType type)
{
    float d = half_at(b), m = type == GGUF_Q4_1 ? half_at(b + 2) : 0;
    const uint8_t *q = b + (type == GGUF_Q4_1 ? 4 : 2);
    for (int i = 0; i < BLOCK; i++) {
        int half = i < BLOCK / 2 ? q[i] & 15 : q[i - BLOCK / 2] >> 4;
        out[i] = type == GGUF_Q8_0 ? d * (int8_t)q[i] : type == GGUF_Q4_0 ? d * (float)(half - 8) : d * (float)half + m;
    }
}

void gguf_to_float(float *out, const GgufTensor *t)
{
    if (types[t->type].per == 1) {
        formats_to_float(out, t->type == GGUF_F32 ? FORMAT_FP32 : t->type == GGUF_F16 ? FORMAT_FP16 : FORMAT_BF16,
                         t->data, t->n_elems);
        return;
    }
    const uint8_t *b = t->data;
    size_t bytes = types[t->type].bytes;
#pragma omp parallel for
    for (size_t i = 0; i < t->n_elems / BLOCK; i++) read_block(out + i * BLOCK, b + i * bytes, t->type);
}
