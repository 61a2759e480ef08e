// ckpt_manifest_write: puts a checkpoint's tables on the page. See ckpt_manifest.c for what it looks like.
//
// The invariant: equal state, equal bytes. No date, no host name, no path; keys in a fixed order, one line a file
// and a tensor, numbers exact (jansson prints doubles with 17 digits, integers whole).
//
// The page carries a hash of itself. It is written with zeros in the hash's place, hashed, and the 32 digits put over
// the zeros: the reader does the same in reverse.
#include "train/ckpt_manifest.h"

#include "base/check.h"
#include "base/disk.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPENING "{\"xxh3_128\": \""
#define ZEROS "00000000000000000000000000000000"
enum { OPENING_BYTES = sizeof OPENING - 1 };

// A 64-bit count: JSON integers are signed here, so those above 2^63 - 1 are stored as their two's complement.
static json_t *count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *state_json(const CkptState *s)
{
    json_t *best = isfinite(s->best_val) ? json_real(s->best_val) : json_null();
    json_t *optim = s->optim ? json_string(s->optim) : json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o}", "step", count((uint64_t)s->step),
                     "adam_step", count((uint64_t)s->adam_step), "sample", count(s->sample), "tokens",
                     count(s->tokens), "seed", count(s->seed), "seconds", s->seconds, "best_val", best, "optim",
                     optim);
}

// JSON has no NaN and no infinities: those are the strings that strtod reads.
static json_t *number_json(double x)
{
    if (isfinite(x)) return json_real(x);
    return json_string(isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

static json_t *extra_json(const CkptState *s)
{
    json_t *all = json_object();
    for (int i = 0; i < s->n_extra; i++) {
        const CkptExtra *extra = &s->extra[i];
        json_t *value = extra->n == 1 ? number_json(extra->value[0]) : json_array();
        for (size_t k = 0; k < extra->n && extra->n != 1; k++)
            json_array_append_new(value, number_json(extra->value[k]));
        json_object_set_new(all, extra->name, value);
    }
    return all;
}

static json_t *sizes_json(const size_t *size, int n)
{
    json_t *array = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(array, count(size[i]));
    return array;
}

// What is the default is left out: the part is the tensor, the range is the part.
static json_t *slice_json(const CkptTensor *t, int i, const CkptFile *file)
{
    const CkptSlice *s = &t->slice[i];
    json_t *slice = json_pack("{s:s}", "file", file[t->place[i].file].name);
    if (s->cut >= 0) {
        json_object_set_new(slice, "cut", json_integer(s->cut));
        json_object_set_new(slice, "first", count(s->first));
        json_object_set_new(slice, "extent", count(s->dim[s->cut]));
    }
    if (s->from != 0 || s->to != s->dim[0] * s->dim[1])
        json_object_set_new(slice, "range", sizes_json((const size_t[]){s->from, s->to}, 2));
    json_object_set_new(slice, "xxh3_128", json_string(t->place[i].hash));
    return slice;
}

static json_t *tensor_json(const CkptTensor *t, const CkptFile *file)
{
    json_t *slices = json_array();
    for (int i = 0; i < t->n; i++) json_array_append_new(slices, slice_json(t, i, file));
    return json_pack("{s:s, s:s, s:o, s:o}", "name", t->name, "dtype", safetensors_dtype_name(t->dtype), "shape",
                     sizes_json(t->shape, t->ndim), "slices", slices);
}

// One line: `prefix`, the value, `suffix`. Takes the value over. False when there is no value.
static bool put(FILE *out, const char *prefix, json_t *value, const char *suffix)
{
    fputs(prefix, out);
    bool ok = value && json_dumpf(value, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0;
    fputs(suffix, out);
    json_decref(value);
    return ok;
}

// The manifest as text, with zeros for its own hash.
static char *compose(const CkptState *state, const CkptManifest *m, size_t *n_text)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n_text);
    if (!out) return NULL;
    fprintf(out, OPENING ZEROS "\",\n\"format\": \"" CKPT_FORMAT "\", \"version\": %d,\n", CKPT_VERSION);
    bool ok = put(out, "\"state\": ", state_json(state), ",\n");
    ok = put(out, "\"config\": ", state->config ? json_string(state->config) : json_null(), ",\n") && ok;
    if (state->n_extra) ok = put(out, "\"extra\": ", extra_json(state), ",\n") && ok;
    for (int i = 0; i < m->n_files; i++) {
        const CkptFile *f = &m->file[i];
        json_t *entry = json_pack("{s:s, s:s, s:o, s:s}", "name", f->name, "kind", f->optim ? "optim" : "model",
                                  "bytes", count(f->n_bytes), "xxh3_128", f->hash);
        ok = put(out, i ? ",\n" : "\"files\": [\n", entry, "") && ok;
    }
    for (int i = 0; i < m->n; i++)
        ok = put(out, i ? ",\n" : "],\n\"tensors\": [\n", tensor_json(&m->tensor[i], m->file), "") && ok;
    fputs("]}\n", out);
    ok = !ferror(out) && ok;
    if (fclose(out) == 0 && ok) return text;
    free(text);
    return NULL;
}

bool ckpt_manifest_write(const char *dir, const CkptState *state, const CkptManifest *tables, CkptFailure f)
{
    char path[PATH_MAX], hash[ST_HASH];
    if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) >= sizeof path)
        return ckpt_fail(f, "%s: the path is too long", dir);
    size_t n = 0;
    char *text = compose(state, tables, &n);
    if (!text)
        return ckpt_fail(f, "%s: the state cannot be written as JSON (not UTF-8, or no memory)", path);
    safetensors_hash(hash, text, n);
    memcpy(text + OPENING_BYTES, hash, ST_HASH - 1);
    bool ok = disk_write_file(path, text, n);
    if (!ok) ckpt_fail(f, "%s: cannot write: %s", path, strerror(errno));
    free(text);
    return ok;
}
