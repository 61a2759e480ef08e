#include "rotary.h"

#include <math.h>

// Rotates by `sign` times the angle.
static void rotate(float *x, size_t T, size_t H, size_t D, size_t first, double theta, double sign)
{
    //[
    //+ (void)x, (void)T, (void)H, (void)D, (void)first, (void)theta, (void)sign; // write this
    for (size_t t = 0; t < T; t++)
        for (size_t i = 0; i < D / 2; i++) {
            double angle = sign * (double)(first + t) * pow(theta, -2.0 * (double)i / (double)D);
            float c = (float)cos(angle), s = (float)sin(angle);
            for (size_t h = 0; h < H; h++) {
                float *a = x + (t * H + h) * D + i, *b = a + D / 2, old = *a;
                *a = old * c - *b * s;
                *b = *b * c + old * s;
            }
        }
    //]
}

void rotary_forward(float *x, size_t T, size_t H, size_t D, size_t first, float theta)
{
    //[
    //+ rotate(x, T, H, D, first, theta, 0);
    rotate(x, T, H, D, first, theta, 1);
    //]
}

void rotary_backward(float *dx, size_t T, size_t H, size_t D, size_t first, float theta)
{
    //[
    //+ rotate(dx, T, H, D, first, theta, 0);
    rotate(dx, T, H, D, first, theta, -1);
    //]
}
