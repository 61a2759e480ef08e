#include "bf16.h"

#include <math.h>
#include <string.h>

// The bits of a float, and the float of bits. For the student's use.
static inline uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

float bf16_to_float(uint16_t b)
{
    //[
    //+ (void)float_of, (void)b; // write this
    //+ return 0;
    return float_of((uint32_t)b << 16);
    //]
}

uint16_t bf16_from_float(float x)
{
    //[
    //+ (void)bits_of, (void)x; // write this
    //+ return 0;
    uint32_t u = bits_of(x);
    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    //]
}

uint16_t bf16_stochastic(float x, uint16_t random)
{
    //[
    //+ (void)x, (void)random; // write this
    //+ return 0;
    uint32_t u = bits_of(x);
    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + random) >> 16);
    //]
}
