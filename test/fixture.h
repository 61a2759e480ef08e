// fixture: reads the small safetensors files under test/fixtures that dev/reference/*.py wrote. For tests
// only.
//
// Every getter states how many elements it expects and fails the test with a message when the file
// disagrees, so a test never compares against the wrong tensor. Tests run from the root of the repository.
#ifndef FIXTURE_H
#define FIXTURE_H
#include "test/test.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char path[128];
    char *data;      // what follows the header
    size_t n_bytes;  // of data
    char *file;
    json_t *header;
} Fixture;

// Opens test/fixtures/NAME.safetensors.
static inline Fixture *fixture_open(const char *name)
{
    Fixture *fx = (Fixture *)calloc(1, sizeof *fx);
    if (!fx) fail_msg("no memory for a fixture");
    snprintf(fx->path, sizeof fx->path, "test/fixtures/%s.safetensors", name);
    FILE *file = fopen(fx->path, "rb");
    if (!file) fail_msg("%s: cannot open it (run tests from the root of the repository)", fx->path);
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (size < 8 || fseek(file, 0, SEEK_SET) != 0) fail_msg("%s: too short", fx->path);
    fx->file = (char *)malloc((size_t)size);
    if (!fx->file || fread(fx->file, 1, (size_t)size, file) != (size_t)size)
        fail_msg("%s: cannot read it", fx->path);
    fclose(file);
    uint64_t length;
    memcpy(&length, fx->file, sizeof length);
    if (length > (uint64_t)size - 8 || length % 8)
        fail_msg("%s: header of %zu bytes", fx->path, (size_t)length);
    json_error_t error;
    fx->header = json_loadb(fx->file + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (!fx->header) fail_msg("%s: %s", fx->path, error.text);
    fx->data = fx->file + 8 + length;
    fx->n_bytes = (size_t)size - 8 - (size_t)length;
    return fx;
}

static inline void fixture_close(Fixture *fx)
{
    if (!fx) return;
    json_decref(fx->header);
    free(fx->file);
    free(fx);
}

static inline bool fixture_has(const Fixture *fx, const char *name)
{
    return json_object_get(fx->header, name) != NULL;
}

// The bytes of tensor NAME, which must hold n elements of 4 bytes of the given type.
static inline const void *fixture_tensor(const Fixture *fx, const char *name, const char *type, size_t n)
{
    json_t *row = json_object_get(fx->header, name), *ends = json_object_get(row, "data_offsets");
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    if (!row || !dtype) fail_msg("%s: no tensor '%s'", fx->path, name);
    size_t begin = (size_t)json_integer_value(json_array_get(ends, 0));
    size_t end = (size_t)json_integer_value(json_array_get(ends, 1));
    if (strcmp(dtype, type) != 0) fail_msg("%s: '%s' is %s, wanted %s", fx->path, name, dtype, type);
    if (end < begin || end > fx->n_bytes || end - begin != n * 4)
        fail_msg("%s: '%s' has bytes [%zu, %zu), wanted %zu elements", fx->path, name, begin, end, n);
    return fx->data + begin;
}

static inline const float *fixture_f32(const Fixture *fx, const char *name, size_t n)
{
    return (const float *)fixture_tensor(fx, name, "F32", n);
}

static inline const int32_t *fixture_i32(const Fixture *fx, const char *name, size_t n)
{
    return (const int32_t *)fixture_tensor(fx, name, "I32", n);
}

// A string of the metadata; a number in it.
static inline const char *fixture_text(const Fixture *fx, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(fx->header, "__metadata__"), key));
    if (!text) fail_msg("%s: no metadata '%s'", fx->path, key);
    return text;
}

static inline double fixture_number(const Fixture *fx, const char *key)
{
    const char *text = fixture_text(fx, key);
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end) fail_msg("%s: metadata '%s' is '%s', not a number", fx->path, key, text);
    return value;
}

#endif
