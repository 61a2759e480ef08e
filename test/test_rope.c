// Tests of rope.h: the frequencies against those of the package transformers (test/fixtures/rope.safetensors), and the
// properties that each way of stretching is made for. (The op itself, on every device: test_ops, test_dev_check.)
#include "fixture.h"
#include "ops/rope.h"

#define U 0x1p-24

// The package computes base^(2i/D) in float: the exponent, at most 1, is rounded once, which is ln(base) u of the
// power; power, quotient, and the blending of two frequencies round some times more, and where a pair starts or ends to
// be stretched is a quotient of rounded logarithms: by a few u, of a difference of the order of f.
static double bound(const Rope *r, double f)
{
    return (log((double)r->theta) + 24 * r->factor) * U * f;
}

TEST(test_as_transformers)
{
    static const char *const kinds[] = {"none", "linear", "ntk", "yarn", "llama3"};
    Fixture *fx = fixture_open("rope");
    int n = 0;
    for (char key[32]; snprintf(key, sizeof key, "%d/frequency", n), fixture_has(fx, key); n++) {
        size_t D;
        char kind[16];
        Rope r = {0};
        snprintf(key, sizeof key, "%d", n);
        assert_int_equal(sscanf(fixture_text(fx, key), "%zu %f %15s %f %f %f %f", &D, &r.theta, kind, &r.factor,
                                &r.original, &r.slow, &r.fast), 7);
        while (strcmp(kinds[r.kind], kind)) r.kind++;
        snprintf(key, sizeof key, "%d/frequency", n);
        const float *want = fixture_f32(fx, key, D / 2);
        for (size_t i = 0; i < D / 2; i++) {
            double got = rope_frequency(&r, i, D);
            if (!(fabs(got - want[i]) <= bound(&r, got)))
                fail_msg("case %d, pair %zu: %.9g, transformers has %.9g", n, i, got, want[i]);
        }
        snprintf(key, sizeof key, "%d/amplitude", n);
        assert_true(fabs(rope_amplitude(&r) - fixture_f32(fx, key, 1)[0]) <= U * rope_amplitude(&r));
    }
    assert_int_equal(n, 7);
    fixture_close(fx);
}

static double turns(const Rope *r, double f)
{
    return r->original * f / (2 * ROPE_PI);
}

// By a factor of 1 nothing is stretched; by more no pair turns faster than before or slower than f / s.
TEST(test_between)
{
    enum { D = 64 };
    for (int kind = ROPE_NONE; kind <= ROPE_LLAMA3; kind++) {
        Rope plain = {.theta = 1e4f}, r = {1e4f, (RopeKind)kind, 1, 2048, 1, 32};
        assert_true(rope_amplitude(&r) == 1);
        for (size_t i = 0; i < D / 2; i++)
            assert_true(fabs(rope_frequency(&r, i, D) / rope_frequency(&plain, i, D) - 1) <= 1e-15);
        r.factor = kind == ROPE_NONE ? 1 : 8;
        for (size_t i = 0; i < D / 2; i++) {
            double f = rope_frequency(&plain, i, D), got = rope_frequency(&r, i, D);
            assert_true(got <= f * (1 + 1e-14) && got >= f / r.factor * (1 - 1e-14));
            if (i) assert_true(got < rope_frequency(&r, i - 1, D));
        }
    }
}

// What each one leaves as it was, and what it stretches by the whole factor.
TEST(test_what_each_is_for)
{
    enum { D = 128, LAST = D / 2 - 1 };
    Rope plain = {.theta = 1e4f}, r = {1e4f, ROPE_LINEAR, 4, 4096, 1, 32};
    for (size_t i = 0; i < D / 2; i++) assert_true(rope_frequency(&r, i, D) == rope_frequency(&plain, i, D) / 4);
    r.kind = ROPE_NTK;
    assert_true(rope_frequency(&r, 0, D) == 1);
    assert_true(fabs(rope_frequency(&r, LAST, D) * 4 / rope_frequency(&plain, LAST, D) - 1) <= 1e-14);
    for (r.kind = ROPE_YARN; r.kind <= ROPE_LLAMA3; r.kind++) {
        int same = 0, whole = 0;
        for (size_t i = 0; i < D / 2; i++) {
            double f = rope_frequency(&plain, i, D), got = rope_frequency(&r, i, D);
            // YaRN begins at a whole number of pairs, at most one too early.
            double early = r.kind == ROPE_YARN ? rope_frequency(&plain, 0, D) / rope_frequency(&plain, 1, D) : 1;
            if (turns(&r, f) >= r.fast * early) assert_true(got == f);
            if (turns(&r, f) <= r.slow / early) assert_true(fabs(got * 4 / f - 1) <= 1e-15);
            same += got == f, whole += fabs(got * 4 / f - 1) <= 1e-15;
        }
        assert_true(same > 10 && whole > 5 && same + whole < D / 2);
    }
    r.kind = ROPE_YARN;
    assert_true(fabs(rope_amplitude(&r) - 1.1386294361) < 1e-9); // 0.1 ln 4 + 1
    r.kind = ROPE_LLAMA3;
    assert_true(rope_amplitude(&r) == 1);
}

TESTS(NULL, NULL)
