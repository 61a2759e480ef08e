// Complex numbers, the angle by steps: the factor of a token is that of the one before times e^(i f), in double.
#include "rotary.h"

#include <complex.h>
#include <math.h>

static void turn(float *x, size_t T, size_t H, size_t D, size_t first, double theta, double sign)
{
    for (size_t i = D / 2; i-- > 0;) {
        double f = sign * exp(-log(theta) * (double)i / ((double)D / 2));
        double complex now = cexp(I * f * (double)first), step = cexp(I * f);
        for (size_t t = 0; t < T; t++, now *= step)
            for (size_t h = H; h-- > 0;) {
                float *pair = x + (t * H + h) * D + i;
                double complex z = (pair[0] + I * pair[D / 2]) * now;
                pair[0] = (float)creal(z), pair[D / 2] = (float)cimag(z);
            }
    }
}

void rotary_forward(float *x, size_t T, size_t H, size_t D, size_t first, float theta)
{
    turn(x, T, H, D, first, theta, 1);
}

void rotary_backward(float *dx, size_t T, size_t H, size_t D, size_t first, float theta)
{
    turn(dx, T, H, D, first, theta, -1);
}
