// scaling: an update with a dynamic loss scale.
#ifndef SCALING_H
#define SCALING_H
#include <stddef.h>

#define SCALE_LEAST 1.0f
#define SCALE_MOST 16777216.0f // 2^24

// All powers of two from SCALE_LEAST to SCALE_MOST.
typedef struct {
    float scale;  // the loss was multiplied by it before backward
    int interval; // finite steps in a row after which the scale doubles; 0: the scale is fixed
    int good;     // finite steps in a row since the scale last changed or the last overflow; 0 at the beginning
} LossScale;

typedef enum {
    STEP_MADE,
    STEP_SKIPPED, // an element of the gradient is infinite or NaN: no weight was changed
    STEP_FAILED,  // the same, but the scale was SCALE_LEAST already: it is not the cause, and the run should end
} Step;

// grad (n) is the gradient of scale * loss, with the scale that s has on entry. If it is finite:
//   g = grad / scale;  *norm = |g|;  g = g clip / *norm where *norm > clip (clip 0: never);  weight -= lr g
// and the step counts as good; after `interval` good ones in a row the scale doubles (not above SCALE_MOST), and
// counting begins again. If it is not finite: the scale is halved (not below SCALE_LEAST; not at all with interval 0),
// and counting begins again; *norm is undefined. The contents of grad are undefined after the call. With interval 0 a
// step is made or skipped, and never fails.
Step scaled_step(LossScale *s, float *weight, float *grad, size_t n, float lr, double clip, double *norm);
#endif
