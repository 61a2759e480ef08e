// math.h: see stdlib.h. Most are one instruction of WebAssembly.
#ifndef BOOK_MATH_H
#define BOOK_MATH_H
#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define isnan(x) __builtin_isnan(x)
#define isfinite(x) __builtin_isfinite(x)
#define fabs __builtin_fabs
#define floor __builtin_floor
#define ceil __builtin_ceil
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#define ceilf __builtin_ceilf
#define fabsf __builtin_fabsf
#define rint __builtin_rint
// Declared only: the page gives exp, log and pow where they are linked, and the others are not.
double log(double x), exp(double x), pow(double x, double y), log2(double x), cos(double x), sin(double x);
float expf(float x), logf(float x), powf(float x, float y), tanhf(float x);
static inline double fmax(double a, double b) { return a > b || b != b ? a : b; }
static inline double fmin(double a, double b) { return a < b || b != b ? a : b; }
#endif
