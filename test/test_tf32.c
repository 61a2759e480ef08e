// test_tf32: a device that rounds the operands of its products to TF32 gives, bit for bit, what the deterministic fp32
// device gives of operands that were rounded before; the router's products and attention are not rounded.
#include "fixture.h"

#include "base/check.h"
#include "formats/formats.h"
#include "base/rng.h"
#include "ops/dev_cpu.h"
#include "ops/gemm.h"

#include <math.h>

enum { N = 70, C = 37, OC = 90, E = 3, ROOM = 8192 };

static float *numbers(float *x, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) x[i] = rng_normal(rng_make(3, name, 0), i);
    return x;
}

static float *rounded(float *to, const float *x, size_t n)
{
    formats_from_float(to, FORMAT_TF32, x, n, false);
    return to;
}

static void must_be(const char *what, const float *got, const float *want, const float *other, size_t n)
{
    bool differs = false;
    for (size_t i = 0; i < n; i++) {
        if (!(got[i] == want[i])) fail_msg("%s: element %zu is %.9g, not %.9g", what, i, got[i], want[i]);
        differs |= got[i] != other[i];
    }
    if (!differs) fail_msg("%s: nothing is rounded", what);
}

// An independent loop: the chain of gemm.h over rounded operands, with the numbers that rounding may get wrong.
TEST(test_chain)
{
    static float a[N * C], b[C * OC], c[N * OC], ra[N * C], rb[C * OC];
    const float odd[] = {0x1.002p0f, 0x1.006p0f, -0x1.002002p3f, 0x1.ffep5f, 0x1p-130f, 0x1.8p-137f, 0, -0.0f};
    numbers(a, N * C, "a"), numbers(b, C * OC, "b");
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) a[i * 31] = odd[i], b[i * 77] = odd[7 - i];
    rounded(ra, a, N * C), rounded(rb, b, C * OC);
    for (int turned = 0; turned < 4; turned++) {
        bool ta = turned & 1, tb = turned & 2;
        for (size_t i = 0; i < N * OC; i++) c[i] = 0.5f;
        gemm_tf32(ta, tb, N, OC, C, 3, a, ta ? N : C, b, tb ? C : OC, 1, c, OC);
        for (size_t n = 0; n < N; n++)
            for (size_t o = 0; o < OC; o++) {
                float sum = 0.5f;
                for (size_t k = 0; k < C; k++)
                    sum = fmaf(3 * ra[ta ? k * N + n : n * C + k], rb[tb ? o * C + k : k * OC + o], sum);
                if (!(c[n * OC + o] == sum)) fail_msg("(%zu, %zu), turned %d: other bits", n, o, turned);
            }
    }
    float nan_in[2] = {NAN, INFINITY}, one[2] = {1, 1}, out[2];
    gemm_tf32(false, false, 2, 1, 1, 1, nan_in, 1, one, 1, 0, out, 1);
    assert_true(isnan(out[0]) && isinf(out[1]));
}

typedef struct {
    float inp[N * C], dout[N * OC], weight[E * OC * C], bias[OC], pre[N * C];
} Arrays;

// The results of all products, one after another; returns how many numbers.
static size_t products(Dev *dev, float *out, const Arrays *a, size_t rows)
{
    static float spare[N * OC];
    const X *inp = (const X *)a->inp, *dout = (const X *)a->dout, *weight = (const X *)a->weight;
    const DevRange range[] = {{0, 10}, {10, C}}, back[] = {{0, 40}, {40, OC}};
    DevParts parts = {range, 2, 1}, back_parts = {back, 2, 1};
    const int32_t offset[] = {0, 5, 5, (int32_t)rows - 1};
    DevExperts x = {.offset = offset, .E = E, .R = rows, .stride = OC * C, .sources = 1};
    float *at = out;
    memset(out, 0, ROOM * 8 * sizeof *out);
    dev->matmul_forward(dev, (X *)at, inp, weight, (const X *)a->bias, rows, C, OC, -1), at += rows * OC;
    dev->matmul_gelu_forward(dev, (X *)spare, (X *)at, inp, weight, NULL, rows, C, OC, -1), at += rows * OC;
    dev->matmul_backward_input(dev, (X *)at, dout, weight, rows, C, OC, -1), at += rows * C;
    dev->matmul_gelu_backward_input(dev, (X *)at, dout, weight, (const X *)a->pre, rows, C, OC, -1), at += rows * C;
    dev->matmul_backward_weight(dev, at, NULL, dout, inp, rows, C, OC, -1), at += OC * C;
    dev->matmul_parts_forward(dev, (X *)at, inp, weight, NULL, rows, C, OC, parts, -1), at += rows * OC;
    dev->matmul_parts_backward_input(dev, (X *)at, dout, weight, rows, C, OC, back_parts, -1), at += rows * C;
    dev->experts_forward(dev, (X *)at, inp, weight, C, OC, x), at += rows * OC;
    dev->experts_backward_input(dev, (X *)at, dout, weight, C, OC, x), at += rows * C;
    dev->experts_backward_weight(dev, at, dout, inp, C, OC, x), at += E * OC * C;
    x.parts = parts;
    dev->experts_forward(dev, (X *)at, inp, weight, C, OC, x), at += rows * OC;
    check((size_t)(at - out) <= ROOM * 8);
    return (size_t)(at - out);
}

TEST(test_products)
{
    static Arrays a, r;
    static float got[ROOM * 8], want[ROOM * 8], plain[ROOM * 8];
    Dev *exact = dev_cpu_create(1), *tf32 = dev_cpu_create(2);
    exact->deterministic = tf32->tf32 = true;
    numbers(a.inp, N * C, "inp"), numbers(a.dout, N * OC, "dout"), numbers(a.weight, E * OC * C, "weight");
    numbers(a.bias, OC, "bias"), numbers(a.pre, N * C, "pre");
    rounded(r.inp, a.inp, N * C), rounded(r.dout, a.dout, N * OC), rounded(r.weight, a.weight, E * OC * C);
    memcpy(r.bias, a.bias, sizeof r.bias), memcpy(r.pre, a.pre, sizeof r.pre);
    for (size_t rows = 7; rows <= N; rows += N - 7) // also as few as a generated token has
        for (int fixed = 0; fixed < 2; fixed++) {
            tf32->deterministic = fixed;
            size_t n = products(tf32, got, &a, rows);
            products(exact, want, &r, rows);
            products(exact, plain, &a, rows);
            must_be("products", got, want, plain, n);
        }
    dev_cpu_free(exact), dev_cpu_free(tf32);
}

TEST(test_what_is_not_rounded)
{
    static Arrays a;
    static float got[ROOM], want[ROOM], lse[N];
    Dev *exact = dev_cpu_create(1), *tf32 = dev_cpu_create(1);
    tf32->tf32 = true;
    numbers(a.inp, N * C, "inp"), numbers(a.dout, N * OC, "dout"), numbers(a.weight, E * OC * C, "weight");
    for (int i = 0; i < 2; i++) {
        Dev *dev = i ? tf32 : exact;
        float *to = i ? got : want, *dweight = to + N * E + N * C, *out = dweight + E * C;
        memset(to, 0, ROOM * sizeof *to);
        dev->router_forward(dev, to, (const X *)a.inp, (const X *)a.weight, N, C, E);
        dev->router_backward(dev, (X *)(to + N * E), dweight, a.dout, (const X *)a.inp, (const X *)a.weight, N, C, E);
        dev->attention_forward(dev, (X *)out, lse, (const X *)a.inp, (const X *)a.weight, (const X *)a.dout,
                               (AttnShape){.B = 1, .Tq = 20, .Tk = 20, .H = 1, .G = 1, .D = C, .ldq = C, .ldkv = C});
    }
    assert_memory_equal(got, want, sizeof got);
    dev_cpu_free(exact), dev_cpu_free(tf32);
}

TESTS(NULL, NULL)
