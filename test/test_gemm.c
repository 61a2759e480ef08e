// test_gemm: every element of gemm() against the plain loop of fmaf in gemm.h, bit for bit.
//
// Sizes are on both sides of every size by which the code cuts: register tiles (4 to 32), vectors (4 to 16), blocks of
// k (256), of rows (264) and of columns (1024). Each product is made by gemm_serial and by gemm() with one to
// four threads, in all four transpositions, inside larger arrays whose other numbers must stay as they are.
#include "test/test.h"

#include "ops/gemm.h"
#include "stack_depth.h"
#include "base/rng.h"

typedef struct {
    size_t M, N, K;
    bool trans_a, trans_b;
    float alpha, beta;
} Product;

typedef struct {
    float *a, *b, *c;
    size_t lda, ldb, ldc, n_a, n_b, n_c; // n_: floats, with a row of PAD beyond the last
} Operands;

enum { PAD = 3 };

static float *random_floats(size_t n, const char *name)
{
    float *x = zeroed((n + 1) * sizeof *x);
    Rng rng = rng_make(7, name, 0);
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(rng, i);
    return x;
}

static Operands operands_make(Product p)
{
    Operands o = {.lda = (p.trans_a ? p.M : p.K) + PAD, .ldb = (p.trans_b ? p.K : p.N) + PAD, .ldc = p.N + PAD};
    o.n_a = (p.trans_a ? p.K : p.M) * o.lda;
    o.n_b = (p.trans_b ? p.N : p.K) * o.ldb;
    o.n_c = (p.M + 1) * o.ldc;
    o.a = random_floats(o.n_a, "a");
    o.b = random_floats(o.n_b, "b");
    o.c = random_floats(o.n_c, "c");
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

static float element_a(Product p, Operands o, size_t m, size_t k)
{
    return p.alpha * (p.trans_a ? o.a[k * o.lda + m] : o.a[m * o.lda + k]);
}

static float element_b(Product p, Operands o, size_t k, size_t n)
{
    return p.trans_b ? o.b[n * o.ldb + k] : o.b[k * o.ldb + n];
}

// The definition.
static void plain(float *c, Product p, Operands o)
{
    for (size_t m = 0; m < p.M; m++)
        for (size_t n = 0; n < p.N; n++) {
            float sum = p.beta == 0 ? 0 : p.beta * c[m * o.ldc + n];
            for (size_t k = 0; k < p.K; k++) sum = fmaf(element_a(p, o, m, k), element_b(p, o, k, n), sum);
            c[m * o.ldc + n] = sum;
        }
}

static void run(float *c, Product p, Operands o, int threads)
{
    if (threads == 0)
        gemm_serial(p.trans_a, p.trans_b, p.M, p.N, p.K, p.alpha, o.a, o.lda, o.b, o.ldb, p.beta, c, o.ldc);
    else gemm(threads, p.trans_a, p.trans_b, p.M, p.N, p.K, p.alpha, o.a, o.lda, o.b, o.ldb, p.beta, c, o.ldc);
}

// Two arrays hold the same bits; where not, says at which element.
static void assert_same(const float *got, const float *expected, size_t n, size_t ld, Product p, int threads)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &expected[i], sizeof *got) != 0)
            fail_msg("%zu x %zu x %zu, transposed %d %d, alpha %g, beta %g, %d threads: C[%zu][%zu] is %.9g, not %.9g",
                     p.M, p.N, p.K, p.trans_a, p.trans_b, (double)p.alpha, (double)p.beta, threads, i / ld, i % ld,
                     (double)got[i], (double)expected[i]);
}

static void check_product(Product p, int max_threads)
{
    Operands o = operands_make(p);
    float *expected = copy_floats(o.c, o.n_c);
    plain(expected, p, o);
    for (int threads = 0; threads <= max_threads; threads++) {
        float *got = copy_floats(o.c, o.n_c);
        for (size_t i = 0; p.beta == 0 && i < p.M * p.N; i++) got[i / p.N * o.ldc + i % p.N] = NAN; // are not read
        run(got, p, o, threads);
        assert_same(got, expected, o.n_c, o.ldc, p, threads); // the padding of C, too
        free(got);
    }
    free(expected);
    operands_free(o);
}

static const size_t sizes[][3] = {
    {1, 1, 1},    {1, 1, 700},   {1, 33, 16},   {2, 3, 4},      {3, 32, 5},     {4, 8, 256},    {5, 7, 257},
    {6, 16, 31},  {7, 17, 15},   {8, 12, 64},   {9, 13, 300},   {11, 31, 17},   {12, 32, 1},    {12, 32, 256},
    {13, 33, 33}, {23, 1, 47},   {24, 64, 512}, {25, 65, 513},  {37, 95, 255},  {64, 256, 64},  {64, 64, 200},
    {1, 300, 40}, {300, 1, 40},  {100, 100, 3}, {263, 40, 20},  {264, 48, 16},  {265, 20, 270}, {529, 9, 6},
    {264, 5, 256}, {30, 1023, 8}, {14, 1025, 9}, {40, 2100, 5}, {128, 96, 600},
};

TEST(test_every_size_and_transposition_gives_the_bits_of_the_plain_loop)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 4; t++)
            for (float beta = 0; beta <= 1; beta++)
                check_product((Product){sizes[i][0], sizes[i][1], sizes[i][2], t & 1, t & 2, 1, beta}, 4);
}

TEST(test_alpha_scales_a_and_beta_scales_c)
{
    const float factors[][2] = {{0.125f, 0}, {0.3f, 1}, {-1.7f, 0.9f}, {1, -1}, {0, 1}, {0, 0}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        for (int t = 0; t < 4; t++)
            check_product((Product){29, 70, 290, t & 1, t & 2, factors[i][0], factors[i][1]}, 2);
}

TEST(test_nothing_to_add_leaves_beta_c)
{
    for (float beta = 0; beta <= 2; beta++) check_product((Product){13, 37, 0, false, false, 1, beta}, 2);
    check_product((Product){0, 5, 3, false, true, 1, 0}, 2);
    check_product((Product){5, 0, 3, true, false, 1, 0}, 2);
}

// If sums on these data did not depend on their order or on fusing, equal bits would prove nothing.
TEST(test_the_data_tell_orders_apart)
{
    Product p = {6, 6, 300, false, false, 1, 0};
    Operands o = operands_make(p);
    size_t descending_differs = 0, unfused_differs = 0, halves_differ = 0, n = p.M * p.N;
    for (size_t i = 0; i < n; i++) {
        float up = 0, down = 0, half[2] = {0, 0};
        volatile float unfused = 0; // volatile: not contracted
        for (size_t k = 0; k < p.K; k++) {
            float a = element_a(p, o, i / p.N, k), b = element_b(p, o, k, i % p.N);
            volatile float product = a * b;
            up = fmaf(a, b, up);
            unfused = unfused + product;
            half[k % 2] = fmaf(a, b, half[k % 2]);
            down = fmaf(element_a(p, o, i / p.N, p.K - 1 - k), element_b(p, o, p.K - 1 - k, i % p.N), down);
        }
        descending_differs += down != up;
        unfused_differs += unfused != up;
        halves_differ += half[0] + half[1] != up;
    }
    assert_true(descending_differs > n / 2 && unfused_differs > n / 2 && halves_differ > n / 2);
    operands_free(o);
}

// NaN and infinity go where the sum takes them and nowhere else; padding with zeros must not make any.
TEST(test_nan_and_infinity_stay_in_their_row_and_column)
{
    for (int t = 0; t < 4; t++) {
        Product p = {17, 41, 35, t & 1, t & 2, 1, 0};
        Operands o = operands_make(p);
        o.a[p.trans_a ? 34 * o.lda + 16 : 16 * o.lda + 34] = NAN;    // row 16
        o.b[p.trans_b ? 40 * o.ldb + 3 : 3 * o.ldb + 40] = INFINITY; // column 40
        run(o.c, p, o, 2);
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

// Products that a few processors' tiles and many threads cut: more threads than tiles, than rows, than columns.
TEST(test_more_threads_than_work)
{
    const size_t small[][3] = {{1, 1, 9}, {3, 2, 1}, {13, 33, 20}, {2, 200, 4}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        check_product((Product){small[i][0], small[i][1], small[i][2], false, true, 1, 0}, 9);
}

static bool right; // what multiply() computed

static void multiply(void)
{
    static float a[300 * 300], b[300 * 300], c[300 * 300];
    for (size_t i = 0; i < 300 * 300; i++) a[i] = b[i] = 1;
    gemm_serial(false, true, 299, 299, 300, 1, a, 300, b, 300, 0, c, 300);
    right = c[0] == 300 && c[298 * 300 + 298] == 300;
}

// gemm.h promises what gemm_serial needs of the stack.
TEST(test_stack_is_what_was_promised)
{
    assert_in_range(stack_depth(multiply), 128 * 1024, 320 * 1024);
    assert_true(right);
}

TEST(test_the_kernel_has_a_name)
{
    assert_non_null(strstr(gemm_kernel(), " x "));
}

TESTS(NULL, NULL)
