// ckpt_manifest: the page that makes a directory of tensors a checkpoint. See ckpt_manifest.h.
//
//   {"xxh3_128": "HASH OF THIS FILE, TAKEN WITH THESE 32 DIGITS AS ZEROS",
//   "format": "pretrain.c checkpoint", "version": 1,
//   "state": {"step": 100, ..., "optim": "adamw"}, "config": "...",
//   "extra": {"loss_scale": 65536.0, "amax": [1.5, 0.25], ...},
//   "files": [{"name": "model.safetensors", "kind": "model", "bytes": ..., "xxh3_128": ...}, ...],
//   "tensors": [{"name": ..., "file": ..., "dtype": ..., "shape": [...], "offset": [...], "extent": [...],
//                "xxh3_128": ...}, ...]}
//
// The invariant: every byte of a checkpoint is under a hash. The manifest is under its own, which stands
// at a fixed place; the files are under the manifest's. So any flipped byte is found, also one in a space
// or in a hash.
//
// A tensor is named by its global name, with its global shape and the slice [offset, offset + extent)
// that the file holds. Here every slice is the whole tensor; what is not is refused, not guessed at.
//
// The hashes of single tensors are there to say which tensor was hit, once a file's hash is wrong, and to
// compare two checkpoints without reading their data. XXH3 finds accidents, not forgers; so what a
// manifest says is still checked as if a stranger had written it: file names are plain names, and every
// type is looked at.
//
// Rejected: a checksum file beside it (two files can come apart), a hash per file inside the safetensors
// header (it would have to be known before the data is written), timestamps and host names (equal state,
// equal bytes).
#include "ckpt_manifest.h"

#include "check.h"
#include "disk.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "pretrain.c checkpoint"
#define OPENING "{\"xxh3_128\": \""
#define ZEROS "00000000000000000000000000000000"
enum { OPENING_BYTES = sizeof OPENING - 1, MAX_MANIFEST = 1 << 30 };

// ---- writing

// A 64-bit count: JSON integers are signed here, so those above 2^63 - 1 are stored as their two's
// complement.
static json_t *count(uint64_t value) { return json_integer((json_int_t)value); }

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

static json_t *tensor_json(const SafeTensor *t, const char *file)
{
    json_t *shape = json_array(), *offset = json_array(), *extent = json_array();
    size_t n_bytes = safetensors_dtype_bytes(t->dtype);
    for (int d = 0; d < t->ndim; d++) {
        json_array_append_new(shape, count(t->shape[d]));
        json_array_append_new(offset, count(0));
        json_array_append_new(extent, count(t->shape[d]));
        n_bytes *= t->shape[d];
    }
    char hash[ST_HASH];
    safetensors_hash(hash, t->data, n_bytes);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s}", "name", t->name, "file", file, "dtype",
                     safetensors_dtype_name(t->dtype), "shape", shape, "offset", offset, "extent", extent,
                     "xxh3_128", hash);
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

// The manifest as text, with zeros for its own hash. One line a file and a tensor.
static char *compose(const CkptState *state, const CkptFile *file, int n_files, size_t *n_text)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n_text);
    if (!out) return NULL;
    fprintf(out, OPENING ZEROS "\",\n\"format\": \"" FORMAT "\", \"version\": %d,\n", CKPT_VERSION);
    bool ok = put(out, "\"state\": ", state_json(state), ",\n");
    ok = put(out, "\"config\": ", state->config ? json_string(state->config) : json_null(), ",\n") && ok;
    if (state->n_extra) ok = put(out, "\"extra\": ", extra_json(state), ",\n") && ok;
    for (int i = 0; i < n_files; i++) {
        const CkptFile *f = &file[i];
        json_t *entry = json_pack("{s:s, s:s, s:o, s:s}", "name", f->name, "kind", f->kind, "bytes",
                                  count(f->n_bytes), "xxh3_128", f->hash);
        ok = put(out, i ? ",\n" : "\"files\": [\n", entry, "") && ok;
    }
    const char *before = "],\n\"tensors\": [\n";
    for (int i = 0; i < n_files; i++)
        for (int j = 0; j < file[i].n; j++, before = ",\n")
            ok = put(out, before, tensor_json(&file[i].tensor[j], file[i].name), "") && ok;
    fputs("]}\n", out);
    ok = !ferror(out) && ok;
    if (fclose(out) == 0 && ok) return text;
    free(text);
    return NULL;
}

bool ckpt_manifest_write(const char *dir, const CkptState *state, const CkptFile *file, int n_files,
                         char *error, size_t n_error)
{
    CkptFailure f = {error, n_error};
    char path[PATH_MAX], hash[ST_HASH];
    if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) >= sizeof path)
        return ckpt_fail(f, "%s: the path is too long", dir);
    size_t n = 0;
    char *text = compose(state, file, n_files, &n);
    if (!text)
        return ckpt_fail(f, "%s: the state cannot be written as JSON (not UTF-8, or no memory)", path);
    safetensors_hash(hash, text, n);
    memcpy(text + OPENING_BYTES, hash, ST_HASH - 1);
    bool ok = disk_write_file(path, text, n);
    if (!ok) ckpt_fail(f, "%s: cannot write: %s", path, strerror(errno));
    free(text);
    return ok;
}

// ---- reading

// Reads the manifest and checks its own hash.
static json_t *load(const char *path, CkptFailure f)
{
    size_t n = 0;
    char *text = disk_read_file(path, &n, MAX_MANIFEST), hash[ST_HASH] = "", stored[ST_HASH] = "";
    if (!text) {
        ckpt_fail(f, "%s: cannot read: %s", path, strerror(errno));
        return NULL;
    }
    bool ok = n > OPENING_BYTES + sizeof ZEROS && !memcmp(text, OPENING, OPENING_BYTES);
    if (!ok) ckpt_fail(f, "%s: not a checkpoint's manifest, or truncated (%zu bytes)", path, n);
    else {
        memcpy(stored, text + OPENING_BYTES, ST_HASH - 1);
        memcpy(text + OPENING_BYTES, ZEROS, ST_HASH - 1);
        safetensors_hash(hash, text, n);
        ok = !strcmp(stored, hash);
        if (!ok)
            ckpt_fail(f, "%s: hash is %s, the file says %.32s (damaged or edited)", path, hash, stored);
    }
    json_error_t err;
    json_t *root = ok ? json_loadb(text, n, JSON_REJECT_DUPLICATES, &err) : NULL;
    if (ok && !root) ckpt_fail(f, "%s: not valid JSON: %s", path, err.text);
    free(text);
    return root;
}

static bool get_count(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *j = json_object_get(object, key);
    *out = (uint64_t)json_integer_value(j);
    return json_is_integer(j);
}

static bool read_state(const json_t *root, CkptState *s)
{
    const json_t *j = json_object_get(root, "state"), *best = json_object_get(j, "best_val");
    const json_t *optim = json_object_get(j, "optim");
    uint64_t step, adam_step;
    bool ok = get_count(j, "step", &step) && get_count(j, "adam_step", &adam_step) &&
              get_count(j, "sample", &s->sample) && get_count(j, "tokens", &s->tokens) &&
              get_count(j, "seed", &s->seed) && json_is_number(json_object_get(j, "seconds"));
    s->step = ok ? (long)step : 0;
    s->adam_step = ok ? (long)adam_step : 0;
    s->seconds = json_number_value(json_object_get(j, "seconds"));
    s->best_val = json_is_number(best) ? json_number_value(best) : INFINITY;
    s->config = json_string_value(json_object_get(root, "config"));
    s->optim = optim ? json_string_value(optim) : "adamw"; // checkpoints without the key are AdamW's
    return ok && s->step >= 0;
}

static bool read_number(const json_t *j, double *x)
{
    const char *text = json_string_value(j);
    if (json_is_number(j)) *x = json_number_value(j);
    else if (text && (!strcmp(text, "nan") || !strcmp(text, "inf") || !strcmp(text, "-inf"))) *x = strtod(text, NULL);
    else return false;
    return true;
}

bool ckpt_manifest_extra(const Ckpt *c, const CkptExtra *extra, CkptFailure f)
{
    const json_t *j = json_object_get(json_object_get(c->manifest, "extra"), extra->name);
    if (!j) return true;
    size_t n = json_is_array(j) ? json_array_size(j) : 1;
    if (n != extra->n)
        return ckpt_fail(f, "%s: %s: the checkpoint holds %zu numbers, this run has %zu (the configurations differ)",
                         c->dir, extra->name, n, extra->n);
    for (size_t i = 0; i < n; i++)
        if (!read_number(json_is_array(j) ? json_array_get(j, i) : j, &extra->value[i]))
            return ckpt_fail(f, "%s/manifest.json: %s: not numbers", c->dir, extra->name);
    return true;
}

static bool plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 200;
}

// Says which tensor of a file with the wrong hash was hit, as far as that can be known.
static bool report_damage(const json_t *root, const SafeTensors *st, const char *file, CkptFailure f)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "tensors"), i, entry) {
        const char *name = json_string_value(json_object_get(entry, "name")), *where =
            json_string_value(json_object_get(entry, "file")), *stored =
            json_string_value(json_object_get(entry, "xxh3_128"));
        if (!name || !where || !stored || strcmp(where, file)) continue;
        const SafeTensor *t = safetensors_find(st, name);
        if (!t) return ckpt_fail(f, "%s: tensor %s is missing", st->path, name);
        char hash[ST_HASH];
        safetensors_hash(hash, t->data, t->n_bytes);
        if (strcmp(hash, stored))
            return ckpt_fail(f, "%s: tensor %s: hash is %s, the manifest says %.32s (damaged)",
                             st->path, name, hash, stored);
    }
    return ckpt_fail(f, "%s: the header's hash is not the manifest's (damaged)", st->path);
}

// Opens one file of the manifest: size, structure, hash.
static SafeTensors *open_file(const json_t *root, const json_t *entry, const char *dir, CkptFailure f)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *stored = json_string_value(json_object_get(entry, "xxh3_128"));
    uint64_t n_bytes;
    char path[PATH_MAX], hash[ST_HASH];
    if (!plain_name(name) || !stored || !get_count(entry, "bytes", &n_bytes)) {
        ckpt_fail(f, "%s/manifest.json: a file entry without plain name, bytes and hash", dir);
        return NULL;
    }
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path) {
        ckpt_fail(f, "%s: the path is too long", dir);
        return NULL;
    }
    SafeTensors *st = safetensors_open(path, f.text, f.n);
    if (!st) return NULL;
    safetensors_hash(hash, st->map, st->n_bytes);
    bool ok = st->n_bytes == n_bytes || ckpt_fail(f, "%s: %zu bytes, the manifest says %llu", path,
                                                  st->n_bytes, (unsigned long long)n_bytes);
    if (ok && strcmp(hash, stored)) ok = report_damage(root, st, name, f);
    if (ok) return st;
    safetensors_close(st);
    return NULL;
}

static bool same_shape(const json_t *array, const SafeTensor *t)
{
    if (!json_is_array(array) || json_array_size(array) != (size_t)t->ndim) return false;
    for (int d = 0; d < t->ndim; d++)
        if ((uint64_t)json_integer_value(json_array_get(array, (size_t)d)) != t->shape[d]) return false;
    return true;
}

// Finds one tensor of the manifest in its file. Skipped where the file was not wanted, so not opened.
static bool place_tensor(Ckpt *c, const json_t *files, const json_t *entry, CkptFailure f)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *file = json_string_value(json_object_get(entry, "file"));
    if (!name || !file)
        return ckpt_fail(f, "%s/manifest.json: a tensor entry without name and file", c->dir);
    int i = 0, n_files = (int)json_array_size(files);
    const json_t *owner = NULL;
    for (; i < n_files; i++) {
        owner = json_array_get(files, (size_t)i);
        if (!strcmp(json_string_value(json_object_get(owner, "name")), file)) break;
    }
    if (i == n_files)
        return ckpt_fail(f, "%s/manifest.json: tensor %s: file %s is not listed", c->dir, name, file);
    if (!c->file[i]) return true;
    const SafeTensor *t = safetensors_find(c->file[i], name);
    if (!t) return ckpt_fail(f, "%s: tensor %s is missing", c->file[i]->path, name);
    if (!same_shape(json_object_get(entry, "extent"), t))
        return ckpt_fail(f, "%s: tensor %s: shape is not the manifest's extent", c->file[i]->path, name);
    if (!same_shape(json_object_get(entry, "shape"), t))
        return ckpt_fail(f, "%s: tensor %s: a slice of a tensor; this version reads whole tensors only",
                    c->file[i]->path, name);
    c->tensor[c->n++] = t;
    if (strcmp(json_string_value(json_object_get(owner, "kind")), "model")) return true;
    if (++c->n_model == c->n) return true;
    return ckpt_fail(f, "%s/manifest.json: tensor %s: weights come first", c->dir, name);
}

static bool read_all(Ckpt *c, bool optim, CkptVerdict *verdict, CkptFailure f)
{
    const json_t *root = c->manifest, *files = json_object_get(root, "files"), *entry;
    const json_t *tensors = json_object_get(root, "tensors");
    const char *format = json_string_value(json_object_get(root, "format"));
    uint64_t version;
    if (!format || strcmp(format, FORMAT) || !get_count(root, "version", &version))
        return ckpt_fail(f, "%s/manifest.json: not the manifest of a checkpoint", c->dir);
    if (version != CKPT_VERSION) {
        *verdict = CKPT_REFUSED;
        return ckpt_fail(
            f,
            "%s: checkpoint of format version %llu; this program reads version %d (use a program as new "
            "as the one that wrote it)",
            c->dir, (unsigned long long)version, CKPT_VERSION);
    }
    if (!read_state(root, &c->state))
        return ckpt_fail(f, "%s/manifest.json: state is incomplete", c->dir);
    c->n_files = (int)json_array_size(files);
    c->file = calloc((size_t)c->n_files + 1, sizeof *c->file);
    c->tensor = calloc(json_array_size(tensors) + 1, sizeof *c->tensor);
    if (!c->file || !c->tensor) return ckpt_fail(f, "%s: no memory", c->dir);
    for (int i = 0; i < c->n_files; i++) {
        entry = json_array_get(files, (size_t)i);
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        if (!kind || !json_is_string(json_object_get(entry, "name")))
            return ckpt_fail(f, "%s/manifest.json: file %d has no name or kind", c->dir, i);
        if (!optim && strcmp(kind, "model")) continue;
        if (!(c->file[i] = open_file(root, entry, c->dir, f))) return false;
    }
    for (size_t i = 0; i < json_array_size(tensors); i++)
        if (!place_tensor(c, files, json_array_get(tensors, i), f)) return false;
    return true;
}

Ckpt *ckpt_manifest_read(const char *dir, bool optim, CkptVerdict *verdict, char *error, size_t n_error)
{
    CkptFailure f = {error, n_error};
    char path[PATH_MAX];
    *verdict = CKPT_DAMAGED;
    Ckpt *c = calloc(1, sizeof *c);
    if (c) c->dir = strdup(dir);
    if (!c || !c->dir || (size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) >= sizeof path)
        ckpt_fail(f, "%s: the path is too long, or no memory", dir);
    else if ((c->manifest = load(path, f)) && read_all(c, optim, verdict, f)) {
        *verdict = CKPT_SOUND;
        return c;
    }
    ckpt_close(c);
    return NULL;
}

void ckpt_close(Ckpt *c)
{
    if (!c) return;
    for (int i = 0; i < c->n_files && c->file; i++) safetensors_close(c->file[i]);
    free(c->file);
    free(c->tensor);
    json_decref(c->manifest);
    free(c->dir);
    free(c);
}
