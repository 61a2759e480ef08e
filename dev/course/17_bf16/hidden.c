#define GRADE_HIDDEN
#include "../grade.h"

#include "bf16.h"

#include <math.h>

// tests.c
float bf16_test_float(uint32_t bits);
double bf16_test_value(uint16_t b);
double bf16_test_mean(uint32_t bits);

TEST(all_widened, 1, "all 65536 bf16 numbers, to fp32 and back")
{
    for (uint32_t b = 0; b < 65536; b++) {
        float got = bf16_to_float((uint16_t)b);
        if ((b & 0x7fff) > 0x7f80) {
            expect(isnan(got), "0x%04x is a NaN, got %g", b, (double)got);
            continue;
        }
        double want = (b & 0x7fff) < 0x7f80 ? bf16_test_value((uint16_t)b) : b >> 15 ? -INFINITY : INFINITY;
        expect((double)got == want, "0x%04x: expected %.9g, got %.9g", b, want, (double)got);
        uint16_t back = bf16_from_float(got);
        expect(back == b, "0x%04x to fp32 and back gives 0x%04x", b, back);
    }
}

TEST(all_rounded, 1, "both neighbours of every bf16 number: the nearest one, by distance")
{
    static const uint32_t lower[7] = {0, 1, 0x4000, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t b = 0; b < 65536; b++) {
        if ((b & 0x7fff) >= 0x7f80) continue;
        for (int i = 0; i < 7; i++) {
            float x = bf16_test_float(b << 16 | lower[i]);
            double down = fabs((double)x - bf16_test_value((uint16_t)b));
            double up = fabs((double)x - bf16_test_value((uint16_t)(b + 1)));
            uint16_t want = (uint16_t)(up < down || (up == down && b % 2) ? b + 1 : b), got = bf16_from_float(x);
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
    for (int i = 0; i < 3; i++)
        for (uint32_t r = 0; r < 65536; r += 5) {
            uint16_t got = bf16_stochastic(bf16_test_float(nan[i]), (uint16_t)r);
            expect((got & 0x7fff) > 0x7f80, "the NaN 0x%08x with random 0x%04x became 0x%04x, which is no NaN: a NaN "
                   "must be looked for first", nan[i], r, got);
        }
}
