// test_attention_bf16: attention by the processor's bf16 products, against the widening device within the bounds of
// dev_check_matmul.c; against exact results where P and the sums are exact; and on two threads. Sizes are on both
// sides of a block of queries and of a tile of keys.
#include "fixture.h"

#include "src/check/dev_check.h"
#include "ops/attn.h"
#include "ops/dev_cpu.h"
#include "formats/gemm_bf16.h"
#include "narrow/narrow.h"

enum { MOST = 1 << 18 };

static uint16_t bf16(double x)
{
    return (uint16_t)formats_encode(FORMAT_BF16, (float)x, false);
}

static float wide(uint16_t x)
{
    return formats_decode(FORMAT_BF16, x);
}

typedef struct {
    Dev *cpu, *dev;
    uint16_t *qkv, *out, *dout, *dqkv;
    float *lse;
    int32_t *first;
} Arrays;

static Arrays arrays_make(int threads)
{
    Arrays a = {.cpu = dev_cpu_create(threads), .qkv = calloc(MOST, 2), .out = calloc(MOST, 2),
                .dout = calloc(MOST, 2), .dqkv = calloc(MOST, 2), .lse = calloc(MOST, 4), .first = calloc(MOST, 4)};
    assert_true(a.qkv && a.out && a.dout && a.dqkv && a.lse && a.first);
    a.dev = narrow_create(a.cpu, (NarrowOptions){.x_type = X_BF16, .products = PRODUCTS_HARDWARE});
    Rng rng = rng_make(3, "attention", 0);
    for (size_t i = 0; i < MOST; i++) a.qkv[i] = bf16(rng_normal(rng, i)), a.dout[i] = bf16(rng_normal(rng, MOST + i));
    return a;
}

static void arrays_free(Arrays *a)
{
    free(a->qkv), free(a->out), free(a->dout), free(a->dqkv), free(a->lse), free(a->first);
    narrow_free(a->dev);
    dev_cpu_free(a->cpu);
}

// Rows of q, k and v side by side.
static AttnShape shape(size_t B, size_t T, size_t H, size_t G, size_t D)
{
    size_t ld = (H + 2 * G) * D;
    assert_true(B * T * ld <= MOST);
    return (AttnShape){.B = B, .Tq = T, .Tk = T, .H = H, .G = G, .D = D, .ldq = ld, .ldkv = ld};
}

static void run(Dev *dev, Arrays *a, AttnShape s)
{
    size_t k = s.H * s.D, v = k + s.G * s.D;
    dev->attention_forward(dev, (X *)a->out, a->lse, (X *)a->qkv, (X *)(a->qkv + k), (X *)(a->qkv + v), s);
    dev->attention_backward(dev, (X *)a->dqkv, (X *)(a->dqkv + k), (X *)(a->dqkv + v), (X *)a->dout, (X *)a->out,
                            a->lse, (X *)a->qkv, (X *)(a->qkv + k), (X *)(a->qkv + v), s);
}

static bool missing(void)
{
    if (!gemm_bf16_runs()) printf("this processor has no bf16 products\n");
    return !gemm_bf16_runs();
}

static const size_t sizes[][5] = {{2, 1, 2, 1, 8}, {1, 59, 2, 2, 16}, {2, 61, 4, 2, 20}, {1, 257, 2, 1, 64},
                                  {1, 600, 1, 1, 33}};
enum { SIZES = sizeof sizes / sizeof *sizes, VARIANTS = 8 };

static AttnShape variant(Arrays *a, size_t i, int which)
{
    AttnShape s = shape(sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3], sizes[i][4]);
    for (size_t t = 0; t < s.B * s.Tq; t++) a->first[t] = t % s.Tq < 23 ? 0 : 23;
    if (which & 1) s.first = a->first;
    if (which & 2) s.window = 17;
    if (which & 4) s.drop = (Dropout){.p = 0.25f, .rng = rng_make(9, "attention", 1), .first = 5}, s.scale = 0.3f;
    return s;
}

TEST(test_within_the_bounds_of_the_widening_device)
{
    if (missing()) return;
    Arrays a = arrays_make(2);
    Dev *spec = narrow_create(a.cpu, (NarrowOptions){.x_type = X_BF16, .products = PRODUCTS_WIDENED});
    Dev *check = dev_check_create(a.dev, spec);
    for (size_t i = 0; i < SIZES; i++)
        for (int v = 0; v < VARIANTS; v++) run(check, &a, variant(&a, i, v));
    if (!(dev_check_worst(check) <= 1)) dev_check_print(check, stderr);
    assert_true(dev_check_worst(check) <= 1);
    assert_true(dev_check_worst(check) > 0); // another algorithm: P is rounded
    dev_check_free(check);
    narrow_free(spec);
    arrays_free(&a);
}

TEST(test_bits_do_not_depend_on_threads)
{
    if (missing()) return;
    Arrays one = arrays_make(1), two = arrays_make(2);
    for (size_t i = 0; i < SIZES; i++) {
        for (int v = 0; v < VARIANTS; v++) {
            run(one.dev, &one, variant(&one, i, v)), run(two.dev, &two, variant(&two, i, v));
            assert_memory_equal(one.out, two.out, MOST * 2);
            assert_memory_equal(one.dqkv, two.dqkv, MOST * 2);
        }
    }
    arrays_free(&one), arrays_free(&two);
}

// Documents of a row give the bits that they give alone, wherever they begin: their blocks, tiles and pairs of keys are
// counted from their first key.
TEST(test_a_document_in_a_row_gives_the_bits_of_one_alone)
{
    if (missing()) return;
    enum { T = 700, H = 2, G = 1, D = 20 };
    const size_t begins[] = {0, 23, 24, 160, 463, T};
    Arrays row = arrays_make(2), alone = arrays_make(1);
    for (size_t window = 0; window <= 150; window += 75) {
        AttnShape s = shape(1, T, H, G, D);
        s.window = window, s.first = row.first;
        for (size_t d = 0; begins[d] < T; d++)
            for (size_t t = begins[d]; t < begins[d + 1]; t++) row.first[t] = (int32_t)begins[d];
        run(row.dev, &row, s);
        for (size_t d = 0; begins[d] < T; d++) {
            size_t at = begins[d], n = begins[d + 1] - at;
            AttnShape one = shape(1, n, H, G, D);
            one.window = window;
            memcpy(alone.qkv, row.qkv + at * s.ldq, n * s.ldq * 2);
            memcpy(alone.dout, row.dout + at * H * D, n * H * D * 2);
            run(alone.dev, &alone, one);
            assert_memory_equal(alone.out, row.out + at * H * D, n * H * D * 2);
            assert_memory_equal(alone.dqkv, row.dqkv + at * s.ldq, n * s.ldq * 2);
        }
    }
    arrays_free(&row), arrays_free(&alone);
}

// Queries are 0, so every P of forward is 1, and v are whole numbers: the sums are exact in fp32, and not in bf16. In
// backward lse = -log 2, so every P is 2, and dout are whole numbers too.
TEST(test_sums_are_fp32)
{
    if (missing()) return;
    enum { T = 700, D = 16 };
    Arrays a = arrays_make(2);
    AttnShape s = shape(1, T, 1, 1, D);
    for (size_t t = 0; t < T; t++)
        for (size_t d = 0; d < D; d++) {
            a.qkv[t * s.ldq + d] = 0;
            a.qkv[t * s.ldq + 2 * D + d] = bf16((double)(1 + (t * 7 + d) % 13));
            a.dout[t * D + d] = bf16((double)(1 + (t * 5 + d) % 11));
        }
    run(a.dev, &a, s);
    for (size_t d = 0; d < D; d++) {
        double sum = 0;
        for (size_t t = 0; t < T; t++) {
            sum += wide(a.qkv[t * s.ldq + 2 * D + d]);
            assert_int_equal(a.out[t * D + d], bf16((float)sum * (1 / (float)(t + 1))));
        }
    }
    for (size_t t = 0; t < T; t++) a.lse[t] = -logf(2);
    a.dev->attention_backward(a.dev, (X *)a.dqkv, (X *)(a.dqkv + D), (X *)(a.dqkv + 2 * D), (X *)a.dout, (X *)a.out,
                              a.lse, (X *)a.qkv, (X *)(a.qkv + D), (X *)(a.qkv + 2 * D), s);
    for (size_t d = 0; d < D; d++) {
        double sum = 0;
        for (size_t t = T; t-- > 0;) {
            sum += 2 * wide(a.dout[t * D + d]);
            assert_int_equal(a.dqkv[t * s.ldq + 2 * D + d], bf16(sum));
        }
    }
    arrays_free(&a);
}

// Two keys, and the value of the second is 0: the second query gets round(P) v / l, and its part of the first key's dV
// is round(P) dout. A product of two bf16 numbers is exact in fp32, so an unrounded P gives other bits for some.
TEST(test_p_is_rounded_to_nearest)
{
    if (missing()) return;
    enum { D = 64 };
    Arrays a = arrays_make(1);
    AttnShape s = shape(1, 2, 1, 1, D);
    s.scale = 1;
    uint16_t *q = a.qkv + s.ldq, *k = a.qkv + D, *v = a.qkv + 2 * D;
    for (size_t c = 0; c < 40; c++) {
        memset(q, 0, 2 * D), memset(k, 0, 2 * D), memset(k + s.ldq, 0, 2 * D), memset(v + s.ldq, 0, 2 * D);
        memset(a.dout, 0, 2 * D); // of the first query
        q[0] = bf16(1), k[0] = bf16(-0.03125 * (double)c);
        run(a.dev, &a, s);
        float p = (float)exp(wide(k[0])), l = 1 + p, rounded = wide(bf16(p)), back = wide(bf16(p / l));
        for (size_t d = 0; d < D; d++) {
            float want = rounded * wide(v[d]) * (1 / l), got = wide(a.out[D + d]); // and a few roundings in fp32
            float want_v = back * wide(a.dout[D + d]), got_v = wide(a.dqkv[2 * D + d]);
            assert_true(fabsf(got - want) <= (0x1p-8f + 0x1p-20f) * fabsf(want));
            assert_true(fabsf(got_v - want_v) <= (0x1p-8f + 0x1p-20f) * fabsf(want_v));
        }
    }
    arrays_free(&a);
}

TESTS(NULL, NULL)
