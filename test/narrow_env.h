// narrow_env: inputs, outputs and comparisons for tests of the narrow device's ops. Tests only.
//
// The device is defined as the fp32 op on widened inputs, rounded. So most comparisons are bit by
// bit. Each check runs with scratch that holds everything, and with scratch so small that the device works
// in chunks; with one thread and with two. Where chunks change the order of an fp32 sum (products and
// gradients of parameters) the reference is the double version of ops_ref.h: the result must lie between the
// rounded ends of [true - err, true + err], where err is the bound of fp32.
#ifndef NARROW_ENV_H
#define NARROW_ENV_H
#include "fixture.h"

#include "narrow/narrow.h"
#include "ops_ref.h"

enum { POOL = 4096, SMALL = 600, UNTOUCHED = 0x7fff }; // a NaN pattern that no rounding makes

typedef struct {
    Dev *cpu, *dev;
    Format format;
    bool whole; // scratch holds everything
    bool exact; // products have the bits of the fp32 op
    void *pool[POOL];
    size_t n_pool;
} Env;

static inline void *room(Env *e, size_t n_bytes)
{
    void *ptr = calloc(1, n_bytes + 64);
    if (!ptr || e->n_pool == POOL) fail_msg("no room");
    return e->pool[e->n_pool++] = ptr;
}

static inline uint16_t *rounded(Env *e, const float *x, size_t n)
{
    uint16_t *out = room(e, n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = (uint16_t)formats_encode(e->format, x[i], false);
    return out;
}

static inline float *wide(Env *e, const uint16_t *x, size_t n)
{
    float *out = room(e, n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = formats_decode(e->format, x[i]);
    return out;
}

static inline double *wider(Env *e, const uint16_t *x, size_t n)
{
    double *out = room(e, n * sizeof *out);
    for (size_t i = 0; i < n; i++) out[i] = formats_decode(e->format, x[i]);
    return out;
}

// Standard normal numbers that depend on the name alone.
static inline uint16_t *input(Env *e, const char *name, size_t n)
{
    float *x = room(e, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(rng_make(1, name, 0), i);
    return rounded(e, x, n);
}

static inline float *floats(Env *e, const char *name, size_t n)
{
    float *x = room(e, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = (float)rng_normal(rng_make(1, name, 0), i);
    return x;
}

static inline int32_t *ints(Env *e, const char *name, size_t n, int low, int high)
{
    int32_t *x = room(e, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = low + (int32_t)rng_below(rng_make(1, name, 0), i, (uint64_t)(high - low));
    return x;
}

static inline uint16_t *output(Env *e, size_t n)
{
    uint16_t *x = room(e, n * sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = UNTOUCHED;
    return x;
}

static inline void *copy(Env *e, const void *x, size_t n_bytes)
{
    return memcpy(room(e, n_bytes), x, n_bytes);
}

#define N16(n) ((n) * sizeof(uint16_t))
#define XI(x) ((const X *)(x))
#define XO(x) ((X *)(x))
#define same_bits(what, got, want, n_bytes) same_at(what, got, want, n_bytes, __LINE__)

static inline void same_at(const char *what, const void *got, const void *want, size_t n_bytes, int line)
{
    const unsigned char *a = got, *b = want;
    for (size_t i = 0; i < n_bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s (line %d): byte %zu of %zu is not what the definition gives", what, line, i, n_bytes);
}

// got[i] lies between the rounded ends of its interval. NaN fails.
static inline void between(Env *e, const char *what, const uint16_t *got, const double *ref, const double *err,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float low = nextafterf((float)(ref[i] - err[i]), -INFINITY);
        float high = nextafterf((float)(ref[i] + err[i]), INFINITY);
        float x = formats_decode(e->format, got[i]);
        low = formats_decode(e->format, formats_encode(e->format, low, false));
        high = formats_decode(e->format, formats_encode(e->format, high, false));
        if (!(low <= x && x <= high)) fail_msg("%s[%zu] is %.9g, not within [%.9g, %.9g]", what, i, x, low, high);
    }
}

static inline void near_float(const char *what, const float *got, const double *ref, const double *err, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - ref[i]) <= err[i])) fail_msg("%s[%zu] is %.9g, should be %.9g", what, i, got[i], ref[i]);
}

// Scratch grows and is kept: from here each buffer is as large as the next op asks for, so AddressSanitizer sees an op
// that asks for too little.
static inline void forget_scratch(Env *e)
{
    Narrow *n = (Narrow *)e->dev;
    for (int r = 0; r < NARROW_ROOMS; r++) {
        free(n->room[r]);
        n->room[r] = NULL, n->n_room[r] = 0;
    }
}

static inline void close_env(Env *e)
{
    while (e->n_pool) free(e->pool[--e->n_pool]);
    narrow_free(e->dev);
    dev_cpu_free(e->cpu);
}

// A check in a storage type, with all scratch and with little, on one thread and two. Products by hardware have the
// bits of the fp32 op whose order of sums is theirs: a deterministic device's. Widened ones have them while nothing is
// cut.
static inline void run_check_products(void (*check_ops)(Env *), XType type, Bf16Products products, bool deterministic)
{
    for (int small = 0; small < 2; small++)
        for (int threads = 1; threads <= 2; threads++) {
            Env e = {.cpu = dev_cpu_create(threads), .whole = !small};
            e.cpu->deterministic = deterministic;
            e.format = type == X_BF16 ? FORMAT_BF16 : FORMAT_FP16;
            e.dev = narrow_create(e.cpu, (NarrowOptions){.x_type = type, .chunk_floats = small ? SMALL : 0,
                                                         .products = products});
            e.exact = ((Narrow *)e.dev)->hardware ? deterministic : e.whole;
            check_ops(&e);
            // Scratch stays within its bound; the longest thing that is never cut is a sequence of queries.
            for (int r = 0; small && r < NARROW_ROOMS; r++)
                assert_true(((Narrow *)e.dev)->n_room[r] <= 37 * 32);
            close_env(&e);
        }
}

static inline void run_check(void (*check_ops)(Env *), XType type)
{
    run_check_products(check_ops, type, PRODUCTS_AUTO, false);
}

#define BOTH_TYPES(test, check)                                                                                        \
    TEST(test) { run_check(check, X_BF16), run_check(check, X_FP16); }

#endif
