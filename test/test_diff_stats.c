// test_diff_stats: the derived bound at its edges, where errors hide (one element, one row, all a little), NaN, ULPs of
// types that differ, updates, and random rounding, which must pass.
#include "test/test.h"

#include "dev/check/diff.h"
#include "base/rng.h"

enum { ROWS = 40, COLUMNS = 50, N = ROWS * COLUMNS };
static const size_t shape[] = {ROWS, COLUMNS};

static SafeTensor tensor_of(const float *x)
{
    return (SafeTensor){.name = "x", .dtype = ST_F32, .ndim = 2, .shape = shape, .data = x, .n_elems = N,
                        .n_bytes = N * sizeof *x};
}

// Normal numbers with rms 1; one row is a hundred times larger, one a hundred times smaller.
static void fill(float *x)
{
    for (size_t i = 0; i < N; i++) {
        x[i] = (float)rng_normal(rng_make(1, "x", 0), i);
        if (i / COLUMNS == 3) x[i] *= 100;
        if (i / COLUMNS == 4) x[i] /= 100;
    }
}

static double ratio(const float *a, const float *b, double error, double floor)
{
    SafeTensor x = tensor_of(a), y = tensor_of(b);
    DiffStats s = diff_stats(&x, &y, ST_F32, ST_F32,
                             (DiffStatsBound){.mode = DIFF_STATS_DERIVED, .error = error, .floor = floor});
    assert_int_equal(s.n, N);
    assert_true((s.n_out > 0) <= !(s.ratio <= 1));
    return s.ratio;
}

static double rms(const float *x, size_t n, size_t stride)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i * stride] * x[i * stride];
    return sqrt(sum / (double)n);
}

// Errors of the size that is expected are 1 / S = a quarter of the bound of the whole; ten times that is out.
TEST(test_size_of_errors)
{
    const double e = 1e-4;
    float a[N], b[N];
    fill(b);
    for (int k = 0; k < 2; k++) {
        double scale = (k ? 10 * e : e) * rms(b, N, 1);
        for (size_t i = 0; i < N; i++) a[i] = (float)(b[i] + scale * rng_normal(rng_make(2, "error", 0), i));
        double r = ratio(a, b, e, 0);
        assert_true(k ? r > 1 : r > 0.2 && r < 0.3);
    }
}

// One element off: by up to 4 e sqrt(2 ln(2e6 N)) times the largest of its own size, its row's, its column's and the
// whole's.
TEST(test_one_element)
{
    const double e = 1e-5, limit = 4 * e * sqrt(2 * log(2e6 * N));
    const size_t at[] = {0, 17, 4 * COLUMNS + 1, 3 * COLUMNS + 2, N - 1};
    float a[N], b[N];
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        for (int k = 0; k < 2; k++) {
            fill(b);
            for (size_t r = 0; r < ROWS; r++) b[r * COLUMNS + 17] *= 5; // a column that is larger
            double row = rms(b + at[i] / COLUMNS * COLUMNS, COLUMNS, 1);
            double column = rms(b + at[i] % COLUMNS, ROWS, COLUMNS);
            double scale = fmax(fmax(row, column), fmax(rms(b, N, 1), fabs(b[at[i]])));
            memcpy(a, b, sizeof a);
            a[at[i]] += (float)((k ? 1.01 : 0.99) * limit * scale);
            double got = ratio(a, b, e, 0);
            if (k == 0 ? !(got > 0.98 && got <= 1) : got <= 1)
                fail_msg("element %zu, %d: %g of the bound", at[i], k, got);
        }
}

TEST(test_not_finite)
{
    float a[N], b[N];
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        fill(b);
        memcpy(a, b, sizeof a);
        a[7] = bad[i];
        assert_false(ratio(a, b, 1e30, 0) <= 1);
        assert_false(ratio(b, a, 1e30, 0) <= 1);
        assert_true(ratio(a, a, 1e-5, 0) == 0);
    }
}

// Neighbours in bf16 are one ULP apart, whoever is compared with them, and half of one is rounded.
TEST(test_ulps_of_the_coarser)
{
    const uint16_t narrow[] = {0x3f80, 0x3f81, 0x4000, 0xbf80};                 // 1, 1 + 2^-7, 2, -1
    const float wide[] = {1, 1, 2 + 0x1p-8f, -1 + 0x1p-9f};
    const size_t n = 4;
    SafeTensor a = {.dtype = ST_BF16, .ndim = 1, .shape = &n, .data = narrow, .n_elems = n, .n_bytes = 8};
    SafeTensor b = {.dtype = ST_F32, .ndim = 1, .shape = &n, .data = wide, .n_elems = n, .n_bytes = 16};
    DiffStats s = diff_stats(&a, &b, ST_BF16, ST_F32, (DiffStatsBound){.mode = DIFF_STATS_GIVEN});
    assert_int_equal(s.bucket[0], 2); // 1; 2 + 2^-8 is a quarter of bf16's step at 2
    assert_int_equal(s.bucket[1], 2); // 1 + 2^-7 against 1; -1 + 2^-9 is half of the step below 1
    s = diff_stats(&b, &b, ST_BF16, ST_F32, (DiffStatsBound){.mode = DIFF_STATS_GIVEN});
    assert_int_equal(s.bucket[0], 4);
    assert_int_equal(diff_stats_coarser(ST_F32, ST_F16), ST_F16);
    assert_int_equal(diff_stats_coarser(ST_BF16, ST_F16), ST_BF16);
}

// An update may turn where the gradient's sign is not certain, and not elsewhere.
TEST(test_updates)
{
    const size_t n = 3;
    const float grad_a[] = {1, -1e-9f, 1}, grad_b[] = {1, 1e-9f, 1}, weight[] = {1, 1, 1};
    const struct {
        float step[3];
        bool within;
    } rows[] = {{{0.1f, 0.1f, -0.1f}, true}, {{0.1f, -0.1f, -0.1f}, true}, {{-0.1f, 0.1f, -0.1f}, false},
                {{0.11f, 0.1f, -0.1f}, false}, {{0, 0, 0}, false}, {{NAN, 0.1f, -0.1f}, false}};
    SafeTensor t[4];
    float a[3], b[3] = {1.1f, 1.1f, 0.9f};
    const float *data[] = {a, b, grad_a, grad_b};
    for (int i = 0; i < 4; i++)
        t[i] = (SafeTensor){.dtype = ST_F32, .ndim = 1, .shape = &n, .data = data[i], .n_elems = n, .n_bytes = 12};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int k = 0; k < 3; k++) a[k] = weight[k] + rows[i].step[k];
        DiffStats s = diff_stats(&t[0], &t[1], ST_F32, ST_F32,
                                 (DiffStatsBound){.mode = DIFF_STATS_UPDATE, .error = 1e-6, .most = 0.1,
                                                  .grad_a = &t[2], .grad_b = &t[3]});
        if ((s.ratio <= 1 && !s.n_out) != rows[i].within) fail_msg("row %zu: %g of the bound", i, s.ratio);
    }
}

TEST(test_worst_come_first)
{
    const size_t n = 9;
    const float a[] = {0, 3, 1, NAN, 5, 2, 4, 7, 6}, b[9] = {0};
    SafeTensor x = {.dtype = ST_F32, .ndim = 1, .shape = &n, .data = a, .n_elems = n}, y = x;
    y.data = b;
    DiffStats s = diff_stats(&x, &y, ST_F32, ST_F32, (DiffStatsBound){.mode = DIFF_STATS_GIVEN, .atol = 1});
    assert_int_equal(s.n_worst, DIFF_STATS_WORST);
    const size_t order[] = {3, 7, 8, 4, 6};
    for (int i = 0; i < DIFF_STATS_WORST; i++) assert_int_equal(s.worst[i], order[i]);
    assert_int_equal(s.n_out, 7);
    assert_int_equal(diff_stats_median(&s) > 20, 1);
}

TESTS(NULL, NULL)
