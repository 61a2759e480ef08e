// dev_check: runs every op on two devices and compares. Here are the device, its table, and copies and additions.
//
//   |fast - reference| <= 2 (err + u_X (|reference| + 2 err)) + 2^-110
//
// err is how far a device that keeps the contract may be from the true result before it stores it in X; dev_check_*.c
// derive it op by op. Both devices may err by it, and both round. Where the contract leaves no freedom (one rounding of
// the exact result, or a copy) the two must be equal. A bound is never tuned: where an op exceeds it, the op has a bug
// or the derivation is wrong.
//
// The invariant: inputs are read before the fast device runs, results after, through its to_host; the caller sees
// the fast device's results and nothing else changes. So a program takes the same path with and without the check.
// NaN where the reference has a number exceeds every bound; NaN in both is agreement.
//
// Rejected: a tolerance per op in a table (a number like 1e-4 has no derivation); comparing whole steps (an error in
// the first layer spreads to every result, and cannot be traced back).
#include "src/check/dev_check.h"

#include "base/check.h"
#include "ops/dev_cpu.h"
#include "formats/formats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPS = 96 };
typedef struct {
    Dev dev; // first, so that a Dev * can be cast to a DevCheck *
    Dev *fast, *ref, *wide;
    DevCheckRow row[OPS];
    size_t n_rows;
} DevCheck;

// ---- a call

DevCheckCall dev_check_begin(Dev *dev, const char *op)
{
    DevCheck *k = (DevCheck *)dev;
    size_t i = 0;
    while (i < k->n_rows && strcmp(k->row[i].op, op) != 0) i++;
    check(i < OPS);
    if (i == k->n_rows) k->row[k->n_rows++] = (DevCheckRow){.op = op};
    k->row[i].calls++;
    k->fast->meanwhile = dev->meanwhile, k->fast->meanwhile_arg = dev->meanwhile_arg;
    XType type = dev->x_type;
    return (DevCheckCall){.fast = k->fast, .ref = k->ref, .wide = k->wide, .row = &k->row[i], .x_type = type,
                          .ux = type == X_FP32 ? 0 : type == X_BF16 ? 0x1p-8 : 0x1p-11};
}

void dev_check_end(DevCheckCall *c)
{
    while (c->n_rooms) free(c->room[--c->n_rooms]);
}

void *dev_check_room(DevCheckCall *c, size_t n_bytes)
{
    check(c->n_rooms < DEV_CHECK_ROOMS);
    void *p = aligned_alloc(64, (n_bytes + 64) / 64 * 64);
    if (!p) die("check of %s: no memory for %zu bytes (numerics.check needs the host's)", c->row->op, n_bytes);
    memset(p, 0, n_bytes);
    return c->room[c->n_rooms++] = p;
}

void *dev_check_copy(DevCheckCall *c, const void *fast, size_t n_bytes)
{
    if (!fast) return NULL;
    void *host = dev_check_room(c, n_bytes);
    c->fast->to_host(c->fast, host, fast, n_bytes);
    return host;
}

X *dev_check_x(DevCheckCall *c, const X *fast, size_t n)
{
    return (X *)dev_check_copy(c, fast, n * c->fast->x_bytes);
}

float *dev_check_f(DevCheckCall *c, const float *fast, size_t n)
{
    return (float *)dev_check_copy(c, fast, n * sizeof *fast);
}

int32_t *dev_check_i(DevCheckCall *c, const int32_t *fast, size_t n)
{
    return (int32_t *)dev_check_copy(c, fast, n * sizeof *fast);
}

double *dev_check_d(DevCheckCall *c, size_t n)
{
    return (double *)dev_check_room(c, n * sizeof(double));
}

float *dev_check_abs(DevCheckCall *c, const float *host, size_t n)
{
    if (!host) return NULL;
    float *out = (float *)dev_check_room(c, n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = fabsf(host[i]);
    return out;
}

float *dev_check_wide(DevCheckCall *c, const X *host, size_t n, bool absolute)
{
    if (!host) return NULL;
    Format format = c->x_type == X_FP32 ? FORMAT_FP32 : c->x_type == X_BF16 ? FORMAT_BF16 : FORMAT_FP16;
    float *out = (float *)dev_check_room(c, n * sizeof *out);
    formats_to_float(out, format, host, n);
    for (size_t i = 0; absolute && i < n; i++) out[i] = fabsf(out[i]);
    return out;
}

// ---- comparing

void dev_check_expect_one(DevCheckCall *c, const char *name, size_t i, size_t n, double got, double want, double bound)
{
    if (got == want || (isnan(got) && isnan(want))) return;
    double ratio = fabs(got - want) / bound; // 0 in the bound: infinite
    if (isnan(ratio)) ratio = INFINITY;
    if (!(ratio > c->row->worst)) return;
    c->row->worst = ratio;
    snprintf(c->row->where, sizeof c->row->where, "%s[%zu] of %zu in call %ld: %.9g, should be %.9g within %.3g", name,
             i, n, c->row->calls, got, want, bound);
}

void dev_check_expect_x(DevCheckCall *c, const char *name, const X *want, const X *fast, size_t rows, size_t used,
                        size_t ld, const double *err)
{
    if (!want || rows == 0 || used == 0) return;
    size_t n = (rows - 1) * ld + used;
    const float *w = dev_check_wide(c, want, n, false), *g = dev_check_wide(c, dev_check_x(c, fast, n), n, false);
    double least = 0x1p-110 + (c->x_type == X_FP16 ? 0x1p-24 : 0); // fp16's last bit is absolute near 0
    for (size_t i = 0; i < rows * used; i++) {
        size_t at = i / used * ld + i % used;
        double bound = err ? 2 * (err[i] + c->ux * (fabs((double)w[at]) + 2 * err[i])) + least : 0;
        dev_check_expect_one(c, name, at, n, g[at], w[at], bound);
    }
}

void dev_check_expect_f(DevCheckCall *c, const char *name, const float *want, const float *fast, size_t n,
                        const double *err)
{
    if (!want) return;
    const float *g = dev_check_f(c, fast, n);
    for (size_t i = 0; i < n; i++)
        dev_check_expect_one(c, name, i, n, g[i], want[i], err ? 2 * err[i] + 0x1p-110 : 0);
}

void dev_check_expect_bytes(DevCheckCall *c, const char *name, const void *want_, const void *fast, size_t n_bytes)
{
    const uint8_t *want = (const uint8_t *)want_, *got = (const uint8_t *)dev_check_copy(c, fast, n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        if (got[i] != want[i]) dev_check_expect_one(c, name, i, n_bytes, got[i], want[i], 0);
}

// ---- copies, conversions, additions: equal on both

static void add(Dev *dev, X *out, const X *a, const X *b, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "add");
    const X *x = dev_check_x(&c, a, n), *y = dev_check_x(&c, b, n);
    X *want = (X *)dev_check_room(&c, n * c.fast->x_bytes);
    c.ref->add(c.ref, want, x, y, n);
    c.fast->add(c.fast, out, a, b, n);
    dev_check_expect_x(&c, "out", want, out, 1, n, n, NULL);
    dev_check_end(&c);
}

static void dropout(Dev *dev, X *out, const X *inp, size_t n, Dropout drop)
{
    DevCheckCall c = dev_check_begin(dev, "dropout");
    X *want = dev_check_x(&c, inp, n);
    Dropout on_host = drop;
    on_host.row = drop.row ? dev_check_i(&c, drop.row, n / drop.width) : NULL;
    c.ref->dropout(c.ref, want, want, n, on_host);
    c.fast->dropout(c.fast, out, inp, n, drop);
    dev_check_expect_x(&c, "out", want, out, 1, n, n, NULL);
    dev_check_end(&c);
}

static void accumulate(Dev *dev, float *sum, float *part, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "accumulate");
    float *want = dev_check_f(&c, sum, n), *rest = dev_check_f(&c, part, n);
    c.ref->accumulate(c.ref, want, rest, n);
    c.fast->accumulate(c.fast, sum, part, n);
    dev_check_expect_f(&c, "sum", want, sum, n, NULL);
    dev_check_expect_f(&c, "part", rest, part, n, NULL);
    dev_check_end(&c);
}

static void subtract(Dev *dev, float *out, const float *a, const float *b, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "subtract");
    const float *x = dev_check_f(&c, a, n), *y = dev_check_f(&c, b, n);
    float *want = (float *)dev_check_room(&c, n * sizeof *want);
    c.ref->subtract(c.ref, want, x, y, n);
    c.fast->subtract(c.fast, out, a, b, n);
    dev_check_expect_f(&c, "out", want, out, n, NULL);
    dev_check_end(&c);
}

static void to_x(Dev *dev, X *out, const float *inp, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "to_x");
    X *want = (X *)dev_check_room(&c, n * c.fast->x_bytes);
    c.ref->to_x(c.ref, want, dev_check_f(&c, inp, n), n);
    c.fast->to_x(c.fast, out, inp, n);
    dev_check_expect_x(&c, "out", want, out, 1, n, n, NULL);
    dev_check_end(&c);
}

static void from_x(Dev *dev, float *out, const X *inp, size_t n)
{
    DevCheckCall c = dev_check_begin(dev, "from_x");
    const float *want = dev_check_wide(&c, dev_check_x(&c, inp, n), n, false);
    c.fast->from_x(c.fast, out, inp, n);
    dev_check_expect_f(&c, "out", want, out, n, NULL);
    dev_check_end(&c);
}

static void to_device(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    DevCheckCall c = dev_check_begin(dev, "to_device");
    const void *want = dev_check_copy(&c, src, n_bytes);
    c.fast->to_device(c.fast, dst, src, n_bytes);
    dev_check_expect_bytes(&c, "bytes", want, dst, n_bytes);
    dev_check_end(&c);
}

static void to_host(Dev *dev, void *dst, const void *src, size_t n_bytes)
{
    DevCheckCall c = dev_check_begin(dev, "to_host");
    c.fast->to_host(c.fast, dst, src, n_bytes);
    dev_check_end(&c);
}

static void zero(Dev *dev, void *dst, size_t n_bytes)
{
    DevCheckCall c = dev_check_begin(dev, "zero");
    c.fast->zero(c.fast, dst, n_bytes);
    dev_check_expect_bytes(&c, "bytes", dev_check_room(&c, n_bytes), dst, n_bytes);
    dev_check_end(&c);
}

static void wait_for(Dev *dev)
{
    Dev *fast = ((DevCheck *)dev)->fast;
    fast->wait(fast);
}

// ---- the device

Dev *dev_check_create(Dev *fast, Dev *reference)
{
    if (fast->x_type != reference->x_type)
        die("check: %s and %s store different types", fast->name, reference->name);
    DevCheck *k = (DevCheck *)calloc(1, sizeof *k);
    if (!k) die("check: no memory for the device");
    k->fast = fast, k->ref = reference, k->wide = dev_cpu_create(reference->threads);
    Dev *dev = &k->dev;
    *dev = *fast;
    dev->name = "checked device";
    dev->state = k;
    dev->add = add;
    dev->dropout = dropout;
    dev->accumulate = accumulate;
    dev->subtract = subtract;
    dev->to_x = to_x;
    dev->from_x = from_x;
    dev->to_device = to_device;
    dev->to_host = to_host;
    dev->zero = zero;
    dev->wait = fast->wait ? wait_for : NULL;
    dev_check_matmul_fill(dev);
    dev_check_rows_fill(dev);
    dev_check_experts_fill(dev);
    dev_check_complete(dev);
    return dev;
}

void dev_check_free(Dev *dev)
{
    if (!dev) return;
    dev_cpu_free(((DevCheck *)dev)->wide);
    free(dev);
}

size_t dev_check_rows(const Dev *dev, const DevCheckRow **rows)
{
    const DevCheck *k = (const DevCheck *)dev;
    *rows = k->row;
    return k->n_rows;
}

double dev_check_worst(const Dev *dev)
{
    const DevCheck *k = (const DevCheck *)dev;
    double worst = 0;
    for (size_t i = 0; i < k->n_rows; i++) worst = fmax(worst, k->row[i].worst);
    return worst;
}

bool dev_check_print(const Dev *dev, FILE *out)
{
    const DevCheck *k = (const DevCheck *)dev;
    size_t bad = 0;
    fprintf(out, "%-28s %8s  %s\n", "op", "calls", "worst error / bound");
    for (size_t i = 0; i < k->n_rows; i++) {
        const DevCheckRow *row = &k->row[i];
        bool within = row->worst <= 1;
        fprintf(out, "%-28s %8ld  %-8.3g %s\n", row->op, row->calls, row->worst, within ? "" : row->where);
        bad += !within;
    }
    fprintf(out, "%s against %s: %zu ops, %zu beyond their bound\n", k->fast->name, k->ref->name, k->n_rows, bad);
    return bad == 0;
}
