// diff: opens what build/diff compares, puts a dump's pieces together, and says how far two arrays are apart.
//
// A dump has a file for each rank, and in it, for each tensor, a piece and a text that says where it belongs (dump.h).
// The whole tensor follows from these texts alone, whatever the layout was: so a run on eight ranks can be compared
// element by element with a run on one rank, or with another layout.
//
// The invariant: an element is what a rank wrote, or it is counted as missing. Nothing is guessed: elements
// that several ranks wrote are counted too, because exactly one should have.
//
// A file without such texts (another program's, a checkpoint's) holds whole tensors, in the order of its "order"
// metadata, else in the order of the file. Where their names are a dump's, it is compared like one (judge.c).
//
// The distance in ULPs is the number of representable values between a and b: floats of one sign are ordered as their
// bits are, so it is a subtraction of integers. +0 and -0 are 0 ULPs apart but not the same bits. Where dtypes differ
// both are converted to fp32, and the distance is divided by 2^(23 - m), the number of fp32 values per value of the
// coarser type with m bits of mantissa: a bf16 run against an fp32 run is then a few ULPs apart, not 2^17. For integers
// it is the plain difference.
//
// The bound of rounding. Each store and each sum on the way to a tensor adds an independent error, so their squares add
// up: `error` is the root (dump.h: dump_error), relative to the size of what is stored.
// With S = 4 for maps that are not quite as well conditioned as assumed, and r = rms(b):
//
//     rms(a - b)  <=  S error r
//     |a - b|     <=  S error sqrt(2 ln(2e6 n)) max(|b|, rms of its row, rms of its column, r)      for each of n
//
// The second bound: an error that is a sum of many is normal, and the largest of n normal numbers exceeds
// t = sqrt(2 ln(2e6 n)) deviations with a probability of at most 2 n exp(-t^2 / 2) = 1e-6. An element's error is in
// proportion to the terms of its sum, whose size its row and its column show, and not to the element itself, which
// cancellation may have left small.
//
// Weights after an update: U = step of b, |dU| <= M min(2, S (|dg| / |g| + error)), M the largest |U|. Adam divides
// the gradient by its size, so what counts is the relative error of an element's own gradient; where that is not small,
// the step may have the other sign. Where an element's error is not known (Lion, Muon), the bound is 2 M.
//
// The invariant: every test reads !(error <= bound), so NaN fails it; two NaN of the same bits are equal.
#include "dev/check/diff.h"

#include "base/check.h"
#include "base/disk.h"
#include "dev/check/llmc_state.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- what a path stands for

static bool is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && !strcmp(text + n - k, end);
}

static bool is_rank_file(const char *name)
{
    return !strncmp(name, "rank_", 5) && ends_with(name, ".safetensors");
}

// A directory with a dump's files.
static bool is_dump(const char *path)
{
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *e; d && !found && (e = readdir(d));) found = is_rank_file(e->d_name);
    if (d) closedir(d);
    return found;
}

// Whether dir/step_N is a dump.
static bool has_update(const char *dir, long update)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/step_%08ld", dir, update);
    return is_dump(path);
}

// The latest update that is dumped in dir, and in the other directory if there is one; 0: none.
static long latest(const char *dir, const char *other)
{
    DIR *d = opendir(dir);
    long best = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        long update = strncmp(e->d_name, "step_", 5) ? 0 : strtol(e->d_name + 5, NULL, 10);
        if (update > best && has_update(dir, update) && (!other || has_update(other, update))) best = update;
    }
    if (d) closedir(d);
    return best;
}

// Where a path's dumps are: path itself or path/dump. False: it has none, or is itself a dump.
static bool dumps_of(const char *path, char dir[1000])
{
    snprintf(dir, 1000, "%s", path);
    if (!is_dir(path) || is_dump(path)) return false;
    if (latest(dir, NULL)) return true;
    snprintf(dir, 1000, "%s/dump", path);
    return latest(dir, NULL) > 0;
}

static void name_update(char path[1000], const char *dir, long update)
{
    snprintf(path, 1000, "%.900s/step_%08ld", dir, update);
}

// The update of a dump, or of one rank's file of it, from its path; 0: the path is neither.
static long update_of(const char *path)
{
    const char *base = strrchr(path, '/'), *step = NULL;
    if (!is_dump(path) && !is_rank_file(base ? base + 1 : path)) return 0;
    for (const char *s = path; (s = strstr(s, "step_")); s++) step = s;
    return step ? strtol(step + strlen("step_"), NULL, 10) : 0;
}

// Whether a file of another program has what a dump has.
static bool has_dump_names(const char *path)
{
    DumpKind kind;
    bool found = false;
    if (disk_is_special(path) || access(path, R_OK)) return false;
    if (llmc_state_is(path)) return true;
    SafeTensors *file = safetensors_open(path, NULL, 0);
    for (int i = 0; i < file->n; i++) found |= diff_kind(file->tensor[i].name, &kind);
    safetensors_close(file);
    return found;
}

void diff_side_resolve(const char *a, const char *b, char path_a[1000], char path_b[1000])
{
    char dir_a[1000], dir_b[1000];
    bool many_a = dumps_of(a, dir_a), many_b = dumps_of(b, dir_b);
    snprintf(path_a, 1000, "%s", a);
    snprintf(path_b, 1000, "%s", b);
    if (many_a && many_b) {
        long update = latest(dir_a, dir_b);
        if (!update)
            die("%s, %s: no update that both have dumped, theirs are %ld and %ld (name a checkpoint of each to compare "
                "weights)", a, b, latest(dir_a, NULL), latest(dir_b, NULL));
        name_update(path_a, dir_a, update);
        name_update(path_b, dir_b, update);
    } else if ((many_a && update_of(b)) || (many_b && update_of(a))) {
        long update = update_of(many_a ? b : a);
        if (!has_update(many_a ? dir_a : dir_b, update))
            die("%s: no dump of update %ld, as %s is", many_a ? a : b, update, many_a ? b : a);
        name_update(many_a ? path_a : path_b, many_a ? dir_a : dir_b, update);
    } else if ((many_a || many_b) && !is_dir(many_a ? b : a) && has_dump_names(many_a ? b : a)) {
        name_update(many_a ? path_a : path_b, many_a ? dir_a : dir_b, latest(many_a ? dir_a : dir_b, NULL));
    }
}

// ---- tensors

static bool is_float(SafeDtype d) { return d == ST_F16 || d == ST_BF16 || d == ST_F32 || d == ST_F64; }

const DiffTensor *diff_side_find(const DiffSide *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->tensor[i].t.name, name)) return &s->tensor[i];
    return NULL;
}

DiffTensor *diff_side_add(DiffSide *s, const SafeTensor *t)
{
    if ((s->n & (s->n - 1)) == 0) {
        s->tensor = realloc(s->tensor, (size_t)(s->n ? 2 * s->n : 1) * sizeof *s->tensor);
        if (!s->tensor) die("diff: no memory for %d tensors", s->n);
    }
    DiffTensor *own = &s->tensor[s->n++];
    *own = (DiffTensor){.t = *t, .at = s->n, .stored = t->dtype};
    return own;
}

// Makes the whole tensor to which a part belongs, all zero.
static void make_whole(DiffTensor *own, const Part *part)
{
    size_t *shape = malloc(sizeof part->shape);
    own->t.ndim = part->ndim;
    own->t.n_elems = dump_part_whole_elems(part);
    own->t.n_bytes = own->t.n_elems * safetensors_dtype_bytes(own->t.dtype);
    own->t.data = calloc(own->t.n_elems, safetensors_dtype_bytes(own->t.dtype));
    own->seen = calloc(own->t.n_elems, 1);
    if (!shape || !own->t.data || !own->seen) die("diff: no memory for %zu bytes of %s", own->t.n_bytes, own->t.name);
    memcpy(shape, part->shape, sizeof part->shape);
    own->t.shape = shape;
    own->at = part->at;
    own->error = part->error;
    own->stored = part->stored;
}

static bool fits(const DiffTensor *own, const Part *part, SafeDtype dtype)
{
    return own->t.ndim == part->ndim && own->t.dtype == dtype &&
           !memcmp(own->t.shape, part->shape, (size_t)part->ndim * sizeof *part->shape);
}

static void add_piece(DiffSide *s, const SafeTensors *file, const SafeTensor *t)
{
    char key[400];
    Part part;
    snprintf(key, sizeof key, "part.%s", t->name);
    const char *text = safetensors_meta(file, key);
    if (!text || !dump_part_parse(&part, text))
        die("%s: %s: no part of a dump: %s", file->path, t->name, text ? text : "");
    DiffTensor *own = (DiffTensor *)diff_side_find(s, t->name);
    if (!own) {
        own = diff_side_add(s, t);
        make_whole(own, &part);
    }
    if (!fits(own, &part, t->dtype) || dump_part_elems(&part) != t->n_elems)
        die("%s: %s: %s does not fit what other ranks wrote", file->path, t->name, text);
    own->disagrees |= !dump_part_place(&part, (void *)own->t.data, own->seen, t->data,
                                       safetensors_dtype_bytes(t->dtype));
    dump_part_free(&part);
}

static void count_seen(DiffTensor *own)
{
    for (size_t i = 0; own->seen && i < own->t.n_elems; i++) {
        own->n_missing += own->seen[i] == 0;
        own->n_twice += own->seen[i] > 1;
    }
    free(own->seen);
    own->seen = NULL;
}

static int by_number(const void *a, const void *b)
{
    const DiffTensor *x = a, *y = b;
    return x->at != y->at ? (x->at < y->at ? -1 : 1) : strcmp(x->t.name, y->t.name);
}

// ---- files

static SafeTensors *open_file(DiffSide *s, const char *path)
{
    s->file = realloc(s->file, ((size_t)s->n_files + 1) * sizeof *s->file);
    if (!s->file) die("diff: no memory for %d files", s->n_files + 1);
    return s->file[s->n_files++] = safetensors_open(path, NULL, 0);
}

static const char *meta_of(const SafeTensors *file, const char *key)
{
    const char *value = safetensors_meta(file, key);
    return value ? value : "?";
}

bool diff_kind(const char *name, DumpKind *kind)
{
    static const char *const word[] = {"weight.", "forward.", "loss", "backward.", "grad.", "state.", "updated."};
    for (int k = 0; k < 7; k++)
        if (k == DUMP_LOSS ? !strcmp(name, word[k]) : !strncmp(name, word[k], strlen(word[k]))) {
            *kind = (DumpKind)k;
            return true;
        }
    return false;
}

static bool set_dtype(DiffSide *s, const char *dtype)
{
    static const char *const known[] = {"fp32", "fp64", "tf32", "bf16", "bf16-autocast", "fp16", "fp8"};
    snprintf(s->dtype, sizeof s->dtype, "%s", dtype);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(dtype, known[i])) {
            s->low = i > 1;
            return true;
        }
    return false;
}

bool diff_side_declare(DiffSide *s, const char *dtype)
{
    s->declared = true;
    return set_dtype(s, dtype);
}

void diff_side_sort(DiffSide *s)
{
    if (s->n) qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, by_number);
}

static void free_tensor(const DiffSide *s, DiffTensor *t)
{
    if (!s->pieces) return;
    free((void *)t->t.data);
    free((void *)t->t.shape);
    if (s->foreign) free((void *)t->t.name);
}

// Of each rank's elements: they add up.
static void add_before(DiffSide *s, const SafeTensors *file)
{
    const char *before = safetensors_meta(file, "state_before");
    s->knows_before = before != NULL && s->n_files == (s->ranks ? s->ranks : 1);
    if (before) s->before += strtoull(before, NULL, 16);
}

static void add_rank(DiffSide *s, const char *path)
{
    SafeTensors *file = open_file(s, path);
    s->dump = s->header = s->pieces = true;
    if (!set_dtype(s, meta_of(file, "dtype"))) set_dtype(s, "fp32");
    for (int i = 0; i < file->n; i++) add_piece(s, file, &file->tensor[i]);
    s->head_size = (size_t)strtoul(meta_of(file, "head_size"), NULL, 10);
    s->update = strtol(meta_of(file, "update"), NULL, 10);
    s->ranks = strtol(meta_of(file, "ranks"), NULL, 10);
    add_before(s, file);
}

static void open_dump(DiffSide *s)
{
    char path[1100];
    long ranks = 1;
    for (long r = 0; r < ranks; r++) {
        snprintf(path, sizeof path, "%s/rank_%05ld.safetensors", s->path, r);
        struct stat info;
        if (stat(path, &info)) {
            if (!s->n_absent++) s->absent = (int)r;
            if (!s->n_files && r < 99999) ranks = r + 2; // skip to the first that exists
            continue;
        }
        add_rank(s, path);
        const SafeTensors *file = s->file[s->n_files - 1];
        ranks = s->ranks;
        snprintf(s->about, sizeof s->about, "update %s, %s, %ld rank%s (%s)", meta_of(file, "update"),
                 meta_of(file, "dtype"), ranks, ranks == 1 ? "" : "s", meta_of(file, "layout"));
    }
    for (int i = 0; i < s->n; i++) count_seen(&s->tensor[i]);
    diff_side_sort(s);
}

// The arithmetic that the file names, or else that of the narrowest type in it.
static void guess_dtype(DiffSide *s)
{
    const char *dtype = safetensors_meta(s->file[0], "dtype");
    add_before(s, s->file[0]);
    SafeDtype narrowest = ST_F32;
    DumpKind kind;
    for (int i = 0; i < s->n; i++) {
        s->dump |= diff_kind(s->tensor[i].t.name, &kind);
        if (is_float(s->tensor[i].t.dtype)) narrowest = diff_stats_coarser(narrowest, s->tensor[i].t.dtype);
    }
    if (dtype && set_dtype(s, dtype)) snprintf(s->about, sizeof s->about, "%s", dtype);
    else set_dtype(s, narrowest == ST_BF16 ? "bf16" : narrowest == ST_F16 ? "fp16" : "fp32");
}

static void open_plain(DiffSide *s)
{
    const SafeTensors *file = open_file(s, s->path);
    int *order = malloc((size_t)(file->n + 1) * sizeof *order);
    if (!order) die("diff: no memory for %d tensors", file->n);
    safetensors_order(file, order);
    for (int i = 0; i < file->n; i++) diff_side_add(s, &file->tensor[order[i]]);
    free(order);
    guess_dtype(s);
}

DiffSide diff_side_open(const char *path)
{
    DiffSide s = {0};
    char error[1024];
    snprintf(s.path, sizeof s.path, "%s", path);
    if (is_dump(path)) open_dump(&s);
    else if (llmc_state_is(path)) s.dump = s.foreign = s.pieces = set_dtype(&s, "fp32");
    else if (is_dir(path)) {
        s.ckpt = ckpt_open(path, true, error, sizeof error);
        if (!s.ckpt) die("%s", error);
        for (int i = 0; i < s.ckpt->n; i++) diff_side_add(&s, s.ckpt->tensor[i]);
        snprintf(s.about, sizeof s.about, "checkpoint after update %ld", s.ckpt->state.step);
    } else {
        open_plain(&s);
        if (safetensors_meta(s.file[0], "ranks")) { // one rank's file of a dump: its pieces are put in their places
            free(s.tensor);
            safetensors_close(s.file[0]);
            free(s.file);
            s.file = NULL, s.tensor = NULL, s.n = s.n_files = 0, s.before = 0;
            add_rank(&s, path);
            for (int i = 0; i < s.n; i++) count_seen(&s.tensor[i]);
            diff_side_sort(&s);
        }
    }
    return s;
}

void diff_side_complete(DiffSide *s, const DiffSide *other)
{
    if (s->foreign) llmc_state_read(s, s->path, other);
}

void diff_side_close(DiffSide *s)
{
    for (int i = 0; i < s->n; i++) free_tensor(s, &s->tensor[i]);
    free(s->tensor);
    for (int i = 0; i < s->n_files; i++) safetensors_close(s->file[i]);
    free(s->file);
    ckpt_close(s->ckpt);
    *s = (DiffSide){0};
}

// ---- how far two arrays are apart

// ---- elements

uint64_t diff_stats_bits(const SafeTensor *t, size_t i)
{
    const char *p = (const char *)t->data;
    switch (safetensors_dtype_bytes(t->dtype)) {
    case 1: { uint8_t x; memcpy(&x, p + i, 1); return x; }
    case 2: { uint16_t x; memcpy(&x, p + 2 * i, 2); return x; }
    case 4: { uint32_t x; memcpy(&x, p + 4 * i, 4); return x; }
    default: { uint64_t x; memcpy(&x, p + 8 * i, 8); return x; }
    }
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static double half_value(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 31 ? (fraction ? NAN : INFINITY)
             : exponent       ? ldexp(1024 + fraction, exponent - 25)
                              : ldexp(fraction, -24);
    return bits >> 15 ? -x : x;
}

static double value_of(SafeDtype dtype, uint64_t bits)
{
    double x;
    switch (dtype) {
    case ST_F32: return float_of((uint32_t)bits);
    case ST_BF16: return float_of((uint32_t)bits << 16);
    case ST_F16: return half_value((uint16_t)bits);
    case ST_F64: memcpy(&x, &bits, 8); return x;
    case ST_I8: return (int8_t)bits;
    case ST_I16: return (int16_t)bits;
    case ST_I32: return (int32_t)bits;
    case ST_I64: return (double)(int64_t)bits;
    default: return (double)bits; // BOOL and the unsigned ones
    }
}

double diff_stats_value(const SafeTensor *t, size_t i)
{
    return value_of(t->dtype, diff_stats_bits(t, i));
}

// ---- ULPs

static bool is_signed(SafeDtype d) { return d == ST_I8 || d == ST_I16 || d == ST_I32 || d == ST_I64; }
static int mantissa(SafeDtype d) { return d == ST_BF16 ? 7 : d == ST_F16 ? 10 : d == ST_F64 ? 52 : 23; }

SafeDtype diff_stats_coarser(SafeDtype a, SafeDtype b)
{
    return mantissa(b) < mantissa(a) ? b : a;
}

// Floats of n_bits as integers in the order of their values; both zeros give 0.
static int64_t ordered(uint64_t bits, int n_bits)
{
    uint64_t sign = (uint64_t)1 << (n_bits - 1);
    return bits & sign ? -(int64_t)(bits & (sign - 1)) : (int64_t)bits;
}

static uint64_t ulps_of(SafeDtype dtype, uint64_t a, uint64_t b)
{
    int n_bits = 8 * (int)safetensors_dtype_bytes(dtype);
    int64_t x = (int64_t)a, y = (int64_t)b;
    if (is_float(dtype)) {
        x = ordered(a, n_bits);
        y = ordered(b, n_bits);
    } else if (is_signed(dtype)) {
        x = (int64_t)(a << (64 - n_bits)) >> (64 - n_bits);
        y = (int64_t)(b << (64 - n_bits)) >> (64 - n_bits);
    } else return a > b ? a - b : b - a;
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

static uint32_t fp32_bits(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

// The distance of two numbers, whose types may differ, in units of the coarser stored type; rounded to the nearest.
static uint64_t ulps(const SafeTensor *a, const SafeTensor *b, SafeDtype coarser, uint64_t x_bits, uint64_t y_bits)
{
    if (a->dtype == b->dtype && (a->dtype == coarser || a->dtype != ST_F32)) return ulps_of(a->dtype, x_bits, y_bits);
    uint64_t n = ulps_of(ST_F32, fp32_bits(value_of(a->dtype, x_bits)), fp32_bits(value_of(b->dtype, y_bits)));
    int shift = mantissa(coarser) < 23 ? 23 - mantissa(coarser) : 0;
    return shift ? (n + (1ull << (shift - 1))) >> shift : n;
}

static int bucket_of(uint64_t ulp) { return ulp ? 64 - __builtin_clzll(ulp) : 0; }

const char *diff_stats_label(int bucket, char text[48])
{
    unsigned long long low = bucket && bucket != DIFF_STATS_NAN ? 1ull << (bucket - 1) : 0;
    unsigned long long high = bucket > 1 ? low + (low - 1) : low;
    if (bucket == DIFF_STATS_NAN) snprintf(text, 48, "NaN on one side");
    else if (low == high) snprintf(text, 48, "%llu", low);
    else if (bucket < 14) snprintf(text, 48, "%llu-%llu", low, high);
    else snprintf(text, 48, "2^%d to 2^%d", bucket - 1, bucket);
    return text;
}

int diff_stats_median(const DiffStats *s)
{
    size_t below = 0;
    for (int i = 0; i < DIFF_STATS_BUCKETS; i++) {
        below += s->bucket[i];
        if (2 * below >= s->n) return i;
    }
    return DIFF_STATS_NAN;
}

// ---- sizes

// Sizes of a tensor's elements, taken as a matrix whose columns are the last axis.
typedef struct {
    size_t width;
    double *row, *column; // root mean square of each; NULL: not needed
    double whole, tail;   // tail: t above, the deviations that no element exceeds
} Sizes;

static Sizes sizes_of(const SafeTensor *t, double floor, bool needed)
{
    Sizes s = {.width = t->ndim ? t->shape[t->ndim - 1] : 1, .tail = sqrt(2 * log(2e6 * (double)t->n_elems))};
    if (!needed || !t->n_elems) return s;
    size_t rows = t->n_elems / s.width;
    s.row = calloc(rows, sizeof *s.row);
    s.column = calloc(s.width, sizeof *s.column);
    if (!s.row || !s.column) die("diff: no memory for the sizes of %zu rows", rows);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < s.width; c++) {
            double x = diff_stats_value(t, r * s.width + c);
            if (!isfinite(x)) continue; // compared by itself
            s.row[r] += x * x;
            s.column[c] += x * x;
        }
    for (size_t r = 0; r < rows; r++) {
        s.whole += s.row[r];
        s.row[r] = sqrt(s.row[r] / (double)s.width);
    }
    for (size_t c = 0; c < s.width; c++) s.column[c] = sqrt(s.column[c] / (double)rows);
    s.whole = fmax(sqrt(s.whole / (double)t->n_elems), floor);
    return s;
}

double diff_stats_rms(const SafeTensor *t)
{
    Sizes s = sizes_of(t, 0, true);
    free(s.row);
    free(s.column);
    return s.whole;
}

double diff_stats_most(const SafeTensor *a, const SafeTensor *b)
{
    double most = 0;
    for (size_t i = 0; i < a->n_elems; i++) most = fmax(most, fabs(diff_stats_value(a, i) - diff_stats_value(b, i)));
    return most;
}

// ---- one pair of arrays

// The larger one; NaN wins and stays.
static double worse(double max, double x) { return !isnan(max) && !(x <= max) ? x : max; }

// The bound of element i's |a - b|, where b is y.
static double allowed(const DiffStatsBound *bound, const Sizes *size, size_t i, double y)
{
    if (bound->mode == DIFF_STATS_EXACT) return 0;
    if (bound->mode == DIFF_STATS_GIVEN) return bound->atol + bound->rtol * fabs(y);
    if (bound->mode == DIFF_STATS_UPDATE) {
        if (bound->error == 0) return 2 * bound->most;
        double g = diff_stats_value(bound->grad_b, i), gap = fabs(diff_stats_value(bound->grad_a, i) - g);
        double part = DIFF_STATS_SAFETY * ((gap == 0 ? 0 : gap / fabs(g)) + bound->error);
        return bound->most * (part <= 2 ? part : 2) + fabs(y) * 0x1p-22; // plus the rounding of the weight itself
    }
    double scale = fmax(fmax(fabs(y), size->whole), fmax(size->row[i / size->width], size->column[i % size->width]));
    return DIFF_STATS_SAFETY * bound->error * size->tail * scale;
}

static void keep_worst(DiffStats *s, size_t i, double ratio)
{
    int at = s->n_worst;
    while (at > 0 && !(ratio <= s->worst_ratio[at - 1]) && !isnan(s->worst_ratio[at - 1])) at--;
    if (at == DIFF_STATS_WORST) return;
    if (s->n_worst < DIFF_STATS_WORST) s->n_worst++;
    for (int k = s->n_worst - 1; k > at; k--) {
        s->worst[k] = s->worst[k - 1];
        s->worst_ratio[k] = s->worst_ratio[k - 1];
    }
    s->worst[at] = i;
    s->worst_ratio[at] = ratio;
}

DiffStats diff_stats(const SafeTensor *a, const SafeTensor *b, SafeDtype stored_a, SafeDtype stored_b,
                     DiffStatsBound bound)
{
    DiffStats s = {.n = a->n_elems};
    Sizes size = sizes_of(b, bound.floor, bound.mode == DIFF_STATS_DERIVED);
    SafeDtype coarser = diff_stats_coarser(stored_a, stored_b);
    double squares = 0;
    for (size_t i = 0; i < s.n; i++) {
        uint64_t x_bits = diff_stats_bits(a, i), y_bits = diff_stats_bits(b, i);
        double x = value_of(a->dtype, x_bits), y = value_of(b->dtype, y_bits);
        bool same = a->dtype == b->dtype ? x_bits == y_bits : x == y && signbit(x) == signbit(y);
        if (same) {
            s.bucket[0]++;
            s.n_both_nan += isnan(x) != 0;
            continue;
        }
        s.n_differ++;
        bool any_nan = isnan(x) || isnan(y), any_float = is_float(a->dtype) || is_float(b->dtype);
        uint64_t ulp = ulps(a, b, coarser, x_bits, y_bits);
        double gap = any_float ? fabs(x - y) : (double)ulp, limit = allowed(&bound, &size, i, y);
        s.bucket[any_nan ? DIFF_STATS_NAN : bucket_of(ulp)]++;
        if (!any_nan && ulp > s.max_ulp) s.max_ulp = ulp;
        s.max_abs = worse(s.max_abs, gap);
        s.max_rel = worse(s.max_rel, gap == 0 ? 0 : gap / fabs(y));
        bool within = bound.mode != DIFF_STATS_EXACT && isfinite(x) && isfinite(y) && gap <= limit;
        double ratio = within ? (gap == 0 ? 0 : gap / limit) : limit > 0 && isfinite(gap) ? gap / limit : INFINITY;
        if (bound.mode == DIFF_STATS_EXACT) ratio = isfinite(gap) ? 1 + gap : INFINITY; // the largest first
        s.n_out += !within;
        s.ratio = worse(s.ratio, within ? ratio : fmax(ratio, nextafter(1, 2)));
        squares += gap * gap;
        keep_worst(&s, i, ratio);
    }
    if (bound.mode == DIFF_STATS_DERIVED && s.n_differ)
        s.ratio = worse(s.ratio, sqrt(squares / (double)s.n) / (DIFF_STATS_SAFETY * bound.error * size.whole));
    free(size.row);
    free(size.column);
    return s;
}

void diff_stats_add(DiffStats *sum, const DiffStats *s)
{
    sum->n += s->n;
    sum->n_differ += s->n_differ;
    sum->n_out += s->n_out;
    sum->n_both_nan += s->n_both_nan;
    for (int i = 0; i < DIFF_STATS_BUCKETS; i++) sum->bucket[i] += s->bucket[i];
}
