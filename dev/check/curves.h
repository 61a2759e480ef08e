// curves: when did two loss curves part, and is that what rounding does?
#ifndef CURVES_H
#define CURVES_H
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    char run[1000];
    double *loss; // (n), of updates 1 to n; NaN: not logged
    long n;
} Curve;

typedef struct {
    long both;      // updates that all have
    long first;     // first one whose losses differ; 0: none
    double largest; // of |A - B| over CURVES_FACTOR |C - B|, both the largest so far
    long out;       // first one where that is above 1; 0: none
} Curves;

#define CURVES_FACTOR 16.0 // by how much one run's rounding may exceed another's: chosen (curves.c)

// The losses of a run's metrics.jsonl. Dies when it has none.
Curve curves_read(const char *run);
void curves_free(Curve *curve);
// c NULL: there is no third run.
Curves curves_compare(const Curve *a, const Curve *b, const Curve *c);

#ifdef __cplusplus
}
#endif
#endif
