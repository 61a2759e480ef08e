// By arithmetic on values, without a look at the bits of a float: the size as a number of units in the last place.
#include "bf16.h"

#include <math.h>

float bf16_to_float(uint16_t b)
{
    int e = b >> 7 & 255, m = b & 127;
    double size = e == 0 ? ldexp(m, -133) : ldexp(m + 128, e - 134);
    if (e == 255) size = m ? NAN : INFINITY;
    return (float)copysign(size, b >> 15 ? -1 : 1);
}

// |x| in units of the last place of bf16 numbers of its exponent, and the pattern where these units are counted from.
static double units(float x, unsigned *first)
{
    int e;
    frexp(fabs(x), &e);
    if (e < -125 || x == 0) e = -125; // subnormal numbers have the units of the smallest normal ones
    *first = (unsigned)(e + 125) * 128;
    return ldexp(fabs(x), 8 - e);
}

static uint16_t pattern(float x, double whole, unsigned first)
{
    return (uint16_t)((signbit(x) ? 0x8000 : 0) | (first + (unsigned)whole));
}

uint16_t bf16_from_float(float x)
{
    unsigned first;
    if (isnan(x)) return 0xffff;
    if (isinf(x)) return x < 0 ? 0xff80 : 0x7f80;
    double all = units(x, &first), whole = floor(all), rest = all - whole;
    return pattern(x, whole + (rest > 0.5 || (rest == 0.5 && fmod(whole, 2) != 0)), first);
}

uint16_t bf16_stochastic(float x, uint16_t random)
{
    unsigned first;
    if (isnan(x) || isinf(x)) return bf16_from_float(x);
    double all = units(x, &first), whole = floor(all), rest = all - whole;
    return pattern(x, whole + (65535 - random < 65536 * rest), first);
}
