// math.h: see stdlib.h. Each is an instruction of WebAssembly, or a test of bits.
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
static inline double fmax(double a, double b) { return a > b || b != b ? a : b; }
static inline double fmin(double a, double b) { return a < b || b != b ? a : b; }
#endif
