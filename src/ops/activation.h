// activation: the feed-forward network's activations that work element by element: out = f(x), dx = dout f'(x).
// To add one: a row of ACTIVATIONS and its functions here, its name in base/config.h and config_table.c.
//
//   GELU    (Hendrycks & Gimpel, arXiv 1606.08415), tanh form: f = 0.5 x (1 + tanh u),
//           u = sqrt(2/pi) (x + 0.044715 x^3)
//   ReLU^2  (So et al., arXiv 2109.08668): f = max(x, 0)^2; NaN stays NaN
//
// The CPU and CUDA share this file; tanh is each one's own.
#ifndef ACTIVATION_H
#define ACTIVATION_H
#include "base/config.h"

#if defined GPU_H && defined __cplusplus // a CUDA source
#define ACT_FUNCTION static __device__ inline
#else
#include "base/vmath.h"
#define ACT_FUNCTION static inline
#endif

// A row's functions: NAME(x), NAME_slope(x), and how far an fp32 result may be from the exact one, in units of 2^-24:
// NAME_bound(x), NAME_slope_bound(x), where 0 means the same bits on every device.
#define ACTIVATIONS(ROW) \
    ROW(ACT_GELU, act_gelu) \
    ROW(ACT_RELU2, act_relu2)

#if defined GPU_H && defined __cplusplus

ACT_FUNCTION float act_gelu(float x)
{
    return 0.5f * x * (1 + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

ACT_FUNCTION float act_gelu_slope(float x)
{
    float t = tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608028654f * (1 + 0.134145f * x * x);
}

#else

// 0.5 (1 + tanh u) = sigmoid(2u)
ACT_FUNCTION float act_gelu(float x)
{
    float u2 = 1.5957691216057308f * (x + 0.044715f * x * x * x);
    return x * vmath_sigmoid(u2);
}

// s + x s (1 - s) 2u', with s = sigmoid(2u)
ACT_FUNCTION float act_gelu_slope(float x)
{
    float u2 = 1.5957691216057308f * (x + 0.044715f * x * x * x);
    float s = vmath_sigmoid(u2);
    float du2 = 1.5957691216057308f * (1.0f + 3 * 0.044715f * x * x);
    return s + x * s * (1.0f - s) * du2;
}

#endif

ACT_FUNCTION float act_relu2(float x)
{
    return x < 0 ? 0 : x * x;
}

ACT_FUNCTION float act_relu2_slope(float x)
{
    return x < 0 ? 0 : 2 * x;
}

// The argument of the sigmoid carries 6 roundings, which move it by at most 1.4 units (test/ops_ref.h).
static inline double act_gelu_bound(double x)
{
    return 9 * (x < 0 ? -x : x);
}

static inline double act_gelu_slope_bound(double x)
{
    return 8 + 17 * (x < 0 ? -x : x) * 0.79788456 * (1 + 3 * 0.044715 * x * x);
}

static inline double act_relu2_bound(double x) // one product: the same bits on every device
{
    (void)x;
    return 0;
}

static inline double act_relu2_slope_bound(double x)
{
    (void)x;
    return 0;
}
#endif
