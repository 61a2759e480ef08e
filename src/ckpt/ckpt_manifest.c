// ckpt_manifest: the file that makes a directory of tensors a checkpoint. See ckpt_manifest.h.
//
//   {"xxh3_128": "HASH OF THIS FILE, TAKEN WITH THESE 32 DIGITS AS ZEROS",
//   "format": "pretrain.c checkpoint", "version": 2,
//   "state": {"step": 100, ..., "optim": "adamw"}, "config": "...",
//   "extra": {"loss_scale": 65536.0, "amax": [1.5, 0.25], ...},
//   "files": [{"name": "model_00000.safetensors", "kind": "model", "bytes": ..., "xxh3_128": ...}, ...],
//   "tensors": [{"name": ..., "dtype": ..., "shape": [64, 32], "slices": [
//       {"file": "model_00000.safetensors", "cut": 0, "first": 0, "extent": 16, "range": [0, 300], "xxh3_128": ...},
//       ...]}, ...]}
//
// A tensor is named by its global name, with its global shape. A slice is the tensor of that name in its file:
// elements `range` of the part [first, first + extent) along axis `cut` (see below). Without cut the part is the
// whole tensor, without range all of the part; so what one process alone writes has neither.
//
// The invariant: every byte of a checkpoint is under a hash, and every element of a tensor in exactly one slice. The
// manifest is under its own hash, which stands at a fixed place; the files are under the manifest's. So any flipped
// byte is found, also one in a space or in a hash.
//
// The hashes of single slices show which tensor is damaged when a file's hash is wrong, and allow comparing two
// checkpoints without reading their data. XXH3 detects accidents, not attacks; so the contents of a manifest are still
// checked like untrusted input: file names must be plain names, and every type is checked.
//
// Rejected: a checksum file beside it (two files can come apart), a hash per file inside the safetensors header (it
// would have to be known before the data is written), timestamps and host names (equal state, equal bytes).
#include "ckpt/ckpt_manifest.h"

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
enum { OPENING_BYTES = sizeof OPENING - 1, MAX_MANIFEST = 1 << 30 };

// ---- slices

// Slices. A tensor (R, W), a part along axis 1, and of that part the elements [from, to):
//
//        0     first          W            Of the whole, row-major, a slice is a few runs of neighbours: one where the
//      +------+---------+------+           part is the tensor, or cut along axis 0; else one for each row of the part.
//      |      |    #####|      |
//      |      |#########|      |           What two slices share is found run by run: a run of the one wanted, against
//      |      |###      |      |           those of the other that can meet it. So a rank copies what it needs, and
//      +------+---------+------+           nothing is ever put together whole.
//
// Element j of a part is the element of the tensor that params_whole_index says. Slices of one tensor tile it when
// their parts follow each other along the one axis that cuts them, and the ranges of each part do so too. That is
// stricter than it need be (a mixture of cuts could tile as well), and takes one pass.
//
// Rejected for slices: offset and extent along every axis, as in other formats. A range of a flat buffer, as sharding
// by elements gives it, is not a box; it would take up to three of them. The row and column ranges of dump.h: a piece
// that is both cut by columns and sharded would need one part for its first row, one for its last and one for those
// between, and tiling would have to be checked element by element.
static size_t elems(const size_t dim[PARAM_DIMS])
{
    return dim[0] * dim[1];
}

CkptSlice ckpt_slice_whole(const size_t shape[PARAM_DIMS])
{
    return (CkptSlice){.cut = -1, .dim = {shape[0], shape[1]}, .to = elems(shape)};
}

bool ckpt_slice_is_whole(const CkptSlice *s, const size_t shape[PARAM_DIMS])
{
    return s->from == 0 && s->to == elems(shape) && elems(s->dim) == elems(shape);
}

bool ckpt_slice_fits(const CkptSlice *s, const size_t shape[PARAM_DIMS], int ndim)
{
    if (s->cut < -1 || s->cut >= ndim || (s->cut < 0 && s->first)) return false;
    for (int d = 0; d < PARAM_DIMS; d++)
        if (d == s->cut ? s->first > shape[d] || s->dim[d] > shape[d] - s->first : s->dim[d] != shape[d])
            return false;
    return s->from <= s->to && s->to <= elems(s->dim);
}

bool ckpt_slice_tiles(const CkptSlice *s, int n, const size_t shape[PARAM_DIMS])
{
    if (elems(shape) == 0) return true;
    size_t next = 0, at = 0; // along the axis: where the next part begins; of this part: elements so far
    for (int i = 0; i < n; i++) {
        bool begins = i == 0 || (at == elems(s[i - 1].dim) && s[i].from == 0 && s[i].first == next);
        if (s[i].cut != s[0].cut) return false;
        if (begins) {
            if (s[i].first != next || s[i].from != 0) return false;
            next = s[i].cut < 0 ? 0 : next + s[i].dim[s[i].cut];
            if (s[i].cut < 0 && i > 0) return false;
        } else if (s[i].first != s[i - 1].first || s[i].from != at || memcmp(s[i].dim, s[i - 1].dim, sizeof s[i].dim))
            return false;
        at = s[i].to;
    }
    return n > 0 && at == elems(s[n - 1].dim) && (s[0].cut < 0 || next == shape[s[0].cut]);
}

bool ckpt_slice_meets(const CkptSlice *a, const CkptSlice *b)
{
    if (a->cut != b->cut) return true;
    if (a->first == b->first && !memcmp(a->dim, b->dim, sizeof a->dim)) return a->from < b->to && b->from < a->to;
    return a->cut < 0 || (a->first < b->first + b->dim[b->cut] && b->first < a->first + a->dim[a->cut]);
}

// A run of neighbours in the tensor: [begin, begin + n), and where its first element stands in the slice.
typedef struct {
    size_t begin, n, at;
} Run;

static size_t rows(const CkptSlice *s)
{
    return s->cut == 1 ? s->dim[0] : 1;
}

// The run of one row of a part that is cut along axis 1; else of all of it (row 0).
static Run run_of(const size_t shape[PARAM_DIMS], const CkptSlice *s, size_t row)
{
    if (s->cut < 1) return (Run){s->first * shape[1] + s->from, s->to - s->from, 0};
    size_t begin = row * s->dim[1], end = begin + s->dim[1];
    if (begin < s->from) begin = s->from;
    if (end > s->to) end = s->to;
    if (begin >= end) return (Run){0, 0, 0};
    return (Run){row * shape[1] + s->first + (begin - row * s->dim[1]), end - begin, begin - s->from};
}

static size_t copy_run(Run want, char *dst, Run have, const char *src, size_t bytes)
{
    size_t begin = want.begin > have.begin ? want.begin : have.begin;
    size_t end = want.begin + want.n < have.begin + have.n ? want.begin + want.n : have.begin + have.n;
    if (begin >= end) return 0;
    memcpy(dst + (want.at + begin - want.begin) * bytes, src + (have.at + begin - have.begin) * bytes,
           (end - begin) * bytes);
    return end - begin;
}

size_t ckpt_slice_copy(const size_t shape[PARAM_DIMS], const CkptSlice *want, void *dst, const CkptSlice *have,
                       const void *src, size_t bytes)
{
    size_t copied = 0;
    for (size_t r = 0; r < rows(want); r++) {
        Run run = run_of(shape, want, r);
        if (!run.n) continue;
        size_t low = 0, high = rows(have); // rows of `have` that this run can meet
        if (have->cut == 1) low = run.begin / shape[1], high = (run.begin + run.n - 1) / shape[1] + 1;
        for (size_t q = low; q < high && q < rows(have); q++)
            copied += copy_run(run, dst, run_of(shape, have, q), src, bytes);
    }
    return copied;
}

// ---- the file

char *ckpt_manifest_load(const char *dir, size_t *n_bytes, CkptFailure f)
{
    char path[PATH_MAX], *text = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/manifest.json", dir) >= sizeof path)
        ckpt_fail(f, "%s: the path is too long", dir);
    else if (!(text = disk_read_file(path, n_bytes, MAX_MANIFEST)))
        ckpt_fail(f, "%s: cannot read: %s", path, strerror(errno));
    if (!text && errno == ENOMEM) die("%s: no memory to read it", path); // not damage: an older one is not the answer
    return text;
}

// Checks the manifest's own hash and parses it.
static json_t *parse_text(const char *dir, char *text, size_t n, CkptFailure f)
{
    char hash[ST_HASH], stored[ST_HASH] = "";
    if (n <= OPENING_BYTES + sizeof ZEROS || memcmp(text, OPENING, OPENING_BYTES)) {
        ckpt_fail(f, "%s/manifest.json: not a checkpoint's manifest, or truncated (%zu bytes)", dir, n);
        return NULL;
    }
    memcpy(stored, text + OPENING_BYTES, ST_HASH - 1);
    memcpy(text + OPENING_BYTES, ZEROS, ST_HASH - 1);
    safetensors_hash(hash, text, n);
    if (strcmp(stored, hash)) {
        ckpt_fail(f, "%s/manifest.json: hash is %s, the file says %.32s (damaged or edited)", dir, hash, stored);
        return NULL;
    }
    json_error_t err;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &err);
    if (!root) ckpt_fail(f, "%s/manifest.json: not valid JSON: %s", dir, err.text);
    return root;
}

static bool get_count(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *j = json_object_get(object, key);
    *out = (uint64_t)json_integer_value(j);
    return json_is_integer(j);
}

// A size: not negative.
static bool get_size(const json_t *j, size_t *out)
{
    *out = (size_t)json_integer_value(j);
    return json_is_integer(j) && json_integer_value(j) >= 0;
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
    return ok && s->step >= 0 && s->adam_step >= 0 && s->adam_step <= INT32_MAX; // a later stage has more than its steps
}

static bool read_number(const json_t *j, double *x)
{
    const char *text = json_string_value(j);
    if (json_is_number(j)) *x = json_number_value(j);
    else if (text && (!strcmp(text, "nan") || !strcmp(text, "inf") || !strcmp(text, "-inf"))) *x = strtod(text, NULL);
    else return false;
    return true;
}

bool ckpt_manifest_extra(const CkptManifest *m, const CkptExtra *extra, CkptFailure f)
{
    const json_t *j = json_object_get(json_object_get(m->json, "extra"), extra->name);
    if (!j) return true;
    size_t n = json_is_array(j) ? json_array_size(j) : 1;
    if (n != extra->n)
        return ckpt_fail(f, "%s: %s: the checkpoint holds %zu numbers, this run has %zu (the configurations differ)",
                         m->dir, extra->name, n, extra->n);
    for (size_t i = 0; i < n; i++)
        if (!read_number(json_is_array(j) ? json_array_get(j, i) : j, &extra->value[i]))
            return ckpt_fail(f, "%s/manifest.json: %s: not numbers", m->dir, extra->name);
    return true;
}

// ---- its tables

static bool plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/') && strlen(name) < 200;
}

static bool read_files(CkptManifest *m, const json_t *files, CkptFailure f)
{
    m->n_files = (int)json_array_size(files);
    m->file = calloc((size_t)m->n_files + 1, sizeof *m->file);
    if (!m->file) die("%s: no memory", m->dir);
    for (int i = 0; i < m->n_files; i++) {
        const json_t *entry = json_array_get(files, (size_t)i);
        const char *kind = json_string_value(json_object_get(entry, "kind"));
        CkptFile *file = &m->file[i];
        *file = (CkptFile){.name = json_string_value(json_object_get(entry, "name")),
                           .hash = json_string_value(json_object_get(entry, "xxh3_128"))};
        if (!kind || !file->name) return ckpt_fail(f, "%s/manifest.json: file %d has no name or kind", m->dir, i);
        if (!plain_name(file->name) || !file->hash || !get_count(entry, "bytes", &file->n_bytes))
            return ckpt_fail(f, "%s/manifest.json: a file entry without plain name, bytes and hash", m->dir);
        file->optim = strcmp(kind, "model");
    }
    return true;
}

// Name, type and shape. The number of elements must not overflow.
static bool read_tensor(const CkptManifest *m, CkptTensor *t, const json_t *entry, CkptFailure f)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    t->name = json_string_value(json_object_get(entry, "name"));
    if (!t->name) return ckpt_fail(f, "%s/manifest.json: a tensor entry without name and file", m->dir);
    int d = 0;
    while (d < ST_DTYPES && (!dtype || strcmp(dtype, safetensors_dtype_name((SafeDtype)d)))) d++;
    if (d == ST_DTYPES) return ckpt_fail(f, "%s/manifest.json: tensor %s: no known dtype", m->dir, t->name);
    t->dtype = (SafeDtype)d;
    t->ndim = (int)json_array_size(shape);
    if (!json_is_array(shape) || t->ndim > PARAM_DIMS)
        return ckpt_fail(f, "%s/manifest.json: tensor %s: no shape of at most %d dimensions", m->dir, t->name,
                         PARAM_DIMS);
    t->shape[0] = t->shape[1] = 1;
    for (int i = 0; i < t->ndim; i++)
        if (!get_size(json_array_get(shape, (size_t)i), &t->shape[i]) || t->shape[i] > PTRDIFF_MAX / 8)
            return ckpt_fail(f, "%s/manifest.json: tensor %s: dimension %d is not a size", m->dir, t->name, i);
    size_t n;
    if (__builtin_mul_overflow(t->shape[0], t->shape[1], &n) || n > PTRDIFF_MAX / 8)
        return ckpt_fail(f, "%s/manifest.json: tensor %s: the shape overflows", m->dir, t->name);
    return true;
}

// The part and the range of a slice; what is not said is all.
static bool read_slice(const json_t *j, const CkptTensor *t, CkptSlice *s)
{
    const json_t *cut = json_object_get(j, "cut"), *range = json_object_get(j, "range");
    *s = ckpt_slice_whole(t->shape);
    if (cut) {
        size_t axis;
        if (!get_size(cut, &axis) || axis >= (size_t)t->ndim) return false;
        s->cut = (int)axis;
        if (!get_size(json_object_get(j, "first"), &s->first) ||
            !get_size(json_object_get(j, "extent"), &s->dim[axis]) || s->dim[axis] > t->shape[axis])
            return false;
        s->to = s->dim[0] * s->dim[1];
    }
    if (range && (!get_size(json_array_get(range, 0), &s->from) || !get_size(json_array_get(range, 1), &s->to)))
        return false;
    return ckpt_slice_fits(s, t->shape, t->ndim);
}

// Version 1 had whole tensors only: {"name", "file", "dtype", "shape", "offset", "extent", "xxh3_128"}. It is read as
// well.
//
// Version 1: one entry is tensor and slice, and the slice is the tensor.
static bool is_whole(const json_t *entry, const CkptTensor *t)
{
    const json_t *extent = json_object_get(entry, "extent");
    bool same = json_array_size(extent) == (size_t)t->ndim;
    for (int d = 0; d < t->ndim && same; d++)
        same = (uint64_t)json_integer_value(json_array_get(extent, (size_t)d)) == t->shape[d];
    return same;
}

static int find_file(const CkptManifest *m, const char *name, int near)
{
    for (int i = 0; i < m->n_files; i++) {
        int at = (near + i) % m->n_files; // the file of the slice before, or the one after it
        if (!strcmp(m->file[at].name, name)) return at;
    }
    return -1;
}

static bool add_slice(CkptManifest *m, CkptTensor *t, const json_t *j, bool whole, CkptFailure f)
{
    const char *file = json_string_value(json_object_get(j, "file"));
    CkptPlace *place = &t->place[t->n];
    CkptSlice *slice = &t->slice[t->n];
    place->hash = json_string_value(json_object_get(j, "xxh3_128"));
    if (!file || !place->hash) return ckpt_fail(f, "%s/manifest.json: a tensor entry without name and file", m->dir);
    place->file = find_file(m, file, t->n ? t->place[t->n - 1].file : 0);
    if (place->file < 0)
        return ckpt_fail(f, "%s/manifest.json: tensor %s: file %s is not listed", m->dir, t->name, file);
    *slice = ckpt_slice_whole(t->shape);
    if (whole ? !is_whole(j, t) : !read_slice(j, t, slice))
        return ckpt_fail(f, "%s/manifest.json: tensor %s: no slice of its shape in %s", m->dir, t->name, file);
    bool optim = m->file[place->file].optim;
    if (t->n++ && optim != t->optim)
        return ckpt_fail(f, "%s/manifest.json: tensor %s: both weights and optimizer state", m->dir, t->name);
    t->optim = optim;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const CkptTensor *const *)a)->name, (*(const CkptTensor *const *)b)->name);
}

bool ckpt_manifest_index(CkptManifest *m, CkptFailure f)
{
    for (int i = 0; i < m->n; i++) m->by_name[i] = &m->tensor[i];
    if (m->n) qsort(m->by_name, (size_t)m->n, sizeof *m->by_name, by_name);
    for (int i = 1; i < m->n; i++)
        if (!strcmp(m->by_name[i]->name, m->by_name[i - 1]->name))
            return ckpt_fail(f, "%s/manifest.json: tensor %s stands twice", m->dir, m->by_name[i]->name);
    return true;
}

static bool read_tensors(CkptManifest *m, const json_t *tensors, uint64_t version, CkptFailure f)
{
    size_t n = json_array_size(tensors), n_slices = 0;
    for (size_t i = 0; i < n; i++)
        n_slices += version == 1 ? 1 : json_array_size(json_object_get(json_array_get(tensors, i), "slices"));
    m->tensor = calloc(n + 1, sizeof *m->tensor);
    m->by_name = calloc(n + 1, sizeof *m->by_name);
    m->slices = calloc(n_slices + 1, sizeof *m->slices);
    m->places = calloc(n_slices + 1, sizeof *m->places);
    if (!m->tensor || !m->by_name || !m->slices || !m->places) die("%s: no memory", m->dir);
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(tensors, i), *slices = json_object_get(entry, "slices");
        CkptTensor *t = &m->tensor[m->n++];
        t->slice = m->slices + at, t->place = m->places + at;
        if (!read_tensor(m, t, entry, f)) return false;
        if (version == 1 && !add_slice(m, t, entry, true, f)) return false;
        for (size_t k = 0; version > 1 && k < json_array_size(slices); k++)
            if (!add_slice(m, t, json_array_get(slices, k), false, f)) return false;
        at += (size_t)t->n;
        if (!ckpt_slice_tiles(t->slice, t->n, t->shape))
            return ckpt_fail(f, "%s/manifest.json: tensor %s: its slices do not hold each element once, in order",
                             m->dir, t->name);
        if (!t->optim && ++m->n_model != m->n)
            return ckpt_fail(f, "%s/manifest.json: tensor %s: weights come first", m->dir, t->name);
    }
    return ckpt_manifest_index(m, f);
}

CkptManifest *ckpt_manifest_parse(const char *dir, char *text, size_t n_bytes, CkptVerdict *verdict, CkptFailure f)
{
    *verdict = CKPT_DAMAGED;
    CkptManifest *m = calloc(1, sizeof *m);
    if (m) m->dir = strdup(dir);
    if (!m || !m->dir) die("%s: no memory", dir);
    m->json = parse_text(dir, text, n_bytes, f);
    const char *format = json_string_value(json_object_get(m->json, "format"));
    uint64_t version = 0;
    bool ok = m->json;
    if (ok && (!format || strcmp(format, CKPT_FORMAT) || !get_count(m->json, "version", &version)))
        ok = ckpt_fail(f, "%s/manifest.json: not the manifest of a checkpoint", dir);
    if (ok && (version < 1 || version > CKPT_VERSION)) {
        *verdict = CKPT_REFUSED;
        ok = ckpt_fail(f, "%s: checkpoint of format version %llu; this program reads versions 1 to %d (use a program "
                       "as new as the one that wrote it)", dir, (unsigned long long)version, CKPT_VERSION);
    }
    if (ok && !read_state(m->json, &m->state)) ok = ckpt_fail(f, "%s/manifest.json: state is incomplete", dir);
    ok = ok && read_files(m, json_object_get(m->json, "files"), f) &&
         read_tensors(m, json_object_get(m->json, "tensors"), version, f);
    if (ok) *verdict = CKPT_SOUND;
    if (ok) return m;
    ckpt_manifest_free(m);
    return NULL;
}

void ckpt_manifest_free(CkptManifest *m)
{
    if (!m) return;
    for (int i = 0; i < m->n_files && m->file; i++) safetensors_close(m->file[i].open);
    free(m->file), free(m->tensor), free(m->by_name), free(m->slices), free(m->places);
    json_decref(m->json);
    free(m->dir);
    free(m);
}

const CkptTensor *ckpt_manifest_find(const CkptManifest *m, const char *name)
{
    CkptTensor wanted = {.name = name};
    const CkptTensor *key = &wanted, **found = NULL;
    if (m->n) found = bsearch(&key, m->by_name, (size_t)m->n, sizeof *m->by_name, by_name);
    return found ? *found : NULL;
}

// ---- its files

static bool same_shape(const SafeTensor *found, const CkptTensor *t)
{
    bool same = found->ndim == t->ndim;
    for (int d = 0; d < t->ndim && same; d++) same = found->shape[d] == t->shape[d];
    return same;
}

// Each slice of the file: there, with its type and number of elements; hashes: and with the right data.
static bool check_slices(const CkptManifest *m, int file, bool hashes, CkptFailure f)
{
    const SafeTensors *st = m->file[file].open;
    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < m->tensor[i].n; k++) {
            const CkptTensor *t = &m->tensor[i];
            if (t->place[k].file != file) continue;
            const SafeTensor *found = safetensors_find(st, t->name);
            if (!found) return ckpt_fail(f, "%s: tensor %s is missing", st->path, t->name);
            bool whole = ckpt_slice_is_whole(&t->slice[k], t->shape);
            if (found->dtype != t->dtype || found->n_elems != t->slice[k].to - t->slice[k].from ||
                (whole && !same_shape(found, t)))
                return ckpt_fail(f, "%s: tensor %s: type or shape is not the manifest's", st->path, t->name);
            char hash[ST_HASH];
            if (hashes) safetensors_hash(hash, found->data, found->n_bytes);
            if (hashes && strcmp(hash, t->place[k].hash))
                return ckpt_fail(f, "%s: tensor %s: hash is %s, the manifest says %.32s (damaged)", st->path, t->name,
                                 hash, t->place[k].hash);
        }
    return true;
}

bool ckpt_manifest_open(CkptManifest *m, int i, bool hash, CkptFailure f)
{
    CkptFile *file = &m->file[i];
    char path[PATH_MAX], found[ST_HASH];
    if (file->open && !hash) return true;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", m->dir, file->name) >= sizeof path)
        return ckpt_fail(f, "%s: the path is too long", m->dir);
    if (!file->open) file->open = safetensors_open(path, f.text, f.n);
    if (!file->open) return false;
    if (file->open->n_bytes != file->n_bytes)
        return ckpt_fail(f, "%s: %zu bytes, the manifest says %llu", path, file->open->n_bytes,
                         (unsigned long long)file->n_bytes);
    if (hash) safetensors_hash(found, file->open->map, file->open->n_bytes);
    if (!hash || !strcmp(found, file->hash)) return check_slices(m, i, false, f);
    return check_slices(m, i, true, f) && ckpt_fail(f, "%s: the header's hash is not the manifest's (damaged)", path);
}

// ---- writing it

// A 64-bit count: JSON integers are signed here, so those above 2^63 - 1 are stored as their two's complement.
static json_t *count_json(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *state_json(const CkptState *s)
{
    json_t *best = isfinite(s->best_val) ? json_real(s->best_val) : json_null();
    json_t *optim = s->optim ? json_string(s->optim) : json_null();
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o}", "step", count_json((uint64_t)s->step), "adam_step",
                     count_json((uint64_t)s->adam_step), "sample", count_json(s->sample), "tokens",
                     count_json(s->tokens), "seed", count_json(s->seed), "seconds", s->seconds, "best_val", best,
                     "optim", optim);
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
    for (int i = 0; i < n; i++) json_array_append_new(array, count_json(size[i]));
    return array;
}

// What is the default is left out: the part is the tensor, the range is the part.
static json_t *slice_json(const CkptTensor *t, int i, const CkptFile *file)
{
    const CkptSlice *s = &t->slice[i];
    json_t *slice = json_pack("{s:s}", "file", file[t->place[i].file].name);
    if (s->cut >= 0) {
        json_object_set_new(slice, "cut", json_integer(s->cut));
        json_object_set_new(slice, "first", count_json(s->first));
        json_object_set_new(slice, "extent", count_json(s->dim[s->cut]));
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
                                  "bytes", count_json(f->n_bytes), "xxh3_128", f->hash);
        ok = put(out, i ? ",\n" : "\"files\": [\n", entry, "") && ok;
    }
    for (int i = 0; i < m->n; i++)
        ok = put(out, i ? ",\n" : "],\n\"tensors\": [\n", tensor_json(&m->tensor[i], m->file), "") && ok;
    fputs("]}\n", out);
    ok = !ferror(out) && ok;
    if (fclose(out) == 0 && text && ok) return text;
    free(text);
    return NULL;
}

// Writing: equal state, equal bytes. No date, no host name, no path; keys in a fixed order, one line a file and a
// tensor, numbers exact (jansson prints doubles with 17 digits, integers whole). The file carries a hash of itself: it
// is written with zeros in the hash's place, hashed, and the 32 digits put over the zeros; the reader does the same in
// reverse.
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
