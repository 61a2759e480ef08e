// test_gemm_bf16: every element of gemm_bf16_serial() against the plain loop of gemm_bf16.h, bit for bit, which is that
// of gemm() on widened operands. Sizes are on both sides of those by which the code cuts: register tiles (12 x 32),
// pairs, vectors of units (16), blocks of k (512) and of rows (264). Skipped where the processor lacks the instruction.

#include "test/test.h"

#include "formats/formats.h"
#include "base/rng.h"
#include "ops/gemm.h"
#include "formats/gemm_bf16.h"
#include "stack_depth.h"

typedef struct {
    size_t M, N, K;
    bool trans_a, trans_b, add;
} Product;

typedef struct {
    uint16_t *a, *b;
    float *c;
    size_t lda, ldb, ldc, n_a, n_b, n_c; // n_: elements, with a row of padding below C
} Operands;

enum { PAD = 3 };

static void test_the_processor_has_no_such_instruction(void **state)
{
    (void)state;
    skip();
}

static float widened(uint16_t x)
{
    return formats_decode(FORMAT_BF16, x);
}

// Normal numbers times `scale`. The arrays end where they must: AddressSanitizer sees what is read beyond.
static uint16_t *random_bf16(size_t n, const char *name, float scale)
{
    uint16_t *x = zeroed(n * sizeof *x + 1);
    for (size_t i = 0; i < n; i++)
        x[i] = (uint16_t)formats_encode(FORMAT_BF16, scale * (float)rng_normal(rng_make(7, name, 0), i), false);
    return x;
}

static Operands operands_make(Product p, float scale_a, float scale_c)
{
    Operands o = {.lda = (p.trans_a ? p.M : p.K) + PAD, .ldb = (p.trans_b ? p.K : p.N) + PAD, .ldc = p.N + PAD};
    size_t rows_a = p.trans_a ? p.K : p.M, rows_b = p.trans_b ? p.N : p.K;
    o.n_a = rows_a ? rows_a * o.lda - PAD : 0, o.n_b = rows_b ? rows_b * o.ldb - PAD : 0, o.n_c = (p.M + 1) * o.ldc;
    o.a = random_bf16(o.n_a, "a", scale_a);
    o.b = random_bf16(o.n_b, "b", 1);
    o.c = zeroed(o.n_c * sizeof *o.c);
    for (size_t i = 0; i < o.n_c; i++) o.c[i] = scale_c * (float)rng_normal(rng_make(7, "c", 0), i);
    return o;
}

static void operands_free(Operands o)
{
    free(o.a), free(o.b), free(o.c);
}

static float *copy_floats(const float *x, size_t n)
{
    float *y = zeroed(n * sizeof *y);
    return memcpy(y, x, n * sizeof *y);
}

static size_t at_a(Product p, Operands o, size_t m, size_t k)
{
    return p.trans_a ? k * o.lda + m : m * o.lda + k;
}

static size_t at_b(Product p, Operands o, size_t k, size_t n)
{
    return p.trans_b ? n * o.ldb + k : k * o.ldb + n;
}

static float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

// The definition.
static void plain(float *c, Product p, Operands o)
{
    for (size_t m = 0; m < p.M; m++)
        for (size_t n = 0; n < p.N; n++) {
            float sum = p.add ? c[m * o.ldc + n] : 0;
            for (size_t k = 0; k < p.K; k++) {
                float a = widened(o.a[at_a(p, o, m, k)]), b = widened(o.b[at_b(p, o, k, n)]);
                sum = flush(fmaf(flush(a), flush(b), flush(sum)));
            }
            c[m * o.ldc + n] = sum;
        }
}

static void run(float *c, Product p, Operands o)
{
    gemm_bf16_serial(p.trans_a, p.trans_b, p.M, p.N, p.K, o.a, o.lda, o.b, o.ldb, p.add, c, o.ldc);
}

static void assert_same(const float *got, const float *expected, Product p, Operands o)
{
    for (size_t i = 0; i < o.n_c; i++) // the padding of C, too
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0)
            fail_msg("%zu x %zu x %zu, transposed %d %d, add %d: C[%zu][%zu] is %.9g, not %.9g", p.M, p.N, p.K,
                     p.trans_a, p.trans_b, p.add, i / o.ldc, i % o.ldc, (double)got[i], (double)expected[i]);
}

static void check_product(Product p, float scale_a, float scale_c)
{
    Operands o = operands_make(p, scale_a, scale_c);
    float *expected = copy_floats(o.c, o.n_c);
    plain(expected, p, o);
    for (size_t i = 0; !p.add && i < p.M * p.N; i++) o.c[i / p.N * o.ldc + i % p.N] = NAN; // are not read
    run(o.c, p, o);
    assert_same(o.c, expected, p, o);
    free(expected);
    operands_free(o);
}

static const size_t sizes[][3] = {
    {1, 1, 1},    {1, 1, 700},   {1, 33, 16},   {2, 3, 4},      {3, 32, 5},     {5, 7, 257},    {6, 16, 31},
    {7, 17, 32},  {8, 12, 33},   {11, 31, 17},  {12, 32, 1},    {12, 32, 2},    {12, 32, 512},  {12, 33, 513},
    {13, 33, 1024}, {23, 1, 47}, {24, 64, 1025}, {25, 65, 511}, {37, 95, 255},  {1, 300, 40},   {300, 1, 40},
    {100, 100, 3}, {263, 40, 20}, {264, 48, 16}, {265, 20, 540}, {529, 9, 6},   {30, 1023, 8},  {128, 96, 600},
    {77, 130, 1031}, {45, 77, 640},
};

TEST(test_every_size_and_transposition_gives_the_bits_of_the_plain_loop)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 8; t++)
            check_product((Product){sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2, t & 4}, 1, 1);
}

TEST(test_nothing_to_add_leaves_c_or_zero)
{
    for (int t = 0; t < 8; t++) check_product((Product){13, 37, 0, t & 1, t & 2, t & 4}, 1, 1);
    check_product((Product){0, 5, 3, false, true, true}, 1, 1);
    check_product((Product){5, 0, 3, true, false, true}, 1, 1);
}

// Operands, sums and C about the smallest normal number: many of each are denormal.
TEST(test_denormal_numbers_are_zero)
{
    for (int t = 0; t < 8; t++) {
        check_product((Product){14, 35, 9, t & 1, t & 2, t & 4}, 0x1p-126f, 0x1p-126f);
        check_product((Product){14, 35, 1, t & 1, t & 2, t & 4}, 0x1p-126f, 0x1p-126f); // odd K, and few terms
    }
    Product p = {14, 35, 9, false, true, true};
    Operands o = operands_make(p, 0x1p-126f, 0x1p-126f);
    size_t denormal = 0, zero = 0;
    for (size_t i = 0; i < o.n_a; i++) denormal += fpclassify(widened(o.a[i])) == FP_SUBNORMAL;
    run(o.c, p, o);
    for (size_t i = 0; i < p.M; i++) zero += o.c[i * o.ldc] == 0;
    assert_true(denormal > o.n_a / 4 && zero > 0);
    operands_free(o);
}

// -0 keeps its sign: the upper half of the last pair of an odd K adds -0.
TEST(test_padding_adds_nothing)
{
    for (int t = 0; t < 4; t++) {
        Product p = {13, 33, 3, t & 1, t & 2, true};
        Operands o = operands_make(p, 0, 1);
        for (size_t i = 0; i < o.n_c; i++) o.c[i] = -0.0f;
        for (size_t m = 0; m < p.M; m++)
            for (size_t k = 0; k < p.K; k++) o.a[at_a(p, o, m, k)] = 0x8000;
        for (size_t i = 0; i < o.n_b; i++) o.b[i] &= 0x7fff;
        run(o.c, p, o);
        for (size_t i = 0; i < o.n_c; i++) assert_true(o.c[i] == 0 && signbit(o.c[i]));
        operands_free(o);
    }
}

TEST(test_nan_and_infinity_stay_in_their_row_and_column)
{
    for (int t = 0; t < 4; t++) {
        Product p = {17, 41, 35, t & 1, t & 2, false};
        Operands o = operands_make(p, 1, 1);
        o.a[at_a(p, o, 16, 34)] = 0x7fc0; // NaN, in the last and incomplete pair
        o.b[at_b(p, o, 3, 40)] = 0x7f80;  // infinity
        run(o.c, p, o);
        for (size_t m = 0; m < p.M; m++)
            for (size_t n = 0; n < p.N; n++) {
                float c = o.c[m * o.ldc + n];
                if (m == 16) assert_true(isnan(c));
                else if (n == 40) assert_true(isinf(c));
                else assert_true(isfinite(c));
            }
        operands_free(o);
    }
}

// ---- packed operands

// C = A B by panels, with A and B packed for more terms than the product takes: from term 2 first on, K of them.
static void check_packed(Product p, size_t first, size_t all)
{
    Product whole = p;
    whole.K = all;
    Operands o = operands_make(whole, 1, 1), part = o;
    size_t units = (all + 1) / 2, stride_a = units * GEMM_BF16_MR + 5, stride_b = units * GEMM_BF16_NR + 7;
    size_t high = (p.M + 3) / 4 * 4, n_panels = (p.N + GEMM_BF16_NR - 1) / GEMM_BF16_NR;
    uint32_t *a = calloc((p.M / GEMM_BF16_MR + 1) * stride_a, 4), *b = calloc(n_panels * stride_b, 4);
    float *tile = malloc(high * GEMM_BF16_NR * sizeof *tile), *expected = copy_floats(o.c, o.n_c);
    assert_true(a && b && tile);
    gemm_bf16_pack_a(p.trans_a, p.M, all, o.a, o.lda, a, stride_a);
    gemm_bf16_pack_b(p.trans_b, p.N, all, o.b, o.ldb, b, stride_b);
    part.a += 2 * first * (p.trans_a ? o.lda : 1), part.b += 2 * first * (p.trans_b ? 1 : o.ldb);
    plain(expected, p, part);
    for (size_t n = 0; n < p.N; n += GEMM_BF16_NR) {
        size_t w = p.N - n < GEMM_BF16_NR ? p.N - n : GEMM_BF16_NR;
        for (size_t m = 0; m < p.M; m++) memcpy(tile + m * GEMM_BF16_NR, o.c + m * o.ldc + n, w * sizeof *tile);
        gemm_bf16_panel(p.M, (p.K + 1) / 2, a + first * GEMM_BF16_MR, stride_a,
                        b + n / GEMM_BF16_NR * stride_b + first * GEMM_BF16_NR, p.add, tile);
        for (size_t m = 0; m < p.M; m++) memcpy(o.c + m * o.ldc + n, tile + m * GEMM_BF16_NR, w * sizeof *tile);
    }
    assert_same(o.c, expected, p, o);
    free(a), free(b), free(tile), free(expected);
    operands_free(o);
}

TEST(test_packed_operands_give_the_bits_of_the_plain_loop)
{
    const size_t of[][3] = {{1, 1, 1}, {4, 32, 2}, {5, 33, 3}, {8, 64, 8}, {9, 40, 31}, {12, 32, 64},
                            {64, 70, 252}, {61, 31, 33}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int t = 0; t < 8; t++) {
            Product p = {of[i][0], of[i][1], of[i][2], t & 1, t & 2, t & 4};
            check_packed(p, 0, p.K);
            p.K += p.K % 2; // a part ends with a whole unit
            check_packed(p, 3, p.K + 11);
        }
}

TEST(test_a_matrix_is_transposed)
{
    for (size_t rows = 1; rows < 40; rows += 5)
        for (size_t cols = 1; cols < 70; cols += 9) {
            float in[40 * 71], out[71 * 41];
            for (size_t i = 0; i < 40 * 71; i++) in[i] = (float)i;
            for (size_t i = 0; i < 71 * 41; i++) out[i] = -1;
            gemm_bf16_transpose(out, 41, in, 71, rows, cols);
            for (size_t c = 0; c < 71; c++)
                for (size_t r = 0; r < 41; r++)
                    assert_true(out[c * 41 + r] == (r < rows && c < cols ? in[r * 71 + c] : -1));
        }
}

// ---- few rows

TEST(test_few_rows_are_near_the_exact_sum_and_do_not_depend_on_each_other)
{
    const size_t lengths[] = {1, 2, 31, 32, 33, 63, 127, 128, 129, 300, 1027};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t N = 5, OC = 9, C = lengths[i];
        uint16_t *x = random_bf16(N * C, "x", 1), *w = random_bf16(OC * C, "w", 1);
        float out[5 * 9], again[5 * 9];
        gemm_bf16_few_rows(2, out, x, w, N, C, OC);
        for (size_t n = 0; n < N; n++) gemm_bf16_few_rows(1, again + n * OC, x + n * C, w, 1, C, OC);
        assert_memory_equal(out, again, sizeof out);
        for (size_t j = 0; j < N * OC; j++) {
            double sum = 0, size = 0;
            for (size_t k = 0; k < C; k++) {
                double term = (double)widened(x[j / OC * C + k]) * widened(w[j % OC * C + k]);
                sum += term, size += fabs(term);
            }
            double steps = (double)C / 64 + 9; // a chain a lane, then a tree of 64
            assert_true(fabs(out[j] - sum) <= steps * 0x1p-24 * size);
        }
        free(x), free(w);
    }
}

// ---- the rest of the contract

static bool right; // what multiply() computed

static void multiply(void)
{
    static uint16_t a[600 * 600];
    static float c[300 * 300];
    for (size_t i = 0; i < 600 * 600; i++) a[i] = 0x3f80;
    gemm_bf16_serial(false, true, 299, 299, 600, a, 600, a, 600, false, c, 300);
    right = c[0] == 600 && c[298 * 300 + 298] == 600;
}

TEST(test_stack_is_what_was_promised)
{
    assert_in_range(stack_depth(multiply), 128 * 1024, 320 * 1024);
    assert_true(right);
}

TEST(test_the_loop_counts_its_operations)
{
    assert_true(gemm_bf16_loop(100) == 100 * 240 * 16 * 4.0);
}

int main(void)
{
    if (gemm_bf16_runs()) return RUN_TESTS(NULL, NULL);
    const struct CMUnitTest none[] = {cmocka_unit_test(test_the_processor_has_no_such_instruction)};
    return cmocka_run_group_tests(none, NULL, NULL);
}
