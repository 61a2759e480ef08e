#include "../grade.h"

#include "bf16.h"

#include <math.h>
#include <string.h>

// n calls in one.
void bf16_to_float_each(size_t n, float *result, const uint16_t *b);
void bf16_from_float_each(size_t n, uint16_t *result, const float *x);
void bf16_stochastic_each(size_t n, uint16_t *result, const float *x, const uint16_t *random);
static float x_each[7 * 65536];
static uint16_t b_each[7 * 65536], got_each[7 * 65536];

static float bf16_test_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

// The value of a bf16 number by its definition; 2^128 for infinity, so that it is the neighbour of the largest number.
static double bf16_test_value(uint16_t b)
{
    int e = b >> 7 & 255, m = b & 127;
    double size = e == 0 ? ldexp(m, -133) : ldexp(128 + m, e - 134);
    return b >> 15 ? -size : size;
}

typedef struct {
    uint32_t x;
    uint16_t want, mistake;
    const char *because; // of `mistake`; "": none
} Case;

static void check(const Case *c, int n)
{
    for (int i = 0; i < n; i++) {
        uint16_t got = bf16_from_float(bf16_test_float(c[i].x));
        const char *because = got == c[i].mistake ? c[i].because : "";
        expect(got == c[i].want, "%.9g (0x%08x): expected 0x%04x, got 0x%04x%s%s", (double)bf16_test_float(c[i].x),
               c[i].x, c[i].want, got, *because ? ": " : "", because);
    }
}

TEST(widen, 1, "bf16 to fp32")
{
    static const uint16_t b[6] = {0x3f80, 0xc0a0, 0x0001, 0x8080, 0x7f7f, 0x0000};
    for (int i = 0; i < 6; i++) {
        float got = bf16_to_float(b[i]);
        expect((double)got == bf16_test_value(b[i]), "0x%04x: expected %.9g, got %.9g%s", b[i], bf16_test_value(b[i]),
               (double)got, got == (float)b[i] ? ": the bits were converted as an integer" : "");
    }
    expect(isinf(bf16_to_float(0x7f80)) && bf16_to_float(0xff80) < 0, "0x7f80 and 0xff80 are infinities");
    expect(isnan(bf16_to_float(0x7f81)), "0x7f81 is a NaN");
    expect(signbit(bf16_to_float(0x8000)), "0x8000 is -0: the sign was lost");
}

TEST(nearest, 1, "fp32 to the nearest bf16")
{
    check((Case[]){{0x3f800000, 0x3f80, 0, ""},
                   {0x3f808001, 0x3f81, 0x3f80, "cut off, not rounded"},
                   {0x3f807fff, 0x3f80, 0x3f81, "rounded up; the lower number is nearer"},
                   {0xbf808001, 0xbf81, 0xbf80, "of negative numbers, too, the size is rounded to nearest"},
                   {0xbf807fff, 0xbf80, 0xbf81, "of negative numbers, too, the size is rounded to nearest"},
                   {0x3fffc000, 0x4000, 0x3fff, "cut off; the next number is 2, with another exponent"}}, 6);
}

TEST(ties, 2, "ties go to the even number")
{
    check((Case[]){{0x3f808000, 0x3f80, 0x3f81, "halves were rounded up; a tie goes to the even number (last bit 0)"},
                   {0x3f818000, 0x3f82, 0x3f81, "halves were rounded down; a tie goes to the even number"},
                   {0xbf808000, 0xbf80, 0xbf81, "halves were rounded away from 0; a tie goes to the even number"},
                   {0xbf818000, 0xbf82, 0xbf81, "halves were rounded towards 0; a tie goes to the even number"},
                   {0x3fff8000, 0x4000, 0x3fff, "a tie between 1.9921875 and 2: 2 is even"}}, 5);
}

TEST(special, 2, "infinities, NaNs, zeros, subnormal numbers, overflow")
{
    check((Case[]){{0x7f800000, 0x7f80, 0, ""},
                   {0xff800000, 0xff80, 0x7f80, "the sign was lost"},
                   {0x80000000, 0x8000, 0, "the sign of -0 was lost"},
                   {0x7f7f7fff, 0x7f7f, 0x7f80, "rounded up to infinity; the largest number is nearer"},
                   {0x7f7f8000, 0x7f80, 0x7f7f, "a tie at the end of the range: infinity's pattern is the even one"},
                   {0xff7fffff, 0xff80, 0xff7f, "it saturates; infinity was asked for"},
                   {0x00018000, 0x0002, 0x0000, "a subnormal number became 0"},
                   {0x00008001, 0x0001, 0x0000, "a subnormal number became 0"},
                   {0x007fffff, 0x0080, 0x007f, "the largest subnormal rounds to the smallest normal number"}}, 9);
    static const uint32_t nan[5] = {0x7fc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff};
    for (int i = 0; i < 5; i++) {
        uint16_t got = bf16_from_float(bf16_test_float(nan[i]));
        const char *why = (got & 0x7fff) == 0x7f80 ? ": its bits were in the lower half, which is cut off"
                        : (got & 0x7fff) == 0 ? ": a carry ran through all bits" : "";
        expect((got & 0x7fff) > 0x7f80, "the NaN 0x%08x became 0x%04x, which is no NaN%s", nan[i], got, why);
    }
}

// The mean over all values of `random`, in units between the neighbours: 0 at lo, 1 at hi.
static double bf16_test_mean(uint32_t bits)
{
    uint16_t lo = (uint16_t)(bits >> 16);
    double count = 0;
    for (uint32_t r = 0; r < 65536; r++) x_each[r] = bf16_test_float(bits), b_each[r] = (uint16_t)r;
    bf16_stochastic_each(65536, got_each, x_each, b_each);
    for (uint32_t r = 0; r < 65536; r++) {
        uint16_t got = got_each[r];
        expect(got == lo || (got == lo + 1 && (bits & 0xffff)), "0x%08x with random 0x%04x gives 0x%04x, which is no "
               "neighbour (0x%04x or, unless x is this number, 0x%04x)", bits, r, got, lo, lo + 1);
        count += got != lo;
    }
    return count / 65536;
}

TEST(stochastic, 1, "stochastic rounding: the mean is the number")
{
    double never = 0, always = 1, other = 0.75, half = 0.5, more = 0.25 + 1 / 65536.;
    expect_number("the part of 65536 random numbers that rounds 1 + 1/4 unit up", bf16_test_mean(0x3f804000), 0.25, 0,
                  (Mistake[]){{&never, "to nearest, whatever the random number"},
                              {&always, "always rounded up"},
                              {&half, "a coin: the chance must depend on how near x is"},
                              {&more, "one value of random too many, so bf16 numbers do not stay either"},
                              {&other, "the chances are exchanged: near numbers are the likely ones"}}, 5);
    expect_number("the part that rounds -1.5 - 3/4 unit away from 0", bf16_test_mean(0xbfc0c000), 0.75, 0,
                  (Mistake[]){{&half, "a coin: the chance must depend on how near x is"},
                              {&always, "to nearest, whatever the random number"}}, 2);
}

#include "../hidden.h"

TEST(all_widened, 1, "all 65536 bf16 numbers, to fp32 and back")
{
    for (uint32_t b = 0; b < 65536; b++) b_each[b] = (uint16_t)b;
    bf16_to_float_each(65536, x_each, b_each);
    bf16_from_float_each(65536, got_each, x_each);
    for (uint32_t b = 0; b < 65536; b++) {
        float got = x_each[b];
        if ((b & 0x7fff) > 0x7f80) {
            expect(isnan(got), "0x%04x is a NaN, got %g", b, (double)got);
            continue;
        }
        double want = (b & 0x7fff) < 0x7f80 ? bf16_test_value((uint16_t)b) : b >> 15 ? -INFINITY : INFINITY;
        expect((double)got == want, "0x%04x: expected %.9g, got %.9g", b, want, (double)got);
        uint16_t back = got_each[b];
        expect(back == b, "0x%04x to fp32 and back gives 0x%04x", b, back);
    }
}

TEST(all_rounded, 1, "both neighbours of every bf16 number: the nearest one, by distance")
{
    static const uint32_t lower[7] = {0, 1, 0x4000, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t i = 0; i < 7 * 65536; i++) x_each[i] = bf16_test_float(i / 7 << 16 | lower[i % 7]);
    bf16_from_float_each(7 * 65536, got_each, x_each);
    for (uint32_t b = 0; b < 65536; b++) {
        if ((b & 0x7fff) >= 0x7f80) continue;
        for (int i = 0; i < 7; i++) {
            float x = bf16_test_float(b << 16 | lower[i]);
            double down = fabs((double)x - bf16_test_value((uint16_t)b));
            double up = fabs((double)x - bf16_test_value((uint16_t)(b + 1)));
            uint16_t want = (uint16_t)(up < down || (up == down && b % 2) ? b + 1 : b), got = got_each[7 * b + (uint32_t)i];
            expect(got == want, "%.9g (0x%08x): expected 0x%04x, got 0x%04x%s", (double)x, b << 16 | lower[i], want,
                   got, up == down ? " (a tie)" : "");
        }
    }
}

TEST(stochastic_all, 1, "stochastic rounding of both signs, subnormal numbers, NaNs, infinities, and bf16 numbers")
{
    static const uint32_t x[7] = {0x3f800000, 0x80000000, 0x7f800000, 0xff800000, 0x00010000, 0x7f7f0000, 0xc2f70000};
    for (int i = 0; i < 7; i++)
        expect_number("the part of a bf16 number that is rounded up", bf16_test_mean(x[i]), 0, 0, NULL, 0);
    static const uint32_t y[6] = {0x3f800001, 0xbf80ffff, 0x00001234, 0x800080ff, 0x3fffabcd, 0x7f7f0100};
    for (int i = 0; i < 6; i++)
        expect_number("the part that is rounded away from 0, times 65536", 65536 * bf16_test_mean(y[i]),
                      y[i] & 0xffff, 0, NULL, 0);
    static const uint32_t nan[3] = {0x7f800001, 0x7fffffff, 0xffffffff};
    for (int i = 0; i < 3; i++) {
        for (uint32_t r = 0; r < 65536; r++) x_each[r] = bf16_test_float(nan[i]), b_each[r] = (uint16_t)r;
        bf16_stochastic_each(65536, got_each, x_each, b_each);
        for (uint32_t r = 0; r < 65536; r += 5) {
            uint16_t got = got_each[r];
            expect((got & 0x7fff) > 0x7f80, "the NaN 0x%08x with random 0x%04x became 0x%04x, which is no NaN: a NaN "
                   "must be looked for first", nan[i], r, got);
        }
    }
}
