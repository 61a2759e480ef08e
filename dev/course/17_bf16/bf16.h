// bf16: numbers of 16 bits, from fp32 and back.
//
// A bf16 number is the upper half of an fp32 number: 1 bit of sign, 8 of exponent, 7 of mantissa.
#ifndef BF16_H
#define BF16_H
#include <stdint.h>

// The same value, exactly; a NaN for a NaN.
float bf16_to_float(uint16_t b);

// The nearest bf16 number; of two equally near ones the one whose last bit is 0. Numbers whose nearest bf16 number
// would be 2^128 or more in size (bf16's and fp32's exponents end there) become infinite. A NaN becomes a NaN (any), an
// infinity stays, and so does the sign, of zeros too. Subnormal numbers are numbers like all others.
uint16_t bf16_from_float(float x);

// Stochastic rounding. `random` has 16 random bits. x lies between two neighbouring bf16 numbers, lo <= |x| < hi in
// size; the result is hi for a part (|x| - lo) / (hi - lo) of all 65536 values of `random`, and lo for the others.
// Which values give which is up to you. hi may be infinity. A bf16 number, an infinity or a NaN stays, for every value
// of `random`.
uint16_t bf16_stochastic(float x, uint16_t random);
#endif
