// test_formats: every pattern and every rounding edge against what PyTorch gives (test/fixtures/formats.safetensors;
// dev/reference/make_formats.py states the rules for the inputs), a second, slow encoder in plain arithmetic, the
// arrays against the scalars, the table against the published numbers, and sums of squares that do not depend on the
// order.
#include "test/test.h"

#include "fixture.h"
#include "formats/formats.h"
#include "tools/safetensors.h"
#include "dev/plan/plan.h"
#include "base/rng.h"
#include "expect_die.h"
#include "formats/fp8.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

OWNER(Fixture, fixture_close)

static const char *const key[FORMAT_COUNT] = {"fp32", "tf32", "bf16", "fp16", "e4m3", "e5m2"};

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static bool is_nan_pattern(Format f, uint32_t pattern)
{
    uint32_t a = pattern & (formats_sign(f) - 1), overflow = formats_overflow(f);
    return f == FORMAT_E4M3 ? a == overflow : a > overflow;
}

static float sweep(uint32_t k)
{
    return float_of(k * 4099u);
}

// The number of pattern a >= 0 by its definition; of the first that is not finite: a step above the largest.
static double value(Format f, uint32_t a)
{
    int mantissa = (int)FORMATS_LAYOUT[f].mantissa, bias = formats_bias(f);
    int E = (int)(a >> mantissa), M = (int)(a & ((1u << mantissa) - 1));
    return E ? ldexp((1 << mantissa) + M, E - bias - mantissa) : ldexp(M, 1 - bias - mantissa);
}

// The slow encoder: divide by the distance between neighbours, rint (to nearest even), multiply. Every step
// but rint is exact in double, and the quotient is odd exactly when the pattern is.
static uint32_t slow_encode(Format f, double x, bool saturate)
{
    int mantissa = (int)FORMATS_LAYOUT[f].mantissa, bias = formats_bias(f);
    uint32_t sign = signbit(x) ? formats_sign(f) : 0, top = formats_overflow(f) - 1;
    if (isnan(x)) return sign | formats_nan(f);
    double a = fabs(x), largest = value(f, top);
    int exponent = a >= ldexp(1, 1 - bias) ? ilogb(a) : 1 - bias;
    if (!isinf(x)) a = ldexp(rint(ldexp(a, mantissa - exponent)), exponent - mantissa);
    if (a > largest) return sign | (saturate ? top : top + 1);
    exponent = a >= ldexp(1, 1 - bias) ? ilogb(a) : 1 - bias; // rounding may have reached the next power
    uint32_t count = (uint32_t)ldexp(a, mantissa - exponent);
    return sign | (((uint32_t)(exponent + bias - 1) << mantissa) + count);
}

static void expect_pattern(Format f, float x, uint32_t got, uint32_t wanted, const char *what)
{
    if (got != wanted)
        fail_msg("%s: %s of %.9g (0x%08x) gave 0x%x, wanted 0x%x", key[f], what, (double)x, bits_of(x), got, wanted);
}

// Without and with saturation: what the fixture's names end in.
static const char *const suffix[2] = {"", "_sat"};

// The results for `n` inputs, as they are stored, have the hash that the fixture names.
static void expect_hash(const Fixture *fx, const char *name, const void *data, size_t n_bytes)
{
    char hash[ST_HASH];
    safetensors_hash(hash, data, n_bytes);
    if (strcmp(hash, fixture_text(fx, name)) != 0)
        fail_msg("%s: hash %s, PyTorch's results have %s", name, hash, fixture_text(fx, name));
}

static void put(void *out, size_t bytes, size_t i, uint32_t pattern)
{
    if (bytes == 1) ((uint8_t *)out)[i] = (uint8_t)pattern;
    else if (bytes == 2) ((uint16_t *)out)[i] = (uint16_t)pattern;
    else ((uint32_t *)out)[i] = pattern;
}

// A pattern for the fixture: NaN is one below the sign bit.
static uint32_t plain(Format f, uint32_t pattern)
{
    return is_nan_pattern(f, pattern) ? formats_sign(f) - 1 : pattern;
}

TEST(test_decode)
{
    OWN(Fixture) *fx = fixture_open("formats");
    for (Format f = FORMAT_TF32; f < FORMAT_COUNT; f++) {
        uint32_t n = formats_sign(f) * 2, overflow = formats_overflow(f);
        FREED uint32_t *out = (uint32_t *)zeroed(n * sizeof *out);
        for (uint32_t p = 0; p < n; p++) {
            float x = formats_decode(f, p);
            uint32_t a = p & (formats_sign(f) - 1);
            out[p] = is_nan_pattern(f, p) ? 0x7fc00000u : bits_of(x);
            // The definition, the sign, and back again.
            if (isnan(x) != is_nan_pattern(f, p)) fail_msg("%s: 0x%x decodes to %g", key[f], p, (double)x);
            if (!signbit(x) != (p < formats_sign(f))) fail_msg("%s: 0x%x has the wrong sign", key[f], p);
            if (a < overflow && fabs((double)x) != value(f, a))
                fail_msg("%s: 0x%x decodes to %g, not %g", key[f], p, (double)x, value(f, a));
            uint32_t again = isnan(x) ? (p & formats_sign(f)) | formats_nan(f) : p;
            expect_pattern(f, x, formats_encode(f, x, false), again, "encode");
            if (!isinf(x)) expect_pattern(f, x, formats_encode(f, x, true), again, "saturating encode");
        }
        char name[32];
        snprintf(name, sizeof name, "%s/decode", key[f]);
        if (n == 256) assert_memory_equal(out, fixture_i32(fx, name, n), n * sizeof *out);
        expect_hash(fx, name, out, n * sizeof *out);
    }
}

// Every number, the middle to the next one, and the floats on both sides of the middle; both signs.
TEST(test_encode_edges)
{
    OWN(Fixture) *fx = fixture_open("formats");
    for (Format f = FORMAT_TF32; f < FORMAT_COUNT; f++) {
        size_t n = formats_overflow(f), bytes = formats_bytes(f);
        void *out[2] = {zeroed(8 * n * bytes), zeroed(8 * n * bytes)};
        for (size_t p = 0; p < n; p++) {
            double v = value(f, (uint32_t)p), w = value(f, (uint32_t)p + 1);
            float middle = (float)((v + w) / 2);
            float x[4] = {(float)v, nextafterf(middle, -INFINITY), middle, nextafterf(middle, INFINITY)};
            for (size_t j = 0; j < 8; j++) {
                float at = j < 4 ? x[j] : -x[j - 4];
                size_t row = j < 4 ? 4 * p + j : 4 * n + 4 * p + j - 4;
                for (int sat = 0; sat < 2; sat++) {
                    uint32_t pattern = formats_encode(f, at, sat);
                    expect_pattern(f, at, pattern, slow_encode(f, at, sat), "encode");
                    put(out[sat], bytes, row, plain(f, pattern));
                }
            }
        }
        for (int sat = 0; sat < 2; sat++) {
            char name[32];
            snprintf(name, sizeof name, "%s/edges%s", key[f], suffix[sat]);
            if (bytes == 1) {
                const int32_t *wanted = fixture_i32(fx, name, 8 * n);
                for (size_t j = 0; j < 8 * n; j++) assert_int_equal(((uint8_t *)out[sat])[j], wanted[j]);
            }
            expect_hash(fx, name, out[sat], 8 * n * bytes);
            free(out[sat]);
        }
    }
}

// Floats over the whole range of fp32, denormals, Inf and NaN among them.
TEST(test_encode_sweep)
{
    OWN(Fixture) *fx = fixture_open("formats");
    const uint32_t n = 1u << 20;
    const int32_t *sample = fixture_i32(fx, "sample", n / 4096);
    for (Format f = FORMAT_TF32; f < FORMAT_COUNT; f++) {
        size_t bytes = formats_bytes(f);
        FREED void *out = zeroed(n * bytes);
        for (int sat = 0; sat < 2; sat++) {
            char name[32];
            snprintf(name, sizeof name, "%s/sample%s", key[f], suffix[sat]);
            const int32_t *wanted = fixture_i32(fx, name, n / 4096);
            for (uint32_t k = 0; k < n; k++) {
                float x = sweep(k);
                uint32_t pattern = formats_encode(f, x, sat);
                put(out, bytes, k, plain(f, pattern));
                if (k % 4096) continue;
                assert_int_equal(bits_of(x), (uint32_t)sample[k / 4096]);
                expect_pattern(f, x, plain(f, pattern), (uint32_t)wanted[k / 4096], "encode");
            }
            snprintf(name, sizeof name, "%s/sweep%s", key[f], suffix[sat]);
            expect_hash(fx, name, out, n * bytes);
        }
    }
}

// Inf, without and with saturation; what lies between numbers, and the largest of them: test_encode_edges.
TEST(test_encode_not_finite)
{
    static const struct { Format f; float x; uint32_t free, saturated; } row[] = {
        {FORMAT_FP32, INFINITY, 0x7f800000, 0x7f7fffff}, {FORMAT_TF32, INFINITY, 0x3fc00, 0x3fbff},
        {FORMAT_BF16, INFINITY, 0x7f80, 0x7f7f},         {FORMAT_FP16, -INFINITY, 0xfc00, 0xfbff},
        {FORMAT_E4M3, -INFINITY, 0xff, 0xfe},            {FORMAT_E5M2, INFINITY, 0x7c, 0x7b},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        expect_pattern(row[i].f, row[i].x, formats_encode(row[i].f, row[i].x, false), row[i].free, "encode");
        expect_pattern(row[i].f, row[i].x, formats_encode(row[i].f, row[i].x, true), row[i].saturated, "encode");
    }
    // NaN stays NaN with its sign, whatever its payload, saturating or not, whatever the random word.
    static const uint32_t nan[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff};
    for (Format f = FORMAT_TF32; f < FORMAT_COUNT; f++)
        for (size_t i = 0; i < 6; i++)
            for (int sat = 0; sat < 2; sat++) {
                float x = float_of(nan[i]);
                uint32_t wanted = formats_nan(f) | (nan[i] >> 31 ? formats_sign(f) : 0);
                assert_true(is_nan_pattern(f, wanted));
                assert_int_equal(formats_encode(f, x, sat), wanted);
            }
}

TEST(test_arrays)
{
    static const size_t lengths[] = {0, 1, 7, 33, 4095, 4096, 4097, 50001};
    const size_t most = 50001;
    FREED float *in = (float *)zeroed(most * sizeof *in), *back = (float *)zeroed((most + 1) * sizeof *back);
    for (size_t k = 0; k < most; k++) in[k] = sweep((uint32_t)k * 83 + 5);
    for (Format f = FORMAT_FP32; f < FORMAT_COUNT; f++) {
        size_t bytes = formats_bytes(f), up = f == FORMAT_TF32 ? 13 : 0;
        unsigned char *out = (unsigned char *)zeroed((most + 1) * bytes);
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            size_t n = lengths[l];
            bool saturate = l & 1;
            memset(out, 0xa5, (most + 1) * bytes);
            memset(back, 0xa5, (most + 1) * sizeof *back);
            formats_from_float(out, f, in, n, saturate);
            formats_to_float(back, f, out, n);
            for (size_t k = 0; k < n; k++) {
                uint32_t pattern = 0;
                memcpy(&pattern, out + k * bytes, bytes);
                expect_pattern(f, in[k], pattern, formats_encode(f, in[k], saturate) << up, "array");
                float x = formats_decode(f, pattern >> up);
                assert_int_equal(bits_of(back[k]), bits_of(x));
                if (f == FORMAT_TF32) assert_int_equal(bits_of(x), pattern); // stored as the float it is
            }
            bool touched = false; // nothing after the array, near or far
            for (size_t k = n * bytes; k < (most + 1) * bytes; k++) touched |= out[k] != 0xa5;
            for (size_t k = n; k <= most; k++) touched |= bits_of(back[k]) != 0xa5a5a5a5u;
            assert_false(touched);
        }
        free(out);
    }
}

// Against the numbers of IEEE 754, of the OCP 8-bit floating point specification (table 1) and <float.h>.
TEST(test_info)
{
    static const FormatInfo row[FORMAT_COUNT] = {
        {"fp32", "", 32, 8, 23, 127, true, FLT_MAX, FLT_MIN, FLT_TRUE_MIN, FLT_EPSILON, 7.22472},
        {"tf32", "", 19, 8, 10, 127, true, 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10, 3.31133},
        {"bf16", "", 16, 8, 7, 127, true, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7, 2.40824},
        {"fp16", "", 16, 5, 10, 15, true, 65504, 0x1p-14, 0x1p-24, 0x1p-10, 3.31133},
        {"fp8 E4M3", "", 8, 4, 3, 7, false, 448, 0x1p-6, 0x1p-9, 0x1p-3, 1.20412},
        {"fp8 E5M2", "", 8, 5, 2, 15, true, 57344, 0x1p-14, 0x1p-16, 0x1p-2, 0.90309},
    };
    FREED char *text = PRINTED(out, plan_print_formats(out));
    size_t n_lines = 0;
    for (const char *c = text; *c; c++) n_lines += *c == '\n';
    assert_int_equal(n_lines, 1 + FORMAT_COUNT);
    for (int i = 0; i < FORMAT_COUNT; i++) {
        FormatInfo info = plan_format((Format)i);
        assert_string_equal(info.name, row[i].name);
        assert_true(info.bits == row[i].bits && info.bias == row[i].bias && info.has_inf == row[i].has_inf);
        assert_true(info.exponent == row[i].exponent && info.mantissa == row[i].mantissa);
        assert_true(info.max == row[i].max && info.min_normal == row[i].min_normal);
        assert_true(info.min_denormal == row[i].min_denormal && info.epsilon == row[i].epsilon);
        assert_true(fabs(info.digits - row[i].digits) <= 0.5e-5); // what the table above leaves out
        char wanted[64];
        snprintf(wanted, sizeof wanted, "\n%-8s %4d %4d %4d %5d %4s %11.6g ", row[i].name, row[i].bits,
                 row[i].exponent, row[i].mantissa, row[i].bias, row[i].has_inf ? "yes" : "no", row[i].max);
        if (!strstr(text, wanted)) fail_msg("no line '%s' in:\n%s", wanted + 1, text);
    }
}

// ---- exact sum: formats.h's sums of squares, which do not depend on the order.

enum { N = 100000 };

// Numbers of all sizes: any finite bits, every fourth one near 1.
static float *numbers(void)
{
    float *x = malloc(N * sizeof *x);
    Rng rng = rng_make(7, "numbers", 0);
    assert_non_null(x);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t word[4];
        rng_words(rng, i, word);
        if (i % 4 == 0) word[0] = (word[0] & 0x007fffff) | 0x3f800000;
        memcpy(&x[i], &word[0], sizeof x[i]);
        if (!isfinite(x[i])) x[i] = 1;
    }
    return x;
}

static void assert_same(const ExactSum *a, const ExactSum *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

TEST(test_no_order_matters)
{
    float *x = numbers();
    ExactSum whole = {{0}}, back = {{0}}, parts = {{0}};
    formats_sum_squares(&whole, x, N);
    for (size_t i = 0; i < N; i++) formats_sum_squares(&back, &x[N - 1 - i], 1);
    assert_same(&whole, &back);
    for (size_t i = 0, n = 1; i < N; i += n, n = n * 3 + 1) {
        ExactSum part = {{0}};
        formats_sum_squares(&part, x + i, N - i < n ? N - i : n);
        formats_sum_add(&parts, &part);
    }
    assert_same(&whole, &parts);
    ExactSum words = {{0}};
    for (size_t i = 0; i < N; i += N / 4) { // as an all_reduce adds them
        ExactSum part = {{0}};
        formats_sum_squares(&part, x + i, N / 4);
        for (int w = 0; w < EXACT_WORDS; w++) words.word[w] += part.word[w];
    }
    assert_true(formats_sum_value(&words) == formats_sum_value(&whole));
    free(x);
}

// Small integers: every sum below 2^53 is exact in a double too.
TEST(test_is_the_sum)
{
    ExactSum sum = {{0}};
    assert_true(formats_sum_value(&sum) == 0);
    double expected = 0;
    for (int i = 1; i <= 3000; i++) {
        float x = (float)(i % 2 ? i : -i);
        formats_sum_squares(&sum, &x, 1);
        expected += (double)x * (double)x;
        assert_true(formats_sum_value(&sum) == expected);
    }
}

TEST(test_ends_of_the_range)
{
    float tiny = nextafterf(0, 1), huge = FLT_MAX;
    ExactSum small = {{0}}, large = {{0}}, both = {{0}};
    formats_sum_squares(&small, &tiny, 1);
    assert_true(formats_sum_value(&small) == ldexp(1, -298));
    formats_sum_squares(&large, &huge, 1);
    assert_true(formats_sum_value(&large) == (double)huge * (double)huge);
    float odd = 5 * tiny, square; // all bits of a square's double are there, and none is written below the first limb
    struct { int64_t before; ExactSum sum; } guarded = {.before = 7};
    for (int k = 0; k < 24; k++, odd = 2 * odd + tiny) {
        formats_sum_squares(&guarded.sum, &odd, 1);
        assert_int_equal(guarded.before, 7);
    }
    square = (float)formats_sum_value(&guarded.sum);
    assert_true(square == 0); // too small for fp32
    for (int i = 0; i < 1000; i++) formats_sum_squares(&both, &huge, 1);
    formats_sum_squares(&both, &tiny, 1); // 2^554 smaller, and not lost
    assert_true(memcmp(&both, &large, sizeof both) != 0);
    assert_true(both.word[0] == small.word[0]);
    assert_true(formats_sum_value(&both) == 1000 * ((double)huge * (double)huge));
}

// Against sums in long double: each of n additions rounds by at most 2^-64 of the sum, the result is cut by 2^-52.
TEST(test_near_a_rounded_sum)
{
    Rng rng = rng_make(3, "near", 0);
    float x[1000];
    long double expected = 0;
    ExactSum sum = {{0}};
    for (uint32_t i = 0; i < 1000; i++) {
        uint32_t word[4];
        rng_words(rng, i, word);
        x[i] = (float)word[0] / 4294967296.0f - 0.5f;
        expected += (long double)x[i] * (long double)x[i];
    }
    formats_sum_squares(&sum, x, 1000);
    long double error = fabsl((long double)formats_sum_value(&sum) - expected);
    assert_true(error <= expected * (1000 * 0x1p-64L + 0x1p-52L));
}

TEST(test_not_finite)
{
    float bad[] = {1, NAN, 2}, worse[] = {1, INFINITY}, signed_nan[] = {1, copysignf(NAN, -1)}; // 0 * inf on x86
    ExactSum sum = {{0}}, more = {{0}}, fine = {{0}}, third = {{0}};
    formats_sum_squares(&sum, bad, 3);
    assert_true(isnan(formats_sum_value(&sum)));
    formats_sum_squares(&more, worse, 2);
    assert_true(isnan(formats_sum_value(&more)));
    formats_sum_squares(&third, signed_nan, 2);
    assert_true(isnan(formats_sum_value(&third)));
    formats_sum_squares(&fine, bad, 1);
    formats_sum_add(&fine, &sum);
    assert_true(isnan(formats_sum_value(&fine)));
}

// ---- fp8: per-tensor scales: which tensors have one, what they are from step to step, and what survives a resume.  A
// scale is one float32 division of the format's largest number by an amax, so all comparisons are exact.

enum { Q = 1, DOWN = 5, Q1 = 6 }; // rows of the table

static Params table(void)
{
    Params p = {0};
    params_add(&p, 0, "embed.tokens.weight", 2, 10, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.attn.q.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.attn.k.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.attn.v.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 1, "layers.0.ffn_norm.weight", 1, 4, 0, 1, 0, false, -1);
    params_add(&p, 1, "layers.0.ffn.down.weight", 2, 4, 8, 0, 1, true, 1);
    params_add(&p, 2, "layers.1.attn.q.weight", 2, 4, 4, 0, 1, true, 0);
    params_add(&p, 3, "head.weight", 2, 10, 4, 0, 1, true, 0);
    return p;
}

typedef struct {
    Fp8 *fp8;
} Case;

static Case open_case(Fp8Scaling scaling, int history, Params *params)
{
    *params = table();
    Case c = {.fp8 = fp8_create(scaling, history)};
    fp8_set_sites(c.fp8, params, NULL);
    return c;
}

static void close_case(Case *c, Params *params)
{
    fp8_free(c->fp8);
    params_free(params);
}

TEST(test_sites)
{
    Params p = table();
    Fp8 *all = fp8_create(FP8_CURRENT, 1), *some = fp8_create(FP8_CURRENT, 1);
    assert_false(fp8_runs(all, Q)); // none before they are set
    fp8_set_sites(all, &p, "");
    fp8_set_sites(some, &p, "layers.1.,ffn.down");
    const bool want_all[] = {false, true, true, true, false, true, true, false};
    const bool want_some[] = {false, true, true, true, false, false, false, false};
    for (int i = 0; i < p.n_rows; i++) {
        assert_int_equal(fp8_runs(all, i), want_all[i]);
        assert_int_equal(fp8_runs(some, i), want_some[i]);
    }
    assert_false(fp8_runs(all, -1));
    assert_false(fp8_runs(all, p.n_rows));
    fp8_free(all);
    fp8_free(some);
    params_free(&p);
}

static void keep(const char *names)
{
    Params p = table();
    fp8_set_sites(fp8_create(FP8_CURRENT, 1), &p, names);
}

TEST(test_errors)
{
    expect_dies("'layers.7.' is in no name of a block's matrix", keep("layers.7."));
    expect_dies("'ffn_norm' is in no name", keep("ffn_norm")); // a vector
    expect_dies("'head' is in no name", keep("head"));         // never in fp8 anyway
    expect_dies("'' is no part", keep("ffn.down,,attn.q"));
    expect_dies("amax history of 0 steps", fp8_create(FP8_DELAYED, 0));
}

TEST(test_formats_by_role)
{
    assert_int_equal(fp8_format(FP8_INP), FORMAT_E4M3);
    assert_int_equal(fp8_format(FP8_WEIGHT), FORMAT_E4M3);
    assert_int_equal(fp8_format(FP8_DOUT), FORMAT_E5M2);
}

TEST(test_current_scale_is_of_this_tensor)
{
    Params p;
    Case c = open_case(FP8_CURRENT, 4, &p);
    for (int step = 0; step < 3; step++) {
        fp8_step_begin(c.fp8);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, 7.0f) == 448 / 7.0f);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, 0.1f) == 448 / 0.1f);
        assert_true(fp8_scale(c.fp8, Q, FP8_DOUT, 3e-6f) == 57344 / 3e-6f);
        assert_true(fp8_step_end(c.fp8));
    }
    assert_true(fp8_scale(c.fp8, Q, FP8_INP, 0) == 1); // zeros: any scale will do, and none is infinite
    for (float tiny = 1e-45f; tiny < 1e-30f; tiny *= 1000) {
        float s = fp8_scale(c.fp8, Q, FP8_WEIGHT, tiny);
        assert_true(s <= FLT_MAX && 1 / s > 0);
    }
    close_case(&c, &p);
}

// The scale of step s is the largest amax of steps s - history .. s - 1, whatever this step brings.
TEST(test_delayed_scale_follows_the_history)
{
    enum { HISTORY = 3, STEPS = 12 };
    const float amax[STEPS] = {2, 8, 4, 1, 0.5f, 0.25f, 16, 1, 1, 1, 1, 3};
    Params p;
    Case c = open_case(FP8_DELAYED, HISTORY, &p);
    for (int step = 0; step < STEPS; step++) {
        float top = 0;
        for (int k = step - HISTORY; k < step; k++)
            if (k >= 0 && amax[k] > top) top = amax[k];
        float want = step == 0 ? 448 / (amax[0] / 2) : 448 / top; // nothing known: this tensor's own
        fp8_step_begin(c.fp8);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, amax[step] / 2) == want);
        if (step > 0) { // a second micro-batch has the same scale, and its amax counts
            assert_true(fp8_scale(c.fp8, Q, FP8_INP, amax[step]) == want);
            assert_true(fp8_scale(c.fp8, Q, FP8_INP, amax[step] / 4) == want);
        } else {
            fp8_scale(c.fp8, Q, FP8_INP, amax[step]);
        }
        assert_true(fp8_step_end(c.fp8));
    }
    // Sites and roles do not mix: these were never seen.
    assert_true(fp8_scale(c.fp8, Q, FP8_WEIGHT, 7.0f) == 64);
    assert_true(fp8_scale(c.fp8, DOWN, FP8_INP, 7.0f) == 64);
    close_case(&c, &p);
}

// What runs between two steps leaves nothing behind.
TEST(test_evaluation_is_forgotten)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 2, &p);
    fp8_step_begin(c.fp8);
    fp8_scale(c.fp8, Q, FP8_INP, 2);
    assert_true(fp8_step_end(c.fp8));
    assert_true(fp8_scale(c.fp8, Q, FP8_INP, 1000) == 224); // evaluation, with an outlier
    assert_true(fp8_scale(c.fp8, Q, FP8_INP, INFINITY) == 224);
    for (int step = 0; step < 3; step++) {
        fp8_step_begin(c.fp8);
        assert_true(fp8_scale(c.fp8, Q, FP8_INP, 2) == 224);
        assert_true(fp8_step_end(c.fp8));
    }
    close_case(&c, &p);
}

// NaN and infinity mark the step; neither they nor the rest of that step enter the history.
TEST(test_bad_step)
{
    const float bad[] = {INFINITY, NAN};
    for (int i = 0; i < 2; i++)
        for (int scaling = FP8_CURRENT; scaling <= FP8_DELAYED; scaling++) {
            Params p;
            Case c = open_case((Fp8Scaling)scaling, 2, &p);
            fp8_step_begin(c.fp8);
            fp8_scale(c.fp8, Q, FP8_INP, 2);
            assert_true(fp8_step_end(c.fp8));
            fp8_step_begin(c.fp8);
            float s = fp8_scale(c.fp8, Q, FP8_INP, bad[i]);
            assert_true(s == (scaling == FP8_DELAYED ? 224 : 1));
            fp8_scale(c.fp8, Q, FP8_INP, 1e30f);
            assert_false(fp8_step_end(c.fp8));
            fp8_step_begin(c.fp8);
            assert_true(fp8_scale(c.fp8, Q, FP8_INP, 2) == 224);
            assert_true(fp8_step_end(c.fp8)); // the mark is gone
            close_case(&c, &p);
        }
}

// A step in which a tensor was not used, or was all zeros, is not a step of its history.
TEST(test_unused_tensor_keeps_its_history)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 2, &p);
    fp8_step_begin(c.fp8);
    fp8_scale(c.fp8, Q, FP8_DOUT, 7);
    fp8_step_end(c.fp8);
    for (int step = 0; step < 5; step++) {
        fp8_step_begin(c.fp8);
        if (step % 2) assert_true(fp8_scale(c.fp8, Q, FP8_DOUT, 0) == 8192);
        fp8_step_end(c.fp8);
    }
    assert_true(fp8_scale(c.fp8, Q, FP8_DOUT, 1) == 8192);
    close_case(&c, &p);
}

// A device that looks at its tensors by itself: it asks what is known, and what it noted comes when it is fetched.
static void fetch(Fp8 *fp8, void *amax)
{
    fp8_note(fp8, Q, FP8_INP, *(const float *)amax);
}

TEST(test_noted_elsewhere)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 2, &p);
    float amax = 7;
    c.fp8->fetch = fetch, c.fp8->fetch_arg = &amax;
    long changes = c.fp8->changes;
    fp8_step_begin(c.fp8);
    assert_true(c.fp8->changes > changes);
    changes = c.fp8->changes;
    assert_true(fp8_known(c.fp8, Q, FP8_INP) == 0);
    fp8_collect(c.fp8);
    assert_true(c.fp8->now[Q * FP8_ROLES + FP8_INP] == 7);
    assert_true(c.fp8->changes == changes); // what is known is what it was
    assert_true(fp8_step_end(c.fp8));
    assert_true(c.fp8->changes > changes && fp8_known(c.fp8, Q, FP8_INP) == 7);
    assert_true(fp8_scale_for(FP8_INP, 7) == 64);
    amax = INFINITY;
    fp8_step_begin(c.fp8);
    assert_false(fp8_step_end(c.fp8)); // which fetches
    assert_true(fp8_known(c.fp8, Q, FP8_INP) == 7);
    changes = c.fp8->changes;
    size_t n;
    fp8_state(c.fp8, &n); // may be written to
    assert_true(c.fp8->changes > changes);
    close_case(&c, &p);
}

// A copy scales as the original does, whatever it held before.
TEST(test_copy)
{
    Params p;
    Case c = open_case(FP8_DELAYED, 3, &p);
    Fp8 *copy = fp8_create(FP8_DELAYED, 3);
    for (int step = 0; step < 3; step++) {
        fp8_step_begin(c.fp8);
        fp8_scale(c.fp8, Q, FP8_WEIGHT, 1 + (float)step);
        fp8_scale(c.fp8, DOWN, FP8_DOUT, NAN);
        fp8_copy(copy, c.fp8);
        assert_true(copy->bad && fp8_runs(copy, Q) && !fp8_runs(copy, p.n_rows - 1));
        assert_true(copy->now[Q * FP8_ROLES + FP8_WEIGHT] == 1 + (float)step);
        c.fp8->bad = false;
        assert_true(fp8_step_end(c.fp8));
        fp8_copy(copy, c.fp8);
        assert_true(fp8_known(copy, Q, FP8_WEIGHT) == 1 + (float)step);
        fp8_scale(copy, Q, FP8_WEIGHT, 100); // forgotten by the next copy
    }
    fp8_free(copy);
    close_case(&c, &p);
}

// Save after any step, restore into a fresh one: all later scales are the same.
TEST(test_resume)
{
    enum { STEPS = 9 };
    for (int stop = 0; stop < STEPS; stop++) {
        Params p, p2;
        Case whole = open_case(FP8_DELAYED, 4, &p), cut = open_case(FP8_DELAYED, 4, &p2);
        for (int step = 0; step < STEPS; step++) {
            if (step == stop) {
                size_t n, m;
                float *from = fp8_state(cut.fp8, &n);
                Fp8 *fresh = fp8_create(FP8_DELAYED, 4);
                fp8_set_sites(fresh, &p2, NULL);
                float *to = fp8_state(fresh, &m);
                assert_int_equal(n, m);
                assert_int_equal(n, 8 * FP8_ROLES * 4);
                memcpy(to, from, n * sizeof *to);
                fp8_free(cut.fp8);
                cut.fp8 = fresh;
            }
            fp8_step_begin(whole.fp8);
            fp8_step_begin(cut.fp8);
            for (int role = 0; role < FP8_ROLES; role++)
                for (int site = Q; site <= Q1; site += DOWN - Q) {
                    float amax = (float)((step * 7 + role * 3 + site) % 5) + 0.5f;
                    assert_true(fp8_scale(whole.fp8, site, (Fp8Role)role, amax) ==
                                fp8_scale(cut.fp8, site, (Fp8Role)role, amax));
                }
            assert_true(fp8_step_end(whole.fp8) && fp8_step_end(cut.fp8));
        }
        close_case(&whole, &p);
        close_case(&cut, &p2);
    }
}

TESTS(NULL, NULL)
