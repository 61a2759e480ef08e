// systematic: is the difference of two arrays spread like rounding, or does it follow the numbers, a row or a column?
#ifndef SYSTEMATIC_H
#define SYSTEMATIC_H
#include <stdbool.h>
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    SYSTEMATIC_SCALE,    // d = x b: every number too large by the same factor
    SYSTEMATIC_SHIFT,    // d = x r, r = rms(b): the same number added everywhere
    SYSTEMATIC_SIZE,     // d = x |b|: rounding to one side
    SYSTEMATIC_POSITION, // d = x p b, p from -1 in the first row (token of a sequence) to 1 in the last
    SYSTEMATIC_COLUMN,   // the same over the columns
    SYSTEMATIC_KINDS
} SystematicKind;

typedef struct {
    double x;     // the least-squares coefficient
    double error; // its standard error, if what differs is rounding; infinite: it cannot be told
    double limit; // |x| beyond it is not rounding
} SystematicTest;

typedef struct {
    SystematicTest test[SYSTEMATIC_KINDS];
    double seen;      // the smallest factor 1 + x on all of the array that would have been found; infinite: none
    double part;      // rms(d) / rms(b)
} Systematic;

typedef struct {
    size_t rows, columns;
    size_t period;    // positions: of row i it is i mod period
    double tests;     // how many tests there are in all: the chance of one false alarm among them is SYSTEMATIC_ALARM
    double shared;    // what roundings of numbers that all elements share may do to a factor
    double terms;     // independent errors whose weighted mean the elements share: tokens of a sum; infinite: none
} SystematicModel;

#define SYSTEMATIC_ALARM 1e-6

// d = a - b and b, (rows, columns). Arrays with NaN or infinity are not tested.
Systematic systematic(const double *d, const double *b, SystematicModel model);
// The kind of the test that is farthest beyond its limit; -1: none is.
int systematic_worst(const Systematic *s);
const char *systematic_name(int kind);
// |t| that a number of Student's distribution exceeds with probability p, or a little more (Wallace, Annals of
// Mathematical Statistics 30, 1959).
double systematic_t(double p, double freedom);

#ifdef __cplusplus
}
#endif
#endif
