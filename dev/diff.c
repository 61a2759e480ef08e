// diff: is this difference rounding or a bug? Compares two sets of named tensors, element by element.
//
//   build/diff A B [--rtol X] [--atol X]
//
// A and B are safetensors files, checkpoints, or runs (their newest checkpoint). B is the reference. The
// tensors are walked in the order in which A's program computed them (the "order" metadata, else file
// order; a checkpoint's: the parameter table), because the first one that leaves the bound is where to
// look.
//
// The bound: without options, equal bits. With one, |a - b| <= atol + rtol |b|, and both finite or equal
// bits. Every test reads !(difference <= bound), so that NaN fails it.
//
// The distance in ULPs is the number of representable values between a and b: floats of one sign are
// ordered as their bits are, so it is a subtraction of integers. +0 and -0 are 0 ULPs apart but not the
// same bits. Where the dtypes differ both are rounded to fp32 first; for integers it is the plain
// difference. A histogram of it tells rounding (a hill at 0, 1, 2-3 that falls off) from a bug (a hill at
// 2^20, or NaN).
//
// Exit status: 0 all within the bound, 1 not (or a file cannot be read), 2 wrong command line.
#include "check.h"
#include "ckpt.h"
#include "safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { BUCKETS = 66, NAN_BUCKET = BUCKETS - 1 }; // 0, 1, 2-3, 4-7, ..., 2^63 and more; NaN

typedef struct {
    const char *path;
    const SafeTensor **tensor; // in execution order
    int n;
    SafeTensors *file; // one of these two is open
    Ckpt *ckpt;
} Side;

typedef struct {
    bool exact; // no tolerance was given: equal bits
    double rtol, atol;
} Bound;

typedef struct {
    size_t n, n_differ, n_out, first_out, n_both_nan;
    double max_abs, max_rel; // NaN once an element's difference is NaN
    uint64_t max_ulp;
    size_t bucket[BUCKETS];
} Stats;

// ---- elements

static uint64_t load_bits(const SafeTensor *t, size_t i)
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

static bool is_float(SafeDtype d) { return d == ST_F16 || d == ST_BF16 || d == ST_F32 || d == ST_F64; }
static bool is_signed(SafeDtype d) { return d == ST_I8 || d == ST_I16 || d == ST_I32 || d == ST_I64; }

// Floats of n_bits as integers in the order of their values; both zeros give 0.
static int64_t ordered(uint64_t bits, int n_bits)
{
    uint64_t sign = (uint64_t)1 << (n_bits - 1);
    return bits & sign ? -(int64_t)(bits & (sign - 1)) : (int64_t)bits;
}

static uint64_t ulps(SafeDtype dtype, uint64_t a, uint64_t b)
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

static int bucket_of(uint64_t ulp) { return ulp ? 64 - __builtin_clzll(ulp) : 0; }

// ---- tensors

// The larger one; NaN wins and stays.
static double worse(double max, double x) { return !isnan(max) && !(x <= max) ? x : max; }

static void compare_element(Stats *s, const SafeTensor *a, const SafeTensor *b, size_t i, Bound bound)
{
    uint64_t x_bits = load_bits(a, i), y_bits = load_bits(b, i);
    SafeDtype dtype = a->dtype;
    double x = value_of(dtype, x_bits), y = value_of(b->dtype, y_bits);
    bool same = x_bits == y_bits;
    if (a->dtype != b->dtype) {
        float fx = (float)x, fy = (float)y;
        uint32_t fx_bits, fy_bits;
        memcpy(&fx_bits, &fx, 4);
        memcpy(&fy_bits, &fy, 4);
        same = x == y && signbit(x) == signbit(y);
        dtype = ST_F32;
        x_bits = fx_bits;
        y_bits = fy_bits;
    }
    if (same) {
        s->bucket[0]++;
        s->n_both_nan += isnan(x) != 0;
        return;
    }
    s->n_differ++;
    bool any_nan = isnan(x) || isnan(y);
    uint64_t ulp = ulps(dtype, x_bits, y_bits);
    double gap = is_float(a->dtype) || is_float(b->dtype) ? fabs(x - y) : (double)ulp;
    s->bucket[any_nan ? NAN_BUCKET : bucket_of(ulp)]++;
    if (!any_nan && ulp > s->max_ulp) s->max_ulp = ulp;
    s->max_abs = worse(s->max_abs, gap);
    s->max_rel = worse(s->max_rel, gap == 0 ? 0 : gap / fabs(y));
    bool within = !bound.exact && isfinite(x) && isfinite(y) && gap <= bound.atol + bound.rtol * fabs(y);
    if (!within && !s->n_out++) s->first_out = i;
}

static Stats compare(const SafeTensor *a, const SafeTensor *b, Bound bound)
{
    Stats s = {.n = a->n_elems};
    for (size_t i = 0; i < a->n_elems; i++) compare_element(&s, a, b, i, bound);
    return s;
}

static bool same_shape(const SafeTensor *a, const SafeTensor *b)
{
    if (a->ndim != b->ndim) return false;
    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] != b->shape[d]) return false;
    return true;
}

// ---- the two sides

static Side open_side(const char *path)
{
    Side s = {.path = path};
    struct stat info;
    char error[1024];
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        s.ckpt = ckpt_open(path, true, error, sizeof error);
        if (!s.ckpt) die("%s", error);
        s.tensor = s.ckpt->tensor;
        s.n = s.ckpt->n;
        return s;
    }
    s.file = safetensors_open(path, NULL, 0);
    s.n = s.file->n;
    int *order = calloc((size_t)s.n + 1, sizeof *order);
    s.tensor = calloc((size_t)s.n + 1, sizeof *s.tensor);
    if (!order || !s.tensor) die("%s: no memory", path);
    safetensors_order(s.file, order);
    for (int i = 0; i < s.n; i++) s.tensor[i] = &s.file->tensor[order[i]];
    free(order);
    return s;
}

static void close_side(Side *s)
{
    if (s->file) free(s->tensor);
    safetensors_close(s->file);
    ckpt_close(s->ckpt);
}

static const SafeTensor *find(const Side *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->tensor[i]->name, name)) return s->tensor[i];
    return NULL;
}

// ---- the report

static const char *shape_text(char text[80], const SafeTensor *t)
{
    int at = snprintf(text, 80, "(");
    for (int d = 0; d < t->ndim && at < 56; d++)
        at += snprintf(text + at, 80 - (size_t)at, "%s%zu", d ? "," : "", t->shape[d]);
    snprintf(text + at, 80 - (size_t)at, ")");
    return text;
}

// The place and the values of the first element that is out of bound.
static void print_element(const SafeTensor *a, const SafeTensor *b, size_t i)
{
    char index[200] = "";
    size_t rest = i, at = sizeof index - 1;
    for (int d = a->ndim - 1; d >= 0 && at > 24; d--) { // from the last axis, written from the right
        char digits[24];
        size_t n = (size_t)snprintf(digits, sizeof digits, "%zu%s", rest % a->shape[d],
                                    d < a->ndim - 1 ? "," : "");
        at -= n;
        memcpy(index + at, digits, n);
        rest /= a->shape[d];
    }
    uint64_t x = load_bits(a, i), y = load_bits(b, i);
    printf("  element [%s]: A %.9g (0x%0*llx), B %.9g (0x%0*llx)\n", index + at, value_of(a->dtype, x),
           2 * (int)safetensors_dtype_bytes(a->dtype), (unsigned long long)x, value_of(b->dtype, y),
           2 * (int)safetensors_dtype_bytes(b->dtype), (unsigned long long)y);
}

static void print_histogram(const Stats *all, const Stats *first)
{
    int top = 0;
    for (int i = 0; i < NAN_BUCKET; i++)
        if (all->bucket[i]) top = i;
    printf("\n%24s %14s%s\n", "ULPs apart", "elements", first ? "  in that tensor" : "");
    for (int i = 0; i < BUCKETS; i++) {
        if (i > top && !(i == NAN_BUCKET && all->bucket[i])) continue;
        char label[48];
        unsigned long long low = i && i != NAN_BUCKET ? 1ull << (i - 1) : 0, high = i > 1 ? low + (low - 1) : low;
        if (i == NAN_BUCKET) snprintf(label, sizeof label, "NaN on one side");
        else if (low == high) snprintf(label, sizeof label, "%llu", low);
        else if (i < 21) snprintf(label, sizeof label, "%llu-%llu", low, high);
        else snprintf(label, sizeof label, "2^%d to 2^%d", i - 1, i);
        printf("%24s %14zu", label, all->bucket[i]);
        if (first) printf(" %15zu", first->bucket[i]);
        printf("\n");
    }
    if (all->n_both_nan) printf("note: %zu elements are the same NaN on both sides\n", all->n_both_nan);
}

static void add_stats(Stats *all, const Stats *s)
{
    all->n += s->n;
    all->n_differ += s->n_differ;
    all->n_both_nan += s->n_both_nan;
    for (int i = 0; i < BUCKETS; i++) all->bucket[i] += s->bucket[i];
}

// One line of the table. Returns whether the tensor is within the bound.
static bool report_tensor(const SafeTensor *a, const SafeTensor *b, Bound bound, int width, Stats *s)
{
    char shape[80], other[80];
    *s = (Stats){0};
    shape_text(shape, a);
    if (!b || !same_shape(a, b)) {
        if (b)
            printf("%-*s %14s  DIFFERS: shape is %s in B\n", width, a->name, shape,
                   shape_text(other, b));
        else printf("%-*s %14s  DIFFERS: not in B\n", width, a->name, shape);
        return false;
    }
    *s = compare(a, b, bound);
    bool dtype = bound.exact && a->dtype != b->dtype, ok = !s->n_out && !dtype;
    printf("%-*s %14s %12zu %10.3g %10.3g %11llu  %s", width, a->name, shape, s->n_differ, s->max_abs,
           s->max_rel, (unsigned long long)s->max_ulp,
           !ok           ? "DIFFERS"
           : s->n_differ ? "within"
                         : "identical");
    if (dtype)
        printf(": dtype is %s, %s in B", safetensors_dtype_name(a->dtype),
               safetensors_dtype_name(b->dtype));
    printf("\n");
    return ok;
}

// Prints everything; true when all of it is within the bound.
static bool report(const Side *a, const Side *b, Bound bound)
{
    int width = 6, n_out = 0, first = -1, n_extra = 0;
    Stats all = {0}, first_stats = {0};
    for (int i = 0; i < a->n; i++)
        if ((int)strlen(a->tensor[i]->name) > width) width = (int)strlen(a->tensor[i]->name);
    if (bound.exact) printf("bound: equal bits\n");
    else printf("bound: |a - b| <= %g + %g |b|\n", bound.atol, bound.rtol);
    printf("%-*s %14s %12s %10s %10s %11s  %s\n", width, "tensor", "shape", "differ", "max abs",
           "max rel", "max ULP", "verdict");
    for (int i = 0; i < a->n; i++) {
        Stats s;
        bool ok = report_tensor(a->tensor[i], find(b, a->tensor[i]->name), bound, width, &s);
        if (!ok && !n_out++) {
            first = i;
            first_stats = s;
        }
        add_stats(&all, &s);
    }
    for (int i = 0; i < b->n; i++)
        if (!find(a, b->tensor[i]->name) && ++n_extra)
            printf("%-*s  DIFFERS: not in A\n", width, b->tensor[i]->name);
    if (first >= 0) {
        printf("\nfirst tensor out of bound: %s (%zu of %zu elements out)\n", a->tensor[first]->name,
               first_stats.n_out, first_stats.n);
        if (first_stats.n_out)
            print_element(a->tensor[first], find(b, a->tensor[first]->name), first_stats.first_out);
    }
    print_histogram(&all, first >= 0 ? &first_stats : NULL);
    printf("\n%s: %d tensors, %zu elements compared, %zu differ; %d tensors out of bound\n",
           n_out + n_extra ? "DIFFERS"
           : all.n_differ  ? "within"
                           : "identical",
           a->n + n_extra, all.n, all.n_differ, n_out + n_extra);
    return !n_out && !n_extra;
}

static double parse_bound(const char *option, const char *text)
{
    char *end;
    double x = text ? strtod(text, &end) : -1;
    if (!text || end == text || *end || !isfinite(x) || x < 0)
        die_usage("%s: %s: not a number >= 0 (try %s 1e-5)", option, text ? text : "nothing", option);
    return x;
}

int main(int argc, char **argv)
{
    const char *path[2] = {NULL, NULL};
    Bound bound = {.exact = true};
    int n_paths = 0;
    for (int i = 1; i < argc; i++) {
        bool rtol = !strcmp(argv[i], "--rtol"), atol_given = !strcmp(argv[i], "--atol");
        if (rtol || atol_given) {
            *(rtol ? &bound.rtol : &bound.atol) = parse_bound(argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            bound.exact = false;
            i++;
        } else if (!strcmp(argv[i], "--help")) {
            printf(
                "usage: diff A B [--rtol X] [--atol X]\n"
                "  A, B    safetensors files, checkpoints or runs (the newest checkpoint); B is the reference\n"
                "  bound   |a - b| <= atol + rtol |b|; without an option: equal bits\n"
                "  exit    0 all within the bound, 1 not, 2 usage\n");
            return 0;
        } else if (!strncmp(argv[i], "--", 2)) die_usage("unknown option %s (try --help)", argv[i]);
        else if (n_paths == 2) die_usage("more than two things to compare: %s (try --help)", argv[i]);
        else path[n_paths++] = argv[i];
    }
    if (n_paths < 2) die_usage("usage: diff A B [--rtol X] [--atol X]");
    Side a = open_side(path[0]), b = open_side(path[1]);
    if (!a.n && !b.n) die("%s, %s: no tensor in either (nothing to compare)", path[0], path[1]);
    bool ok = report(&a, &b, bound);
    if (fflush(stdout) != 0) die("cannot write the report");
    close_side(&a);
    close_side(&b);
    return ok ? 0 : 1;
}
