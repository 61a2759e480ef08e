// test_systematic: are errors of rounding alone left in peace as often as promised, and are systematic ones seen?
//
//   build/test/test_systematic [N]     N tensors of each kind and shape, as doc/diff.md counts them: 10000
//
// Rounding alone: tensors whose errors are those of real products: in fp32 in two orders of sums; in bf16, fp16 and
// fp8, where operands, weights and results are rounded; and of errors that a row or a column has in common. Rows have
// different sizes. The floor, which is there for what
// clusters cannot show, is left out, and the chance of a false alarm set to 1 in 100 of all tests, so that it can be
// counted.
// deeper: 150 tensors of each kind and shape, not 30

#include "test/test.h"

#include "formats/formats.h"
#include "base/rng.h"
#include "dev/check/systematic.h"

static int trials;

typedef struct {
    const char *name;
    size_t rows, columns, terms;
} Shape;

static const Shape shapes[] = {
    {"an activation", 48, 40, 32}, {"a wide one", 16, 120, 24}, {"a gradient", 40, 40, 64}, {"a bias", 64, 1, 48}};

typedef enum { FP32, BF16, FP16, FP8, SHARED_ROW, SHARED_COLUMN, ERRORS } Errors;
static const char *const error_name[] = {"fp32, two orders", "bf16", "fp16", "fp8 operands, bf16", "an error a row",
                                         "an error a column"};

// x as an operand, and as a result that is stored.
static float narrow(Errors kind, bool operand, float x)
{
    Format f = kind == FP16 ? FORMAT_FP16 : kind == FP8 && operand ? FORMAT_E4M3 : FORMAT_BF16;
    return formats_decode(f, formats_encode(f, x, true));
}

// b (rows, columns) = x (rows, terms) w (terms, columns), whose rows and columns have sizes of their own; d: what
// another order of the sum, or a type, does to it.
static void product(const Shape *s, Errors kind, uint32_t trial, double *d, double *b)
{
    Rng rng = rng_make(7, s->name, trial * ERRORS + (uint32_t)kind);
    uint64_t at = 0;
    float *x = malloc(s->rows * s->terms * sizeof *x), *w = malloc(s->columns * s->terms * sizeof *w);
    double *row = malloc((s->rows + s->columns) * sizeof *row), *column = row + s->rows;
    assert_true(x && w && row);
    for (size_t i = 0; i < s->rows * s->terms; i++) x[i] = (float)rng_normal(rng, at++);
    for (size_t i = 0; i < s->columns * s->terms; i++) w[i] = (float)rng_normal(rng, at++);
    for (size_t r = 0; r < s->rows; r++) {
        float size = expf(0.7f * (float)rng_normal(rng, at++));
        for (size_t k = 0; k < s->terms; k++) x[r * s->terms + k] *= size;
        row[r] = 1e-4 * rng_normal(rng, at++);
    }
    for (size_t c = 0; c < s->columns; c++) column[c] = 1e-4 * rng_normal(rng, at++);
    for (size_t r = 0; r < s->rows; r++)
        for (size_t c = 0; c < s->columns; c++) {
            size_t i = r * s->columns + c;
            double exact = 0;
            float up = 0, down = 0, low = 0;
            for (size_t k = 0; k < s->terms; k++) {
                float p = x[r * s->terms + k], q = w[c * s->terms + k];
                size_t z = s->terms - 1 - k;
                exact += (double)p * q;
                up += p * q;
                down += x[r * s->terms + z] * w[c * s->terms + z];
                low += kind == FP32 ? 0 : narrow(kind, true, p) * narrow(kind, true, q);
            }
            b[i] = kind == FP32 ? up : exact;
            d[i] = kind == FP32 ? (double)down - up : kind < SHARED_ROW ? narrow(kind, false, low) - exact
                   : kind == SHARED_ROW ? row[r] * exact : column[c] * exact;
        }
    free(x);
    free(w);
    free(row);
}

static bool alarms(const Systematic *s, int k)
{
    return fabs(s->test[k].x) > s->test[k].limit;
}

// Of all tests at most 1 in 100 says that rounding is not rounding; none does at the promised 1e-6. A count that is
// expected to be m is below m + 4 sqrt(m) + 4.
TEST(test_rounding_is_left_in_peace)
{
    enum { MOST = 48 * 40 + 16 * 120 };
    double *d = malloc(2 * MOST * sizeof *d), *b = d + MOST;
    assert_non_null(d);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int kind = 0; kind < ERRORS; kind++) {
            const Shape *s = &shapes[i];
            long tests = 0, false_alarms = 0, real = 0;
            if (s->columns == 1 && kind == SHARED_COLUMN) continue; // an error of the whole: the floor's
            for (int t = 0; t < trials; t++) {
                product(s, (Errors)kind, (uint32_t)t, d, b);
                SystematicModel m = {.rows = s->rows, .columns = s->columns, .period = s->rows, .terms = INFINITY,
                                     .tests = SYSTEMATIC_ALARM / 0.01};
                Systematic often = systematic(d, b, m);
                m.tests = 1;
                Systematic once = systematic(d, b, m);
                for (int k = 0; k < SYSTEMATIC_KINDS; k++) tests += often.test[k].limit < INFINITY;
                for (int k = 0; k < SYSTEMATIC_KINDS; k++) false_alarms += alarms(&often, k);
                for (int k = 0; k < SYSTEMATIC_KINDS; k++) real += alarms(&once, k);
            }
            printf("  %-14s %-18s %7ld tests, %5ld alarms at 0.01 (%.4f), %ld at 1e-6\n", s->name, error_name[kind],
                   tests, false_alarms, tests ? (double)false_alarms / (double)tests : 0, real);
            double expected = 0.01 * (double)tests;
            assert_true((double)false_alarms <= expected + 4 * sqrt(expected * SYSTEMATIC_KINDS) + 4);
            assert_int_equal(real, 0);
        }
    free(d);
}

// ---- what must be seen

enum { R = 40, C = 48, N = R * C };

static SystematicModel plain(void)
{
    return (SystematicModel){.rows = R, .columns = C, .period = R, .terms = INFINITY, .tests = 2000,
                             .shared = 8 * 0x1p-24};
}

static void fill(double *d, double *b)
{
    for (size_t i = 0; i < N; i++) {
        b[i] = rng_normal(rng_make(1, "b", 0), i);
        d[i] = 3e-7 * rng_normal(rng_make(1, "d", 0), i);
    }
}

// Each pattern is found at a tenth of the size of a single element's rounding, and named; without it nothing is.
TEST(test_each_pattern_is_found)
{
    double d[N], b[N];
    for (int kind = -1; kind < SYSTEMATIC_KINDS; kind++) {
        fill(d, b);
        for (size_t i = 0; i < N; i++) {
            double p = 2.0 * (double)(i / C) / (R - 1) - 1, c = 2.0 * (double)(i % C) / (C - 1) - 1;
            double f[] = {b[i], 1, fabs(b[i]), p * b[i], c * b[i]};
            if (kind >= 0) d[i] += 2e-6 * f[kind];
        }
        Systematic s = systematic(d, b, plain());
        assert_int_equal(systematic_worst(&s), kind);
        if (kind >= 0) assert_true(fabs(s.test[kind].x - 2e-6) < 4 * s.test[kind].error + 1e-7); // rms(b) is near 1
        if (kind < 0) assert_true(s.seen > 4e-7 && s.seen < 6e-7);
    }
}

// An error of the size that `seen` says is found, and one of half the limit is not.
TEST(test_seen_is_true)
{
    double d[N], b[N];
    fill(d, b);
    double seen = systematic(d, b, plain()).seen, limit = systematic(d, b, plain()).test[0].limit;
    for (int k = 0; k < 2; k++) {
        fill(d, b);
        for (size_t i = 0; i < N; i++) d[i] += (k ? limit / 2 : 1.1 * seen) * b[i];
        Systematic s = systematic(d, b, plain());
        assert_int_equal(systematic_worst(&s), k ? -1 : SYSTEMATIC_SCALE);
    }
}

// The fewer tokens a gradient is the sum of, the larger a common factor may be; and since the factor makes the
// difference itself larger, with 16 tokens or fewer none is ever too large.
TEST(test_few_terms)
{
    double d[N], b[N], before = 0;
    for (int terms = 4096; terms >= 8; terms /= 2) {
        SystematicModel m = plain();
        m.terms = terms;
        fill(d, b);
        double seen = systematic(d, b, m).seen;
        assert_true(seen >= before && isinf(seen) == (terms <= 16));
        before = seen;
        for (int k = 0; k < 2 && isfinite(seen); k++) {
            fill(d, b);
            for (size_t i = 0; i < N; i++) d[i] += (k ? 1.1 : 0.5) * seen * b[i];
            Systematic s = systematic(d, b, m);
            assert_int_equal(systematic_worst(&s), k ? SYSTEMATIC_SCALE : -1);
        }
        for (size_t i = 0; i < N; i++) d[i] = 1e-3 * b[i]; // no rounding at all
        Systematic s = systematic(d, b, m);
        assert_int_equal(systematic_worst(&s), isinf(seen) ? -1 : SYSTEMATIC_SCALE);
    }
}

// Where one row has all the weight, its error is that of the whole: nothing can be told, and nothing is said.
TEST(test_too_few_clusters)
{
    double d[N], b[N];
    fill(d, b);
    for (size_t i = 0; i < N; i++) b[i] = i / C == 3 ? 1 : 1e-6, d[i] = i / C == 3 ? 1e-3 : 0;
    SystematicModel m = plain();
    Systematic s = systematic(d, b, m);
    assert_true(isinf(s.test[SYSTEMATIC_SCALE].limit) && isinf(s.seen));
    assert_int_equal(systematic_worst(&s), -1);
}

TEST(test_no_numbers)
{
    double d[N], b[N];
    fill(d, b);
    d[5] = NAN;
    assert_int_equal(systematic_worst(&(Systematic){0}), -1);
    Systematic s = systematic(d, b, plain());
    assert_int_equal(systematic_worst(&s), -1); // the bound of the elements fails it
    memset(d, 0, sizeof d);
    assert_true(systematic(d, b, plain()).seen == 0);
    memset(b, 0, sizeof b);
    assert_true(isinf(systematic(d, b, plain()).seen));
}

// Against tables of Student's distribution: never less, and little more.
TEST(test_student)
{
    const double rows[][3] = {{0.01, 5, 4.0321}, {0.01, 30, 2.7500}, {1e-6, 10, 10.5165}, {1e-6, 100, 5.21373},
                              {4e-10, 30, 9.09214}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double t = systematic_t(rows[i][0], rows[i][1]);
        assert_true(t >= 0.9999 * rows[i][2] && t < 1.013 * rows[i][2]);
    }
}

int main(int argc, char **argv)
{
    trials = argc > 1 ? atoi(argv[1]) : deeper() ? 150 : 30;
    return RUN_TESTS(NULL, NULL);
}
