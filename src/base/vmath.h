// vmath: exp, sigmoid and tanh as plain inline arithmetic that compilers vectorise.
//
// exp(x) = 2^n * e^r with n = round(x / ln 2), |r| <= ln(2)/2, and e^r a degree-6 polynomial (Cephes'
// expf coefficients): at most 2 ULP from the true value on [-87.3, 88.3]; smaller arguments give 1e-38,
// larger ones 2^127-ish; NaN stays NaN. glibc's expf is more exact but a function call per element;
// libmvec needs -ffast-math, which we do not use.
#ifndef VMATH_H
#define VMATH_H
#include <stdint.h>
#include <string.h>
#ifdef __cplusplus
extern "C" {
#endif

static inline float vmath_exp(float x)
{
    x = x < -87.3f ? -87.3f : x;
    x = x > 88.3f ? 88.3f : x;
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer in the low mantissa bits
    float shifted = x * 1.44269504088896341f + magic;
    float n = shifted - magic;
    float r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { float f; int32_t i; } bits = {shifted}, scale;
    scale.i = (int32_t)((uint32_t)(bits.i - 0x4B400000 + 127) << 23);
    return p * scale.f;
}

static inline float vmath_sigmoid(float x)
{
    return 1.0f / (1.0f + vmath_exp(-x));
}

// Near 0, where 1 - 2 / (e^2x + 1) cancels, x + x^3 p(x^2) with the coefficients of Cephes' tanhf: at most 2 ULP off.
static inline float vmath_tanh(float x)
{
    float a = x < 0 ? -x : x, z = x * x;
    float far = 1.0f - 2.0f / (vmath_exp(2 * a) + 1.0f);
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x;
    return a < 0.625f ? near : x < 0 ? -far : far;
}

// A logit as the loss sees it: cap tanh(z / cap), or where cap is 0 z itself.
static inline float vmath_cap(float z, float cap)
{
    return cap > 0 ? cap * vmath_tanh(z / cap) : z;
}

#ifdef __cplusplus
}
#endif
#endif
