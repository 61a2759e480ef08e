// The trainer's own, for which stochastic rounding is rounding to nearest after moving x by less than half a unit.
#include "bf16.h"

#include "base/formats.h"

float bf16_to_float(uint16_t b)
{
    return formats_decode(FORMAT_BF16, b);
}

uint16_t bf16_from_float(float x)
{
    return (uint16_t)formats_encode(FORMAT_BF16, x, false);
}

uint16_t bf16_stochastic(float x, uint16_t random)
{
    union { float x; uint32_t u; } moved = {x}, down = {x};
    down.u &= 0xffff0000;
    if (x != x || down.x == x) return bf16_from_float(x);
    moved.u = down.u | ((moved.u & 0xffff) > random ? 0xffff : 1);
    return bf16_from_float(moved.x);
}
