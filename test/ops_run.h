// ops_run: how one case of one op runs in test_ops: where inputs come from, how results are judged. Tests
// only.
//
// A case reads its inputs from a PyTorch fixture, or makes random ones of a larger size. Each result must
// lie within its bound of the double version (ops_ref.h); with a fixture, the double version must also be
// what PyTorch computed, to within the half unit in the last place of its storage. So the op, the double
// version and PyTorch check each other. The bytes of every result are kept: with another
// thread count they must be the same.
#ifndef OPS_RUN_H
#define OPS_RUN_H
#include "fixture.h"
#include "ops_ref.h"
#include "base/rng.h"

enum { OPS_DIMS = 8, OPS_POOL = 256 };
#define UNDERFLOW                                                                                            \
    0x1p-110 // exp() may flush below, or stop at, the smallest normal number; times its factors

typedef struct {
    Dev *dev;
    const Fixture *fx;  // NULL: random inputs
    const char *prefix; // case name within the fixture
    const size_t *dim;
    void *pool[OPS_POOL]; // freed with the run
    size_t n_pool;
    char *trace;        // the bytes of all results, in order
    size_t n_trace;
} Run;

static inline void *run_room(Run *r, size_t n_bytes)
{
    void *ptr = aligned_alloc(64, (n_bytes + 127) / 64 * 64);
    if (!ptr || r->n_pool == OPS_POOL) fail_msg("no room for %zu bytes", n_bytes);
    r->pool[r->n_pool++] = ptr;
    return ptr;
}

static inline void run_free(Run *r)
{
    while (r->n_pool) free(r->pool[--r->n_pool]);
    free(r->trace);
}

static inline const char *run_key(Run *r, const char *name)
{
    char *key = (char *)run_room(r, 96);
    snprintf(key, 96, "%s/%s", r->prefix, name);
    return key;
}

// An input: the fixture's, or standard normal numbers that depend on the name alone.
static inline const float *run_in(Run *r, const char *name, size_t n)
{
    if (r->fx) return fixture_f32(r->fx, run_key(r, name), n);
    float *x = (float *)run_room(r, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(rng_make(1, name, 0), i);
    return x;
}

// Integers in [low, high).
static inline const int32_t *run_ints(Run *r, const char *name, size_t n, int low, int high)
{
    if (r->fx) return fixture_i32(r->fx, run_key(r, name), n);
    int32_t *x = (int32_t *)run_room(r, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = low + (int32_t)rng_below(rng_make(1, name, 0), i, (uint64_t)(high - low));
    return x;
}

// For each of Tq queries after q_start cached keys, where its document starts: the fixture's, or documents of 1 to
// 90 tokens, the first of which may start in the cache.
static inline const int32_t *run_documents(Run *r, size_t B, size_t Tq, size_t q_start)
{
    if (r->fx) return run_ints(r, "first", B * Tq, 0, 0);
    Rng rng = rng_make(1, "documents", 0);
    int32_t *first = (int32_t *)run_room(r, B * Tq * sizeof *first);
    for (size_t b = 0; b < B; b++) {
        size_t start = rng_below(rng, 2 * b * Tq, q_start + 1), end = 0;
        for (size_t t = 0; t < Tq; t++) {
            if (t == end && t) start = q_start + t;
            if (t == end) end += 1 + rng_below(rng, (2 * b + 1) * Tq + t, 90);
            first[b * Tq + t] = (int32_t)start;
        }
    }
    return first;
}

static inline double *run_wide(Run *r, const float *x, size_t n)
{
    double *wide = (double *)run_room(r, n * sizeof *wide);
    for (size_t i = 0; i < n; i++) wide[i] = x[i];
    return wide;
}

static inline float *run_narrow(Run *r, const double *x, size_t n)
{
    float *narrow = (float *)run_room(r, n * sizeof *narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = (float)x[i];
    return narrow;
}

static inline double *run_zeros(Run *r, size_t n)
{
    double *x = (double *)run_room(r, n * sizeof *x);
    memset(x, 0, n * sizeof *x);
    return x;
}

// An output, filled with NaN, so that an element that an op forgets to write is noticed.
static inline float *run_out(Run *r, size_t n)
{
    float *x = (float *)run_room(r, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = NAN;
    return x;
}

static inline float *run_copy(Run *r, const float *x, size_t n)
{
    return (float *)memcpy(run_room(r, n * sizeof *x), x, n * sizeof *x);
}

// False when anything is NaN or infinite: never write this as !(diff > err).
static inline bool within(double got, double want, double err)
{
    return fabs(got - want) <= err && err < INFINITY;
}

// Index of the first element outside its bound; n when there is none.
static inline size_t first_bad(const float *got, const double *want, const double *err, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!within(got[i], want[i], err[i] + UNDERFLOW)) return i;
    return n;
}

static inline void run_record(Run *r, const void *bytes, size_t n_bytes)
{
    r->trace = (char *)realloc(r->trace, r->n_trace + n_bytes);
    if (!r->trace) fail_msg("no room for the trace");
    memcpy(r->trace + r->n_trace, bytes, n_bytes);
    r->n_trace += n_bytes;
}

// A result that the fixture has no entry for.
static inline void expect_ref(Run *r, const char *name, const float *got, const double *ref,
                              const double *err, size_t n)
{
    run_record(r, got, n * sizeof *got);
    size_t bad = first_bad(got, ref, err, n);
    if (bad < n)
        fail_msg("%s[%zu] of %zu is %.9g, should be %.9g within %.3g", name, bad, n, got[bad], ref[bad],
                 err[bad]);
}

// A result: the op against the double version, and (with a fixture) the double version against PyTorch.
static inline void expect(Run *r, const char *name, const float *got, const double *ref, const double *err,
                          size_t n)
{
    expect_ref(r, name, got, ref, err, n);
    if (!r->fx) return;
    const float *torch = fixture_f32(r->fx, run_key(r, name), n);
    for (size_t i = 0; i < n; i++) {
        double stored = U * fabs(torch[i]) + UNDERFLOW;
        if (!within(ref[i], torch[i], stored + 1e-6 * err[i])) // double's own error is 2^-29 of float's
            fail_msg("%s[%zu]: the double version gives %.9g, PyTorch %.9g", name, i, ref[i], torch[i]);
        if (!within(got[i], torch[i], err[i] + stored))
            fail_msg("%s[%zu] is %.9g, PyTorch has %.9g, bound %.3g", name, i, got[i], torch[i], err[i]);
    }
}

#endif
