// safetensors: named tensors in a file. See safetensors.h.
//
//   byte 0        8                          8 + N                                    end of file
//        | N (u64) | JSON: {"NAME": {"dtype", "shape", "data_offsets": [begin, end]}} | data ... |
//
// The invariant: a SafeTensors exists only for a file of which every byte is accounted for. Sorted by offset, the
// tensors start at 0, each begins where the one before ended, the last ends at the end of the file, and each is exactly
// product(shape) * sizeof(dtype) bytes. So no pointer handed out can leave the mapping.
//
// What the reference implementation refuses is refused here too, and also: a name that stands twice in the header
// (jansson's JSON_REJECT_DUPLICATES; the reference keeps one of the two), a NUL within a string, an integer above
// 2^63 - 1. Dtypes of less than a byte and 8-bit floats are not supported.
//
// Memory: the file is mapped, so opening a 100 GB file costs memory for its header only; the header's length is checked
// against the file's before it is parsed. The price of mapping: when another program shortens the file while it is
// open, reading it raises SIGBUS. Our own programs never do that: they write a temporary file and rename it. Rejected:
// reading into a buffer, which doubles the memory of loading a checkpoint.
//
// "order" in the metadata exists for the program diff: sorting by name puts layers.10 before layers.2, and the first
// tensor that differs is informative only in the order in which the tensors were computed.
#include "tools/safetensors.h"

#include "base/check.h"
#include "base/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_HEADER ((uint64_t)100000000) // the reference implementation's limit

static const struct {
    const char *name;
    size_t n_bytes;
} dtypes[ST_DTYPES] = {
    [ST_BOOL] = {"BOOL", 1}, [ST_U8] = {"U8", 1},   [ST_I8] = {"I8", 1},     [ST_I16] = {"I16", 2},
    [ST_U16] = {"U16", 2},   [ST_F16] = {"F16", 2}, [ST_BF16] = {"BF16", 2}, [ST_I32] = {"I32", 4},
    [ST_U32] = {"U32", 4},   [ST_F32] = {"F32", 4}, [ST_F64] = {"F64", 8},   [ST_I64] = {"I64", 8},
    [ST_U64] = {"U64", 8},
};

const char *safetensors_dtype_name(SafeDtype dtype) { return dtypes[dtype].name; }
size_t safetensors_dtype_bytes(SafeDtype dtype) { return dtypes[dtype].n_bytes; }

// Where the message of an error is written.
typedef struct {
    const char *path;
    char *text;
    size_t n;
} Failure;

// Writes "PATH: MESSAGE" and returns false; dies when the caller gave no room for it.
__attribute__((format(printf, 2, 3))) static bool fail(const Failure *f, const char *fmt, ...)
{
    char message[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    if (!f->text) die("%s: %s", f->path, message);
    snprintf(f->text, f->n, "%s: %s", f->path, message);
    return false;
}

static void hash_hex(char hash[ST_HASH], XXH128_hash_t h)
{
    snprintf(hash, ST_HASH, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void safetensors_hash(char hash[ST_HASH], const void *data, size_t n_bytes)
{
    hash_hex(hash, XXH3_128bits(data, n_bytes));
}

// ---- reading

// A non-negative JSON integer.
static bool get_size(const json_t *j, size_t *out)
{
    if (!json_is_integer(j) || json_integer_value(j) < 0) return false;
    *out = (size_t)json_integer_value(j);
    return true;
}

// dtype, shape and offsets of one entry of the header. `shape` has room for its dimensions; begin and end
// are relative to the data.
static bool parse_tensor(const Failure *f, SafeTensor *t, size_t *shape, const json_t *entry,
                         size_t *begin, size_t *end)
{
    if (!json_is_object(entry)) return fail(f, "tensor %s: not a JSON object", t->name);
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) return fail(f, "tensor %s: no dtype", t->name);
    int d = 0;
    while (d < ST_DTYPES && strcmp(dtype, dtypes[d].name)) d++;
    if (d == ST_DTYPES) return fail(f, "tensor %s: unknown dtype %.20s", t->name, dtype);
    t->dtype = (SafeDtype)d;

    const json_t *dims = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(dims)) return fail(f, "tensor %s: no shape", t->name);
    t->ndim = (int)json_array_size(dims);
    t->shape = shape;
    t->n_elems = 1;
    for (int i = 0; i < t->ndim; i++) {
        if (!get_size(json_array_get(dims, (size_t)i), &shape[i]))
            return fail(f, "tensor %s: dimension %d is not a size", t->name, i);
        if (__builtin_mul_overflow(t->n_elems, shape[i], &t->n_elems))
            return fail(f, "tensor %s: the shape overflows 64 bits", t->name);
    }
    if (__builtin_mul_overflow(t->n_elems, dtypes[d].n_bytes, &t->n_bytes))
        return fail(f, "tensor %s: the size overflows 64 bits", t->name);

    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !get_size(json_array_get(offsets, 0), begin) || !get_size(json_array_get(offsets, 1), end))
        return fail(f, "tensor %s: data_offsets is not [begin, end]", t->name);
    if (*end < *begin || *end - *begin != t->n_bytes)
        return fail(f, "tensor %s: data_offsets [%zu, %zu] do not hold the %zu bytes of its shape",
                    t->name, *begin, *end, t->n_bytes);
    return true;
}

static bool parse_metadata(const Failure *f, SafeTensors *st, json_t *meta)
{
    if (json_is_null(meta)) return true;
    if (!json_is_object(meta)) return fail(f, "__metadata__ is not a JSON object");
    st->meta = calloc(json_object_size(meta) + 1, sizeof *st->meta);
    if (!st->meta) die("%s: no memory for the header", f->path);
    const char *key;
    json_t *value;
    json_object_foreach(meta, key, value) {
        if (!json_is_string(value)) return fail(f, "__metadata__ key %s: not a string", key);
        st->meta[st->n_meta++] = (SafeMeta){key, json_string_value(value)};
    }
    return true;
}

typedef struct {
    SafeTensor tensor;
    size_t begin, end;
} Placed;

static int by_offset(const void *a, const void *b)
{
    const Placed *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->tensor.name, y->tensor.name);
}

// Sorts by offset and checks that the tensors cover the data without hole, overlap or rest.
static bool place_tensors(const Failure *f, SafeTensors *st, Placed *placed, size_t data_start)
{
    size_t n_data = st->n_bytes - data_start, at = 0;
    if (st->n) qsort(placed, (size_t)st->n, sizeof *placed, by_offset);
    for (int i = 0; i < st->n; i++) {
        const Placed *p = &placed[i];
        if (p->begin != at)
            return fail(f, "tensor %s: begins at byte %zu of the data, but the one before ends at %zu",
                        p->tensor.name, p->begin, at);
        if (p->end > n_data)
            return fail(f, "tensor %s: ends at byte %zu of the data, which has only %zu (truncated file?)",
                        p->tensor.name, p->end, n_data);
        at = p->end;
        st->tensor[i] = p->tensor;
        st->tensor[i].data = (const char *)st->map + data_start + p->begin;
    }
    if (at != n_data) return fail(f, "%zu bytes behind the last tensor", n_data - at);
    return true;
}

static bool parse_header(const Failure *f, SafeTensors *st, json_t *header, size_t data_start)
{
    size_t n_entries = json_object_size(header), n_dims = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry) n_dims += json_array_size(json_object_get(entry, "shape"));
    st->tensor = calloc(n_entries + 1, sizeof *st->tensor);
    st->shapes = calloc(n_dims + 1, sizeof *st->shapes);
    Placed *placed = calloc(n_entries + 1, sizeof *placed);
    if (!st->tensor || !st->shapes || !placed) die("%s: no memory for the header", f->path);
    bool ok = true;
    size_t *shape = st->shapes;
    json_object_foreach(header, name, entry) {
        if (!ok) break;
        if (!strcmp(name, "__metadata__")) {
            ok = parse_metadata(f, st, entry);
            continue;
        }
        Placed *p = &placed[st->n++];
        p->tensor.name = name;
        ok = parse_tensor(f, &p->tensor, shape, entry, &p->begin, &p->end);
        if (ok) shape += p->tensor.ndim;
    }
    ok = ok && place_tensors(f, st, placed, data_start);
    free(placed);
    return ok;
}

const char *safetensors_other(const char *text)
{
    static const char *const other[][2] = {
        {"version https://git-lfs", "a pointer of Git LFS, not the file itself (git lfs pull)"},
        {"<", "a page of a web site, not the file itself (fetch it again, with its token where it asks for one)"},
        {"PK\3\4", "a zip, as torch.save writes (in Python, save_pretrained writes safetensors)"},
        {"\xEF\xBB\xBF", "begins with a byte order mark, which JSON has not (tail -c +4 FILE)"},
        {"\xFF\xFE", "UTF-16, where UTF-8 is read (convert it: iconv -f UTF-16 -t UTF-8)"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!strncmp(text, other[i][0], strlen(other[i][0]))) return other[i][1];
    return NULL;
}

static bool parse_file(const Failure *f, SafeTensors *st)
{
    char begin[24] = "";
    if (st->map) memcpy(begin, st->map, st->n_bytes < 23 ? st->n_bytes : 23);
    if (safetensors_other(begin)) return fail(f, "%s", safetensors_other(begin));
    if (st->n_bytes < 8)
        return fail(f, "not a safetensors file: %zu bytes, the header length alone takes 8", st->n_bytes);
    const unsigned char *bytes = st->map;
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
    if (n > MAX_HEADER)
        return fail(f, "not a safetensors file: header of %llu bytes (at most 100000000)", (unsigned long long)n);
    if (n > st->n_bytes - 8)
        return fail(f, "the header needs %llu bytes, the file has %zu behind its length (truncated file?)",
                    (unsigned long long)n, st->n_bytes - 8);
    json_error_t err;
    st->header = json_loadb((const char *)bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES, &err);
    if (!st->header) return fail(f, "header is not valid JSON: %s (byte %d)", err.text, err.position);
    if (!json_is_object((json_t *)st->header)) return fail(f, "header is not a JSON object");
    return parse_header(f, st, st->header, 8 + (size_t)n);
}

static bool map_file(const Failure *f, SafeTensors *st)
{
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0) return fail(f, "cannot open: %s", strerror(errno));
    if (fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return fail(f, "not a regular file");
    }
    st->n_bytes = (size_t)info.st_size;
    void *map = st->n_bytes ? mmap(NULL, st->n_bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int saved = errno;
    close(fd);
    if (map == MAP_FAILED && saved == ENOMEM) die("%s: no memory to map %zu bytes", f->path, st->n_bytes);
    if (map == MAP_FAILED) return fail(f, "cannot map %zu bytes: %s", st->n_bytes, strerror(saved));
    st->map = map;
    return true;
}

SafeTensors *safetensors_open(const char *path, char *error, size_t n_error)
{
    Failure f = {path, error, n_error};
    SafeTensors *st = calloc(1, sizeof *st);
    if (st) st->path = strdup(path);
    if (!st || !st->path) die("%s: no memory", path); // no damage: the caller must not try an older file
    if (map_file(&f, st) && parse_file(&f, st)) return st;
    safetensors_close(st);
    return NULL;
}

void safetensors_close(SafeTensors *st)
{
    if (!st) return;
    if (st->map) munmap((void *)(uintptr_t)st->map, st->n_bytes);
    json_decref(st->header);
    free(st->meta);
    free(st->tensor);
    free(st->shapes);
    free(st->path);
    free(st);
}

const SafeTensor *safetensors_find(const SafeTensors *st, const char *name)
{
    for (int i = 0; i < st->n; i++)
        if (!strcmp(st->tensor[i].name, name)) return &st->tensor[i];
    return NULL;
}

const char *safetensors_meta(const SafeTensors *st, const char *key)
{
    for (int i = 0; i < st->n_meta; i++)
        if (!strcmp(st->meta[i].key, key)) return st->meta[i].value;
    return NULL;
}

void safetensors_order(const SafeTensors *st, int *order)
{
    char *text = strdup(safetensors_meta(st, "order") ? safetensors_meta(st, "order") : ""), *rest = text;
    bool *used = calloc((size_t)st->n + 1, sizeof *used);
    if (!text || !used) die("%s: no memory", st->path);
    int n = 0;
    for (char *name; (name = strsep(&rest, "\n"));) {
        const SafeTensor *t = safetensors_find(st, name);
        if (!t || used[t - st->tensor]) continue;
        used[t - st->tensor] = true;
        order[n++] = (int)(t - st->tensor);
    }
    for (int i = 0; i < st->n; i++)
        if (!used[i]) order[n++] = i;
    free(used);
    free(text);
}

// ---- writing

// Descending by dtype, so by alignment; then by name.
static int by_dtype_and_name(const void *a, const void *b)
{
    const SafeTensor *x = *(const SafeTensor *const *)a, *y = *(const SafeTensor *const *)b;
    if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

static size_t tensor_bytes(const SafeTensor *t)
{
    size_t n = dtypes[t->dtype].n_bytes;
    for (int i = 0; i < t->ndim; i++) check(!__builtin_mul_overflow(n, t->shape[i], &n));
    return n;
}

// {"format": "pt"}, "order" where it says something, and the caller's pairs. NULL: a key twice, or not UTF-8.
static json_t *build_metadata(const SafeTensor *tensor, const SafeTensor *const *sorted, int n,
                              const SafeMeta *meta, int n_meta)
{
    json_t *object = json_object();
    bool ok = json_object_set_new(object, "format", json_string("pt")) == 0, moved = false;
    size_t n_order = 1;
    for (int i = 0; i < n; i++) {
        moved = moved || sorted[i] != &tensor[i];
        n_order += strlen(tensor[i].name) + 1;
    }
    if (moved) {
        char *order = calloc(1, n_order), *at = order;
        if (!order) die("no memory for a safetensors header");
        for (int i = 0; i < n; i++) at += sprintf(at, "%s%s", i ? "\n" : "", tensor[i].name);
        ok = ok && json_object_set_new(object, "order", json_string(order)) == 0;
        free(order);
    }
    for (int i = 0; i < n_meta; i++)
        ok = ok && !json_object_get(object, meta[i].key) &&
             json_object_set_new(object, meta[i].key, json_string(meta[i].value)) == 0;
    if (ok) return object;
    json_decref(object);
    return NULL;
}

// The header as text, padded with spaces to a multiple of 8. NULL: with the message written.
static char *build_header(const Failure *f, const SafeTensor *tensor, const SafeTensor *const *sorted,
                          int n, const SafeMeta *meta, int n_meta, size_t *n_header)
{
    json_t *root = json_object(), *info = build_metadata(tensor, sorted, n, meta, n_meta);
    bool ok = json_object_set_new(root, "__metadata__", info) == 0;
    if (!ok) fail(f, "metadata: a key stands twice, or is not UTF-8");
    size_t at = 0;
    for (int i = 0; i < n && ok; i++) {
        const SafeTensor *t = sorted[i];
        json_t *shape = json_array();
        for (int d = 0; d < t->ndim; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        size_t end = at + tensor_bytes(t);
        ok = !json_object_get(root, t->name);
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[t->dtype].name, "shape", shape,
                                  "data_offsets", (json_int_t)at, (json_int_t)end);
        ok = json_object_set_new(root, t->name, entry) == 0 && ok;
        if (!ok) fail(f, "tensor %s: the name stands twice, is reserved, or is not UTF-8", t->name);
        at = end;
    }
    char *text = ok ? json_dumps(root, JSON_COMPACT) : NULL, *padded = NULL;
    json_decref(root);
    if (ok && !text) fail(f, "no memory for the header");
    if (text) {
        size_t length = strlen(text);
        *n_header = (length + 7) / 8 * 8;
        padded = malloc(*n_header + 8);
        if (!padded) die("%s: no memory for the header", f->path);
        for (int i = 0; i < 8; i++) padded[i] = (char)((uint64_t)*n_header >> (8 * i));
        memset(padded + 8, ' ', *n_header);
        memcpy(padded + 8, text, length);
    }
    free(text);
    return padded;
}

// What is written, in file order, and where its data comes from.
typedef struct {
    const SafeTensor *tensor, **sorted;
    int n;
    SafeSource source;
    void *self;
    char (*hashes)[ST_HASH];
} Contents;

static bool write_tensor(const Failure *f, int fd, const Contents *c, const SafeTensor *t, XXH3_state_t *state)
{
    size_t size = tensor_bytes(t);
    int i = (int)(t - c->tensor);
    const void *data = c->source && size ? c->source(c->self, i) : t->data;
    if (size && !data) return fail(f, "tensor %s: its data cannot be had", t->name);
    if (c->hashes) safetensors_hash(c->hashes[i], data, size);
    if (!size) return true;
    XXH3_128bits_update(state, data, size);
    return disk_write(fd, data, size) || fail(f, "cannot write: %s", strerror(errno));
}

// Length, header and data, hashed while they are written.
static bool write_all(const Failure *f, int fd, const char *header, size_t n_header, const Contents *c, char *hash,
                      size_t *n_bytes)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state) die("%s: no memory", f->path);
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, header, 8 + n_header);
    bool ok = disk_write(fd, header, 8 + n_header) || fail(f, "cannot write: %s", strerror(errno));
    size_t total = 8 + n_header;
    for (int i = 0; i < c->n && ok; i++) {
        ok = write_tensor(f, fd, c, c->sorted[i], state);
        total += tensor_bytes(c->sorted[i]);
    }
    if (ok && fsync(fd) < 0) ok = fail(f, "cannot fsync: %s", strerror(errno));
    if (hash) hash_hex(hash, XXH3_128bits_digest(state));
    if (n_bytes) *n_bytes = total;
    XXH3_freeState(state);
    return ok;
}

static bool write_file(const Failure *f, Contents c, const SafeMeta *meta, int n_meta, char *hash, size_t *n_bytes)
{
    const SafeTensor **sorted = calloc((size_t)c.n + 1, sizeof *sorted);
    if (!sorted) die("%s: no memory", f->path);
    for (int i = 0; i < c.n; i++) sorted[i] = &c.tensor[i];
    if (c.n) qsort(sorted, (size_t)c.n, sizeof *sorted, by_dtype_and_name);
    size_t n_header = 0;
    char *header = build_header(f, c.tensor, sorted, c.n, meta, n_meta, &n_header);
    bool ok = header;
    c.sorted = sorted;
    if (ok) {
        int fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) ok = fail(f, "cannot create: %s", strerror(errno));
        else {
            ok = write_all(f, fd, header, n_header, &c, hash, n_bytes);
            if (close(fd) < 0 && ok) ok = fail(f, "cannot close: %s", strerror(errno));
        }
    }
    free(header);
    free(sorted);
    return ok;
}

bool safetensors_write(const char *path, const SafeTensor *tensor, int n, const SafeMeta *meta,
                       int n_meta, char hash[ST_HASH], size_t *n_bytes, char *error, size_t n_error)
{
    Failure f = {path, error, n_error};
    return write_file(&f, (Contents){.tensor = tensor, .n = n}, meta, n_meta, hash, n_bytes);
}

bool safetensors_write_from(const char *path, const SafeTensor *tensor, int n, SafeSource source, void *self,
                            char (*hashes)[ST_HASH], char hash[ST_HASH], size_t *n_bytes, char *error, size_t n_error)
{
    Failure f = {path, error, n_error};
    Contents c = {.tensor = tensor, .n = n, .source = source, .self = self, .hashes = hashes};
    return write_file(&f, c, NULL, 0, hash, n_bytes);
}
